#include "baselines/hetumoe/hetumoe.h"

#include "reference/plan/capacity.h"
#include "reference/plan/groups.h"

#define FIELD(member) offsetof(struct mp_hetumoe_options, member)

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
                           const struct mp_hetumoe_options *options) {
    const struct mp_capacity_sizes sizes = mp_capacity_sizes_of(setting, options->capacity_factor);
    return mp_capacity(MP_CAPACITY_HETUMOE, &sizes);
}

static int check_slots(const struct mp_setting *setting, const struct mp_hetumoe_options *options,
                       struct mp_error *error) {
    if (options->slots == MP_HETUMOE_INTENDED || mp_setting_choices(setting) <= 2)
        return MP_OK;
    return mp_fail(error, MP_EINVAL,
                   "hetumoe's slots as-released are those of a layer that takes one or two choices "
                   "of a token, not top-%d; slots: intended takes any",
                   mp_setting_choices(setting));
}

static int hetumoe_create(void *opaque, const struct mp_setting *setting, const void *parsed,
                          struct mp_error *error) {
    const struct mp_hetumoe_options *options = parsed;
    struct hetumoe *self = opaque;
    MP_TRY(mp_expert_groups_create("hetumoe", setting, options->expert_parallel, &self->groups,
                                   error));
    self->capacity = capacity_of(setting, options);
    MP_TRY(mp_capacity_check("hetumoe", setting, options->capacity_factor, self->capacity, error));
    MP_TRY(check_slots(setting, options, error));
    self->leads = options->exchange == MP_HETUMOE_LEADER &&
                  mp_topology_nodes(&setting->topology) > 1 && setting->topology.ranks_per_node > 1;
    self->overlaid = options->slots == MP_HETUMOE_AS_RELEASED && mp_setting_choices(setting) == 2 &&
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
    .options_size = sizeof(struct mp_hetumoe_options),
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
