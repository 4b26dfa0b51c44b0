/* All loads of a job in memory, which several looks are taken at. */
#include <stdlib.h>
#include <string.h>

#include "harness/place/place.h"
#include "harness/predict/loads_wanted.h"

enum { GIGABYTES = 4 }; /* of loads, at most */

static int64_t per_iteration(const struct mp_place_loads *loads) {
    return (int64_t)loads->layers * loads->micro_batches;
}

void mp_place_loads_destroy(struct mp_place_loads *loads) {
    mp_arena_release(&loads->memory);
    free(loads->load);
    *loads = (struct mp_place_loads){0};
}

/* One iteration more, whose loads are zero. */
static int add_iteration(struct mp_place_loads *loads, struct mp_error *error) {
    const int64_t blocks = per_iteration(loads), have = loads->iterations * blocks;
    const double bytes = (double)(have + blocks) * loads->ranks * loads->experts * sizeof(uint32_t);
    if (bytes > GIGABYTES * 1024.0 * 1024 * 1024)
        return mp_fail(error, MP_ELIMIT,
                       "more than %lld iterations take over %d GiB; --iterations says how many to "
                       "take",
                       (long long)loads->iterations, GIGABYTES);
    const struct mp_load *added =
        mp_loads_take(&loads->memory, blocks, loads->ranks, loads->experts);
    for (int64_t i = 0; i < blocks; i++) {
        if (loads->memory.lacking || !MP_ROOM(loads->load, have + i))
            return mp_fail(error, MP_ENOMEM, "no memory for loads");
        loads->load[have + i] = added[i];
    }
    loads->iterations++;
    return MP_OK;
}

/* Loads that are wanted in several micro-batches and come in one stand for each. */
static int read_blocks(struct mp_trace_stream *stream, struct mp_place_loads *loads,
                       struct mp_error *error) {
    const struct mp_predict_job *job = loads->job;
    const struct mp_trace_block *block;
    const struct mp_trace_wanted wanted = predict_loads_wanted(job, loads->cluster);
    const bool fewer = mp_job_takes_fewer(&job->file.job);
    const int given = mp_trace_stream_info(stream)->shape.micro_batches;
    for (;;) {
        MP_TRY(mp_trace_next(stream, &block, error));
        if (!block)
            break;
        if (block->layer == 0 && block->micro_batch == 0) {
            if (loads->iterations == job->file.job.iterations)
                break;
            MP_TRY(add_iteration(loads, error));
        }
        if (block->layer == 0)
            MP_TRY(predict_loads_check(&wanted, fewer, block, error));
        for (int m = block->micro_batch; m < loads->micro_batches; m += given)
            mp_load_copy(&loads->load[(loads->iterations - 1) * per_iteration(loads) +
                                      (int64_t)m * loads->layers + block->layer],
                         &block->load);
    }
    return loads->iterations > 0
               ? MP_OK
               : mp_fail(error, MP_EFORMAT, "there is no load in %s", loads->source);
}

static void sum_micro_batches(struct mp_place_loads *loads) {
    const int64_t cells = (int64_t)loads->ranks * loads->experts;
    loads->learnt = loads->load;
    if (loads->micro_batches == 1)
        return;
    loads->learnt = mp_loads_take(&loads->memory, loads->iterations * loads->layers, loads->ranks,
                                  loads->experts);
    for (int64_t i = 0; !loads->memory.lacking && i < loads->iterations * loads->layers; i++) {
        const struct mp_load *first =
            &loads->load[i / loads->layers * per_iteration(loads) + i % loads->layers];
        for (int m = 0; m < loads->micro_batches; m++)
            for (int64_t cell = 0; cell < cells; cell++)
                loads->learnt[i].count[cell] += first[(int64_t)m * loads->layers].count[cell];
    }
}

/* To a route: what splitting leaves. */
static bool sources_send_alike(const struct mp_place_loads *loads) {
    for (int64_t i = 0; i < loads->iterations * loads->layers; i++) {
        const uint32_t *count = loads->learnt[i].count;
        for (int64_t cell = loads->experts; count && cell < (int64_t)loads->ranks * loads->experts;
             cell++) {
            int64_t apart = (int64_t)count[cell] - count[cell % loads->experts];
            if (apart < -loads->micro_batches || apart > loads->micro_batches)
                return false;
        }
    }
    return true;
}

static int add_up(struct mp_place_loads *loads, struct mp_error *error) {
    const size_t columns = (size_t)loads->layers * (size_t)loads->experts;
    sum_micro_batches(loads);
    MP_TAKE(&loads->memory, loads->total, (size_t)loads->iterations * columns);
    MP_TAKE(&loads->memory, loads->never, columns);
    MP_TRY(mp_arena_check(&loads->memory, error));
    memset(loads->never, true, columns);
    for (int64_t i = 0; i < loads->iterations * loads->layers; i++)
        mp_load_expert_totals(&loads->learnt[i], loads->total + i * loads->experts);
    for (size_t i = 0; i < (size_t)loads->iterations * columns; i++)
        if (loads->total[i] > 0)
            loads->never[i % columns] = false;
    loads->one_source = sources_send_alike(loads);
    return MP_OK;
}

int mp_place_loads_read(const struct mp_predict_job *job, const struct mp_cluster *cluster,
                        struct mp_place_loads *loads, struct mp_error *error) {
    MP_AUTO(stream) struct mp_trace_stream *stream = NULL;
    *loads = (struct mp_place_loads){.job = job,
                                     .cluster = cluster,
                                     .layers = job->file.job.layers,
                                     .micro_batches = job->options.micro_batches,
                                     .ranks = mp_cluster_ranks(cluster),
                                     .experts = job->file.job.experts};
    MP_TRY(mp_predict_job_loads(job, cluster, &stream, error));
    const struct mp_trace_info *info = mp_trace_stream_info(stream);
    loads->of_run = info->of_run;
    loads->dense_layers = info->dense_layers;
    loads->source = mp_arena_text(&loads->memory, info->source ? info->source : "");
    int code = read_blocks(stream, loads, error);
    if (!code)
        code = add_up(loads, error);
    if (code)
        mp_place_loads_destroy(loads);
    return code;
}
