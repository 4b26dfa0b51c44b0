/* TA-MoE (Chen et al., NeurIPS 2022, arXiv 2302.09915; Chen-Chang/TA-MoE): plain
 * expert parallelism whose gate is trained to send less to where a byte is dear.
 *
 * The loss is gate tamoe's (reference/gate/tamoe.c).  The target gives each rank a share of a
 * source's routes in proportion to 1 over the cost of a byte to it: 1 inside the node, outside-cost
 * to another.
 *
 * With a capacity factor an expert takes of a source at most
 *     ceil(factor * T * k * share / E_loc)
 * routes, share being its rank's target; the earlier token wins.  The released code computes such
 * capacities and does not use them.
 *
 * Loads that are replayed, or predicted with, were made without the loss: plans say how far it
 * brings them (policy.pull). */
#include <math.h>

#include "reference/plan/groups.h"

struct tamoe_options {
    double outside_cost;
    double pull;
    double capacity_factor; /* 0: nothing is dropped */
};

#define FIELD(name) offsetof(struct tamoe_options, name)
static const struct mp_option option_table[] = {
    {"outside-cost", MP_OPTION_DOUBLE, FIELD(outside_cost), "", "4", 1, 100, NULL,
     "cost of a byte to another node over one inside the node; the gate has one of its own"},
    {"pull", MP_OPTION_DOUBLE, FIELD(pull), "", "0.5", 0, 1, NULL,
     "how far the loss brings loads that are replayed or predicted with towards the target; 0: "
     "they stay, 1: all the way"},
    {"capacity-factor", MP_OPTION_DOUBLE, FIELD(capacity_factor), "", "0", 0, 1024, NULL,
     "an expert's capacity for the routes of a rank, over its target share of them; 0: no "
     "capacity, nothing is dropped"},
    {0},
};

struct tamoe {
    struct mp_expert_groups groups; /* first, as its hooks want it */
    struct tamoe_options options;
    int64_t tokens;
    int nodes, top_k;
};

static int tamoe_create(void *opaque, const struct mp_setting *setting, const void *parsed,
                        struct mp_error *error) {
    struct tamoe *self = opaque;
    int code = mp_expert_groups_create("tamoe", setting, MP_AUTO, &self->groups, error);
    if (!code && mp_setting_shards(setting) > 1 && mp_topology_nodes(&setting->topology) > 1)
        code = mp_fail(error, MP_EINVAL,
                       "tamoe needs to know in which node an expert is, and with expert-shards %d "
                       "it may be in several",
                       setting->shards);
    self->options = *(const struct tamoe_options *)parsed;
    self->tokens = setting->tokens_per_rank;
    self->nodes = mp_topology_nodes(&setting->topology);
    self->top_k = setting->top_k;
    return code;
}

static void tamoe_policy(const void *opaque, struct mp_policy *policy) {
    const struct tamoe *self = opaque;
    if (self->nodes > 1) {
        policy->pull = self->options.pull;
        policy->outside_cost = self->options.outside_cost;
    }
}

/* Of an expert on a rank with this share of a source's routes. */
static int64_t capacity(const struct tamoe *self, double share) {
    double routes = (double)self->tokens * self->top_k * share / self->groups.each;
    return (int64_t)ceil(self->options.capacity_factor * routes);
}

static int tamoe_after_gate(void *opaque, const struct mp_load *load, struct mp_plan *plan,
                            struct mp_error *error) {
    const struct tamoe *self = opaque;
    const struct mp_topology *topology = &plan->topology;
    double cost = self->options.outside_cost;
    if (self->options.capacity_factor > 0) {
        double share = mp_topology_near_share(topology, 0, cost);
        plan->source_capacity = capacity(self, share);
        plan->outside_capacity = capacity(self, share / cost);
    }
    return mp_plan_dispatch_to_owner(plan, load, error);
}

const struct mp_system mp_system_tamoe = {
    .abi = MP_SYSTEM_ABI,
    .name = "tamoe",
    .title = "TA-MoE: expert parallelism with a loss by topology",
    .source = "Chen et al., TA-MoE, NeurIPS 2022, arXiv 2302.09915; Chen-Chang/TA-MoE",
    .models = "Modelled: contiguous placement, an exact exchange of the routed tokens, the target "
              "of shares in proportion to 1 over the cost of a byte, and with a capacity factor "
              "capacities in proportion to it. The loss is that of gate: tamoe, which jobs take "
              "beside it; loads that are replayed or predicted with come towards the target by "
              "pull, from the first iteration on. Not modelled: more than two levels of topology; "
              "nodes of different sizes share the capacities of the first one.",
    .capabilities = MP_SYSTEM_DROPS,
    .options = option_table,
    .options_size = sizeof(struct tamoe_options),
    .size = sizeof(struct tamoe),
    .create = tamoe_create,
    .initial_owners = mp_expert_groups_owners,
    .policy = tamoe_policy,
    .after_gate = tamoe_after_gate,
};
