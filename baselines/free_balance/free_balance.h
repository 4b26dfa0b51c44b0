/* Free balance: what perfect balance would be worth.  No system attains it.
 *
 * Every rank computes as many routes as every other, give or take one.  To get there experts are
 * copied with the actual loads known, and all of that is for nothing: planning, copying parameters
 * and summing the copies' gradients take no time, as clocks stand still meanwhile
 * (plan.free_transfers).  Tokens travel and are computed like everybody's.
 *
 * It is no bound for what systems can do: where routes between nodes are what takes time, one that
 * keeps them at home can be faster.  Which routes go where is only kept sensible:
 *   shares  total / ranks routes each; the remainder goes one by one to the ranks whose own experts
 *           have the most routes, ties to the lower id
 *   copies  a rank over its share gives up its hottest experts' routes, those of the one with most
 *           left first, to the ranks under theirs in ascending order.  Every copy uses up an
 *           expert, the surplus of a rank or the lack of one, so that there are at most ranks - 1
 *           copies and one more for every expert that its owner gives up to the last route
 *   routes  a rank that computes a part of an expert first computes its own tokens' routes
 */
#ifndef MOEPERF_BASELINES_FREE_BALANCE_FREE_BALANCE_H
#define MOEPERF_BASELINES_FREE_BALANCE_FREE_BALANCE_H

#include "reference/plan/owned.h"
#include "reference/plan/pieces.h"
#include "reference/plan/system.h"

extern const struct mp_system mp_system_free_balance;

/* A decision for one layer, and what it is made with.  Nothing allocates after create. */
struct mp_free_balance {
    int ranks, experts;
    struct mp_pieces pieces; /* who computes how many routes of which expert */
    int64_t *total;          /* [experts], their routes, less those given up */
    int64_t *lack;           /* [ranks], share less load; below 0: surplus */
    int32_t *order;          /* [ranks], working memory as below */
    struct mp_owned owned;
};
/* Tables are the arena's, whose user looks whether there was memory. */
void mp_free_balance_create(struct mp_arena *memory, int ranks, int experts,
                            struct mp_free_balance *state);

/* Decides on state->total, the routes of every expert over all sources, which the caller has filled
 * in; owner is [experts].  Takes O(experts + ranks log ranks) and for every copy the number of
 * experts of its owner. */
int mp_free_balance_decide(struct mp_free_balance *state, const int32_t owner[],
                           struct mp_error *error);

#endif
