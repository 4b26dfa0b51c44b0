#include "reference/schedule/hops.h"

/* How many of the receivers come before this rank. */
static int before_rank(const struct mp_receiver receiver[], int count, int rank) {
    int least = 0, most = count;
    while (least < most) {
        int middle = (least + most) / 2;
        if (receiver[middle].rank < rank)
            least = middle + 1;
        else
            most = middle;
    }
    return least;
}

/* The number of the receiver at which the expert comes into a node. */
static int entry(int expert, const struct mp_receiver receiver[], int count) {
    for (int i = 0; i < count; i++)
        if (receiver[i].enters)
            return i;
    return expert % count;
}

/* From where `before` ends through the receivers of one node, from its entry on. */
static void pass_through(int expert, const struct mp_receiver receiver[], int count,
                         struct mp_hop before, struct mp_hop hop[]) {
    const int first = entry(expert, receiver, count);
    int32_t from = before.to, depth = before.depth;
    for (int i = first; i < count; i++) {
        *hop++ = (struct mp_hop){from, receiver[i].rank, ++depth};
        from = receiver[i].rank;
    }
    for (int i = 0; i < first; i++) {
        *hop++ = (struct mp_hop){from, receiver[i].rank, ++depth};
        from = receiver[i].rank;
    }
}

void mp_hops(const struct mp_topology *topology, int expert, int owner,
             const struct mp_receiver receiver[], int count, struct mp_hop hop[]) {
    const int home = mp_topology_node(topology, owner);
    int at = before_rank(receiver, count, mp_topology_node_begin(topology, home));
    struct mp_hop source = {-1, owner, 0}; /* the way to where the next node gets it from */
    for (int made = 0; made < count;) {
        at = at < count ? at : 0;
        int node = mp_topology_node(topology, receiver[at].rank), past = at + 1;
        int end = mp_topology_node_end(topology, node);
        while (past < count && receiver[past].rank < end)
            past++;
        pass_through(expert, receiver + at, past - at, source, hop + made);
        if (node != home)
            source = hop[made];
        made += past - at;
        at = past;
    }
}

void mp_hops_ring(int ranks, int owner, struct mp_hop hop[]) {
    int32_t from = owner;
    for (int i = 0; i < ranks - 1; i++) {
        int32_t to = from + 1 < ranks ? from + 1 : 0;
        hop[i] = (struct mp_hop){from, to, i + 1};
        from = to;
    }
}
