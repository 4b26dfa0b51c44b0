/* Which ranks hold which expert (see lp.h). */
#include "baselines/lp/lp.h"

/* The topologies of LPLB: neighbouring ranks that share replicas, 0: all, and how many experts in a
 * row make one turn through a rank's links. */
static const struct {
    const char *name;
    int ranks, links;
} shape[] = {
    [MP_LP_CUBE] = {"cube", 8, 2},
    [MP_LP_HYPERCUBE] = {"hypercube", 16, 2},
    [MP_LP_RING] = {"ring", 8, 1},
    [MP_LP_TORUS] = {"torus", 0, 2},
};

/* The rank, of those that share replicas, whose expert `rank` holds over this link. */
static int linked(int placement, int link, int rank) {
    static const int across[8] = {6, 7, 4, 5, 0, 1, 2, 3};

    if (placement == MP_LP_RING)
        return (rank + 1) % 8;
    if (link == 0)
        return rank / 4 * 4 + (rank + 3) % 4;
    return placement == MP_LP_CUBE ? across[rank] : (rank + 12) % 16;
}

static int holds_of(int placement, const struct mp_topology *topology, int link, int rank) {
    int per_node = topology->ranks_per_node, size = shape[placement].ranks;

    if (placement != MP_LP_TORUS)
        return rank / size * size + linked(placement, link, rank % size);
    return link == 0 ? (rank + per_node) % topology->ranks
                     : rank / per_node * per_node + (rank + 1) % per_node;
}

int mp_lp_replicated(const struct mp_lp_options *options, const struct mp_topology *topology,
                     int experts, int *replicated, struct mp_error *error) {
    int ranks = topology->ranks, placement = options->placement;

    *replicated = (experts + ranks - 1) / ranks;
    if (placement == MP_LP_CYCLIC)
        return MP_OK;
    int size = shape[placement].ranks, each = experts / ranks;
    *replicated = options->redundant == MP_AUTO ? shape[placement].links : options->redundant;
    if (experts % ranks != 0 || *replicated > each || *replicated % shape[placement].links != 0)
        return mp_fail(error, MP_EINVAL,
                       "lp with placement %s needs as many experts on every rank, and of them a "
                       "multiple of %d with a replica: %d can't be those of %d experts on %d ranks",
                       shape[placement].name, shape[placement].links, *replicated, experts, ranks);
    if (size > 0 && ranks % size != 0)
        return mp_fail(error, MP_EINVAL,
                       "lp with placement %s needs a multiple of %d ranks, not %d",
                       shape[placement].name, size, ranks);
    if (size == 0 && (ranks % topology->ranks_per_node != 0 || topology->ranks_per_node < 2 ||
                      mp_topology_nodes(topology) < 2))
        return mp_fail(error, MP_EINVAL,
                       "lp with placement torus needs two or more nodes of as many ranks, two or "
                       "more, not %d ranks in nodes of %d",
                       ranks, topology->ranks_per_node);
    return MP_OK;
}

/* On the ranks behind the owner, by offsets that go on from expert to expert. */
static void add_cyclic(int copies, int place, int expert, struct mp_placement *home) {
    int ranks = home->ranks;

    for (int64_t copy = 0; copy < copies - 1; copy++) {
        int64_t offset = 1 + (place * (int64_t)(copies - 1) + copy) % (ranks - 1);
        mp_placement_add(home, expert, (int)((home->owner[expert] + offset) % ranks));
    }
}

void mp_lp_add_replicas(const struct mp_lp_options *options, const struct mp_topology *topology,
                        int replicated, const int32_t place[], struct mp_placement *home) {
    int copies = options->replicas < home->ranks ? options->replicas : home->ranks;

    for (int expert = 0; expert < home->experts; expert++) {
        if (options->placement == MP_LP_CYCLIC) {
            add_cyclic(copies, place[expert], expert, home);
            continue;
        }
        int link = place[expert] % shape[options->placement].links;
        for (int rank = 0; rank < home->ranks && place[expert] < replicated; rank++)
            if (holds_of(options->placement, topology, link, rank) == home->owner[expert])
                mp_placement_add(home, expert, rank);
    }
}
