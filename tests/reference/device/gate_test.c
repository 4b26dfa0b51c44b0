/* Gates by their rules: what they choose, weigh, keep and count against double precision, and
 * gradients against central differences with the choices held still. */
#include "reference/base/random.h"
#include "tests/reference/device/device_support.h"
#include "tests/reference/device/rules.h"

enum { MOST_EXPERTS = 1024, MOST_CHOICES = 16 };

struct rules_case {
    const char *name;
    void (*run)(struct mp_device *device, const struct rules_case *c);
    int tokens, experts, top_k;
    struct mp_gate_rule rule;
    bool biased, forced, ties;
    size_t shift; /* floats from an aligned address to where matrices start */
};

struct gate {
    struct rules_case c;
    double *logits, *dweight, *auxiliary;
    const float *bias, *probability; /* as the device has them */
    const int32_t *choice;
};

static int parts_of(const struct rules_case *c) {
    return c->rule.prototypes ? c->rule.prototypes : 1;
}

/* Number `stream` that is drawn for a token. */
static double drawn(const struct rules_case *c, uint64_t stream, int token) {
    uint64_t number = (uint64_t)(c->rule.first_token + token);
    return ((double)(mp_random_bits(c->rule.seed, stream, number) >> 41) + 0.5) / (1 << 23);
}

static double noisy(const struct rules_case *c, int token, int e, double logit) {
    if (!(c->rule.temperature > 0))
        return logit;
    return (logit - log(-log(drawn(c, 1 + (uint64_t)e, token)))) / (double)c->rule.temperature;
}

static bool is_sigmoid(const struct rules_case *c) {
    return c->rule.scores == MP_SCORES_SIGMOID || c->rule.scores == MP_SCORES_APART;
}

/* Scores as they choose, and their sum in the expert's part. */
static void naive_scores(const struct rules_case *c, int token, const double *logits, double *score,
                         double *sum) {
    int size = c->experts / parts_of(c);
    for (int e = 0; e < c->experts; e++) {
        double logit = noisy(c, token, e, logits[e]);
        score[e] = is_sigmoid(c) ? 1 / (1 + exp(-logit)) : exp(logit);
        sum[e / size] = (e % size ? sum[e / size] : 0) + score[e];
    }
}

/* Of a token, whose logits are given. */
static void naive_probabilities(const struct rules_case *c, int token, const double *logits,
                                double *probability, double sum[MOST_CHOICES]) {
    int size = c->experts / parts_of(c);
    naive_scores(c, token, logits, probability, sum);
    for (int e = 0; e < c->experts && c->rule.scores != MP_SCORES_APART; e++)
        probability[e] /= sum[e / size];
}

/* `scores` is the sum of all experts' scores. */
static void naive_weights(const struct rules_case *c, const double *probability, double scores,
                          const int32_t *choice, double *weight) {
    bool whole = c->rule.scores == MP_SCORES_SIGMOID && !c->rule.renormalise;
    double sum = 0;
    for (int j = 0; j < c->top_k; j++)
        sum += weight[j] = probability[mp_choice_expert(choice[j])];
    for (int j = 0; j < c->top_k; j++) {
        if (c->rule.renormalise || whole)
            weight[j] *=
                (c->rule.scale != 0 ? (double)c->rule.scale : 1) * (whole ? scores : 1 / sum);
        weight[j] *= choice[j] >= 0;
    }
}

/* Who is above the last choice is said by `above`, which may be held still. */
static double naive_alignment(const struct rules_case *c, const float *above,
                              const double *probability, const int32_t *choice) {
    int size = c->experts / c->rule.groups, last = choice[c->top_k - 1];
    double sum = 0;
    for (int e = 0; e < c->experts; e++)
        if (e / size != choice[0] / size && above[e] > above[last])
            sum += probability[e] - probability[last];
    return sum;
}

static double loss(const void *context) {
    const struct gate *g = context;
    const struct rules_case *c = &g->c;
    double total = 0, probability[MOST_EXPERTS], weight[MOST_CHOICES], sum[MOST_CHOICES];
    for (int t = 0; t < c->tokens; t++) {
        const int32_t *choice = g->choice + t * c->top_k;
        naive_probabilities(c, t, g->logits + t * c->experts, probability, sum);
        naive_weights(c, probability, sum[0], choice, weight);
        total += dot_doubles(weight, g->dweight + t * c->top_k, (size_t)c->top_k);
        total += dot_doubles(probability, g->auxiliary, (size_t)c->experts);
        total += (double)c->rule.z_slope * log(sum[0]) * log(sum[0]);
        if (c->rule.alignment_slope > 0)
            total += (double)c->rule.alignment_slope *
                     naive_alignment(c, g->probability + t * c->experts, probability, choice);
    }
    return total;
}

