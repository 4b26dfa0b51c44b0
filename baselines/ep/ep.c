#include "baselines/ep/ep.h"

#include <stdlib.h>

struct ep {
    int layers, experts, ranks;
};

static int ep_create(const struct mp_setting *setting, const void *options, void **created,
                     struct mp_error *error) {
    int ranks = setting->topology.ranks;

    (void)options;
    *created = NULL;
    if (setting->layers < 1 || setting->experts < 1 || ranks < 1)
        return mp_fail(error, MP_EINVAL,
                       "ep needs layers, experts and ranks of at least 1, not %d, %d and %d",
                       setting->layers, setting->experts, ranks);
    if (setting->experts % ranks != 0)
        return mp_fail(error, MP_EINVAL,
                       "ep needs the same number of experts on every rank: %d experts can't be "
                       "shared by %d ranks",
                       setting->experts, ranks);
    struct ep *self = malloc(sizeof *self);
    if (!self)
        return mp_fail(error, MP_ENOMEM, "no memory for the system ep");
    *self = (struct ep){setting->layers, setting->experts, ranks};
    *created = self;
    return MP_OK;
}

static void ep_destroy(void *self) {
    free(self);
}

static void ep_initial_owners(const void *opaque, int32_t owner[]) {
    const struct ep *self = opaque;

    mp_contiguous_owners(self->layers, self->experts, self->ranks, owner);
}

static int ep_after_gate(void *self, const struct mp_load *load, struct mp_plan *plan,
                         struct mp_error *error) {
    (void)self;
    return mp_plan_dispatch_to_owner(plan, load, error);
}

const struct mp_system mp_system_ep = {
    .abi = MP_SYSTEM_ABI,
    .name = "ep",
    .title = "EP: plain expert parallelism",
    .source = "FastMoE, arXiv 2103.13262; laekov/fastmoe",
    .models = "Modelled: contiguous placement that never changes, exact exchange of the routed "
              "tokens, nothing dropped or padded. Not modelled: FastMoE's streams per expert.",
    .capabilities = 0,
    .create = ep_create,
    .destroy = ep_destroy,
    .initial_owners = ep_initial_owners,
    .after_gate = ep_after_gate,
};
