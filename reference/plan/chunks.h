/* Chunks of whole experts: where plan.degree otherwise cuts the rows of every pair, each (expert,
 * holder) has one chunk for all of its rows, so that no product gets smaller.
 *
 * What nothing hides are the first chunk's way there and the last one's way back.  So these two
 * have one expert each, those of a rank with least rows from other ranks, and the others are
 * between them in equal parts; but what is fetched late is in the last one, instead.  Experts with
 * most of their rows from other nodes, which take long, are in one chunk of their own, under the
 * products of those before and behind it; where there are no more than two beside it, these are
 * halves.
 *
 * Nothing allocates after create; integers decide, so that all ranks agree. */
#pragma once

#include "reference/base/arena.h"
#include "reference/plan/plan.h"

struct mp_place_rows;
struct mp_rank_places;

struct mp_expert_chunks {
    struct mp_topology topology; /* whose nodes count */
    int layers, places;
    uint8_t *chunk;              /* [layers][places] */
    struct mp_place_rows *rows;  /* [places] working memory */
    struct mp_rank_places *rank; /* [ranks] likewise */
};

/* For plans with at most so many holders of all experts together.  Tables are the arena's, whose
 * user looks whether there was memory (mp_arena_check). */
void mp_expert_chunks_create(struct mp_arena *memory, const struct mp_topology *topology,
                             int layers, int places, struct mp_expert_chunks *chunks);
/* Gives a plan whose dispatch is written plan.degree such chunks: its place_chunk, which stays as
 * it is until the layer's next plan. */
void mp_expert_chunks_cut(struct mp_expert_chunks *chunks, struct mp_plan *plan);
