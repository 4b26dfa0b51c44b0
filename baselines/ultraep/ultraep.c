/* UltraEP as a system: options and the descriptor. */
#include "baselines/ultraep/ultraep.h"

#define FIELD(member) offsetof(struct mp_ultraep_options, member)

static const struct mp_option option_table[] = {
    {"redundant", MP_OPTION_INT, FIELD(redundant), "experts", "2", 0, 65536, NULL,
     "slots of every rank for copies of a layer's experts (no default in the source; 2 in its "
     "examples)"},
    {"threshold", MP_OPTION_DOUBLE, FIELD(threshold), "", "1", 1, 1e9, NULL,
     "largest over mean load of a node's ranks below which no bound is tried"},
    {"tolerance", MP_OPTION_DOUBLE, FIELD(tolerance), "", "0.01", 0, 1e9, NULL,
     "how far above that the first bound is, over it"},
    {"least-quota", MP_OPTION_INT64, FIELD(least_quota), "routes", "1024", 1, 1e15, NULL,
     "fewest routes of a copy where the first bounds fail and one is searched"},
    {"empty-owners", MP_OPTION_BOOL, FIELD(empty_owners), "", "no", 0, 0, NULL,
     "owners may give away all routes of an expert"},
    {"locality", MP_OPTION_BOOL, FIELD(locality), "", "yes", 0, 0, NULL,
     "a rank's own routes go to its own copy first"},
    {0},
};

struct ultraep {
    struct mp_ultraep_options options;
    struct mp_ultraep state;
};

static int ultraep_create(void *opaque, const struct mp_setting *setting, const void *options,
                          struct mp_error *error) {
    struct ultraep *self = opaque;
    (void)error;
    self->options = *(const struct mp_ultraep_options *)options;
    mp_ultraep_create(mp_system_arena(self), setting->topology.ranks, setting->experts,
                      &self->state);
    return MP_OK;
}

static int ultraep_copies_limit(const void *opaque) {
    const struct ultraep *self = opaque;

    int redundant = self->options.redundant, experts = self->state.experts;

    if (self->state.ranks == 1)
        return 0;
    return redundant < experts ? redundant : experts;
}

/* Copies of all layers share their slots. */
static void ultraep_policy(const void *opaque, struct mp_policy *policy) {
    (void)opaque;
    policy->rematerialise = true;
}

static int ultraep_after_gate(void *opaque, const struct mp_load *load, struct mp_plan *plan,
                              struct mp_error *error) {
    struct ultraep *self = opaque;

    mp_load_expert_totals(load, self->state.total);
    MP_TRY(mp_ultraep_decide(&self->state, &self->options, &plan->topology, plan->during.owner,
                             error));
    return mp_plan_dispatch_pieces(plan, load, &self->state.pieces,
                                   self->options.locality ? MP_CUT_LOCAL_FIRST : MP_CUT_IN_ORDER,
                                   error);
}

const struct mp_system mp_system_ultraep = {
    .abi = MP_SYSTEM_ABI,
    .name = "ultraep",
    .title = "UltraEP: quotas for copies of hot experts, on the actual loads",
    .source = "UltraEP, arXiv 2606.04101; Dots-Infra/UltraEP",
    .models =
        "Modelled: once the gate has spoken, in every layer and micro-batch, copies of hot experts "
        "in a few slots of every rank of the node, with a quota of routes each, by the released "
        "search for the smallest bound of a rank's load; exact and dropless. Copies are exposed, "
        "freed after forward and fetched again for backward, and send their gradients home. A "
        "rank's own routes go to its own copy first, the others in order (the source: in "
        "proportion). Uneven numbers of experts, ranks and nodes are our own. Not modelled: tiles "
        "that ranks with little to send relay for others, and the planner's time on a GPU.",
    .capabilities = MP_SYSTEM_REPLICATES | MP_SYSTEM_UNEVEN_EXPERTS | MP_SYSTEM_MORE_RANKS,
    .options = option_table,
    .options_size = sizeof(struct mp_ultraep_options),
    .size = sizeof(struct ultraep),
    .create = ultraep_create,
    .copies_limit = ultraep_copies_limit,
    .policy = ultraep_policy,
    .after_gate = ultraep_after_gate,
};
