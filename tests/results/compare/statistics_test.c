/* Statistics against small examples, brute force over all arrangements, and symmetries. */
#include "results/compare/statistics.h"

#include "tests/errors.h"

static struct mp_rank_test signed_rank(const double values[], int count) {
    struct mp_rank_test test;
    assert_works(mp_signed_rank(values, count, &test, &error));
    return test;
}

static struct mp_rank_test mann_whitney(const double a[], int n, const double b[], int m) {
    struct mp_rank_test test;
    assert_works(mp_mann_whitney(a, n, b, m, &test, &error));
    return test;
}

static struct mp_shift of_pairs(const double values[], int count) {
    struct mp_shift shift;
    assert_works(mp_shift_of_pairs(values, count, &shift, &error));
    return shift;
}

static struct mp_shift of_groups(const double a[], int n, const double b[], int m) {
    struct mp_shift shift;
    assert_works(mp_shift_of_groups(a, n, b, m, &shift, &error));
    return shift;
}

TEST(small_examples) {
    const double a[] = {10.0, 10.2, 10.1, 9.9, 10.3}, b[] = {10.6, 10.5, 10.8, 10.4, 10.25};
    assert_close(of_groups(a, 5, b, 5).estimate, .4, 1e-12);
    const double near[] = {.1 + .2, -.3, 1}; /* but for rounding the first two are one size */
    assert_close(signed_rank(near, 3).statistic, 4.5, 0);
}

/* What a perfect separation of `pairs` gives. */
TEST(smallest_p) {
    const struct {
        int pairs;
        double u, w;
    } table[] = {{4, .029, .125},      {5, .0079, .0625},   {6, .0022, .031},
                 {8, 1.6e-4, .0078},   {10, 1.1e-5, .0020}, {12, 7.4e-7, 4.9e-4},
                 {20, 1.5e-11, 1.9e-6}};
    for (size_t i = 0; i < sizeof table / sizeof *table; i++) {
        double low[20], high[20];
        for (int k = 0; k < 20; k++) {
            low[k] = 1 + k * .01;
            high[k] = 2 + k * .013;
        }
        assert_true(
            fabs(mann_whitney(low, table[i].pairs, high, table[i].pairs).p / table[i].u - 1) < .05);
        assert_true(fabs(signed_rank(high, table[i].pairs).p / table[i].w - 1) < .05);
        assert_close(signed_rank(high, table[i].pairs).p, ldexp(1, 1 - table[i].pairs), 1e-15);
    }
}

/* The interval's ends are the k-th of the sorted Walsh averages from either end. */
TEST_RANDOM(interval_ranks) {
    const int count[] = {8, 10, 12, 15, 20}, k[] = {4, 9, 14, 26, 53};
    for (size_t c = 0; c < sizeof count / sizeof *count; c++) {
        double d[20];
        int below = 0, above = 0;
        for (int i = 0; i < count[c]; i++)
            d[i] = test_random_double(random);
        struct mp_shift shift = of_pairs(d, count[c]);
        for (int i = 0; i < count[c]; i++)
            for (int j = i; j < count[c]; j++) {
                below += d[i] / 2 + d[j] / 2 < shift.low;
                above += d[i] / 2 + d[j] / 2 > shift.high;
            }
        assert_int_equal(below, k[c] - 1);
        assert_int_equal(above, k[c] - 1);
    }
    for (int n = 1; n <= 5; n++) {
        const double d[] = {1, 2, 3, 4, 5};
        assert_true(isinf(of_pairs(d, n).low) && isinf(of_pairs(d, n).high));
    }
    const double six[] = {1, 2, 3, 4, 5, 6};
    assert_all_close(0, of_pairs(six, 6).low, 1, of_pairs(six, 6).high, 6);
}

/* ---- brute force ---- */

static double mean_rank(const double values[], int count, int of) {
    double rank = 1;
    for (int i = 0; i < count; i++)
        if (i != of)
            rank += values[i] < values[of] ? 1 : values[i] == values[of] ? .5 : 0;
    return rank;
}

