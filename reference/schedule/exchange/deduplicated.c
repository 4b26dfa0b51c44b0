#include "reference/schedule/exchange/descriptors.h"

/* The rank of the destination's node at the sender's place. */
static int stop(const struct mp_topology *topology, int from, int to, int round) {
    (void)round; /* after the last of two rows are where they have to be */
    return mp_topology_at_place(topology, mp_topology_node(topology, to), from);
}

const struct mp_exchange mp_exchange_deduplicated = {
    .name = "deduplicated",
    .title = "a token once to every node that needs it, and from there once to every rank",
    .source = "DeepEP (deepseek-ai/DeepEP, normal kernels); HierMoE, arXiv 2508.09591, section 4",
    .models =
        "Two rounds: a rank sends a token's row once to every node with experts of the token, "
        "to the rank of its own place there, which sends it once to every rank of the node "
        "that needs it; there it is copied for each expert. Or a round more for each level of "
        "groups inside one another, nodes or others, that a system asks for (hiermoe's "
        "hierarchy). On the way back outputs are weighted and summed on the expert's rank, then in "
        "the groups from the innermost out, then by the sender, so that sums have another order "
        "than in a flat exchange. How many tokens go to each group and rank is exchanged first, "
        "weights and places of a token's routes travel with its rows. On one node tokens are "
        "deduplicated by rank alone. With an exchange-degree a rank's tokens are cut into "
        "chunks, one behind the other under the experts' work, and all rounds of all travel under "
        "a shared expert.",
    .use = "exchange: deduplicated, nodes: 4, exchange-degree: 2; or system: deepep or hiermoe",
    .rounds = 2,
    .stop = stop,
    .reorders = 1u << 1,
    .deduplicates = true,
};
