/* Topology: ranks grouped into nodes of equal size, node(r) = r / ranks_per_node. */
#ifndef MOEPERF_REFERENCE_PLAN_TOPOLOGY_H
#define MOEPERF_REFERENCE_PLAN_TOPOLOGY_H

struct mp_topology {
    int ranks;          /* R >= 1 */
    int ranks_per_node; /* G >= 1; the last node may be smaller */
};

static inline int mp_topology_node(const struct mp_topology *topology, int rank) {
    return rank / topology->ranks_per_node;
}
static inline int mp_topology_nodes(const struct mp_topology *topology) {
    return (topology->ranks - 1) / topology->ranks_per_node + 1;
}
/* First rank of a node, and one past its last. */
static inline int mp_topology_node_begin(const struct mp_topology *topology, int node) {
    return node * topology->ranks_per_node;
}
static inline int mp_topology_node_end(const struct mp_topology *topology, int node) {
    int end = (node + 1) * topology->ranks_per_node;
    return end < topology->ranks ? end : topology->ranks;
}

#endif
