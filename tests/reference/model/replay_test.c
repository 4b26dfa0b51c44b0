/* Replayed gating: apportioned counts are those of the largest remainders, and choices reproduce
 * counts exactly, each token choosing distinct experts. */
#include "reference/model/replay.h"

#include "tests/errors.h"

enum { MOST_EXPERTS = 64, MOST_TOKENS = 400, MOST_K = 4 };
static uint64_t random_state;

static const struct apportionment {
    const char *name;
    int experts;
    double weight[8];
    int64_t routes;
    uint32_t count[8];
} apportionments[] = {
    {"even, nothing left", 4, {1, 1, 1, 1}, 12, {3, 3, 3, 3}},
    {"even, ties to the lower id", 4, {1, 1, 1, 1}, 10, {3, 3, 2, 2}},
    /* quotas 3.3, 3.3, 3.3 and .1: floors 3, 3, 3, 0, one left */
    {"equal remainders", 4, {33, 33, 33, 1}, 10, {4, 3, 3, 0}},
    /* quotas 4.7, 1.6, 1.58, 1.2, .61, .31 of Hamilton's method for 10 seats of 100 votes */
    {"six parties", 6, {47, 16, 15.8, 12, 6.1, 3.1}, 10, {5, 2, 1, 1, 1, 0}},
    /* quotas 1/3 and 4/3 and 7/3: equal remainders beside different whole parts */
    {"thirds", 3, {1, 4, 7}, 4, {1, 1, 2}},
    {"no weight, no route", 4, {0, 5, 0, 2}, 8, {0, 6, 0, 2}},
    {"all on one", 3, {0, 0, 2}, 7, {0, 0, 7}},
    {"fewer routes than experts", 5, {1, 1, 1, 1, 1}, 2, {1, 1, 0, 0, 0}},
    {"no routes", 2, {1, 3}, 0, {0, 0}},
};

TEST_EACH(apportions_by_largest_remainder, apportionments, a) {
    uint32_t count[8];
    assert_works(mp_replay_apportion(a->experts, a->weight, a->routes, count, &error));
    assert_memory_equal(count, a->count, (size_t)a->experts * sizeof *count);
}

/* The same in whole numbers: quota = routes * weight / total. */
static void apportion_exactly(int experts, const double weight[], int64_t routes,
                              uint32_t count[]) {
    int64_t total = 0, given = 0, remainder[MOST_EXPERTS];
    for (int e = 0; e < experts; e++)
        total += (int64_t)weight[e];
    for (int e = 0; e < experts; e++) {
        count[e] = (uint32_t)(routes * (int64_t)weight[e] / total);
        remainder[e] = routes * (int64_t)weight[e] % total;
        given += count[e];
    }
    for (; given < routes; given++) {
        int best = 0;
        for (int e = 1; e < experts; e++)
            if (remainder[e] > remainder[best])
                best = e;
        count[best]++;
        remainder[best] = -1;
    }
}

TEST(apportions_whole_weights_exactly) {
    for (int round = 0; round < 3000; round++) {
        double weight[MOST_EXPERTS];
        uint32_t count[MOST_EXPERTS], expected[MOST_EXPERTS];
        int experts = test_random_int(&random_state, 1, MOST_EXPERTS);
        int most = test_random_int(&random_state, 1, 1 << test_random_int(&random_state, 1, 20));
        int64_t routes = test_random_int(&random_state, 0, 100000);
        for (int e = 0; e < experts; e++)
            weight[e] =
                test_random_int(&random_state, 0, 2) ? test_random_int(&random_state, 0, most) : 0;
        weight[test_random_int(&random_state, 0, experts - 1)] = most;
        assert_works(mp_replay_apportion(experts, weight, routes, count, &error));
        apportion_exactly(experts, weight, routes, expected);
        assert_memory_equal(count, expected, (size_t)experts * sizeof *count);
    }
}

