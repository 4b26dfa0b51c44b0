#include "reference/gate/gate.h"

struct options {
    double hot, cold, least_weight;
    int64_t anneal;
};

static const struct mp_option options[] = {
    {"first-temperature", MP_OPTION_DOUBLE, offsetof(struct options, hot), "", "2", 1e-3, 1e3, NULL,
     "of the first iteration"},
    {"last-temperature", MP_OPTION_DOUBLE, offsetof(struct options, cold), "", "0.1", 1e-3, 1e3,
     NULL, "from iteration anneal on"},
    {"anneal", MP_OPTION_INT64, offsetof(struct options, anneal), "iterations", "1000", 0, 1e15,
     NULL, "over which the temperature goes from the first to the last in a line"},
    {"least-weight", MP_OPTION_DOUBLE, offsetof(struct options, least_weight), "", "0.1", 1e-6, 1,
     NULL, "experts of a smaller weight are not taken, but for the largest"},
    {0},
};

static int complete(const struct mp_gate_sizes *sizes, const void *given, struct mp_gate_rule *rule,
                    struct mp_error *error) {
    const struct options *dts = given;
    (void)sizes, (void)error;
    rule->temperature = rule->hot = (float)dts->hot;
    rule->cold = (float)dts->cold;
    rule->anneal = dts->anneal;
    rule->least_weight = (float)dts->least_weight;
    return MP_OK;
}

const struct mp_gate_kind mp_gate_dts = {
    .name = "dts",
    .title = "dense to sparse: fewer experts per token as a temperature falls",
    .source = "Nie et al., EvoMoE, arXiv 2112.14397, section 3.2 (DTS gate); HetuMoE, arXiv "
              "2203.14685; Jang et al., Categorical Reparameterization with Gumbel-Softmax, ICLR "
              "2017",
    .models =
        "Softmax of logits with Gumbel noise over a temperature that falls in a line from "
        "first-temperature to last-temperature. A token takes the largest expert and the others "
        "of the top-k whose probability is at least least-weight; probabilities are the weights. "
        "Hot, a token takes many, cold one, and top-k is the most: only where it is all experts "
        "(16 at most) the gate begins dense. The auxiliary loss is Switch's: the share of first "
        "choices times the mean probability. A system that divides weights by those of the routes "
        "that it did not drop leaves these as they are. Nothing is dropped. Not modelled: "
        "EvoMoE's first phase, which trains one expert and makes the others of it.",
    .least = 2,
    .most = MP_CHOICES_LIMIT,
    .usual = 8,
    .weights = MP_WEIGHTS_AS_THEY_ARE,
    .loss_counts = MP_COUNT_FIRSTS,
    .options = options,
    .options_size = sizeof(struct options),
    .complete = complete,
};
