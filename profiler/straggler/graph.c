#include "profiler/straggler/graph.h"

#include <stdlib.h>

#include "profiler/record/record.h"
#include "reference/base/arena.h"
#include "reference/base/order.h"

/* ---- groups ---- */

static int compare_kinds(const void *left, const void *right) {
    const struct mp_graph_kind *a = left, *b = right;
    return MP_ORDER(a->phase, b->phase) ?: MP_ORDER(a->direction, b->direction)
           ?: MP_ORDER(a->layer, b->layer) ?: MP_ORDER(a->channel, b->channel)
           ?: MP_ORDER(a->stage, b->stage) ?: MP_ORDER(a->ordinal, b->ordinal);
}

static struct mp_graph_kind kind_of(const struct mp_graph *graph, int index) {
    const struct mp_recorded_span *span = &graph->times.span[index];
    const struct mp_graph_node *node = &graph->node[index];
    struct mp_graph_kind kind = {span->phase, span->direction, span->layer, -1, 0, node->ordinal};
    const bool sends = span->phase == MP_PHASE_SEND,
               known = span->layer >= 0 && span->layer < graph->times.ranks;
    if (sends || span->phase == MP_PHASE_RECV) {
        int other = known ? span->layer : node->rank; /* nobody is the other end of that */
        int from = sends ? node->rank : other, to = sends ? other : node->rank;
        return (struct mp_graph_kind){
            MP_PHASE_RECV, MP_NO_DIRECTION, -1, from * graph->times.ranks + to, 0, node->ordinal};
    }
    if (span->layer >= 0 || span->direction != MP_NO_DIRECTION || span->phase == MP_PHASE_FETCH ||
        span->phase == MP_PHASE_REDUCE || span->phase == MP_PHASE_ALLREDUCE)
        kind.stage = graph->pipeline[node->rank];
    return kind;
}

/* What makes spans belong together, in the order in which they are sorted. */
struct key {
    struct mp_graph_kind kind;
    int rank, position, node;
};

static int compare_keys(const void *left, const void *right) {
    const struct key *a = left, *b = right;
    return compare_kinds(&a->kind, &b->kind) ?: MP_ORDER(a->rank, b->rank)
           ?: MP_ORDER(a->position, b->position);
}

/* Keys of an iteration's spans with ordinals, sorted. */
static void sort_keys(struct mp_graph *graph, const struct mp_graph_stage *stage,
                      struct key key[]) {
    for (int i = 0; i < stage->nodes; i++) {
        int node = graph->order[stage->first_node + i];
        key[i] = (struct key){kind_of(graph, node), graph->node[node].rank, i, node};
    }
    MP_SORT(key, stage->nodes, compare_keys);
    struct key before = {.rank = -1};
    for (int i = 0, ordinal = 0; i < stage->nodes; i++) {
        bool goes_on = key[i].rank == before.rank && !compare_kinds(&key[i].kind, &before.kind);
        before = key[i];
        key[i].kind.ordinal = ordinal = goes_on ? ordinal + 1 : 0;
    }
    MP_SORT(key, stage->nodes, compare_keys);
}

static void make_groups(struct mp_graph *graph, struct mp_graph_stage *stage, struct key key[]) {
    struct mp_graph_group *group = NULL;
    sort_keys(graph, stage, key);
    stage->first_group = graph->groups;
    for (int i = 0; i < stage->nodes; i++) {
        struct mp_graph_node *node = &graph->node[key[i].node];
        if (i == 0 || compare_kinds(&key[i].kind, &key[i - 1].kind)) {
            group = &graph->group[graph->groups++];
            *group = (struct mp_graph_group){.first = stage->first_node + i,
                                             .iteration = (int)(stage - graph->stage)};
            stage->groups++;
        }
        graph->member[stage->first_node + i] = key[i].node;
        node->group = graph->groups - 1;
        node->ordinal = key[i].kind.ordinal;
        group->count++;
        group->meets |= graph->times.span[key[i].node].wait > 0;
    }
}

