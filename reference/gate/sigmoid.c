#include "reference/gate/losses.h"

struct options {
    struct mp_gate_losses losses;
    int groups, groups_kept;
    double bias_rate, scale;
};

static const struct mp_option options[] = {
    {"groups", MP_OPTION_INT, offsetof(struct options, groups), "groups", "1", 1, 1024, NULL,
     "groups of consecutive experts, of which a token takes experts of groups-kept; DeepSeek-V3: "
     "8"},
    {"groups-kept", MP_OPTION_INT, offsetof(struct options, groups_kept), "groups", "1", 1, 1024,
     NULL, "groups that a token's experts may be in; DeepSeek-V3: 4"},
    {"bias-rate", MP_OPTION_DOUBLE, offsetof(struct options, bias_rate), "", "0.001", 0, 1, NULL,
     "by how much an expert's bias moves after an iteration, up if it had fewer routes than the "
     "mean; 0: no bias"},
    {"scale", MP_OPTION_DOUBLE, offsetof(struct options, scale), "", "1", 1e-3, 1e3, NULL,
     "factor of the weights; DeepSeek-V3: 2.5"},
    MP_GATE_LEVEL(options),
    {0},
};

static int complete(const struct mp_gate_sizes *sizes, const void *given, struct mp_gate_rule *rule,
                    struct mp_error *error) {
    const struct options *sigmoid = given;
    mp_gate_take_losses(sizes, &sigmoid->losses, rule);
    rule->scores = MP_SCORES_SIGMOID;
    rule->renormalise = sizes->top_k > 1; /* one alone would be 1, and the gate learn nothing */
    rule->keeps_weights = !rule->renormalise;
    rule->scale = (float)sigmoid->scale;
    rule->bias_rate = (float)sigmoid->bias_rate;
    if (sigmoid->groups > 1) {
        rule->groups = sigmoid->groups;
        rule->groups_kept = sigmoid->groups_kept;
        rule->group_best = sizes->top_k / sigmoid->groups_kept;
        rule->group_best = rule->group_best > 1 ? rule->group_best : 1;
    }
    return mp_gate_check_groups(sizes, "groups", sigmoid->groups, sigmoid->groups_kept, error);
}

const struct mp_gate_kind mp_gate_sigmoid = {
    .name = "sigmoid",
    .title = "sigmoid top-k: balanced by a bias that only chooses",
    .source = "DeepSeek-V3, arXiv 2412.19437, section 2.1.2; Wang et al., Auxiliary-Loss-Free Load "
              "Balancing, arXiv 2408.15664; Megatron-LM core, router with sigmoid scores",
    .models =
        "Scores are sigmoids of the logits. The top-k largest of score plus bias win, ties to the "
        "lower expert; with groups only among those of groups-kept groups, a group being as good "
        "as the sum of its best top-k / groups-kept of these. Weights are the winners' scores, "
        "without bias, divided by their sum (not one that is alone) and times scale. After each "
        "update the bias of an "
        "expert moves by bias-rate, up if it had fewer routes than the mean over all ranks, down "
        "if it had more; it is kept in checkpoints. The auxiliary loss takes scores divided by the "
        "sum of all for probabilities, and all choices of the batch; auxiliary-weight 0 is "
        "without it. Nothing is dropped.",
    .least = 1,
    .most = MP_CHOICES_LIMIT,
    .usual = 8,
    .weights = MP_WEIGHTS_DIVIDED,
    .loss_counts = MP_COUNT_ALL,
    .options = options,
    .options_size = sizeof(struct options),
    .complete = complete,
};
