#include "harness/workload/tokens.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "reference/plan/distinct.h"
#include "reference/plan/routes.h"

struct layer {
    int64_t tokens, ranks; /* and all their distinct ranks */
    double ranks_independent;
    uint64_t *next; /* [experts][experts] from the layer before; NULL: the first layer */
};

struct mp_token_statistics {
    struct mp_arena memory;
    struct mp_trace_shape shape;
    struct layer *layer;    /* [layers] */
    struct mp_load before;  /* the layer before's, with routes */
    uint32_t *next;         /* [experts][experts] of a block */
    int32_t *order, *taken; /* [experts] 0, 1, ...; [ranks] the token that came there last */
    uint64_t *column;       /* [experts] */
    struct mp_distinct_model model;
};

static size_t cells_of(const struct mp_trace_shape *shape) {
    return (size_t)shape->experts * (size_t)shape->experts;
}

static int allocate(struct mp_token_statistics *made, struct mp_error *error) {
    const struct mp_trace_shape *shape = &made->shape;
    MP_TAKE(&made->memory, made->layer, shape->layers);
    MP_TAKE(&made->memory, made->next, cells_of(shape));
    MP_TAKE_EACH(&made->memory, shape->experts, made->column, made->order);
    MP_TAKE(&made->memory, made->taken, shape->ranks);
    for (int l = 1; made->layer && l < shape->layers; l++)
        MP_TAKE(&made->memory, made->layer[l].next, cells_of(shape));
    for (int e = 0; made->order && e < shape->experts; e++)
        made->order[e] = e;
    mp_distinct_model_create(&made->memory, shape->ranks, shape->experts, shape->top_k,
                             &made->model);
    return mp_arena_check(&made->memory, error);
}

int mp_token_statistics_create(const struct mp_trace_shape *shape,
                               struct mp_token_statistics **statistics, struct mp_error *error) {
    MP_TRY(MP_NEW(*statistics, 1, error));
    struct mp_token_statistics *made = *statistics;
    made->shape = *shape;
    int code = allocate(made, error);
    if (!code)
        code = mp_load_create(shape->ranks, shape->experts, &made->before, error);
    if (code) {
        mp_token_statistics_destroy(made);
        *statistics = NULL;
    }
    return code;
}

void mp_token_statistics_destroy(struct mp_token_statistics *statistics) {
    if (!statistics)
        return;
    mp_load_destroy(&statistics->before);
    mp_arena_release(&statistics->memory);
    free(statistics);
}

/* Distinct ranks of a source's tokens, and as the model has them. */
static void add_ranks(struct mp_token_statistics *statistics, const struct mp_load *load,
                      int source, struct layer *layer) {
    const struct mp_routes *routes = load->routes;
    int each = load->experts / load->ranks,
        tokens = routes->begin[source + 1] - routes->begin[source];
    for (int rank = 0; rank < load->ranks; rank++)
        statistics->taken[rank] = -1;
    for (int32_t t = routes->begin[source]; t < routes->begin[source + 1]; t++)
        for (int j = 0; j < routes->top_k; j++) {
            int32_t expert = routes->expert[(size_t)t * (size_t)routes->top_k + (size_t)j];
            int rank = expert / each;
            if (expert < 0 || statistics->taken[rank] == t)
                continue;
            statistics->taken[rank] = t;
            layer->ranks++;
        }
    layer->tokens += tokens;
    mp_distinct_model_fit(&statistics->model, load->count + (size_t)source * (size_t)load->experts);
    mp_distinct_model_arrange(&statistics->model, statistics->order, load->experts);
    for (int rank = 0; rank < load->ranks; rank++)
        layer->ranks_independent +=
            tokens *
            mp_distinct_model_meets(&statistics->model, rank * each, (rank + 1) * each, NULL);
}

int mp_token_statistics_add(struct mp_token_statistics *statistics,
                            const struct mp_trace_block *block, struct mp_error *error) {
    const struct mp_load *load = &block->load, *before = &statistics->before;
    struct layer *layer = &statistics->layer[block->layer];
    size_t cells = cells_of(&statistics->shape);
    if (block->layer > 0) {
        memset(statistics->next, 0, cells * sizeof *statistics->next);
        mp_routes_transitions(load->routes->begin[load->ranks], load->routes->top_k, load->experts,
                              before->routes->expert, load->routes->expert, statistics->next);
        for (size_t i = 0; i < cells; i++)
            layer->next[i] += statistics->next[i];
    }
    for (int source = 0; load->experts % load->ranks == 0 && source < load->ranks; source++)
        add_ranks(statistics, load, source, layer);
    return mp_load_copy_routes(&statistics->before, load, error);
}

/* What transitions come to; column [experts], zeroed working memory. */
static void summarise_transitions(const uint64_t next[], size_t experts, uint64_t column[],
                                  struct mp_token_summary *summary) {
    double all = 0, told = 0, most = 0;
    for (size_t i = 0; i < experts; i++) {
        uint64_t largest = 0;
        for (size_t j = 0; j < experts; j++) {
            uint64_t count = next[i * experts + j];
            largest = count > largest ? count : largest;
            column[j] += count;
            all += (double)count;
        }
        told += (double)largest;
    }
    if (all == 0)
        return;
    summary->entropy = summary->information = 0;
    for (size_t j = 0; j < experts; j++) {
        double share = (double)column[j] / all;
        most = share > most ? share : most;
        summary->entropy -= share > 0 ? share * log2(share) : 0;
    }
    for (size_t i = 0; i < experts; i++) {
        double row = 0;
        for (size_t j = 0; j < experts; j++)
            row += (double)next[i * experts + j];
        for (size_t j = 0; j < experts; j++) {
            double count = (double)next[i * experts + j];
            if (count > 0)
                summary->information += count / all * log2(count * all / (row * (double)column[j]));
        }
    }
    summary->most = told / all;
    summary->most_independent = most;
}

void mp_token_statistics_summarise(const struct mp_token_statistics *statistics, int number,
                                   struct mp_token_summary *summary) {
    const struct layer *layer = &statistics->layer[number];
    size_t experts = (size_t)statistics->shape.experts;
    *summary = (struct mp_token_summary){NAN, NAN, NAN, NAN, NAN, NAN};
    if (layer->tokens > 0) {
        summary->ranks = (double)layer->ranks / (double)layer->tokens;
        summary->ranks_independent = layer->ranks_independent / (double)layer->tokens;
    }
    memset(statistics->column, 0, experts * sizeof *statistics->column);
    if (layer->next)
        summarise_transitions(layer->next, experts, statistics->column, summary);
}

const uint64_t *mp_token_statistics_transitions(const struct mp_token_statistics *statistics,
                                                int layer) {
    return statistics->layer[layer].next;
}
