#include "reference/plan/placement.h"

#include <string.h>

#include "reference/base/digest.h"

void mp_even_owners(int layers, int experts, int ranks, int32_t owner[]) {
    for (int layer = 0; layer < layers; layer++) {
        int first = (int)(((int64_t)layer * experts + ranks - 1) / ranks);
        for (int expert = first; expert < first + experts; expert++)
            *owner++ = mp_contiguous_owner(expert, experts, ranks) - layer;
    }
}

void mp_placement_take(struct mp_arena *arena, int ranks, int experts,
                       struct mp_placement *placement) {
    *placement =
        (struct mp_placement){.ranks = ranks, .experts = experts, .words = (ranks + 63) / 64};
    MP_TAKE(arena, placement->owner, experts);
    MP_TAKE(arena, placement->holder, experts * placement->words);
    for (int expert = 0; expert < experts && !arena->lacking; expert++) {
        placement->owner[expert] = mp_contiguous_owner(expert, experts, ranks);
        mp_placement_add(placement, expert, placement->owner[expert]);
    }
}

void mp_placement_set_owners(struct mp_placement *placement, const int32_t owner[]) {
    memset(placement->holder, 0,
           (size_t)placement->experts * (size_t)placement->words * sizeof *placement->holder);
    for (int expert = 0; expert < placement->experts; expert++) {
        placement->owner[expert] = owner[expert];
        /* An owner that is no rank has no bit; mp_plan_check names it. */
        if (owner[expert] >= 0 && owner[expert] < placement->ranks)
            mp_placement_add(placement, expert, owner[expert]);
    }
}

void mp_placement_copy(struct mp_placement *to, const struct mp_placement *from) {
    memcpy(to->owner, from->owner, (size_t)from->experts * sizeof *from->owner);
    memcpy(to->holder, from->holder,
           (size_t)from->experts * (size_t)from->words * sizeof *from->holder);
}

bool mp_placement_equal(const struct mp_placement *one, const struct mp_placement *other) {
    size_t experts = (size_t)one->experts, words = experts * (size_t)one->words;

    return memcmp(one->owner, other->owner, experts * sizeof *one->owner) == 0 &&
           memcmp(one->holder, other->holder, words * sizeof *one->holder) == 0;
}

int mp_placement_copies(const struct mp_placement *placement, int expert) {
    const uint64_t *row = placement->holder + (long)expert * placement->words;
    int copies = 0;
    for (int word = 0; word < placement->words; word++)
        copies += __builtin_popcountll(row[word]);
    return copies;
}

uint64_t mp_placement_digest(const struct mp_placement *placement, uint64_t digest) {
    size_t experts = (size_t)placement->experts, words = experts * (size_t)placement->words;
    digest = mp_digest_bytes(digest, placement->owner, experts * sizeof *placement->owner);
    return mp_digest_bytes(digest, placement->holder, words * sizeof *placement->holder);
}
