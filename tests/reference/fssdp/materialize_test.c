/* Algorithm 1: the golden placements. */
#include "tests/reference/base/memory.h"
#include "tests/reference/plan/plan_support.h"

#include "reference/fssdp/fssdp.h"

/* 4 ranks in 2 nodes, 8 experts, owner(e) = e / 2. */
struct golden_case {
    const char *name;
    int64_t load[8];
    int overlap, memory;
    int copies;
    struct mp_copy copy[16]; /* in the order of the algorithm */
};

#define GOLDEN_LOAD                                                                                \
    { 40, 6, 30, 2, 10, 4, 20, 8 }

static const struct golden_case GOLDEN[] = {
    {"V-FSSDP-2", GOLDEN_LOAD, 2, 4, 6, {{0, 1}, {0, 2}, {0, 3}, {2, 0}, {2, 2}, {2, 3}}},
    {"V-FSSDP-3", GOLDEN_LOAD, 4, 1, 4, {{0, 2}, {0, 1}, {2, 3}, {6, 0}}},
    {"V-FSSDP-4", GOLDEN_LOAD, 6, 2, 7, {{0, 2}, {0, 1}, {0, 3}, {2, 2}, {2, 0}, {6, 0}, {4, 1}}},
    {"V-FSSDP-5 clamps",
     {90, 1, 1, 1, 1, 1, 1, 4},
     4,
     2,
     8,
     {{0, 2}, {0, 1}, {0, 3}, {7, 0}, {7, 1}, {7, 2}, {1, 3}, {2, 0}}},
    {"V-FSSDP-5 ties", {10, 10, 10, 10, 10, 10, 10, 10}, 8, 1, 3, {{0, 2}, {1, 3}, {2, 0}}},
    {"V-FSSDP-7 stale", {10, 20, 6, 4, 40, 2, 8, 30}, 4, 1, 4, {{4, 0}, {4, 3}, {7, 1}, {1, 2}}},
    {"no overlap", GOLDEN_LOAD, 0, 4, 0, {{0, 0}}},
    {"no memory", GOLDEN_LOAD, 4, 0, 0, {{0, 0}}},
    {"no routes", {0}, 8, MP_ALL, 0, {{0, 0}}},
    {"one routed expert of many hot",
     {0, 0, 0, 0, 0, 7, 0, 0},
     8,
     MP_ALL,
     3,
     {{5, 0}, {5, 1}, {5, 3}}},
};

TEST_ROWS(golden_placements, GOLDEN, row) {
    struct mp_materializer materializer;
    struct mp_placement placement = placement_of(4, 8);
    mp_materializer_create(&memory, &GOLDEN_TOPOLOGY, 8, row->overlap, &materializer);
    mp_materialize(&materializer, &placement, row->load, row->memory);
    if (materializer.copies != row->copies)
        fail_msg("%s: %d copies, expected %d", row->name, materializer.copies, row->copies);
    for (int copy = 0; copy < row->copies; copy++) {
        struct mp_copy got = materializer.copy[copy], expected = row->copy[copy];
        if (got.expert != expected.expert || got.rank != expected.rank)
            fail_msg("%s: copy %d is %d->%d, expected %d->%d", row->name, copy, got.expert,
                     got.rank, expected.expert, expected.rank);
        assert_true(mp_placement_holds(&placement, got.expert, got.rank));
    }
}
