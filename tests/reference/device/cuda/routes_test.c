/* Routes of the cuda back end against plain loops that serve one route after the other: orders,
 * places and choices are the same to the last one. */
#include "tests/reference/device/cuda/routes_support.h"

/* Probabilities, sometimes with many equal ones, and choices. */
struct routes {
    int count;
    float *probability;
    int32_t *choice;
    uint64_t seed;
    struct placed probability_at, choice_at;
};

static void random_routes(struct mp_device *device, const struct test_case *c,
                          struct routes *routes) {
    size_t size = (size_t)c->tokens * (size_t)c->experts;
    *routes = (struct routes){.count = c->tokens * c->top_k, .seed = test_random(&random_state)};
    routes->probability = random_values(size, 1);
    routes->choice = random_choices(c->tokens, c->experts, c->top_k);
    for (size_t i = 0; c->kind == TIES && i < size; i++) /* 0 and -0, too */
        routes->probability[i] = 0.25f * rintf(3 * routes->probability[i]);
    for (int i = 0; c->kind == ONE_EXPERT && i < routes->count; i++)
        routes->choice[i] = c->experts / 2;
    routes->probability_at = send(device, routes->probability, 4 * size, 0);
    routes->choice_at = send(device, routes->choice, 4 * (size_t)routes->count, 0);
}

static void destroy_routes(struct mp_device *device, struct routes *routes) {
    drop(device, &routes->probability_at);
    drop(device, &routes->choice_at);
    FREE(routes->probability, routes->choice);
}

/* ---- Sorting ---- */

struct keyed {
    double key;
    int32_t item;
};

static int by_key(const void *left, const void *right) {
    const struct keyed *a = left, *b = right;
    if (a->key != b->key)
        return a->key < b->key ? -1 : 1;
    return (a->item > b->item) - (a->item < b->item);
}

static int32_t *naive_order(const struct test_case *c, const struct routes *routes) {
    struct keyed *keyed = malloc(((size_t)routes->count + 1) * sizeof *keyed);
    int32_t *order = malloc(((size_t)routes->count + 1) * sizeof *order);
    assert_non_null(keyed);
    assert_non_null(order);
    uint64_t state = routes->seed;
    for (int i = 0; i < routes->count; i++) {
        size_t at = (size_t)(i / c->top_k) * (size_t)c->experts + (size_t)routes->choice[i];
        double drawn = (double)(test_random(&state) >> 32); /* SplitMix64 as well */
        double key[] = {[MP_SORT_BY_CHOICE] = i % c->top_k,
                        [MP_SORT_BY_PROBABILITY] = -(double)routes->probability[at],
                        [MP_SORT_AT_RANDOM] = drawn};
        keyed[i] = (struct keyed){key[c->sort], i};
    }
    qsort(keyed, (size_t)routes->count, sizeof *keyed, by_key);
    for (int i = 0; i < routes->count; i++)
        order[i] = keyed[i].item;
    free(keyed);
    return order;
}

static void sort_on_device(struct mp_device *device, const struct test_case *c,
                           const struct routes *routes, struct placed *order) {
    device->operations->sort_routes(
        device, NULL, c->tokens, c->top_k, c->experts, c->sort, (float *)routes->probability_at.at,
        (int32_t *)routes->choice_at.at, routes->seed, (int32_t *)order->at);
}

static void routes_are_sorted(struct mp_device *device, const struct test_case *c) {
    struct routes routes;
    random_routes(device, c, &routes);
    size_t bytes = 4 * (size_t)routes.count;
    struct placed at = place(device, bytes, 0);
    int32_t *expected = naive_order(c, &routes);
    sort_on_device(device, c, &routes, &at);
    int32_t *order = take(device, &at);
    assert_memory_equal(order, expected, bytes);
    destroy_routes(device, &routes);
    FREE(order, expected);
}

/* Beyond the limit: the failure is kept, and the order is one. */
static void too_many_routes_are_not_sorted(struct mp_device *device, const struct test_case *c) {
    struct routes routes;
    random_routes(device, c, &routes);
    struct placed at = place(device, 4 * (size_t)routes.count, 0);
    sort_on_device(device, c, &routes, &at);
    assert_failed(device, MP_ELIMIT);
    int32_t *order = take(device, &at);
    for (int i = 0; i < routes.count; i++)
        assert_int_equal(order[i], i);
    destroy_routes(device, &routes);
    free(order);
}

