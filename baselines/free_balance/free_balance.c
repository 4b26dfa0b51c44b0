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
#include "reference/plan/owned.h"
#include "reference/plan/pieces.h"
#include "reference/plan/system.h"

/* What a decision for one layer is made with, and what it comes to. */
struct free_balance {
    int ranks, experts;
    struct mp_pieces pieces; /* who computes how many routes of which expert */
    int64_t *total;          /* [experts], their routes, less those given up */
    int64_t *lack;           /* [ranks], share less load; below 0: surplus */
    int32_t *order;          /* [ranks], working memory as below */
    struct mp_owned owned;
};

static int free_balance_create(void *opaque, const struct mp_setting *setting, const void *options,
                               struct mp_error *error) {
    struct mp_arena *memory = mp_system_arena(opaque);
    const int ranks = setting->topology.ranks, experts = setting->experts;
    struct free_balance *self = opaque;
    (void)options, (void)error;
    self->ranks = ranks;
    self->experts = experts;
    mp_owned_create(memory, ranks, experts, &self->owned);
    /* Every piece is an owner's, or uses up an expert or the surplus or lack of a rank. */
    mp_pieces_create(memory, experts, 2 * experts + ranks, &self->pieces);
    MP_TAKE(memory, self->total, experts);
    MP_TAKE_EACH(memory, ranks, self->lack, self->order);
    return MP_OK;
}

/* Gives up a rank's surplus to the ranks that lack routes, from *helper on. */
static int give_up(struct free_balance *self, int rank, int *helper, struct mp_error *error) {
    int64_t surplus = -self->lack[rank];

    while (surplus > 0) {
        int32_t expert = mp_owned_hottest(&self->owned, rank, self->total);
        while (self->lack[*helper] <= 0)
            ++*helper;
        int64_t piece = self->total[expert] < surplus ? self->total[expert] : surplus;
        if (piece > self->lack[*helper])
            piece = self->lack[*helper];
        surplus -= piece;
        self->total[expert] -= piece;
        self->lack[*helper] -= piece;
        MP_TRY(mp_pieces_add(&self->pieces, expert, *helper, piece, error));
    }
    return MP_OK;
}

/* On self->total, of all sources.  Takes O(experts + ranks log ranks) and for every copy the number
 * of experts of its owner. */
static int decide(struct free_balance *self, const int32_t owner[], struct mp_error *error) {
    int helper = 0;

    int64_t routes = mp_owned_list(&self->owned, owner, self->total, NULL);
    mp_load_lacks(self->owned.load, self->ranks, routes, self->order, self->lack);
    mp_pieces_clear(&self->pieces);
    for (int rank = 0; rank < self->ranks; rank++)
        MP_TRY(give_up(self, rank, &helper, error));
    for (int expert = 0; expert < self->experts; expert++)
        MP_TRY(mp_pieces_add(&self->pieces, expert, owner[expert], self->total[expert], error));
    return MP_OK;
}

/* A rank may get a piece of everything that it does not own. */
static int free_balance_copies_limit(const void *opaque) {
    const struct free_balance *self = opaque;
    return self->experts - self->experts / self->ranks;
}

static void free_balance_policy(const void *opaque, struct mp_policy *policy) {
    (void)opaque;
    policy->free_transfers = true;
}

static int free_balance_after_gate(void *opaque, const struct mp_load *load, struct mp_plan *plan,
                                   struct mp_error *error) {
    struct free_balance *self = opaque;

    mp_load_expert_totals(load, self->total);
    MP_TRY(decide(self, plan->during.owner, error));
    return mp_plan_dispatch_pieces(plan, load, &self->pieces, MP_CUT_LOCAL_FIRST, error);
}

const struct mp_system mp_system_free_balance = {
    .abi = MP_SYSTEM_ABI,
    .name = "free-balance",
    .title = "Perfect balance, planned and copied in no time (unattainable)",
    .source = "none; what balance alone would be worth",
    .models =
        "What no system attains, for comparison only, and no bound: a system under which less has "
        "to travel can be faster. Every rank computes as many routes as every other, give or take "
        "one; for that experts are copied after the gate, and planning, copying and summing the "
        "copies' gradients take no time: clocks stand still meanwhile. Modelled like everybody's: "
        "the exchange of tokens and their computing, and what an expert costs beside its routes. "
        "Not modelled: anything that would make it attainable, and no attempt at the least "
        "exchange of tokens beyond computing a rank's own first.",
    .capabilities = MP_SYSTEM_REPLICATES | MP_SYSTEM_UNATTAINABLE | MP_SYSTEM_UNEVEN_EXPERTS |
                    MP_SYSTEM_MORE_RANKS,
    .size = sizeof(struct free_balance),
    .create = free_balance_create,
    .copies_limit = free_balance_copies_limit,
    .policy = free_balance_policy,
    .after_gate = free_balance_after_gate,
};
