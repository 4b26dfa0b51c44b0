/* Perfect balance as a system. */
#include "baselines/free_balance/free_balance.h"

static int free_balance_create(void *self, const struct mp_setting *setting, const void *options,
                               struct mp_error *error) {
    (void)options, (void)error;
    mp_free_balance_create(mp_system_arena(self), setting->topology.ranks, setting->experts, self);
    return MP_OK;
}

/* A rank may get a piece of everything that it does not own. */
static int free_balance_copies_limit(const void *opaque) {
    const struct mp_free_balance *self = opaque;
    return self->experts - self->experts / self->ranks;
}

static void free_balance_policy(const void *opaque, struct mp_policy *policy) {
    (void)opaque;
    policy->free_transfers = true;
}

static int free_balance_after_gate(void *opaque, const struct mp_load *load, struct mp_plan *plan,
                                   struct mp_error *error) {
    struct mp_free_balance *self = opaque;

    mp_load_expert_totals(load, self->total);
    MP_TRY(mp_free_balance_decide(self, plan->during.owner, error));
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
    .size = sizeof(struct mp_free_balance),
    .create = free_balance_create,
    .copies_limit = free_balance_copies_limit,
    .policy = free_balance_policy,
    .after_gate = free_balance_after_gate,
};