TEST(counts_add_up_for_any_weights) {
    for (int round = 0; round < 3000; round++) {
        double weight[MOST_EXPERTS], total = 0;
        uint32_t count[MOST_EXPERTS];
        int experts = test_random_int(&random_state, 1, MOST_EXPERTS);
        int64_t routes = test_random_int(&random_state, 0, 1 << 20), sum = 0;
        for (int e = 0; e < experts; e++)
            total += weight[e] = exp(20 * test_random_double(&random_state) - 10);
        assert_works(mp_replay_apportion(experts, weight, routes, count, &error));
        for (int e = 0; e < experts; e++) {
            sum += count[e];
            double quota = (double)routes * weight[e] / total;
            assert_true(fabs(count[e] - quota) < 1 + 1e-6); /* no expert is off by a whole route */
        }
        assert_int_equal(sum, routes);
    }
}

static const struct {
    double weight[3];
    const char *name; /* said of them */
} impossible_weights[] = {{{1, -2, 3}, "load of expert 1 is -2, not"},
                          {{0, 0, 0}, "at least one route"},
                          {{1, 1, NAN}, "load of expert 2 is nan"},
                          {{INFINITY, 1, 1}, "load of expert 0 is inf"}};

TEST_EACH(refuses_impossible_weights, impossible_weights, c) {
    uint32_t count[3];
    assert_fails(mp_replay_apportion(3, c->weight, 9, count, &error), MP_EINVAL, c->name);
}

TEST(skew_puts_the_share_on_the_first) {
    double weight[MOST_EXPERTS];
    uint32_t count[MOST_EXPERTS];
    /* 3/4 of 48 routes on 2 of 8 experts: 18 each, 2 on each other. */
    mp_replay_skew(8, 2, 0.75, weight);
    assert_int_equal(mp_replay_apportion(8, weight, 48, count, NULL), MP_OK);
    for (int e = 0; e < 8; e++)
        assert_int_equal(count[e], e < 2 ? 18 : 2);
    for (int round = 0; round < 1000; round++) {
        int experts = test_random_int(&random_state, 1, MOST_EXPERTS);
        int hot = test_random_int(&random_state, 1, experts);
        double share = test_random_double(&random_state), on_hot = 0, total = 0;
        mp_replay_skew(experts, hot, share, weight);
        for (int e = 0; e < experts; e++) {
            total += weight[e];
            on_hot += e < hot ? weight[e] : 0;
            assert_true(weight[e] == weight[e < hot ? 0 : hot]);
        }
        assert_close(on_hot / total, hot == experts ? 1 : share, 1e-12);
    }
}

/* Every expert is chosen as often as asked, by distinct tokens. */
static void assert_choices(int tokens, int top_k, int experts, const uint32_t count[],
                           const int32_t choice[]) {
    uint32_t chosen[MOST_EXPERTS] = {0};
    for (int t = 0; t < tokens; t++)
        for (int k = 0; k < top_k; k++) {
            int32_t expert = choice[t * top_k + k];
            assert_in_range(expert, 0, experts - 1);
            chosen[expert]++;
            for (int j = 0; j < k; j++)
                assert_int_not_equal(choice[t * top_k + j], expert);
        }
    assert_memory_equal(chosen, count, (size_t)experts * sizeof *count);
}

TEST(choices_reproduce_counts) {
    int infeasible = 0;
    for (int round = 0; round < 3000; round++) {
        int experts = test_random_int(&random_state, 1, MOST_EXPERTS);
        int top_k = test_random_int(&random_state, 1, experts < MOST_K ? experts : MOST_K);
        int tokens = test_random_int(&random_state, 1, MOST_TOKENS);
        double weight[MOST_EXPERTS];
        uint32_t count[MOST_EXPERTS], most = 0;
        int32_t choice[MOST_TOKENS * MOST_K];
        struct mp_error error = {0};
        mp_replay_skew(experts, test_random_int(&random_state, 1, experts),
                       test_random_double(&random_state), weight);
        for (int e = 0; e < experts; e++)
            weight[e] *= test_random_double(&random_state) + 1e-3;
        assert_int_equal(mp_replay_apportion(experts, weight, tokens * top_k, count, &error),
                         MP_OK);
        for (int e = 0; e < experts; e++)
            most = count[e] > most ? count[e] : most;
        uint64_t turn = test_random(&random_state) >> test_random_int(&random_state, 0, 63);
        int code = mp_replay_choices(tokens, top_k, experts, count, turn, choice, &error);
        assert_int_equal(code, most > (uint32_t)tokens ? MP_EINVAL : MP_OK);
        infeasible += code != MP_OK;
        if (!code)
            assert_choices(tokens, top_k, experts, count, choice);
    }
    assert_in_range(infeasible, 1, 2900); /* both outcomes were met */
}

