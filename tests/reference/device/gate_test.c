/* The gate: probabilities and weights against double precision, choices against a plain selection,
 * gradients against central differences. */
#include "tests/reference/device/device_support.h"
#include "tests/reference/device/rules.h"

enum { MOST_EXPERTS = 1024 };

struct gate_case {
    size_t shift; /* floats from an aligned address to where matrices start */
    int tokens, experts, top_k;
    bool renormalise, forced, ties;
};

struct gate {
    struct gate_case c;
    double *logits, *dweight, *auxiliary;
    const int32_t *choice;
};

static void naive_softmax(const double *logits, int experts, double *probability) {
    double largest = -INFINITY, sum = 0;
    for (int e = 0; e < experts; e++)
        largest = fmax(largest, logits[e]);
    for (int e = 0; e < experts; e++)
        sum += probability[e] = exp(logits[e] - largest);
    for (int e = 0; e < experts; e++)
        probability[e] /= sum;
}

static void naive_weights(const struct gate_case *c, const double *probability,
                          const int32_t *choice, double *weight) {
    double sum = 0;
    for (int j = 0; j < c->top_k; j++)
        sum += weight[j] = probability[choice[j]];
    for (int j = 0; j < c->top_k && c->renormalise; j++)
        weight[j] /= sum;
}

/* Linear in weights and probabilities, with the choices held still. */
static double loss(const void *context) {
    const struct gate *g = context;
    double sum = 0, probability[MOST_EXPERTS], weight[16];
    for (int t = 0; t < g->c.tokens; t++) {
        naive_softmax(g->logits + t * g->c.experts, g->c.experts, probability);
        naive_weights(&g->c, probability, g->choice + t * g->c.top_k, weight);
        sum += dot_doubles(weight, g->dweight + t * g->c.top_k, (size_t)g->c.top_k);
        sum += dot_doubles(probability, g->auxiliary, (size_t)g->c.experts);
    }
    return sum;
}

/* The j-th largest by looking at all that are not taken; the first of equal ones. */
static void check_choice(const struct gate_case *c, const float *probability,
                         const int32_t *choice) {
    bool taken[MOST_EXPERTS] = {false};
    for (int j = 0; j < c->top_k; j++) {
        int best = -1;
        for (int e = 0; e < c->experts; e++) {
            if (!taken[e] && (best < 0 || probability[e] > probability[best]))
                best = e;
        }
        taken[best] = true;
        assert_int_equal(choice[j], best);
    }
}

static int32_t *random_choices(const struct gate_case *c) {
    int32_t *forced = new_ints((size_t)(c->tokens * c->top_k));
    for (int t = 0; t < c->tokens; t++) {
        int first = test_random_int(&random_state, 0, c->experts - 1);
        for (int j = 0; j < c->top_k; j++) /* distinct ones but for some */
            forced[t * c->top_k + j] = (first + j - (t % 4 == 3 && j == 1)) % c->experts;
    }
    return forced;
}

static float *gate_logits(const struct gate_case *c) {
    float *logits = random_floats((size_t)(c->tokens * c->experts) + c->shift, 3) + c->shift;
    for (int i = 0; c->ties && i < c->tokens * c->experts; i++) /* few values; 0 and -0, too */
        logits[i] = i % 5 ? rintf(0.5f * logits[i]) : -INFINITY;
    return logits;
}

/* Twice: sums of floats repeat to the last bit. */
static void check_statistics(struct mp_device *device, const struct gate_case *c,
                             const float *probability, const int32_t *choice) {
    size_t experts = (size_t)c->experts;
    uint32_t *routes = new_counts(experts), *firsts = new_counts(experts);
    float *mass = new_floats(experts), *again = new_floats(experts);
    perform(device, gate_statistics, c->tokens, c->experts, c->top_k, probability, choice, routes,
            firsts, again);
    perform(device, gate_statistics, c->tokens, c->experts, c->top_k, probability, choice, routes,
            firsts, mass);
    assert_memory_equal(mass, again, experts * sizeof *mass);
    for (int e = 0; e < c->experts; e++) {
        uint32_t expected_routes = 0, expected_firsts = 0;
        double expected_mass = 0;
        for (int t = 0; t < c->tokens; t++) {
            expected_mass += probability[t * c->experts + e];
            for (int j = 0; j < c->top_k; j++) {
                expected_routes += choice[t * c->top_k + j] == e;
                expected_firsts += j == 0 && choice[t * c->top_k] == e;
            }
        }
        assert_int_equal(routes[e], expected_routes);
        assert_int_equal(firsts[e], expected_firsts);
        assert_close(mass[e], expected_mass, 3e-6);
    }
}

