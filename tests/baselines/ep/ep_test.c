/* Plain expert parallelism: nothing is copied, nothing moves, all routes go to the owner. */
#include "tests/reference/plan/plan_support.h"

#include "baselines/ep/ep.h"

static void every_plan_is_legal_and_copies_nothing(void **state) {
    uint64_t *random = *state;
    for (int round = 0; round < 100; round++) {
        struct mp_setting setting = {.layers = 3, .topology = random_topology(random, 70)};
        int ranks = setting.topology.ranks, each = test_random_int(random, 1, 5);
        struct mp_plan_law law = {0};
        struct mp_error error = {0};
        struct mp_plan plan;
        struct mp_load load;
        int32_t owner[3 * 70 * 5];
        int64_t computed[70];
        void *self;
        setting.experts = ranks * each;
        assert_ok(mp_system_ep.create(&setting, NULL, &self, &error), &error);
        mp_system_ep.initial_owners(self, owner);
        for (int index = 0; index < 3 * setting.experts; index++)
            assert_int_equal(owner[index], index % setting.experts / each);
        assert_ok(mp_plan_create(&setting.topology, setting.experts, 8, &plan, &error), &error);
        assert_ok(mp_load_create(ranks, setting.experts, &load, &error), &error);
        random_load(random, &load);
        begin_owned(&plan, round, 1, owner + setting.experts);
        assert_ok(mp_system_ep.after_gate(self, &load, &plan, &error), &error);
        assert_ok(mp_plan_check(&plan, &load, &law, NULL, &error), &error);
        mp_plan_rank_routes(&plan, computed, NULL, NULL);
        for (int rank = 0; rank < ranks; rank++) {
            int64_t routes = 0;
            for (int expert = rank * each; expert < (rank + 1) * each; expert++)
                for (int source = 0; source < ranks; source++)
                    routes += mp_load_at(&load, source, expert);
            assert_int_equal(computed[rank], routes);
        }
        mp_plan_destroy(&plan);
        mp_load_destroy(&load);
        mp_system_ep.destroy(self);
    }
}

static void uneven_experts_are_refused(void **state) {
    (void)state;
    struct mp_setting setting = {.layers = 1, .experts = 10, .topology = {4, 2}};
    struct mp_error error = {0}, none = {0};
    void *self;
    assert_int_equal(mp_system_ep.create(&setting, NULL, &self, &error), MP_EINVAL);
    assert_string_equal(error.text, "ep needs the same number of experts on every rank: 10 experts "
                                    "can't be shared by 4 ranks");
    assert_null(self);
    setting.experts = 0;
    assert_int_equal(mp_system_ep.create(&setting, NULL, &self, &none), MP_EINVAL);
}

int main(void) {
    uint64_t random = test_seed();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_prestate(every_plan_is_legal_and_copies_nothing, &random),
        cmocka_unit_test(uneven_experts_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
