/* Load: how many routes each source rank sends to each expert, one layer of one iteration.
 *
 * A token routed top-k makes k routes (systems.md 0.3: load matrix).  Everything that a system
 * decides after the gate is a function of this matrix. */
#ifndef MOEPERF_REFERENCE_PLAN_LOAD_H
#define MOEPERF_REFERENCE_PLAN_LOAD_H

#include <stdint.h>

#include "reference/base/error.h"

struct mp_load {
    int ranks;       /* R, rows */
    int experts;     /* E, columns */
    uint32_t *count; /* [ranks][experts], row-major, owned */
    /* Of loads that have been carried out by an exchange that deduplicates, its counts of distinct
     * tokens, [ranks][distinct_counts] (exchange.h); NULL: not known.  Owned. */
    uint32_t *distinct;
    int distinct_counts;
};

/* All zero.  Errors: MP_EINVAL (ranks or experts < 1), MP_ENOMEM. */
int mp_load_create(int ranks, int experts, struct mp_load *load, struct mp_error *error);
void mp_load_destroy(struct mp_load *load); /* accepts NULL and a zeroed load */

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
 * by lower id: the order that all planners share (systems.md 0.6).  Allocates nothing. */
void mp_load_hottest(const int64_t total[], int experts, int wanted, int32_t order[]);

/* lack[r] = what rank r has too few of (or too many: negative), of `routes` in all, for shares that
 * are as even as can be: the fullest ranks, ties to the lower one, have one more where they don't
 * divide.  load is [ranks], routes; order is [ranks], working memory.  Allocates nothing. */
void mp_load_lacks(const int64_t load[], int ranks, int64_t routes, int32_t order[],
                   int64_t lack[]);

/* Copies the counts; both must have the same shape. */
void mp_load_copy(struct mp_load *to, const struct mp_load *from);

#endif
