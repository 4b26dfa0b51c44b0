/* Rank tests and shifts of more samples than are counted exactly, against distributions counted
 * here; and what few samples can still bound, by hand. */
#include "tests/support.h"

#include "results/compare/evidence.h"
#include "results/compare/statistics.h"

enum { PAIRS = 120, BASES = 51, HEADS = 52, BOTH = BASES + HEADS, SUMS = BOTH * (BOTH + 1) + 1 };

/* Twice the rank, ties sharing the mean of theirs. */
static int doubled_rank(const double values[], int count, double value) {
    int below = 0, same = 0;
    for (int i = 0; i < count; i++) {
        below += values[i] < value;
        same += values[i] == value;
    }
    return 2 * below + same + 1;
}

/* min(1, 2 * the smaller tail) of a sum, `ways[]` of sums of equal likelihood. */
static double two_sided(const double ways[], int sums, int sum) {
    double below = 0, above = 0, all = 0;
    for (int s = 0; s < sums; s++) {
        all += ways[s];
        below += s <= sum ? ways[s] : 0;
        above += s >= sum ? ways[s] : 0;
    }
    return fmin(1, 2 * fmin(below, above) / all);
}

/* p of differences' signs, each of two equally likely. */
static double p_of_signs(const double differences[], int count, double *statistic) {
    static double ways[PAIRS * (PAIRS + 1) + 1];
    double sizes[PAIRS];
    int sums = count * (count + 1) + 1, sum = 0;
    memset(ways, 0, sizeof ways);
    ways[0] = 1;
    for (int i = 0; i < count; i++)
        sizes[i] = fabs(differences[i]);
    for (int i = 0; i < count; i++) {
        int rank = doubled_rank(sizes, count, sizes[i]);
        for (int s = sums - 1; s >= 0; s--)
            ways[s] = (ways[s] + (s >= rank ? ways[s - rank] : 0)) / 2;
        sum += differences[i] > 0 ? rank : 0;
    }
    *statistic = sum / 2.0;
    return two_sided(ways, sums, sum);
}

/* All different, or half of them one size: both normal approximations know ties by their number.
 */
static double drawn(uint64_t *random, bool ties) {
    double value = 0.1 + test_random_double(random);
    return ties && test_random_int(random, 0, 1) ? 0.6 : value;
}

/* Some more positive than negative. */
TEST_RANDOM(signs_are_near_their_distribution) {
    for (int round = 0; round < 20; round++) {
        double differences[PAIRS], statistic;
        struct mp_rank_test test;
        for (int i = 0; i < PAIRS; i++) {
            double size = drawn(random, round % 2);
            differences[i] = test_random_double(random) < 0.5 + 0.01 * round ? size : -size;
        }
        double p = p_of_signs(differences, PAIRS, &statistic);
        assert_int_equal(mp_signed_rank(differences, PAIRS, &test, NULL), MP_OK);
        assert_false(test.exact);
        assert_close(test.statistic, statistic, 1e-12);
        assert_within(test.p, p, 4e-3);
    }
}

/* p of which values are base's, any BASES of them equally likely. */
static double p_of_groups(const double values[]) {
    static double ways[BASES + 1][SUMS];
    int sum = 0;
    memset(ways, 0, sizeof ways);
    ways[0][0] = 1;
    for (int i = 0; i < BOTH; i++) {
        int rank = doubled_rank(values, BOTH, values[i]);
        for (int k = i < BASES ? i + 1 : BASES; k > 0; k--)
            for (int s = SUMS - 1; s >= rank; s--)
                ways[k][s] += ways[k - 1][s - rank];
        sum += i < BASES ? rank : 0;
    }
    return two_sided(ways[BASES], SUMS, sum);
}

TEST_RANDOM(groups_are_near_their_distribution) {
    for (int round = 0; round < 4; round++) {
        double values[BOTH], below = 0;
        struct mp_rank_test test;
        for (int i = 0; i < BOTH; i++)
            values[i] = drawn(random, round % 2) + (i < BASES ? 0 : 0.04 * round);
        for (int i = 0; i < BASES; i++)
            for (int j = BASES; j < BOTH; j++)
                below += values[j] < values[i] ? 1 : values[j] == values[i] ? 0.5 : 0;
        assert_int_equal(mp_mann_whitney(values, BASES, values + BASES, HEADS, &test, NULL), MP_OK);
        assert_false(test.exact);
        assert_close(test.statistic, below, 1e-12);
        assert_within(test.p, p_of_groups(values), 4e-3);
    }
}

/* All differences i * BOTH - j are different, so that a shift's ends tell their places: for pairs
 * and groups mean - 1/2 - 1.96 standard deviations, rounded down, of the statistic. */