static void gate_matches(struct mp_device *device, const void *argument) {
    const struct gate_case *c = argument;
    size_t size = (size_t)(c->tokens * c->experts), routes = (size_t)(c->tokens * c->top_k);
    float *logits = gate_logits(c), *probability = new_floats(size + c->shift) + c->shift;
    float *dlogits = new_floats(size + c->shift) + c->shift, *weight = new_floats(routes);
    float *dweight = random_floats(routes, 1);
    float *auxiliary = random_floats((size_t)c->experts, 0.5);
    int32_t *forced = c->forced ? random_choices(c) : NULL, *choice = new_ints(routes);
    perform(device, gate_forward, c->tokens, c->experts, c->top_k, SOFTMAX(c->renormalise), logits,
            NULL, forced, probability, NULL, choice, weight);

    struct gate g = {*c, to_doubles(logits, size), to_doubles(dweight, routes),
                     to_doubles(auxiliary, (size_t)c->experts), choice};
    double expected[MOST_EXPERTS], expected_weight[16];
    double tolerance =
        2e-6 * fmax(1, c->experts / 200.0); /* sums of as many, all alike with ties */
    for (int t = 0; t < c->tokens; t++) {
        naive_softmax(g.logits + t * c->experts, c->experts, expected);
        assert_floats_close(probability + t * c->experts, expected, (size_t)c->experts, tolerance);
        if (forced)
            assert_memory_equal(choice + t * c->top_k, forced + t * c->top_k,
                                (size_t)c->top_k * sizeof *choice);
        else
            check_choice(c, probability + t * c->experts, choice + t * c->top_k);
        naive_weights(c, expected, choice + t * c->top_k, expected_weight);
        assert_floats_close(weight + t * c->top_k, expected_weight, (size_t)c->top_k, tolerance);
    }
    check_statistics(device, c, probability, choice);

    perform(device, gate_backward, c->tokens, c->experts, c->top_k, SOFTMAX(c->renormalise),
            probability, NULL, choice, NULL, weight, dweight, auxiliary, dlogits);
    assert_gradient(loss, &g, g.logits, size, dlogits, 150, 1e-5);
}

/* All equal: the lowest ids, in order. */
static void equal_logits_choose_the_lowest(struct mp_device *device, const void *argument) {
    (void)argument;
    enum { EXPERTS = 21, TOP_K = 4 };
    float *logits = new_floats(EXPERTS), *probability = new_floats(EXPERTS);
    float *weight = new_floats(TOP_K);
    int32_t *choice = new_ints(TOP_K);
    for (int e = 0; e < EXPERTS; e++)
        logits[e] = -1.5f;
    perform(device, gate_forward, 1, EXPERTS, TOP_K, SOFTMAX(true), logits, NULL, NULL, probability,
            NULL, choice, weight);
    for (int j = 0; j < TOP_K; j++) {
        assert_int_equal(choice[j], j);
        assert_close(weight[j], 0.25, 1e-6);
    }
}

/* A diverged model must not make the choices wild: they are used as indices. */
static void nan_logits_choose_valid_experts(struct mp_device *device, const void *argument) {
    const struct gate_case *c = argument;
    int size = c->tokens * c->experts;
    float *logits = gate_logits(c), *probability = new_floats((size_t)size);
    float *weight = new_floats((size_t)(c->tokens * c->top_k));
    int32_t *choice = new_ints((size_t)(c->tokens * c->top_k));
    logits[1] = NAN;
    for (int i = c->experts; i < size; i++)
        if (test_random_int(&random_state, 0, 2 * c->experts) == 0)
            logits[i] = i % 2 ? NAN : -NAN;
    perform(device, gate_forward, c->tokens, c->experts, c->top_k, SOFTMAX(false), logits, NULL,
            NULL, probability, NULL, choice, weight);
    for (int t = 0; t < c->tokens; t++) {
        const float *row = probability + t * c->experts;
        bool taken[MOST_EXPERTS] = {false};
        if (!isnan(row[0])) {
            check_choice(c, row, choice + t * c->top_k);
            continue;
        }
        for (int j = 0; j < c->top_k; j++) {
            int expert = choice[t * c->top_k + j];
            assert_in_range(expert, 0, c->experts - 1);
            assert_false(taken[expert]);
            assert_true(!on_cuda(device) || expert == j); /* there, the first ones */
            taken[expert] = true;
            assert_true(isnan(weight[t * c->top_k + j]));
        }
    }
    assert_true(isnan(probability[0]));
}

