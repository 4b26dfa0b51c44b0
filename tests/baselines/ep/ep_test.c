/* Plain expert parallelism: who owns what, and what it refuses. */
#include "tests/baselines/rehearsal.h"

#include "baselines/ep/ep.h"
#include "baselines/systems.h"

/* Sums are made in all groups in turn. */
TEST(owners_take_turns) {
    struct mp_setting setting = {.layers = 2, .experts = 4, .topology = {6, 6}};
    struct mp_ep_options options = {2};
    static const int32_t expected[] = {0, 2, 5, 1, 0, 2, 5, 1};
    int32_t owner[8];
    void *self;
    assert_int_equal(mp_system_create(&mp_system_ep, &setting, &options, &self, NULL), MP_OK);
    mp_system_ep.initial_owners(self, owner);
    assert_memory_equal(owner, expected, sizeof owner);
    struct mp_policy policy = mp_policy_plain;
    mp_system_ep.policy(self, &policy);
    assert_int_equal(policy.optimizer, MP_OPTIMIZER_REPLICATED);
    mp_system_destroy(&mp_system_ep, self);
}

/* Homes of another system, or of other groups. */
TEST(homes_that_are_not_its_own_are_told) {
    const struct mp_setting setting = setting_of("experts=4");
    AUTO(rehearsal) struct rehearsal rehearsal;
    rehearsal_open(&rehearsal, &mp_system_ep, &setting, "expert-parallel=2");
    struct mp_planner *planner = &rehearsal.planner;
    mp_placement_set_owners(planner->home, (const int32_t[]){0, 1, 2, 3});
    assert_works(mp_planner_begin_layer(planner, 7, 0, &error));
    assert_sentence(mp_planner_end_layer(planner, 0, rehearsal.load, &error), MP_EPLAN,
                    "iteration 7, layer 0: expert 0 should be on the 2 ranks that "
                    "ep put it on, among them rank 0; it is on 1 ranks");
}

static const struct refusal refusals[] = {
    {"experts=10", "",
     "ep needs the same number of experts on every rank: 10 experts can't be shared by groups "
     "of 4 of the 4 ranks"},
    {"experts=4 ranks=6", "",
     "ep needs expert-parallel to divide the ranks: 6 ranks can't form groups of 4, which hold "
     "the 4 experts once each"},
    {"experts=4 ranks=8", "expert-parallel=all",
     "ep needs the same number of experts on every rank: 4 experts can't be shared by groups "
     "of 8 of the 8 ranks"},
    {"experts=4 ranks=8", "expert-parallel=0", "ep needs expert-parallel of at least 1, not 0"},
    {"layers=0 experts=4", "", "ep needs layers, experts and ranks of at least 1, not 0, 4 and 4"},
};

TEST_ROWS(what_cannot_be_is_refused, refusals, c) {
    assert_refusal(&mp_system_ep, c);
}
