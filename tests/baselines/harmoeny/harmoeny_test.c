/* HarMoEny: golden decisions, and what it refuses. */
#include "tests/baselines/rehearsal.h"

#include "baselines/systems.h"

/* Two ranks with two experts each, routes of both sources, and what ends on rank 1 of expert 0. */
static const struct {
    uint32_t count[8];
    int64_t least, moved[2]; /* of source 0, of source 1 */
} decisions[] = {
    {{300, 10, 0, 0, 100, 10, 0, 0}, 150, {210, 0}}, /* mean 210: the larger source fills it */
    {{100, 10, 0, 0, 300, 10, 0, 0}, 150, {0, 210}},
    {{200, 0, 0, 0, 200, 0, 0, 0}, 150, {200, 0}},       /* ties to the lower source */
    {{300, 10, 0, 0, 100, 10, 0, 0}, 211, {0, 0}},       /* less room than that */
    {{60, 60, 0, 0, 40, 40, 0, 0}, 100, {60, 40}},       /* just as many as that */
    {{150, 100, 100, 0, 60, 90, 100, 0}, 100, {100, 0}}, /* mean 300, 200 on rank 1 */
    {{0, 0, 0, 0, 0, 0, 0, 0}, 1, {0, 0}},
};

TEST_ROWS(golden_decisions, decisions, row) {
    const struct mp_setting setting = setting_of("experts=4 ranks=2");
    AUTO(rehearsal) struct rehearsal rehearsal;
    rehearsal_open(&rehearsal, &mp_system_harmoeny, &setting,
                   formatted("least=%lld", (long long)row->least));
    memcpy(rehearsal.load->count, row->count, sizeof row->count);
    rehearsal_plan(&rehearsal, 0, rehearsal.load);
    for (int source = 0; source < 2; source++)
        assert_int_equal(mp_plan_routes_to(rehearsal.planner.plan, source, 0, 1),
                         row->moved[source]);
}

/* A rank that one source's routes bring to the mean keeps those of the others, although there is
 * room for them. */
TEST(no_more_leaves_than_is_above_the_mean) {
    static const uint32_t count[9] = {8, 7, 0, 7, 7, 0, 6, 7, 0}; /* mean 14 */
    const struct mp_setting setting = setting_of("experts=3 ranks=3");
    AUTO(rehearsal) struct rehearsal rehearsal;
    rehearsal_open(&rehearsal, &mp_system_harmoeny, &setting, "least=7");
    memcpy(rehearsal.load->count, count, sizeof count);
    rehearsal_plan(&rehearsal, 0, rehearsal.load);
    for (int source = 0; source < 3; source++)
        assert_int_equal(mp_plan_routes_to(rehearsal.planner.plan, source, 0, 2),
                         source == 0 ? 8 : 0);
}

TEST(what_cannot_be_is_refused) {
    assert_option_refused(&mp_system_harmoeny, "least", "0");
}
