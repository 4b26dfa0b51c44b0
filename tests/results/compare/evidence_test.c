/* Evidence and decisions: the worked chain, mirrored sides, thousands of simulated comparisons with
 * known truth, and inputs that say nothing. */
#include "results/compare/gate.h"

#include "tests/errors.h"

#include "reference/base/elementary.h"
#include "results/compare/statistics.h"

enum { MOST = 20 };

static struct mp_evidence weigh(const double base[], const double head[], int count, bool paired) {
    struct mp_evidence evidence;
    const struct mp_samples samples = {base, head, count, count, paired};
    assert_works(mp_evidence_weigh(&samples, &evidence, &error));
    return evidence;
}

static enum mp_outcome decide_all(const struct mp_evidence *evidence, double p, double beyond_p,
                                  double floor, const char *doubt) {
    char reason[256] = "";
    const struct mp_decision decision = {.minimum_effect = MP_MINIMUM_EFFECT,
                                         .adjusted_p = p,
                                         .beyond_p = beyond_p,
                                         .floor = floor,
                                         .metrics = 1,
                                         .doubt = doubt};
    enum mp_outcome outcome = mp_evidence_decide(evidence, &decision, reason, sizeof reason);
    assert_true(strlen(reason) >= 5);
    return outcome;
}

/* By ranks and intervals alone. */
static enum mp_outcome decide(const struct mp_evidence *evidence, double p, double floor) {
    return decide_all(evidence, p, NAN, floor, NULL);
}

static const double base[10] = {50.1, 49.8, 50.4, 50.0, 49.9, 50.2, 50.3, 49.7, 50.0, 50.1};
static const struct {
    enum mp_outcome outcome;
    double head[10];
    double is[7]; /* effect and its ends in percent, W with its p, U with its p */
} chain[] = {{MP_OUTCOME_FAIL,
              {51.6, 51.2, 51.5, 51.1, 51.4, 51.9, 51.3, 51.0, 51.7, 51.2},
              {2.685, 2.198, 3.098, 55, .001953125, 0, 1.0825e-5}},
             {MP_OUTCOME_PASS,
              {50.25, 49.91, 50.36, 50.02, 49.73, 50.31, 50.17, 49.98, 49.95, 50.04},
              {.050, -.169, .242, 30, .8457, 47, .8390}},
             {MP_OUTCOME_INCONCLUSIVE,
              {52.9, 49.0, 51.8, 50.2, 48.8, 53.1, 50.9, 49.5, 52.2, 51.1},
              {1.708, -.402, 3.869, 43, .1309, 32.5, .1972}}};

TEST(worked_chain) {
    double p[3], adjusted[3];
    struct mp_evidence evidence[3];
    for (int i = 0; i < 3; i++) {
        evidence[i] = weigh(base, chain[i].head, 10, true);
        p[i] = evidence[i].p;
        assert_within(100 * evidence[i].effect, chain[i].is[0], 6e-4);
        assert_within(100 * evidence[i].low, chain[i].is[1], 6e-4);
        assert_within(100 * evidence[i].high, chain[i].is[2], 6e-4);
        assert_close(evidence[i].w, chain[i].is[3], 0);
        assert_within(evidence[i].p, chain[i].is[4], 6e-5);
        assert_close(evidence[i].u, chain[i].is[5], 0);
        assert_close(evidence[i].u_p, chain[i].is[6], 1e-3);
    }
    assert_close(evidence[0].base, 50.05, 1e-12);
    assert_int_equal(mp_holm(p, 3, adjusted, NULL), MP_OK);
    for (int i = 0; i < 3; i++)
        assert_int_equal(decide(&evidence[i], adjusted[i], NAN), chain[i].outcome);
    /* A floor as large as the effect to be seen decides nothing; a smaller one changes nothing. */
    assert_int_equal(decide(&evidence[0], adjusted[0], .02), MP_OUTCOME_INCONCLUSIVE);
    assert_int_equal(decide(&evidence[1], adjusted[1], .02), MP_OUTCOME_INCONCLUSIVE);
    assert_int_equal(decide(&evidence[0], adjusted[0], .0199), MP_OUTCOME_FAIL);
    /* Without evidence no effect is a finding, and without effect no evidence is one. */
    assert_int_equal(decide(&evidence[0], .0501, NAN), MP_OUTCOME_INCONCLUSIVE);
    assert_int_equal(decide(&evidence[1], 1e-9, NAN), MP_OUTCOME_PASS);
}

