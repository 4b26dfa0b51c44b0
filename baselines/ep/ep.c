#include "baselines/ep/ep.h"

#include <stdlib.h>

#include "reference/plan/groups.h"

static const struct mp_option option_table[] = {
    MP_EXPERT_PARALLEL_OPTION(offsetof(struct mp_ep_options, expert_parallel)),
    {0},
};

static int ep_create(const struct mp_setting *setting, const void *parsed, void **created,
                     struct mp_error *error) {
    const struct mp_ep_options *options = parsed;
    struct mp_expert_groups groups;
    *created = NULL;
    int code = mp_expert_groups_create("ep", setting, options->expert_parallel, &groups, error);
    if (code)
        return code;
    struct mp_expert_groups *self = malloc(sizeof *self);
    if (!self)
        return mp_fail(error, MP_ENOMEM, "no memory for the system ep");
    *self = groups;
    *created = self;
    return MP_OK;
}

static void ep_destroy(void *self) {
    free(self);
}

static void ep_initial_owners(const void *self, int32_t owner[]) {
    mp_expert_groups_owners(self, owner);
}

static void ep_initial_holders(const void *self, struct mp_placement home[]) {
    mp_expert_groups_holders(self, home);
}

static enum mp_optimizer_split ep_optimizer(const void *self) {
    return mp_expert_groups_optimizer(self);
}

static int ep_copies_limit(const void *self) {
    (void)self;
    return 0; /* replicas persist; no plan adds any */
}

static int ep_after_gate(void *self, const struct mp_load *load, struct mp_plan *plan,
                         struct mp_error *error) {
    const struct mp_expert_groups *groups = self;
    return groups->groups > 1 ? mp_expert_groups_dispatch(groups, load, -1, plan, error)
                              : mp_plan_dispatch_to_owner(plan, load, error);
}

const struct mp_system mp_system_ep = {
    .abi = MP_SYSTEM_ABI,
    .name = "ep",
    .title = "EP: plain expert parallelism",
    .source = "FastMoE, arXiv 2103.13262; laekov/fastmoe",
    .models = "Modelled: contiguous placement that never changes, exact exchange of the routed "
              "tokens, nothing dropped or padded; with more ranks than experts, or when "
              "expert-parallel says so, experts as tied replicas over groups of ranks "
              "(expert-data parallelism, as in Megatron-LM). Not modelled: FastMoE's streams per "
              "expert.",
    .capabilities = MP_SYSTEM_REPLICATES | MP_SYSTEM_MORE_RANKS,
    .options = option_table,
    .options_size = sizeof(struct mp_ep_options),
    .create = ep_create,
    .destroy = ep_destroy,
    .initial_owners = ep_initial_owners,
    .initial_holders = ep_initial_holders,
    .optimizer = ep_optimizer,
    .copies_limit = ep_copies_limit,
    .after_gate = ep_after_gate,
};