TEST(turns_deal_to_other_tokens) {
    enum { TOKENS = 96 };
    const uint32_t count[6] = {60, 50, 40, 20, 12, 10};
    int32_t first[TOKENS * 2], second[TOKENS * 2];
    assert_int_equal(mp_replay_choices(TOKENS, 2, 6, count, 0, first, NULL), MP_OK);
    for (uint64_t turn = 1; turn < TOKENS; turn++) {
        assert_int_equal(mp_replay_choices(TOKENS, 2, 6, count, turn, second, NULL), MP_OK);
        assert_choices(TOKENS, 2, 6, count, second);
        assert_memory_not_equal(first, second, sizeof first);
    }
    /* Any number is a turn, the largest too. */
    assert_int_equal(mp_replay_choices(TOKENS, 2, 6, count, UINT64_MAX - 7, second, NULL), MP_OK);
    assert_choices(TOKENS, 2, 6, count, second);
    /* The routes of one expert are spread over the batch: each quarter has its part of them. */
    int quarter[4] = {0};
    for (int t = 0; t < TOKENS; t++)
        quarter[t / (TOKENS / 4)] += first[t * 2] == 0 || first[t * 2 + 1] == 0;
    for (int q = 0; q < 4; q++)
        assert_in_range(quarter[q], 13, 17);
}

static const struct {
    uint32_t count[3];
    const char *name; /* said of them */
} impossible_counts[] = {
    {{11, 5, 4}, "expert 0 would get 11 routes of 10 tokens"},
    {{9, 0, 11}, "expert 2 would get 11 routes of 10 tokens"},
    {{9, 6, 6}, "loads hold more than 10 x 2 routes"},
};

TEST_EACH(refuses_counts_that_do_not_fit, impossible_counts, c) {
    int32_t choice[20];
    assert_fails(mp_replay_choices(10, 2, 3, c->count, 3, choice, &error), MP_EINVAL, c->name);
}

/* A gate that leaves choices has fewer routes: every token keeps its first, and all are dealt. */
TEST(missing_routes_are_choices_that_are_not_taken) {
    static const uint32_t count[] = {9, 0, 6};
    uint32_t seen[3] = {0};
    int32_t choice[20];
    int missing = 0;
    assert_int_equal(mp_replay_choices(10, 2, 3, count, 3, choice, NULL), MP_OK);
    for (int i = 0; i < 20; i++) {
        missing += choice[i] < 0;
        assert_true(choice[i] >= 0 || i % 2 == 1);
        if (choice[i] >= 0)
            seen[choice[i]]++;
        assert_true(i % 2 == 0 || choice[i] != choice[i - 1]);
    }
    assert_memory_equal(seen, count, sizeof count);
    assert_int_equal(missing, 5);
}

/* ---- a loss by topology ---- */

/* Half of the way from 10 of 40 inside to a share of .8, by hand: 21, in proportion to 3 : 1; the
 * rest, 19, in proportion to 2 : 1.  All the way no expert has more than the tokens. */
static const struct {
    bool inside[4];
    double share, pull;
    uint32_t count[4], expected[4];
} pulls[] = {
    {{true, true}, .8, .5, {8, 2, 20, 10}, {17, 4, 13, 6}},
    {{true, true}, .8, 0, {8, 2, 20, 10}, {8, 2, 20, 10}},
    {{true, true}, .8, 1, {8, 2, 20, 10}, {20, 12, 5, 3}},
    {{true, true}, .5, 1, {0, 0, 20, 20}, {10, 10, 10, 10}},
    {{true, true}, .1, 1, {20, 20, 0, 0}, {2, 2, 18, 18}},
    {{false}, .8, 1, {8, 2, 20, 10}, {8, 2, 20, 10}},
    {{true, true, true, true}, .8, 1, {8, 2, 20, 10}, {8, 2, 20, 10}},
};

