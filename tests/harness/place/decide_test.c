/* Decisions on loads of which the answer is known. */
#include "harness/place/decide.h"

#include "tests/errors.h"
#include "tests/harness/place/loads_support.h"

TEST_END(decision, struct mp_decision, mp_decision_destroy(it))

enum { LAYERS = 2, EXPERTS = 32, STEPS = 24 };

static int predicted; /* iterations of the last decision */

static void count_predicted(void *context) {
    ++*(int *)context;
}

static struct mp_decision decide(const char *system, const char *option, count_of *count,
                                 int64_t iterations) {
    struct mp_decision decision;
    AUTO(job) struct mp_predict_job job;
    AUTO(cluster)
    struct mp_cluster *cluster = make_placed_job(&job, system, ONE_NODE, LAYERS, EXPERTS);
    AUTO(loads) struct mp_place_loads loads = make_loads(iterations, LAYERS, EXPERTS, count);
    loads.predicted = count_predicted;
    loads.context = &predicted;
    predicted = 0;
    set(&job, option);
    if (!strcmp(system, "eplb"))
        set(&job, "options.replicas=40");
    if (!strcmp(system, "smartmoe")) /* placement alone, without what it copies in between */
        set(&job, "options.smart-schedule=no", "options.shadows=0");
    assert_works(mp_decide(of(&loads, &job, cluster), 0.5, &decision, &error));
    return decision;
}

static void assert_reason(const struct mp_decision *decision, enum mp_decide_reason reason) {
    if (decision->reason != reason)
        fail_msg("%s, saves %g, late %ld of %ld, benefit %g",
                 mp_decide_reason_name(decision->reason), decision->saves,
                 (long)decision->late_steps, (long)decision->late.of,
                 mp_decide_benefit(&decision->lag[0]));
}

static uint32_t even(UNUSED int64_t iteration, UNUSED int layer, UNUSED int source,
                     UNUSED int expert) {
    return TOKENS * TOP_K / EXPERTS;
}

TEST(even_loads_need_nothing) {
    AUTO(decision) struct mp_decision decision = decide("eplb", "options.interval=2", even, STEPS);
    assert_reason(&decision, MP_DECIDE_EVEN);
    assert_within(decision.expert_balance, 1, 1e-9);
    assert_within(decision.rank_balance, 1, 1e-9);
    assert_numbers(decision.late_steps, 0, decision.hot.on, 0, decision.hottest_count, 0);
    assert_int_equal(decision.history, STEPS / 2);
    assert_false(decision.in_sample);
}

/* 230 to each of experts 8 to 11, which rank 2 has, and 40 to the other 28; and so on, times 32. */
static uint32_t hot(UNUSED int64_t iteration, UNUSED int layer, UNUSED int source, int expert) {
    return expert / 4 == 2 ? 230 * 32 : 40 * 32;
}

TEST(what_stays_hot_is_placed) {
    AUTO(decision) struct mp_decision decision = decide("eplb", "options.interval=2", hot, STEPS);
    assert_reason(&decision, MP_DECIDE_SAVES);
    assert_true(decision.saves > 0.1);
    assert_int_equal(predicted, 2 * STEPS / 2 + 1 + STEPS);
    const double total = 4 * 230 + 28 * 40;
    assert_within(decision.expert_balance, 230 * EXPERTS / total, 1e-9);
    assert_within(decision.rank_balance, 920 * RANKS / total, 1e-9);
    assert_numbers(decision.late.of, LAYERS * STEPS, decision.late_steps, LAYERS * STEPS);
    assert_int_equal(decision.late.on, LAYERS * STEPS); /* always the same rank */
    assert_numbers(decision.late.runs, LAYERS, decision.late.longest, STEPS);
    assert_int_equal(decision.latest_count, LAYERS);
    for (int i = 0; i < LAYERS; i++)
        assert_int_equal(decision.latest[i].which, 2);
    assert_numbers(decision.hot.on, 4 * LAYERS * STEPS, decision.hot.longest, STEPS);
    assert_numbers(decision.hottest[0].which / 4, 2, decision.dominated, 0);
    assert_within(decision.interval, 0, 1e-9); /* the second change changes nothing */
    /* placed after step 2, judged 1 and 20 later */
    assert_int_equal(decision.lag[0].samples, 1);
    assert_true(mp_decide_benefit(&decision.lag[0]) > 0.9);
    assert_true(mp_decide_benefit(&decision.lag[4]) > 0.9);
    assert_int_equal(decision.lag[5].samples, 0); /* 50 */
}

/* On the loads that a placement is made of, too: lp splits each step's routes over its replicas as
 * engines that spread them evenly do not. */