/* The best of [begin, end) that is not taken, the first of equal ones. */
static int best_of(const double *key, const bool *taken, int begin, int end) {
    int best = -1;
    for (int i = begin; i < end; i++)
        if (!taken[i] && (best < 0 || key[i] > key[best]))
            best = i;
    return best;
}

/* The sum of the largest keys of each group, of which all but the best are closed. */
static void close_groups(const struct rules_case *c, const double *key, bool *closed) {
    int size = c->experts / c->rule.groups;
    double score[MOST_EXPERTS] = {0};
    bool taken[MOST_EXPERTS] = {false}, kept[MOST_EXPERTS] = {false};
    for (int g = 0; g < c->rule.groups; g++)
        for (int i = 0; i < c->rule.group_best && i < size; i++) {
            int best = best_of(key, taken, g * size, (g + 1) * size);
            taken[best] = true;
            score[g] += key[best];
        }
    for (int i = 0; i < c->rule.groups_kept; i++)
        kept[best_of(score, kept, 0, c->rule.groups)] = true;
    for (int e = 0; e < c->experts; e++)
        closed[e] = !kept[e / size];
}

/* Choices that are not taken. */
static void leave_choices(const struct rules_case *c, int token, const double *probability,
                          int32_t *choice) {
    double first = probability[choice[0]];
    for (int j = 1; j < c->top_k; j++) {
        double own = probability[choice[j]];
        bool left = own < (double)c->rule.least_weight;
        if (c->rule.random_second)
            left = fmin(1, 2 * own / (first + own)) < drawn(c, 0, token);
        choice[j] = left ? -1 - choice[j] : choice[j];
    }
}

/* Whether an expert takes a token: fewer of the tokens that decide together have a larger
 * probability than it has room for. */
static bool is_taken(const struct gate *g, int token, int expert) {
    const struct rules_case *c = &g->c;
    int first = token - token % c->rule.together, before = 0;
    double own[MOST_EXPERTS], other[MOST_EXPERTS], sum[MOST_CHOICES];
    naive_probabilities(c, token, g->logits + token * c->experts, own, sum);
    for (int t = first; t < first + c->rule.together; t++) {
        naive_probabilities(c, t, g->logits + t * c->experts, other, sum);
        before += other[expert] > own[expert];
    }
    return before < c->rule.capacity;
}

/* Of experts that take it those of largest probability; then any, lower ones first. */
static void be_chosen(const struct gate *g, int token, int32_t *choice) {
    const struct rules_case *c = &g->c;
    double key[MOST_EXPERTS], sum[MOST_CHOICES];
    bool gone[MOST_EXPERTS] = {false};
    naive_probabilities(c, token, g->logits + token * c->experts, key, sum);
    for (int e = 0; e < c->experts; e++)
        key[e] = is_taken(g, token, e) ? key[e] : -1;
    for (int j = 0; j < c->top_k; j++) {
        int best = best_of(key, gone, 0, c->experts);
        gone[best] = true;
        choice[j] = key[best] < 0 ? -1 - best : best;
    }
}

/* The best one, or what the device chose if that is less by no more than its floats err. */
static int as_good(const struct gate *g, int route, const double *key, const bool *taken,
                   int best) {
    int got = g->choice[route] < 0 ? -1 - g->choice[route] : g->choice[route];
    bool near = got < g->c.experts && key[got] < key[best] &&
                key[best] - key[got] <= 3e-6 * fabs(key[best]);
    return near && !taken[got] ? got : best;
}

