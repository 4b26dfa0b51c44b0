/* Dropped routes in the database against an independent recount: from the routes that every rank
 * recorded for every expert, with the rule as published.  Nothing of the
 * systems' own code is used. */
#include "tests/harness/cli/shell.h"

enum { RANKS = 2, LAYERS = 2, EXPERTS = 8, ITERATIONS = 12, TOKENS = 64 /* of a rank */ };

#define COMMON                                                                                     \
    "suite: drops\n"                                                                               \
    "common: {ranks: 2, layers: 2, width: 32, heads: 2, experts: 8, expert-width: 64,\n"           \
    "  sequence: 32, batch: 4, iterations: 12, check-plans: yes, text: default, learning-rate: "   \
    "5e-3}\n"                                                                                      \
    "jobs:\n"

struct routes {
    int64_t routes[ITERATIONS][LAYERS][RANKS][EXPERTS], dropped[ITERATIONS][LAYERS][RANKS][EXPERTS];
};

struct drops_case {
    const char *name; /* a line of the suite */
    int top_k;
    double factor;
    int slots; /* of a rank; 0: deepspeed */
    int minimum;
};

static const struct drops_case cases[] = {
    {"{name: a, system: deepspeed}", 2, 1.0, 0, 4},
    {"{name: b, system: deepspeed, gate: switch}", 1, 1.0, 0, 4},
    {"{name: c, system: deepspeed, routing: skewed, skew-experts: 2, "
     "options: {capacity-factor: 1.3, padded: no}}",
     2, 1.3, 0, 4},
    {"{name: d, system: deepspeed, options: {capacity-factor: 0.2, min-capacity: 6}}", 2, 0.2, 0,
     6},
    {"{name: e, system: swiftmoe}", 2, 1.0, 8, 0},
    {"{name: f, system: swiftmoe, gate: switch, options: {slots: 5}}", 1, 1.0, 5, 0},
    {"{name: g, system: swiftmoe, routing: skewed, skew-share: 0.9, skew-experts: 2, "
     "options: {capacity-factor: 0.7}}",
     2, 0.7, 8, 0},
    {"{name: h, system: deepspeed, gate: softmax, top-k: 4}", 4, 1.0, 0, 4},
    {"{name: i, system: swiftmoe, gate: softmax, top-k: 6, routing: skewed, skew-share: 0.3, "
     "skew-experts: 2}",
     6, 1.0, 8, 0},
};
enum { CASES = sizeof cases / sizeof *cases };

static void read_routes(int run_id, struct routes *all) {
    char sql[160];
    snprintf(sql, sizeof sql,
             "SELECT json_group_array(json_array(iteration, layer, rank, expert, routes, dropped)) "
             "FROM v_load WHERE run_id = %d",
             run_id);
    AUTO(text) char *answer = query("drops.db", sql);
    json_t *rows = json_loads(answer, 0, NULL), *row;
    size_t n;
    memset(all, 0, sizeof *all);
    assert_int_equal(json_array_size(rows), ITERATIONS * LAYERS * RANKS * EXPERTS);
    json_array_foreach(rows, n, row) {
        int at[4];
        for (size_t i = 0; i < 4; i++)
            at[i] = (int)json_integer_value(json_array_get(row, i));
        all->routes[at[0]][at[1]][at[2]][at[3]] = json_integer_value(json_array_get(row, 4));
        all->dropped[at[0]][at[1]][at[2]][at[3]] = json_integer_value(json_array_get(row, 5));
    }
    json_decref(rows);
}

static double number_of(const char *column, int run_id, int iteration, int layer) {
    return query_number(
        "drops.db",
        formatted("SELECT %s FROM v_imbalance WHERE run_id = %d AND iteration = %d AND layer = %d",
                  column, run_id, iteration, layer));
}

/* DeepSpeed: each source has a capacity of its own for each expert. */
static void recount_by_source(const struct drops_case *c, int64_t routes[RANKS][EXPERTS],
                              int64_t dropped[RANKS][EXPERTS]) {
    int capacity = (int)ceil((double)TOKENS / EXPERTS * c->factor * c->top_k);
    if (capacity < c->minimum)
        capacity = c->minimum;
    for (int rank = 0; rank < RANKS; rank++)
        for (int expert = 0; expert < EXPERTS; expert++) {
            const int64_t over = routes[rank][expert] - capacity;
            dropped[rank][expert] = over > 0 ? over : 0;
        }
}

/* SYMI, section 3.4: slots in proportion to popularity, as the paper's loops do it.  Differences
 * are kept times the sum of all routes, so that they are exact. */
