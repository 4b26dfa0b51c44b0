#include "reference/gate/z_loss.h"

const struct mp_gate_kind mp_gate_gshard = {
    .name = "gshard",
    .title = "GShard: two experts per token",
    .source = "Lepikhin et al., GShard, ICLR 2021, section 2.2 and algorithm 1",
    .models =
        "Softmax over all experts, the two largest win, their probabilities are divided by their "
        "sum. The auxiliary loss is the experts' share of first choices times their mean "
        "probability. Nothing is dropped: experts have no capacity, so that the loss does not "
        "depend on the system.",
    .least = 2,
    .most = 2,
    .usual = 2,
    .weights = MP_WEIGHTS_DIVIDED,
    .loss_counts = MP_COUNT_FIRSTS,
    .options = mp_gate_z_loss_options,
    .options_size = sizeof(struct mp_gate_z_loss),
    .complete = mp_gate_z_loss_complete,
};