static void naive_choices(const struct gate *g, int token, const double *logits, int32_t *choice) {
    const struct rules_case *c = &g->c;
    double key[MOST_EXPERTS], sum[MOST_CHOICES];
    bool taken[MOST_EXPERTS] = {false};
    int parts = parts_of(c), size = c->experts / parts;
    if (c->rule.matching == MP_MATCH_EXPERTS) {
        be_chosen(g, token, choice);
        return;
    }
    naive_probabilities(c, token, logits, key, sum);
    for (int e = 0; e < c->experts && c->rule.scores == MP_SCORES_SIGMOID; e++)
        key[e] = key[e] * sum[0] + (g->bias ? (double)g->bias[e] : 0);
    if (c->rule.groups)
        close_groups(c, key, taken);
    for (int j = 0; j < c->top_k; j++) {
        int part = parts > 1 ? j : 0;
        choice[j] = as_good(g, token * c->top_k + j, key, taken,
                            best_of(key, taken, part * size, (part + 1) * size));
        taken[choice[j]] = true;
    }
    leave_choices(c, token, key, choice);
}

static int32_t *random_choices(const struct rules_case *c) {
    int32_t *forced = new_ints((size_t)(c->tokens * c->top_k));
    int parts = parts_of(c), size = c->experts / parts;
    for (int t = 0; t < c->tokens; t++) {
        int first = test_random_int(&random_state, 0, size - 1);
        for (int j = 0; j < c->top_k; j++)
            forced[t * c->top_k + j] = /* distinct ones but for some */
                parts > 1 ? j * size + (first + j) % size
                          : (first + j - (t % 4 == 3 && j == 1)) % c->experts;
        for (int j = 1; j < c->top_k && mp_gate_takes_fewer(&c->rule); j += 2)
            forced[t * c->top_k + j] = -1 - forced[t * c->top_k + j];
    }
    return forced;
}

static float *gate_logits(const struct rules_case *c) {
    float *logits = random_floats((size_t)(c->tokens * c->experts) + c->shift, 3) + c->shift;
    for (int i = 0; c->ties && i < c->tokens * c->experts; i++) /* few values; 0 and -0, too */
        logits[i] = i % 5 ? rintf(0.5f * logits[i]) : -INFINITY;
    return logits;
}

static void check_token(const struct gate *g, int token, const float *probability, float kept,
                        const float *weight) {
    const struct rules_case *c = &g->c;
    const int32_t *choice = g->choice + token * c->top_k;
    double expected[MOST_EXPERTS], sum[MOST_CHOICES], expected_weight[MOST_CHOICES];
    double tolerance =
        3e-6 * fmax(1, c->experts / 300.0); /* sums of as many, all alike with ties */
    naive_probabilities(c, token, g->logits + token * c->experts, expected, sum);
    assert_floats_close(probability, expected, (size_t)c->experts, tolerance);
    naive_weights(c, expected, sum[0], choice, expected_weight);
    assert_floats_close(weight, expected_weight, (size_t)c->top_k, tolerance);
    if (c->rule.alignment_slope > 0)
        assert_within(kept, naive_alignment(c, probability, expected, choice), 3e-6);
    else if (mp_gate_keeps(&c->rule))
        assert_close(kept, c->rule.scores == MP_SCORES_SIGMOID ? sum[0] : log(sum[0]), 3e-6);
}