static double two_sided(long below, long above, long total) {
    return fmin(1, 2. * (double)(below < above ? below : above) / (double)total);
}

TEST_RANDOM(signed_rank_brute) {
    for (int trial = 0; trial < 300; trial++) {
        double d[9], size[9];
        int count = test_random_int(random, 1, 9), kept = 0;
        for (int i = 0; i < count; i++) {
            d[i] = test_random_int(random, -4, 4); /* many ties and zeros */
            if (d[i] != 0)
                size[kept++] = fabs(d[i]);
        }
        struct mp_rank_test test = signed_rank(d, count);
        double observed = 0;
        for (int i = 0, k = 0; i < count; i++)
            if (d[i] != 0) {
                observed += d[i] > 0 ? mean_rank(size, kept, k) : 0;
                k++;
            }
        long below = 0, above = 0;
        for (int signs = 0; signs < 1 << kept; signs++) {
            double sum = 0;
            for (int i = 0; i < kept; i++)
                sum += signs >> i & 1 ? mean_rank(size, kept, i) : 0;
            below += sum <= observed;
            above += sum >= observed;
        }
        assert_close(test.statistic, observed, 0);
        assert_close(test.p, two_sided(below, above, 1L << kept), 1e-14);
    }
}

TEST_RANDOM(mann_whitney_brute) {
    for (int trial = 0; trial < 300; trial++) {
        double all[10], observed = 0;
        int n = test_random_int(random, 1, 5), m = test_random_int(random, 1, 5);
        long below = 0, above = 0, total = 0;
        for (int i = 0; i < n + m; i++)
            all[i] = test_random_int(random, 0, 6);
        for (int i = 0; i < n; i++)
            observed += mean_rank(all, n + m, i);
        for (int subset = 0; subset < 1 << (n + m); subset++) {
            double sum = 0;
            if (__builtin_popcount((unsigned)subset) != n)
                continue;
            for (int i = 0; i < n + m; i++)
                sum += subset >> i & 1 ? mean_rank(all, n + m, i) : 0;
            below += sum <= observed;
            above += sum >= observed;
            total++;
        }
        struct mp_rank_test test = mann_whitney(all, n, all + n, m);
        assert_close(test.statistic, observed - n * (n + 1) / 2., 0);
        assert_close(test.p, two_sided(below, above, total), 1e-14);
    }
}

/* ---- symmetries ---- */

static double noise(uint64_t *random) {
    return test_random_double(random) + test_random_double(random) + test_random_double(random) -
           1.5;
}

TEST_RANDOM(mirrored) {
    for (int trial = 0; trial < 100; trial++) {
        double d[30], minus[30], a[30], b[30], scaled[30];
        int n = test_random_int(random, 1, 30), m = test_random_int(random, 1, 30);
        for (int i = 0; i < 30; i++) {
            d[i] = noise(random);
            a[i] = noise(random);
            b[i] = noise(random) + .3;
        }
        for (int i = 0; i < n; i++) {
            minus[n - 1 - i] = -d[i]; /* in another order, too */
            scaled[i] = 4 * d[i];
        }
        struct mp_rank_test plain = signed_rank(d, n), mirror = signed_rank(minus, n);
        assert_close(plain.p, mirror.p, 0);
        assert_close(plain.statistic + mirror.statistic, n * (n + 1) / 2., 1e-15);
        assert_close(signed_rank(scaled, n).p, plain.p, 0);
        struct mp_shift shift = of_pairs(d, n), other = of_pairs(minus, n);
        assert_all_close(1e-15, shift.estimate, -other.estimate, shift.low, -other.high);
        assert_true(shift.low <= shift.estimate && shift.estimate <= shift.high);
        struct mp_rank_test u = mann_whitney(a, n, b, m), v = mann_whitney(b, m, a, n);
        assert_close(u.p, v.p, 1e-15);
        assert_close(u.statistic + v.statistic, n * m, 0);
        shift = of_groups(a, n, b, m);
        other = of_groups(b, m, a, n);
        assert_all_close(1e-15, shift.estimate, -other.estimate, shift.low, -other.high);
        for (int i = 0; i < m; i++)
            b[i] += 1;
        assert_close(of_groups(a, n, b, m).estimate, shift.estimate + 1, 1e-12);
    }
}

