/* The ideal bound as a system. */
#include "baselines/ideal/ideal.h"

#include <stdlib.h>

struct ideal {
    int layers, experts, ranks;
    struct mp_ideal state;
};

static void ideal_destroy(void *opaque) {
    struct ideal *self = opaque;
    if (!self)
        return;
    mp_ideal_destroy(&self->state);
    free(self);
}

static int ideal_create(const struct mp_setting *setting, const void *options, void **created,
                        struct mp_error *error) {
    int ranks = setting->topology.ranks;

    (void)options;
    *created = NULL;
    if (setting->layers < 1 || setting->experts < 1 || ranks < 1)
        return mp_fail(error, MP_EINVAL,
                       "ideal needs layers, experts and ranks of at least 1, not %d, %d and %d",
                       setting->layers, setting->experts, ranks);
    struct ideal *self = calloc(1, sizeof *self);
    if (!self)
        return mp_fail(error, MP_ENOMEM, "no memory for the system ideal");
    self->layers = setting->layers;
    self->experts = setting->experts;
    self->ranks = ranks;
    int code = mp_ideal_create(ranks, setting->experts, &self->state, error);
    if (code)
        ideal_destroy(self);
    else
        *created = self;
    return code;
}

static void ideal_initial_owners(const void *opaque, int32_t owner[]) {
    const struct ideal *self = opaque;

    mp_contiguous_owners(self->layers, self->experts, self->ranks, owner);
}

/* A rank may get a piece of everything that it does not own. */
static int ideal_copies_limit(const void *opaque) {
    const struct ideal *self = opaque;
    return self->experts - self->experts / self->ranks;
}

static int ideal_before_gate(void *opaque, struct mp_plan *plan, struct mp_error *error) {
    (void)opaque;
    (void)error;
    plan->free_transfers = true;
    return MP_OK;
}

static int ideal_after_gate(void *opaque, const struct mp_load *load, struct mp_plan *plan,
                            struct mp_error *error) {
    struct ideal *self = opaque;

    mp_load_expert_totals(load, self->state.total);
    int code = mp_ideal_decide(&self->state, plan->during.owner, error);
    if (!code)
        code = mp_plan_copy_pieces(plan, &self->state.pieces, error);
    if (!code)
        code = mp_plan_dispatch_pieces(plan, load, &self->state.pieces, MP_CUT_LOCAL_FIRST, error);
    return code;
}

const struct mp_system mp_system_ideal = {
    .abi = MP_SYSTEM_ABI,
    .name = "ideal",
    .title = "Ideal (unattainable): perfect balance, planned and copied in no time",
    .source = "none; an upper bound for all systems that place experts",
    .models =
        "An upper bound that no system attains, for comparison only. Every rank computes as many "
        "routes as every other, give or take one; for that experts are copied after the gate, and "
        "planning, copying and summing the copies' gradients take no time: clocks stand still "
        "meanwhile. Modelled like everybody's: the exchange of tokens and their computing, and "
        "what an expert costs beside its routes. Not modelled: anything that would make it "
        "attainable, and no attempt at the least exchange of tokens beyond computing a rank's own "
        "first.",
    .capabilities = MP_SYSTEM_REPLICATES | MP_SYSTEM_UNATTAINABLE | MP_SYSTEM_UNEVEN_EXPERTS |
                    MP_SYSTEM_MORE_RANKS | MP_SYSTEM_PLANS_BEFORE_GATE,
    .create = ideal_create,
    .destroy = ideal_destroy,
    .initial_owners = ideal_initial_owners,
    .copies_limit = ideal_copies_limit,
    .before_gate = ideal_before_gate,
    .after_gate = ideal_after_gate,
};
