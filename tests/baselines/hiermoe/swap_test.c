/* Swaps: V-HIER-2's tokens, counts after swaps by hand and by trying all of them; random tokens in
 * groups of several levels. */
#include "baselines/hiermoe/swap.h"

#include "tests/support.h"

enum { EXPERTS = 8, TOKENS = 6 };
static const int32_t expert[TOKENS][2] = {{0, 1}, {0, 4}, {2, 3}, {5, 7}, {0, 2}, {1, 6}};
static const struct mp_swap_tokens tokens = {TOKENS, 2, EXPERTS, &expert[0][0]};
/* Four ranks with two experts each, in two nodes. */
static const int32_t rank[EXPERTS] = {0, 0, 1, 1, 2, 2, 3, 3};
static const int32_t node[EXPERTS] = {0, 0, 0, 0, 1, 1, 1, 1};

static void swap(const int32_t from[EXPERTS], int a, int b, int32_t to[EXPERTS]) {
    memcpy(to, from, EXPERTS * sizeof *to);
    to[a] = from[b];
    to[b] = from[a];
}

static void expect(int a, int b, const int32_t of_ranks[4], const int32_t of_nodes[2]) {
    int32_t swapped[EXPERTS], count[4], memory[64];
    swap(rank, a, b, swapped);
    mp_swap_count(&tokens, swapped, 4, memory, count);
    assert_memory_equal(count, of_ranks, 4 * sizeof *count);
    swap(node, a, b, swapped);
    mp_swap_count(&tokens, swapped, 2, memory, count);
    assert_memory_equal(count, of_nodes, 2 * sizeof *count);
}

TEST(tokens_count_once_in_a_group) {
    expect(0, 0, (int32_t[]){4, 2, 2, 2}, (int32_t[]){5, 3});
    expect(1, 4, (int32_t[]){3, 2, 3, 2}, (int32_t[]){4, 3});
    expect(0, 5, (int32_t[]){3, 2, 3, 2}, (int32_t[]){5, 5});
    expect(3, 4, (int32_t[]){4, 3, 2, 2}, (int32_t[]){5, 3});
}

static void changes_are_those_of_trying(const struct mp_swap_tokens *tried, const int32_t group[],
                                        int groups) {
    enum { MOST = 24 };
    int experts = tried->experts;
    int32_t memory[MOST * (3 + MOST)], change[MOST * MOST], before[MOST], after[MOST];
    int32_t swapped[MOST];
    assert_true(mp_swap_memory(experts, groups) <= sizeof memory / sizeof *memory);
    mp_swap_count(tried, group, groups, memory, before);
    mp_swap_changes(tried, group, groups, memory, change);
    for (int a = 0; a < experts; a++)
        for (int b = 0; b < experts; b++) {
            memcpy(swapped, group, (size_t)experts * sizeof *swapped);
            swapped[a] = group[b];
            swapped[b] = group[a];
            mp_swap_count(tried, swapped, groups, memory, after);
            assert_int_equal(change[a * experts + b], after[group[a]] - before[group[a]]);
        }
}

TEST(the_rule_is_as_good_as_trying_all_pairs) {
    changes_are_those_of_trying(&tokens, rank, 4);
    changes_are_those_of_trying(&tokens, node, 2);
}

/* 24 experts on 12 ranks in pairs and fours, and a token with an expert twice nowhere. */
TEST_RANDOM(the_rule_holds_at_every_level) {
    int32_t drawn[40][5], group[24];
    const struct mp_swap_tokens many = {40, 5, 24, &drawn[0][0]};
    for (int i = 0; i < 5; i++) {
        for (int t = 0; t < 40; t++)
            for (int j = 0; j < 5; j++) {
                bool again = true;
                while (again) {
                    drawn[t][j] = test_random_int(random, 0, 23);
                    again = false;
                    for (int before = 0; before < j; before++)
                        again |= drawn[t][before] == drawn[t][j];
                }
            }
        for (int size = 1; size <= 4; size *= 2) {
            for (int e = 0; e < 24; e++)
                group[e] = e / 2 / size;
            changes_are_those_of_trying(&many, group, 12 / size);
        }
    }
}

TEST(the_smooth_largest_is_the_papers) {
    static const double count[] = {3, 1, 4, 2};
    double sum = 0;
    for (int i = 0; i < 4; i++)
        sum += mp_swap_power(count[i], 10);
    assert_within(mp_swap_smooth_max(sum, 10), 4.022346, 5e-7);
    assert_within(mp_swap_smooth_max(0, 10), 0, 0);
}