/* ---- Positions ---- */

struct parts {
    int *begin, *count, *row;
    int rows;
};

/* Up to five parts per expert, some of them empty, that take none to all of its routes or more;
 * rows are handed out in random gaps. */
static void random_parts(const struct test_case *c, const struct routes *routes,
                         struct parts *parts) {
    enum { MOST = 5 };
    int *load = calloc((size_t)c->experts, sizeof *load), at = 0;
    *parts = (struct parts){calloc((size_t)c->experts + 1, sizeof(int)),
                            calloc((size_t)(c->experts * MOST), sizeof(int)),
                            calloc((size_t)(c->experts * MOST), sizeof(int)), 0};
    assert_non_null(load);
    for (int i = 0; i < routes->count; i++)
        load[routes->choice[i]]++;
    for (int e = 0; e < c->experts; e++) {
        parts->begin[e] = at;
        for (int p = test_random_int(&random_state, 0, MOST); p > 0; p--, at++) {
            int most = load[e] > 0 && p == 1 ? 2 * load[e] : load[e];
            int count = test_random_int(&random_state, 0, 3) ? most / p : 0;
            parts->rows += test_random_int(&random_state, 0, 2);
            parts->count[at] = count;
            parts->row[at] = parts->rows;
            parts->rows += count;
        }
    }
    parts->begin[c->experts] = at;
    free(load);
}

static void naive_positions(const struct test_case *c, const struct routes *routes,
                            const int32_t *order, const struct parts *parts, int32_t *position,
                            int32_t *row_token) {
    int *taken = calloc((size_t)c->experts, sizeof *taken);
    assert_non_null(taken);
    memset(row_token, 0xff, 4 * (size_t)parts->rows);
    for (int i = 0; i < routes->count; i++) {
        int route = order ? order[i] : i, expert = routes->choice[route];
        int number = taken[expert]++, p = parts->begin[expert];
        while (p < parts->begin[expert + 1] && number >= parts->count[p])
            number -= parts->count[p++];
        position[route] = p < parts->begin[expert + 1] ? parts->row[p] + number : -1;
        if (position[route] >= 0)
            row_token[position[route]] = route / c->top_k;
    }
    free(taken);
}

/* In the order of `sort`; by token, without an order, for kind FORCED.  Several times, as the ring
 * of small arrays goes round. */
static void routes_get_rows(struct mp_device *device, const struct test_case *c) {
    struct routes routes;
    random_routes(device, c, &routes);
    int32_t *order = naive_order(c, &routes);
    struct placed order_at = send(device, order, 4 * (size_t)routes.count, 0);
    for (int round = 0; round < 3; round++) {
        struct parts parts;
        random_parts(c, &routes, &parts);
        bool ordered = c->kind != FORCED;
        size_t count = (size_t)routes.count, rows = (size_t)parts.rows;
        struct placed at = place(device, 4 * count, 0), token_at = place(device, 4 * rows, 0);
        int32_t *position = calloc(count + 1, 4), *row_token = calloc(rows + 1, 4);
        device->operations->route_positions(
            device, NULL, routes.count, c->top_k, c->experts, (int32_t *)routes.choice_at.at,
            ordered ? (int32_t *)order_at.at : NULL, parts.begin, parts.count, parts.row,
            parts.rows, (int32_t *)at.at, (int32_t *)token_at.at);
        naive_positions(c, &routes, ordered ? order : NULL, &parts, position, row_token);
        int32_t *got = take(device, &at), *got_token = take(device, &token_at);
        assert_memory_equal(got, position, 4 * count);
        assert_memory_equal(got_token, row_token, 4 * rows);
        FREE(parts.begin, parts.count, parts.row, position, row_token, got, got_token);
    }
    drop(device, &order_at);
    destroy_routes(device, &routes);
    free(order);
}

