#include <math.h>

#include "reference/gate/gate.h"

struct options {
    double capacity_factor;
};

static const struct mp_option options[] = {
    {"capacity-factor", MP_OPTION_DOUBLE, offsetof(struct options, capacity_factor), "", "2", 1e-3,
     1e3, NULL,
     "experts of a token in the mean: an expert takes so many times the tokens of a sequence over "
     "the experts, rounded down"},
    {0},
};

static int complete(const struct mp_gate_sizes *sizes, const void *given, struct mp_gate_rule *rule,
                    struct mp_error *error) {
    const struct options *choice = given;
    double capacity = floor(sizes->sequence * choice->capacity_factor / sizes->experts);
    rule->matching = MP_MATCH_EXPERTS;
    rule->together = sizes->sequence;
    rule->capacity = (int)capacity;
    if (capacity >= 1 && capacity <= sizes->sequence)
        return MP_OK;
    return mp_fail(error, MP_EINVAL,
                   "gate expertchoice needs experts that take 1 to %d tokens of a sequence, not "
                   "%.0f: sequence %d, %d experts, capacity-factor %g",
                   sizes->sequence, capacity, sizes->sequence, sizes->experts,
                   choice->capacity_factor);
}

const struct mp_gate_kind mp_gate_expertchoice = {
    .name = "expertchoice",
    .title = "expert choice: experts choose their tokens",
    .source = "Zhou et al., Mixture-of-Experts with Expert Choice Routing, NeurIPS 2022, arXiv "
              "2202.09368, section 3.2",
    .models =
        "Softmax over all experts. Of a sequence every expert takes the tokens of its largest "
        "probabilities, as many as the others, ties to the earlier token; the probability is the "
        "weight. A token has as many experts as take it, none perhaps, and of more than top-k "
        "those of its largest probabilities: with top-k as many as experts (16 at most) there is "
        "no such limit, which the source has in its variants with a cap alone, there by another "
        "program. There is no balancing loss. The source takes a batch together, so that what is "
        "chosen depends on the number of ranks; here sequences are for themselves and nothing is "
        "exchanged. Not causal: whether a token has an expert depends on later tokens of its "
        "sequence, which a model that generates doesn't know; the source says so of itself. "
        "Nothing is dropped.",
    .least = 1,
    .most = MP_CHOICES_LIMIT,
    .usual = 4,
    .weights = MP_WEIGHTS_AS_THEY_ARE,
    .loss_counts = MP_COUNT_NONE,
    .options = options,
    .options_size = sizeof(struct options),
    .complete = complete,
};
