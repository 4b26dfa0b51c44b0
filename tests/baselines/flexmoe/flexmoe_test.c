/* FlexMoE as a system: its first layout, legal plans and changes, tokens spread over slots,
 * states of others, and what it refuses. */
#include "tests/baselines/rehearsal.h"

#include "baselines/flexmoe/flexmoe.h"
#include "baselines/systems.h"

static const struct mp_system *const tested = &mp_system_flexmoe;

static struct mp_setting setting_with(int layers, int experts, struct mp_topology topology) {
    return setting_of(formatted("layers=%d experts=%d ranks=%d ranks-per-node=%d tokens=1000 "
                                "expert-bytes=1048576 route-bytes=1024 bandwidth=1e10 "
                                "seconds-per-route=1e-6",
                                layers, experts, topology.ranks, topology.ranks_per_node));
}

/* Homes before the first iteration, a bit per rank. */
static const struct {
    int experts, ranks;
    const char *slots;
    int limit;
    uint64_t holder[8];
    int32_t owner[8];
} layouts[] = {
    {8, 4, "auto", 4, {9, 9, 3, 3, 6, 6, 12, 12}, {0, 0, 1, 1, 2, 2, 3, 3}},
    {8, 4, "2", 2, {1, 1, 2, 2, 4, 4, 8, 8}, {0, 0, 1, 1, 2, 2, 3, 3}},
    {4, 4, "3", 3, {13, 11, 7, 14}, {0, 1, 2, 3}},
    {2, 4, "auto", 1, {3, 12}, {0, 2}},      /* more ranks than experts */
    {3, 2, "auto", 3, {3, 3, 3}, {0, 0, 1}}, /* uneven */
    {3, 1, "auto", 3, {1, 1, 1}, {0, 0, 0}}, /* two slots each, on one rank */
    {3, 2, "all", 3, {3, 3, 3}, {0, 0, 1}},
};

TEST_ROWS(the_first_layout_deals_slots_in_turn, layouts, c) {
    struct mp_setting setting = setting_with(2, c->experts, (struct mp_topology){c->ranks, 2});
    AUTO(rehearsal) struct rehearsal rehearsal;
    rehearsal_open(&rehearsal, tested, &setting, formatted("slots=%s", c->slots));
    assert_int_equal(tested->homes_limit(rehearsal.planner.self), 3 * c->limit);
    for (int layer = 0; layer < 2; layer++)
        for (int expert = 0; expert < setting.experts; expert++) {
            assert_int_equal(rehearsal.planner.home[layer].owner[expert], c->owner[expert]);
            assert_int_equal(rehearsal.planner.home[layer].holder[expert], c->holder[expert]);
        }
}

/* An expert keeps what its slots have room for, and not one route less. */
TEST_RANDOM(slots_have_a_capacity) {
    struct mp_setting setting = setting_with(1, 8, (struct mp_topology){4, 2});
    AUTO(rehearsal) struct rehearsal rehearsal;
    int64_t dropped = 0;
    rehearsal_open(&rehearsal, tested, &setting, "capacity-factor=1 slots=3");
    struct mp_load *load = rehearsal.load;
    for (int cell = 0; cell < 32; cell++)
        load->count[cell] = (uint32_t)test_random_int(random, 0, cell % 8 < 2 ? 900 : 100);
    load->count[1] =
        (uint32_t)test_random_int(random, 667, 900); /* its one slot has room for 666 */
    rehearsal_plan(&rehearsal, 0, load);
    for (int expert = 0; expert < 8; expert++) {
        /* 12 slots, dealt in turn: those of rank 0 are 0 1 2, of rank 1 2 3 4, ... */
        int64_t kept = 0, wanted = 0, slots = 0;
        for (int rank = 0; rank < 4; rank++)
            for (int slot = 0; slot < 3; slot++)
                slots += (2 * rank + slot) % 8 == expert;
        for (int source = 0; source < 4; source++) {
            wanted += mp_load_at(load, source, expert);
            for (int rank = 0; rank < 4; rank++)
                if (mp_placement_holds(&rehearsal.planner.plan->during, expert, rank))
                    kept += mp_plan_routes_to(rehearsal.planner.plan, source, expert, rank);
        }
        int64_t room = slots * (2 * 4 * 1000 / 12);
        assert_int_equal(kept, wanted < room ? wanted : room);
        dropped += wanted - kept;
    }
    assert_true(dropped > 0);
}

/* One hot expert of 4 on 4 ranks, 2 slots each: it gets more slots, and its tokens spread. */
TEST(a_hot_expert_gets_slots_and_its_tokens_are_spread) {
    struct mp_setting setting = setting_with(1, 4, (struct mp_topology){4, 4});
    AUTO(rehearsal) struct rehearsal rehearsal;
    int64_t before[4], after[4], largest[2] = {0};
    rehearsal_open(&rehearsal, tested, &setting, "interval=3");
    struct mp_load *load = rehearsal.load;
    for (int cell = 0; cell < 16; cell++)
        load->count[cell] = cell % 4 == 1 ? 701 : 100;
    for (int iteration = 0; iteration < 3; iteration++) {
        rehearsal_plan(&rehearsal, 0, load);
        rank_routes(rehearsal.planner.plan, before, NULL, NULL);
        assert_int_equal(rehearsal.changes, 0); /* until after the third */
        rehearsal_step(&rehearsal, load);
    }
    assert_true(rehearsal.planner.change.changed && !rehearsal.planner.change.leave_state);
    assert_true(rehearsal.planner.change.asynchronous);
    rehearsal_plan(&rehearsal, 0, load); /* on the old slots, while experts travel */
    rank_routes(rehearsal.planner.plan, after, NULL, NULL);
    assert_memory_equal(after, before, sizeof before);
    rehearsal_settle(&rehearsal);
    int copies = mp_placement_copies(&rehearsal.planner.home[0], 1);
    assert_true(copies > 2);
    rehearsal_plan(&rehearsal, 0, load);
    rank_routes(rehearsal.planner.plan, after, NULL, NULL);
    for (int rank = 0; rank < 4; rank++) {
        int64_t hot = 0;
        largest[0] = before[rank] > largest[0] ? before[rank] : largest[0];
        largest[1] = after[rank] > largest[1] ? after[rank] : largest[1];
        for (int source = 0; source < 4; source++)
            hot += mp_plan_routes_to(rehearsal.planner.plan, source, 1, rank);
        assert_int_equal(hot > 0, mp_placement_holds(&rehearsal.planner.home[0], 1, rank));
        if (hot > 0) /* give or take one */
            assert_in_range(hot, 4 * 701 / copies, 4 * 701 / copies + 1);
    }
    assert_true(largest[1] < largest[0]);
}

