/* Tokens are what it is about: a rank that gets all of them and a rank that gets none, whether it
 * says so, has no span of its experts, or nobody counted. */
#include "tests/profiler/straggler/analysed.h"

enum { ITERATIONS = 12, MOST_RANKS = 3, SPANS = 3, ABSENT = -2, UNCOUNTED = -1 };

/* Ranks meet at the gate, compute 1000 tokens in 20 s, and meet in the exchange, which takes 1 s
 * after the last has come. */
struct made {
    struct mp_recorded_rank rank[ITERATIONS * MOST_RANKS];
    struct mp_recorded_span span[ITERATIONS * MOST_RANKS * SPANS];
    size_t spans;
};

/* Going through without any takes a little, and now more and now less: of that nothing can be told
 * of what a token takes. */
static double work_of(int64_t tokens, int iteration) {
    return tokens > 0 ? (double)tokens * 20 / 1000 : tokens == 0 ? 1e-6 * (1 + iteration % 3) : 0;
}

static void add_rank(struct made *made, struct mp_recorded_rank *rank, int64_t tokens,
                     int iteration, double last) {
    double work = work_of(tokens, iteration);
    const struct mp_recorded_span spans[SPANS] = {
        {0, 1, 0.5, -1, 0, MP_PHASE_GATE, MP_FORWARD},
        {1 + work, last + 1, last + 1 - 1 - work, -1, 0, MP_PHASE_COMBINE, MP_FORWARD},
        {1, 1 + work, 0, tokens, 0, MP_PHASE_EXPERT, MP_FORWARD},
    };
    *rank = (struct mp_recorded_rank){0, last + 1, made->spans, 0, 0};
    static const int order[SPANS] = {0, 2, 1};
    for (int s = 0; s < SPANS; s++)
        if (order[s] != 2 || tokens != ABSENT) {
            made->span[made->spans++] = spans[order[s]];
            rank->count++;
        }
}

static struct mp_straggler analyse(const int64_t tokens[], int ranks) {
    struct made made = {.spans = 0};
    double last = 0;
    for (int r = 0; r < ranks; r++)
        last = fmax(last, 1 + work_of(tokens[r], 0));
    for (int i = 0; i < ITERATIONS * ranks; i++)
        add_rank(&made, &made.rank[i], tokens[i % ranks], i / ranks, last);
    return analysed_times(ranks, ITERATIONS, made.rank, made.span, made.spans);
}

static const struct {
    const char *name;
    int ranks;
    int64_t tokens[MOST_RANKS];
    double waiting, over_mean, longer, saved; /* s, x mean, s, s */
} uneven[] = {
    /* 20 s a rank; evenly 10, so that it would take 10 less. */
    {"all and none", 2, {1000, 0}, 20, 2, 10, 10},
    {"all and no span", 2, {1000, ABSENT}, 20, 2, 10, 10},
    /* 999 and 1: nearly that.  2 / (1000 / 999), 19.96 s, (999 - 500) * 0.02. */
    {"nearly all", 2, {999, 1}, 19.96, 1.998, 9.98, 9.98},
    /* Evenly 1000 / 3 each: 20 - 6.6667. */
    {"all and none, none", 3, {1000, 0, 0}, 20, 3, 13.3333, 13.3333},
    {"all and no spans", 3, {1000, ABSENT, ABSENT}, 20, 3, 13.3333, 13.3333},
    {"all, none and no span", 3, {1000, 0, ABSENT}, 20, 3, 13.3333, 13.3333},
    /* Two share them, and rank 2 alone waits, 10 s, half of it per other rank; evenly each has a
     * third, 3.3333 s less. */
    {"two share them", 3, {500, 500, 0}, 5, 1.5, 3.3333, 3.3333},
    {"two share them, one has no span", 3, {500, 500, ABSENT}, 5, 1.5, 3.3333, 3.3333},
};

TEST_EACH(no_tokens_at_all_are_routing, uneven, row) {
    AUTO(straggler) struct mp_straggler found = analyse(row->tokens, row->ranks);
    assert_int_equal(found.findings, 1);
    const struct mp_straggler_finding *finding = &found.finding[0];
    assert_string_equal(mp_cause_name(finding->cause), "routing");
    assert_numbers(finding->rank, 0, finding->phase, MP_PHASE_EXPERT);
    assert_all_close(1e-3, finding->waiting, row->waiting, finding->tokens, row->over_mean);
    assert_all_close(1e-3, finding->longer, row->longer, finding->saved, row->saved);
    assert_close(found.rank[1].tokens, fmax(0, (double)row->tokens[1]), 0);
    assert_int_equal(found.abstentions, MP_ABSTAINS_NO_LOADS);
    assert_close(found.slowdowns.ideal, found.slowdowns.base - row->saved, 1e-3);
    /* The place says the same of its tokens. */
    for (int p = 0; p < found.places; p++)
        if (found.place[p].phase == MP_PHASE_EXPERT)
            assert_close(found.place[p].tokens, row->over_mean, 1e-3);
}

