#include "reference/gate/losses.h"

const struct mp_gate_kind mp_gate_softmax = {
    .name = "softmax",
    .title = "softmax top-k: any number of experts per token",
    .source = "Jiang et al., Mixtral of Experts, arXiv 2401.04088, section 2.1; Shoeybi et al., "
              "Megatron-LM core, router with softmax scores; DeepSpeed, "
              "deepspeed/moe/sharded_moe.py, topkgating",
    .models =
        "Softmax over all experts, the top-k largest win (1 to 16, or all), ties to the lower "
        "expert. Weights are divided by their sum (renormalise: auto, from two choices on), which "
        "is the softmax over the winners alone, or stay probabilities (renormalise: no). The "
        "auxiliary loss is E / k times the sum over experts of their routes per token times their "
        "mean probability, as in Megatron-LM, DeepSpeed's top-k and MegaBlocks: 1 when balanced. "
        "Nothing is dropped.",
    .least = 1,
    .most = MP_CHOICES_LIMIT,
    .usual = 2,
    .weights = MP_WEIGHTS_EITHER,
    .loss_counts = MP_COUNT_ALL,
    .options = mp_gate_losses_options,
    .options_size = sizeof(struct mp_gate_losses_alone),
    .complete = mp_gate_losses_complete,
};