/* Job medians of a true ratio on a machine with this noise; drift is over the whole comparison. */
static void simulate(uint64_t seed, uint64_t try, double ratio, double noise, double drift,
                     int pairs, double before[], double after[]) {
    for (int i = 0; i < pairs; i++) {
        /* base, head, head, base, ... */
        int first = 2 * i, turn_of_head = i % 2 ? 0 : 1;
        double at_base = (first + 1 - turn_of_head) / (2. * pairs),
               at_head = (first + turn_of_head) / (2. * pairs);
        uint64_t place = try * 64 + (uint64_t)i * 2;
        before[i] = 50 * exp(noise * mp_elementary_normal(seed, 1, place)) * (1 + drift * at_base);
        after[i] = 50 * ratio * exp(noise * mp_elementary_normal(seed, 1, place + 1)) *
                   (1 + drift * at_head);
    }
}

TEST(mirrored) {
    uint64_t seed = test_seed();
    int seen[5] = {0};
    for (uint64_t t = 0; t < 400; t++) {
        double a[MOST], b[MOST];
        simulate(seed, t, t % 2 ? 1.03 : 1, .008, 0, 10, a, b);
        for (int paired = 0; paired < 2; paired++) {
            struct mp_evidence plain = weigh(a, b, 10, paired), mirror = weigh(b, a, 10, paired);
            assert_close(plain.p, mirror.p, 1e-12);
            assert_close((1 + plain.effect) * (1 + mirror.effect), 1, 1e-12);
            assert_close((1 + plain.low) * (1 + mirror.high), 1, 1e-12);
            enum mp_outcome outcome = decide(&plain, plain.p, NAN),
                            other = decide(&mirror, mirror.p, NAN);
            seen[outcome]++;
            assert_int_equal(outcome == MP_OUTCOME_FAIL, other == MP_OUTCOME_IMPROVED);
            assert_int_equal(outcome == MP_OUTCOME_IMPROVED, other == MP_OUTCOME_FAIL);
        }
    }
    assert_true(seen[MP_OUTCOME_FAIL] > 100 && seen[MP_OUTCOME_PASS] > 100);
}

/* Order of the pairs and the unit of time do not matter. */
TEST(invariances) {
    uint64_t seed = test_seed();
    for (uint64_t t = 0; t < 100; t++) {
        double a[MOST], b[MOST], c[MOST], d[MOST];
        simulate(seed, t, 1.01, .01, 0, 12, a, b);
        for (int i = 0; i < 12; i++) {
            c[(i * 5 + 3) % 12] = 8 * a[i];
            d[(i * 5 + 3) % 12] = 8 * b[i];
        }
        struct mp_evidence plain = weigh(a, b, 12, true), other = weigh(c, d, 12, true);
        assert_close(plain.p, other.p, 0);
        assert_within(plain.effect, other.effect, 1e-12);
        assert_within(plain.low, other.low, 1e-12);
        assert_close(plain.u, other.u, 0);
    }
}

struct tally {
    int count[5];
};

