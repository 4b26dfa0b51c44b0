/* Who is served first, what survivors weigh, and choices under a limit: against
 * plain models that look at every pair of routes. */
#include <float.h>

#include "tests/reference/device/device_support.h"
#include "tests/reference/device/rules.h"

struct routes_case {
    const char *name;
    int tokens, experts, top_k;
    enum mp_route_sort sort;
    bool ties; /* few different probabilities, 0 and -0 among them */
};

/* Probabilities, and distinct choices of every token. */
struct routes {
    struct routes_case c;
    int count;
    float *probability;
    int32_t *choice;
    uint64_t seed;
};

static void random_routes(const struct routes_case *c, struct routes *routes) {
    *routes = (struct routes){.c = *c, .count = c->tokens * c->top_k};
    routes->probability = random_floats((size_t)(c->tokens * c->experts), 1);
    routes->choice = new_ints((size_t)routes->count);
    for (int i = 0; i < c->tokens * c->experts; i++)
        routes->probability[i] =
            c->ties ? 0.25f * rintf(3 * routes->probability[i]) : fabsf(routes->probability[i]);
    for (int i = 0; i < routes->count; i++) {
        int first = i / c->top_k * c->top_k;
        routes->choice[i] = test_random_int(&random_state, 0, c->experts - 1);
        for (int j = first; j < i; j++)
            if (routes->choice[j] == routes->choice[i]) {
                i--; /* once more */
                break;
            }
    }
    routes->seed = ((uint64_t)test_random_int(&random_state, 0, 1 << 30) << 32) |
                   (uint64_t)test_random_int(&random_state, 0, 1 << 30);
}

static float probability_of(const struct routes *routes, int route) {
    int token = route / routes->c.top_k;
    return routes->probability[token * routes->c.experts + routes->choice[route]];
}

/* The upper half of number `route` of SplitMix64, stepping through all before it. */
static uint32_t drawn(uint64_t seed, int route) {
    uint64_t number = 0;
    for (int i = 0; i <= route; i++)
        number = test_random(&seed);
    return (uint32_t)(number >> 32);
}

static bool comes_before(const struct routes *routes, int a, int b) {
    double key[2];
    for (int i = 0; i < 2; i++) {
        int route = i ? b : a;
        switch (routes->c.sort) {
        case MP_SORT_BY_CHOICE:
            key[i] = route % routes->c.top_k;
            break;
        case MP_SORT_BY_PROBABILITY:
            key[i] = -(double)probability_of(routes, route);
            break;
        case MP_SORT_AT_RANDOM:
            key[i] = drawn(routes->seed, route);
            break;
        }
    }
    return key[0] < key[1] || (key[0] == key[1] && a < b);
}

static const struct routes_case sorted[] = {
    {"by choice", 60, 8, 2, MP_SORT_BY_CHOICE, false},
    {"by probability", 70, 9, 2, MP_SORT_BY_PROBABILITY, false},
    {"by probability, ties", 70, 5, 3, MP_SORT_BY_PROBABILITY, true},
    {"by probability, top 1", 150, 16, 1, MP_SORT_BY_PROBABILITY, false},
    {"at random", 80, 12, 2, MP_SORT_AT_RANDOM, false},
    {"one route", 1, 1, 1, MP_SORT_AT_RANDOM, false},
    {"no tokens", 0, 4, 2, MP_SORT_BY_PROBABILITY, false},
    {"no tokens by choice", 0, 4, 2, MP_SORT_BY_CHOICE, false},
    {"many by choice", 700, 8, 3, MP_SORT_BY_CHOICE, false},
    {"many by probability", 2000, 8, 2, MP_SORT_BY_PROBABILITY, false},
    {"many with ties", 1500, 16, 2, MP_SORT_BY_PROBABILITY, true},
    {"as many as may be at random", 1024, 4, 4, MP_SORT_AT_RANDOM, false},
};

DEVICE_EACH(routes_are_sorted, sorted) {
    struct routes routes;
    random_routes(c, &routes);
    int32_t *order = new_ints((size_t)routes.count);
    bool *seen = new_host((size_t)routes.count + 1, sizeof *seen);
    perform(device, sort_routes, routes.c.tokens, routes.c.top_k, routes.c.experts, routes.c.sort,
            routes.probability, routes.choice, routes.seed, order);
    for (int i = 0; i < routes.count; i++) {
        assert_in_range(order[i], 0, routes.count - 1);
        assert_false(seen[order[i]]);
        seen[order[i]] = true;
        if (i > 0)
            assert_true(comes_before(&routes, order[i - 1], order[i]));
    }
}

/* ---- Weights of survivors ---- */

