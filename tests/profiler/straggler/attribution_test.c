/* Injected causes come back: the right rank and the right cause, and nothing where nothing is. */
#include "tests/profiler/straggler/synthetic.h"

enum { RUNS = 100 };

static void describe(const struct synthetic *plan, const struct mp_straggler *found) {
    print_message("%d ranks, %d layers, %d iterations, noise %.3f: rank %d %s strength %g phase "
                  "%d every %d; iteration %.4f s\n",
                  plan->ranks, plan->layers, plan->iterations, plan->noise, plan->rank,
                  mp_cause_name(plan->cause), plan->strength, plan->phase, plan->every,
                  found->seconds);
    for (int f = 0; f < found->findings; f++)
        print_message("  found rank %d %s: waiting %.5f, longer %.5f, saved %.5f, last %.2f\n",
                      found->finding[f].rank, mp_cause_name(found->finding[f].cause),
                      found->finding[f].waiting, found->finding[f].longer, found->finding[f].saved,
                      found->finding[f].last);
}

static struct synthetic random_plan(uint64_t *random) {
    return (struct synthetic){
        .ranks = test_random_int(random, 2, 16),
        .layers = test_random_int(random, 1, 4),
        .iterations = test_random_int(random, 12, 30),
        .noise = 0.01 + 0.02 * test_random_double(random),
        .jitter = 0.01,
        .rank = -1,
        .phase = -1,
    };
}

/* Delays of 5 to 50 % of an iteration (about 17 ms a layer). */
static void inject(struct synthetic *plan, uint64_t *random) {
    static const enum mp_cause causes[] = {MP_CAUSE_ROUTING,       MP_CAUSE_SLOW, MP_CAUSE_ONE_OFF,
                                           MP_CAUSE_COMMUNICATION, MP_CAUSE_HOST, MP_CAUSE_BEFORE};
    double part = 0.05 + 0.45 * test_random_double(random), iteration = 17e-3 * plan->layers;
    plan->rank = test_random_int(random, 0, plan->ranks - 1);
    plan->cause = causes[test_random_int(random, 0, 5)];
    plan->strength = part * iteration;
    if (plan->cause == MP_CAUSE_ROUTING) /* experts are 9 of 17 ms */
        plan->strength = 1 + part * 17 / 9;
    if (plan->cause == MP_CAUSE_SLOW) {
        bool everything = test_random_int(random, 0, 1);
        plan->phase = everything ? -1 : MP_PHASE_EXPERT;
        plan->strength = everything ? 1 + part : part * 17e-3 / 2;
    }
    if (plan->cause == MP_CAUSE_COMMUNICATION)
        plan->strength = part * 17e-3 / 2;
    if (plan->cause == MP_CAUSE_ONE_OFF) {
        plan->every = test_random_int(random, 4, 12);
        plan->strength *= 3;
    }
}

static void injected_causes_are_named(void **state) {
    uint64_t random = test_seed();
    int right = 0, named = 0;
    double worst = 0;
    (void)state;
    for (int i = 0; i < RUNS; i++) {
        struct synthetic plan = random_plan(&random);
        struct synthetic_run run;
        struct mp_straggler found;
        struct mp_error error = {0};
        inject(&plan, &random);
        synthetic_make(&plan, &random, &run);
        assert_int_equal(mp_straggler_analyse(&run.input, &found, &error), MP_OK);
        bool is_right = found.findings > 0 && found.finding[0].rank == plan.rank &&
                        found.finding[0].cause == plan.cause;
        if (is_right && plan.cause != MP_CAUSE_ONE_OFF)
            is_right = found.finding[0].chronic;
        if (!is_right || found.findings != 1)
            describe(&plan, &found);
        right += is_right;
        named += found.findings == 1;
        /* A delay that the report gives back: of seconds put into a phase; smaller ones drown in
         * the noise of a dozen iterations. */
        double put = plan.strength * 2 * plan.layers;
        if (is_right && plan.cause == MP_CAUSE_SLOW && plan.phase >= 0 &&
            put > 0.15 * found.seconds)
            worst = fmax(worst, fabs(found.finding[0].longer / put - 1));
        mp_straggler_destroy(&found);
        synthetic_destroy(&run);
    }
    print_message("right rank and cause in %d of %d runs, nothing else said in %d; delays within "
                  "%.1f %%\n",
                  right, RUNS, named, 100 * worst);
    assert_true(right >= 95);
    assert_true(named >= 90);
    assert_true(worst < 0.05);
}

static void clean_runs_have_no_finding(void **state) {
    uint64_t random = test_seed();
    int alarms = 0;
    (void)state;
    for (int i = 0; i < RUNS; i++) {
        struct synthetic plan = random_plan(&random);
        struct synthetic_run run;
        struct mp_straggler found;
        struct mp_error error = {0};
        synthetic_make(&plan, &random, &run);
        assert_int_equal(mp_straggler_analyse(&run.input, &found, &error), MP_OK);
        if (found.findings)
            describe(&plan, &found);
        alarms += found.findings > 0;
        mp_straggler_destroy(&found);
        synthetic_destroy(&run);
    }
    print_message("false alarms in %d of %d clean runs\n", alarms, RUNS);
    assert_int_equal(alarms, 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(injected_causes_are_named),
        cmocka_unit_test(clean_runs_have_no_finding),
    };
    return cmocka_run_group_tests_name("straggler attribution", tests, NULL, NULL);
}
