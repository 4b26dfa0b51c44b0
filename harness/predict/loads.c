/* Loads of a predicted job: a trace, a generator, or what the job's routing replays. */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "harness/predict/job.h"
#include "harness/predict/loads.h"
#include "harness/workload/formats.h"
#include "harness/workload/generate.h"
#include "harness/workload/named.h"
#include "harness/workload/reshape.h"

struct mp_trace_wanted predict_loads_wanted(const struct mp_predict_job *job,
                                            const struct mp_cluster *cluster) {
    int ranks = mp_cluster_ranks(cluster), micro_batches = job->options.micro_batches;
    const struct mp_job *sizes = &job->file.job;
    return (struct mp_trace_wanted){
        .shape = {.ranks = ranks,
                  .experts = sizes->experts,
                  .layers = sizes->layers,
                  .micro_batches = micro_batches,
                  .top_k = mp_job_top_k(sizes)},
        .tokens = (int64_t)sizes->batch * sizes->sequence / ranks / micro_batches,
        .iterations = sizes->iterations,
    };
}

/* ---- replayed routing: the loads that the trainer would make, the same in all iterations ---- */

struct replay {
    struct mp_trace_shape shape;
    int64_t iterations, block; /* blocks so far */
    uint32_t *count;           /* [ranks][experts], owned */
};

static int replay_next(void *self, struct mp_trace_block *block, bool *end,
                       struct mp_error *error) {
    (void)error;
    struct replay *replay = self;
    int layers = replay->shape.layers, per_iteration = layers * replay->shape.micro_batches;
    block->iteration = replay->block / per_iteration;
    block->micro_batch = (int)(replay->block % per_iteration / layers);
    block->layer = (int)(replay->block % layers);
    *end = block->iteration >= replay->iterations;
    if (*end)
        return MP_OK;
    size_t counts = (size_t)replay->shape.ranks * (size_t)replay->shape.experts;
    memcpy(block->load.count, replay->count, counts * sizeof *replay->count);
    replay->block++;
    return MP_OK;
}

static void replay_destroy(void *self) {
    struct replay *replay = self;
    free(replay->count);
    free(replay);
}

static int fill_replay(const struct mp_job *job, const struct mp_trace_wanted *wanted,
                       struct replay *replay, struct mp_error *error) {
    size_t experts = (size_t)job->experts;
    replay->count = calloc((size_t)wanted->shape.ranks * experts, sizeof *replay->count);
    int code = replay->count
                   ? MP_OK
                   : mp_fail(error, MP_ENOMEM, "no memory for the loads of %d ranks and %d experts",
                             wanted->shape.ranks, job->experts);
    for (int r = 0; r < wanted->shape.ranks && !code; r++)
        code = mp_job_replay(job, r, wanted->tokens * wanted->shape.top_k,
                             replay->count + (size_t)r * experts, error);
    return code;
}

static int open_replay(const struct mp_job *job, const struct mp_trace_wanted *wanted,
                       struct mp_trace_stream **stream, struct mp_error *error) {
    static const struct mp_trace_stream_operations operations = {replay_next, replay_destroy};
    char workload[128];
    struct replay *replay = calloc(1, sizeof *replay);
    struct mp_trace_info info = {.shape = wanted->shape,
                                 .source = strdup(mp_job_workload(job, workload, sizeof workload)),
                                 .notes = strdup("replayed as the trainer would")};
    int code = replay && info.source && info.notes
                   ? fill_replay(job, wanted, replay, error)
                   : mp_fail(error, MP_ENOMEM, "no memory for the job's loads");
    if (code) {
        mp_trace_info_destroy(&info);
        if (replay)
            replay_destroy(replay);
        return code;
    }
    replay->shape = wanted->shape;
    replay->iterations = wanted->iterations;
    return mp_trace_stream_create(&operations, replay, &info, stream, error);
}

/* ---- named loads ---- */

static int open_named(const char *text, const struct mp_trace_wanted *wanted,
                      struct mp_trace_stream **stream, struct mp_error *error) {
    size_t length = strcspn(text, " \t");
    const char *format = mp_trace_names_generator(text) ? NULL : mp_format_guess(text);
    if (mp_trace_names_generator(text))
        return mp_trace_open_named(text, wanted, stream, error);
    if (format)
        return mp_format_open(format, text, stream, error);
    if (strcspn(text, "./") >= length && access(text, F_OK)) { /* a word, and no file's name */
        char word[64];
        snprintf(word, sizeof word, "%.*s", (int)length, text);
        mp_generator_find(word, error);
        mp_error_prefix(error, "loads");
        return MP_ENOTFOUND;
    }
    return mp_trace_open_named(text, wanted, stream, error);
}

/* Nothing makes loads of so many experts per token of others. */
static bool differs_in_choices(const struct mp_trace_shape *given,
                               const struct mp_trace_shape *wanted) {
    return given->top_k > 0 && given->top_k != wanted->top_k;
}

