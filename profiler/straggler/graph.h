/* Who waited for whom: the dependency graph of a recorded run, and its replay.
 *
 * A rank does its spans one after another.  What a span took is the rank's own work (with the gap
 * before it), except what it waited for others in it.  Spans of the same phase, direction, layer
 * and place in that order belong together across ranks; where any of them waited they *meet*, and a
 * rank goes on a *transfer* after the last of those that had come when it did in the recording: it
 * can't have needed those that came later.  Own work comes before the waiting, but for the way back
 * to tokens (combine, forward) and for sends, which begin with their message.
 *
 * A send and a recv are the two ends of an edge: the first of rank a to b belongs to the first of b
 * from a, and so on.  A send that did not wait in the recording waits for nobody.
 *
 * Replayed with the recorded work and transfers this gives the recorded times back. */
#pragma once

#include "profiler/straggler/times.h"
#include "reference/base/arena.h"
#include "reference/base/error.h"

/* A span in the graph; its number is that of its span. */
struct mp_graph_node {
    double gap, own, transfer; /* s; transfer: 0 where nobody waits */
    double arrived, released;  /* recorded: has done what comes before waiting; has waited */
    int rank, group;
    int before;     /* the rank's node before it in the iteration; -1: none */
    int last;       /* of its group, of those that had come when it went on: the one that came last;
                       itself if that did, -1 where nobody waits */
    int ordinal;    /* among those of its phase, direction and layer on its rank */
    bool own_after; /* waiting comes first */
};

/* Nodes that belong together, at most one per rank and ordered by rank. */
struct mp_graph_group {
    int first, count; /* in member */
    int absent;       /* ranks that have no node here and did nothing, in no time: of a layer's
                         experts those that take part in the layer, of what need not be done
                         everywhere (data, checkpoint, collect) all */
    int kind;         /* groups of one phase, direction, layer and ordinal, in all iterations */
    int iteration;    /* index */
    bool meets;
};

/* Both ends of an edge are of phase recv, no direction and no layer. */
struct mp_graph_kind {
    int phase, direction, layer;
    int channel; /* of an edge: from * ranks + to; -1 otherwise */
    int stage;   /* of the pipeline; 0 for what all stages do together */
    int ordinal;
};

/* What takes the place of a node's recorded seconds. */
struct mp_graph_seconds {
    double gap, own, transfer;
};

/* One iteration. */
struct mp_graph_stage {
    int first_group, groups;
    int first_node, nodes; /* in order, member, and doubled in event */
};

struct mp_graph {
    struct mp_arena arena;
    struct mp_recorded_times times; /* what it points to is borrowed */
    struct mp_graph_node *node;     /* [spans] */
    struct mp_graph_group *group;   /* [groups] */
    int *member;                    /* [spans] nodes, group by group */
    int *order;                     /* [spans] nodes, iteration by iteration and rank by rank */
    int *event; /* [2 spans] node * 2 + (0 arrival, 1 release), in recorded order */
    struct mp_graph_stage *stage; /* [iterations] */
    struct mp_graph_kind *kind;   /* [kinds] sorted, fields in their order */
    int groups, kinds;
    int layers;    /* largest layer of an expert span + 1 */
    int *pipeline; /* [ranks] stage of the pipeline: 0 for ranks that send before they receive, else
                      one more than that of the rank that the first recv is from */
    int pipelines; /* stages; 1: there is no pipeline */
    bool unmatched; /* an edge has one end only */
    /* Without stragglers: work is its mean over the ranks of an operation, a transfer their median,
     * nothing lies between operations; the stages of a pipeline work equally long on each pass. */
    struct mp_graph_seconds *ideal; /* [spans] */
    double *ideal_wait; /* [spans] s that is waited even so: a pipeline fills and drains */
    /* For replays. */
    double *ended, *latest; /* [spans], [groups] */
    double *waited;         /* [spans] s, in the last replay */
    int *done;              /* [ranks] */
};

/* `tolerance`, s: how far clocks may be apart; who left at most that much before another came is
 * taken to have waited for it.  MP_ENOMEM. */
int mp_graph_create(const struct mp_recorded_times *times, double tolerance,
                    struct mp_graph **graph, struct mp_error *error);
void mp_graph_destroy(struct mp_graph *graph); /* accepts NULL */

static inline bool mp_graph_is_edge(const struct mp_graph *graph, int node) {
    return graph->kind[graph->group[graph->node[node].group].kind].channel >= 0;
}

/* ideal.c, for mp_graph_create: fill pipeline and pipelines; ideal and ideal_wait.  MP_ENOMEM. */
void mp_graph_find_pipeline(struct mp_graph *graph);
int mp_graph_find_ideal(struct mp_graph *graph, struct mp_error *error);

/* The node of a rank in a group; -1: it has none. */
int mp_graph_member(const struct mp_graph *graph, const struct mp_graph_group *group, int rank);

/* Whether a rank that has no node in a group is one of its absent. */
bool mp_graph_is_absent(const struct mp_graph *graph, const struct mp_graph_group *group, int rank);

/* Recorded seconds of all nodes, now[spans]: what changes start from. */
void mp_graph_recorded(const struct mp_graph *graph, struct mp_graph_seconds now[]);

/* Seconds of one iteration.  `together`: ranks begin at once, otherwise when they did. */
double mp_graph_replay(struct mp_graph *graph, int iteration, const struct mp_graph_seconds now[],
                       bool together);