/* Five layers and an interval of two: layers 0 to 2 after the first step, 3 and 4 after the second,
 * with room for what three layers get; exposed moves: all of them after the second, and room for
 * nothing more. */
TEST(layers_move_in_turn) {
    for (int exposed = 0; exposed < 2; exposed++) {
        struct mp_setting setting = setting_with(5, 4, (struct mp_topology){4, 4});
        AUTO(rehearsal) struct rehearsal rehearsal;
        rehearsal_open(&rehearsal, tested, &setting,
                       formatted("interval=2 moves=%s", exposed ? "exposed" : "asynchronous"));
        assert_int_equal(rehearsal.planner.homes_limit, exposed ? 10 : 16);
        for (int layer = 0; layer < 5; layer++) {
            for (int cell = 0; cell < 16; cell++)
                rehearsal.load[layer].count[cell] = cell % 4 == 1 ? 701 : 100;
        }
        for (int iteration = 0; iteration < 4; iteration++) {
            rehearsal_step(&rehearsal, rehearsal.load);
            int from = iteration == 1 && !exposed ? 3 : 0, to = iteration == 1 ? 5 : 3;
            bool due = iteration == 1 || (iteration == 0 && !exposed);
            assert_int_equal(rehearsal.planner.change.changed, due);
            assert_int_equal(rehearsal.planner.change.asynchronous, due && !exposed);
            for (int move = 0; due && move < rehearsal.planner.moves.count; move++)
                assert_in_range(rehearsal.planner.moves.item[move].layer, from, to - 1);
            assert_int_equal(rehearsal.planner.moves.count > 0, due);
        }
        for (int layer = 0; layer < 5; layer++)
            assert_true(mp_placement_copies(&rehearsal.planner.home[layer], 1) > 2);
    }
}

/* Below the threshold nothing changes. */
TEST(balance_is_left_alone) {
    struct mp_setting setting = setting_with(1, 4, (struct mp_topology){4, 4});
    AUTO(rehearsal) struct rehearsal rehearsal;
    rehearsal_open(&rehearsal, tested, &setting, "interval=1 slots=1");
    struct mp_load *load = rehearsal.load;
    for (int cell = 0; cell < 16; cell++)
        load->count[cell] = cell % 4 == 1 ? 128 : 100; /* 128 of 107 on average */
    rehearsal_step(&rehearsal, load);
    assert_false(rehearsal.planner.change.changed);
}

TEST(state_of_other_ranks_is_let_go_and_foreign_state_refused) {
    struct mp_setting setting = setting_with(2, 8, (struct mp_topology){4, 2});
    struct rehearsal rehearsal, other;
    char saved[1024], same[1024];
    rehearsal_open(&rehearsal, tested, &setting, NULL);
    size_t size = tested->save(rehearsal.planner.self, saved, sizeof saved);
    assert_int_equal(size, 24 + 2 * 16 * 4);
    for (int slot = 0; slot < 32; slot++) { /* an expert that is none, and one that is missing */
        memcpy(same, saved, size);
        same[24 + 4 * slot + 3] = 0x40;
        assert_int_equal(tested->load(rehearsal.planner.self, same, size, NULL), MP_EFORMAT);
        for (int at = 0; at < 16; at++)
            same[24 + 4 * (slot / 16 * 16 + at) + 3] = at == 0 ? 0 : same[24 + 4 * at + 3];
        memset(same + 24 + 64 * (slot / 16), 0, 64);
        assert_int_equal(tested->load(rehearsal.planner.self, same, size, NULL), MP_EFORMAT);
    }
    setting.topology.ranks = 8;
    rehearsal_open(&other, tested, &setting, NULL);
    size_t before = tested->save(other.planner.self, same, sizeof same);
    assert_works(tested->load(other.planner.self, saved, size, &error));
    char after[1024];
    assert_int_equal(tested->save(other.planner.self, after, sizeof after), before);
    assert_memory_equal(same, after, before);
    rehearsal_destroy(&other);
    setting.topology.ranks = 4;
    rehearsal_open(&other, tested, &setting, "slots=3");
    assert_sentence(tested->load(other.planner.self, saved, size, &error), MP_EFORMAT,
                    "the saved state of flexmoe is of 4 slots per rank, the job has 3");
    rehearsal_destroy(&other);
    rehearsal_destroy(&rehearsal);
}

static const struct refusal refusals[] = {
    {"experts=10 bandwidth=1e9", "slots=2", "2 on each of 4 ranks are too few for 10 experts"},
    {"experts=10 bandwidth=1e9", "slots=0", "0 on each of 4 ranks are too few for 10 experts"},
    {"", "slots=2", "a bandwidth above 0"},
};

TEST_ROWS(what_it_can_not_do_is_refused, refusals, c) {
    assert_refusal(tested, c);
}
