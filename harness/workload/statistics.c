#include "harness/workload/statistics.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "reference/base/arena.h"
#include "reference/base/imbalance.h"
#include "reference/base/median.h"

const int mp_trace_lags[MP_TRACE_LAGS] = {1, 10, 100};

enum { KEPT = 101 }; /* iterations: the largest lag needs so many */

struct measured {
    double value[MP_TRACE_MEASURES];
    int64_t iteration, routes;
};

/* Routes of an iteration, micro-batches added up. */
struct kept {
    int64_t iteration;
    int64_t *routes; /* [layers][experts] */
};

struct correlation {
    double sum;
    int64_t pairs;
};

struct mp_trace_statistics {
    struct mp_trace_shape shape;
    struct measured *block; /* in the trace's order */
    int64_t blocks;
    int64_t *expert, *rank; /* [experts], [ranks] of a block */
    struct kept kept[KEPT]; /* as a ring */
    int64_t iterations;
    struct correlation *correlation; /* [layers][MP_TRACE_LAGS] */
    struct mp_arena arena;           /* of the tables */
};

int mp_trace_statistics_create(const struct mp_trace_shape *shape,
                               struct mp_trace_statistics **made, struct mp_error *error) {
    MP_TRY(MP_NEW(*made, 1, error));
    struct mp_trace_statistics *statistics = *made;
    statistics->shape = *shape;
    MP_TAKE(&statistics->arena, statistics->expert, shape->experts);
    MP_TAKE(&statistics->arena, statistics->rank, shape->ranks);
    MP_TAKE(&statistics->arena, statistics->correlation, (size_t)shape->layers * MP_TRACE_LAGS);
    int code = mp_arena_check(&statistics->arena, error);
    if (code) {
        mp_trace_statistics_destroy(statistics);
        *made = NULL;
    }
    return code;
}

void mp_trace_statistics_destroy(struct mp_trace_statistics *statistics) {
    if (!statistics)
        return;
    for (int k = 0; k < KEPT; k++)
        free(statistics->kept[k].routes);
    mp_arena_release(&statistics->arena);
    free(statistics->block);
    free(statistics);
}

/* ---- a block ---- */

static void measure(struct mp_trace_statistics *statistics, struct measured *block) {
    const struct mp_trace_shape *shape = &statistics->shape;
    const struct mp_imbalance experts = mp_imbalance_of(statistics->expert, shape->experts);
    block->value[MP_EXPERT_MAX_OVER_MEAN] = experts.max_over_mean;
    block->value[MP_EFFECTIVE_EXPERTS] = experts.effective;
    block->value[MP_DEAD_FRACTION] = experts.dead_fraction;
    block->value[MP_RANK_MAX_OVER_MEAN] = NAN;
    if (shape->experts % shape->ranks)
        return;
    memset(statistics->rank, 0, (size_t)shape->ranks * sizeof *statistics->rank);
    for (int e = 0; e < shape->experts; e++)
        statistics->rank[e / (shape->experts / shape->ranks)] += statistics->expert[e];
    block->value[MP_RANK_MAX_OVER_MEAN] =
        mp_imbalance_of(statistics->rank, shape->ranks).max_over_mean;
}

/* NAN where one of them is the same for all experts. */
static double correlate(const int64_t one[], const int64_t other[], int count) {
    double x = 0, y = 0, xx = 0, yy = 0, xy = 0;
    for (int i = 0; i < count; i++) {
        x += (double)one[i] / count;
        y += (double)other[i] / count;
    }
    for (int i = 0; i < count; i++) {
        double a = (double)one[i] - x, b = (double)other[i] - y;
        xx += a * a, yy += b * b, xy += a * b;
    }
    return xx > 0 && yy > 0 ? xy / sqrt(xx * yy) : NAN;
}

static struct kept *present(struct mp_trace_statistics *statistics) {
    return &statistics->kept[(statistics->iterations - 1) % KEPT];
}

/* A layer whose last micro-batch is in: with what it was some iterations ago. */
static void compare(struct mp_trace_statistics *statistics, int layer) {
    const struct kept *now = present(statistics);
    const size_t at = (size_t)layer * (size_t)statistics->shape.experts;
    for (int64_t before = 1; before < KEPT && before < statistics->iterations; before++) {
        const struct kept *then = &statistics->kept[(statistics->iterations - 1 - before) % KEPT];
        for (int lag = 0; lag < MP_TRACE_LAGS; lag++) {
            if (now->iteration - then->iteration != mp_trace_lags[lag])
                continue;
            double found =
                correlate(now->routes + at, then->routes + at, statistics->shape.experts);
            struct correlation *sum = &statistics->correlation[layer * MP_TRACE_LAGS + lag];
            sum->sum += isnan(found) ? 0 : found;
            sum->pairs += !isnan(found);
        }
    }
}

