/* Experts of tokens: counts and transitions against a count by hand, and the rule for layers that
 * are taken for independent. */
#include "reference/plan/routes.h"

#include "tests/reference/plan/plan_support.h"

enum { RANKS = 3, EXPERTS = 7, TOKENS = 40, MOST = 4 };

/* A load of random tokens, some of whose choices are not taken. */
static void draw(uint64_t *random, const int32_t tokens[], int top_k, struct mp_load *load) {
    assert_works(mp_load_create(RANKS, EXPERTS, load, &error));
    assert_works(mp_load_give_routes(load, top_k, tokens, &error));
    for (int r = 0; r < RANKS; r++)
        for (int32_t t = load->routes->begin[r]; t < load->routes->begin[r + 1]; t++) {
            int first = test_random_int(random, 0, EXPERTS - 1);
            int stride = test_random_int(random, 1, EXPERTS - 1); /* EXPERTS is a prime */
            for (int j = 0; j < top_k; j++) {
                int expert = (first + j * stride) % EXPERTS;
                bool taken = test_random_int(random, 0, 4) > 0;
                load->routes->expert[t * top_k + j] = taken ? expert : -1 - expert;
                load->count[r * EXPERTS + expert] += taken;
            }
        }
}

/* Of every rank and expert, counted again and again; and forgotten with the routes. */
static void check_first(struct mp_load *load) {
    for (int round = 0; round < 2; round++) {
        assert_works(mp_load_count_first(load, &error));
        for (int i = 0; i < RANKS * EXPERTS; i++) {
            uint32_t first = 0;
            for (int32_t t = load->routes->begin[i / EXPERTS];
                 t < load->routes->begin[i / EXPERTS + 1]; t++)
                first += load->routes->expert[t * load->routes->top_k] == i % EXPERTS;
            assert_int_equal(load->first[i], first);
        }
    }
    struct mp_routes *routes = load->routes;
    load->routes = NULL;
    assert_works(mp_load_count_first(load, &error));
    assert_null(load->first);
    load->routes = routes;
}

TEST_RANDOM(counts_and_transitions_are_those_of_tokens) {
    for (int run = 0; run < 200; run++) {
        const int top_k = test_random_int(random, 1, MOST);
        int32_t tokens[RANKS];
        struct mp_load layer[2];
        uint32_t count[EXPERTS] = {0}, wanted[EXPERTS][EXPERTS] = {{0}}, next[EXPERTS][EXPERTS];
        int64_t total[2 * EXPERTS];
        for (int r = 0; r < RANKS; r++)
            tokens[r] = test_random_int(random, 0, TOKENS);
        for (int l = 0; l < 2; l++) {
            draw(random, tokens, top_k, &layer[l]);
            assert_works(mp_load_check_routes(&layer[l], &error));
        }
        mp_routes_count(layer[0].routes, 1, count);
        assert_memory_equal(count, layer[0].count + EXPERTS, sizeof count);
        check_first(&layer[0]);
        int all = layer[0].routes->begin[RANKS];
        for (int t = 0; t < all; t++)
            for (int i = 0; i < top_k; i++)
                for (int j = 0; j < top_k; j++) {
                    int32_t from = layer[0].routes->expert[t * top_k + i];
                    int32_t to = layer[1].routes->expert[t * top_k + j];
                    if (from >= 0 && to >= 0)
                        wanted[from][to]++;
                }
        memset(next, 0, sizeof next);
        assert_true(mp_load_transitions(&layer[0], &layer[1], all, total, *next));
        assert_memory_equal(next, wanted, sizeof next);
        for (int l = 0; l < 2; l++)
            mp_load_destroy(&layer[l]);
    }
}

TEST(layers_without_tokens_are_independent) {
    struct mp_load layer[2];
    uint32_t next[4] = {1, 0, 0, 0}; /* it is added to */
    int64_t total[4];
    for (int l = 0; l < 2; l++)
        assert_works(mp_load_create(2, 2, &layer[l], &error));
    memcpy(layer[0].count, (uint32_t[]){3, 2, 4, 1}, 4 * sizeof(uint32_t)); /* 7 and 3 of 10 */
    memcpy(layer[1].count, (uint32_t[]){5, 0, 1, 4}, 4 * sizeof(uint32_t)); /* 6 and 4 */
    assert_false(mp_load_transitions(&layer[0], &layer[1], 10, total, next));
    assert_int_equal(next[0], 1 + 4); /* 4.2 */
    assert_int_equal(next[1], 3);     /* 2.8 */
    assert_int_equal(next[2], 2);     /* 1.8 */
    assert_int_equal(next[3], 1);     /* 1.2 */
    /* Tokens that are not the same ones are none. */
    assert_works(mp_load_give_routes(&layer[0], 1, (int32_t[]){5, 5}, &error));
    assert_works(mp_load_give_routes(&layer[1], 1, (int32_t[]){4, 6}, &error));
    memset(next, 0, sizeof next);
    assert_false(mp_load_transitions(&layer[0], &layer[1], 10, total, next));
    assert_int_equal(next[0], 4);
    for (int l = 0; l < 2; l++)
        mp_load_destroy(&layer[l]);
}

TEST(what_tokens_cannot_have_is_said) {
    AUTO(load) struct mp_load load, copy;
    assert_works(mp_load_create(1, 3, &load, &error));
    assert_works(mp_load_create(1, 3, &copy, &error));
    assert_fails(mp_load_give_routes(&load, 4, (int32_t[]){2}, &error), MP_EINVAL, "");
    assert_fails(mp_load_give_routes(&load, 2, (int32_t[]){INT32_MAX}, &error), MP_EINVAL, "");
    assert_null(load.routes);
    assert_works(mp_load_give_routes(&load, 2, (int32_t[]){2}, &error));
    memcpy(load.routes->expert, (int32_t[]){0, 1, 2, -2}, 4 * sizeof(int32_t));
    memcpy(load.count, (uint32_t[]){1, 1, 1}, 3 * sizeof(uint32_t));
    assert_works(mp_load_check_routes(&load, &error));
    assert_works(mp_load_copy_routes(&copy, &load, &error));
    assert_memory_equal(copy.routes->expert, load.routes->expert, 4 * sizeof(int32_t));
    load.count[1] = 2;
    assert_fails(mp_load_check_routes(&load, &error), MP_EFORMAT,
                 "rank 0 has 2 routes to expert 1, but its tokens' experts "
                 "make 1");
    load.routes->expert[1] = 0;
    assert_fails(mp_load_check_routes(&load, &error), MP_EFORMAT,
                 "token 0 of rank 0 has an expert twice");
    load.routes->expert[1] = 3;
    assert_fails(mp_load_check_routes(&load, &error), MP_EFORMAT, "an expert that there is not");
    load.routes->expert[1] = -4;
    assert_fails(mp_load_check_routes(&load, &error), MP_EFORMAT, "");
}