enum { GOLDEN_TOKENS = 4, GOLDEN_EXPERTS = 4, GOLDEN_ROUTES = 8, GOLDEN_CAPACITY = 2 };

struct golden_drop {
    bool sorted;
    enum mp_route_sort sort;
    int dropped; /* route */
    double weight[GOLDEN_ROUTES];
};

/* Capacities under one order: who is dropped, and what the survivors weigh. */
static void golden_drops(struct mp_device *device, const struct golden_drop *c,
                         const float *probability, const int32_t *choice, const uint32_t *routes) {
    int begin[GOLDEN_EXPERTS + 1], count[GOLDEN_EXPERTS], row[GOLDEN_EXPERTS], rows = 0;
    int32_t *order = new_ints(GOLDEN_ROUTES), *position = new_ints(GOLDEN_ROUTES);
    int32_t *row_token = new_ints(GOLDEN_ROUTES);
    float *weight = new_floats(GOLDEN_ROUTES);
    for (int e = 0; e < GOLDEN_EXPERTS; e++) {
        begin[e] = e;
        count[e] = routes[e] < GOLDEN_CAPACITY ? (int)routes[e] : GOLDEN_CAPACITY;
        row[e] = rows;
        rows += count[e];
    }
    begin[GOLDEN_EXPERTS] = GOLDEN_EXPERTS;
    if (c->sorted)
        perform(device, sort_routes, GOLDEN_TOKENS, 2, GOLDEN_EXPERTS, c->sort, probability, choice,
                1, order);
    perform(device, route_positions, GOLDEN_ROUTES, 2, GOLDEN_EXPERTS, choice,
            c->sorted ? order : NULL, begin, count, row, rows, position, row_token);
    perform(device, survivor_weights, GOLDEN_TOKENS, GOLDEN_EXPERTS, 2, SOFTMAX(true), probability,
            choice, position, weight);
    for (int i = 0; i < GOLDEN_ROUTES; i++) {
        assert_int_equal(position[i] < 0, i == c->dropped);
        assert_within(weight[i], c->weight[i], 5e-5); /* as they are printed */
    }
}

/* V-GATE-1 and V-GATE-4: four tokens, four experts, two choices.  Choices, counts
 * and the balancing loss of the first choices, 1.25; then a capacity of two. */
static void golden_gate(struct mp_device *device, const void *argument) {
    static const double share[] = {.40, .30, .20, .10, .40, .35, .05, .20,
                                   .10, .20, .30, .40, .50, .15, .25, .10};
    static const int32_t chosen[] = {0, 1, 0, 1, 3, 2, 0, 2};
    static const struct golden_drop drops[] = {
        {false, MP_SORT_BY_CHOICE, 6, {.5714, .4286, .5333, .4667, .5714, .4286, 0, 1}},
        {true, MP_SORT_BY_CHOICE, 6, {.5714, .4286, .5333, .4667, .5714, .4286, 0, 1}},
        {true, MP_SORT_BY_PROBABILITY, 2, {.5714, .4286, 0, 1, .5714, .4286, .6667, .3333}},
    };
    float *logits = new_floats(16), *probability = new_floats(16);
    float *weight = new_floats(GOLDEN_ROUTES), *mass = new_floats(GOLDEN_EXPERTS);
    int32_t *choice = new_ints(GOLDEN_ROUTES);
    uint32_t *routes = new_counts(GOLDEN_EXPERTS), *firsts = new_counts(GOLDEN_EXPERTS);
    double balance = 0;
    (void)argument;
    for (int i = 0; i < 16; i++)
        logits[i] = (float)log(share[i]);
    perform(device, gate_forward, GOLDEN_TOKENS, GOLDEN_EXPERTS, 2, SOFTMAX(true), logits, NULL,
            NULL, probability, NULL, choice, weight);
    assert_memory_equal(choice, chosen, sizeof chosen);
    perform(device, gate_statistics, GOLDEN_TOKENS, GOLDEN_EXPERTS, 2, probability, choice, routes,
            firsts, mass);
    assert_memory_equal(routes, ((const uint32_t[]){3, 2, 2, 1}), 4 * sizeof *routes);
    assert_memory_equal(firsts, ((const uint32_t[]){3, 0, 0, 1}), 4 * sizeof *firsts);
    for (int e = 0; e < GOLDEN_EXPERTS; e++)
        balance += (double)mass[e] * firsts[e] / GOLDEN_TOKENS;
    assert_close(balance, 1.25, 1e-6);
    for (size_t d = 0; d < sizeof drops / sizeof *drops; d++)
        golden_drops(device, &drops[d], probability, choice, routes);
}

