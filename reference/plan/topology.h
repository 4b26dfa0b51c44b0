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
/* Shares of ranks that go with 1 over the cost of a byte, 1 inside the node and `outside_cost` to
 * another: that of a rank inside the node, and of one outside that over the cost. */
static inline double mp_topology_near_share(const struct mp_topology *topology, int node,
                                            double outside_cost) {
    int near = mp_topology_node_end(topology, node) - mp_topology_node_begin(topology, node);
    return 1 / (near + (topology->ranks - near) / outside_cost);
}
/* That of all ranks inside together. */
static inline double mp_topology_share_inside(const struct mp_topology *topology, int node,
                                              double outside_cost) {
    int near = mp_topology_node_end(topology, node) - mp_topology_node_begin(topology, node);
    return near * mp_topology_near_share(topology, node, outside_cost);
}

#endif
