/* Positions of routes, by index and by one-hot matrix. */
#include "tests/reference/device/device_support.h"

/* Five tokens, two choices, three experts, worked out by hand: expert 0 has two parts, the second
 * of them empty; expert 1 has none; expert 2 has three, of which the last is not filled. */
DEVICE_TEST(positions_by_hand) {
    int32_t *choice = copy_ints((const int32_t[]){0, 2, 2, 0, 1, 2, 2, 1, 2, 0}, 10);
    const int part_begin[] = {0, 2, 2, 5};
    const int part_count[] = {2, 0, 1, 2, 5};
    const int part_row[] = {3, 9, 0, 1, 5};
    int32_t *position = new_ints(10), *row_token = new_ints(7);
    perform(device, route_positions, 10, 2, 3, choice, NULL, part_begin, part_count, part_row, 7,
            position, row_token);
    const int32_t expected[] = {3, 0, 1, 4, -1, 2, 5, -1, 6, -1};
    const int32_t expected_token[] = {0, 1, 2, 0, 1, 3, 4};
    assert_memory_equal(position, expected, sizeof expected);
    assert_memory_equal(row_token, expected_token, sizeof expected_token);
    /* Without rows: those of routes have their tokens, and others keep what they had. */
    const int more_begin[] = {0, 1, 1, 1}, more_count[] = {3}, more_row[] = {4};
    perform(device, route_positions, 10, 2, 3, choice, NULL, more_begin, more_count, more_row, 0,
            position, row_token);
    const int32_t more[] = {4, -1, -1, 5, -1, -1, -1, -1, -1, 6};
    const int32_t more_token[] = {0, 1, 2, 0, 0, 1, 4};
    assert_memory_equal(position, more, sizeof more);
    assert_memory_equal(row_token, more_token, sizeof more_token);
}

struct route_case {
    const char *name;
    int tokens, top_k, experts, most_parts;
    bool one_expert_has_all;
    bool ordered;   /* routes come in an order of their own, not token by token */
    bool boundless; /* parts take all that there is, counts beyond what an int holds together */
};

struct parts {
    int *begin, *count, *row, rows;
};

/* Parts of each expert, some of them empty, that take none to all of its routes, and the last of
 * them more than there are; rows are handed out with gaps. */
static struct parts random_parts(const struct route_case *c, const int load[]) {
    size_t most = (size_t)c->experts * (size_t)c->most_parts;
    struct parts parts = {new_host((size_t)c->experts + 1, sizeof(int)),
                          new_host(most, sizeof(int)), new_host(most, sizeof(int)), 0};
    int at = 0;
    for (int e = 0; e < c->experts; e++) {
        int left = load[e];
        parts.begin[e] = at;
        int own = c->boundless ? c->most_parts : test_random_int(&random_state, 0, c->most_parts);
        for (int p = own; p > 0; p--) {
            bool all = c->boundless && p <= (c->most_parts + 3) / 4;
            bool none = test_random_int(&random_state, 0, 3) == 0;
            int count = all ? INT32_MAX : none ? 0 : p == 1 ? 2 * left : left / p;
            int taken = count < left ? count : left;
            parts.rows += test_random_int(&random_state, 0, 2);
            parts.count[at] = count;
            parts.row[at++] = parts.rows;
            parts.rows += taken;
            left -= taken;
        }
    }
    parts.begin[c->experts] = at;
    return parts;
}

/* One route after the other. */
static void naive_positions(const struct route_case *c, const int32_t *choice, const int32_t *order,
                            const struct parts *parts, int32_t *position, int32_t *row_token) {
    int *taken = new_host((size_t)c->experts, sizeof *taken);
    for (int i = 0; i < parts->rows; i++)
        row_token[i] = -1;
    for (int i = 0; i < c->tokens * c->top_k; i++) {
        int route = order ? order[i] : i, expert = choice[route];
        int number = taken[expert]++, p = parts->begin[expert], end = parts->begin[expert + 1];
        while (p < end && number >= parts->count[p])
            number -= parts->count[p++];
        position[route] = p < end ? parts->row[p] + number : -1;
        if (p < end)
            row_token[position[route]] = route / c->top_k;
    }
}

