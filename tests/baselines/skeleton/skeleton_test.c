/* The skeleton plans as plain expert parallelism does, with either of its placements, and keeps
 * what it has seen over a restart. */
#include "tests/baselines/rehearsal.h"

#include "baselines/systems.h"

static const struct mp_system *const tested = &mp_system_skeleton;

/* Where routes are computed, and that no copies are. */
static void assert_plain(const struct mp_plan *plan, const struct mp_load *load) {
    enum { RANKS = 70 };
    int64_t computed[RANKS], wanted[RANKS] = {0};
    if (plan->fetch.count > 0)
        fail_msg("%s copies %d experts, which plain expert parallelism does not: this test is to "
                 "become its own",
                 tested->name, plan->fetch.count);
    rank_routes(plan, computed, NULL, NULL);
    for (int cell = 0; cell < load->ranks * load->experts; cell++)
        wanted[plan->before.owner[cell % load->experts]] += load->count[cell];
    for (int rank = 0; rank < load->ranks; rank++)
        if (computed[rank] != wanted[rank])
            fail_msg("%s has rank %d compute %lld routes, plain expert parallelism %lld: this test "
                     "is to become its own",
                     tested->name, rank, (long long)computed[rank], (long long)wanted[rank]);
}

TEST_RANDOM_TURNS(every_plan_leaves_experts_alone, 100, cyclic) {
    const struct mp_topology topology = random_topology(random, 70);
    const int ranks = topology.ranks, each = test_random_int(random, 1, 5);
    const struct mp_setting setting = small_setting(2, ranks * each, topology);
    AUTO(rehearsal) struct rehearsal run;
    rehearsal_open(&run, tested, &setting, cyclic % 2 ? "owners=cyclic" : "owners=contiguous");
    for (int cell = 0; cell < 2 * ranks * each; cell++) {
        int expert = cell % (ranks * each),
            owner = run.planner.home[cell / (ranks * each)].owner[expert];
        assert_int_equal(owner, cyclic % 2 ? expert % ranks : expert / each);
    }
    random_load(random, &run.load[1]);
    rehearsal_plan(&run, 1, &run.load[1]);
    assert_plain(run.planner.plan, &run.load[1]);
}

static const struct refusal refusals[] = {
    {"experts=10", "", "10 experts can't be shared by 4 ranks"},
    {"experts=0", "", "of at least 1, not 1, 0 and 4"},
};

TEST_ROWS(what_it_can_not_do_is_refused, refusals, c) {
    assert_refusal(tested, c);
}

/* The state of a system in `buffer`; its bytes are returned. */
static size_t save(const struct rehearsal *run, char buffer[4096]) {
    size_t size = tested->save(run->planner.self, NULL, 0);
    assert_in_range(size, 1, 4096);
    assert_int_equal(tested->save(run->planner.self, buffer, size), size);
    return size;
}

TEST_RANDOM(state_survives_a_restart_on_other_ranks) {
    struct mp_setting setting = small_setting(2, 16, (struct mp_topology){4, 2});
    char first[4096], second[4096];
    AUTO(rehearsal) struct rehearsal seen, restored;
    rehearsal_open(&seen, tested, &setting, NULL);
    size_t size = save(&seen, first);
    for (int iteration = 0; iteration < 5; iteration++)
        rehearsal_iterate(random, &seen);
    assert_int_equal(seen.changes, 0);
    assert_int_equal(save(&seen, second), size);
    assert_memory_not_equal(first, second, size); /* something was learned */
    setting.topology.ranks = 8;
    rehearsal_open(&restored, tested, &setting, NULL);
    rehearsal_restart(&seen, &restored);
    assert_int_equal(save(&restored, first), size);
    assert_memory_equal(first, second, size);
}
