/* Capacities: the published figures, the arithmetic that decides what is rounded up, and formulas
 * against whole numbers where nothing is rounded. */
#include "reference/plan/capacity.h"

#include "reference/base/option_choice.h"
#include "tests/support.h"

/* V-GATE-3, in the order of its columns.  FastMoE's GShard gate has two choices,
 * its Switch gate one; that on one rank and, with half the experts each, on two. */
enum { NONE = -1 };
struct vector {
    int64_t tokens;
    int experts, top_k;
    double factor;
    int64_t hetumoe, deepspeed, tutel, megatron, fastmoe, one_rank, two_ranks;
};
static const struct vector VECTORS[] = {
    {10, 4, 2, 1.0, 6, 5, 6, 5, 5, NONE, NONE},
    {10, 4, 2, 1.2, 6, 6, 6, 6, 6, NONE, NONE},
    {10, 4, 1, 1.2, 3, 4, 3, 3, NONE, 3, 6},
    {7, 4, 2, 1.5, 6, 6, 6, 6, 5, NONE, NONE},
    {4, 8, 1, 1.0, 1, 4, 1, 1, NONE, 1, NONE},
    {4096, 64, 2, 1.25, 160, 160, 160, 160, 160, NONE, NONE},
};

static void assert_capacity(enum mp_capacity_formula formula, const struct vector *row, int ranks,
                            int64_t expected) {
    const struct mp_capacity_sizes sizes = {
        row->tokens, row->experts, row->top_k, row->factor, 4, row->experts / ranks};
    if (expected != NONE)
        assert_int_equal(mp_capacity(formula, &sizes), expected);
}

TEST_ROWS(published_capacities_come_out, VECTORS, row) {
    assert_capacity(MP_CAPACITY_HETUMOE, row, 1, row->hetumoe);
    assert_capacity(MP_CAPACITY_DEEPSPEED, row, 1, row->deepspeed);
    assert_capacity(MP_CAPACITY_TUTEL, row, 1, row->tutel);
    assert_capacity(MP_CAPACITY_MEGATRON, row, 1, row->megatron);
    assert_capacity(MP_CAPACITY_FASTMOE, row, 1, row->fastmoe);
    assert_capacity(MP_CAPACITY_FASTMOE_SWITCH, row, 1, row->one_rank);
    assert_capacity(MP_CAPACITY_FASTMOE_SWITCH, row, 2, row->two_ranks);
}

TEST(rows_are_named_as_the_choices) {
    const struct mp_option row = {.type = MP_OPTION_CHOICE, .of = MP_CAPACITY_CHOICES};
    char word[MP_CHOICE_SIZE];
    for (int formula = 0; formula < MP_CAPACITY_FORMULAS; formula++) {
        assert_true(option_word(&row, formula, word));
        assert_string_equal(mp_capacity_rules[formula].name, word);
        assert_true(strlen(mp_capacity_rules[formula].source) > 0);
        assert_int_equal(mp_capacity_rules[formula].at_receiver,
                         formula == MP_CAPACITY_FASTMOE_SWITCH);
    }
    assert_false(option_word(&row, MP_CAPACITY_FORMULAS, word));
}

/* V-DS-1, and what single precision makes of products that are whole numbers on paper.  In double
 * precision 100/4 * 1.2 is 30 and 25 * (1.1 * 2) is 55.00000000000001. */
struct edge {
    const char *name;
    int64_t tokens;
    int experts, top_k;
    double factor;
    int64_t min_capacity, expected;
};
static const struct edge EDGES[] = {
    {"wider than the tokens", 8, 2, 2, 2.0, 0, 16},
    {"the minimum above the tokens", 4, 4, 1, 1.0, 8, 8},
    {"eight times its share", 3, 4, 1, 8.0, 0, 6},
    {"four tokens, two choices", 4, 4, 2, 1.0, 0, 2},
    {"six experts, three choices", 4, 6, 3, 1.0, 0, 2},
    {"ten times 1.1", 100, 10, 1, 1.1, 4, 11},
    {"a hundred times 1.1", 1000, 10, 1, 1.1, 4, 110},
    {"25 times 1.2", 100, 4, 1, 1.2, 4, 31},
    {"25 times 2.2", 100, 4, 2, 1.1, 4, 55},
    {"250 times 3.9", 1000, 4, 3, 1.3, 4, 975},
    {"no factor at all", 100, 4, 1, 0.0, 4, 4},
    {"nothing at all", 100, 4, 1, 0.0, 0, 0},
};

TEST_EACH(edges_of_the_released_formula, EDGES, row) {
    const struct mp_capacity_sizes sizes = {.tokens = row->tokens,
                                            .experts = row->experts,
                                            .top_k = row->top_k,
                                            .factor = row->factor,
                                            .least = row->min_capacity};
    assert_int_equal(mp_capacity(MP_CAPACITY_DEEPSPEED, &sizes), row->expected);
}

/* ceil(a / b) */
static int64_t quotient(int64_t a, int64_t b) {
    return (a + b - 1) / b;
}

/* Shares that are whole and factors in sixteenths are exact in either precision. */
TEST_RANDOM(formulas_agree_with_whole_numbers) {
    for (int round = 0; round < 2000; round++) {
        int experts = test_random_int(random, 1, 300), top_k = test_random_int(random, 1, 8);
        int64_t share = test_random_int(random, 1, 4000), tokens = share * experts;
        int64_t sixteenths = test_random_int(random, 1, 64);
        int64_t least = test_random_int(random, 0, 20);
        double factor = (double)sixteenths / 16;
        int each = test_random_int(random, 1, experts);
        int64_t whole = quotient(share * sixteenths * top_k, 16);
        const int64_t expected[] = {whole > least ? whole : least,
                                    top_k * quotient(share * sixteenths, 16),
                                    top_k * (share * sixteenths / 16),
                                    whole,
                                    quotient(tokens * sixteenths, 16) * top_k / experts,
                                    quotient(tokens * sixteenths, 16 * each)};
        const struct mp_capacity_sizes sizes = {tokens, experts, top_k, factor, least, each};
        for (int formula = 0; formula < MP_CAPACITY_FORMULAS; formula++)
            assert_int_equal(mp_capacity((enum mp_capacity_formula)formula, &sizes),
                             expected[formula]);
    }
}