/* Of all metrics of a comparison, with Holm over them. */
static enum mp_outcome worst_of(const struct mp_evidence evidence[], int metrics,
                                const char *doubt) {
    double p[MOST] = {0}, beyond[MOST] = {0}, adjusted[MOST], adjusted_beyond[MOST];
    enum mp_outcome worst = MP_OUTCOME_PASS;
    for (int k = 0; k < metrics; k++) {
        p[k] = evidence[k].p;
        beyond[k] = mp_evidence_beyond(&evidence[k], MP_MINIMUM_EFFECT, NAN);
    }
    assert_int_equal(mp_holm(p, metrics, adjusted, NULL), MP_OK);
    assert_int_equal(mp_holm(beyond, metrics, adjusted_beyond, NULL), MP_OK);
    for (int k = 0; k < metrics; k++) {
        enum mp_outcome outcome =
            decide_all(&evidence[k], doubt ? NAN : adjusted[k], adjusted_beyond[k], NAN, doubt);
        worst = outcome > worst ? outcome : worst;
    }
    return worst;
}

/* Many comparisons of `metrics`, all of the same truth. */
static struct tally comparisons(uint64_t seed, int tries, double ratio, double noise, double drift,
                                int pairs, int metrics) {
    struct tally tally = {{0}};
    for (int t = 0; t < tries; t++) {
        struct mp_evidence evidence[MOST];
        for (int k = 0; k < metrics; k++) {
            double a[MOST], b[MOST];
            simulate(seed, (uint64_t)(t * metrics + k), k ? 1 : ratio, noise, drift, pairs, a, b);
            evidence[k] = weigh(a, b, pairs, true);
        }
        tally.count[worst_of(evidence, metrics, NULL)]++;
    }
    return tally;
}

/* The figures that the gate has to reach; seeds are fixed, so that they are facts. */
TEST(finds_five_percent) {
    struct tally quiet = comparisons(1, 1000, 1.05, .01, 0, 10, 1);
    assert_true(quiet.count[MP_OUTCOME_FAIL] >= 990);
    struct tally among_six = comparisons(2, 500, 1.05, .01, 0, 10, 6);
    assert_true(among_six.count[MP_OUTCOME_FAIL] >= 475);
    struct tally drifting = comparisons(3, 1000, 1.05, .01, .05, 10, 1);
    assert_true(drifting.count[MP_OUTCOME_FAIL] >= 950);
    struct tally noisy = comparisons(4, 1000, 1.05, .02, 0, 12, 1);
    assert_true(noisy.count[MP_OUTCOME_FAIL] >= 950);
    print_message("5 %% slower: %d, %d (of 500), %d, %d of 1000 found\n",
                  quiet.count[MP_OUTCOME_FAIL], among_six.count[MP_OUTCOME_FAIL],
                  drifting.count[MP_OUTCOME_FAIL], noisy.count[MP_OUTCOME_FAIL]);
}

TEST(stays_quiet) {
    const double noise[] = {.01, .02, .05};
    for (int i = 0; i < 3; i++) {
        struct tally one = comparisons(10 + (uint64_t)i, 1000, 1, noise[i], 0, 10, 1);
        struct tally six = comparisons(20 + (uint64_t)i, 300, 1, noise[i], .05, 12, 6);
        print_message("A/A at %.0f %%: %d of 1000 and %d of 300 false alarms, %d pass\n",
                      100 * noise[i], one.count[MP_OUTCOME_FAIL], six.count[MP_OUTCOME_FAIL],
                      one.count[MP_OUTCOME_PASS]);
        assert_true(one.count[MP_OUTCOME_FAIL] <= 50);
        assert_true(six.count[MP_OUTCOME_FAIL] <= 15);
    }
}

/* ---- what is beyond all noise ---- */

enum noise { NORMAL, WITH_STRAYS, TWO_SPEEDS, NOISES };
static const char *const noise_names[NOISES] = {"normal, 3 %", "with strays", "of two speeds"};

/* The logarithm of what noise makes of one sample: 3 % as a bell; 2 %, and one in ten takes up to
 * twice as long; 1 %, and half of them take 8 % longer, as layout of memory may have it. */
static double noise_of(enum noise noise, uint64_t seed, uint64_t place) {
    double bell = mp_elementary_normal(seed, 1, place);
    double other = .5 * erfc(mp_elementary_normal(seed, 2, place) * M_SQRT1_2); /* 0 .. 1 */
    if (noise == NORMAL)
        return .03 * bell;
    if (noise == WITH_STRAYS)
        return .02 * bell + (other < .1 ? 6.9 * other : 0);
    return .01 * bell + (other < .5 ? .08 : 0);
}