/* Beyond the exact sizes, as SciPy 1.17 has it (wilcoxon with zero_method "wilcox" and
 * mannwhitneyu, both asymptotic and corrected for continuity), with ties and a zero. */
TEST(large_samples_as_elsewhere) {
    double d[150], a[60], b[70];
    for (int i = 0; i < 150; i++)
        d[i] = i * 37 % 101 - 45;
    for (int i = 0; i < 60; i++)
        a[i] = i * 29 % 83;
    for (int i = 0; i < 70; i++)
        b[i] = i * 31 % 89 + 6;
    struct mp_rank_test test = signed_rank(d, 150);
    assert_false(test.exact);
    assert_close(test.statistic, 6574.5, 0);
    assert_close(test.p, 0.061538552003259785, 1e-12);
    test = mann_whitney(a, 60, b, 70);
    assert_false(test.exact);
    assert_close(test.statistic, 1701.5, 0);
    assert_close(test.p, 0.0630502647720968, 1e-12);
    assert_true(mann_whitney(d, 50, d + 50, 50).exact && !mann_whitney(d, 50, d + 50, 51).exact);
    for (int i = 0; i < 150; i++)
        d[i] = 3;
    assert_all_close(0, mann_whitney(d, 70, d, 80).p, 1, mann_whitney(d, 1, d, 1).p, 1);
}

/* How many of the averages of pairs, or differences of groups, are below an interval: floor(5662.5
 * - 0.5 - 1.96 x 532.98) of 11325 and floor(2100 - 0.5 - 1.96 x 214.126) of 4200. */
TEST_RANDOM(large_intervals_by_hand) {
    double d[150], *a = d, *b = d + 60;
    int pairs_below = 0, groups_below = 0;
    for (int i = 0; i < 150; i++)
        d[i] = test_random_double(random);
    struct mp_shift pairs = of_pairs(d, 150), groups = of_groups(a, 60, b, 70);
    for (int i = 0; i < 150; i++)
        for (int j = i; j < 150; j++)
            pairs_below += d[i] / 2 + d[j] / 2 < pairs.low;
    for (int i = 0; i < 60; i++)
        for (int j = 0; j < 70; j++)
            groups_below += b[j] - a[i] < groups.low;
    assert_int_equal(pairs_below, 4617);
    assert_int_equal(groups_below, 1679);
}

/* Two against eight: only 1 of 45 choices has U = 0, 2.2 %, so the whole range is an interval,
 * which a normal approximation would not give; two against seven (1 of 36) have none. */
TEST(intervals_of_few) {
    static const double two[] = {10, 11}, head[] = {20, 21, 22, 23, 24, 25, 26, 27};
    struct mp_shift eight = of_groups(two, 2, head, 8), seven = of_groups(two, 2, head, 7);
    assert_true(eight.low == 9 && eight.estimate == 13 && eight.high == 17);
    assert_true(isinf(seven.low) && isinf(seven.high));
}

