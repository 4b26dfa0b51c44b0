/* Slots: which ranks have them, and how they lie together. */
#include "reference/plan/slots.h"

#include <math.h>
#include <string.h>

void mp_slots_create(struct mp_arena *memory, int ranks, int experts, int per_rank,
                     struct mp_slots *slots) {
    *slots = (struct mp_slots){.ranks = ranks, .experts = experts, .per_rank = per_rank};
    size_t all = (size_t)ranks * (size_t)per_rank, e = (size_t)experts;
    MP_TAKE_EACH(memory, all, slots->expert, slots->rank, slots->group, slots->group_of,
                 slots->node_group);
    MP_TAKE_EACH(memory, e + 1, slots->begin, slots->group_begin, slots->node_group_begin,
                 slots->next);
    MP_TAKE_EACH(memory, e, slots->stretch, slots->turn);
    for (size_t index = 0; !memory->lacking && index < all; index++)
        slots->expert[index] = -1;
}

/* Writes the groups of one expert's slots to group[end] and on; returns their end. */
static int32_t group_expert(const struct mp_slots *slots, int expert, int ranks_per_node,
                            struct mp_slot_group group[], int32_t end) {
    int32_t first = end, holders = 0;

    for (int32_t slot = slots->begin[expert]; slot < slots->begin[expert + 1];) {
        int32_t rank = slots->rank[slot], each = 1;
        while (slot + each < slots->begin[expert + 1] && slots->rank[slot + each] == rank)
            each++;
        bool begins = end == first || group[end - 1].each != each ||
                      rank / ranks_per_node != slots->rank[slot - 1] / ranks_per_node;
        if (begins)
            group[end++] = (struct mp_slot_group){slot, holders, 0, each};
        group[end - 1].holders++;
        holders++;
        slot += each;
    }
    return end;
}

static void group_all(struct mp_slots *slots, int ranks_per_node, int32_t group_begin[],
                      struct mp_slot_group group[]) {
    int32_t end = 0;

    for (int expert = 0; expert < slots->experts; expert++) {
        group_begin[expert] = end;
        end = group_expert(slots, expert, ranks_per_node, group, end);
    }
    group_begin[slots->experts] = end;
}

void mp_slots_index(struct mp_slots *slots, int ranks_per_node) {
    int32_t all = slots->ranks * slots->per_rank;

    memset(slots->begin, 0, ((size_t)slots->experts + 1) * sizeof *slots->begin);
    for (int32_t index = 0; index < all; index++)
        if (slots->expert[index] >= 0)
            slots->begin[slots->expert[index] + 1]++;
    for (int expert = 0; expert < slots->experts; expert++)
        slots->begin[expert + 1] += slots->begin[expert];
    memcpy(slots->next, slots->begin, (size_t)slots->experts * sizeof *slots->next);
    for (int32_t index = 0; index < all; index++)
        if (slots->expert[index] >= 0)
            slots->rank[slots->next[slots->expert[index]]++] = index / slots->per_rank;
    group_all(slots, slots->ranks, slots->group_begin, slots->group);
    for (int32_t group = 0; group < slots->group_begin[slots->experts]; group++)
        for (int32_t slot = 0; slot < slots->group[group].holders * slots->group[group].each;
             slot++)
            slots->group_of[slots->group[group].slot + slot] = group;
    if (ranks_per_node > 0)
        group_all(slots, ranks_per_node, slots->node_group_begin, slots->node_group);
}

int mp_slots_homes(const struct mp_slots *slots, struct mp_placement *home,
                   struct mp_error *error) {
    memset(home->holder, 0, (size_t)home->experts * (size_t)home->words * sizeof *home->holder);
    for (int expert = 0; expert < slots->experts; expert++) {
        int32_t begin = slots->begin[expert], end = slots->begin[expert + 1];
        if (begin == end)
            return mp_fail(error, MP_EPLAN, "expert %d has none of %d slots", expert,
                           slots->ranks * slots->per_rank);
        for (int32_t slot = begin; slot < end; slot++)
            mp_placement_add(home, expert, slots->rank[slot]);
        if (!mp_placement_holds(home, expert, home->owner[expert]))
            home->owner[expert] = slots->rank[begin];
    }
    return MP_OK;
}

int64_t mp_slot_capacity(const struct mp_setting *setting, int per_rank, double factor) {
    int64_t ranks = setting->topology.ranks;
    int64_t routes = setting->tokens_per_rank * ranks * setting->top_k;
    if (factor == 0)
        return -1;
    double capacity = floor(factor * (double)routes / (double)(per_rank * ranks));
    return capacity < (double)routes ? (int64_t)capacity : routes;
}

void mp_plan_slot_capacities(struct mp_plan *plan, const struct mp_slots *slots,
                             int64_t slot_capacity) {
    for (int expert = 0; expert < plan->experts && slot_capacity >= 0; expert++)
        plan->capacity[expert] = slot_capacity * mp_slots_of(slots, expert);
}
