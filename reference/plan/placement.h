/* Placement: for each expert of one layer its owner and the ranks that can compute it now.
 *
 * The owner keeps parameters, gradient sum and optimizer state.  A holder has the parameters; the
 * owner is always a holder.  Holders are a bit set per expert, so a rank holds an expert at most
 * once. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "reference/base/arena.h"

struct mp_placement {
    int ranks;
    int experts;
    int words;        /* 64-bit words per expert */
    int32_t *owner;   /* [experts] */
    uint64_t *holder; /* [experts][words], bit r of an expert's row: rank r holds it */
};

/* Continues a digest (reference/base/digest.h) by owners and holders. */
uint64_t mp_placement_digest(const struct mp_placement *placement, uint64_t digest);

/* The rank that owns an expert if owners are contiguous and as even as can be. */
static inline int32_t mp_contiguous_owner(int expert, int experts, int ranks) {
    return (int32_t)((int64_t)expert * ranks / experts);
}
/* Contiguous in each layer, and as even as can be over all of them: ranks that own one more of a
 * layer than others are apart from each other, and in the next layer it is their neighbours.  owner
 * is [layers][experts]. */
void mp_even_owners(int layers, int experts, int ranks, int32_t owner[]);

/* Contiguous owners, and no other holders; sizes are at least 1.  Tables are the arena's, whose
 * user looks whether there was memory. */
void mp_placement_take(struct mp_arena *arena, int ranks, int experts,
                       struct mp_placement *placement);

/* Sets the owners and makes them the only holders.  owner is [experts]. */
void mp_placement_set_owners(struct mp_placement *placement, const int32_t owner[]);
void mp_placement_copy(struct mp_placement *to, const struct mp_placement *from);

static inline bool mp_placement_holds(const struct mp_placement *placement, int expert, int rank) {
    return placement->holder[(long)expert * placement->words + rank / 64] >> (rank & 63) & 1;
}
static inline void mp_placement_add(struct mp_placement *placement, int expert, int rank) {
    placement->holder[(long)expert * placement->words + rank / 64] |= UINT64_C(1) << (rank & 63);
}
static inline void mp_placement_remove(struct mp_placement *placement, int expert, int rank) {
    placement->holder[(long)expert * placement->words + rank / 64] &= ~(UINT64_C(1) << (rank & 63));
}

/* The same owners and holders; of as many ranks and experts. */
bool mp_placement_equal(const struct mp_placement *one, const struct mp_placement *other);

/* Number of holders of an expert, owner included. */
int mp_placement_copies(const struct mp_placement *placement, int expert);
/* First holder >= rank, or -1. */
static inline int mp_placement_next(const struct mp_placement *placement, int expert, int rank) {
    const uint64_t *row = placement->holder + (long)expert * placement->words;
    int word = rank / 64;

    if (rank >= placement->ranks)
        return -1;
    for (uint64_t bits = row[word] & (~UINT64_C(0) << (rank % 64));; bits = row[word]) {
        if (bits)
            return word * 64 + __builtin_ctzll(bits);
        if (++word == placement->words)
            return -1;
    }
}