static const struct route_case route_cases[] = {
    {"top 1", 50, 1, 7, 1, false, false, false},
    {"top 2, up to three parts", 200, 2, 16, 3, false, false, false},
    {"top 4, more experts than routes", 3, 4, 100, 2, false, true, false},
    {"one expert has all", 1050, 2, 9, 4, true, true, false},
    {"one expert, boundless parts", 500, 1, 1, 70, false, false, true},
    {"boundless parts", 300, 2, 5, 3, false, true, true},
    {"64 experts", 1000, 3, 64, 5, false, true, false},
    {"a block exactly", 512, 2, 33, 5, false, true, false},
    {"1000 experts", 1020, 4, 1000, 5, false, true, false},
    {"1024 experts", 40, 8, 1024, 5, false, false, false},
    {"as many routes as may be", 4096, 1, 24, 5, false, false, false},
    {"one token", 1, 2, 4, 2, false, false, false},
    {"no tokens", 0, 2, 4, 2, false, false, false},
};

DEVICE_EACH(routes_get_rows, route_cases) {
    size_t routes = (size_t)(c->tokens * c->top_k);
    int32_t *choice = new_ints(routes), *position = new_ints(routes), *expected = new_ints(routes);
    int32_t *order = c->ordered ? random_permutation((int)routes) : NULL;
    int *load = new_host((size_t)c->experts, sizeof *load);
    for (size_t i = 0; i < routes; i++) {
        choice[i] = c->one_expert_has_all ? c->experts / 2
                                          : test_random_int(&random_state, 0, c->experts - 1);
        load[choice[i]]++;
    }
    struct parts parts = random_parts(c, load);
    int32_t *row_token = new_ints((size_t)parts.rows), *tokens = new_ints((size_t)parts.rows);
    naive_positions(c, choice, order, &parts, expected, tokens);
    perform(device, route_positions, (int)routes, c->top_k, c->experts, choice, order, parts.begin,
            parts.count, parts.row, parts.rows, position, row_token);
    assert_memory_equal(position, expected, routes * sizeof *position);
    assert_memory_equal(row_token, tokens, (size_t)parts.rows * sizeof *tokens);
}

static const struct {
    const char *name;
    int tokens, top_k;
    int dropped; /* every so many routes; 0: none */
    bool weighted;
} one_hot_cases[] = {{"top 1", 33, 1, 0, false},
                     {"top 4, routes dropped", 70, 4, 3, true},
                     {"no tokens", 0, 2, 0, false}};

/* By the definition: ones or weights in the place of each route, zeros elsewhere; and the gradients
 * of those that have a row. */
DEVICE_EACH(one_hot_is_set_and_picked, one_hot_cases) {
    size_t tokens = (size_t)c->tokens, top_k = (size_t)c->top_k, routes = tokens * top_k;
    int32_t *position = random_permutation((int)routes);
    float *weight = c->weighted ? random_floats(routes, 1) : NULL, *dweight = new_floats(routes);
    float *matrix = new_floats(routes * tokens), *dmatrix = random_floats(routes * tokens, 1);
    float *expected = new_host(routes * tokens + 1, sizeof *expected);
    for (size_t j = 0; c->dropped && j < routes; j += (size_t)c->dropped)
        position[j] = -1;
    memset(matrix, 0, routes * tokens * sizeof *matrix);
    perform(device, one_hot, c->tokens, c->top_k, position, weight, matrix);
    perform(device, one_hot_gradient, c->tokens, c->top_k, position, dmatrix, dweight);
    for (size_t j = 0; j < routes; j++) {
        size_t at = (size_t)position[j] * tokens + j / top_k;
        if (position[j] >= 0)
            expected[at] = weight ? weight[j] : 1;
        assert_true(dweight[j] == (position[j] < 0 ? 0 : dmatrix[at]));
    }
    assert_memory_equal(matrix, expected, routes * tokens * sizeof *matrix);
}

DEVICE_PROGRAM(.limits = &test_limits);