TEST(who_never_moves_an_expert_is_judged_at_work) {
    AUTO(decision) struct mp_decision lp = decide("lp", "options.replicas=2", hot, 1);
    AUTO(decision) struct mp_decision eplb = decide("eplb", "options.interval=1", hot, 1);
    assert_true(lp.in_sample && eplb.in_sample && eplb.time_system.mean == 0);
    assert_true(lp.time_system.mean < lp.after.time.mean);
    assert_within(lp.saves, 1 - lp.time_system.mean / lp.before.time.mean, 1e-9);
}

/* One expert is hot, another one each time. */
static uint32_t jumping(int64_t iteration, UNUSED int layer, UNUSED int source, int expert) {
    return expert == iteration * 13 % EXPERTS ? 400 * 32 : 53 * 32;
}

TEST(what_jumps_is_left_alone) {
    AUTO(decision)
    struct mp_decision decision = decide("eplb", "options.interval=1", jumping, STEPS);
    assert_numbers(decision.late_steps, LAYERS * STEPS, decision.late.longest, 1);
    assert_numbers(decision.late.on, decision.late.runs, decision.hot.longest, 1);
    assert_within(decision.interval, 1, 1e-9);
    assert_int_equal(decision.lag[0].samples, STEPS - 1);
    assert_true(mp_decide_benefit(&decision.lag[0]) < 0.25);
    assert_true(decision.saves < MP_DECIDE_WORTH);
    assert_reason(&decision, MP_DECIDE_STALE);
}

/* Half of all to expert 5, which fills a rank wherever it is. */
static uint32_t dominant(UNUSED int64_t iteration, UNUSED int layer, UNUSED int source,
                         int expert) {
    return expert == 5 ? 1025 * 32 : 33 * 32;
}

TEST(one_expert_takes_copies) {
    AUTO(decision)
    struct mp_decision moved = decide("smartmoe", "options.interval=2", dominant, STEPS);
    assert_int_equal(moved.dominated, LAYERS * STEPS);
    assert_false(moved.replicates);
    assert_reason(&moved, MP_DECIDE_DOMINANT);
    AUTO(decision)
    struct mp_decision copied = decide("eplb", "options.interval=2", dominant, STEPS);
    assert_int_equal(copied.dominated, LAYERS * STEPS);
    assert_true(copied.replicates);
    assert_reason(&copied, MP_DECIDE_SAVES);
}

/* Only the experts of ranks 0 to 3 get routes, and all alike (a balanced router with a stride). */
static uint32_t half_idle(UNUSED int64_t iteration, UNUSED int layer, UNUSED int source,
                          int expert) {
    return expert < EXPERTS / 2 ? 2 * TOKENS * TOP_K / EXPERTS : 0;
}

TEST(idle_ranks_are_in_no_mean) {
    AUTO(decision)
    struct mp_decision decision = decide("eplb", "options.interval=2", half_idle, STEPS);
    assert_numbers(decision.idle, RANKS / 2, decision.padding, LAYERS * EXPERTS / 2);
    assert_within(decision.expert_balance, 1, 1e-9);
    assert_within(decision.rank_balance, 1, 1e-9);
    assert_within(decision.before.balance.mean, 1, 1e-9);
    assert_reason(&decision, MP_DECIDE_EVEN);
}

/* One iteration is judged on itself, and says nothing of later ones. */
TEST(one_iteration_has_no_later_one) {
    AUTO(decision) struct mp_decision decision = decide("eplb", "options.interval=2", hot, 1);
    assert_true(decision.in_sample);
    assert_numbers(decision.history, 1, decision.placed.steps, 2, decision.lag[0].samples, 0);
    assert_within(decision.time_system.mean, 0, 0);
    assert_reason(&decision, MP_DECIDE_SAVES);
}

/* Rank 2's experts are hot in the first half; then all are even. */
static uint32_t cooling(int64_t iteration, int layer, int source, int expert) {
    return iteration < STEPS / 2 ? hot(iteration, layer, source, expert)
                                 : even(iteration, layer, source, expert);
}

/* What is placed is judged on what comes after. */
TEST(the_future_judges) {
    AUTO(decision)
    struct mp_decision decision = decide("smartmoe", "options.interval=1000", hot, STEPS);
    assert_reason(&decision, MP_DECIDE_NO_CHANGE);
    assert_int_equal(decision.placed.steps, MP_PLACE_STEPS);
    mp_decision_destroy(&decision);
    decision = decide("smartmoe", "options.interval=12", cooling, STEPS);
    assert_int_equal(decision.placed.changes, 1);
    assert_within(decision.before.balance.mean, 1, 1e-9);
    assert_within(decision.after.balance.mean, 1, 1e-9);
    assert_true(decision.rank_balance > 2);
    assert_true(decision.saves < MP_DECIDE_WORTH);
    assert_true(decision.reason != MP_DECIDE_SAVES);
}

TEST_GROUP(enter, leave_folder);
