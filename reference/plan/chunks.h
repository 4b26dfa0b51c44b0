/* Chunks of whole experts: where plan.degree otherwise cuts the rows of every pair, each (expert,
 * holder) has one chunk for all of its rows, so that no product gets smaller.
 *
 * A rank's experts are computed in the order in which they are there: what it holds anyway before
 * copies, late ones last.  Experts with most of their rows from other nodes, which take long, are
 * in one chunk of their own, under the products of those before and behind it.  What nothing hides
 * are the first chunk's way there and the last one's way back: these two are half as large as
 * others.
 *
 * Nothing allocates after create; integers decide, so that all ranks agree. */
#ifndef MOEPERF_REFERENCE_PLAN_CHUNKS_H
#define MOEPERF_REFERENCE_PLAN_CHUNKS_H

#include "reference/base/arena.h"
#include "reference/plan/plan.h"

struct mp_place_rows;

struct mp_expert_chunks {
    struct mp_topology topology; /* whose nodes count */
    int layers, places;
    uint8_t *chunk;             /* [layers][places] */
    struct mp_place_rows *rows; /* [places] working memory */
    int64_t *all, *before;      /* [ranks] likewise: rows of a rank */
};

/* For plans with at most so many holders of all experts together.  Tables are the arena's, whose
 * user looks whether there was memory (mp_arena_check). */
void mp_expert_chunks_create(struct mp_arena *memory, const struct mp_topology *topology,
                             int layers, int places, struct mp_expert_chunks *chunks);
/* Gives a plan whose dispatch is written plan.degree such chunks: its place_chunk, which stays as
 * it is until the layer's next plan. */
void mp_expert_chunks_cut(struct mp_expert_chunks *chunks, struct mp_plan *plan);

#endif