TEST_ROWS(a_pull_moves_routes_inside, pulls, c) {
    uint32_t count[4];
    memcpy(count, c->count, sizeof count);
    mp_replay_pull(4, c->inside, c->share, c->pull, 20, count);
    assert_memory_equal(count, c->expected, sizeof count);
}

/* ---- a gate's limit ---- */

/* Loads of random tokens of two experts, some of which hardly anybody takes. */
static int random_row(int experts, int tokens, uint32_t row[MOST_EXPERTS]) {
    double weight[MOST_EXPERTS];
    memset(row, 0, MOST_EXPERTS * sizeof *row);
    for (int e = 0; e < experts; e++)
        weight[e] = exp(6 * test_random_double(&random_state));
    for (int t = 0; t < tokens; t++)
        for (int k = 0, first = -1; k < 2; k++) {
            double sum = 0, at;
            for (int e = 0; e < experts; e++)
                sum += e == first ? 0 : weight[e];
            at = sum * test_random_double(&random_state);
            int e = 0;
            while (e == first || (at >= weight[e] && e + 1 < experts)) {
                at -= e == first ? 0 : weight[e];
                e++;
            }
            e = e < experts ? e : first == experts - 1 ? experts - 2 : experts - 1;
            row[e]++;
            first = e;
        }
    return 2 * tokens;
}

/* What an expert inside gets, by going through all that a token may draw first. */
static double quota_of(int experts, const bool inside[], const uint32_t row[], double tokens,
                       double leaving, int expert) {
    double had = 0, first = 0, second = 0;
    for (int e = 0; e < experts; e++)
        had += inside[e] ? row[e] : 0;
    for (int e = 0; e < experts; e++) {
        double share = row[e] / had, left = had - row[e];
        if (!inside[e])
            continue;
        if (e == expert)
            first = share;
        else if (left > 0)
            second += share * row[expert] / left;
    }
    return leaving * first + (tokens - leaving) * (first + second);
}

static void check_limit(int experts, int tokens, const bool inside[], int limit) {
    uint32_t row[MOST_EXPERTS], limited[MOST_EXPERTS], again[MOST_EXPERTS];
    int32_t choice[2 * MOST_TOKENS], recount[MOST_EXPERTS] = {0};
    int64_t routes = random_row(experts, tokens, row), before = 0, outside = 0, sum = 0;
    int reached = 0, insiders = 0;
    memcpy(limited, row, sizeof row);
    mp_replay_limit(experts, inside, limit, limited);
    for (int e = 0; e < experts; e++) {
        sum += limited[e];
        before += inside[e] ? 0 : row[e];
        outside += inside[e] ? 0 : limited[e];
        insiders += inside[e];
        reached += inside[e] && row[e] > 0;
    }
    assert_int_equal(sum, routes);
    memcpy(again, limited, sizeof limited);
    mp_replay_limit(experts, inside, limit, again);
    assert_memory_equal(again, limited, sizeof limited);
    if (before <= 2 * limit) {
        assert_memory_equal(limited, row, sizeof row);
        return;
    }
    assert_int_equal(outside, limit);
    for (int e = 0; e < experts; e++) {
        double quota = (double)row[e] * limit / before;
        if (inside[e] && reached >= 2)
            quota = quota_of(experts, inside, row, tokens, limit, e);
        else if (inside[e] && reached == 0) /* nobody went there */
            quota = (double)(routes - limit) / insiders;
        else if (inside[e]) /* all that go there take the one, and then any other */
            quota = row[e] ? tokens : (double)(tokens - limit) / (insiders - 1);
        assert_true(fabs(limited[e] - quota) < 1 + 1e-6);
    }
    /* Tokens can be dealt so, none with an expert twice. */
    assert_works(mp_replay_choices(tokens, 2, experts, limited, 5, choice, &error));
    for (int t = 0; t < 2 * tokens; t++) {
        assert_true(t % 2 == 0 || choice[t] != choice[t - 1]);
        recount[choice[t]]++;
    }
    for (int e = 0; e < experts; e++)
        assert_int_equal(recount[e], limited[e]);
}