static void share_slots(const int64_t popularity[EXPERTS], int64_t slots, int64_t count[EXPERTS]) {
    int64_t sum = 0, total = 0, difference[EXPERTS];
    for (int e = 0; e < EXPERTS; e++)
        sum += popularity[e];
    for (int e = 0; e < EXPERTS; e++) {
        int64_t goal = sum ? popularity[e] * slots : slots, whole = sum ? sum : EXPERTS;
        count[e] = goal / whole > 1 ? goal / whole : 1;
        difference[e] = count[e] * whole - goal;
        total += count[e];
    }
    int64_t whole = sum ? sum : EXPERTS;
    while (total > slots) {
        int most = 0;
        for (int e = 1; e < EXPERTS; e++)
            most = difference[e] > difference[most] ? e : most;
        difference[most] -= whole;
        total -= count[most] > 1;
        count[most] -= count[most] > 1;
    }
    for (; total < slots; total++) {
        int least = 0;
        for (int e = 1; e < EXPERTS; e++)
            least = difference[e] < difference[least] ? e : least;
        difference[least] += whole;
        count[least]++;
    }
}

/* SYMI: an expert takes what its slots take, from all sources in their order; slots follow the
 * iteration before. */
static void recount_by_slots(const struct drops_case *c, const int64_t popularity[EXPERTS],
                             int64_t routes[RANKS][EXPERTS], int64_t dropped[RANKS][EXPERTS]) {
    int64_t count[EXPERTS], slots = (int64_t)RANKS * c->slots;
    int64_t capacity = (int64_t)floor(c->factor * RANKS * TOKENS * c->top_k / (double)slots);
    share_slots(popularity, slots, count);
    for (int expert = 0; expert < EXPERTS; expert++) {
        int64_t left = capacity * count[expert];
        for (int rank = 0; rank < RANKS; rank++) {
            const int64_t wanted = routes[rank][expert], taken = wanted < left ? wanted : left;
            dropped[rank][expert] = wanted - taken;
            left -= taken;
        }
    }
}

static int64_t sum_of(int64_t of[RANKS][EXPERTS]) {
    int64_t sum = 0;
    for (int i = 0; i < RANKS * EXPERTS; i++)
        sum += of[i / EXPERTS][i % EXPERTS];
    return sum;
}

TEST_EACH(dropped_share_equals_the_recount, cases, c) {
    static struct routes all;
    int run_id = (int)(c - cases) + 1;
    int64_t total = 0, total_dropped = 0;
    read_routes(run_id, &all);
    for (int layer = 0; layer < LAYERS; layer++) {
        int64_t popularity[EXPERTS] = {0};
        for (int i = 0; i < ITERATIONS; i++) {
            int64_t(*routes)[EXPERTS] = all.routes[i][layer], expected[RANKS][EXPERTS];
            if (c->slots)
                recount_by_slots(c, popularity, routes, expected);
            else
                recount_by_source(c, routes, expected);
            assert_int_equal(sum_of(routes), RANKS * TOKENS * c->top_k);
            assert_memory_equal(all.dropped[i][layer], expected, sizeof expected);
            int64_t dropped = sum_of(expected);
            assert_close(number_of("dropped", run_id, i, layer), (double)dropped, 0);
            assert_close(number_of("dropped_fraction", run_id, i, layer),
                         (double)dropped / (double)sum_of(routes), 1e-12);
            for (int e = 0; e < EXPERTS; e++) {
                popularity[e] = 0;
                for (int rank = 0; rank < RANKS; rank++)
                    popularity[e] += routes[rank][e];
            }
            total += sum_of(routes);
            total_dropped += dropped;
        }
    }
    print_message("  %s: %.2f %% dropped\n", c->name,
                  100.0 * (double)total_dropped / (double)total);
    assert_true(total_dropped > 0);
    char sql[80];
    snprintf(sql, sizeof sql, "SELECT dropped_fraction FROM v_speedup WHERE run_id = %d", run_id);
    assert_close(query_number("drops.db", sql), (double)total_dropped / (double)total, 1e-12);
}

/* All cases in one suite, whose runs are numbered as they are. */
static int run_cases(void **state) {
    char suite[4096] = COMMON;
    int failed = enter_shell(state);
    for (int i = 0; i < CASES; i++)
        snprintf(suite + strlen(suite), sizeof suite - strlen(suite), "  - %s\n", cases[i].name);
    write_file("drops.yaml", suite);
    assert_runs("moeperf run drops.yaml --quiet --db drops.db");
    return failed;
}

TEST_GROUP(run_cases, leave_folder);
