#include "reference/gate/losses.h"

const struct mp_gate_kind mp_gate_switch = {
    .name = "switch",
    .title = "Switch: one expert per token",
    .source = "Fedus et al., Switch Transformers, JMLR 2022, section 2.1 and equations 4 to 6",
    .models = "Softmax over all experts, the largest wins and its probability scales the expert's "
              "output. The auxiliary loss is the experts' share of tokens times their mean "
              "probability. Nothing is dropped.",
    .least = 1,
    .most = 1,
    .usual = 1,
    .weights = MP_WEIGHTS_AS_THEY_ARE,
    .loss_counts = MP_COUNT_FIRSTS,
    .options = mp_gate_losses_options,
    .options_size = sizeof(struct mp_gate_losses_alone),
    .complete = mp_gate_losses_complete,
};