int mp_trace_statistics_add(struct mp_trace_statistics *statistics,
                            const struct mp_trace_block *block, struct mp_error *error) {
    const struct mp_trace_shape *shape = &statistics->shape;
    MP_TRY(MP_GROW(statistics->block, statistics->blocks, error));
    if (block->layer == 0 && block->micro_batch == 0) {
        size_t cells = (size_t)shape->layers * (size_t)shape->experts;
        statistics->iterations++;
        struct kept *now = present(statistics);
        if (!now->routes)
            MP_TRY(MP_NEW(now->routes, cells, error));
        now->iteration = block->iteration;
        memset(now->routes, 0, cells * sizeof *now->routes);
    }
    struct measured *measured = &statistics->block[statistics->blocks++];
    int64_t *sum = present(statistics)->routes + (size_t)block->layer * (size_t)shape->experts;
    *measured = (struct measured){.iteration = block->iteration};
    mp_load_expert_totals(&block->load, statistics->expert);
    for (int e = 0; e < shape->experts; e++) {
        sum[e] += statistics->expert[e];
        measured->routes += statistics->expert[e];
    }
    measure(statistics, measured);
    if (block->micro_batch == shape->micro_batches - 1)
        compare(statistics, block->layer);
    return MP_OK;
}

/* ---- all blocks ---- */

/* Counts blocks and finds the worst. */
static void count_blocks(const struct mp_trace_statistics *statistics, int layer,
                         struct mp_trace_summary *summary) {
    for (int64_t b = 0; b < statistics->blocks; b++) {
        struct mp_trace_place place;
        const double *value = mp_trace_statistics_block(statistics, b, &place);
        double uneven = value[MP_EXPERT_MAX_OVER_MEAN];
        if (layer >= 0 && place.layer != layer)
            continue;
        summary->blocks++;
        summary->empty += isnan(uneven);
        summary->routes += statistics->block[b].routes;
        if (uneven > summary->worst || (isnan(summary->worst) && !isnan(uneven))) {
            summary->worst = uneven;
            summary->worst_at = place;
        }
    }
}

int mp_trace_statistics_summarise(const struct mp_trace_statistics *statistics, int layer,
                                  struct mp_trace_summary *summary, struct mp_error *error) {
    MP_AUTO(memory) double *value = NULL;
    MP_TRY(MP_NEW(value, statistics->blocks + 1, error));
    *summary = (struct mp_trace_summary){.worst = NAN, .iterations = statistics->iterations};
    if (statistics->blocks > 0) {
        summary->first = statistics->block[0].iteration;
        summary->last = statistics->block[statistics->blocks - 1].iteration;
    }
    count_blocks(statistics, layer, summary);
    const int layers = statistics->shape.layers;
    for (int m = 0; m < MP_TRACE_MEASURES; m++) {
        int64_t count = 0;
        for (int64_t b = layer < 0 ? 0 : layer; b < statistics->blocks; b += layer < 0 ? 1 : layers)
            if (!isnan(statistics->block[b].value[m]))
                value[count++] = statistics->block[b].value[m];
        summary->median[m] = mp_median_of(value, count);
    }
    for (int lag = 0; lag < MP_TRACE_LAGS; lag++) {
        struct correlation sum = {0};
        for (int l = 0; l < statistics->shape.layers; l++) {
            const struct correlation *own = &statistics->correlation[l * MP_TRACE_LAGS + lag];
            if (layer < 0 || l == layer)
                sum = (struct correlation){sum.sum + own->sum, sum.pairs + own->pairs};
        }
        summary->correlation[lag] = sum.pairs ? sum.sum / (double)sum.pairs : NAN;
    }
    return MP_OK;
}

int64_t mp_trace_statistics_blocks(const struct mp_trace_statistics *statistics) {
    return statistics->blocks;
}

const double *mp_trace_statistics_block(const struct mp_trace_statistics *statistics, int64_t block,
                                        struct mp_trace_place *place) {
    const struct mp_trace_shape *shape = &statistics->shape;
    *place = (struct mp_trace_place){statistics->block[block].iteration,
                                     (int)(block / shape->layers % shape->micro_batches),
                                     (int)(block % shape->layers)};
    return statistics->block[block].value;
}
