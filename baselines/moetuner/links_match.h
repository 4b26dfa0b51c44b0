/* What links.c and links_program.c share. */
#ifndef MOEPERF_BASELINES_MOETUNER_LINKS_MATCH_H
#define MOEPERF_BASELINES_MOETUNER_LINKS_MATCH_H

#include "baselines/moetuner/links.h"

/* Of a route from one rank to another, s. */
static inline double mp_links_of_route(const struct mp_links *links, int from, int to) {
    if (from == to)
        return 0;
    return mp_topology_node(&links->topology, from) == mp_topology_node(&links->topology, to)
               ? links->in_node
               : links->between;
}

/* Ranks for the clusters of layer `layer` + 1 inside their nodes (links->node), where those of the
 * layer are on `left`: the largest flow first, which is the best for the largest one that crosses:
 * what is smaller than the first flow that is not handed out matters no more. */
void mp_links_match(struct mp_links *links, int layer, const int32_t left[], int32_t right[]);

#endif
