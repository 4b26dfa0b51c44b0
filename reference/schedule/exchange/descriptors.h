/* The files of this folder, each an exchange.  Private to it. */
#ifndef MOEPERF_REFERENCE_SCHEDULE_EXCHANGE_DESCRIPTORS_H
#define MOEPERF_REFERENCE_SCHEDULE_EXCHANGE_DESCRIPTORS_H

#include "reference/schedule/exchange/exchange.h"

#define MP_EXCHANGE_DECLARED(kind, descriptor)                                                     \
    extern const struct mp_exchange mp_exchange_##descriptor;
MP_EXCHANGES(MP_EXCHANGE_DECLARED)
#undef MP_EXCHANGE_DECLARED

/* The rank of a node whose place in it is that of `rank` in its own; in the last node, which may be
 * smaller, places are counted round. */
static inline int mp_exchange_at_place(const struct mp_topology *topology, int node, int rank) {
    int first = mp_topology_node_begin(topology, node);
    return first + rank % topology->ranks_per_node % (mp_topology_node_end(topology, node) - first);
}

#endif
