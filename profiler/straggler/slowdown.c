/* Slowdowns: see straggler.h. */
#include "profiler/straggler/straggler.h"

#include "reference/base/order.h"

#include <math.h>
#include <stdlib.h>

struct replays {
    struct mp_graph *graph;
    struct mp_graph_seconds *recorded, *now; /* [spans] */
    double *useful;                          /* [ranks] s, mean over the iterations */
    int *worst;                              /* [ranks] */
    bool *chosen;                            /* [ranks] */
};

/* Mean over the iterations. */
static double replay(struct replays *replays, const struct mp_graph_seconds now[], bool together) {
    double sum = 0;
    int iterations = replays->graph->times.iterations;
    for (int i = 0; i < iterations; i++)
        sum += mp_graph_replay(replays->graph, i, now, together);
    return sum / iterations;
}

static bool is_type(const struct mp_graph *graph, size_t n, const struct mp_slowdown_type *type) {
    const struct mp_recorded_span *span = &graph->times.span[n];
    return span->phase == type->phase && span->direction == type->direction &&
           (!type->transfer || graph->group[graph->node[n].group].meets);
}

static void add_type(struct mp_slowdowns *slowdowns, const struct mp_slowdown_type *wanted) {
    for (int t = 0; t < slowdowns->types; t++)
        if (slowdowns->type[t].phase == wanted->phase &&
            slowdowns->type[t].direction == wanted->direction &&
            slowdowns->type[t].transfer == wanted->transfer)
            return;
    if (slowdowns->types < MP_SLOWDOWN_TYPES)
        slowdowns->type[slowdowns->types++] = *wanted;
}

static int compare_types(const void *left, const void *right) {
    const struct mp_slowdown_type *a = left, *b = right;
    return MP_ORDER(b->slowdown, a->slowdown);
}

/* The ideal with one type of operation as recorded. */
static void find_types(struct replays *replays, struct mp_slowdowns *slowdowns) {
    const struct mp_graph *graph = replays->graph;
    for (int k = 0; k < graph->kinds; k++)
        add_type(slowdowns, &(struct mp_slowdown_type){graph->kind[k].phase,
                                                       graph->kind[k].direction, false, 0});
    for (int g = 0; g < graph->groups; g++)
        if (graph->group[g].meets)
            add_type(slowdowns, &(struct mp_slowdown_type){
                                    graph->kind[graph->group[g].kind].phase,
                                    graph->kind[graph->group[g].kind].direction, true, 0});
    for (int t = 0; t < slowdowns->types; t++) {
        struct mp_slowdown_type *type = &slowdowns->type[t];
        for (size_t n = 0; n < graph->times.spans; n++) {
            replays->now[n] = graph->ideal[n];
            if (!is_type(graph, n, type))
                continue;
            if (type->transfer)
                replays->now[n].transfer = replays->recorded[n].transfer;
            else
                replays->now[n].own = replays->recorded[n].own;
        }
        type->slowdown = replay(replays, replays->now, true) / slowdowns->ideal;
    }
    MP_SORT(slowdowns->type, slowdowns->types, compare_types);
}

/* The ideal with one rank as recorded. */
static double without_others(struct replays *replays, int rank) {
    const struct mp_graph *graph = replays->graph;
    for (size_t n = 0; n < graph->times.spans; n++) {
        replays->now[n] = graph->node[n].rank == rank ? replays->recorded[n] : graph->ideal[n];
        replays->now[n].gap = 0;
    }
    return replay(replays, replays->now, true);
}

/* Ranks by `value`, the largest first; NAN last. */
static void sort_ranks(const double value[], int ranks, int order[]) {
    for (int r = 0; r < ranks; r++) {
        int at = r;
        while (at > 0 && (value[r] > value[order[at - 1]] ||
                          (isnan(value[order[at - 1]]) && !isnan(value[r])))) {
            order[at] = order[at - 1];
            at--;
        }
        order[at] = r;
    }
}

/* What the chosen ranks make of T_nd - T_ideal: the recording with theirs ideal. */
static double part_of(struct replays *replays, const struct mp_slowdowns *slowdowns) {
    const struct mp_graph *graph = replays->graph;
    double lost = slowdowns->without_delay - slowdowns->ideal;
    for (size_t n = 0; n < graph->times.spans; n++) {
        replays->now[n] =
            replays->chosen[graph->node[n].rank] ? graph->ideal[n] : replays->recorded[n];
        replays->now[n].gap = 0;
    }
    return lost > 1e-9 * slowdowns->ideal
               ? (slowdowns->without_delay - replay(replays, replays->now, true)) / lost
               : NAN;
}

