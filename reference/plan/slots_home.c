#include "reference/plan/slots_home.h"

static bool agree(const struct mp_slots *slots, const struct mp_placement *home, int expert) {
    int ranks = 0;

    for (int32_t slot = slots->begin[expert]; slot < slots->begin[expert + 1]; slot++) {
        if (!mp_placement_holds(home, expert, slots->rank[slot]))
            return false;
        ranks += slot == slots->begin[expert] || slots->rank[slot] != slots->rank[slot - 1];
    }
    return ranks == mp_placement_copies(home, expert);
}

struct mp_slots *mp_slots_for_home(struct mp_slots *slots, struct mp_slots *other,
                                   const struct mp_placement *home, int ranks_per_node) {
    int expert = 0;

    while (expert < slots->experts && agree(slots, home, expert))
        expert++;
    if (expert == slots->experts)
        return slots;
    for (int rank = 0; rank < other->ranks; rank++) {
        int32_t *slot = other->expert + (long)rank * other->per_rank;
        for (expert = 0; expert < other->experts; expert++)
            slot[expert] = mp_placement_holds(home, expert, rank) ? expert : -1;
    }
    mp_slots_index(other, ranks_per_node);
    return other;
}