/* Of more experts, routes or parts (`width` of them) than there is room for: no route has a row. */
static void too_much_gets_no_rows(struct mp_device *device, const struct test_case *c) {
    enum { ROWS = 20 };
    struct routes routes;
    random_routes(device, c, &routes);
    size_t parts = (size_t)c->width;
    int *begin = calloc((size_t)c->experts + 1, sizeof *begin);
    int *count = calloc(parts + 1, sizeof *count), *row = calloc(parts + 1, sizeof *row);
    begin[c->experts] = c->width;
    count[parts - 1] = 1;
    struct placed at = place(device, 4 * (size_t)routes.count, 0);
    struct placed token_at = place(device, sizeof(int32_t) * ROWS, 0);
    device->operations->route_positions(device, NULL, routes.count, c->top_k, c->experts,
                                        (int32_t *)routes.choice_at.at, NULL, begin, count, row,
                                        ROWS, (int32_t *)at.at, (int32_t *)token_at.at);
    assert_failed(device, MP_ELIMIT);
    int32_t *position = take(device, &at), *row_token = take(device, &token_at);
    for (int i = 0; i < routes.count; i++)
        assert_int_equal(position[i], -1);
    for (int i = 0; i < ROWS; i++)
        assert_int_equal(row_token[i], -1);
    destroy_routes(device, &routes);
    FREE(begin, count, row, position, row_token);
}

/* More parts than a warp looks at at once; the last take more than an int counts. */
static void boundless_parts_take_all(struct mp_device *device, const struct test_case *c) {
    struct routes routes;
    random_routes(device, c, &routes);
    enum { PARTS = 70 };
    int begin[] = {0, PARTS}, count[PARTS], row[PARTS];
    for (int p = 0, next = 0; p < PARTS; p++) {
        count[p] = p < 10 ? 0 : p < 45 ? 3 : INT32_MAX;
        row[p] = next;
        next += p < 45 ? count[p] : 0;
    }
    struct placed at = place(device, 4 * (size_t)routes.count, 0);
    struct placed token_at = place(device, 4 * (size_t)routes.count, 0);
    device->operations->route_positions(device, NULL, routes.count, c->top_k, c->experts,
                                        (int32_t *)routes.choice_at.at, NULL, begin, count, row,
                                        routes.count, (int32_t *)at.at, (int32_t *)token_at.at);
    int32_t *position = take(device, &at), *row_token = take(device, &token_at);
    for (int i = 0; i < routes.count; i++) {
        assert_int_equal(position[i], i);
        assert_int_equal(row_token[i], i / c->top_k);
    }
    destroy_routes(device, &routes);
    FREE(position, row_token);
}

/* ---- Choices under a limit ---- */

/* Experts inside are those from `shift` on; at most `width` tokens may go outside. */
static bool is_inside(const struct test_case *c, int expert) {
    return expert >= c->shift;
}

/* The largest logit of the experts but `other`; the lowest id of equal ones. */
static int largest(const struct test_case *c, const float *row, bool inside_only, int other) {
    int best = -1;
    for (int e = 0; e < c->experts; e++)
        if (e != other && (!inside_only || is_inside(c, e)) && (best < 0 || row[e] > row[best]))
            best = e;
    return best;
}

static void naive_limit(const struct test_case *c, const float *logits, int32_t *choice) {
    struct keyed *leaving = malloc(((size_t)c->tokens + 1) * sizeof *leaving);
    int count = 0;
    assert_non_null(leaving);
    for (int t = 0; t < c->tokens; t++) {
        const float *row = logits + (size_t)t * (size_t)c->experts;
        choice[2 * t] = largest(c, row, false, -1);
        choice[2 * t + 1] = largest(c, row, false, choice[2 * t]);
        if (!is_inside(c, choice[2 * t]))
            leaving[count++] = (struct keyed){-(double)row[choice[2 * t]], t};
    }
    qsort(leaving, (size_t)count, sizeof *leaving, by_key);
    for (int t = 0; count > c->width && t < c->tokens; t++) {
        const float *row = logits + (size_t)t * (size_t)c->experts;
        choice[2 * t] = largest(c, row, true, -1);
        choice[2 * t + 1] = largest(c, row, true, choice[2 * t]);
    }
    for (int i = 0; count > c->width && i < c->width; i++) {
        int t = leaving[i].item;
        choice[2 * t + 1] = largest(c, logits + (size_t)t * (size_t)c->experts, false, -1);
    }
    free(leaving);
}

