/* The three solvers: the published example, brute force, and what each promises. */
#include "tests/errors.h"
#include "tests/reference/base/memory.h"

#include "baselines/smartmoe/smartmoe.h"

enum { EXPERTS = 96, RANKS = 32 };

static void create(int experts, int ranks, enum mp_smartmoe_solver solver, int groups,
                   struct mp_permutation *state) {
    assert_works(mp_permutation_create(&memory, experts, ranks, solver, groups, state, &error));
}

static int64_t largest_load(int experts, int ranks, const int64_t load[], const int32_t owner[]) {
    int64_t sum[RANKS] = {0}, largest = 0;
    for (int expert = 0; expert < experts; expert++)
        sum[owner[expert]] += load[expert];
    for (int rank = 0; rank < ranks; rank++)
        largest = sum[rank] > largest ? sum[rank] : largest;
    return largest;
}

static void assert_permutation(int experts, int ranks, const int32_t owner[]) {
    int count[RANKS] = {0};
    for (int expert = 0; expert < experts; expert++) {
        assert_in_range(owner[expert], 0, ranks - 1);
        count[owner[expert]]++;
    }
    for (int rank = 0; rank < ranks; rank++)
        assert_int_equal(count[rank], experts / ranks);
}

/* V-SMART-1. */
TEST(greedy_follows_the_released_code) {
    static const int64_t load[8] = {40, 6, 30, 2, 10, 4, 20, 8}, equal[4] = {10, 10, 10, 10};
    static const int32_t contiguous[8] = {0, 0, 1, 1, 2, 2, 3, 3};
    static const int32_t expected[8] = {0, 3, 1, 0, 2, 1, 3, 2}, crossed[4] = {1, 0, 1, 0};
    struct mp_permutation solver;
    int32_t owner[8];

    create(8, 4, MP_SMARTMOE_GREEDY, 8, &solver);
    assert_int_equal(largest_load(8, 4, load, contiguous), 46);
    assert_int_equal(mp_permutation_solve(&solver, load, contiguous, owner), 42);
    assert_memory_equal(owner, expected, sizeof expected);
    create(4, 2, MP_SMARTMOE_GREEDY, 8, &solver);
    assert_int_equal(mp_permutation_solve(&solver, equal, crossed, owner), 20);
    assert_memory_equal(owner, crossed, sizeof crossed);
}

static void random_loads(uint64_t *random, int experts, int64_t load[]) {
    int hot = test_random_int(random, 0, 3);
    for (int expert = 0; expert < experts; expert++) {
        load[expert] = test_random_int(random, 0, 40);
        if (test_random_int(random, 0, 5) < hot)
            load[expert] *= test_random_int(random, 1, 50);
    }
}

/* Owners with equal numbers, in random order. */
static void random_owners(uint64_t *random, int experts, int ranks, int32_t owner[]) {
    for (int expert = 0; expert < experts; expert++)
        owner[expert] = expert % ranks;
    for (int expert = experts - 1; expert > 0; expert--) {
        int other = test_random_int(random, 0, expert);
        int32_t kept = owner[expert];
        owner[expert] = owner[other];
        owner[other] = kept;
    }
}

/* The least largest load over all ways to place experts expert .. experts - 1. */
static int64_t least_of_all(const int64_t load[], int expert, int experts, int ranks, int room[],
                            int64_t sum[]) {
    int64_t least = INT64_MAX;
    if (expert == experts) {
        int64_t largest = 0;
        for (int rank = 0; rank < ranks; rank++)
            largest = sum[rank] > largest ? sum[rank] : largest;
        return largest;
    }
    for (int rank = 0; rank < ranks; rank++) {
        if (room[rank] == 0)
            continue;
        room[rank]--;
        sum[rank] += load[expert];
        int64_t found = least_of_all(load, expert + 1, experts, ranks, room, sum);
        least = found < least ? found : least;
        sum[rank] -= load[expert];
        room[rank]++;
    }
    return least;
}

