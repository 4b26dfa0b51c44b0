#include "reference/gate/losses.h"

enum second { SECOND_ALWAYS, SECOND_RANDOM };

struct options {
    struct mp_gate_losses losses;
    int second; /* enum second */
};

static const struct mp_option options[] = {
    {"second", MP_OPTION_CHOICE, offsetof(struct options, second), "", "always", 0, 0,
     "always random",
     "whether a token always takes its second choice, or at random, with the probability min(1, "
     "2 w), w being its weight"},
    MP_GATE_Z_LOSS(options),
    MP_GATE_LEVEL(options),
    {0},
};

static int complete(const struct mp_gate_sizes *sizes, const void *given, struct mp_gate_rule *rule,
                    struct mp_error *error) {
    const struct options *gshard = given;
    (void)error;
    rule->random_second = gshard->second == SECOND_RANDOM;
    rule->keeps_weights =
        rule->random_second; /* what is not taken counts, so does what is dropped */
    mp_gate_take_losses(sizes, &gshard->losses, rule);
    return MP_OK;
}

const struct mp_gate_kind mp_gate_gshard = {
    .name = "gshard",
    .title = "GShard: two experts per token",
    .source = "Lepikhin et al., GShard, ICLR 2021, section 2.2 and algorithm 1; FastMoE, "
              "fmoe/gates/gshard_gate.py (random routing)",
    .models =
        "Softmax over all experts, the two largest win, their probabilities are divided by their "
        "sum. With second: random a token takes its second choice with probability min(1, 2 w), w "
        "being its weight; the weight of the first stays what it is, also under a system that "
        "divides "
        "weights by those of the routes that it did not drop. What is drawn depends on the "
        "job's seed, the iteration, the layer and the token's number among those of all ranks. The "
        "auxiliary loss is the experts' share of first choices times their mean probability. The "
        "gate drops nothing: experts have no capacity, so that the loss does not depend on the "
        "system. GShard's own is system deepspeed with formula: fastmoe.",
    .least = 2,
    .most = 2,
    .usual = 2,
    .weights = MP_WEIGHTS_DIVIDED,
    .loss_counts = MP_COUNT_FIRSTS,
    .options = options,
    .options_size = sizeof(struct options),
    .complete = complete,
};
