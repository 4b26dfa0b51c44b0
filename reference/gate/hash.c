#include "reference/base/random.h"
#include "reference/gate/gate.h"

struct options {
    int64_t seed;
};

static const struct mp_option options[] = {
    {"seed", MP_OPTION_INT64, offsetof(struct options, seed), "", "1", 0, 9e18, NULL,
     "draws which expert has which byte, of every layer another"},
    {0},
};

static int complete(const struct mp_gate_sizes *sizes, const void *given, struct mp_gate_rule *rule,
                    struct mp_error *error) {
    (void)sizes, (void)given, (void)error;
    rule->scores = MP_SCORES_FORCED;
    return MP_OK;
}

static void choose(const struct mp_gate_sizes *sizes, const void *given, int layer, int tokens,
                   const int32_t *token, int32_t *choice) {
    const struct options *hash = given;
    for (int t = 0; t < tokens; t++)
        choice[t] = (int32_t)mp_random_below((uint64_t)hash->seed, (uint64_t)layer,
                                             (uint64_t)token[t], (uint64_t)sizes->experts);
}

const struct mp_gate_kind mp_gate_hash = {
    .name = "hash",
    .title = "hash: every byte has its expert",
    .source = "Roller et al., Hash Layers for Large Sparse Models, NeurIPS 2021, section 3 (random "
              "hash); HetuMoE, arXiv 2203.14685",
    .models =
        "A token goes to the expert that was drawn for its byte, in every layer another, whatever "
        "the model computes; the expert's output has weight 1. Nothing is learnt about routing: "
        "there is no loss, and the gate's matrix, which stays so that shapes of models are the "
        "same, has no gradient. As unbalanced as the text, and always the same. Nothing is "
        "dropped. Not modelled: balanced and clustered hashes, and HetuMoE's capacity.",
    .least = 1,
    .most = 1,
    .usual = 1,
    .weights = MP_WEIGHTS_AS_THEY_ARE,
    .loss_counts = MP_COUNT_NONE,
    .options = options,
    .options_size = sizeof(struct options),
    .complete = complete,
    .choose = choose,
};
