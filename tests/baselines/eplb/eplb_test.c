/* EPLB: the outside vectors, when it moves, restarts, and what it refuses. */
#include "tests/baselines/rehearsal.h"
#include "tests/reference/base/memory.h"

#include "baselines/eplb/eplb.h"
#include "baselines/systems.h"

static const struct mp_system *const tested = &mp_system_eplb;

/* The README of deepseek-ai/EPLB: 12 experts, 16 physical ones, 8 ranks on 2 nodes. */
enum { GOLDEN_EXPERTS = 12, GOLDEN_REPLICAS = 16, GOLDEN_RANKS = 8 };
static const int64_t GOLDEN_WEIGHT[2][GOLDEN_EXPERTS] = {
    {90, 132, 40, 61, 104, 165, 39, 4, 73, 56, 183, 86},
    {20, 107, 104, 64, 19, 197, 187, 157, 172, 86, 16, 27}};

struct golden_case {
    const char *name;
    int layer, groups, nodes;
    int32_t expert[GOLDEN_REPLICAS]; /* phy2log */
    int32_t copies[GOLDEN_EXPERTS];  /* logcnt */
};
static const struct golden_case GOLDEN[] = {
    {"V-EPLB-1, layer 0",
     0,
     4,
     2,
     {5, 6, 5, 7, 8, 4, 3, 4, 10, 9, 10, 2, 0, 1, 11, 1},
     {1, 2, 1, 1, 2, 2, 1, 1, 1, 1, 2, 1}},
    {"V-EPLB-1, layer 1",
     1,
     4,
     2,
     {7, 10, 6, 8, 6, 11, 8, 9, 2, 4, 5, 1, 5, 0, 3, 1},
     {1, 2, 1, 1, 1, 2, 2, 1, 2, 1, 1, 1}},
    {"V-EPLB-3, layer 0",
     0,
     1,
     1,
     {10, 6, 10, 7, 0, 2, 11, 4, 5, 9, 5, 4, 8, 3, 1, 1},
     {1, 2, 1, 1, 2, 2, 1, 1, 1, 1, 2, 1}},
    {"V-EPLB-3, layer 1",
     1,
     1,
     1,
     {1, 10, 2, 4, 5, 11, 5, 0, 6, 7, 6, 3, 8, 8, 9, 7},
     {1, 1, 1, 1, 1, 2, 2, 2, 2, 1, 1, 1}},
};

TEST_EACH(the_released_example_comes_out, GOLDEN, row) {
    struct mp_eplb state;
    mp_eplb_create(&memory, GOLDEN_EXPERTS, GOLDEN_REPLICAS, row->groups, row->nodes, GOLDEN_RANKS,
                   &state);
    mp_eplb_place(&state, GOLDEN_WEIGHT[row->layer]);
    assert_memory_equal(state.expert, row->expert, sizeof row->expert);
    assert_memory_equal(state.copies, row->copies, sizeof row->copies);
}

/* V-EPLB-2: the groups of the example, and which places they get on which nodes. */
TEST(groups_go_to_the_lightest_node_with_room) {
    static const double sum[2][4] = {{262, 330, 116, 325}, {231, 280, 516, 129}};
    static const int32_t nodes[2][4] = {{1, 0, 0, 1}, {1, 1, 0, 0}};
    static const int32_t places[2][4] = {{1, 0, 1, 0}, {1, 0, 0, 1}};
    struct mp_queue queue;
    mp_queue_create(&memory, 4, &queue);
    for (int layer = 0; layer < 2; layer++) {
        int32_t pack[4], place[4], work[8];
        mp_eplb_pack(sum[layer], 4, 2, pack, place, work, &queue);
        assert_memory_equal(pack, nodes[layer], sizeof pack);
        assert_memory_equal(place, places[layer], sizeof place);
    }
}

/* With one item per pack nothing is sorted. */
TEST(as_many_packs_as_items_is_the_identity) {
    static const double weight[3] = {1, 3, 2};
    int32_t pack[3], place[3], work[6];
    mp_eplb_pack(weight, 3, 3, pack, place, work, NULL);
    for (int item = 0; item < 3; item++) {
        assert_int_equal(pack[item], item);
        assert_int_equal(place[item], 0);
    }
}

/* Experts that gain holders after a step with these loads; four ranks with two slots each, which
 * the first layout shares evenly. */
