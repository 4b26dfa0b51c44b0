/* Evidence and decisions: the worked chain, mirrored sides, thousands of simulated comparisons with
 * known truth, and inputs that say nothing. */
#include "results/compare/evidence.h"

#include "tests/support.h"

#include <string.h>

#include "reference/base/elementary.h"
#include "results/compare/statistics.h"

enum { MOST = 20 };

static struct mp_evidence weigh(const double base[], const double head[], int count, bool paired) {
    struct mp_error error = {0};
    struct mp_evidence evidence;
    const struct mp_samples samples = {base, head, count, count, paired};
    if (mp_evidence_weigh(&samples, &evidence, &error))
        fail_msg("%s", error.text);
    return evidence;
}

static enum mp_outcome decide(const struct mp_evidence *evidence, double p, double floor) {
    char reason[256] = "";
    enum mp_outcome outcome = mp_evidence_decide(
        evidence, &(struct mp_decision){MP_MINIMUM_EFFECT, p, floor, 1}, reason, sizeof reason);
    assert_true(strlen(reason) > 10);
    return outcome;
}

static const double base[10] = {50.1, 49.8, 50.4, 50.0, 49.9, 50.2, 50.3, 49.7, 50.0, 50.1};
static const double heads[3][10] = {
    {51.6, 51.2, 51.5, 51.1, 51.4, 51.9, 51.3, 51.0, 51.7, 51.2},
    {50.25, 49.91, 50.36, 50.02, 49.73, 50.31, 50.17, 49.98, 49.95, 50.04},
    {52.9, 49.0, 51.8, 50.2, 48.8, 53.1, 50.9, 49.5, 52.2, 51.1}};

static void worked_chain(void **state) {
    (void)state;
    const enum mp_outcome expected[] = {MP_OUTCOME_FAIL, MP_OUTCOME_PASS, MP_OUTCOME_INCONCLUSIVE};
    double p[3], adjusted[3];
    struct mp_evidence evidence[3];
    for (int i = 0; i < 3; i++) {
        evidence[i] = weigh(base, heads[i], 10, true);
        p[i] = evidence[i].p;
    }
    assert_int_equal(mp_holm(p, 3, adjusted, NULL), MP_OK);
    for (int i = 0; i < 3; i++)
        assert_int_equal(decide(&evidence[i], adjusted[i], NAN), expected[i]);
    assert_close(evidence[0].effect, .02685, 1e-5);
    assert_close(evidence[0].low, .02198, 1e-5);
    assert_close(evidence[0].high, .03098, 1e-5);
    assert_close(evidence[0].base, 50.05, 1e-12);
    assert_close(evidence[0].w, 55, 0);
    assert_close(evidence[2].u, 32.5, 0);
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

static void mirrored(void **state) {
    (void)state;
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
static void invariances(void **state) {
    (void)state;
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
        assert_close(plain.effect, other.effect, 1e-12);
        assert_close(plain.low, other.low, 1e-12);
        assert_close(plain.u, other.u, 0);
    }
}

struct tally {
    int count[5];
};

/* Many comparisons with Holm over `metrics`, all of the same truth. */
static struct tally comparisons(uint64_t seed, int tries, double ratio, double noise, double drift,
                                int pairs, int metrics) {
    struct tally tally = {{0}};
    for (int t = 0; t < tries; t++) {
        double p[MOST], adjusted[MOST];
        struct mp_evidence evidence[MOST];
        enum mp_outcome worst = MP_OUTCOME_PASS;
        for (int k = 0; k < metrics; k++) {
            double a[MOST], b[MOST];
            simulate(seed, (uint64_t)(t * metrics + k), k ? 1 : ratio, noise, drift, pairs, a, b);
            evidence[k] = weigh(a, b, pairs, true);
            p[k] = evidence[k].p;
        }
        assert_int_equal(mp_holm(p, metrics, adjusted, NULL), MP_OK);
        for (int k = 0; k < metrics; k++) {
            enum mp_outcome outcome = decide(&evidence[k], adjusted[k], NAN);
            worst = outcome > worst ? outcome : worst;
        }
        tally.count[worst]++;
    }
    return tally;
}

/* The figures that the gate has to reach; seeds are fixed, so that they are facts. */
static void finds_five_percent(void **state) {
    (void)state;
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

static void stays_quiet(void **state) {
    (void)state;
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

static void says_nothing(void **state) {
    (void)state;
    const double one[] = {50}, slower[] = {80}, equal[] = {5, 5, 5, 5, 5, 5, 5, 5};
    const double five[] = {1, 1.01, 1.02, 1.03, 1.04}, much[] = {2, 2.1, 2.2, 2.3, 2.4};
    struct mp_evidence evidence = weigh(one, slower, 1, true);
    assert_true(isinf(evidence.high));
    assert_int_equal(decide(&evidence, evidence.p, NAN), MP_OUTCOME_INCONCLUSIVE);
    evidence = weigh(five, much, 5, true);
    assert_int_equal(decide(&evidence, evidence.p, NAN), MP_OUTCOME_INCONCLUSIVE);
    evidence = weigh(equal, equal, 8, true);
    assert_close(evidence.p, 1, 0);
    assert_close(evidence.effect, 0, 0);
    assert_int_equal(decide(&evidence, 1, NAN), MP_OUTCOME_PASS);
}

static void refusals(void **state) {
    (void)state;
    const double fine[] = {1, 2, 3};
    const double bad[][3] = {{1, NAN, 3}, {1, -2, 3}, {1, 0, 3}, {1, INFINITY, 3}};
    struct mp_evidence evidence;
    for (int i = 0; i < 4; i++) {
        struct mp_error error = {0};
        struct mp_samples samples = {fine, bad[i], 3, 3, true};
        assert_int_equal(mp_evidence_weigh(&samples, &evidence, &error), MP_EINVAL);
        assert_non_null(strstr(error.text, "head: sample 2"));
    }
    assert_int_equal(
        mp_evidence_weigh(&(struct mp_samples){fine, fine, 3, 2, true}, &evidence, NULL),
        MP_EINVAL);
    assert_int_equal(
        mp_evidence_weigh(&(struct mp_samples){fine, fine, 0, 2, false}, &evidence, NULL),
        MP_EINVAL);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(worked_chain), cmocka_unit_test(mirrored),
        cmocka_unit_test(invariances),  cmocka_unit_test(finds_five_percent),
        cmocka_unit_test(stays_quiet),  cmocka_unit_test(says_nothing),
        cmocka_unit_test(refusals),
    };
    return cmocka_run_group_tests_name("evidence", tests, NULL, NULL);
}