static int fail_unfit(const char *loads, const struct mp_trace_shape *given,
                      const struct mp_trace_shape *wanted, struct mp_error *error) {
    char has[160], needs[160], way[96] = ", or have the loads fitted (--fit, in a suite fit: yes)";
    if (differs_in_choices(given, wanted))
        snprintf(way, sizeof way, " (gate=softmax top-k=%d); experts per token are never fitted",
                 given->top_k);
    return mp_fail(error, MP_EINVAL,
                   "loads: %.200s has %s; the prediction has %s: set those to the loads'%s", loads,
                   mp_trace_shape_describe(given, has, sizeof has),
                   mp_trace_shape_describe(wanted, needs, sizeof needs), way);
}

static int fit(const struct mp_trace_wanted *wanted, struct mp_trace_stream **stream,
               struct mp_error *error) {
    int given = mp_trace_stream_info(*stream)->shape.micro_batches;
    const struct mp_reshape reshape = {
        .ranks = wanted->shape.ranks,
        .experts = wanted->shape.experts,
        .layers = wanted->shape.layers,
        .micro_batches = given == wanted->shape.micro_batches ? given : 1,
        .tokens = wanted->tokens,
        .top_k = wanted->shape.top_k,
    };
    struct mp_trace_stream *source = *stream;
    *stream = NULL;
    return mp_trace_reshape(source, &reshape, stream, error);
}

int mp_predict_job_loads(const struct mp_predict_job *job, const struct mp_cluster *cluster,
                         struct mp_trace_stream **stream, struct mp_error *error) {
    const struct mp_trace_wanted wanted = predict_loads_wanted(job, cluster);
    const struct mp_job *sizes = &job->file.job;
    const char *loads = *job->loads                          ? job->loads
                        : sizes->routing == MP_ROUTING_TRACE ? sizes->trace
                                                             : "";
    *stream = NULL;
    if (!*loads && sizes->routing == MP_ROUTING_GATE)
        return mp_fail(error, MP_EINVAL,
                       "loads: not given; a prediction needs a trace, a generator, or routing "
                       "balanced, skewed or load (there is no gate to ask)");
    if (!*loads)
        return open_replay(sizes, &wanted, stream, error);
    int code = open_named(loads, &wanted, stream, error);
    const struct mp_trace_shape *given = code ? NULL : &mp_trace_stream_info(*stream)->shape;
    if (!code && (job->fit ? differs_in_choices(given, &wanted.shape)
                           : !mp_trace_shape_fits(given, &wanted.shape)))
        code = fail_unfit(loads, given, &wanted.shape, error);
    if (!code && job->fit)
        code = fit(&wanted, stream, error);
    if (code) {
        mp_trace_stream_destroy(*stream);
        *stream = NULL;
    }
    return code;
}

/* ---- a job for given loads ---- */

/* As many tokens as the loads have routes for, in sequences as long as they are if that is
 * possible. */
static void adopt_tokens(struct mp_job *job, int64_t tokens, int64_t parts) {
    enum { SEQUENCE_MOST = 65536 };
    if (tokens % job->sequence == 0 && tokens / job->sequence % parts == 0 &&
        tokens / job->sequence <= INT32_MAX) {
        job->batch = (int)(tokens / job->sequence);
    } else if (tokens % parts == 0 && tokens / parts <= SEQUENCE_MOST && parts <= INT32_MAX) {
        job->sequence = (int)(tokens / parts);
        job->batch = (int)parts;
    }
}

int mp_predict_job_adopt(struct mp_predict_job *job, const struct mp_cluster *cluster,
                         struct mp_error *error) {
    const struct mp_trace_wanted wanted = predict_loads_wanted(job, cluster);
    const struct mp_trace_block *block = NULL;
    struct mp_trace_stream *stream = NULL;
    struct mp_job *sizes = &job->file.job;
    if (!*job->loads || mp_trace_names_generator(job->loads))
        return MP_OK;
    int code = open_named(job->loads, &wanted, &stream, error);
    if (code)
        return code;
    const struct mp_trace_shape shape = mp_trace_stream_info(stream)->shape;
    code = mp_trace_next(stream, &block, error);
    sizes->layers = shape.layers;
    sizes->experts = shape.experts;
    if (!code && shape.top_k > 0) {
        const struct mp_gate_kind *gate = mp_gate_kinds[mp_gate_of_choices(shape.top_k)];
        code = mp_job_set_gate(sizes, gate->name, job->loads, error);
        sizes->top_k = shape.top_k;
    }
    job->options.micro_batches = shape.micro_batches;
    if (!code && block && !job->fit)
        adopt_tokens(sizes, mp_load_total(&block->load) / mp_job_top_k(sizes) * shape.micro_batches,
                     (int64_t)wanted.shape.ranks * shape.micro_batches);
    mp_trace_stream_destroy(stream);
    return code;
}
