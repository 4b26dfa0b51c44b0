/* FLEX, the variant of LAER-MoE's authors. */
#include "baselines/flexmoe/flexmoe.h"

struct extremes {
    int64_t largest, least;
};

static struct extremes extremes_of(const struct mp_flex *flex) {
    struct extremes loads = {flex->load[0], flex->load[0]};

    for (int rank = 1; rank < flex->ranks; rank++) {
        if (flex->load[rank] > loads.largest)
            loads.largest = flex->load[rank];
        if (flex->load[rank] < loads.least)
            loads.least = flex->load[rank];
    }
    return loads;
}

/* The largest load falls, or largest over least; over nothing it is infinite. */
static bool improves(struct extremes now, struct extremes before) {
    return now.largest < before.largest ||
           (__int128)now.largest * before.least < (__int128)before.largest * now.least;
}

static void choose_experts(const struct mp_flex *flex, int nodes, int *high, int *low) {
    *high = 0;
    *low = -1;
    for (int expert = 0; expert < flex->experts; expert++) {
        if (flex->share[expert] > flex->share[*high])
            *high = expert;
        if (flex->slots[expert] > nodes && (*low < 0 || flex->share[expert] < flex->share[*low]))
            *low = expert;
    }
}

/* First slot of `expert` on the least loaded of ranks first .. end - 1 that have it, or -1. */
static int least_loaded_slot(const struct mp_flex *flex, int expert, int first, int end) {
    int best = -1;

    for (int slot = first * flex->per_rank; slot < end * flex->per_rank; slot++)
        if (flex->expert[slot] == expert &&
            (best < 0 || flex->load[slot / flex->per_rank] < flex->load[best / flex->per_rank]))
            best = slot;
    return best;
}

/* First of these ranks that has `high` and room for one more of it, or -1. */
static int rank_with(const struct mp_flex *flex, int high, int first, int end) {
    for (int rank = first; rank < end; rank++) {
        int count = mp_flex_here(flex, rank, high);
        if (count > 0 && count < flex->per_rank)
            return rank;
    }
    return -1;
}

/* What a round looks at as it was when the round began. */
struct round {
    int high, low;
    int64_t low_share;
};

/* Slot of a rank's heaviest expert beside `high`; without one its first empty slot. */
static int heaviest_slot(const struct mp_flex *flex, const struct round *round, int rank) {
    int64_t most = -1;
    int best = -1;

    for (int slot = rank * flex->per_rank; slot < (rank + 1) * flex->per_rank; slot++) {
        int expert = flex->expert[slot];
        if (expert == round->high)
            continue;
        int64_t share = expert < 0             ? 0
                        : expert == round->low ? round->low_share
                                               : flex->share[expert];
        if (share > most || (share == most && expert >= 0 && flex->expert[best] < 0)) {
            most = share;
            best = slot;
        }
    }
    return best;
}

static void change_node(struct mp_flex *flex, const struct round *round, int first, int end) {
    int freed = least_loaded_slot(flex, round->low, first, end);

    if (freed < 0)
        return;
    mp_flex_shrink(flex, freed);
    int rank = rank_with(flex, round->high, first, end);
    if (rank >= 0 && rank != freed / flex->per_rank) {
        int displaced = heaviest_slot(flex, round, rank);
        mp_flex_migrate(flex, displaced, freed);
        freed = displaced;
    }
    mp_flex_expand(flex, round->high, freed);
}

static bool laer_round(struct mp_flex *flex, int ranks_per_node) {
    const struct mp_topology topology = {flex->ranks, ranks_per_node};
    struct extremes before = extremes_of(flex);
    int nodes = mp_topology_nodes(&topology);
    struct round round;

    choose_experts(flex, nodes, &round.high, &round.low);
    if (round.low < 0 || round.low == round.high)
        return false;
    round.low_share = flex->share[round.low];
    mp_flex_keep(flex);
    for (int node = 0; node < nodes; node++)
        change_node(flex, &round, mp_topology_node_begin(&topology, node),
                    mp_topology_node_end(&topology, node));
    mp_flex_measure(flex);
    if (improves(extremes_of(flex), before))
        return true;
    mp_flex_go_back(flex);
    return false;
}

int mp_flex_laer_policy(struct mp_flex *flex, int ranks_per_node, int rounds) {
    int stayed = 0;
    for (; stayed < rounds; stayed++) {
        struct extremes loads = extremes_of(flex);
        if (loads.largest == loads.least || !laer_round(flex, ranks_per_node))
            break;
    }
    return stayed;
}
