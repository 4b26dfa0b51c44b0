/* Loads by a formula, and the job that they are for: 8 ranks. */
#pragma once

#include "harness/place/place.h"
#include "tests/errors.h"
#include "tests/harness/predict/job_support.h"

enum { RANKS = 8, TOKENS = 32768, TOP_K = 2 };
#define ONE_NODE "cluster=h100", "change=nodes=1"
#define TWO_NODES "cluster=fastermoe-trevor", "change=nodes=2"

TEST_END(loads, struct mp_place_loads, mp_place_loads_destroy(it))

static inline struct mp_cluster *make_placed_job(struct mp_predict_job *job, const char *system,
                                                 const char *name, const char *change, int layers,
                                                 int experts) {
    char named[64], layered[64];
    snprintf(named, sizeof named, "system=%s", system);
    snprintf(layered, sizeof layered, "layers=%d", layers);
    struct mp_cluster *cluster =
        make_job(job, named, name, change, layered, formatted("experts=%d", experts), "width=1024",
                 "expert-width=4096", "sequence=1024");
    assert_int_equal(job->file.job.ranks, RANKS);
    job->file.job.batch = RANKS * TOKENS / 1024;
    return cluster;
}

/* The loads, of this job on this cluster. */
static inline struct mp_place_loads *of(struct mp_place_loads *loads,
                                        const struct mp_predict_job *job,
                                        const struct mp_cluster *cluster) {
    loads->job = job;
    loads->cluster = cluster;
    return loads;
}

/* Routes of one source to an expert, in one layer and iteration. */
typedef uint32_t count_of(int64_t iteration, int layer, int source, int expert);

static inline struct mp_place_loads make_loads(int64_t iterations, int layers, int experts,
                                               count_of *count) {
    struct mp_place_loads loads = {.layers = layers,
                                   .micro_batches = 1,
                                   .ranks = RANKS,
                                   .experts = experts,
                                   .iterations = iterations};
    size_t blocks = (size_t)iterations * (size_t)layers, columns = (size_t)(layers * experts);
    const struct mp_load *taken = mp_loads_take(&loads.memory, (int64_t)blocks, RANKS, experts);
    loads.source = mp_arena_text(&loads.memory, "a formula");
    loads.load = loads.learnt = calloc(blocks, sizeof *loads.load);
    MP_TAKE(&loads.memory, loads.total, blocks * (size_t)experts);
    MP_TAKE(&loads.memory, loads.never, columns);
    for (size_t b = 0; b < blocks; b++) {
        loads.load[b] = taken[b];
        for (int r = 0; r < RANKS; r++)
            for (int e = 0; e < experts; e++)
                loads.load[b].count[r * experts + e] =
                    count((int64_t)b / layers, (int)(b % (size_t)layers), r, e);
        mp_load_expert_totals(&loads.load[b], loads.total + b * (size_t)experts);
    }
    for (size_t c = 0; c < columns; c++) {
        loads.never[c] = true;
        for (int64_t i = 0; i < iterations; i++)
            loads.never[c] &= loads.total[(size_t)i * columns + c] == 0;
    }
    return loads;
}
