/* Chunks of whole experts: worked out by hand, and their order and sizes in random plans. */
#include "tests/reference/base/memory.h"
#include "tests/reference/plan/plan_support.h"

#include "reference/plan/chunks.h"

enum { LAYERS = 24, MOST_PLACES = 1 << 16 };

static void cut(struct example *example, int degree, struct mp_expert_chunks *chunks) {
    mp_expert_chunks_create(&memory, &example->plan.topology, LAYERS, MOST_PLACES, chunks);
    assert_works(mp_arena_check(&memory, &error));
    example->plan.degree = degree;
    mp_expert_chunks_cut(chunks, &example->plan);
}

/* On rank 0 of two nodes of two: 40, 30, 20 and 20 routes, of which those of the second expert come
 * from the other node; three chunks with it and without it. */
TEST(chunks_by_hand) {
    static const uint32_t count[4][4] = {
        {40, 0, 20, 0}, {0, 10, 0, 20}, {0, 20, 0, 0}, {0, 0, 0, 0}};
    static const uint8_t expected[2][4] = {{0, 1, 2, 2}, {0, 1, 1, 2}};
    for (int inside = 0; inside < 2; inside++) {
        AUTO(example) struct example example;
        struct mp_expert_chunks chunks;
        owned_example((struct mp_topology){4, 2}, 4, (const int32_t[4]){0}, &example);
        memcpy(example.load.count, count, sizeof count);
        if (inside)
            example.load.count[4 + 1] = 20, example.load.count[8 + 1] = 10;
        begin_owned(&example.plan, 0, 3, (const int32_t[4]){0});
        assert_works(mp_plan_dispatch_to_owner(&example.plan, &example.load, &error));
        cut(&example, 3, &chunks);
        assert_memory_equal(example.plan.place_chunk, expected[inside], 4);
        assert_works(mp_plan_check(&example.plan, &example.load, &example.law, NULL, &error));
    }
}

/* 0: held anyway, 1: copied, 2: late. */
static int when(const struct mp_plan *plan, int expert, int rank) {
    for (int i = 0; i < plan->fetch.count; i++)
        if (plan->fetch.item[i].expert == expert && plan->fetch.item[i].to == rank)
            return plan->fetch.item[i].stage == MP_STAGE_AFTER_GATE ? 2 : 1;
    return 0;
}

static int64_t rows_to(const struct mp_plan *plan, int expert, int rank, bool from_away) {
    int64_t rows = 0;
    for (int source = 0; source < plan->topology.ranks; source++)
        if (!from_away ||
            mp_topology_node(&plan->topology, source) != mp_topology_node(&plan->topology, rank))
            rows += mp_plan_routes_to(plan, source, expert, rank);
    return rows;
}

static bool is_away(const struct mp_plan *plan, int expert, int rank) {
    return when(plan, expert, rank) == 0 &&
           2 * rows_to(plan, expert, rank, true) > rows_to(plan, expert, rank, false);
}

/* Of a rank's chunks in their order, all but that of rows from away. */
static void check_rank(const struct mp_plan *plan, int rank, bool any) {
    int64_t rows[MP_MOST_DEGREE] = {0}, all = 0, largest = 0;
    int last = 0;
    for (int order = 0; order < 3; order++)
        for (int expert = 0; expert < plan->experts; expert++) {
            int at = mp_plan_holder_index(plan, expert, rank);
            if (at < 0 || when(plan, expert, rank) != order)
                continue;
            int chunk = plan->place_chunk[at];
            int64_t some = rows_to(plan, expert, rank, false);
            assert_int_equal(is_away(plan, expert, rank), any && chunk == plan->degree / 2);
            if (is_away(plan, expert, rank))
                continue;
            assert_in_range(chunk, last, plan->degree - 1);
            last = chunk;
            rows[chunk] += some;
            all += some;
            largest = some > largest ? some : largest;
        }
    int parts = plan->degree - any - 1; /* one of them is what the first and the last share */
    for (int chunk = 0; parts > 0 && chunk < plan->degree; chunk++) {
        bool end = chunk == 0 || chunk == plan->degree - 1;
        assert_true((rows[chunk] - largest) * parts * (1 + end) <= all);
    }
}

TEST_RANDOM(first_come_what_persists_and_ends_are_small) {
    int some_away = 0;
    for (int round = 0; round < 60; round++) {
        AUTO(example) struct example example;
        struct mp_expert_chunks chunks;
        bool any = false;
        random_example(random, false, &example);
        struct mp_plan *plan = &example.plan;
        cut(&example, test_random_int(random, 2, MP_MOST_DEGREE), &chunks);
        assert_works(mp_plan_check(plan, &example.load, &example.law, NULL, &error));
        for (int expert = 0; expert < plan->experts; expert++)
            for (int32_t at = plan->holder_begin[expert]; at < plan->holder_begin[expert + 1]; at++)
                any |= is_away(plan, expert, plan->holder[at]);
        for (int rank = 0; rank < plan->topology.ranks; rank++)
            check_rank(plan, rank, any);
        some_away += any;
    }
    assert_in_range(some_away, 1, 59);
}

TEST_RANDOM(the_law_minds_chunks) {
    AUTO(example) struct example example;
    struct mp_expert_chunks chunks;
    random_example(random, false, &example);
    cut(&example, 2, &chunks);
    int places = example.plan.holder_begin[example.plan.experts];
    chunks.chunk[example.plan.layer * MOST_PLACES + test_random_int(random, 0, places - 1)] = 2;
    assert_fails(mp_plan_check(&example.plan, &example.load, &example.law, NULL, &error), MP_EPLAN,
                 "are in chunk 2 of 2");
}