TEST(intervals_of_many) {
    double base[BASES], head[HEADS], zero_to[PAIRS + 1];
    struct mp_shift shift;
    for (int i = 0; i < BASES; i++)
        base[i] = BOTH * i;
    for (int j = 0; j < HEADS; j++)
        head[j] = j;
    /* U: mean 1326, variance 51 * 52 * 104 / 12 = 22984, so 1326 - 0.5 - 297.14 = 1028.36. */
    assert_int_equal(mp_shift_of_groups(base, BASES, head, HEADS, &shift, NULL), MP_OK);
    double ascending[BASES * HEADS];
    int at = 0;
    for (int i = BASES - 1; i >= 0; i--)
        for (int j = 0; j < HEADS; j++)
            ascending[at++] = j - (double)BOTH * i;
    assert_close(shift.low, ascending[1028], 0);
    assert_close(shift.high, ascending[BASES * HEADS - 1029], 0);
    assert_close(shift.estimate, (ascending[1325] + ascending[1326]) / 2, 1e-12);

    /* 121 differences 0 .. 120: of averages s / 2 there are floor(s / 2) + 1 up to s = 120, so
     * (k + 1) (k + 2) up to s = 2 k + 1.  W: mean 121 * 122 / 4 = 3690.5, variance 149445.3, so
     * 3690.5 - 0.5 - 757.69 = 2932.31: the 2933rd.  Up to s = 105 there are 53 * 54 = 2862, of
     * s = 106 another 54, and then comes 107. */
    for (int i = 0; i <= PAIRS; i++)
        zero_to[i] = i;
    assert_int_equal(mp_shift_of_pairs(zero_to, PAIRS + 1, &shift, NULL), MP_OK);
    assert_close(shift.low, 53.5, 0);
    assert_close(shift.high, 120 - 53.5, 0);
    assert_close(shift.estimate, 60, 0);
}

/* Two against eight: only 1 of 45 choices has U = 0, 2.2 %, so the whole range is an interval,
 * which a normal approximation would not give; two against seven (1 of 36) have none. */
TEST(intervals_of_few) {
    static const double base[] = {10, 11}, head[] = {20, 21, 22, 23, 24, 25, 26, 27};
    struct mp_shift shift;
    assert_int_equal(mp_shift_of_groups(base, 2, head, 8, &shift, NULL), MP_OK);
    assert_close(shift.low, 9, 0);
    assert_close(shift.high, 17, 0);
    assert_close(shift.estimate, 13, 0);
    assert_int_equal(mp_shift_of_groups(base, 2, head, 7, &shift, NULL), MP_OK);
    assert_true(isinf(shift.low) && isinf(shift.high));
}

/* Ratios 1, 1.21 and 1 of pairs: logarithms 0, a, 0 with a = ln 1.21 deviate by a / sqrt(3); a
 * single side by a / sqrt(6).  Of groups the base's alone count. */
TEST(spread_by_hand) {
    static const double base[] = {10, 10, 10}, head[] = {10, 12.1, 10};
    struct mp_samples samples = {
        .base = base, .head = head, .bases = 3, .heads = 3, .paired = true};
    struct mp_evidence evidence;
    assert_int_equal(mp_evidence_weigh(&samples, &evidence, NULL), MP_OK);
    assert_close(evidence.spread, log(1.21) / sqrt(6), 1e-12);
    samples = (struct mp_samples){.base = head, .head = base, .bases = 3, .heads = 3};
    assert_int_equal(mp_evidence_weigh(&samples, &evidence, NULL), MP_OK);
    assert_close(evidence.spread, log(1.21) / sqrt(3), 1e-12);
    assert_true(isnan(evidence.w));
}

static void assert_advice(struct mp_samples samples, int metrics, const char *expected) {
    struct mp_evidence evidence = {
        .samples = samples, .effect = 0.033, .low = -0.03, .high = 0.07, .spread = 0.125};
    struct mp_decision decision = {
        .minimum_effect = 0.02, .adjusted_p = 0.5, .floor = NAN, .metrics = metrics};
    char reason[300];
    assert_int_equal(mp_evidence_decide(&evidence, &decision, reason, sizeof reason),
                     MP_OUTCOME_INCONCLUSIVE);
    if (!strstr(reason, expected))
        fail_msg("'%s' lacks '%s'", reason, expected);
}

/* Half the interval is 0.05, the effect is 0.013 from the least that counts: 14.79 times as many
 * samples, up to 200.  p is at least 2^(1 - n) of pairs and 2 / C(n + m, n) of groups, for each
 * metric. */
TEST(advice_by_hand) {
    assert_advice((struct mp_samples){.bases = 5, .heads = 5, .paired = true}, 1, "cannot reach");
    assert_advice((struct mp_samples){.bases = 5, .heads = 5, .paired = true}, 1,
                  "take more pairs");
    assert_advice((struct mp_samples){.bases = 6, .heads = 6, .paired = true}, 1, "about 89 pairs");
    assert_advice((struct mp_samples){.bases = 14, .heads = 14, .paired = true}, 1,
                  "vary by 12.5 %");
    assert_advice((struct mp_samples){.bases = 14, .heads = 14, .paired = true}, 1,
                  "is 5.0 % wide on either side: reduce noise first");
    assert_advice((struct mp_samples){.bases = 6, .heads = 6, .paired = true}, 2, "cannot reach");
    assert_advice((struct mp_samples){.bases = 3, .heads = 3}, 1, "cannot reach");
    assert_advice((struct mp_samples){.bases = 4, .heads = 4}, 1, "about 60 runs a side");
    assert_advice((struct mp_samples){.bases = 4, .heads = 4}, 1, "less noise than the 12.5 %");
    assert_advice((struct mp_samples){.bases = 4, .heads = 4}, 2, "cannot reach");
    assert_advice((struct mp_samples){.bases = 5, .heads = 4}, 2, "about 60 runs a side");
    assert_advice((struct mp_samples){.bases = 15, .heads = 14}, 1, "reduce noise first");
}
