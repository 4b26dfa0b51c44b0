/* Load: how many routes each source rank sends to each expert, one layer of one iteration.
 *
 * A token routed top-k makes k routes.  Everything that a system
 * decides after the gate is a function of this matrix. */
#pragma once

#include <stdint.h>

#include "reference/base/arena.h"

/* The experts that every token chose, one layer of one iteration. */
struct mp_routes {
    int top_k;      /* K */
    int32_t *begin; /* [ranks + 1] a rank's tokens are begin[rank] .. begin[rank + 1] - 1; owned */
    /* [begin[ranks]][top_k]; a choice that is not taken is -1 - its expert (device.h).  The same
     * token has the same place in all layers.  Owned. */
    int32_t *expert;
};

struct mp_load {
    int ranks;       /* R, rows */
    int experts;     /* E, columns */
    uint32_t *count; /* [ranks][experts], row-major, owned */
    uint32_t *first; /* likewise: of these routes, first choices.  NULL: not known.  Owned */
    /* Of loads that have been carried out by an exchange that deduplicates, its counts of distinct
     * tokens, [ranks][distinct_counts], of every chunk (exchange.h); NULL: not known.  Owned. */
    uint32_t *distinct;
    int distinct_counts;
    /* Transitions, [experts][experts]: next[i * experts + j] routes go on from expert i of this
     * layer to expert j of the next, counted for each pair of taken choices of a token, over all
     * ranks.  Not of a last layer.  Given to after_step of systems that ask for them
     * (MP_SYSTEM_USES_TRANSITIONS), else NULL.  Owned. */
    uint32_t *next;
    /* Where whoever recorded the loads has them (routes.h); else NULL.  Planners don't look at
     * them, as they are not known where plans are made.  Owned. */
    struct mp_routes *routes;
};

/* All zero.  Errors: MP_EINVAL (ranks or experts < 1), MP_ENOMEM. */
int mp_load_create(int ranks, int experts, struct mp_load *load, struct mp_error *error);
void mp_load_destroy(struct mp_load *load); /* accepts NULL and a zeroed load */
/* So many of them, all zero, which are the arena's and not to be destroyed.  NULL, and
 * arena->lacking, where there is no room. */
struct mp_load *mp_loads_take(struct mp_arena *arena, int64_t count, int ranks, int experts);
/* First choices are known from now on: none so far.  MP_ENOMEM. */
int mp_load_give_first(struct mp_load *load, struct mp_error *error);

static inline uint32_t mp_load_at(const struct mp_load *load, int source, int expert) {
    return load->count[(long)source * load->experts + expert];
}

/* total[e] = column sum, the routes of expert e over all sources. */
void mp_load_expert_totals(const struct mp_load *load, int64_t total[]);
/* All routes. */
int64_t mp_load_total(const struct mp_load *load);
/* The most routes of one source to one expert. */
int64_t mp_load_largest(const struct mp_load *load);

/* order[0 .. wanted - 1] = the `wanted` (<= experts) experts of largest total, hottest first, ties
 * by lower id: the order that all planners share.  Allocates nothing. */
void mp_load_hottest(const int64_t total[], int experts, int wanted, int32_t order[]);

/* lack[r] = what rank r has too few of (or too many: negative), of `routes` in all, for shares that
 * are as even as can be: the fullest ranks, ties to the lower one, have one more where they don't
 * divide.  load is [ranks], routes; order is [ranks], working memory.  Allocates nothing. */
void mp_load_lacks(const int64_t load[], int ranks, int64_t routes, int32_t order[],
                   int64_t lack[]);

/* Of a load of shards (mp_setting.shards) whose rows have the first of `experts` experts' shards:
 * the other shards get the same routes, and first ones where they are known. */
void mp_load_repeat(struct mp_load *load, int experts);

/* Copies the counts; both must have the same shape. */
void mp_load_copy(struct mp_load *to, const struct mp_load *from);