static int32_t *limit_on_device(struct mp_device *device, const struct test_case *c,
                                const float *logits) {
    size_t count = (size_t)c->tokens * (size_t)c->experts;
    bool inside[2048] = {false};
    for (int e = 0; e < c->experts; e++)
        inside[e] = is_inside(c, e);
    struct placed in = send(device, logits, 4 * count, 0);
    struct placed out = place(device, 8 * (size_t)c->tokens, 0);
    device->operations->limit_choices(device, NULL, c->tokens, c->experts, (float *)in.at, inside,
                                      c->width, (int32_t *)out.at);
    int32_t *choice = take(device, &out);
    drop(device, &in);
    return choice;
}

static float *limit_logits(const struct test_case *c) {
    size_t count = (size_t)c->tokens * (size_t)c->experts;
    float *logits = random_values(count, 4);
    for (size_t i = 0; c->kind == TIES && i < count; i++)
        logits[i] = rintf(logits[i] / 2); /* -0, too */
    for (size_t i = 0; c->kind == TIES && i < count; i += 3)
        logits[i] = -INFINITY;
    return logits;
}

/* kind EXACT: the limit is as many as there are. */
static void outgoing_tokens_are_limited(struct mp_device *device, const struct test_case *c) {
    struct test_case limited = *c;
    float *logits = limit_logits(c);
    int32_t *expected = malloc(8 * (size_t)c->tokens + 8);
    assert_non_null(expected);
    if (c->kind == EXACT)
        limited.width = 0;
    for (int t = 0; c->kind == EXACT && t < c->tokens; t++)
        limited.width +=
            !is_inside(c, largest(c, logits + (size_t)t * (size_t)c->experts, false, -1));
    naive_limit(&limited, logits, expected);
    int32_t *choice = limit_on_device(device, &limited, logits);
    assert_memory_equal(choice, expected, 8 * (size_t)c->tokens);
    FREE(logits, expected, choice);
}

/* Choices are the plain ones; of too many experts they are only indices. */
static void impossible_limits_are_refused(struct mp_device *device, const struct test_case *c) {
    float *logits = limit_logits(c);
    int32_t *choice = limit_on_device(device, c, logits);
    bool too_many = c->experts > 1024 || c->tokens > route_limits.tokens;
    assert_failed(device, too_many ? MP_ELIMIT : MP_EINVAL);
    for (int t = 0; t < c->tokens; t++) {
        const float *row = logits + (size_t)t * (size_t)c->experts;
        int best = largest(c, row, false, -1), second = largest(c, row, false, best);
        assert_int_equal(choice[2 * t], c->experts > 1024 ? 0 : best);
        assert_int_equal(choice[2 * t + 1], c->experts > 1024 || second < 0 ? 0 : second);
    }
    FREE(logits, choice);
}

#define SORT(name, run, tokens, experts, top_k, kind, sort)                                        \
    { name, run, tokens, experts, top_k, kind, 0, 0, sort }
#define LIMIT(name, run, tokens, experts, kind, first, limit)                                      \
    { name, run, tokens, experts, 2, kind, first, limit, 0 }