/* Rank 1 waits 20 s for the experts of rank 0, which alone has tokens, and makes rank 2 late by as
 * much: all 40 s began with the tokens. */
TEST(late_for_tokens_is_passed_on_as_such) {
    struct mp_recorded_rank rank[ITERATIONS * 3];
    struct mp_recorded_span span[ITERATIONS * 5];
    const struct mp_recorded_span spans[] = {
        {0, 20, 0, 1000, 0, MP_PHASE_EXPERT, MP_FORWARD},
        {20, 21, 1, -1, 0, MP_PHASE_FETCH, MP_FORWARD},
        {0, 21, 21, -1, 0, MP_PHASE_FETCH, MP_FORWARD},
        {21, 22, 1, -1, 0, MP_PHASE_DISPATCH, MP_FORWARD},
        {0, 22, 22, -1, 0, MP_PHASE_DISPATCH, MP_FORWARD},
    };
    for (int i = 0; i < ITERATIONS; i++) {
        size_t first = 5 * (size_t)i;
        memcpy(&span[first], spans, sizeof spans);
        rank[3 * i] = (struct mp_recorded_rank){0, 22, first, 2, 0};
        rank[3 * i + 1] = (struct mp_recorded_rank){0, 22, first + 2, 2, 0};
        rank[3 * i + 2] = (struct mp_recorded_rank){0, 22, first + 4, 1, 0};
    }
    AUTO(straggler)
    struct mp_straggler found = analysed_times(3, ITERATIONS, rank, span, ITERATIONS * 5);
    assert_all_close(1e-9, found.rank[0].propagated, 20, found.rank[0].cause[MP_CAUSE_ROUTING], 40);
}

/* What nobody counted is not none: nothing is said of routing. */
TEST(uncounted_is_not_none) {
    static const int64_t tokens[] = {1000, UNCOUNTED};
    AUTO(straggler) struct mp_straggler found = analyse(tokens, 2);
    assert_int_equal(found.abstentions, MP_ABSTAINS_NO_LOADS | MP_ABSTAINS_NO_TOKENS);
    assert_numbers(found.findings, 1, found.finding[0].cause, MP_CAUSE_UNKNOWN);
    assert_true(isnan(found.finding[0].tokens));
    assert_true(isnan(found.rank[1].tokens));
}

/* At the same tokens it is the rank, though none of them says what a token takes. */
TEST(same_tokens_are_a_slow_rank) {
    struct made made = {.spans = 0};
    for (int i = 0; i < ITERATIONS * 2; i++) {
        add_rank(&made, &made.rank[i], 500, i / 2, 21);
        if (i % 2 == 0) { /* 20 s instead of 10 */
            struct mp_recorded_span *span = &made.span[made.spans - 2];
            span[0].end = span[1].start = 21;
            span[1].wait = 1;
        }
    }
    AUTO(straggler)
    struct mp_straggler found = analysed_times(2, ITERATIONS, made.rank, made.span, made.spans);
    assert_int_equal(found.findings, 1);
    assert_string_equal(mp_cause_name(found.finding[0].cause), "slow rank");
    assert_all_close(1e-9, found.finding[0].longer, 10, found.finding[0].saved, 10);
    assert_close(found.finding[0].tokens, 1, 1e-9);
}

/* 5 s and 10 ms a token.  Of the steps from iteration to iteration a few are large and say so; most
 * are small, and 3 s more or once less of something else beside them weigh as little.  No more is
 * charged than the rank was late. */
TEST(large_steps_say_what_a_token_takes) {
    static const int64_t tokens[ITERATIONS] = {400,  1600, 400,  1600, 1000, 1062,
                                               1000, 1062, 1000, 1062, 1000, 1062};
    struct made made = {.spans = 0};
    double routed = 0;
    for (int i = 0; i < ITERATIONS * 2; i++) {
        const int64_t count = i % 2 ? 100 : tokens[i / 2];
        const double other = i / 2 == ITERATIONS - 1 ? 2 : tokens[i / 2] == 1062 ? 8 : 5;
        const double work = 0.01 * (double)tokens[i / 2] + other;
        add_rank(&made, &made.rank[i], count, i / 2, 1 + work);
        struct mp_recorded_span *span = &made.span[made.spans - 2];
        span[0].end = span[1].start = 1 + (i % 2 ? 6 : work);
        span[1].wait = work - (i % 2 ? 6 : work) + 1;
        routed += fmin(0.01 * (double)(count - 100), work - 6) / ITERATIONS;
    }
    AUTO(straggler)
    struct mp_straggler found = analysed_times(2, ITERATIONS, made.rank, made.span, made.spans);
    assert_close(found.rank[0].cause[MP_CAUSE_ROUTING], routed, 1e-9);
}