static int changes_with(const char *utilisation, const uint32_t load_of[4]) {
    const struct mp_setting setting = small_setting(1, 4, (struct mp_topology){4, 4});
    AUTO(rehearsal) struct rehearsal rehearsal;
    rehearsal_open(&rehearsal, tested, &setting,
                   formatted("interval=1 window=1 utilisation=%s", utilisation));
    struct mp_load *load = rehearsal.load;
    memcpy(load->count, load_of, 4 * sizeof *load_of);
    rehearsal_step(&rehearsal, load);
    return rehearsal.changes;
}

TEST(even_ranks_are_left_alone) {
    static const uint32_t even[4] = {5, 5, 5, 5}, hot[4] = {97, 1, 1, 1}, none[4] = {0};
    /* At first both slots of an expert are on one rank: 100 / 4 over 97 = 0.258. */
    assert_int_equal(changes_with("0.9", even), 0);
    assert_true(changes_with("1", hot) > 0);
    assert_true(changes_with("0.9", hot) > 0);
    assert_true(changes_with("0.26", hot) > 0);
    assert_int_equal(changes_with("0.25", hot), 0);
    assert_int_equal(changes_with("0.9", none), 0);
}

/* In the background: homes are the old ones until the next step. */
TEST_RANDOM(moves_may_take_a_step) {
    const struct mp_setting setting = small_setting(2, 8, (struct mp_topology){4, 2});
    AUTO(rehearsal) struct rehearsal rehearsal;
    rehearsal_open(&rehearsal, tested, &setting, "interval=2 moves=asynchronous replicas=12");
    struct mp_placement first = placement_of(4, 8);
    mp_placement_copy(&first, rehearsal.planner.home);
    for (int layer = 0; layer < 2; layer++) {
        random_load(random, &rehearsal.load[layer]);
        rehearsal.load[layer].count[5] += 100000; /* an expert that all ranks get */
    }
    for (int iteration = 0; iteration < 2; iteration++)
        rehearsal_step(&rehearsal, rehearsal.load);
    assert_true(rehearsal.planner.change.asynchronous && rehearsal.changes > 0);
    assert_true(mp_placement_equal(&first, rehearsal.planner.home));
    rehearsal_plan(&rehearsal, 0, rehearsal.load);
    rehearsal_settle(&rehearsal);
    assert_int_equal(mp_placement_copies(rehearsal.planner.home, 5), 4);
    rehearsal_plan(&rehearsal, 0, rehearsal.load);
}

/* A window of sums is as good for other ranks; the slots are not. */
TEST_RANDOM(a_restart_on_other_ranks_keeps_the_loads) {
    struct mp_setting setting = small_setting(1, 8, (struct mp_topology){4, 2});
    AUTO(rehearsal) struct rehearsal first, second;
    char state_of_first[4096];
    rehearsal_open(&first, tested, &setting, "interval=2");
    for (int iteration = 0; iteration < 4; iteration++) {
        random_load(random, first.load);
        first.load->count[3] += 100000;
        rehearsal_plan(&first, 0, first.load);
        rehearsal_step(&first, first.load);
    }
    size_t size = tested->save(first.planner.self, state_of_first, sizeof state_of_first);
    assert_true(size <= sizeof state_of_first);
    setting.topology.ranks = 2;
    rehearsal_open(&second, tested, &setting, "interval=2");
    assert_works(tested->load(second.planner.self, state_of_first, size, &error));
    second.iteration = 5;
    rehearsal_plan(&second, 0, second.load);
    rehearsal_step(&second, second.load); /* of no routes: the window's say where expert 3 is */
    assert_int_equal(mp_placement_copies(second.planner.home, 3), 2);
}

static const struct refusal refusals[] = {
    {"", "replicas=7", "7 can't be those of 8 experts on 4 ranks"},
    {"", "replicas=10", "10 can't be those of 8 experts on 4 ranks"},
    {"", "replicas=4", "4 can't be those of 8 experts on 4 ranks"},
    {"", "groups=3", "8 experts can't be in 3 groups"},
    {"ranks-per-node=2", "policy=hierarchical", "1 groups can't be shared by 2 nodes"},
    {"ranks=3 ranks-per-node=2", "groups=2", "3 ranks can't be shared by 2 nodes"},
    {"ranks=6 ranks-per-node=4", "groups=2", "6 ranks can't be shared by 2 nodes of 4"},
};

TEST_ROWS(what_it_can_not_do_is_refused, refusals, c) {
    assert_refusal(tested, c);
}
