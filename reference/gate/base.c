#include "reference/gate/gate.h"

enum weights { WEIGHTS_SIGMOID, WEIGHTS_ONE };

struct options {
    int weights; /* enum weights */
    double accuracy;
};

static const struct mp_option options[] = {
    {"weights", MP_OPTION_CHOICE, offsetof(struct options, weights), "", "sigmoid", 0, 0,
     "sigmoid one",
     "of an expert's output: sigmoid of its logit (BASE layers), or 1, without a gradient for the "
     "gate (HetuMoE as released)"},
    {"accuracy", MP_OPTION_DOUBLE, offsetof(struct options, accuracy), "", "0.02", 1e-5, 1, NULL,
     "step of bids over the range of logits; a sequence's sum of logits is less than the largest "
     "possible by at most this part of the range for each token"},
    {0},
};

static int complete(const struct mp_gate_sizes *sizes, const void *given, struct mp_gate_rule *rule,
                    struct mp_error *error) {
    const struct options *base = given;
    rule->scores = base->weights == WEIGHTS_ONE ? MP_SCORES_FORCED : MP_SCORES_APART;
    rule->matching = MP_MATCH_AUCTION;
    rule->together = sizes->sequence;
    rule->capacity = sizes->sequence / sizes->experts;
    rule->accuracy = (float)base->accuracy;
    if (sizes->sequence % sizes->experts == 0)
        return MP_OK;
    return mp_fail(error, MP_EINVAL,
                   "gate base gives every expert as many tokens of a sequence; a sequence of %d "
                   "has no %d equal parts",
                   sizes->sequence, sizes->experts);
}

const struct mp_gate_kind mp_gate_base = {
    .name = "base",
    .title = "BASE: one expert per token, as many tokens per expert",
    .source = "Lewis et al., BASE Layers, ICML 2021, arXiv 2103.16716, sections 3.1 and 3.2; "
              "fairseq, base_layer.py; HetuMoE, arXiv 2203.14685, layers/BalanceGate.py",
    .models =
        "Of the tokens of a sequence every expert gets as many, by an auction for the largest sum "
        "of logits, in which tokens bid one after the other: deterministic, and as good as "
        "`accuracy` says unless tokens would need more than 100 bids each. The weight is the "
        "sigmoid of the logit. There is no balancing loss. The sources assign what a rank has "
        "after all tokens have been shuffled over the ranks, so that what is chosen depends on "
        "their number; here sequences are assigned each for itself and nothing is exchanged. "
        "Not causal: a token's expert depends on later tokens of its sequence. The sources let "
        "tokens choose freely when they evaluate, which is not modelled, nor are HetuMoE's fixed "
        "orthogonal centroids, its bids by experts and its step of 1e-4, where 1/50 of the range "
        "was meant. Nothing is dropped.",
    .least = 1,
    .most = 1,
    .usual = 1,
    .weights = MP_WEIGHTS_AS_THEY_ARE,
    .loss_counts = MP_COUNT_NONE,
    .options = options,
    .options_size = sizeof(struct options),
    .complete = complete,
};
