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
 * from the other node; then most from the own one; then 10 of it and as many more of the last in
 * four chunks.  The first and the third have own rows. */
TEST(chunks_by_hand) {
    static const uint32_t count[4][4] = {
        {40, 0, 20, 0}, {0, 10, 0, 20}, {0, 20, 0, 0}, {0, 0, 0, 0}};
    static const uint8_t expected[3][4] = {{0, 1, 2, 2}, {0, 1, 2, 1}, {0, 1, 3, 2}};
    for (int inside = 0; inside < 3; inside++) {
        AUTO(example) struct example example;
        struct mp_expert_chunks chunks;
        owned_example((struct mp_topology){4, 2}, 4, (const int32_t[4]){0}, &example);
        memcpy(example.load.count, count, sizeof count);
        if (inside)
            example.load.count[4 + 1] = 20, example.load.count[8 + 1] = 10;
        if (inside == 2)
            example.load.count[8 + 1] = 0, example.load.count[4 + 3] = 30;
        begin_owned(&example.plan, 0, 3, (const int32_t[4]){0});
        assert_works(mp_plan_dispatch_to_owner(&example.plan, &example.load, &error));
        cut(&example, 3 + inside / 2, &chunks);
        assert_memory_equal(example.plan.place_chunk, expected[inside], 4);
        assert_works(mp_plan_check(&example.plan, &example.load, &example.law, NULL, &error));
    }
}

/* Rows of an expert on a rank: all, of other ranks, of other nodes. */
enum whence { ANYWHERE, FOREIGN, AWAY };
static int64_t rows_to(const struct mp_plan *plan, int expert, int rank, enum whence whence) {
    int64_t rows = 0;
    for (int source = 0; source < plan->topology.ranks; source++)
        if (whence == ANYWHERE || (whence == FOREIGN && source != rank) ||
            mp_topology_node(&plan->topology, source) != mp_topology_node(&plan->topology, rank))
            rows += mp_plan_routes_to(plan, source, expert, rank);
    return rows;
}

static bool is_away(const struct mp_plan *plan, int expert, int rank) {
    return !fetched_late(plan, expert, rank) &&
           2 * rows_to(plan, expert, rank, AWAY) > rows_to(plan, expert, rank, ANYWHERE);
}

/* What a rank has in a chunk, of what is not from away. */
struct part {
    int64_t rows, largest;
    int experts, late; /* with rows; or late */
    int64_t foreign;   /* the least of an expert */
};

static struct part part_of(const struct mp_plan *plan, int rank, int chunk) {
    struct part part = {.foreign = INT64_MAX};
    for (int expert = 0; expert < plan->experts; expert++) {
        int at = mp_plan_holder_index(plan, expert, rank);
        if (at < 0 || plan->place_chunk[at] != chunk || is_away(plan, expert, rank))
            continue;
        int64_t rows = rows_to(plan, expert, rank, ANYWHERE);
        bool late = fetched_late(plan, expert, rank);
        part.rows += rows;
        part.largest = rows > part.largest ? rows : part.largest;
        part.late += late;
        if (late || rows == 0)
            continue;
        int64_t foreign = rows_to(plan, expert, rank, FOREIGN);
        part.experts++;
        part.foreign = foreign < part.foreign ? foreign : part.foreign;
    }
    return part;
}

/* Of a rank's chunks in their order, all but that of rows from away. */
static void check_rank(const struct mp_plan *plan, int rank, bool any) {
    struct part part[MP_MOST_DEGREE];
    int count = 0, between = 0, late = 0;
    int64_t rows = 0, least = INT64_MAX;
    for (int chunk = 0; chunk < plan->degree; chunk++)
        if (!any || chunk != plan->degree / 2)
            part[count++] = part_of(plan, rank, chunk);
    const bool ends = count > 2;
    for (int i = 0; i < count; i++) {
        late += part[i].late;
        if (ends && (i == 0 || i == count - 1))
            continue;
        rows += part[i].rows;
        least = part[i].foreign < least ? part[i].foreign : least;
        between++;
    }
    for (int i = 0; i < count; i++)
        if (!ends || (i > 0 && i < count - 1))
            assert_true((part[i].rows - part[i].largest) * between <= rows);
    for (int i = 1; !ends && i < count; i++)
        assert_true(part[i - 1].late == 0 || part[i].experts == 0);
    if (!ends)
        return;
    const struct part *first = &part[0], *last = &part[count - 1];
    assert_int_equal(last->late, late);
    assert_in_range(first->experts, rows > 0 && least < INT64_MAX, 1);
    assert_in_range(last->experts, late == 0 && least < INT64_MAX, late == 0);
    assert_true(first->experts == 0 ||
                (first->foreign <= least && first->foreign <= last->foreign));
    assert_true(last->experts == 0 || last->foreign <= least);
}

TEST_RANDOM(ends_are_small_and_what_is_late_comes_last) {
    int some_away = 0, rounds = 0;
    for (; rounds < 60 || (some_away % rounds == 0 && rounds < 6000); rounds++) {
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
        for (int expert = 0; any && expert < plan->experts; expert++)
            for (int32_t at = plan->holder_begin[expert]; at < plan->holder_begin[expert + 1]; at++)
                assert_int_equal(is_away(plan, expert, plan->holder[at]),
                                 plan->place_chunk[at] == plan->degree / 2);
        some_away += any;
        for (int rank = 0; rank < plan->topology.ranks; rank++)
            check_rank(plan, rank, any);
    }
    assert_in_range(some_away, 1, rounds - 1);
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
