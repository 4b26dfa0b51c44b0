/* ILP 2 of MoETuner: clusters on ranks, so that the fullest link between layers carries little.
 *
 *     minimise sum_l s_l,  s_l = max over ranks g1, g2 of  C[c1,c2,l] / B[g1,g2]
 *                                with c1 of layer l on g1 and c2 of layer l + 1 on g2
 *
 * Every layer has one cluster on every rank; C are the routes that go on from one to the other.
 * What stays on a rank takes no time, and a link inside a node is as fast as one between nodes or
 * faster.  So a bandwidth depends on whether two clusters share a rank, a node, or nothing, and the
 * program needs no product of two positions:
 *
 *     v[c,n,l]       cluster c of layer l is on node n
 *     u[c1,c2,l]     both are on one rank; an entry of a permutation
 *     b[t,l]         s_l reaches the t-th of the times that it may have
 *
 * Given the nodes, ranks inside them follow layer by layer, and the best ones are found by handing
 * the largest C of the node out first.  The program of all layers is exact.  On one node, and on
 * nodes of one rank, pairs of layers have nothing in common, and the search alone is exact. */
#pragma once

#include <stdint.h>

#include "reference/base/arena.h"
#include "reference/base/program.h"
#include "reference/plan/topology.h"

struct mp_links {
    int layers;
    struct mp_topology topology; /* R ranks: of every layer as many clusters */
    double in_node, between;     /* of a route, s; in_node <= between */
    int64_t *flow;               /* [layers - 1][R][R], C; owned as what follows */
    double *low;                 /* [layers - 1] no s_l is less, by mp_links_bound */
    double *seconds;             /* [layers - 1], working memory as what follows */
    int32_t *order;              /* [layers - 1][R * R] entries of flow, the largest first */
    int32_t *parent;             /* [2 * R] */
    int32_t *rows, *columns;     /* [2 * R] */
    int32_t *room, *node;        /* [R] */
    int32_t *map;                /* [R] */
};
/* All flows 0.  Tables are the arena's, whose user looks whether there was memory. */
void mp_links_create(struct mp_arena *memory, int layers, const struct mp_topology *topology,
                     struct mp_links *links);

static inline int64_t *mp_links_flow(const struct mp_links *links, int layer) {
    size_t ranks = (size_t)links->topology.ranks;
    return links->flow + (size_t)layer * ranks * ranks;
}

/* sum_l s_l; rank is [layers][R], of every cluster. */
double mp_links_seconds(struct mp_links *links, const int32_t rank[]);

/* To be called when flows have been set: puts them in order, and returns what no placement is
 * below: the sum over l of the least that s_l could be if it were alone.  Clusters between which
 * more travels must share a node (a rank), and those must have room for them. */
double mp_links_bound(struct mp_links *links);

/* Local search, after mp_links_bound: layer by layer the largest flows first share a node, then a
 * rank; then, as long as something gets better, two clusters of a layer change places, or all
 * clusters of two ranks from a layer on.  Better: less seconds, or as many and less travel.
 * Allocates nothing. */
void mp_links_search(struct mp_links *links, int32_t rank[]);

/* Ranks for the clusters of layer `layer` + 1 inside their nodes (links->node), where those of the
 * layer are on `left`: the largest flow first, which is the best for the largest one that crosses:
 * what is smaller than the first flow that is not handed out matters no more. */
void mp_links_match(struct mp_links *links, int layer, const int32_t left[], int32_t right[]);

/* The program over layers first .. last, after mp_links_bound: nodes of the others stay as they
 * are.  rank arrives as a solution to begin with and leaves as one as good or better.  *bound
 * becomes what no placement of these layers is below, of all links. */
int mp_links_program(struct mp_links *links, int first, int last,
                     const struct mp_program_limits *limits, int32_t rank[], double *bound,
                     struct mp_program_result *result, struct mp_error *error);