TEST(refusals) {
    const double values[] = {1, NAN, 3}, infinite[] = {1, INFINITY}, fine[] = {1, 2};
    struct mp_rank_test test;
    struct mp_shift shift;
    assert_fails(mp_signed_rank(values, 3, &test, &error), MP_EINVAL, "value 2");
    assert_int_equal(mp_signed_rank(fine, 0, &test, NULL), MP_EINVAL);
    assert_int_equal(mp_mann_whitney(fine, 2, infinite, 2, &test, NULL), MP_EINVAL);
    assert_int_equal(mp_mann_whitney(fine, 0, fine, 2, &test, NULL), MP_EINVAL);
    assert_int_equal(mp_shift_of_pairs(values, 3, &shift, NULL), MP_EINVAL);
    assert_int_equal(mp_shift_of_groups(values, 3, fine, 2, &shift, NULL), MP_EINVAL);
    AUTO(allocated) double *many = calloc(MP_MOST_SAMPLES + 1, sizeof *many);
    assert_int_equal(mp_shift_of_pairs(many, MP_MOST_SAMPLES + 1, &shift, NULL), MP_ELIMIT);
}

/* ---- one job, many tests ---- */

TEST(steady_state) {
    const double values[] = {100, 101, 99, 100, 102, 100};
    assert_int_equal(mp_steady_from(values, 6, 6, .1139), -1);
    assert_int_equal(mp_steady_from(values, 6, 6, .11391), 0);
    assert_int_equal(mp_steady_from(values, 6, 7, 10), -1); /* never full */
    double warming[60];
    for (int i = 0; i < 60; i++)
        warming[i] = i < 30 ? 200 - 3 * i : 110;
    int first = mp_steady_from(warming, 60, 20, .1);
    assert_true(first >= 25 && first <= 30);
}

TEST(outlier_warning) {
    /* median 10, MAD 1: the limit is 24.826 */
    assert_int_equal(mp_outliers((double[]){10, 9, 11, 9, 11, 10, 24.8}, 7), 0);
    assert_int_equal(mp_outliers((double[]){10, 9, 11, 9, 11, 10, 24.9}, 7), 1);
    assert_int_equal(mp_outliers((double[]){10, 9, 11, 9, 11, 10, -4.9}, 7), 1);
    /* a MAD of 0 counts as epsilon */
    assert_int_equal(mp_outliers((double[]){5.1, 5, 5, 5, 5}, 5), 1);
    assert_int_equal(mp_outliers(NULL, 0), 0);
}

TEST(holm) {
    const double p[] = {.001, .02, .03, .4}, shuffled[] = {.03, NAN, .4, .001, .02};
    double adjusted[5];
    assert_works(mp_holm(p, 4, adjusted, &error));
    const double expected[] = {.004, .06, .06, .4};
    for (int i = 0; i < 4; i++)
        assert_close(adjusted[i], expected[i], 1e-15);
    assert_works(mp_holm(shuffled, 5, adjusted, &error));
    const double also[] = {.06, NAN, .4, .004, .06};
    assert_true(isnan(adjusted[1]));
    for (int i = 0; i < 5; i += i ? 1 : 2)
        assert_close(adjusted[i], also[i], 1e-15);
    const double same[] = {.5, .01, .01, .9};
    assert_works(mp_holm(same, 4, adjusted, &error));
    assert_all_close(1e-15, adjusted[1], .04, adjusted[2], .04);
    assert_close(adjusted[0], 1, 0);
    assert_works(mp_holm(NULL, 0, adjusted, &error));
}

/* Quantiles as tables have them, and what can be worked out by hand. */
TEST(student) {
    static const struct {
        double t;
        int freedom;
        double p;
    } cases[] = {{12.7062047362, 1, .05},
                 {4.3026527297, 2, .05},
                 {3.1824463053, 3, .05},
                 {2.7764451052, 4, .05},
                 {2.2281388520, 10, .05},
                 {1.9842169516, 99, .05},
                 {1, 1, .5},
                 {1, 2, .42264973081},
                 {0, 7, 1}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        assert_close(mp_student_p(cases[i].t, cases[i].freedom), cases[i].p, 1e-9);
        assert_close(mp_student_p(-cases[i].t, cases[i].freedom), cases[i].p, 1e-9);
    }
    assert_close(mp_student_p(INFINITY, 5), 0, 1e-15);
    assert_true(isnan(mp_student_p(1, 0)));
}
