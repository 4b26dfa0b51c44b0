#include "reference/gate/losses.h"

struct options {
    struct mp_gate_losses losses;
    int groups;
    double alignment;
};

static const struct mp_option options[] = {
    {"groups", MP_OPTION_INT, offsetof(struct options, groups), "groups", "2", 2, 1024, NULL,
     "groups of consecutive experts; HetuMoE has one per GPU"},
    {"alignment-weight", MP_OPTION_DOUBLE, offsetof(struct options, alignment), "", "0.01", 0, 1e3,
     NULL, "weight of the alignment loss, its mean over tokens"},
    MP_GATE_LEVEL(options),
    {0},
};

static int complete(const struct mp_gate_sizes *sizes, const void *given, struct mp_gate_rule *rule,
                    struct mp_error *error) {
    const struct options *sam = given;
    mp_gate_take_losses(sizes, &sam->losses, rule);
    rule->groups = sam->groups;
    rule->groups_kept = 1;
    rule->group_best = sizes->experts; /* all of a group */
    rule->alignment_slope = (float)(sam->alignment / (double)sizes->tokens);
    rule->loss_divisor = 1;
    return mp_gate_check_groups(sizes, "groups", sam->groups, 1, error);
}

const struct mp_gate_kind mp_gate_sam = {
    .name = "sam",
    .title = "SAM: k experts of one group per token",
    .source = "HetuMoE, arXiv 2203.14685, SAM gate (switch and mixture), as intended: its released "
              "code takes the experts of a group from another range",
    .models =
        "Softmax over all experts. The group of consecutive experts with the largest sum of "
        "probabilities wins, in it the k largest, whose probabilities are the weights: a token "
        "crosses to one place only. The auxiliary loss is that of every choice, added up: k when "
        "balanced. The alignment loss is by how much probabilities outside of the group exceed "
        "that of the last choice, summed over experts; HetuMoE adds it up over tokens, here it is "
        "a mean with a weight, so that it does not grow with the batch. Nothing is dropped. Not "
        "modelled: HetuMoE's capacity.",
    .least = 1,
    .most = MP_CHOICES_LIMIT,
    .usual = 2,
    .weights = MP_WEIGHTS_AS_THEY_ARE,
    .loss_counts = MP_COUNT_ALL,
    .options = options,
    .options_size = sizeof(struct options),
    .complete = complete,
};
