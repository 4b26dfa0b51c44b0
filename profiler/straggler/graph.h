/* Who waited for whom: the dependency graph of a recorded run, and its replay.
 *
 * A rank does its spans one after another.  What a span took is the rank's own work (with the gap
 * before it), except what it waited for others in it.  Spans of the same phase, direction, layer
 * and place in that order belong together across ranks; where any of them waited they *meet*, and a
 * rank goes on a *transfer* after the last of those that had come when it did in the recording: it
 * can't have needed those that came later.  Own work comes before the waiting, but for the way back
 * to tokens (combine, forward).
 *
 * Replayed with the recorded work and transfers this gives the recorded times back. */
#ifndef MOEPERF_PROFILER_STRAGGLER_GRAPH_H
#define MOEPERF_PROFILER_STRAGGLER_GRAPH_H

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
    int absent;       /* of a layer's experts: ranks that take part in the layer and have no node
                         here: they computed nothing, in no time */
    int kind;         /* groups of one phase, direction, layer and ordinal, in all iterations */
    int iteration;    /* index */
    bool meets;
};

struct mp_graph_kind {
    int phase, direction, layer, ordinal;
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
    struct mp_graph_kind *kind;   /* [kinds] sorted by phase, direction, layer, ordinal */
    int groups, kinds;
    int layers; /* largest layer of an expert span + 1 */
    /* For replays. */
    double *ended, *latest; /* [spans], [groups] */
    int *done;              /* [ranks] */
};

/* What takes the place of a node's recorded seconds. */
struct mp_graph_seconds {
    double gap, own, transfer;
};

/* `tolerance`, s: how far clocks may be apart; who left at most that much before another came is
 * taken to have waited for it.  MP_ENOMEM. */
int mp_graph_create(const struct mp_recorded_times *times, double tolerance,
                    struct mp_graph **graph, struct mp_error *error);
void mp_graph_destroy(struct mp_graph *graph); /* accepts NULL */

/* The node of a rank in a group; -1: it has none. */
int mp_graph_member(const struct mp_graph *graph, const struct mp_graph_group *group, int rank);

/* Whether a rank that has no node in a group is one of its absent. */
bool mp_graph_is_absent(const struct mp_graph *graph, const struct mp_graph_group *group, int rank);

/* Recorded seconds of all nodes, now[spans]: what changes start from. */
void mp_graph_recorded(const struct mp_graph *graph, struct mp_graph_seconds now[]);

/* Seconds of one iteration.  `together`: ranks begin at once, otherwise when they did. */
double mp_graph_replay(struct mp_graph *graph, int iteration, const struct mp_graph_seconds now[],
                       bool together);

#endif
