/* MoonEP as a system: options and the descriptor. */
#include "baselines/moonep/moonep.h"

static const struct mp_option option_table[] = {
    {"tolerance", MP_OPTION_DOUBLE, offsetof(struct mp_moonep_options, tolerance), "", "0", 0, 1e9,
     NULL,
     "how far above an even share a rank may stay, over that share: 0 has every rank compute as "
     "much as every other; more copies fewer experts (not in the source)"},
    {0},
};

struct moonep {
    struct mp_moonep_options options;
    struct mp_moonep state;
};

static int moonep_create(void *opaque, const struct mp_setting *setting, const void *options,
                         struct mp_error *error) {
    struct moonep *self = opaque;
    (void)error;
    self->options = *(const struct mp_moonep_options *)options;
    mp_moonep_create(mp_system_arena(self), setting->topology.ranks, setting->experts,
                     &self->state);
    return MP_OK;
}

/* The experts of one other group, the largest. */
static int moonep_copies_limit(const void *opaque) {
    const struct mp_moonep *state = &((const struct moonep *)opaque)->state;

    return state->ranks > 1 ? (state->experts + state->ranks - 1) / state->ranks : 0;
}

static int moonep_after_gate(void *opaque, const struct mp_load *load, struct mp_plan *plan,
                             struct mp_error *error) {
    struct moonep *self = opaque;

    mp_load_expert_totals(load, self->state.total);
    MP_TRY(mp_moonep_decide(&self->state, &self->options, plan->during.owner, error));
    return mp_plan_dispatch_pieces(plan, load, &self->state.pieces, MP_CUT_IN_ORDER, error);
}

const struct mp_system mp_system_moonep = {
    .abi = MP_SYSTEM_ABI,
    .name = "moonep",
    .title = "MoonEP: exact balance on the actual loads, with few copies",
    .source = "MoonshotAI/MoonEP; Kimi K3 report, section 5.2.1 and appendix E",
    .models =
        "Modelled: once the gate has spoken, in every layer and micro-batch, routes are given from "
        "ranks with more than an even share to ranks with less, so that every rank computes "
        "exactly as many as every other; each takes copies of at most another rank's experts, "
        "which travel after the gate and send their gradients home; what a rank computes of an "
        "expert is cut by number, not by locality; exact and dropless. Copies stay until backward, "
        "which plans and fetches nothing. Copies are exposed: the source hides them under shared "
        "experts or another micro-batch, which the model has not. The source runs within one "
        "NVLink domain, with experts a multiple of ranks; other numbers, nodes and a tolerance are "
        "our own. Not modelled: that a token travels once to a rank that computes several of its "
        "routes, and fewer slots than experts of a rank, whose weights are then read over the link "
        "(for inference).",
    .capabilities = MP_SYSTEM_REPLICATES | MP_SYSTEM_UNEVEN_EXPERTS | MP_SYSTEM_MORE_RANKS,
    .options = option_table,
    .options_size = sizeof(struct mp_moonep_options),
    .size = sizeof(struct moonep),
    .create = moonep_create,
    .copies_limit = moonep_copies_limit,
    .after_gate = moonep_after_gate,
};