TEST(a_limit_keeps_routes_and_is_kept) {
    for (int i = 0; i < 3000; i++) {
        int experts = test_random_int(&random_state, 3, 16);
        int tokens = test_random_int(&random_state, 1, MOST_TOKENS);
        int limit = test_random_int(&random_state, 0, 3) * tokens / 5, insiders = 0;
        bool inside[MOST_EXPERTS] = {false};
        while (insiders < 2 || test_random_int(&random_state, 0, 2)) {
            int e = test_random_int(&random_state, 0, experts - 1);
            insiders += !inside[e];
            inside[e] = true;
        }
        check_limit(experts, tokens, inside, limit);
    }
}

/* The two experts of largest logit among those inside, or among all. */
static void choose_two(int experts, const double logit[], const bool *inside, int best[2]) {
    best[0] = best[1] = -1;
    for (int e = 0; e < experts; e++) {
        if (inside && !inside[e])
            continue;
        if (best[0] < 0 || logit[e] > logit[best[0]]) {
            best[1] = best[0];
            best[0] = e;
        } else if (best[1] < 0 || logit[e] > logit[best[1]]) {
            best[1] = e;
        }
    }
}

enum { GATED = 1000, GATED_EXPERTS = 8 };

/* A gate of that many random tokens: what it chooses, and what it chooses within the limit as
 * FasterMoE's code has it, route by route. */
static void gate(const bool inside[], int limit, uint32_t plain[], uint32_t limited[]) {
    static double logit[GATED][GATED_EXPERTS];
    double bias[GATED_EXPERTS];
    int best[2], chosen[2], leaving = 0;
    for (int e = 0; e < GATED_EXPERTS; e++)
        bias[e] = test_random_double(&random_state);
    memset(plain, 0, GATED_EXPERTS * sizeof *plain);
    memset(limited, 0, GATED_EXPERTS * sizeof *limited);
    for (int t = 0; t < GATED; t++)
        for (int e = 0; e < GATED_EXPERTS; e++)
            logit[t][e] = bias[e] - log(-log(test_random_double(&random_state) + 1e-9));
    for (int t = 0; t < GATED; t++) {
        choose_two(GATED_EXPERTS, logit[t], NULL, best);
        choose_two(GATED_EXPERTS, logit[t], inside, chosen);
        int rank = 0;
        for (int other = 0; other < GATED && !inside[best[0]]; other++) {
            int first[2];
            choose_two(GATED_EXPERTS, logit[other], NULL, first);
            rank += !inside[first[0]] && logit[other][first[0]] > logit[t][best[0]];
        }
        leaving += !inside[best[0]];
        if (!inside[best[0]] && rank < limit)
            chosen[1] = best[0];
        for (int k = 0; k < 2; k++) {
            plain[best[k]]++;
            limited[chosen[k]]++;
        }
    }
    assert_true(leaving > limit);
}

/* What loads can't say, the rule guesses: totals are the gate's, single experts near it; and where
 * there is nothing to guess it is the gate's to the last route. */
TEST(the_rule_is_near_what_a_gate_does) {
    static const bool some[GATED_EXPERTS] = {true, true, true, true},
                      two[GATED_EXPERTS] = {[2] = true, [5] = true};
    uint32_t plain[GATED_EXPERTS], limited[GATED_EXPERTS];
    for (int i = 0; i < 4; i++) {
        int limit = GATED / 25 * i, outside[2] = {0};
        gate(some, limit, plain, limited);
        mp_replay_limit(GATED_EXPERTS, some, limit, plain);
        for (int e = 0; e < GATED_EXPERTS; e++) {
            outside[0] += some[e] ? 0 : (int)plain[e];
            outside[1] += some[e] ? 0 : (int)limited[e];
            assert_true(abs((int)plain[e] - (int)limited[e]) < GATED / 12);
        }
        assert_numbers(outside[0], limit, outside[1], limit);
    }
    gate(two, 0, plain, limited);
    mp_replay_limit(GATED_EXPERTS, two, 0, plain);
    assert_memory_equal(plain, limited, sizeof plain);
}

TEST_SEED(random_state);
