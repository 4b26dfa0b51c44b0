/* LLEP as a system: options and the descriptor. */
#include "baselines/llep/llep.h"

#include <math.h>
#define FIELD(member) offsetof(struct mp_llep_options, member)

static const struct mp_option option_table[] = {
    {"trigger", MP_OPTION_CHOICE, FIELD(trigger), "", "per-expert", 0, 0, "per-expert per-rank",
     "whose largest load over the mean is compared with the threshold: that of experts (the paper) "
     "or of the ranks that own them (a port)"},
    {"threshold", MP_OPTION_DOUBLE, FIELD(threshold), "", "1.3", 0, 1e9, NULL,
     "largest over mean load (lambda) below which nothing is spilled"},
    {"alpha", MP_OPTION_DOUBLE, FIELD(alpha), "", "1", 0, 1e6, NULL,
     "most routes of a rank over the mean of ranks, as far as spilling can do it (a port: 1.1)"},
    {"smallest-gemm", MP_OPTION_INT64, FIELD(smallest_gemm), "routes", "1024", 1, 1e15, NULL,
     "fewest routes of an expert that are spilled to one rank"},
    {"copies", MP_OPTION_COUNT, FIELD(copies), "experts", "all", 0, 65536, NULL,
     "most foreign experts of a layer that a rank takes (not in the paper)"},
    {0},
};

struct llep {
    struct mp_llep_options options;
    struct mp_llep state;
    int copies; /* foreign experts of a layer on a rank at most */
};

/* A rank takes experts that it does not own, each with at least the smallest GEMM's routes, up to
 * the cap. */
static int foreign_limit(const struct mp_setting *setting, const struct mp_llep_options *options) {
    double cap = ceil(options->alpha * (double)setting->tokens_per_rank * setting->top_k);
    double pieces = floor(cap / (double)options->smallest_gemm);
    int limit = setting->experts - setting->experts / setting->topology.ranks;

    if (limit > options->copies)
        limit = options->copies;
    return pieces < limit ? (int)pieces : limit;
}

static int llep_create(void *opaque, const struct mp_setting *setting, const void *options,
                       struct mp_error *error) {
    struct llep *self = opaque;
    (void)error;
    self->options = *(const struct mp_llep_options *)options;
    self->copies = foreign_limit(setting, &self->options);
    mp_llep_create(mp_system_arena(self), setting->topology.ranks, setting->experts, &self->state);
    return MP_OK;
}

static int llep_copies_limit(const void *opaque) {
    const struct llep *self = opaque;
    return self->copies;
}

static int llep_after_gate(void *opaque, const struct mp_load *load, struct mp_plan *plan,
                           struct mp_error *error) {
    struct llep *self = opaque;

    mp_load_expert_totals(load, self->state.total);
    MP_TRY(mp_llep_decide(&self->state, &self->options, plan->during.owner, self->copies, error));
    if (!self->state.active)
        return mp_plan_dispatch_to_owner(plan, load, error);
    return mp_plan_dispatch_pieces(plan, load, &self->state.pieces, MP_CUT_IN_ORDER, error);
}

const struct mp_system mp_system_llep = {
    .abi = MP_SYSTEM_ABI,
    .name = "llep",
    .title = "LLEP: least-loaded spilling of experts that are too hot",
    .source = "LLEP, arXiv 2601.17111; SalesforceAIResearch/LeastLoadedEP",
    .models =
        "Modelled: plain expert parallelism while loads are even; otherwise routes beyond a rank's "
        "cap go to the least loaded ranks, decided on the actual loads after the gate, with "
        "parameters copied there and gradients sent home, pieces no smaller than the smallest "
        "GEMM; exact and dropless. Copies are exposed: experts wait for them. Gaps in what is "
        "known of the source are filled as baselines/llep/llep.h says. Experts need not divide "
        "ranks, and foreign experts per rank can be limited; both are our own. Not modelled: that "
        "the released planner is Python on the host.",
    .capabilities = MP_SYSTEM_REPLICATES | MP_SYSTEM_UNEVEN_EXPERTS | MP_SYSTEM_MORE_RANKS,
    .options = option_table,
    .options_size = sizeof(struct mp_llep_options),
    .size = sizeof(struct llep),
    .create = llep_create,
    .copies_limit = llep_copies_limit,
    .after_gate = llep_after_gate,
};