struct survivors_case {
    const char *name;
    int tokens, experts, top_k;
};

struct survivors {
    struct survivors_case c;
    double *logits, *dweight, *auxiliary;
    const int32_t *choice, *position;
};

static double survivors_loss(const void *context) {
    const struct survivors *s = context;
    double loss = 0;
    for (int t = 0; t < s->c.tokens; t++) {
        const double *logits = s->logits + t * s->c.experts;
        double all = 0, kept = 0;
        for (int e = 0; e < s->c.experts; e++)
            all += exp(logits[e]);
        for (int e = 0; e < s->c.experts; e++)
            loss += s->auxiliary[e] * exp(logits[e]) / all;
        for (int j = t * s->c.top_k; j < (t + 1) * s->c.top_k; j++)
            kept += s->position[j] < 0 ? 0 : exp(logits[s->choice[j]]);
        for (int j = t * s->c.top_k; j < (t + 1) * s->c.top_k; j++)
            loss += s->position[j] < 0 ? 0 : s->dweight[j] * exp(logits[s->choice[j]]) / kept;
    }
    return loss;
}

static const struct survivors_case surviving[] = {
    {"top 1", 30, 7, 1},      {"top 2", 40, 11, 2},
    {"top 5", 25, 18, 5},     {"2 of 64", 90, 64, 2},
    {"8 of 256", 33, 256, 8}, {"16 of 1023", 9, 1023, 16},
    {"no tokens", 0, 40, 2},  {"tokens for every thread", 2000, 6, 2},
};

DEVICE_EACH(survivors_share_the_weight, surviving) {
    int n = c->tokens, k = c->top_k, e = c->experts;
    size_t size = (size_t)(n * e), routes = (size_t)(n * k);
    float *logits = random_floats(size, 2), *probability = new_floats(size);
    float *weight = new_floats(routes), *dlogits = new_floats(size);
    float *dweight = random_floats(routes, 1), *auxiliary = random_floats((size_t)e, 0.5);
    int32_t *choice = new_ints(routes), *position = new_ints(routes);
    perform(device, gate_forward, n, e, k, SOFTMAX(true), logits, NULL, NULL, probability, NULL,
            choice, weight);
    for (size_t i = 0; i < routes; i++) {
        position[i] = test_random_int(&random_state, 0, 2) ? (int32_t)i : -1;
        if (position[i] < 0)
            dweight[i] = 0; /* as combine_backward has it */
    }
    perform(device, survivor_weights, n, e, k, SOFTMAX(true), probability, choice, position,
            weight);
    for (int t = 0; t < n; t++) {
        double kept = 0, sum = 0;
        for (int j = t * k; j < (t + 1) * k; j++)
            kept += position[j] < 0 ? 0 : (double)probability[t * e + choice[j]];
        for (int j = t * k; j < (t + 1) * k; j++) {
            double expected = position[j] < 0 ? 0 : probability[t * e + choice[j]] / kept;
            assert_close(weight[j], expected, 1e-6);
            sum += weight[j];
        }
        assert_close(sum, kept > 0, 1e-6);
    }
    struct survivors s = {*c,
                          to_doubles(logits, size),
                          to_doubles(dweight, routes),
                          to_doubles(auxiliary, (size_t)e),
                          choice,
                          position};
    /* `renormalise` makes no difference: weights are what they are. */
    perform(device, gate_backward, n, e, k, SOFTMAX(test_random_int(&random_state, 0, 1)),
            probability, NULL, choice, position, weight, dweight, auxiliary, dlogits);
    assert_gradient(survivors_loss, &s, s.logits, size, dlogits, 200, 1e-5);
}

/* A survivor of probability 0 has weight 0, not 0 / 0, and so has its gradient. */
DEVICE_TEST(impossible_survivors_have_no_weight) {
    float *probability = copy_floats((const float[]){1, 0, 0, 0.5f, FLT_MIN / 4, 0.5f}, 6);
    float *dweight = copy_floats((const float[]){0, 3, 0, 2}, 4);
    float *auxiliary = copy_floats((const float[]){0, 0, 0}, 3);
    int32_t *choice = copy_ints((const int32_t[]){0, 1, 0, 1}, 4);
    int32_t *position = copy_ints((const int32_t[]){-1, 0, -1, 1}, 4);
    float *weight = new_floats(4), *dlogits = new_floats(6);
    perform(device, survivor_weights, 2, 3, 2, SOFTMAX(true), probability, choice, position,
            weight);
    assert_numbers(weight[0], 0, weight[1], 0);
    assert_close(weight[3], 0.25, 1e-6);
    perform(device, gate_backward, 2, 3, 2, SOFTMAX(true), probability, NULL, choice, position,
            weight, dweight, auxiliary, dlogits);
    for (int i = 0; i < 6; i++)
        assert_true(isfinite(dlogits[i]));
    assert_close(dlogits[1], 0, 0);
    /* w = p / FLT_MIN: dp = 2 / FLT_MIN, and p (dp - p dp) is 0.5. */
    assert_close(dlogits[4], 0.5, 1e-6);
}

