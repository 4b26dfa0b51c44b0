/* Stages of a pipeline, and a run without stragglers: see graph.h. */
#include <stdlib.h>

#include "profiler/record/record.h"
#include "profiler/straggler/causes.h"
#include "reference/base/median.h"

/* ---- stages ---- */

/* The rank from which the first recv of `rank` comes; -1: it sends before it receives, or never
 * sends anything back: rings do that, and a pipeline does not. */
static int fed_by(const struct mp_recorded_times *times, int rank) {
    const struct mp_recorded_rank *own = mp_recorded_rank_at(times, 0, rank);
    int from = -1;
    for (int s = 0; s < own->count; s++) {
        const struct mp_recorded_span *span = &times->span[own->first + (size_t)s];
        if (span->phase == MP_PHASE_SEND && (from < 0 || from == span->layer))
            return from;
        if (span->phase == MP_PHASE_RECV && from < 0)
            from = span->layer < times->ranks ? span->layer : -1;
    }
    return -1;
}

void mp_graph_find_pipeline(struct mp_graph *graph) {
    const int ranks = graph->times.ranks;
    graph->pipelines = 1;
    for (int r = 0; r < ranks && graph->times.iterations > 0; r++) {
        int stage = 0;
        for (int from = fed_by(&graph->times, r); from >= 0 && stage < ranks; stage++)
            from = fed_by(&graph->times, from);
        graph->pipeline[r] = stage;
        graph->pipelines = stage >= graph->pipelines ? stage + 1 : graph->pipelines;
    }
    if (graph->pipelines <= ranks)
        return;
    for (int r = 0; r < ranks; r++) /* they feed each other in a circle */
        graph->pipeline[r] = 0;
    graph->pipelines = 1;
}

/* ---- ideal ---- */

static void even_group(struct mp_graph *graph, const struct mp_graph_group *group, double work[]) {
    double own = 0;
    for (int m = 0; m < group->count; m++) {
        const struct mp_graph_node *node = &graph->node[graph->member[group->first + m]];
        own += node->own;
        work[m] = node->transfer;
    }
    double transfer = mp_median_of(work, group->count);
    for (int m = 0; m < group->count; m++)
        graph->ideal[graph->member[group->first + m]] =
            (struct mp_graph_seconds){0, own / (group->count + group->absent), transfer};
}

/* Both ends of an edge do different things: each is like all of its kind in the iteration. */
static void even_edges(struct mp_graph *graph, const struct mp_graph_stage *stage, int phase,
                       double work[]) {
    double own = 0;
    int count = 0, waiting = 0;
    for (int i = 0; i < stage->nodes; i++) {
        int node = graph->order[stage->first_node + i];
        if (!mp_graph_is_edge(graph, node) || graph->times.span[node].phase != phase)
            continue;
        own += graph->node[node].own;
        count++;
        if (graph->node[node].last >= 0)
            work[waiting++] = graph->node[node].transfer;
    }
    double transfer = waiting ? mp_median_of(work, waiting) : 0;
    for (int i = 0; i < stage->nodes; i++) {
        int node = graph->order[stage->first_node + i];
        if (mp_graph_is_edge(graph, node) && graph->times.span[node].phase == phase)
            graph->ideal[node] = (struct mp_graph_seconds){
                0, own / count, graph->node[node].last >= 0 ? transfer : 0};
    }
}

/* One pass of a micro-batch through a stage: the model's work of one direction between two edges.
 */
struct pass {
    int from, to; /* in order */
    double seconds;
};

static bool is_of_pass(const struct mp_graph *graph, int node, int direction) {
    const struct mp_recorded_span *span = &graph->times.span[node];
    return span->direction == direction && mp_cause_of_work(span->phase) == MP_CAUSE_SLOW;
}

/* The next pass behind `at`; false: there is none. */
static bool next_pass(const struct mp_graph *graph, const struct mp_graph_stage *stage,
                      int direction, int at, struct pass *pass) {
    *pass = (struct pass){at, at, 0};
    for (int i = at; i < stage->nodes; i++) {
        int node = graph->order[stage->first_node + i];
        const int own = graph->times.span[node].direction;
        const bool begins = graph->node[node].before < 0 && i > at;
        if (pass->seconds > 0 && (begins || mp_graph_is_edge(graph, node) ||
                                  (own != direction && own != MP_NO_DIRECTION)))
            return true;
        if (is_of_pass(graph, node, direction))
            pass->seconds += graph->ideal[node].own;
        pass->to = i + 1;
    }
    return pass->seconds > 0;
}

static void even_stages(struct mp_graph *graph, const struct mp_graph_stage *stage, int direction) {
    struct pass pass;
    double sum = 0;
    int passes = 0;
    for (int at = 0; next_pass(graph, stage, direction, at, &pass); at = pass.to) {
        sum += pass.seconds;
        passes++;
    }
    for (int at = 0; next_pass(graph, stage, direction, at, &pass); at = pass.to)
        for (int i = pass.from; i < pass.to; i++) {
            int node = graph->order[stage->first_node + i];
            if (is_of_pass(graph, node, direction))
                graph->ideal[node].own *= sum / passes / pass.seconds;
        }
}

int mp_graph_find_ideal(struct mp_graph *graph, struct mp_error *error) {
    MP_AUTO(arena) struct mp_arena memory = {0};
    double *work = mp_arena_take(&memory, graph->times.spans + 1, sizeof *work);
    MP_TRY(mp_arena_check(&memory, error));
    for (int g = 0; g < graph->groups; g++)
        even_group(graph, &graph->group[g], work);
    for (int i = 0; i < graph->times.iterations; i++) {
        const struct mp_graph_stage *stage = &graph->stage[i];
        even_edges(graph, stage, MP_PHASE_SEND, work);
        even_edges(graph, stage, MP_PHASE_RECV, work);
        if (graph->pipelines == 1)
            continue;
        even_stages(graph, stage, MP_FORWARD);
        even_stages(graph, stage, MP_BACKWARD);
        mp_graph_replay(graph, i, graph->ideal, true);
        for (int n = 0; n < stage->nodes; n++) {
            int node = graph->order[stage->first_node + n];
            graph->ideal_wait[node] = graph->waited[node];
        }
    }
    return MP_OK;
}
