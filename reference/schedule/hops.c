#include "reference/schedule/hops.h"

/* From where `before` ends through the receivers of one node. */
static void pass_through(int expert, const int32_t receiver[], int count, struct mp_hop before,
                         struct mp_hop hop[]) {
    int next = expert % count;
    for (int i = 0; i < count; i++) {
        hop[i] = (struct mp_hop){before.to, receiver[next], before.depth + 1};
        before = hop[i];
        next = next + 1 < count ? next + 1 : 0;
    }
}

void mp_hops(const struct mp_topology *topology, int expert, int owner, const int32_t receiver[],
             int count, struct mp_hop hop[]) {
    const int home = mp_topology_node(topology, owner);
    const int begin = mp_topology_node_begin(topology, home);
    struct mp_hop source = {-1, owner, 0}; /* the way to where the next node gets it from */
    int at = 0;
    while (at < count && receiver[at] < begin)
        at++;
    for (int made = 0; made < count;) {
        at = at < count ? at : 0;
        int node = mp_topology_node(topology, receiver[at]), past = at + 1;
        int end = mp_topology_node_end(topology, node);
        while (past < count && receiver[past] < end)
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
