#include "reference/schedule/exchange/descriptors.h"

/* The rank of the own node at the destination's place. */
static int stop(const struct mp_topology *topology, int from, int to, int round) {
    (void)round; /* after the last of two rows are where they have to be */
    return mp_topology_at_place(topology, mp_topology_node(topology, from), to);
}

const struct mp_exchange mp_exchange_two_level = {
    .name = "two-level",
    .title = "inside the node first, then between ranks of the same place in all nodes",
    .source = "Tutel, arXiv 2206.03382, 2DH all-to-all; microsoft/tutel",
    .models = "Two rounds: inside its node a rank sends the rows for place i of any node to the "
              "node's rank i; those exchange them with the ranks of their place in the other "
              "nodes. Rows are put in order before either. Between nodes a rank has one message "
              "per node instead of one per rank, so that messages do not get small as ranks get "
              "many; what crosses a node's border takes one hop more.",
    .use = "exchange: two-level, nodes: 4; or system: tutel",
    .takes_padding = true,
    .rounds = 2,
    .stop = stop,
    .reorders = 1u << 0 | 1u << 1,
};