TEST_RANDOM(dynamic_programming_finds_the_optimum) {
    static const int shape[][2] = {{4, 2}, {6, 2}, {6, 3}, {8, 2}, {8, 4}, {9, 3}, {5, 5}, {7, 1}};
    int better = 0;
    for (int round = 0; round < 80; round++) {
        const int *size = shape[round % 8];
        int64_t load[16], sum[16] = {0};
        int room[16];
        int32_t current[16], owner[16];
        struct mp_permutation solver;
        create(size[0], size[1], MP_SMARTMOE_DYNAMIC_PROGRAMMING, 8, &solver);
        random_loads(random, size[0], load);
        random_owners(random, size[0], size[1], current);
        for (int rank = 0; rank < size[1]; rank++)
            room[rank] = size[0] / size[1];
        int64_t found = mp_permutation_solve(&solver, load, current, owner);
        assert_permutation(size[0], size[1], owner);
        assert_int_equal(found, largest_load(size[0], size[1], load, owner));
        assert_int_equal(found, least_of_all(load, 0, size[0], size[1], room, sum));
        int64_t greedy = mp_permutation_greedy(&solver, load, current, owner);
        assert_true(found <= greedy);
        better += found < greedy;
        mp_arena_release(&memory);
    }
    print_message("  better than greedy in %d of 80\n", better);
    assert_true(better > 0);
}

/* Sets of experts that are on one rank stay there when loads call for nothing else. */
TEST_RANDOM(experts_stay_where_the_optimum_lets_them) {
    for (int round = 0; round < 50; round++) {
        int64_t load[12];
        int32_t current[12], owner[12];
        struct mp_permutation solver;
        create(12, 6, MP_SMARTMOE_DYNAMIC_PROGRAMMING, 8, &solver);
        random_owners(random, 12, 6, current);
        /* Pairs of 1000 + x and 1000 - x: only the present placement is perfect. */
        int seen[6] = {0};
        for (int expert = 0; expert < 12; expert++) {
            int distance = 1 << (current[expert] + 1);
            load[expert] = seen[current[expert]]++ ? 1000 - distance : 1000 + distance;
        }
        assert_int_equal(mp_permutation_solve(&solver, load, current, owner), 2000);
        assert_memory_equal(owner, current, sizeof current);
        mp_arena_release(&memory);
    }
}

TEST_RANDOM(hybrid_is_no_worse_than_greedy_and_no_better_than_the_optimum) {
    static const int shape[][2] = {{8, 4},   {12, 4},  {16, 4}, {16, 8},  {12, 2}, {16, 2},
                                   {96, 32}, {64, 32}, {96, 8}, {32, 32}, {30, 6}, {34, 2}};
    int between = 0;
    for (int round = 0; round < 600; round++) {
        const int *size = shape[round % 12];
        int64_t load[EXPERTS];
        int32_t current[EXPERTS], owner[EXPERTS];
        struct mp_permutation solver, exact;
        create(size[0], size[1], MP_SMARTMOE_HYBRID, test_random_int(random, 2, 16), &solver);
        random_loads(random, size[0], load);
        random_owners(random, size[0], size[1], current);
        int64_t found = mp_permutation_solve(&solver, load, current, owner);
        assert_permutation(size[0], size[1], owner);
        assert_int_equal(found, largest_load(size[0], size[1], load, owner));
        int64_t greedy = mp_permutation_greedy(&solver, load, current, owner);
        assert_true(found <= greedy);
        between += found < greedy;
        if (size[0] <= MP_PERMUTATION_ITEMS) {
            create(size[0], size[1], MP_SMARTMOE_DYNAMIC_PROGRAMMING, 8, &exact);
            assert_true(found >= mp_permutation_solve(&exact, load, current, owner));
            mp_arena_release(&memory);
        }
        mp_arena_release(&memory);
    }
    print_message("  better than greedy in %d of 600\n", between);
    assert_true(between > 0);
}

/* The released code's 32 experts to 8 groups on 4 ranks; 64 on 32 ranks in devices of 4. */
static const struct {
    int experts, ranks, groups, workers, each;
} allowed[] = {{32, 4, 8, 4, 2},  {32, 8, 8, 4, 2},  {64, 32, 8, 4, 2},   {16, 2, 8, 2, 4},
               {96, 32, 8, 2, 3}, {32, 32, 8, 0, 0}, {64, 4, 16, 4, 4},   {34, 2, 16, 0, 0},
               {32, 4, 3, 0, 0},  {32, 1, 8, 0, 0},  {1024, 256, 8, 4, 2}};

TEST_ROWS(groups_are_as_many_as_allowed, allowed, c) {
    struct mp_permutation solver;
    create(c->experts, c->ranks, MP_SMARTMOE_HYBRID, c->groups, &solver);
    assert_numbers(solver.workers, c->workers, solver.each, c->each);
}
