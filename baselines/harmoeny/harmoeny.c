/* HarMoEny as a system: options and the descriptor. */
#include "baselines/harmoeny/harmoeny.h"

static const struct mp_option option_table[] = {
    {"least", MP_OPTION_INT64, offsetof(struct mp_harmoeny_options, least), "routes", "150", 1,
     1e15, NULL,
     "fewest routes of an expert, and least room of a rank below the mean, for which they move "
     "(q)"},
    {0},
};

struct harmoeny {
    struct mp_harmoeny_options options;
    struct mp_harmoeny state;
};

static int harmoeny_create(void *opaque, const struct mp_setting *setting, const void *options,
                           struct mp_error *error) {
    int ranks = setting->topology.ranks, experts = setting->experts;
    struct harmoeny *self = opaque;
    if (experts > INT32_MAX / (ranks + 3))
        return mp_fail(error, MP_EINVAL, "no redistribution of %d experts on %d ranks", experts,
                       ranks);
    self->options = *(const struct mp_harmoeny_options *)options;
    mp_harmoeny_create(mp_system_arena(self), ranks, experts, &self->state);
    return MP_OK;
}

/* All experts but a rank's own: nothing limits them in the source, which has them all in host
 * memory.
 */
static int harmoeny_copies_limit(const void *opaque) {
    const struct harmoeny *self = opaque;

    return self->state.experts - self->state.experts / self->state.ranks;
}

static int copy_experts(const struct mp_harmoeny *state, struct mp_plan *plan,
                        struct mp_error *error) {
    for (int expert = 0; expert < state->experts; expert++)
        for (int source = 0; source < state->ranks; source++)
            for (int32_t at = state->first[(long)source * state->experts + expert]; at >= 0;
                 at = state->move[at].next) {
                int rank = state->move[at].rank;
                if (!mp_placement_holds(&plan->during, expert, rank))
                    MP_TRY(mp_plan_add_copy(plan, expert, rank, MP_STAGE_AFTER_GATE, error));
            }
    return MP_OK;
}

/* What the owner computes of a pair, then what others do. */
static int dispatch(const struct mp_harmoeny *state, struct mp_plan *plan, struct mp_error *error) {
    MP_TRY(mp_plan_dispatch_begin(plan, error));
    for (int source = 0; source < state->ranks; source++)
        for (int expert = 0; expert < state->experts; expert++) {
            long cell = (long)source * state->experts + expert;
            MP_TRY(
                mp_plan_dispatch_part(plan, plan->during.owner[expert], state->kept[cell], error));
            for (int32_t at = state->first[cell]; at >= 0; at = state->move[at].next)
                MP_TRY(mp_plan_dispatch_part(plan, state->move[at].rank,
                                             (uint32_t)state->move[at].routes, error));
            mp_plan_dispatch_end_pair(plan);
        }
    return MP_OK;
}

static int harmoeny_after_gate(void *opaque, const struct mp_load *load, struct mp_plan *plan,
                               struct mp_error *error) {
    struct harmoeny *self = opaque;

    mp_harmoeny_decide(&self->state, &self->options, plan->during.owner, load);
    MP_TRY(copy_experts(&self->state, plan, error));
    return dispatch(&self->state, plan, error);
}

const struct mp_system mp_system_harmoeny = {
    .abi = MP_SYSTEM_ABI,
    .name = "harmoeny",
    .title = "HarMoEny: hot experts' routes go to the least loaded ranks",
    .source = "HarMoEny, arXiv 2506.12417; sacs-epfl/HarMoEny",
    .models =
        "Modelled: once the gate has spoken, in every layer and batch, routes to the hottest "
        "expert of the most loaded rank go to the least loaded one, from the largest source on, as "
        "released (schedule_harmony); exact and dropless. The source serves inference and loads "
        "experts from every rank's host memory while it computes others; here they come from "
        "their owners, and experts wait for them, and in training copies send their gradients "
        "home. Uneven numbers of experts are our own. Not modelled: the cache of experts on the "
        "GPU, and loading in the background.",
    .capabilities = MP_SYSTEM_REPLICATES | MP_SYSTEM_UNEVEN_EXPERTS | MP_SYSTEM_MORE_RANKS,
    .options = option_table,
    .options_size = sizeof(struct mp_harmoeny_options),
    .size = sizeof(struct harmoeny),
    .create = harmoeny_create,
    .copies_limit = harmoeny_copies_limit,
    .after_gate = harmoeny_after_gate,
};