/* Many comparisons of `metrics` jobs of one truth, all of which are in doubt. */
static struct tally doubtful(enum noise noise, double ratio, int pairs, int metrics, int tries) {
    struct tally tally = {{0}};
    for (int t = 0; t < tries; t++) {
        struct mp_evidence evidence[MOST];
        for (int k = 0; k < metrics; k++) {
            double a[MOST], b[MOST];
            for (int i = 0; i < pairs; i++) {
                uint64_t place = (uint64_t)((t * metrics + k) * pairs + i) * 2;
                a[i] = 50 * exp(noise_of(noise, 30, place));
                b[i] = 50 * ratio * exp(noise_of(noise, 30, place + 1));
            }
            evidence[k] = weigh(a, b, pairs, true);
        }
        tally.count[worst_of(evidence, metrics, "too short")]++;
    }
    return tally;
}

/* The rate of false alarms, of all kinds of noise and numbers of pairs; seeds are fixed. */
TEST(doubtful_ones_stay_quiet) {
    static const int pairs[] = {3, 4, 6, 8};
    enum { TRIES = 800 };
    for (enum noise noise = NORMAL; noise < NOISES; noise++)
        for (size_t i = 0; i < sizeof pairs / sizeof *pairs; i++) {
            struct tally one = doubtful(noise, 1, pairs[i], 1, TRIES),
                         six = doubtful(noise, 1, pairs[i], 6, TRIES / 4);
            int alarms = one.count[MP_OUTCOME_FAIL], of_six = six.count[MP_OUTCOME_FAIL];
            print_message("A/A in doubt, noise %s, %d pairs: %d of %d false alarms, %d of %d in "
                          "six jobs\n",
                          noise_names[noise], pairs[i], alarms, TRIES, of_six, TRIES / 4);
            assert_true(alarms <= TRIES / 40);
            assert_true(of_six <= TRIES / 4 / 20);
            assert_int_equal(one.count[MP_OUTCOME_PASS], 0);
        }
}

TEST(doubtful_ones_are_found) {
    static const struct {
        double ratio;
        int pairs, metrics, least; /* of 300 */
    } cases[] = {{2.4, 3, 1, 285}, {2, 3, 1, 285},   {2, 4, 6, 285},
                 {1.2, 6, 1, 285}, {1.2, 8, 6, 285}, {1.05, 8, 1, 60}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct tally found =
            doubtful(NORMAL, cases[i].ratio, cases[i].pairs, cases[i].metrics, 300);
        print_message("%.2f x in doubt, %d pairs, %d jobs: %d of 300 found\n", cases[i].ratio,
                      cases[i].pairs, cases[i].metrics, found.count[MP_OUTCOME_FAIL]);
        assert_true(found.count[MP_OUTCOME_FAIL] >= cases[i].least);
    }
}

/* A floor that is larger than the minimum effect is what has to be exceeded, by all of the
 * interval; faster is the mirror image. */
TEST(beyond_is_beyond_the_floor) {
    static const double before[] = {10, 10.1, 9.9, 10.05, 9.95, 10.02},
                        after[] = {12, 12.2, 11.8, 12.1, 11.9, 12.1};
    struct mp_evidence slower = weigh(before, after, 6, true),
                       faster = weigh(after, before, 6, true);
    const struct {
        double floor;
        enum mp_outcome slower, faster;
    } cases[] = {{NAN, MP_OUTCOME_FAIL, MP_OUTCOME_IMPROVED},
                 {.15, MP_OUTCOME_FAIL, MP_OUTCOME_IMPROVED},
                 {.199, MP_OUTCOME_INCONCLUSIVE, MP_OUTCOME_INCONCLUSIVE},
                 {.3, MP_OUTCOME_INCONCLUSIVE, MP_OUTCOME_INCONCLUSIVE}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        double floor = cases[i].floor, p = mp_evidence_beyond(&slower, MP_MINIMUM_EFFECT, floor);
        assert_close(p, mp_evidence_beyond(&faster, MP_MINIMUM_EFFECT, floor), 1e-12);
        assert_int_equal(decide_all(&slower, 1, p, floor, NULL), cases[i].slower);
        assert_int_equal(decide_all(&faster, 1, p, floor, "short"), cases[i].faster);
        /* However small p is, the whole interval has to be there. */
        assert_int_equal(decide_all(&slower, 1, 0, floor, NULL), cases[i].slower);
    }
}

