/* HetuMoE: expert parallelism with a fixed capacity and an exchange through nodes' leaders (arXiv
 * 2203.14685; PKU-DAIR/Hetu, v1).
 *
 * Placement never changes: groups of `expert-parallel` ranks (reference/plan/groups.h).  Of each
 * (source, expert) at most k ceil(T/E * f) routes are kept, all first choices before all second
 * ones, and every pair takes that many rows in the exchange and in computing, used or not (its
 * layout transform).  Weights are the gate's, dropped routes or not.  Rows go through the first
 * rank of every node (reference/schedule/exchange/leader.c) where there are several nodes of
 * several ranks; elsewhere, and with `exchange: flat`, as the job says.
 *
 * `slots: as-released` (layers/TopGate.py, SAMGate.py, gpu_ops/LayoutTransform.py and
 * ReverseLayoutTransform.py, src/ops/LayoutTransform.cu; with a stream, as its executor has one).
 * The base of second choices counts the expert's second choices, where its first ones were meant.
 * So of a firsts and b seconds these have slots b .. 2 b - 1, and those 0 .. a - 1 (V-GATE-5:
 * firsts 0 0 1 and seconds 1 1 0 of three tokens have slots 0 1 0 and 2 3 1; slot 1 of expert 0 is
 * that of tokens 1 and 2, slot 1 of expert 1 is empty; 1 2 2 was meant for the seconds).  A slot at
 * or beyond the capacity is dropped, though one below may be empty.  Seconds are written last and
 * stay.  Both tokens of a row get what the expert made of it, each with its own weight; a weight's
 * gradient is that row's product with the gradient of its token's output; the row's gradient is the
 * sum of theirs, and both tokens get what the expert makes of it, the overwritten one too, which
 * had no part in it.  Rows without a token are zeros here and begin with gradients of zero; the
 * released kernels leave in both what their memory held.
 *
 * Plans say so by `overlaid` (plan.h).  Times and bytes don't differ, since padded rows travel
 * whatever is in them.  Of loads without first choices, as predictions have them, what is dropped
 * is what exceeds the capacity, as with `intended`.  It is the same as `intended` with one choice,
 * and with ktop1, whose slots restart with each choice's experts; the released layer takes no third
 * one.
 *
 * The gates are gates of their own (reference/gate): switch, gshard, ktop1, sam, hash, base
 * (`weights: one` as released), dts. */
#include "reference/plan/capacity.h"
#include "reference/plan/groups.h"

enum leading { LEADER, FLAT };
enum slots { INTENDED, AS_RELEASED };

struct hetumoe_options {
    int expert_parallel; /* ranks of a group; MP_AUTO: min(R, E); MP_ALL: R */
    double capacity_factor;
    int exchange; /* enum leading */
    int slots;    /* enum slots */
};

#define FIELD(member) offsetof(struct hetumoe_options, member)

static const struct mp_option option_table[] = {
    MP_EXPERT_PARALLEL_OPTION(FIELD(expert_parallel)),
    {"capacity-factor", MP_OPTION_DOUBLE, FIELD(capacity_factor), "", "1.0", 0, 1024, NULL,
     "an expert's capacity for the routes of a rank, over its even share of them"},
    {"exchange", MP_OPTION_CHOICE, FIELD(exchange), "", "leader", 0, 0, "leader flat",
     "leader: through the first rank of every node, where there are several; flat: as the job "
     "says"},
    {"slots", MP_OPTION_CHOICE, FIELD(slots), "", "intended", 0, 0, "intended as-released",
     "of second choices: intended: behind the expert's first ones; as-released: from the number of "
     "second ones on, so that they overwrite first ones or leave slots empty"},
    {0},
};

struct hetumoe {
    struct mp_expert_groups groups; /* first, as its hooks want it */
    int64_t capacity;
    bool leads;    /* rows go through leaders */
    bool overlaid; /* second choices' slots as released, where that makes a difference */
};

static int64_t capacity_of(const struct mp_setting *setting,
                           const struct hetumoe_options *options) {
    const struct mp_capacity_sizes sizes = mp_capacity_sizes_of(setting, options->capacity_factor);
    return mp_capacity(MP_CAPACITY_HETUMOE, &sizes);
}

