/* Plain expert parallelism: nothing moves, all routes go to the one holder in the source's group.
 */
#include "tests/reference/plan/plan_support.h"

#include "baselines/ep/ep.h"

enum { LAYERS = 3, RANKS = 72, EACH = 5 };

/* A whole number of groups, of which the last one's end is the last rank. */
static struct mp_setting random_setting(uint64_t *random, int *group, int *each) {
    int groups = test_random_int(random, 1, 6);
    *group = test_random_int(random, 1, RANKS / groups);
    *each = test_random_int(random, 1, EACH);
    struct mp_setting setting = {.layers = LAYERS, .experts = *group * *each};
    setting.topology = (struct mp_topology){groups * *group, groups * *group};
    return setting;
}

static struct mp_load sum_of_group(const struct mp_load *load, int first, int group) {
    struct mp_load own;
    assert_int_equal(mp_load_create(load->ranks, load->experts, &own, NULL), MP_OK);
    for (int source = first; source < first + group; source++)
        for (int expert = 0; expert < load->experts; expert++)
            own.count[source * load->experts + expert] = mp_load_at(load, source, expert);
    return own;
}

/* Rank r of a group computes its experts' routes of the group, and nobody else's. */
static void check_computed(const struct mp_plan *plan, const struct mp_load *load, int group,
                           int each) {
    int64_t computed[RANKS], total[RANKS * EACH];
    rank_routes(plan, computed, NULL, NULL);
    for (int first = 0; first < load->ranks; first += group) {
        AUTO(load) struct mp_load own = sum_of_group(load, first, group);
        mp_load_expert_totals(&own, total);
        for (int rank = 0; rank < group; rank++) {
            int64_t routes = 0;
            for (int expert = rank * each; expert < (rank + 1) * each; expert++)
                routes += total[expert];
            assert_int_equal(computed[first + rank], routes);
        }
    }
}

TEST_RANDOM(every_plan_is_legal_and_stays_in_its_group) {
    for (int round = 0; round < 100; round++) {
        int group, each;
        struct mp_setting setting = random_setting(random, &group, &each);
        /* Auto is the largest group: of all experts, or all ranks. */
        bool is_auto = setting.topology.ranks == group || each == 1;
        struct mp_ep_options options = {is_auto && round % 2 ? MP_AUTO : group};
        struct mp_plan_law law = {0};
        struct mp_placement home[LAYERS];
        struct mp_policy policy;
        struct mp_plan plan;
        struct mp_load load;
        void *self;
        assert_works(mp_system_create(&mp_system_ep, &setting, &options, &self, &error));
        mp_system_policy(&mp_system_ep, self, &setting, &policy);
        assert_works(mp_plan_create(&setting.topology, setting.experts, 8, &plan, &error));
        plan.policy = &policy;
        assert_works(mp_load_create(setting.topology.ranks, setting.experts, &load, &error));
        for (int l = 0; l < LAYERS; l++)
            assert_works(
                mp_placement_create(setting.topology.ranks, setting.experts, &home[l], &error));
        assert_works(mp_system_initial_homes(&mp_system_ep, self, LAYERS, home, &error));
        random_load(random, &load);
        assert_works(mp_system_begin_plan(&mp_system_ep, self, round, 1, &home[1], &plan, &error));
        assert_works(mp_system_end_plan(&mp_system_ep, self, &load, &plan, &error));
        assert_works(mp_plan_check(&plan, &load, &law, NULL, &error));
        assert_int_equal(plan.fetch.count, 0);
        check_computed(&plan, &load, group, each);
        for (int l = 0; l < LAYERS; l++)
            mp_placement_destroy(&home[l]);
        mp_plan_destroy(&plan);
        mp_load_destroy(&load);
        mp_system_destroy(&mp_system_ep, self);
    }
}

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

TEST(what_cannot_be_is_refused) {
    static const struct {
        int layers, experts, ranks, expert_parallel;
        const char *text;
    } row[] = {
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
    for (size_t i = 0; i < sizeof row / sizeof *row; i++) {
        struct mp_setting setting = {.layers = row[i].layers,
                                     .experts = row[i].experts,
                                     .topology = {row[i].ranks, row[i].ranks}};
        struct mp_ep_options options = {row[i].expert_parallel};
        void *self = &options;
        assert_sentence(mp_system_create(&mp_system_ep, &setting, &options, &self, &error),
                        MP_EREFUSED, row[i].text);
        assert_null(self);
    }
}
