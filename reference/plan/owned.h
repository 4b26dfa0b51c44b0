/* Owned: each rank's experts, and the routes that they add up to.  For planners that go by the
 * loads of the iteration at hand. */
#pragma once

#include <stdint.h>

#include "reference/base/arena.h"

struct mp_owned {
    int ranks, experts;
    /* [ranks + 1], a rank's experts are expert[begin[rank]] .. expert[begin[rank + 1] - 1]. */
    int32_t *begin;
    int32_t *expert; /* [experts] */
    int64_t *load;   /* [ranks], their routes; for the planner to change */
};

/* Nothing listed.  Tables are the arena's, whose user looks whether there was memory. */
void mp_owned_create(struct mp_arena *memory, int ranks, int experts, struct mp_owned *owned);
/* Lists the experts of every rank in the order of `order` [experts], or ascending (NULL); owner and
 * routes are [experts].  Returns all routes. */
int64_t mp_owned_list(struct mp_owned *owned, const int32_t owner[], const int64_t routes[],
                      const int32_t order[]);
/* Of a rank's experts the one with the most of these routes, of several the first listed; -1: it
 * has none. */
int32_t mp_owned_hottest(const struct mp_owned *owned, int rank, const int64_t routes[]);