static int check_slots(const struct mp_setting *setting, const struct hetumoe_options *options,
                       struct mp_error *error) {
    if (options->slots == INTENDED || mp_setting_choices(setting) <= 2)
        return MP_OK;
    return mp_fail(error, MP_EINVAL,
                   "hetumoe's slots as-released are those of a layer that takes one or two choices "
                   "of a token, not top-%d; slots: intended takes any",
                   mp_setting_choices(setting));
}

static int hetumoe_create(void *opaque, const struct mp_setting *setting, const void *parsed,
                          struct mp_error *error) {
    const struct hetumoe_options *options = parsed;
    struct hetumoe *self = opaque;
    MP_TRY(mp_expert_groups_create("hetumoe", setting, options->expert_parallel, &self->groups,
                                   error));
    self->capacity = capacity_of(setting, options);
    MP_TRY(mp_capacity_check("hetumoe", setting, options->capacity_factor, self->capacity, error));
    MP_TRY(check_slots(setting, options, error));
    self->leads = options->exchange == LEADER && mp_topology_nodes(&setting->topology) > 1 &&
                  setting->topology.ranks_per_node > 1;
    self->overlaid = options->slots == AS_RELEASED && mp_setting_choices(setting) == 2 &&
                     !setting->choices_apart;
    return MP_OK;
}

static int64_t hetumoe_padding_limit(const struct mp_setting *setting, const void *options) {
    return capacity_of(setting, options);
}

static void hetumoe_policy(const void *opaque, struct mp_policy *policy) {
    const struct hetumoe *self = opaque;
    mp_expert_groups_policy(&self->groups, policy);
    policy->route_order = MP_ROUTES_BY_CHOICE;
    policy->overlaid = self->overlaid;
}

static int hetumoe_before_gate(void *opaque, struct mp_plan *plan, struct mp_error *error) {
    const struct hetumoe *self = opaque;
    (void)error;
    if (self->leads)
        plan->exchange = MP_EXCHANGE_LEADER;
    return MP_OK;
}

static int hetumoe_after_gate(void *opaque, const struct mp_load *load, struct mp_plan *plan,
                              struct mp_error *error) {
    const struct hetumoe *self = opaque;
    plan->source_capacity = plan->padding = self->capacity;
    return mp_expert_groups_dispatch(&self->groups, load, plan, error);
}

const struct mp_system mp_system_hetumoe = {
    .abi = MP_SYSTEM_ABI,
    .name = "hetumoe",
    .title = "HetuMoE: fixed capacity, exchange through nodes' leaders",
    .source = "HetuMoE, arXiv 2203.14685; PKU-DAIR/Hetu",
    .models = "Modelled: contiguous placement that never changes, capacity of each source for each "
              "expert in the released code's arithmetic, slots for second choices after all first "
              "ones (or as the released top-2 gate has them: from the number of second ones on, so "
              "that they overwrite first ones, whose tokens get what comes of the others and count "
              "as dropped; counts alone don't tell how many, and predictions from them drop as "
              "intended), weights as the gate gives them, rows copied into a padded layout, the "
              "hierarchical exchange: gathered at every node's first rank, transformed, exchanged "
              "among those, transformed back and scattered. Experts as tied replicas with more "
              "ranks than experts are our own. Its gates are the job's `gate`: switch, gshard, "
              "ktop1, sam, hash, base, dts. Not modelled: the speed of its kernels beside others'; "
              "the released exchange's single precision, which is the job's precision here; the "
              "order in which its layer sends back rows of several experts per rank.",
    .capabilities =
        MP_SYSTEM_REPLICATES | MP_SYSTEM_DROPS | MP_SYSTEM_MORE_RANKS | MP_SYSTEM_PLANS_BEFORE_GATE,
    .options = option_table,
    .options_size = sizeof(struct hetumoe_options),
    .size = sizeof(struct hetumoe),
    .create = hetumoe_create,
    .initial_owners = mp_expert_groups_owners,
    .initial_holders = mp_expert_groups_holders,
    .policy = hetumoe_policy,
    .copies_limit = mp_expert_groups_copies_limit,
    .padding_limit = hetumoe_padding_limit,
    .before_gate = hetumoe_before_gate,
    .after_gate = hetumoe_after_gate,
};