/* By hand: three logarithms .1 .2 .3 beyond ln 1.02, Student's t with 2 degrees of freedom.  As
 * groups of which one does not vary the error is the same. */
TEST(beyond_by_hand) {
    const double ones[] = {1, 1, 1}, three[] = {exp(.1), exp(.2), exp(.3)};
    const double t = (.2 - log(1.02)) / (.1 / sqrt(3)), expected = 1 - t / sqrt(t * t + 2);
    struct mp_evidence pairs = weigh(ones, three, 3, true), groups = weigh(ones, three, 3, false);
    assert_close(mp_evidence_beyond(&pairs, .02, NAN), expected, 1e-12);
    assert_close(mp_evidence_beyond(&groups, .02, NAN), expected, 1e-12);
    assert_close(mp_evidence_beyond(&pairs, .3, NAN), 1, 0);
    struct mp_evidence two = weigh(ones, three, 2, true);
    assert_true(isnan(mp_evidence_beyond(&two, .02, NAN)));
}

TEST(says_nothing) {
    const double one[] = {50}, slower[] = {80}, equal[] = {5, 5, 5, 5, 5, 5, 5, 5};
    const double five[] = {1, 1.01, 1.02, 1.03, 1.04}, much[] = {2, 2.1, 2.2, 2.3, 2.4};
    struct mp_evidence evidence = weigh(one, slower, 1, true);
    assert_true(isinf(evidence.high));
    assert_int_equal(decide(&evidence, evidence.p, NAN), MP_OUTCOME_INCONCLUSIVE);
    evidence = weigh(five, much, 5, true);
    assert_int_equal(decide(&evidence, evidence.p, NAN), MP_OUTCOME_INCONCLUSIVE);
    evidence = weigh(equal, equal, 8, true);
    assert_numbers(evidence.p, 1, evidence.effect, 0);
    assert_int_equal(decide(&evidence, 1, NAN), MP_OUTCOME_PASS);
}

/* Ratios 1, 1.21 and 1 of pairs: logarithms 0, a, 0 with a = ln 1.21 deviate by a / sqrt(3); a
 * single side by a / sqrt(6).  Of groups the base's alone count. */
TEST(spread_by_hand) {
    static const double equal[] = {10, 10, 10}, one[] = {10, 12.1, 10};
    struct mp_evidence groups = weigh(one, equal, 3, false);
    assert_close(weigh(equal, one, 3, true).spread, log(1.21) / sqrt(6), 1e-12);
    assert_close(groups.spread, log(1.21) / sqrt(3), 1e-12);
    assert_true(isnan(groups.w));
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

TEST(refusals) {
    const double fine[] = {1, 2, 3};
    const double bad[][3] = {{1, NAN, 3}, {1, -2, 3}, {1, 0, 3}, {1, INFINITY, 3}};
    struct mp_evidence evidence;
    for (int i = 0; i < 4; i++) {
        struct mp_samples samples = {fine, bad[i], 3, 3, true};
        assert_fails(mp_evidence_weigh(&samples, &evidence, &error), MP_EINVAL, "head: sample 2");
    }
    assert_int_equal(
        mp_evidence_weigh(&(struct mp_samples){fine, fine, 3, 2, true}, &evidence, NULL),
        MP_EINVAL);
    assert_int_equal(
        mp_evidence_weigh(&(struct mp_samples){fine, fine, 0, 2, false}, &evidence, NULL),
        MP_EINVAL);
}
