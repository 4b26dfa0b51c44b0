#include "reference/schedule/exchange/descriptors.h"

static int leader(const struct mp_topology *topology, int rank) {
    return mp_topology_node_begin(topology, mp_topology_node(topology, rank));
}

/* In the first node, among the leaders. */
static int stop(const struct mp_topology *topology, int from, int to, int round) {
    return leader(topology, round == 0 ? from : to);
}

const struct mp_exchange mp_exchange_leader = {
    .name = "leader",
    .title = "through the first rank of every node",
    .source = "HetuMoE, arXiv 2203.14685 (hierarchical all-to-all); PKU-DAIR/Hetu, halltoall",
    .models = "Three rounds: every rank sends all its rows to the first rank of its node, the "
              "leaders exchange them, each sends the rows of its node's ranks on to them; leaders "
              "put rows in order before the second and the third. Between nodes there is one "
              "message per pair of nodes instead of one per pair of ranks, through one rank's "
              "port, and rows for the own node make the detour as well. It pays where a node has "
              "one network card and messages are small. The leader has all rows of its node in "
              "memory twice.",
    .use = "exchange: leader, nodes: 4; or system: hetumoe",
    .takes_padding = true,
    .rounds = 3,
    .stop = stop,
    .reorders = 1u << 1 | 1u << 2,
};