static void count_absent(struct mp_graph *graph, const struct mp_graph_stage *stage) {
    for (int g = 0; g < stage->groups; g++) {
        struct mp_graph_group *group = &graph->group[stage->first_group + g];
        for (int r = 0; r < graph->times.ranks && group->count < graph->times.ranks; r++)
            group->absent += mp_graph_is_absent(graph, group, r);
    }
}

/* ---- kinds ---- */

static int make_kinds(struct mp_graph *graph, struct mp_error *error) {
    size_t groups = (size_t)graph->groups;
    MP_TAKE(&graph->arena, graph->kind, groups + 1);
    MP_TRY(mp_arena_check(&graph->arena, error));
    for (size_t g = 0; g < groups; g++)
        graph->kind[g] = kind_of(graph, graph->member[graph->group[g].first]);
    MP_SORT(graph->kind, groups, compare_kinds);
    for (size_t g = 0; g < groups; g++)
        if (g == 0 || compare_kinds(&graph->kind[g], &graph->kind[graph->kinds - 1]))
            graph->kind[graph->kinds++] = graph->kind[g];
    for (size_t g = 0; g < groups; g++) {
        struct mp_graph_kind kind = kind_of(graph, graph->member[graph->group[g].first]);
        struct mp_graph_kind *found =
            bsearch(&kind, graph->kind, (size_t)graph->kinds, sizeof kind, compare_kinds);
        graph->group[g].kind = (int)(found - graph->kind);
        graph->unmatched |= (kind.channel >= 0 && graph->group[g].count < 2);
    }
    return MP_OK;
}

/* ---- nodes ---- */

/* Own work and gaps of one rank's spans; where they overlap, the later begins where the earlier
 * ends. */
static void make_nodes(struct mp_graph *graph, const struct mp_recorded_rank *rank, int index) {
    double end = rank->start;
    for (int i = 0; i < rank->count; i++) {
        const struct mp_recorded_span *span = &graph->times.span[rank->first + (size_t)i];
        double start = span->start > end ? span->start : end;
        double length = span->end > start ? span->end - start : 0;
        double wait = span->wait < length ? span->wait : length, own = length - wait;
        bool after = span->phase == MP_PHASE_SEND ||
                     (span->phase == MP_PHASE_COMBINE && span->direction == MP_FORWARD);
        graph->node[rank->first + (size_t)i] = (struct mp_graph_node){
            .gap = start - end,
            .own = own,
            .arrived = after ? start : start + own,
            .released = after ? start + wait : start + length,
            .rank = index,
            .before = i ? (int)rank->first + i - 1 : -1,
            .last = -1,
            .own_after = after,
        };
        end = start + length;
        if (span->phase == MP_PHASE_EXPERT && span->layer >= graph->layers)
            graph->layers = span->layer + 1;
    }
}

struct moment {
    double time;
    int sequence; /* on its rank, so that a rank's own order is kept */
    int event;
};

static int compare_moments(const void *left, const void *right) {
    const struct moment *a = left, *b = right;
    return MP_ORDER(a->time, b->time) ?: MP_ORDER(a->sequence, b->sequence)
           ?: MP_ORDER(a->event, b->event);
}

/* Everything that happened, in its order; causes come before what they cause.  Only those who met
 * are held back by the tolerance: were it all spans, a rank's arrival would be held back as well,
 * by the span before it. */
static void order_events(struct mp_graph *graph, const struct mp_graph_stage *stage,
                         double tolerance, struct moment moment[]) {
    int sequence = 0, rank = -1;
    double before = 0;
    for (int i = 0; i < stage->nodes; i++) {
        int index = graph->order[stage->first_node + i];
        const struct mp_graph_node *node = &graph->node[index];
        bool same = node->rank == rank;
        sequence = same ? sequence : 0;
        rank = node->rank;
        double arrived = same && node->arrived < before ? before : node->arrived;
        double released = node->released + (graph->group[node->group].meets ? tolerance : 0);
        released = released > arrived ? released : arrived;
        moment[2 * i] = (struct moment){arrived, sequence++, 2 * index};
        moment[2 * i + 1] = (struct moment){released, sequence++, 2 * index + 1};
        before = released;
    }
    MP_SORT(moment, 2 * (size_t)stage->nodes, compare_moments);
    for (int i = 0; i < 2 * stage->nodes; i++)
        graph->event[2 * stage->first_node + i] = moment[i].event;
}