/* ---- Choices under a limit ---- */

enum { JUST_ENOUGH = -1 }; /* a limit of as many as there are */

struct limit_case {
    const char *name;
    int tokens, experts;
    int first, end; /* experts inside */
    int limit;
    bool ties;
};

static bool is_inside(const struct limit_case *c, int expert) {
    return expert >= c->first && expert < c->end;
}

/* The largest logit of the experts but `not`; the lowest id of equal ones. */
static int largest(const struct limit_case *c, const float *logits, bool inside_only, int not ) {
    int best = -1;
    for (int e = 0; e < c->experts; e++)
        if (e != not &&(!inside_only || is_inside(c, e)) && (best < 0 || logits[e] > logits[best]))
            best = e;
    return best;
}

/* First faster_gate of FastMoE's tests: 8 workers with 1 or 4 experts each, nodes of 2, 4 and 8,
 * batch 16, fraction 0.2. */
static const struct limit_case limited[] = {
    {"8 experts, nodes of 2", 16, 8, 2, 4, 3, false},
    {"8 experts, nodes of 4", 16, 8, 4, 8, 3, false},
    {"8 experts, one node", 16, 8, 0, 8, 3, false},
    {"32 experts, nodes of 2", 16, 32, 8, 16, 3, false},
    {"32 experts, nodes of 4", 16, 32, 0, 16, 3, false},
    {"32 experts, one node", 16, 32, 0, 32, 3, false},
    {"nobody may leave", 60, 12, 3, 7, 0, false},
    {"everybody may leave", 60, 12, 3, 7, 60, false},
    {"ties", 200, 6, 1, 4, 20, true},
    {"many tokens", 1500, 24, 20, 24, 210, false},
    {"no tokens", 0, 4, 0, 2, 1, false},
    {"just enough", 300, 12, 5, 12, JUST_ENOUGH, false},
    {"64 experts", 1000, 64, 50, 64, 333, false},
    {"77 experts, ties", 200, 77, 33, 77, 50, true},
    {"300 experts", 90, 300, 200, 300, 20, false},
    {"1024 experts", 40, 1024, 1022, 1024, 10, false},
    {"one token", 1, 3, 1, 3, 0, false},
};

DEVICE_EACH(outgoing_tokens_are_limited, limited) {
    float *logits = random_floats((size_t)(c->tokens * c->experts), 4);
    int32_t *choice = new_ints(2 * (size_t)c->tokens);
    bool *inside = new_host((size_t)c->experts, sizeof *inside);
    int wanted = 0, outgoing = 0, firsts = 0;
    int *bests = new_host((size_t)c->tokens, sizeof *bests);
    for (int i = 0; c->ties && i < c->tokens * c->experts; i++)
        logits[i] = i % 3 ? rintf(logits[i] / 2) : -INFINITY; /* 0 and -0, too */
    for (int e = 0; e < c->experts; e++)
        inside[e] = is_inside(c, e);
    for (int t = 0; t < c->tokens; t++) {
        bests[t] = largest(c, logits + t * c->experts, false, -1);
        wanted += !inside[bests[t]];
    }
    int limit = c->limit == JUST_ENOUGH ? wanted : c->limit;
    perform(device, limit_choices, c->tokens, c->experts, logits, inside, limit, choice);
    for (int t = 0; t < c->tokens; t++) {
        const float *row = logits + t * c->experts;
        int best = bests[t], before = 0;
        for (int other = 0; other < c->tokens; other++) {
            float there = logits[other * c->experts + bests[other]];
            before +=
                !inside[bests[other]] && (there > row[best] || (there == row[best] && other < t));
        }
        bool keep_inside = wanted > limit;
        int first = largest(c, row, keep_inside, -1);
        int second = largest(c, row, keep_inside, first);
        if (keep_inside && !is_inside(c, best) && before < limit)
            second = best;
        assert_numbers(choice[2 * t], first, choice[2 * t + 1], second);
        outgoing += keep_inside && (!inside[first] || !inside[second]);
        firsts += !inside[first];
    }
    if (wanted > limit) {
        assert_int_equal(outgoing, limit);
        assert_int_equal(firsts, 0);
    } else {
        assert_int_equal(firsts, wanted);
    }
}

DEVICE_PROGRAM(.limits = &test_limits);
