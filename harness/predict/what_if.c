#include "harness/predict/what_if.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "profiler/straggler/causes.h"
#include "reference/base/arena.h"
#include "reference/base/median.h"

struct mp_what_if {
    const struct mp_recorded *recorded;
    struct mp_graph *graph;
    struct mp_causes causes;
    struct mp_graph_seconds *now; /* [spans] under the change */
    double *work;                 /* [ranks] */
    double *seconds;              /* [iterations] */
    int layers;
    struct mp_arena arena; /* of the tables */
};

/* ---- life ---- */

static int create(struct mp_what_if *what_if, struct mp_error *error) {
    const struct mp_recorded *run = what_if->recorded;
    const struct mp_recorded_times times = {run->ranks, run->iterations, run->rank, run->span,
                                            run->spans};
    MP_TAKE(&what_if->arena, what_if->now, run->spans + 1);
    MP_TAKE(&what_if->arena, what_if->work, run->ranks);
    MP_TAKE(&what_if->arena, what_if->seconds, run->iterations);
    MP_TRY(mp_arena_check(&what_if->arena, error));
    for (size_t s = 0; s < run->spans; s++)
        if (run->span[s].phase == MP_PHASE_EXPERT && run->span[s].layer >= what_if->layers)
            what_if->layers = run->span[s].layer + 1;
    MP_TRY(mp_graph_create(&times, run->clock_error, &what_if->graph, error));
    return mp_causes_find(what_if->graph, &what_if->causes, error);
}

int mp_what_if_create(const struct mp_recorded *recorded, struct mp_what_if **made,
                      struct mp_error *error) {
    struct mp_what_if *what_if = calloc(1, sizeof *what_if);
    *made = NULL;
    if (!what_if)
        return mp_no_memory(error);
    what_if->recorded = recorded;
    int code = create(what_if, error);
    if (code)
        mp_what_if_destroy(what_if);
    else
        *made = what_if;
    return code;
}

void mp_what_if_destroy(struct mp_what_if *what_if) {
    if (!what_if)
        return;
    mp_causes_destroy(&what_if->causes);
    mp_graph_destroy(what_if->graph);
    mp_arena_release(&what_if->arena);
    free(what_if);
}

int mp_what_if_layers(const struct mp_what_if *what_if) {
    return what_if->layers;
}

bool mp_what_if_knows_tokens(const struct mp_what_if *what_if) {
    return what_if->causes.knows_tokens;
}

/* ---- changes ---- */

static const struct mp_recorded_span *span_of(const struct mp_what_if *what_if, int node) {
    return &what_if->recorded->span[node];
}

static bool is_exchange(int phase) {
    return phase == MP_PHASE_DISPATCH || phase == MP_PHASE_COMBINE;
}

struct means {
    double own, gap, transfer;
};

/* The node that is member `m` of a group. */
static int member_of(const struct mp_what_if *what_if, const struct mp_graph_group *group, int m) {
    return what_if->graph->member[group->first + m];
}

/* Over the members of a group but those of one rank (-1: all); of own work also over the absent. */
static struct means means_of(const struct mp_what_if *what_if, const struct mp_graph_group *group,
                             int without) {
    struct means sum = {0};
    int count = 0;
    for (int m = 0; m < group->count; m++) {
        const struct mp_graph_node *node = &what_if->graph->node[member_of(what_if, group, m)];
        if (node->rank == without)
            continue;
        sum.own += node->own;
        sum.gap += node->gap;
        sum.transfer += node->transfer;
        count++;
    }
    int all = count + group->absent;
    return (struct means){all ? sum.own / all : 0, count ? sum.gap / count : 0,
                          count ? sum.transfer / count : 0};
}

static void make_ideal(struct mp_what_if *what_if, const struct mp_graph_group *group) {
    struct means mean = means_of(what_if, group, -1);
    for (int m = 0; m < group->count; m++)
        what_if->work[m] = what_if->graph->node[member_of(what_if, group, m)].transfer;
    double transfer = mp_median_of(what_if->work, group->count);
    for (int m = 0; m < group->count; m++)
        what_if->now[member_of(what_if, group, m)] =
            (struct mp_graph_seconds){mean.gap, mean.own, transfer};
}