static void find_ranks(struct replays *replays, struct mp_slowdowns *slowdowns) {
    const struct mp_graph *graph = replays->graph;
    int ranks = graph->times.ranks;
    sort_ranks(replays->useful, ranks, replays->worst);
    for (int i = 0; i < ranks; i++) {
        int r = replays->worst[i];
        slowdowns->rank[r] =
            i < MP_SLOWDOWN_RANKS ? without_others(replays, r) / slowdowns->ideal : NAN;
    }
    sort_ranks(slowdowns->rank, ranks, replays->worst);
    int worst = (3 * ranks + 99) / 100;
    for (int i = 0; i < ranks; i++)
        replays->chosen[replays->worst[i]] = i < worst;
    slowdowns->worst_ranks = part_of(replays, slowdowns);
}

static void find_stages(struct replays *replays, struct mp_slowdowns *slowdowns) {
    const struct mp_graph *graph = replays->graph;
    slowdowns->pipelines = graph->pipelines;
    for (int r = 0; r < graph->times.ranks; r++)
        replays->chosen[r] = graph->pipeline[r] == graph->pipelines - 1;
    slowdowns->last_stage = graph->pipelines > 1 ? part_of(replays, slowdowns) : NAN;
}

static void find_useful(struct replays *replays, struct mp_slowdowns *slowdowns) {
    const struct mp_graph *graph = replays->graph;
    int ranks = graph->times.ranks;
    double sum = 0, most = 0;
    for (size_t n = 0; n < graph->times.spans; n++) {
        const struct mp_graph_node *node = &graph->node[n];
        replays->useful[node->rank] += (node->own + node->gap) / graph->times.iterations;
    }
    for (int r = 0; r < ranks; r++) {
        sum += replays->useful[r];
        most = replays->useful[r] > most ? replays->useful[r] : most;
    }
    slowdowns->load_balance = most > 0 ? sum / ranks / most : NAN;
    slowdowns->communication = most / slowdowns->base;
    slowdowns->parallel = sum / ranks / slowdowns->base;
}

static double recorded_seconds(const struct mp_graph *graph) {
    double sum = 0;
    for (int i = 0; i < graph->times.iterations; i++) {
        double end = 0;
        for (int r = 0; r < graph->times.ranks; r++)
            end = fmax(end, mp_recorded_rank_at(&graph->times, i, r)->end);
        sum += end;
    }
    return sum / graph->times.iterations;
}

static void find_all(struct replays *replays, struct mp_slowdowns *slowdowns) {
    const struct mp_graph *graph = replays->graph;
    mp_graph_recorded(graph, replays->recorded);
    slowdowns->base = recorded_seconds(graph);
    slowdowns->replayed = replay(replays, replays->recorded, false);
    for (size_t n = 0; n < graph->times.spans; n++)
        replays->now[n] = (struct mp_graph_seconds){graph->node[n].gap, graph->node[n].own, 0};
    slowdowns->ideal_network = replay(replays, replays->now, false);
    for (size_t n = 0; n < graph->times.spans; n++)
        replays->now[n] = (struct mp_graph_seconds){0, graph->node[n].own, graph->node[n].transfer};
    slowdowns->without_delay = replay(replays, replays->now, true);
    slowdowns->ideal = replay(replays, graph->ideal, true);
    slowdowns->slowdown = slowdowns->without_delay / slowdowns->ideal;
    slowdowns->host = slowdowns->base / slowdowns->without_delay;
    find_useful(replays, slowdowns);
    slowdowns->transfer = slowdowns->ideal_network / slowdowns->base;
    slowdowns->serialisation = slowdowns->communication / slowdowns->transfer;
    find_types(replays, slowdowns);
    find_ranks(replays, slowdowns);
    find_stages(replays, slowdowns);
}

int mp_slowdowns_find(struct mp_graph *graph, struct mp_arena *memory,
                      struct mp_slowdowns *slowdowns, struct mp_error *error) {
    const int ranks = graph->times.ranks;
    struct replays replays = {.graph = graph};
    MP_AUTO(arena) struct mp_arena working = {0};
    double *rank;
    MP_TAKE_EACH(&working, graph->times.spans + 1, replays.recorded, replays.now);
    MP_TAKE_EACH(&working, ranks, replays.useful, replays.worst, replays.chosen);
    MP_TAKE(memory, rank, ranks);
    *slowdowns = (struct mp_slowdowns){.rank = NULL};
    MP_TRY(mp_arena_check(&working, error));
    MP_TRY(mp_arena_check(memory, error));
    slowdowns->rank = rank;
    find_all(&replays, slowdowns);
    return MP_OK;
}
