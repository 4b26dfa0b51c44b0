/* Plain expert parallelism: who owns what, and what it refuses. */
#include "tests/reference/plan/plan_support.h"

#include "baselines/ep/ep.h"

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
    struct mp_setting setting = {.layers = 1, .experts = 4, .topology = {4, 4}};
    struct mp_ep_options options = {2};
    struct mp_placement home;
    struct mp_plan plan;
    struct mp_load load;
    void *self;
    assert_works(mp_system_create(&mp_system_ep, &setting, &options, &self, &error));
    assert_works(mp_plan_create(&setting.topology, 4, 8, &plan, &error));
    assert_works(mp_load_create(4, 4, &load, &error));
    assert_works(mp_placement_create(4, 4, &home, &error));
    assert_works(mp_system_begin_plan(&mp_system_ep, self, 7, 0, &home, &plan, &error));
    assert_sentence(mp_system_end_plan(&mp_system_ep, self, &load, &plan, &error), MP_EPLAN,
                    "iteration 7, layer 0: expert 0 should be on the 2 ranks that "
                    "ep put it on, among them rank 0; it is on 1 ranks");
    mp_placement_destroy(&home);
    mp_load_destroy(&load);
    mp_plan_destroy(&plan);
    mp_system_destroy(&mp_system_ep, self);
}

static const struct {
    int layers, experts, ranks, expert_parallel;
    const char *text;
} refusals[] = {
    {1, 10, 4, MP_AUTO,
     "ep needs the same number of experts on every rank: 10 experts can't be shared by groups "
     "of 4 of the 4 ranks"},
    {1, 4, 6, MP_AUTO,
     "ep needs expert-parallel to divide the ranks: 6 ranks can't form groups of 4, which hold "
     "the 4 experts once each"},
    {1, 4, 8, MP_ALL,
     "ep needs the same number of experts on every rank: 4 experts can't be shared by groups "
     "of 8 of the 8 ranks"},
    {1, 4, 8, 0, "ep needs expert-parallel of at least 1, not 0"},
    {0, 4, 8, MP_AUTO, "ep needs layers, experts and ranks of at least 1, not 0, 4 and 8"},
};

TEST_ROWS(what_cannot_be_is_refused, refusals, c) {
    struct mp_setting setting = {
        .layers = c->layers, .experts = c->experts, .topology = {c->ranks, c->ranks}};
    struct mp_ep_options options = {c->expert_parallel};
    void *self = &options;
    assert_sentence(mp_system_create(&mp_system_ep, &setting, &options, &self, &error), MP_EREFUSED,
                    c->text);
    assert_null(self);
}
