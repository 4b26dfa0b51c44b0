/* SYMI's cost formulas on its own example, V-SYMI-7 (systems.md 5.2): an expert of GPT-3 175B. */
#include "tests/support.h"

#include "baselines/swiftmoe/swiftmoe.h"

static const struct mp_swiftmoe_cluster CLUSTER = {
    .experts = 64, .nodes = 2048, .slots = 2, .local_bandwidth = 64e9, .bandwidth = 50e9};
static const double EXPERT_BYTES = 3.375e9, STATE_BYTES = 27e9;

static void a_phase_takes_what_the_paper_says(void **state) {
    (void)state;
    double still = mp_swiftmoe_static_seconds(&CLUSTER, EXPERT_BYTES);
    double moving = mp_swiftmoe_seconds(&CLUSTER, EXPERT_BYTES);
    assert_within(still, 0.134539, 5e-7);
    assert_within(2 * still, 0.269077, 5e-7);
    assert_within(2 * still, 0.269, 5e-4); /* printed */
    assert_within(moving, 0.136582, 5e-7);
    assert_within(2 * moving, 0.273164, 5e-7);
    assert_within(2 * moving, 0.273, 5e-4); /* printed */
}

static void placing_anew_costs_one_and_a_half_per_cent(void **state) {
    (void)state;
    double still = mp_swiftmoe_static_seconds(&CLUSTER, EXPERT_BYTES);
    double moving = mp_swiftmoe_seconds(&CLUSTER, EXPERT_BYTES);
    double extra = mp_swiftmoe_relative_extra(&CLUSTER, true);
    assert_within(extra, 0.0151886, 5e-8);
    assert_close(extra, moving / still - 1, 1e-12);
    assert_within(mp_swiftmoe_relative_extra(&CLUSTER, false), 0.0153770, 5e-8);
}

static void volumes_are_the_papers(void **state) {
    (void)state;
    assert_close(2 * mp_swiftmoe_phase_bytes(&CLUSTER, EXPERT_BYTES), 27648e9, 1e-12);
    assert_close(mp_swiftmoe_state_bytes(&CLUSTER, STATE_BYTES), 1728e9, 1e-12);
    assert_close(mp_swiftmoe_move_seconds(&CLUSTER, EXPERT_BYTES, STATE_BYTES), 0.0675 + 0.54,
                 1e-12);
}

static void groups_of_nodes_wait_for_the_hottest(void **state) {
    (void)state;
    static const double expected[3] = {0.134934, 0.269868, 0.539736};
    for (int power = 0; power < 3; power++)
        assert_close(mp_swiftmoe_network_seconds(&CLUSTER, EXPERT_BYTES, 1 << power),
                     expected[power], 1e-6);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_phase_takes_what_the_paper_says),
        cmocka_unit_test(placing_anew_costs_one_and_a_half_per_cent),
        cmocka_unit_test(volumes_are_the_papers),
        cmocka_unit_test(groups_of_nodes_wait_for_the_hottest),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