static void balance(struct mp_what_if *what_if, const struct mp_graph_group *group, int phase) {
    struct means mean = means_of(what_if, group, -1);
    for (int m = 0; m < group->count; m++) {
        const int node = member_of(what_if, group, m);
        struct mp_graph_seconds *now = &what_if->now[node];
        if (what_if->causes.knows_tokens)
            mp_causes_even(&what_if->causes, node, now);
        else if (mp_phase_of_experts(phase))
            now->own = mean.own;
        else
            now->transfer = mean.transfer;
    }
}

/* What it has beyond the mean of all, its others lack: from theirs it is farther by their share. */
static void relieve(struct mp_what_if *what_if, const struct mp_graph_group *group, int rank) {
    int node = mp_graph_member(what_if->graph, group, rank),
        others = group->count + group->absent - 1;
    if (node < 0 || others < 1)
        return;
    struct means mean = means_of(what_if, group, rank);
    double tokens = what_if->causes.knows_tokens
                        ? mp_causes_surplus(&what_if->causes, node) * (others + 1) / others
                        : 0;
    what_if->now[node].own = fmax(0, mean.own + tokens);
    what_if->now[node].gap = mean.gap;
}

static void apply(struct mp_what_if *what_if, const struct mp_what_if_change *change,
                  int iteration) {
    const struct mp_graph *graph = what_if->graph;
    const struct mp_graph_stage *stage = &graph->stage[iteration];
    for (int g = 0; g < stage->groups; g++) {
        const struct mp_graph_group *group = &graph->group[stage->first_group + g];
        const struct mp_recorded_span *span = span_of(what_if, member_of(what_if, group, 0));
        if (change->ideal)
            make_ideal(what_if, group);
        else if (change->balance && (change->layer < 0 || change->layer == span->layer) &&
                 (mp_phase_of_experts(span->phase) || is_exchange(span->phase)))
            balance(what_if, group, span->phase);
        if (change->without_rank >= 0)
            relieve(what_if, group, change->without_rank);
    }
}

void mp_what_if_run(struct mp_what_if *what_if, const struct mp_what_if_change *change,
                    double seconds[]) {
    mp_graph_recorded(what_if->graph, what_if->now);
    for (int i = 0; i < what_if->recorded->iterations; i++) {
        apply(what_if, change, i);
        seconds[i] = mp_graph_replay(what_if->graph, i, what_if->now, change->ideal);
    }
}

double mp_what_if_median(struct mp_what_if *what_if, const struct mp_what_if_change *change) {
    mp_what_if_run(what_if, change, what_if->seconds);
    return mp_median_of(what_if->seconds, what_if->recorded->iterations);
}

double mp_what_if_recorded(struct mp_what_if *what_if) {
    const struct mp_recorded *run = what_if->recorded;
    memcpy(what_if->seconds, run->seconds, (size_t)run->iterations * sizeof *run->seconds);
    return mp_median_of(what_if->seconds, run->iterations);
}

void mp_what_if_rank(const struct mp_what_if *what_if, int rank, double *own, double *blocked) {
    const struct mp_recorded *run = what_if->recorded;
    *own = *blocked = 0;
    for (size_t i = 0; i < run->spans; i++) {
        const struct mp_graph_node *node = &what_if->graph->node[i];
        if (node->rank != rank)
            continue;
        *own += (node->own + node->gap) / run->iterations;
        *blocked += (node->released - node->arrived) / run->iterations;
    }
}

void mp_what_if_each(const struct mp_what_if *what_if, mp_what_if_visit *visit, void *context) {
    for (int i = 0; i < what_if->recorded->iterations; i++) {
        const struct mp_graph_stage *stage = &what_if->graph->stage[i];
        for (int n = 0; n < stage->nodes; n++) {
            int index = what_if->graph->order[stage->first_node + n];
            const struct mp_graph_node *node = &what_if->graph->node[index];
            const struct mp_what_if_span span = {.iteration = i,
                                                 .rank = node->rank,
                                                 .recorded = span_of(what_if, index),
                                                 .own = node->gap + node->own,
                                                 .transfer = node->transfer};
            visit(context, &span);
        }
    }
}
