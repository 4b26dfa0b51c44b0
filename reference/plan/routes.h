/* Routes: the experts that every token chose (struct mp_routes), and what follows from them: loads
 * and transitions between layers.  How many tokens have experts in a group of ranks follows with a
 * plan (distinct.h).
 *
 * Loads that a plan is made of have no routes in the trainer, where no rank knows those of the
 * others: planners look at counts and transitions alone. */
#pragma once

#include <stdbool.h>

#include "reference/plan/load.h"

/* Gives the load routes, with room for tokens[rank] tokens of every rank; their experts are -1.
 * Those that it had are gone, even on an error.  MP_EINVAL (top_k outside 1 .. the load's experts,
 * a negative number, more than 2^31 - 1 choices in all), MP_ENOMEM. */
int mp_load_give_routes(struct mp_load *load, int top_k, const int32_t tokens[],
                        struct mp_error *error);
void mp_load_drop_routes(struct mp_load *load);
/* `to` has the same as `from`, or none as well.  MP_ENOMEM. */
int mp_load_copy_routes(struct mp_load *to, const struct mp_load *from, struct mp_error *error);

/* load.first as its routes have it; without routes, not known.  MP_ENOMEM. */
int mp_load_count_first(struct mp_load *load, struct mp_error *error);

/* Adds to count [experts] the routes of one rank's tokens. */
void mp_routes_count(const struct mp_routes *routes, int rank, uint32_t count[]);
/* Whether the load's counts are those of its routes, and no token has an expert twice or one that
 * there is not.  MP_EFORMAT says where they differ. */
int mp_load_check_routes(const struct mp_load *load, struct mp_error *error);

/* Adds to next [experts][experts] the transitions of `tokens` tokens: each pair of a choice of
 * `expert` and one of `following` ([tokens][top_k]) that are taken. */
void mp_routes_transitions(int64_t tokens, int top_k, int experts, const int32_t expert[],
                           const int32_t following[], uint32_t next[]);
/* The same of all tokens of a layer and the following one.  Where one of them has no routes, or
 * they are of other tokens, the layers are taken for independent: count[i] * count[j] / tokens,
 * rounded to the nearest, with the counts of all ranks, which have `tokens` tokens.  Whether they
 * were counted.  total is [2][experts], working memory. */
bool mp_load_transitions(const struct mp_load *load, const struct mp_load *following,
                         int64_t tokens, int64_t total[], uint32_t next[]);
