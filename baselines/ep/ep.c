#include "baselines/ep/ep.h"

const struct mp_option mp_ep_option_table[] = {
    MP_EXPERT_PARALLEL_OPTION(offsetof(struct mp_ep_options, expert_parallel)),
    {0},
};

int mp_ep_create(const char *system, const struct mp_setting *setting, const void *options,
                 struct mp_expert_groups *groups, struct mp_error *error) {
    return mp_expert_groups_create(
        system, setting, ((const struct mp_ep_options *)options)->expert_parallel, groups, error);
}

static int ep_create(void *self, const struct mp_setting *setting, const void *options,
                     struct mp_error *error) {
    return mp_ep_create("ep", setting, options, self, error);
}

int mp_ep_after_gate(void *self, const struct mp_load *load, struct mp_plan *plan,
                     struct mp_error *error) {
    const struct mp_expert_groups *groups = self;
    return groups->groups > 1 ? mp_expert_groups_dispatch(groups, load, plan, error)
                              : mp_plan_dispatch_to_owner(plan, load, error);
}

const struct mp_system mp_system_ep = {
    .abi = MP_SYSTEM_ABI,
    .name = "ep",
    .title = "EP: plain expert parallelism",
    .source = "FastMoE, arXiv 2103.13262; laekov/fastmoe",
    .models = "Modelled: contiguous placement that never changes, exact exchange of the routed "
              "tokens, nothing dropped or padded; with more ranks than experts, or when "
              "expert-parallel says so, experts as tied replicas over groups of ranks (expert-data "
              "parallelism, as in Megatron-LM). Not modelled: FastMoE's streams per expert.",
    .capabilities = MP_SYSTEM_REPLICATES | MP_SYSTEM_MORE_RANKS,
    .options = mp_ep_option_table,
    .options_size = sizeof(struct mp_ep_options),
    .size = sizeof(struct mp_expert_groups),
    .create = ep_create,
    MP_EXPERT_GROUPS_HOOKS,
    .after_gate = mp_ep_after_gate,
};
