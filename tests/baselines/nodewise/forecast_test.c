/* What nodewise expects of a layer: worked out by hand, and what must hold of any past. */
#include "baselines/nodewise/nodewise.h"
#include "tests/reference/base/memory.h"
#include "tests/reference/plan/plan_support.h"

enum { LAYERS = 2, MOST_EXPERTS = 12 };

/* Both layers of an iteration: the second has the routes, the first has others. */
static void push(struct mp_recent *recent, int experts, const uint32_t routes[]) {
    uint32_t other[MOST_EXPERTS];
    for (int expert = 0; expert < experts; expert++)
        other[expert] = 7 * routes[expert] + 3;
    const struct mp_load load[LAYERS] = {
        {.ranks = 1, .experts = experts, .count = other},
        {.ranks = 1, .experts = experts, .count = (uint32_t *)routes}};
    mp_recent_push_totals(recent, load, LAYERS);
}

static void create(int experts, int window, struct mp_recent *recent) {
    mp_recent_create(&memory, (size_t)LAYERS * (size_t)experts, mp_nodewise_forecast_rows(window),
                     recent);
}

static void forecast(const struct mp_recent *recent, int experts, int window, int without,
                     int64_t expected[]) {
    mp_nodewise_forecast(recent, (size_t)experts, experts, window, without, expected);
}

/* The mean of the last two, and how far from it to that of three. */
static const struct {
    const char *name;
    uint32_t routes[5][2];
    int64_t expected[2];
} hand[] = {
    {"one iteration", {{600, 400}}, {600, 400}},
    {"two iterations", {{600, 400}, {800, 200}}, {700, 300}},
    /* 10,000 and 20,000 of 2 * 100,000 were elsewhere: 5 * 0.15^2 = 0.1125 of the way from 70,000
     * to 66,667. */
    {"moved a little", {{60000, 40000}, {80000, 20000}, {60000, 40000}}, {69625, 30375}},
    /* 30,000, 10,000 and 25,000 of 3 * 100,000: 5 * 0.2167^2 = 0.2347 of the way from 50,000 to
     * 60,000. */
    {"the last three of five",
     {{50000, 50000}, {60000, 40000}, {80000, 20000}, {60000, 40000}, {40000, 60000}},
     {52347, 47653}},
    /* Two thirds were elsewhere: the mean of three is all that counts. */
    {"jumps", {{0, 900}, {900, 0}, {0, 900}, {900, 0}}, {600, 300}},
};

TEST_ROWS(forecasts_by_hand, hand, c) {
    struct mp_recent recent;
    int64_t expected[2];
    create(2, 3, &recent);
    for (int iteration = 0; iteration < 5; iteration++)
        if (c->routes[iteration][0] + c->routes[iteration][1] > 0)
            push(&recent, 2, c->routes[iteration]);
    forecast(&recent, 2, 3, 0, expected);
    assert_int_equal(expected[0], c->expected[0]);
    assert_int_equal(expected[1], c->expected[1]);
}

/* The mean of the last two, 700 and 300, moves towards what the window has, here the last one. */
TEST(two_count_in_any_window) {
    struct mp_recent recent;
    int64_t expected[2];
    create(2, 1, &recent);
    push(&recent, 2, (const uint32_t[]){600, 400});
    push(&recent, 2, (const uint32_t[]){800, 200});
    forecast(&recent, 2, 1, 0, expected);
    /* A fifth was elsewhere: 5 * 0.2^2 of the way to the last one. */
    assert_int_equal(expected[0], 720);
    assert_int_equal(expected[1], 280);
}

/* Loads that stay are expected; nothing is lost but by rounding; what lies further back than the
 * window and two more does not matter; and what would have been expected before the last iteration
 * is what was. */
TEST_RANDOM(forecasts_of_any_past) {
    for (int round = 0; round < 200; round++) {
        int window = test_random_int(random, 1, 9),
            experts = test_random_int(random, 1, MOST_EXPERTS);
        int iterations = test_random_int(random, 1, 40), most = test_random_int(random, 1, 1000000);
        bool stays = test_random_int(random, 0, 3) == 0;
        uint32_t routes[MOST_EXPERTS];
        struct mp_recent all, last;
        int64_t before[MOST_EXPERTS], expected[MOST_EXPERTS], again[MOST_EXPERTS];
        create(experts, window, &all);
        create(experts, window, &last);
        for (int iteration = 0; iteration < iterations; iteration++) {
            for (int expert = 0; expert < experts && (iteration == 0 || !stays); expert++)
                routes[expert] = (uint32_t)test_random_int(random, 0, most);
            if (iteration > 0)
                forecast(&all, experts, window, 0, before);
            push(&all, experts, routes);
            if (iteration >= iterations - window - 2)
                push(&last, experts, routes);
        }
        forecast(&all, experts, window, 0, expected);
        forecast(&last, experts, window, 0, again);
        assert_memory_equal(expected, again, (size_t)experts * sizeof *expected);
        for (int expert = 0; stays && expert < experts; expert++)
            assert_int_equal(expected[expert], routes[expert]);
        if (iterations > 1) {
            forecast(&all, experts, window, 1, again);
            assert_memory_equal(before, again, (size_t)experts * sizeof *before);
        }
    }
}