static const struct test_case cases[] = {
    SORT("sorted by choice", routes_are_sorted, 700, 8, 3, PLAIN, MP_SORT_BY_CHOICE),
    SORT("sorted by probability", routes_are_sorted, 2000, 8, 2, PLAIN, MP_SORT_BY_PROBABILITY),
    SORT("sorted with ties", routes_are_sorted, 1500, 16, 2, TIES, MP_SORT_BY_PROBABILITY),
    SORT("sorted at random", routes_are_sorted, 1111, 5, 3, PLAIN, MP_SORT_AT_RANDOM),
    SORT("sorted, as many as may be", routes_are_sorted, 3000, 4, 4, PLAIN, MP_SORT_AT_RANDOM),
    SORT("sorted, one route", routes_are_sorted, 1, 1, 1, PLAIN, MP_SORT_BY_PROBABILITY),
    SORT("sorted, no routes", routes_are_sorted, 0, 4, 2, PLAIN, MP_SORT_AT_RANDOM),
    SORT("sorted, no routes by choice", routes_are_sorted, 0, 4, 2, PLAIN, MP_SORT_BY_CHOICE),
    SORT("not sorted, too many", too_many_routes_are_not_sorted, 12001, 2, 1, PLAIN,
         MP_SORT_BY_PROBABILITY),
    SORT("rows by token", routes_get_rows, 1500, 12, 2, FORCED, MP_SORT_BY_CHOICE),
    SORT("rows by choice", routes_get_rows, 1000, 64, 3, PLAIN, MP_SORT_BY_CHOICE),
    SORT("rows by probability", routes_get_rows, 1024, 33, 2, TIES, MP_SORT_BY_PROBABILITY),
    SORT("rows at random", routes_get_rows, 513, 7, 4, PLAIN, MP_SORT_AT_RANDOM),
    SORT("rows, one expert has all", routes_get_rows, 2100, 9, 2, ONE_EXPERT, MP_SORT_AT_RANDOM),
    SORT("rows, one expert", routes_get_rows, 1300, 1, 1, FORCED, MP_SORT_BY_CHOICE),
    SORT("rows, more experts than tokens", routes_get_rows, 40, 1024, 8, FORCED, MP_SORT_BY_CHOICE),
    SORT("rows, 1000 experts", routes_get_rows, 2500, 1000, 4, PLAIN, MP_SORT_AT_RANDOM),
    SORT("rows, as many routes as may be", routes_get_rows, 12000, 24, 1, FORCED,
         MP_SORT_BY_CHOICE),
    SORT("rows, one token", routes_get_rows, 1, 4, 2, FORCED, MP_SORT_BY_CHOICE),
    SORT("rows, no tokens", routes_get_rows, 0, 4, 2, FORCED, MP_SORT_BY_CHOICE),
    {"no rows, too many experts", too_much_gets_no_rows, 5, 1025, 2, PLAIN, 0, 1025, 0},
    {"no rows, too many routes", too_much_gets_no_rows, 6001, 3, 2, PLAIN, 0, 3, 0},
    {"no rows, too many parts", too_much_gets_no_rows, 50, 4, 2, PLAIN, 0, 1 << 19, 0},
    {"rows of boundless parts", boundless_parts_take_all, 500, 1, 1, PLAIN, 0, 0, 0},
    LIMIT("limit, 3 of 16 tokens", outgoing_tokens_are_limited, 16, 8, PLAIN, 4, 3),
    LIMIT("limit, ties", outgoing_tokens_are_limited, 700, 6, TIES, 2, 90),
    LIMIT("limit, nobody may leave", outgoing_tokens_are_limited, 300, 12, PLAIN, 8, 0),
    LIMIT("limit, everybody may leave", outgoing_tokens_are_limited, 300, 12, PLAIN, 9, 300),
    LIMIT("limit, just enough", outgoing_tokens_are_limited, 300, 12, EXACT, 5, 0),
    LIMIT("limit, all inside", outgoing_tokens_are_limited, 300, 10, PLAIN, 0, 0),
    LIMIT("limit, 64 experts", outgoing_tokens_are_limited, 1000, 64, PLAIN, 50, 333),
    LIMIT("limit, 77 experts", outgoing_tokens_are_limited, 200, 77, TIES, 33, 50),
    LIMIT("limit, 300 experts", outgoing_tokens_are_limited, 90, 300, PLAIN, 200, 20),
    LIMIT("limit, 1024 experts", outgoing_tokens_are_limited, 40, 1024, PLAIN, 1022, 10),
    LIMIT("limit, one token", outgoing_tokens_are_limited, 1, 3, PLAIN, 1, 0),
    LIMIT("limit, no tokens", outgoing_tokens_are_limited, 0, 4, PLAIN, 2, 1),
    LIMIT("no limit, one expert inside", impossible_limits_are_refused, 60, 5, TIES, 4, 1),
    LIMIT("no limit, one expert", impossible_limits_are_refused, 60, 1, PLAIN, 0, 1),
    LIMIT("no limit, less than nobody", impossible_limits_are_refused, 60, 5, PLAIN, 1, -1),
    LIMIT("no limit, too many tokens", impossible_limits_are_refused, 12001, 4, PLAIN, 2, 1),
    LIMIT("no limit, too many experts", impossible_limits_are_refused, 6, 1025, PLAIN, 2, 1),
};

int main(void) {
    return run_cases("routes on cuda", cases, sizeof cases / sizeof *cases);
}