/* A message may be on its way while its sender goes on. */
static bool waits(const struct mp_graph *graph, int node) {
    const struct mp_recorded_span *span = &graph->times.span[node];
    return graph->group[graph->node[node].group].meets &&
           (span->phase != MP_PHASE_SEND || span->wait > 0);
}

/* Who came last, and what going on took after that. */
static void find_transfers(struct mp_graph *graph, const struct mp_graph_stage *stage) {
    for (int g = 0; g < stage->groups; g++)
        graph->done[g] = -1;
    for (int i = 0; i < 2 * stage->nodes; i++) {
        int event = graph->event[2 * stage->first_node + i];
        struct mp_graph_node *node = &graph->node[event / 2];
        int *last = &graph->done[node->group - stage->first_group];
        if (event % 2 == 0) {
            if (*last < 0 || node->arrived > graph->node[*last].arrived)
                *last = event / 2;
        } else if (waits(graph, event / 2)) {
            node->last = *last;
            node->transfer = node->released - graph->node[*last].arrived;
        }
    }
}

/* ---- life ---- */

static int allocate(struct mp_graph *graph, struct mp_arena *working, struct key **key,
                    struct moment **moment, struct mp_error *error) {
    const struct mp_recorded_times *times = &graph->times;
    size_t spans = times->spans ? times->spans : 1;
    size_t done = spans > (size_t)times->ranks ? spans : (size_t)times->ranks;
    MP_TAKE_EACH(&graph->arena, spans, graph->node, graph->group, graph->member, graph->order,
                 graph->ended, graph->latest, graph->waited, graph->ideal);
    MP_TAKE(&graph->arena, graph->event, 2 * spans);
    MP_TAKE(&graph->arena, graph->stage, times->iterations + 1);
    MP_TAKE(&graph->arena, graph->ideal_wait, spans);
    MP_TAKE(&graph->arena, graph->pipeline, times->ranks + 1);
    MP_TAKE(&graph->arena, graph->done, done);
    MP_TAKE(working, *key, spans);
    MP_TAKE(working, *moment, 2 * spans);
    MP_TRY(mp_arena_check(working, error));
    return mp_arena_check(&graph->arena, error);
}

static void build(struct mp_graph *graph, double tolerance, struct key key[],
                  struct moment moment[]) {
    int nodes = 0;
    for (int i = 0; i < graph->times.iterations; i++) {
        struct mp_graph_stage *stage = &graph->stage[i];
        stage->first_node = nodes;
        for (int r = 0; r < graph->times.ranks; r++) {
            const struct mp_recorded_rank *rank = mp_recorded_rank_at(&graph->times, i, r);
            make_nodes(graph, rank, r);
            for (int s = 0; s < rank->count; s++)
                graph->order[nodes++] = (int)rank->first + s;
        }
        stage->nodes = nodes - stage->first_node;
        make_groups(graph, stage, key);
        count_absent(graph, stage);
        order_events(graph, stage, tolerance, moment);
        find_transfers(graph, stage);
    }
}

/* Times are rounded: a table's to a microsecond, say, and its start and wait added up to one more,
 * so that who waited for the last one seems to have left before it came. */
static const double rounding = 2e-6;

static int fill(struct mp_graph *graph, double tolerance, struct mp_error *error) {
    struct key *key = NULL;
    struct moment *moment = NULL;
    MP_AUTO(arena) struct mp_arena working = {0};
    MP_TRY(allocate(graph, &working, &key, &moment, error));
    mp_graph_find_pipeline(graph);
    build(graph, tolerance > rounding ? tolerance : rounding, key, moment);
    MP_TRY(make_kinds(graph, error));
    return mp_graph_find_ideal(graph, error);
}

int mp_graph_create(const struct mp_recorded_times *times, double tolerance, struct mp_graph **made,
                    struct mp_error *error) {
    struct mp_graph *graph;
    *made = NULL;
    MP_TRY(MP_NEW(graph, 1, error));
    graph->times = *times;
    int code = fill(graph, tolerance, error);
    if (code)
        mp_graph_destroy(graph);
    else
        *made = graph;
    return code;
}

