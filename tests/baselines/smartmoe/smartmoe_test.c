/* SmartMoE as a system: when it looks for a placement and when it takes one, what moves, what it
 * remembers and what it refuses. */
#include "tests/baselines/rehearsal.h"

#include "baselines/fastermoe/fastermoe.h"
#include "baselines/smartmoe/smartmoe.h"
#include "baselines/systems.h"

static const struct mp_system *const tested = &mp_system_smartmoe;

static void begin(struct rehearsal *run, int experts, struct mp_topology topology,
                  const char *text) {
    struct mp_setting setting = small_setting(2, experts, topology);
    setting.expert_bytes = 1 << 12;
    setting.route_bytes = 256;
    setting.bandwidth = 1e9;
    setting.seconds_per_route = 1e-6;
    rehearsal_open(run, tested, &setting, text);
}
static void set_golden(struct mp_load *load) {
    static const uint32_t golden[8] = {40, 6, 30, 2, 10, 4, 20, 8};
    for (int source = 0; source < 4; source++)
        for (int expert = 0; expert < 8; expert++)
            load->count[source * 8 + expert] =
                golden[expert] / 4 + ((uint32_t)source < golden[expert] % 4);
}

/* V-SMART-1 as a change of homes, in one layer of two. */
TEST(owners_change_as_published) {
    static const int32_t first[8] = {0, 0, 1, 1, 2, 2, 3, 3},
                         expected[8] = {0, 3, 1, 0, 2, 1, 3, 2};
    static const char *const options[] = {"interval=10",
                                          "threshold=1.09 state=stays", /* 46 > 1.09 * 42 */
                                          "threshold=1.1"};             /* and not > 1.1 * 42 */
    for (int row = 0; row < 3; row++) {
        AUTO(rehearsal) struct rehearsal run;
        begin(&run, 8, (struct mp_topology){4, 2}, options[row]);
        set_golden(&run.load[0]);
        for (int cell = 0; cell < 32; cell++) /* balanced: nothing is strictly better */
            run.load[1].count[cell] = 5;
        for (int iteration = 0; iteration < 9; iteration++) {
            rehearsal_step(&run, run.load);
            assert_false(run.planner.change.changed);
        }
        rehearsal_step(&run, run.load);
        assert_int_equal(run.planner.change.changed, row < 2);
        assert_int_equal(run.planner.change.leave_state, row == 1);
        assert_memory_equal(run.planner.home[1].owner, first, sizeof first);
        assert_memory_equal(run.planner.home[0].owner, row < 2 ? expected : first, sizeof first);
    }
}

/* Older loads are forgotten: of 4 iterations only the last 2 count. */
TEST(history_is_the_last_iterations) {
    static const uint32_t row[4][4] = {
        {900, 800, 0, 0}, {700, 0, 600, 0}, {10, 30, 0, 0}, {30, 10, 0, 0}};
    AUTO(rehearsal) struct rehearsal run;
    begin(&run, 4, (struct mp_topology){2, 2}, "interval=4");
    for (int iteration = 0; iteration < 4; iteration++) {
        for (int layer = 0; layer < 2; layer++)
            memcpy(run.load[layer].count, row[iteration], sizeof row[iteration]);
        rehearsal_step(&run, run.load);
    }
    static const int32_t expected[4] = {0, 1, 1, 0}; /* of 40 40 0 0 */
    assert_true(run.planner.change.changed);
    assert_memory_equal(run.planner.home[0].owner, expected, sizeof expected);
    assert_memory_equal(run.planner.home[1].owner, expected, sizeof expected);
}

static const struct refusal refusals[] = {
    {"experts=10", "", "10 experts can't be shared by 4 ranks"},
    {"experts=4 ranks=6", "", "4 experts can't be shared by 6 ranks"},
    {"experts=4 ranks=8", "",
     "smartmoe runs on FasterMoE's exchange, and fastermoe needs a bandwidth above 0"},
    {"experts=32", "solver=dynamic-programming",
     "at most 16 experts of a layer by dynamic programming, as it costs about ranks * 4^experts "
     "steps, not 32 on 4 ranks"},
};

TEST_ROWS(what_it_can_not_do_is_refused, refusals, c) {
    assert_refusal(tested, c);
}