#define RUN(name, run, ...)                                                                        \
    {                                                                                              \
        name, run, &(const struct gate_case) {                                                     \
            __VA_ARGS__                                                                            \
        }                                                                                          \
    }
#define GATE(name, ...) RUN(name, gate_matches, 0, __VA_ARGS__)
#define NAN_LOGITS(name, ...)                                                                      \
    RUN("NaN logits choose valid experts, " name, nan_logits_choose_valid_experts, 0, __VA_ARGS__, \
        false, false, false)

static const struct device_test tests[] = {
    GATE("top 1 of 8", 12, 8, 1, false, false, false),
    GATE("top 1 of 8, renormalised", 12, 8, 1, true, false, false),
    GATE("top 2 of 13", 30, 13, 2, true, false, false),
    GATE("top 2 of 64, as they are", 25, 64, 2, false, false, false),
    GATE("top 6 of 8", 23, 8, 6, true, false, false),
    GATE("top 6 of 8, as they are", 23, 8, 6, false, false, false),
    GATE("top 8 of 256, as they are", 9, 256, 8, false, false, false),
    GATE("forced, top 8", 11, 20, 8, true, true, false),
    GATE("ties, top 8", 90, 17, 8, true, false, true),
    GATE("top 4 of 37", 19, 37, 4, true, false, false),
    GATE("top 16 of 1024", 5, 1024, 16, true, false, false),
    GATE("all of 3", 6, 3, 3, true, false, false),
    GATE("the only expert", 4, 1, 1, true, false, false),
    GATE("ties", 200, 11, 4, true, false, true),
    GATE("forced, top 2", 17, 10, 2, true, true, false),
    GATE("forced, top 1, as it is", 17, 10, 1, false, true, false),
    GATE("tokens for every thread", 500, 48, 2, true, false, false),
    GATE("no tokens", 0, 8, 2, true, false, false),
    GATE("many tokens", 1500, 8, 2, true, false, false),
    GATE("all of 2, ties", 131, 2, 2, true, false, true),
    GATE("all of 16", 33, 16, 16, true, false, false),
    GATE("9 of 32, ties", 60, 32, 9, false, false, true),
    GATE("11 of 60, ties", 50, 60, 11, true, false, true),
    RUN("2 of 64, not aligned", gate_matches, 1, 50, 64, 2, true, false, false),
    GATE("4 of 128, ties", 40, 128, 4, false, false, true),
    GATE("6 of 101", 30, 101, 6, true, false, false),
    GATE("3 of 333, ties", 20, 333, 3, true, false, true),
    GATE("16 of 512, as they are", 10, 512, 16, false, false, false),
    GATE("2 of 1024, ties", 10, 1024, 2, false, false, true),
    GATE("16 of 1023, forced", 9, 1023, 16, true, true, false),
    GATE("one token", 1, 48, 2, true, false, false),
    {"V-GATE-1 and V-GATE-4", golden_gate, NULL},
    {"equal logits choose the lowest", equal_logits_choose_the_lowest, NULL},
    NAN_LOGITS("2 of 5", 1, 5, 2),
    NAN_LOGITS("4 of 12", 200, 12, 4),
    NAN_LOGITS("7 of 900", 12, 900, 7),
};

int main(void) {
    return run_device_tests("gate", tests, sizeof tests / sizeof *tests);
}