void mp_graph_destroy(struct mp_graph *graph) {
    if (!graph)
        return;
    mp_arena_release(&graph->arena);
    free(graph);
}

int mp_graph_member(const struct mp_graph *graph, const struct mp_graph_group *group, int rank) {
    const int *member = &graph->member[group->first];
    if (rank < group->count && graph->node[member[rank]].rank == rank)
        return member[rank];
    for (int m = 0; m < group->count; m++)
        if (graph->node[member[m]].rank == rank)
            return member[m];
    return -1;
}

bool mp_graph_is_absent(const struct mp_graph *graph, const struct mp_graph_group *group,
                        int rank) {
    const struct mp_recorded_span *there = &graph->times.span[graph->member[group->first]];
    const struct mp_recorded_rank *own = mp_recorded_rank_at(&graph->times, group->iteration, rank);
    if (mp_graph_member(graph, group, rank) >= 0)
        return false;
    if (there->phase == MP_PHASE_DATA || there->phase == MP_PHASE_CHECKPOINT ||
        there->phase == MP_PHASE_COLLECT)
        return true;
    for (int s = 0; s < own->count && mp_phase_of_experts(there->phase) && there->layer >= 0; s++)
        if (mp_recorded_layer(&graph->times.span[own->first + (size_t)s]) == there->layer)
            return true;
    return false;
}

/* ---- replay ---- */

void mp_graph_recorded(const struct mp_graph *graph, struct mp_graph_seconds now[]) {
    for (size_t n = 0; n < graph->times.spans; n++) {
        const struct mp_graph_node *node = &graph->node[n];
        now[n] = (struct mp_graph_seconds){node->gap, node->own, node->transfer};
    }
}

/* When a rank comes to a node; the last that it did stands in `done`. */
static double arrive(struct mp_graph *graph, int iteration, const struct mp_graph_seconds now[],
                     bool together, int index) {
    const struct mp_graph_node *node = &graph->node[index];
    int *last = &graph->done[node->rank];
    double start = *last >= 0 ? graph->ended[*last]
                   : together ? 0
                              : mp_recorded_rank_at(&graph->times, iteration, node->rank)->start;
    *last = index;
    return start + now[index].gap + (node->own_after ? 0 : now[index].own);
}

/* When all ranks are through, with what comes after their last spans. */
static double end_of(const struct mp_graph *graph, int iteration) {
    double end = 0;
    for (int r = 0; r < graph->times.ranks; r++) {
        const struct mp_recorded_rank *rank = mp_recorded_rank_at(&graph->times, iteration, r);
        double done = rank->end;
        if (rank->count)
            done = graph->ended[graph->done[r]] + rank->end -
                   graph->times.span[rank->first + (size_t)rank->count - 1].end;
        end = done > end ? done : end;
    }
    return end;
}

double mp_graph_replay(struct mp_graph *graph, int iteration, const struct mp_graph_seconds now[],
                       bool together) {
    const struct mp_graph_stage *stage = &graph->stage[iteration];
    for (int g = 0; g < stage->groups; g++)
        graph->latest[stage->first_group + g] = -1e300;
    for (int r = 0; r < graph->times.ranks; r++)
        graph->done[r] = -1;
    for (int i = 0; i < 2 * stage->nodes; i++) {
        int event = graph->event[2 * stage->first_node + i], index = event / 2;
        const struct mp_graph_node *node = &graph->node[index];
        double *latest = &graph->latest[node->group];
        if (event % 2 == 0) {
            double arrived = arrive(graph, iteration, now, together, index);
            graph->ended[index] = arrived; /* until its release */
            *latest = arrived > *latest ? arrived : *latest;
            continue;
        }
        graph->waited[index] = 0;
        if (node->last >= 0) {
            graph->waited[index] = *latest - graph->ended[index];
            graph->ended[index] = *latest + now[index].transfer;
        }
        graph->ended[index] += node->own_after ? now[index].own : 0;
    }
    return end_of(graph, iteration);
}