/* Twice: sums of floats repeat to the last bit. */
static void check_statistics(struct mp_device *device, const struct rules_case *c,
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

/* The token's choices, but for an auction's, which have tests of their own. */
static void check_choices(const struct gate *g, int token, const int32_t *forced) {
    const struct rules_case *c = &g->c;
    const int32_t *choice = g->choice + token * c->top_k;
    int32_t expected[MOST_CHOICES];
    if (c->rule.matching == MP_MATCH_AUCTION && !forced)
        return;
    if (!forced)
        naive_choices(g, token, g->logits + token * c->experts, expected);
    assert_memory_equal(choice, forced ? forced + token * c->top_k : expected,
                        (size_t)c->top_k * sizeof *choice);
}

static void gate_follows_its_rule(struct mp_device *device, const struct rules_case *c) {
    size_t size = (size_t)(c->tokens * c->experts), routes = (size_t)(c->tokens * c->top_k);
    float *logits = gate_logits(c), *probability = new_floats(size + c->shift) + c->shift;
    float *weight = new_floats(routes), *kept = new_floats((size_t)c->tokens);
    float *bias = c->biased ? random_floats((size_t)c->experts, 0.3) : NULL;
    float *dlogits = new_floats(size + c->shift) + c->shift, *dweight = random_floats(routes, 1);
    float *auxiliary = random_floats((size_t)c->experts, 0.5);
    int32_t *forced = c->forced ? random_choices(c) : NULL, *choice = new_ints(routes);
    kept = mp_gate_keeps(&c->rule) ? kept : NULL;
    perform(device, gate_forward, c->tokens, c->experts, c->top_k, &c->rule, logits, bias, forced,
            probability, kept, choice, weight);
    struct gate g = {*c,
                     to_doubles(logits, size),
                     to_doubles(dweight, routes),
                     to_doubles(auxiliary, (size_t)c->experts),
                     bias,
                     probability,
                     choice};
    for (int t = 0; t < c->tokens; t++) {
        check_choices(&g, t, forced);
        check_token(&g, t, probability + t * c->experts, kept ? kept[t] : 0, weight + t * c->top_k);
    }
    check_statistics(device, c, probability, choice);
    perform(device, gate_backward, c->tokens, c->experts, c->top_k, &c->rule, probability, kept,
            choice, NULL, weight, dweight, auxiliary, dlogits);
    assert_gradient(loss, &g, g.logits, size, dlogits, 150, 1e-5);
}

/* A diverged model must not make the choices wild: they are used as indices. */
static void nan_logits_choose_valid_experts(struct mp_device *device, const struct rules_case *c) {
    int size = c->tokens * c->experts;
    float *logits = gate_logits(c), *probability = new_floats((size_t)size);
    float *weight = new_floats((size_t)(c->tokens * c->top_k));
    int32_t *choice = new_ints((size_t)(c->tokens * c->top_k));
    logits[1] = NAN;
    for (int i = c->experts; i < size; i++)
        if (test_random_int(&random_state, 0, 2 * c->experts) == 0)
            logits[i] = i % 2 ? NAN : -NAN;
    perform(device, gate_forward, c->tokens, c->experts, c->top_k, &c->rule, logits, NULL, NULL,
            probability, NULL, choice, weight);
    struct gate g = {.c = *c, .logits = to_doubles(logits, (size_t)size), .choice = choice};
    for (int t = 0; t < c->tokens; t++) {
        bool taken[MOST_EXPERTS] = {false};
        if (!isnan(probability[t * c->experts])) {
            check_choices(&g, t, NULL);
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

/* The largest sum of logits that token `token` and those behind it can have, of experts with so
 * much room left. */
static double best_sum(const float *logits, int tokens, int experts, int room[], int token) {
    double best = -INFINITY;
    if (token == tokens)
        return 0;
    for (int e = 0; e < experts; e++) {
        if (room[e] == 0)
            continue;
        room[e]--;
        best = fmax(best, (double)logits[token * experts + e] +
                              best_sum(logits, tokens, experts, room, token + 1));
        room[e]++;
    }
    return best;
}

static const struct {
    const char *name;
    int tokens, experts, groups;
    float accuracy;
    double range; /* of logits, in eighths */
} auctions[] = {
    {"8 tokens, 4 experts", 8, 4, 60, 1e-3f, 24}, {"12 tokens, 3 experts", 12, 3, 8, 1e-3f, 24},
    {"7 tokens, 7 experts", 7, 7, 20, 1e-3f, 40}, {"6 tokens, 1 expert", 6, 1, 2, 0.02f, 40},
    {"wide steps", 8, 4, 60, 0.02f, 400},
};

/* Every expert has as many tokens of each group, whose sum is the largest there is where so many
 * steps are less than logits are apart, and otherwise nearly. */
DEVICE_EACH(auction_is_as_good_as_it_says, auctions) {
    int capacity = c->tokens / c->experts, all = c->tokens * c->groups;
    size_t size = (size_t)(all * c->experts);
    const struct mp_gate_rule rule = {.scores = MP_SCORES_APART,
                                      .matching = MP_MATCH_AUCTION,
                                      .together = c->tokens,
                                      .capacity = capacity,
                                      .accuracy = c->accuracy};
    float *logits = random_floats(size, c->range), *probability = new_floats(size);
    float *weight = new_floats((size_t)all);
    int32_t *choice = new_ints((size_t)all);
    for (size_t i = 0; i < size; i++)
        logits[i] = roundf(logits[i]) / 8;
    perform(device, gate_forward, all, c->experts, 1, &rule, logits, NULL, NULL, probability, NULL,
            choice, weight);
    for (int g = 0; g < c->groups; g++) {
        const float *own = logits + g * c->tokens * c->experts;
        int room[MOST_EXPERTS];
        float least = INFINITY, most = -INFINITY;
        double sum = 0, slack;
        for (int e = 0; e < c->experts; e++)
            room[e] = capacity;
        for (int i = 0; i < c->tokens * c->experts; i++) {
            least = fminf(least, own[i]);
            most = fmaxf(most, own[i]);
        }
        for (int t = 0; t < c->tokens; t++) {
            int32_t chosen = choice[g * c->tokens + t];
            assert_in_range(chosen, 0, c->experts - 1);
            room[chosen]--;
            sum += (double)own[t * c->experts + chosen];
        }
        for (int e = 0; e < c->experts; e++) {
            assert_int_equal(room[e], 0);
            room[e] = capacity;
        }
        slack = c->tokens * fmax(1e-4, (double)((most - least) * c->accuracy));
        slack = slack < 1. / 8 ? 1e-5 : slack * 1.0001;
        assert_true(sum >= best_sum(own, c->tokens, c->experts, room, 0) - slack);
    }
}

/* All tokens want the same expert, by the same; and logits that are no numbers, or infinite. */
DEVICE_TEST(auctions_end) {
    enum { TOKENS = 64, EXPERTS = 8 };
    const struct mp_gate_rule rule = {.scores = MP_SCORES_FORCED,
                                      .matching = MP_MATCH_AUCTION,
                                      .together = TOKENS,
                                      .capacity = TOKENS / EXPERTS,
                                      .accuracy = 1e-5f};
    static const float first[] = {5, 1e30f, INFINITY, -INFINITY, NAN};
    float *logits = new_floats(TOKENS * EXPERTS), *probability = new_floats(TOKENS * EXPERTS);
    float *weight = new_floats(TOKENS);
    int32_t *choice = new_ints(TOKENS);
    memset(logits, 0, TOKENS * EXPERTS * sizeof *logits);
    for (int i = 0; i < 5; i++) {
        int held[EXPERTS] = {0};
        for (int t = 0; t < TOKENS; t++)
            logits[t * EXPERTS] = first[i];
        perform(device, gate_forward, TOKENS, EXPERTS, 1, &rule, logits, NULL, NULL, probability,
                NULL, choice, weight);
        for (int t = 0; t < TOKENS; t++) {
            assert_in_range(choice[t], 0, EXPERTS - 1);
            assert_true(weight[t] == 1);
            held[choice[t]]++;
        }
        for (int e = 0; e < EXPERTS; e++)
            assert_int_equal(held[e], TOKENS / EXPERTS);
    }
}

/* Of equal probabilities an expert takes the earlier tokens'; with room for all, every token has
 * the top_k largest. */
DEVICE_TEST(experts_take_earlier_tokens) {
    enum { TOKENS = 12, EXPERTS = 4, TOP_K = 2 };
    struct mp_gate_rule rule = {.matching = MP_MATCH_EXPERTS, .together = 6, .capacity = 2};
    float *logits = new_floats(TOKENS * EXPERTS), *probability = new_floats(TOKENS * EXPERTS);
    float *weight = new_floats(TOKENS * TOP_K);
    int32_t *choice = new_ints(TOKENS * TOP_K);
    memset(logits, 0, TOKENS * EXPERTS * sizeof *logits);
    perform(device, gate_forward, TOKENS, EXPERTS, TOP_K, &rule, logits, NULL, NULL, probability,
            NULL, choice, weight);
    for (int t = 0; t < TOKENS; t++)
        for (int j = 0; j < TOP_K; j++) {
            assert_int_equal(choice[t * TOP_K + j], t % 6 < 2 ? j : -1 - j);
            assert_true(weight[t * TOP_K + j] == (t % 6 < 2 ? 0.25f : 0));
        }
}

/* Four tokens, four experts, two choices. */
static const double golden_share[] = {.40, .30, .20, .10, .40, .35, .05, .20,
                                      .10, .20, .30, .40, .50, .15, .25, .10};
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

static float *golden_logits(void) {
    float *logits = new_floats(GOLDEN_TOKENS * GOLDEN_EXPERTS);
    for (int i = 0; i < GOLDEN_TOKENS * GOLDEN_EXPERTS; i++)
        logits[i] = (float)log(golden_share[i]);
    return logits;
}

/* V-GATE-1 and V-GATE-4: choices, counts and the balancing loss of the first choices, 1.25; then a
 * capacity of two. */
DEVICE_TEST(golden_gate) {
    static const int32_t chosen[] = {0, 1, 0, 1, 3, 2, 0, 2};
    static const struct golden_drop drops[] = {
        {false, MP_SORT_BY_CHOICE, 6, {.5714, .4286, .5333, .4667, .5714, .4286, 0, 1}},
        {true, MP_SORT_BY_CHOICE, 6, {.5714, .4286, .5333, .4667, .5714, .4286, 0, 1}},
        {true, MP_SORT_BY_PROBABILITY, 2, {.5714, .4286, 0, 1, .5714, .4286, .6667, .3333}},
    };
    float *logits = golden_logits(), *probability = new_floats(16);
    float *weight = new_floats(GOLDEN_ROUTES), *mass = new_floats(GOLDEN_EXPERTS);
    int32_t *choice = new_ints(GOLDEN_ROUTES);
    uint32_t *routes = new_counts(GOLDEN_EXPERTS), *firsts = new_counts(GOLDEN_EXPERTS);
    double balance = 0;
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

/* V-GATE-2: the same probabilities in two groups, of which one is kept. */
DEVICE_TEST(golden_groups) {
    static const int32_t chosen[] = {0, 1, 0, 1, 3, 2, 0, 1};
    const struct mp_gate_rule rule = {.groups = 2, .groups_kept = 1, .group_best = 2};
    float *logits = golden_logits(), *probability = new_floats(16);
    float *weight = new_floats(GOLDEN_ROUTES);
    int32_t *choice = new_ints(GOLDEN_ROUTES);
    perform(device, gate_forward, GOLDEN_TOKENS, GOLDEN_EXPERTS, 2, &rule, logits, NULL, NULL,
            probability, NULL, choice, weight);
    assert_memory_equal(choice, chosen, sizeof chosen);
}

/* A forced choice has all the weight, and nothing passes a gradient on. */
DEVICE_TEST(forced_scores_learn_nothing) {
    enum { TOKENS = 9, EXPERTS = 5 };
    const struct mp_gate_rule rule = {.scores = MP_SCORES_FORCED};
    float *probability = random_floats(TOKENS * EXPERTS, 1), *weight = new_floats(TOKENS);
    float *dlogits = random_floats(TOKENS * EXPERTS, 1), *slope = random_floats(TOKENS, 1);
    int32_t *forced = new_ints(TOKENS), *choice = new_ints(TOKENS);
    for (int t = 0; t < TOKENS; t++)
        forced[t] = test_random_int(&random_state, 0, EXPERTS - 1);
    perform(device, gate_forward, TOKENS, EXPERTS, 1, &rule, dlogits, NULL, forced, probability,
            NULL, choice, weight);
    perform(device, gate_backward, TOKENS, EXPERTS, 1, &rule, probability, NULL, choice, NULL,
            weight, slope, slope, dlogits);
    assert_memory_equal(choice, forced, TOKENS * sizeof *choice);
    for (int i = 0; i < TOKENS * EXPERTS; i++) {
        assert_true(probability[i] == (float)(forced[i / EXPERTS] == i % EXPERTS));
        assert_true(dlogits[i] == 0 && weight[i / EXPERTS] == 1);
    }
}

/* 3 tokens with 2 choices, of which (0, 1), (1, 0) and (2, 1) are not taken: no counts, no rows,
 * though they are sorted with all others. */
DEVICE_TEST(routes_not_taken_have_no_row) {
    static const int32_t chosen[] = {0, -2, 1, -1, 0, -2}, first_come[] = {1, -1, 0, -1, 2, -1};
    static const int32_t likely[] = {2, -1, 0, -1, 1, -1}, sorted[] = {4, 2, 0, 3, 5, 1};
    static const float share[] = {.5f, .1f, .4f, .6f, .9f, .2f};
    static const uint32_t counted[] = {2, 1};
    static const int begin[] = {0, 1, 2}, count[] = {2, 1}, row[] = {1, 0};
    float *probability = new_floats(6), *mass = new_floats(2);
    int32_t *choice = new_ints(6), *order = new_ints(6), *position = new_ints(6);
    int32_t *token = new_ints(3);
    uint32_t *routes = (uint32_t *)new_ints(2), *firsts = (uint32_t *)new_ints(2);
    memcpy(choice, chosen, sizeof chosen);
    memcpy(probability, share, sizeof share);
    perform(device, gate_statistics, 3, 2, 2, probability, choice, routes, firsts, mass);
    assert_memory_equal(routes, counted, sizeof counted);
    assert_memory_equal(firsts, counted, sizeof counted);
    perform(device, route_positions, 6, 2, 2, choice, NULL, begin, count, row, 3, position, token);
    assert_memory_equal(position, first_come, sizeof first_come);
    perform(device, sort_routes, 3, 2, 2, MP_SORT_BY_PROBABILITY, probability, choice, 0, order);
    assert_memory_equal(order, sorted, sizeof sorted);
    perform(device, route_positions, 6, 2, 2, choice, order, begin, count, row, 3, position, token);
    assert_memory_equal(position, likely, sizeof likely);
    assert_true(token[0] == 1 && token[1] == 2 && token[2] == 0);
}

/* V-GATE-5: slots of second choices come after those of all first ones of their expert. */
DEVICE_TEST(seconds_follow_firsts) {
    static const int32_t chosen[] = {0, 1, 0, 1, 1, 0}, slots[] = {0, 4, 1, 5, 3, 2};
    static const int begin[] = {0, 1, 2}, count[] = {3, 3}, row[] = {0, 3};
    float *probability = random_floats(6, 1);
    int32_t *choice = new_ints(6), *order = new_ints(6), *position = new_ints(6);
    int32_t *token = new_ints(6);
    memcpy(choice, chosen, sizeof chosen);
    perform(device, sort_routes, 3, 2, 2, MP_SORT_BY_CHOICE, probability, choice, 0, order);
    perform(device, route_positions, 6, 2, 2, choice, order, begin, count, row, 6, position, token);
    assert_memory_equal(position, slots, sizeof slots);
}

/* Rows: tokens, experts, choices; whether there is a bias, are forced choices, are ties; shift. */
#define RUN(name, run, tokens, experts, top_k, biased, forced, ties, shift, ...)                   \
    { name, run, tokens, experts, top_k, {__VA_ARGS__}, biased, forced, ties, shift }
#define RULE(name, tokens, experts, top_k, biased, forced, ...)                                    \
    RUN(name, gate_follows_its_rule, tokens, experts, top_k, biased, forced, false, 0, __VA_ARGS__)
#define GATE(name, tokens, experts, top_k, divided, forced, ties)                                  \
    RUN(name, gate_follows_its_rule, tokens, experts, top_k, false, forced, ties, 0,               \
        .renormalise = divided)
#define NAN_LOGITS(name, tokens, experts, top_k)                                                   \
    RUN("NaN logits choose valid experts, " name, nan_logits_choose_valid_experts, tokens,         \
        experts, top_k, false, false, false, 0, .renormalise = false)
#define RANDOM_SECOND .random_second = true, .seed = 77, .first_token = 1000
#define NOISE(heat) .temperature = heat, .seed = 78, .first_token = 50
#define AUCTION(tokens, room)                                                                      \
    .matching = MP_MATCH_AUCTION, .together = tokens, .capacity = room, .accuracy = 0.02f
#define EXPERTS_CHOOSE(tokens, room)                                                               \
    .matching = MP_MATCH_EXPERTS, .together = tokens, .capacity = room
#define SIGMOID .scores = MP_SCORES_SIGMOID, .renormalise = true

static const struct rules_case cases[] = {
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
    RUN("2 of 64, not aligned", gate_follows_its_rule, 50, 64, 2, false, false, false, 1,
        .renormalise = true),
    GATE("4 of 128, ties", 40, 128, 4, false, false, true),
    GATE("6 of 101", 30, 101, 6, true, false, false),
    GATE("3 of 333, ties", 20, 333, 3, true, false, true),
    GATE("16 of 512, as they are", 10, 512, 16, false, false, false),
    GATE("2 of 1024, ties", 10, 1024, 2, false, false, true),
    GATE("16 of 1023, forced", 9, 1023, 16, true, true, false),
    GATE("one token", 1, 48, 2, true, false, false),
    NAN_LOGITS("2 of 5", 1, 5, 2),
    NAN_LOGITS("4 of 12", 200, 12, 4),
    NAN_LOGITS("7 of 900", 12, 900, 7),
    RULE("2 prototypes of 4", 20, 8, 2, false, false, .prototypes = 2),
    RULE("3 prototypes of 7", 20, 21, 3, false, false, .prototypes = 3),
    RULE("4 prototypes of 4, forced", 20, 16, 4, false, true, .prototypes = 4),
    RULE("8 prototypes of one", 5, 8, 8, false, false, .prototypes = 8),
    RULE("router z-loss", 20, 12, 2, false, false, .renormalise = true, .z_slope = 0.2f),
    RULE("router z-loss, forced", 20, 12, 1, false, true, .z_slope = 0.05f),
    RULE("2 of one of 4 groups", 20, 16, 2, false, false, .groups = 4, .groups_kept = 1,
         .group_best = 4, .alignment_slope = 0.3f),
    RULE("3 of one of 3 groups, forced", 20, 15, 3, false, true, .groups = 3, .groups_kept = 1,
         .group_best = 15, .alignment_slope = 0.3f),
    RULE("1 of one of 2 groups", 20, 6, 1, false, false, .groups = 2, .groups_kept = 1,
         .group_best = 3, .alignment_slope = 0.3f),
    RULE("sigmoid, 2 of 8", 20, 8, 2, false, false, SIGMOID),
    RULE("sigmoid, 1 of 8, scaled", 20, 8, 1, true, false, SIGMOID, .scale = 2.5f),
    RULE("sigmoid, 1 of 8, not divided", 20, 8, 1, true, false, .scores = MP_SCORES_SIGMOID),
    RULE("sigmoid, 2 of 40, not divided, scaled", 20, 40, 2, false, false,
         .scores = MP_SCORES_SIGMOID, .scale = 2.5f),
    RULE("sigmoid, 5 of 13, bias", 30, 13, 5, true, false, SIGMOID, .scale = 0.5f),
    RULE("sigmoid, 8 of 4 of 8 groups, bias", 30, 64, 8, true, false, SIGMOID, .scale = 2.5f,
         .groups = 8, .groups_kept = 4, .group_best = 2),
    RULE("sigmoid, 2 of 2 of 4 groups", 30, 20, 2, false, false, SIGMOID, .groups = 4,
         .groups_kept = 2, .group_best = 1),
    RULE("sigmoid, 3 of 9, forced", 30, 9, 3, true, true, SIGMOID, .scale = 2.5f),
    RULE("random second of 8", 60, 8, 2, false, false, .renormalise = true, RANDOM_SECOND),
    RULE("random second of 40, forced", 20, 40, 2, false, true, .renormalise = true, RANDOM_SECOND),
    RULE("least weight of 5 of 12", 40, 12, 5, false, false, .least_weight = 0.1f),
    RULE("least weight of 3 of 8, forced, divided", 20, 8, 3, false, true, .renormalise = true,
         .least_weight = 0.1f),
    RULE("noise, hot, 8 of 8", 40, 8, 8, false, false, .least_weight = 0.1f, NOISE(2)),
    RULE("noise, cold, 16 of 50", 40, 50, 16, false, false, .least_weight = 0.1f, NOISE(0.3f)),
    RULE("no tokens", 0, 8, 2, true, false, SIGMOID, .groups = 2, .groups_kept = 1,
         .group_best = 2),
    RULE("auction, 4 groups", 32, 4, 1, false, false, .scores = MP_SCORES_APART, AUCTION(8, 2)),
    RULE("auction, forced", 24, 6, 1, false, true, .scores = MP_SCORES_APART, AUCTION(12, 2)),
    RULE("experts choose, 2 of 8", 32, 8, 2, false, false, EXPERTS_CHOOSE(16, 4)),
    RULE("experts choose, 16 of 40", 34, 40, 16, false, false, EXPERTS_CHOOSE(17, 5)),
    RULE("experts choose, 4 of 4", 12, 4, 4, false, false, EXPERTS_CHOOSE(4, 1)),
    RULE("experts choose, forced", 16, 8, 4, false, true, EXPERTS_CHOOSE(8, 4)),
};

DEVICE_EACH(rules, cases) {
    c->run(device, c);
}

DEVICE_PROGRAM(.limits = &test_limits);
