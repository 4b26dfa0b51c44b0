/* DeepEP (deepseek-ai/DeepEP, normal kernels): plain expert parallelism whose tokens travel once to
 * every node and from there once to every rank that needs them; what production trains with. */
#include "baselines/ep/ep.h"
#include "reference/plan/groups.h"

static int create(void *self, const struct mp_setting *setting, const void *options,
                  struct mp_error *error) {
    return mp_ep_create("deepep", setting, options, self, error);
}

const struct mp_system mp_system_deepep = {
    .abi = MP_SYSTEM_ABI,
    .name = "deepep",
    .title = "DeepEP: expert parallelism with deduplicated exchange",
    .source = "deepseek-ai/DeepEP, normal kernels; DeepSeek-V3, arXiv 2412.19437, section 3.2.2",
    .models =
        "Modelled: contiguous placement that never changes, as of ep; a token's row goes once "
        "to every node with experts of the token, to the rank of its sender's place there, "
        "and from there once to every rank that needs it; outputs are weighted and summed on "
        "the expert's rank, in the node and by the sender. Not modelled: rows in 8 bits on "
        "their way to the experts, streaming multiprocessors that are set aside for sending, "
        "the kernels of low latency for inference, hooks that overlap two micro-batches.",
    .capabilities = MP_SYSTEM_REPLICATES | MP_SYSTEM_MORE_RANKS,
    .exchange = MP_EXCHANGE_DEDUPLICATED,
    .options = mp_ep_option_table,
    .options_size = sizeof(struct mp_ep_options),
    .size = sizeof(struct mp_expert_groups),
    .create = create,
    MP_EXPERT_GROUPS_HOOKS,
    .after_gate = mp_ep_after_gate,
};
