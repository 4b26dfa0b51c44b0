/* Injected causes come back: the right rank and the right cause, and nothing where nothing is. */
#include "tests/profiler/straggler/synthetic.h"

enum { RUNS = TEST_ROUNDS(100), EACH = TEST_ROUNDS(20) }; /* EACH: of one cause */

static void describe(const struct synthetic *plan, const struct mp_straggler *found) {
    print_message("%d ranks, %d layers, %d iterations, noise %.3f: rank %d %s strength %g phase "
                  "%d every %d; iteration %.4f s\n",
                  plan->ranks, plan->layers, plan->iterations, plan->noise, plan->rank,
                  mp_cause_name(plan->cause), plan->strength, plan->phase, plan->every,
                  found->seconds);
    if (plan->also)
        print_message("  and rank %d %s strength %g phase %d every %d\n", plan->also->rank,
                      mp_cause_name(plan->also->cause), plan->also->strength, plan->also->phase,
                      plan->also->every);
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
        .cpu = true,
    };
}

/* What can be put in, and where in an iteration that makes a rank late: of two ranks that are late
 * at the same place only the later one is waited for. */
enum place { BEGINNING, EXPERTS, BACKWARD, ANYWHERE };
static const struct {
    enum mp_cause cause;
    enum place place;
} causes[] = {
    {MP_CAUSE_ROUTING, EXPERTS},  {MP_CAUSE_SLOW, EXPERTS},     {MP_CAUSE_LINK, EXPERTS},
    {MP_CAUSE_DATA, BEGINNING},   {MP_CAUSE_HOST, BEGINNING},   {MP_CAUSE_CHECKPOINT, BEGINNING},
    {MP_CAUSE_BEFORE, BEGINNING}, {MP_CAUSE_ONE_OFF, BACKWARD}, {MP_CAUSE_COLLECT, BACKWARD},
    {MP_CAUSE_STOLEN, ANYWHERE},
};
enum { CAUSES = sizeof causes / sizeof *causes };

/* Delays of `least` to 50 % of an iteration (about 17 ms a layer). */
static void inject(struct synthetic *plan, int cause, double least, uint64_t *random) {
    double part = least + (0.5 - least) * test_random_double(random),
           iteration = 17e-3 * plan->layers;
    plan->rank = test_random_int(random, 0, plan->ranks - 1);
    plan->cause = causes[cause].cause;
    plan->strength = part * iteration;
    plan->between = test_random_int(random, 0, 1);
    if (plan->cause == MP_CAUSE_ROUTING) /* experts are 9 of 17 ms */
        plan->strength = 1 + part * 17 / 9;
    if (plan->cause == MP_CAUSE_SLOW) {
        bool everything = test_random_int(random, 0, 1);
        plan->phase = everything ? -1 : MP_PHASE_EXPERT;
        plan->strength = everything ? 1 + part : part * 17e-3 / 2;
    }
    if (plan->cause == MP_CAUSE_LINK)
        plan->strength = part * 17e-3 / 2;
    if (mp_cause_kind(plan->cause)->occasional && plan->cause != MP_CAUSE_DATA) {
        plan->every = test_random_int(random, 4, 12);
        plan->strength *= 3;
    }
}

static bool is_found(const struct mp_straggler *found, const struct synthetic *plan) {
    for (int f = 0; f < found->findings; f++)
        if (found->finding[f].rank == plan->rank && found->finding[f].cause == plan->cause)
            return true;
    return false;
}

static struct mp_straggler made(const struct synthetic *plan, uint64_t *random) {
    AUTO(synthetic) struct synthetic_run run;
    synthetic_make(plan, random, &run);
    return analysed(&run.input);
}

TEST_RANDOM(injected_causes_are_named) {
    int all = 0, all_named = 0;
    double worst = 0;
    for (int c = 0; c < CAUSES; c++) {
        int right = 0, named = 0;
        for (int i = 0; i < EACH; i++) {
            struct synthetic plan = random_plan(random);
            inject(&plan, c, 0.05, random);
            AUTO(straggler) struct mp_straggler found = made(&plan, random);
            bool is_right = is_found(&found, &plan) && (plan.every > 0 || found.finding[0].chronic);
            if (!is_right || found.findings != 1)
                describe(&plan, &found);
            right += is_right;
            named += found.findings == 1;
            /* A delay that the report gives back: of seconds put into a phase; smaller ones drown
             * in the noise of a dozen iterations. */
            double put = plan.strength * 2 * plan.layers;
            if (is_right && put > 0.15 * found.seconds &&
                (plan.cause == MP_CAUSE_LINK || (plan.cause == MP_CAUSE_SLOW && plan.phase >= 0)))
                worst = fmax(worst, fabs(found.finding[0].longer / put - 1));
        }
        print_message("%s: right rank and cause in %d of %d runs, nothing else said in %d\n",
                      mp_cause_name(causes[c].cause), right, EACH, named);
        assert_true(right >= EACH - 2);
        all += right;
        all_named += named;
    }
    print_message("of all, %d of %d, nothing else in %d; delays within %.1f %%\n", all,
                  CAUSES * EACH, all_named, 100 * worst);
    assert_most(all, 0.95, CAUSES * EACH);
    assert_most(all_named, 0.95, CAUSES * EACH);
    assert_true(worst < 0.05);
}

/* Two causes, of one rank or, at different places, of two. */
TEST_RANDOM(pairs_of_causes_are_named) {
    int right = 0;
    for (int i = 0; i < RUNS; i++) {
        struct synthetic plan = random_plan(random), also = plan;
        int first, second;
        do {
            first = test_random_int(random, 0, CAUSES - 1);
            second = test_random_int(random, 0, CAUSES - 1);
        } while (causes[first].place == causes[second].place);
        inject(&plan, first, 0.1, random);
        inject(&also, second, 0.1, random);
        plan.also = &also;
        AUTO(straggler) struct mp_straggler found = made(&plan, random);
        bool is_right = is_found(&found, &plan) && is_found(&found, &also);
        if (!is_right)
            describe(&plan, &found);
        right += is_right;
    }
    print_message("both right in %d of %d runs\n", right, RUNS);
    assert_most(right, 0.95, RUNS);
}

TEST_RANDOM(clean_runs_have_no_finding) {
    int alarms = 0;
    for (int i = 0; i < RUNS; i++) {
        struct synthetic plan = random_plan(random);
        AUTO(straggler) struct mp_straggler found = made(&plan, random);
        if (found.findings)
            describe(&plan, &found);
        alarms += found.findings > 0;
    }
    print_message("false alarms in %d of %d clean runs\n", alarms, RUNS);
    assert_int_equal(alarms, 0);
}
