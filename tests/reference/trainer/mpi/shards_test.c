/* Experts cut into shards: losses, loads and drops are those of whole experts on the same ranks,
 * whatever decides which routes are dropped, and what is recorded is of whole experts. */
#include "tests/reference/trainer/mpi/trainers.h"

enum { ITERATIONS = 6, SEQUENCE = 16, LAYERS = 2, EXPERTS = 8 };

struct outcome {
    double loss[ITERATIONS];
    int64_t dropped, routes; /* of whole experts */
    uint32_t load[LAYERS][EXPERTS], left[LAYERS][EXPERTS];
};

/* Tokens of the iteration on this rank, some far likelier than others. */
static void make_tokens(int iteration, int tokens, int32_t token[], int32_t target[]) {
    for (int i = 0; i < tokens; i++) {
        uint64_t number = (uint64_t)(iteration * world->ranks + world->rank);
        uint64_t draw = mp_random_below(seed, 7, number * 1024 + (uint64_t)i, 64);
        token[i] = (int32_t)(draw < 32 ? 3 : draw);
        target[i] = (token[i] * 5 + 7) % 64;
    }
}

static struct outcome train(const char *settings, int shards, struct choices *choices) {
    struct outcome outcome = {.dropped = 0};
    int32_t token[8 * SEQUENCE], target[8 * SEQUENCE];
    noted = shards == 1 ? choices : NULL;
    AUTO(trainer)
    struct mp_trainer *trainer =
        create_trainer(world, NULL, formatted("expert-shards=%d %s", shards, settings));
    for (int i = 0; i < ITERATIONS; i++) {
        struct mp_trainer_result result;
        make_tokens(i, trainer->model.tokens, token, target);
        must(mp_trainer_step_on(trainer, token, target, &result, &error));
        outcome.loss[i] = result.loss;
    }
    noted = NULL;
    followed = choices;
    outcome.dropped = trainer->totals.dropped / shards;
    outcome.routes = trainer->totals.routes / shards;
    assert_int_equal(trainer->totals.dropped % shards, 0);
    assert_int_equal(trainer->model.experts.experts, EXPERTS * shards);
    for (int l = 0; l < LAYERS; l++) {
        const uint32_t *load = trainer->load[l].count + world->rank * EXPERTS * shards;
        const uint32_t *left = trainer->model.state[l].routing.dropped;
        for (int p = 0; p < EXPERTS * shards; p++) {
            assert_int_equal(load[p], load[p % EXPERTS]);
            assert_int_equal(left[p], left[p % EXPERTS]);
        }
        memcpy(outcome.load[l], load, sizeof outcome.load[l]);
        memcpy(outcome.left[l], left, sizeof outcome.left[l]);
    }
    return outcome;
}

static const struct drops {
    const char *name, *settings;
    bool none;
} drop_cases[] = {
    {"no drops, a gate's bias", "system=ep gate=sigmoid top-k=2 gate-options.bias-rate=0.05", true},
    {"drops at random", "system=deepspeed gate=switch options.capacity-factor=0.8", false},
    {"drops by probability", "system=deepspeed gate=softmax top-k=4 options.capacity-factor=0.8",
     false},
    {"drops of one-hot rows",
     "system=deepspeed gate=gshard options.dispatch=one-hot options.capacity-factor=0.8", false},
    {"drops at the receiver",
     "system=deepspeed gate=switch options.formula=fastmoe-switch options.padded=no", false},
    {"drops of last choices", "system=tutel gate=gshard options.capacity-factor=0.8", false},
    {"drops in rows through leaders", "system=hetumoe gate=gshard options.capacity-factor=0.8",
     false},
};

TEST_EACH(shards_do_what_whole_experts_do, drop_cases, drops) {
    AUTO(choices) struct choices choices = {0};
    struct outcome whole = train(drops->settings, 1, &choices);
    assert_int_equal(whole.dropped > 0, !drops->none);
    for (int shards = 2; shards <= 3; shards++) {
        struct outcome cut = train(drops->settings, shards, &choices);
        for (int i = 0; i < ITERATIONS; i++)
            if (!(fabs(cut.loss[i] / whole.loss[i] - 1) <= 1e-6))
                fail_msg("%d shards, iteration %d: loss %.9g, of whole experts %.9g", shards, i,
                         cut.loss[i], whole.loss[i]);
        assert_numbers(cut.dropped, whole.dropped, cut.routes, whole.routes);
        assert_memory_equal(cut.load, whole.load, sizeof whole.load);
        assert_memory_equal(cut.left, whole.left, sizeof whole.left);
    }
}

static const struct {
    const char *name, *settings, *message;
} refusals[] = {
    {"rows of tokens", "system=hiermoe expert-shards=2",
     "exchange deduplicated sends a token's row"},
    {"a job's rows of tokens", "system=ep exchange=deduplicated expert-shards=2",
     "which are whole: expert-shards 2 has to go"},
    {"drops of its own", "system=swiftmoe expert-shards=2", "it takes capacity-factor 0"},
};

TEST_EACH(shards_are_refused, refusals, c) {
    refuses_trainer(world, c->settings, MP_EREFUSED, c->message);
}
