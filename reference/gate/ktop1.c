#include "reference/gate/losses.h"

static const struct mp_option options[] = {
    MP_GATE_LEVEL(mp_gate_losses_alone),
    {0},
};

/* A token takes one expert of each prototype, so that there are as many of these as choices. */
static int complete(const struct mp_gate_sizes *sizes, const void *given, struct mp_gate_rule *rule,
                    struct mp_error *error) {
    const struct mp_gate_losses_alone *alone = given;
    mp_gate_take_losses(sizes, &alone->losses, rule);
    rule->prototypes = sizes->top_k;
    return mp_gate_check_groups(sizes, "top-k", sizes->top_k, sizes->top_k, error);
}

const struct mp_gate_kind mp_gate_ktop1 = {
    .name = "ktop1",
    .title = "k top-1: one expert of each of k prototypes per token",
    .source = "Yang et al., M6-T: Exploring Sparse Expert Models and Beyond, arXiv 2105.15082, "
              "section 3.2 (expert prototyping); HetuMoE, arXiv 2203.14685, KTop1",
    .models =
        "Experts are split into k prototypes, experts 0 to E / k - 1 being the first. In each a "
        "softmax of its own and one choice, whose probability scales the expert's output. The "
        "auxiliary loss is the sum over prototypes of E / k times the sum over their experts of "
        "routes per token times mean probability: k when balanced. A system that divides weights "
        "by those of the routes that it did not drop leaves these as they are, as it does those "
        "of one choice. Nothing is dropped. Not modelled: HetuMoE's capacity.",
    .least = 2,
    .most = MP_CHOICES_LIMIT,
    .usual = 2,
    .weights = MP_WEIGHTS_AS_THEY_ARE,
    .loss_counts = MP_COUNT_ALL,
    .options = options,
    .options_size = sizeof(struct mp_gate_losses_alone),
    .complete = complete,
};
