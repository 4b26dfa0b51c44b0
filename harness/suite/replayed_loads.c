/* Loads of jobs: see replayed_loads.h. */
#include "harness/suite/replayed_loads.h"

#include <stdio.h>
#include <string.h>

#include "harness/workload/named.h"
#include "reference/trainer/loads_file.h"

static struct mp_loads_shape shape_of(const struct mp_job *job) {
    return (struct mp_loads_shape){
        .sources = job->ranks,
        .experts = job->experts,
        .layers = job->layers,
        .top_k = mp_job_top_k(job),
        .tokens = (int64_t)(job->batch / job->ranks) * mp_job_step_tokens(job),
        .fewer = mp_job_takes_fewer(job),
    };
}

static int open_loads(const struct mp_job *job, struct mp_trace_stream **stream,
                      struct mp_error *error) {
    const struct mp_loads_shape shape = shape_of(job);
    const struct mp_trace_wanted wanted = {
        .shape = {.ranks = shape.sources,
                  .experts = shape.experts,
                  .layers = shape.layers,
                  .micro_batches = 1,
                  .top_k = shape.top_k},
        .tokens = shape.tokens,
        .iterations = job->iterations,
    };
    char has[160], needs[160];
    int code = mp_trace_open_named(job->trace, &wanted, stream, error);
    const struct mp_trace_shape *given = code ? NULL : &mp_trace_stream_info(*stream)->shape;
    if (!code && !mp_trace_shape_fits(given, &wanted.shape))
        code = mp_fail(error, MP_EINVAL,
                       "trace: %.300s has %s; the job has %s.  moeperf reshape makes a trace of "
                       "another shape, but for experts per token, which top-k says",
                       job->trace, mp_trace_shape_describe(given, has, sizeof has),
                       mp_trace_shape_describe(&wanted.shape, needs, sizeof needs));
    if (code) {
        mp_trace_stream_destroy(*stream);
        *stream = NULL;
    }
    return code;
}

int mp_suite_check_loads(struct mp_job *job, struct mp_error *error) {
    const struct mp_loads_shape shape = shape_of(job);
    const struct mp_trace_block *block;
    struct mp_trace_stream *stream;
    uint32_t digest = 0;
    int64_t blocks = 0;
    if (job->routing != MP_ROUTING_TRACE)
        return MP_OK;
    int code;
    MP_TRY(open_loads(job, &stream, error));
    while (!(code = mp_trace_next(stream, &block, error)) && block) {
        code = mp_loads_check(&shape, block->iteration, block->layer, block->load.count, error);
        if (code) {
            mp_error_prefix(error, "trace: %.300s", job->trace);
            break;
        }
        digest = mp_loads_digest(digest, &block->load);
        blocks++;
    }
    mp_trace_stream_destroy(stream);
    if (!code && blocks == 0)
        code = mp_fail(error, MP_EINVAL, "trace: %.300s has no iteration", job->trace);
    if (!code)
        snprintf(job->trace_digest, sizeof job->trace_digest, "%08x", digest);
    return code;
}

/* At most the job's iterations; all are read, as the digest is the whole trace's. */
static int write_blocks(const struct mp_job *job, struct mp_trace_stream *stream,
                        struct mp_loads_writer *writer, uint32_t *digest, struct mp_error *error) {
    const struct mp_trace_block *block;
    int64_t blocks = 0;
    int code;
    while (!(code = mp_trace_next(stream, &block, error)) && block) {
        *digest = mp_loads_digest(*digest, &block->load);
        if (blocks++ / job->layers < job->iterations)
            MP_TRY(mp_loads_write(writer, &block->load, error));
    }
    return code;
}

int mp_suite_write_loads(struct mp_job *job, const char *path, struct mp_error *error) {
    const struct mp_loads_shape shape = shape_of(job);
    struct mp_trace_stream *stream;
    struct mp_loads_writer *writer;
    uint32_t digest = 0;
    if (job->routing != MP_ROUTING_TRACE)
        return MP_OK;
    if (strlen(path) >= sizeof job->trace_loads)
        return mp_fail(error, MP_ELIMIT, "%.200s...: the path is too long", path);
    MP_TRY(open_loads(job, &stream, error));
    int code = mp_loads_writer_create(path, &shape, &writer, error);
    if (!code) {
        code = write_blocks(job, stream, writer, &digest, error);
        int finished = mp_loads_writer_finish(writer, !code, digest, error);
        code = code ? code : finished;
    }
    mp_trace_stream_destroy(stream);
    if (!code)
        strcpy(job->trace_loads, path);
    return code;
}
