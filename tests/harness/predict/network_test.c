/* Network: exchanges worked out by hand, and properties of random ones. */
#include "harness/predict/network.h"

#include <malloc.h>

#include "tests/harness/predict/exchange.h"

struct bench {
    struct mp_cluster *cluster;
    struct mp_network *network;
    struct mp_traffic *traffic;
    int ranks;
};

/* A network in which every message between nodes, or inside the only one, costs so many seconds. */
static struct bench make_priced(const struct shape *shape, double cost) {
    struct bench bench = {.cluster = shape_cluster(shape)};
    const char *text =
        formatted("levels.%s.message-cost=%.17g", shape->nodes > 1 ? "cluster" : "node", cost);
    if (cost > 0)
        assert_works(mp_cluster_set(bench.cluster, text, &error));
    assert_works(mp_network_create(bench.cluster, &bench.network, &error));
    assert_works(mp_traffic_create(bench.network, &bench.traffic, &error));
    bench.ranks = mp_cluster_ranks(bench.cluster);
    return bench;
}

static struct bench make_bench(const struct shape *shape) {
    return make_priced(shape, 0);
}

static void free_bench(struct bench *bench) {
    mp_traffic_destroy(bench->traffic);
    mp_network_destroy(bench->network);
    mp_cluster_destroy(bench->cluster);
}

TEST_END(bench, struct bench, free_bench(it))

/* ---- by hand ---- */

struct message {
    int from, to;
    double bytes;
};

/* Bandwidths of 100 MB/s inside a node and 10 MB/s between, bytes in ten millions, latencies 0.5 s
 * and 2 s, so that times can be worked out in the head.  The copy's bandwidth is 500e9 B/s and of
 * no account. */
static const struct {
    const char *name;
    int nodes, ranks, ports;
    double limit; /* of a rank between nodes, in 10 MB/s */
    struct message messages[8];
    double ready[4], done[4];
} cases[] = {
    {"one message inside", 2, 2, 2, 0, {{0, 1, 20}}, {0}, {2.25, 2.25, 0, 0}},
    {"one message between", 2, 2, 2, 0, {{1, 2, 5}}, {0}, {0, 6, 6, 0}},
    {"nothing", 2, 2, 2, 0, {{0, 0, 0}}, {1, 2, 3, 4}, {1, 2, 3, 4}},
    {"both directions at once", 2, 2, 2, 0, {{0, 2, 4}, {2, 0, 6}}, {0}, {7, 0, 7, 0}},
    {"the later end decides", 2, 2, 2, 0, {{0, 2, 4}}, {3, 0, 10, 0}, {15, 0, 15, 0}},
    {"own cards, own receivers", 2, 2, 2, 0, {{0, 2, 4}, {1, 3, 6}}, {0}, {5, 7, 5, 7}},
    /* At 1/2 B/s each 4 bytes pass until 8, then 2 alone until 10. */
    {"two senders share a card", 2, 2, 1, 0, {{0, 2, 4}, {1, 3, 6}}, {0}, {9, 11, 9, 11}},
    {"pooled would be the same", 2, 2, 1, 0, {{0, 3, 5}, {1, 2, 5}}, {0}, {11, 11, 11, 11}},
    {"hot receiver", 2, 2, 2, 0, {{0, 2, 6}, {1, 2, 6}}, {0}, {13, 13, 13, 0}},
    {"levels do not meet", 2, 2, 2, 0, {{0, 1, 100}, {0, 2, 3}}, {0}, {10.25, 10.25, 4, 0}},
    /* Shared fairly 6, 8 and 9 have passed; two lines in place of that curve have 7.8 at 3. */
    {"three of unequal size", 4, 1, 1, 0, {{0, 1, 2}, {0, 2, 3}, {0, 3, 4}}, {0}, {10, 7, 8.8, 10}},
    /* Rank 3 still computes until 20; the others do not wait for it. */
    {"staggered hot sender", 2, 2, 2, 0, {{2, 0, 6}, {3, 1, 6}}, {0, 0, 0, 20}, {7, 27, 7, 27}},
    /* The card carries 2's 6 bytes until 6, 3's from 4 on: 6 + 4 = 10. */
    {"a card never idle", 2, 2, 1, 0, {{2, 0, 6}, {3, 1, 4}}, {0, 0, 0, 4}, {11, 11, 11, 11}},
    {"a rank's limit", 2, 2, 1, 0.5, {{0, 2, 4}}, {0}, {9, 0, 9, 0}},
    {"a limit on a card of its own", 2, 2, 2, 0.5, {{0, 2, 4}, {1, 3, 3}}, {0}, {9, 7, 9, 7}},
    {"no limit inside a node", 2, 2, 1, 0.5, {{0, 1, 20}}, {0}, {2.25, 2.25, 0, 0}},
    /* 8 through a card of 1 take longer than 4 at 0.8. */
    {"a card fills first", 2, 2, 1, 0.8, {{0, 2, 4}, {1, 3, 4}}, {0}, {9, 9, 9, 9}},
    /* 6 for one rank at 0.5 take longer than 6 through a card of 1. */
    {"a hot receiver's limit", 2, 2, 1, 0.5, {{0, 2, 3}, {1, 2, 3}}, {0}, {13, 13, 13, 0}},
    {"a limit and a late rank", 2, 2, 1, 0.5, {{0, 2, 4}, {1, 3, 3}}, {0, 10}, {9, 17, 9, 17}},
    {"as wide as the card", 2, 2, 1, 1, {{0, 2, 4}, {1, 3, 6}}, {0}, {9, 11, 9, 11}},
};

TEST_EACH(exchanges_by_hand, cases, row) {
    const struct shape shape = {row->nodes, row->ranks, row->ports, false,           100e6,
                                10e6,       0.25,       1,          1e7 * row->limit};
    AUTO(bench) struct bench bench = make_bench(&shape);
    double done[4];
    for (int m = 0; m < 8; m++)
        mp_traffic_add(bench.traffic, row->messages[m].from, row->messages[m].to,
                       1e7 * row->messages[m].bytes);
    mp_network_exchange(bench.network, bench.traffic, false, row->ready, done);
    for (int r = 0; r < 4; r++)
        assert_close(done[r], row->done[r], 1e-5);
}

/* 1e9 bytes inside the node at 100 MB/s and 0.25 s, 3e7 to the other one at 10 MB/s and 1 s. */
TEST(gates_belong_to_levels) {
    const struct shape shape = {2, 2, 2, false, 100e6, 10e6, 0.25, 1, 0};
    AUTO(bench) struct bench bench = make_bench(&shape);
    static const double expected[4][2] = {{10.25, 4}, {10.25, 0}, {4, 0}, {2, 0}};
    static const unsigned levels[] = {6, 2, 4, 1}, longest[] = {1, 1, 2, 0};
    double seconds[4], others[4];
    uint8_t level[4];
    mp_traffic_add(bench.traffic, 0, 1, 1e9);
    mp_traffic_add(bench.traffic, 0, 2, 3e7);
    mp_traffic_add(bench.traffic, 3, 3, 1e12);
    mp_network_alone(bench.network, bench.traffic, seconds, others, level);
    for (int r = 0; r < 4; r++) {
        assert_close(seconds[r], expected[r][0], 1e-6);
        assert_close(others[r], expected[r][1], 1e-6);
        assert_int_equal(level[r], longest[r]);
        assert_int_equal(mp_traffic_levels(bench.traffic, r), levels[r]);
    }
}

TEST(copies_stay_at_home) {
    struct shape shape = {1, 1, 1, false, 10e6, 1e6, 0.25, 1, 0};
    AUTO(bench) struct bench bench = make_bench(&shape);
    double done, seconds, sent, received, ready = 3;
    mp_traffic_add(bench.traffic, 0, 0, 1e12);
    mp_network_exchange(bench.network, bench.traffic, true, &ready, &done);
    mp_network_alone(bench.network, bench.traffic, &seconds, NULL, NULL);
    mp_traffic_totals(bench.traffic, &sent, &received);
    assert_close(done, 5, 1e-6);
    assert_close(seconds, 2, 1e-6);
    assert_true(sent == 0 && received == 0);
    assert_true(mp_network_all_reduce(bench.network, 1e9) == 0);
}

/* Nodes of four with two cards, 10 MB/s and 1 s between them, 100 MB/s and 0.25 s inside.
 * All-gather of 30 MB each: 1 step between, two ranks on a card; then 3 steps of 60 MB inside. What
 * a message costs comes with every step, and for as many ranks as share a card. */
static const struct {
    const char *name;
    double limit, cost, between; /* bytes/s, s, s */
} gathers[] = {{"two ranks on a card", 0, 0, 3 * 2 + 1},
               {"a rank gets a quarter", 2.5e6, 0, 3 / 0.25 + 1},
               {"a limit that does not matter", 6e6, 0, 3 * 2 + 1},
               {"messages cost", 0, 0.5, 3 * 2 + 1 + 2 * 0.5},
               {"messages of who has a limit cost", 2.5e6, 0.5, 3 / 0.25 + 1 + 0.5}};
TEST_EACH(collectives_by_hand, gathers, row) {
    const struct shape shape = {2, 4, 2, false, 100e6, 10e6, 0.25, 1, row->limit};
    AUTO(bench) struct bench bench = make_priced(&shape, row->cost);
    assert_close(mp_network_all_gather(bench.network, 3e7), row->between + 3 * 0.85, 1e-12);
    assert_close(mp_network_all_reduce(bench.network, 24e7), 2 * (row->between + 3 * 0.85), 1e-12);
    assert_true(mp_network_all_gather(bench.network, 0) == 0);
}

/* Eight nodes: a ring takes 7 steps with an eighth each, two trees 3 with all; there and back,
 * behind what rings of 4 ranks with a quarter take inside.  Two ranks share a card, as above. */
static const struct {
    const char *name;
    double bytes, cost, between; /* of all, s, s */
} sums[] = {{"few bytes go by trees", 4e6, 0, 3 + 0.2},
            {"many go by rings", 4e9, 0, 7 * (1 + 200.0 / 8)},
            {"messages cost by steps of trees", 4e6, 0.5, 3 * (1 + 2 * 0.5) + 0.2}};
TEST_EACH(sums_go_by_rings_or_trees, sums, row) {
    const struct shape shape = {8, 4, 2, false, 100e6, 10e6, 0.25, 1, 0};
    AUTO(bench) struct bench bench = make_priced(&shape, row->cost);
    double inside = 3 * (row->bytes / 4 / 100e6 + 0.25);
    assert_close(mp_network_all_reduce(bench.network, row->bytes), 2 * (row->between + inside),
                 1e-12);
    assert_true(mp_network_all_reduce(bench.network, 0) == 0);
}

/* ---- properties ---- */

static struct shape random_shape(uint64_t *seed) {
    static const int nodes[] = {1, 2, 3, 4, 8}, ranks[] = {1, 2, 4, 6, 8};
    struct shape shape = {nodes[test_random_int(seed, 0, 4)],
                          ranks[test_random_int(seed, 0, 4)],
                          1,
                          test_random(seed) % 2,
                          100e9,
                          12.5e9,
                          2e-6,
                          5e-6,
                          0};
    while (shape.ranks % (2 * shape.ports) == 0 && test_random(seed) % 2)
        shape.ports *= 2;
    if (test_random(seed) % 2)
        shape.limit = 12.5e9 * (0.1 + test_random_double(seed));
    return shape;
}

struct draw {
    struct shape shape;
    struct bench bench;
    double matrix[MOST_RANKS * MOST_RANKS], ready[MOST_RANKS], done[MOST_RANKS];
};
TEST_END(draw, struct draw, free_bench(&it->bench))

static void draw_exchange(uint64_t *seed, struct draw *draw) {
    draw->shape = random_shape(seed);
    draw->bench = make_bench(&draw->shape);
    double bytes = 1e4 * pow(10, 4 * test_random_double(seed));
    double spread = test_random(seed) % 3 ? bytes / draw->shape.far * test_random_double(seed) : 0;
    if (draw->bench.ranks > 1)
        fill_matrix(seed, (enum kind)test_random_int(seed, 0, KINDS - 1), &draw->shape, bytes,
                    draw->matrix);
    else
        draw->matrix[0] = bytes;
    for (int r = 0; r < draw->bench.ranks; r++)
        draw->ready[r] = 0.25 + spread * test_random_double(seed);
    fill_traffic(draw->bench.traffic, draw->matrix, draw->bench.ranks);
    mp_network_exchange(draw->bench.network, draw->bench.traffic, false, draw->ready, draw->done);
}

enum { DRAWS = 300 };

static void check_bounds(const struct draw *draw) {
    const struct mp_cluster *cluster = draw->bench.cluster;
    int n = draw->bench.ranks;
    double first = INFINITY, last = largest(draw->ready, n), serial = 0;
    double port[MP_CLUSTER_LEVELS][2][MOST_RANKS] = {0}, alone[MOST_RANKS];
    double own[MP_CLUSTER_LEVELS][2][MOST_RANKS] = {0};
    for (int i = 0; i < n; i++) {
        first = fmin(first, draw->ready[i]);
        assert_true(draw->done[i] >= draw->ready[i]);
    }
    double makespan = largest(draw->done, n);
    for (int i = 0; i < n; i++)
        for (int j = 0; j < n; j++) {
            int level = mp_cluster_level_of(cluster, i, j);
            double seconds = draw->matrix[i * n + j] / mp_cluster_bandwidth(cluster, level);
            double limited = draw->matrix[i * n + j] / mp_cluster_rank_bandwidth(cluster, level);
            port[level][0][test_gate(cluster, level, i)] += seconds;
            port[level][1][test_gate(cluster, level, j)] += seconds;
            own[level][0][i] += limited;
            own[level][1][j] += limited;
            serial += limited + cluster->level[level].latency.value;
        }
    assert_true(makespan <= last + serial * (1 + 1e-5));
    mp_network_alone(draw->bench.network, draw->bench.traffic, (double *)alone, NULL, NULL);
    double busiest = 0;
    for (int level = 0; level < cluster->levels; level++)
        for (int gate = 0; gate < n; gate++)
            for (int way = 0; way < 2; way++)
                if (port[level][way][gate] > 0 || own[level][way][gate] > 0)
                    busiest = fmax(busiest, fmax(port[level][way][gate], own[level][way][gate]) +
                                                cluster->level[level].latency.value);
    assert_true((makespan - first) * (1 + 1e-5) >= busiest);
    assert_true(fabs(largest(alone, n) - busiest) <= 1e-5 * busiest);
    /* All there at once: exactly the busiest gate. */
    if (last == first)
        assert_true(fabs(makespan - first - busiest) <= 1e-5 * busiest);
}

TEST_RANDOM_TURNS(bounds_hold, DRAWS, i) {
    AUTO(draw) struct draw draw;
    draw_exchange(random, &draw);
    check_bounds(&draw);
}

TEST_RANDOM_TURNS(times_scale, DRAWS, i) {
    AUTO(draw) struct draw draw;
    double twice[MOST_RANKS];
    draw_exchange(random, &draw);
    free_bench(&draw.bench);
    draw.shape.near_latency = draw.shape.far_latency = 0;
    draw.bench = make_bench(&draw.shape);
    int n = draw.bench.ranks;
    fill_traffic(draw.bench.traffic, draw.matrix, n);
    mp_network_exchange(draw.bench.network, draw.bench.traffic, false, draw.ready, draw.done);
    for (int r = 0; r < n; r++)
        draw.ready[r] *= 2;
    /* Adding the same once more doubles the bytes, and adds after an exchange. */
    for (int f = 0; f < n * n; f++)
        mp_traffic_add(draw.bench.traffic, f / n, f % n, draw.matrix[f]);
    mp_network_exchange(draw.bench.network, draw.bench.traffic, false, draw.ready, twice);
    for (int r = 0; r < n; r++)
        assert_close(twice[r], 2 * draw.done[r], 1e-12);
}

/* Nodes in the opposite order: everybody is done when he was. */
TEST_RANDOM_TURNS(nodes_are_alike, DRAWS, i) {
    AUTO(draw) struct draw draw;
    double ready[MOST_RANKS], done[MOST_RANKS];
    draw_exchange(random, &draw);
    int n = draw.bench.ranks, per = draw.shape.ranks, other[MOST_RANKS];
    mp_traffic_clear(draw.bench.traffic);
    for (int r = 0; r < n; r++)
        other[r] = (draw.shape.nodes - 1 - r / per) * per + r % per;
    for (int r = 0; r < n; r++)
        ready[other[r]] = draw.ready[r];
    for (int f = 0; f < n * n; f++)
        mp_traffic_add(draw.bench.traffic, other[f / n], other[f % n], draw.matrix[f]);
    mp_network_exchange(draw.bench.network, draw.bench.traffic, false, ready, done);
    for (int r = 0; r < n; r++)
        assert_true(fabs(done[other[r]] - draw.done[r]) <= 1e-4 * (draw.done[r] - 0.25));
}

/* The busiest gate or rank's limit with its latency, of all levels; only the farthest one's
 * messages have a cost. */
static double priced_seconds(const struct bench *bench, const double matrix[], double cost) {
    const struct mp_cluster *cluster = bench->cluster;
    int n = bench->ranks;
    double most = 0;
    for (int level = 1; level < cluster->levels; level++) {
        double port[2][MOST_RANKS] = {0}, own[2][MOST_RANKS] = {0}, busy = 0;
        double message = level + 1 == cluster->levels ? cost : 0;
        for (int f = 0; f < n * n; f++) {
            if (!(matrix[f] > 0) || mp_cluster_level_of(cluster, f / n, f % n) != level)
                continue;
            for (int way = 0; way < 2; way++) {
                int rank = way ? f % n : f / n;
                port[way][test_gate(cluster, level, rank)] +=
                    matrix[f] / mp_cluster_bandwidth(cluster, level) + message;
                own[way][rank] += matrix[f] / mp_cluster_rank_bandwidth(cluster, level) + message;
            }
        }
        for (int way = 0; way < 2; way++)
            busy = fmax(busy, fmax(largest(port[way], n), largest(own[way], n)));
        if (busy > 0)
            most = fmax(most, busy + cluster->level[level].latency.value);
    }
    return most;
}

/* Alone a gate takes bytes / bandwidth and messages * cost, and so does an exchange whose ranks
 * come at once; no exchange takes less than that, nor than at a lower cost; bytes are what they
 * were. */
TEST_RANDOM_TURNS(messages_cost_what_is_said, DRAWS, i) {
    AUTO(draw) struct draw draw;
    double alone[MOST_RANKS], done[MOST_RANKS], sent[2][MOST_RANKS], zero[MOST_RANKS] = {0};
    draw_exchange(random, &draw);
    int n = draw.bench.ranks;
    double before = largest(draw.done, n), first = before;
    for (int r = 0; r < n; r++)
        first = fmin(first, draw.ready[r]);
    mp_traffic_totals(draw.bench.traffic, sent[0], NULL);
    for (double cost = 0; n > 1 && cost < 1e-4; cost = 4 * cost + 1e-6) {
        AUTO(bench) struct bench bench = make_priced(&draw.shape, cost);
        double seconds = priced_seconds(&bench, draw.matrix, cost);
        fill_traffic(bench.traffic, draw.matrix, n);
        mp_network_alone(bench.network, bench.traffic, alone, NULL, NULL);
        assert_true(fabs(largest(alone, n) - seconds) <= 1e-5 * seconds);
        mp_network_exchange(bench.network, bench.traffic, false, draw.ready, done);
        if (cost == 0)
            assert_memory_equal(done, draw.done, (size_t)n * sizeof *done);
        assert_true(largest(done, n) - 0.25 >= (before - 0.25) * (1 - 1e-5));
        assert_true(largest(done, n) - first >= seconds * (1 - 1e-5));
        before = largest(done, n);
        mp_network_exchange(bench.network, bench.traffic, true, zero, done);
        assert_true(fabs(largest(done, n) - seconds) <= 1e-5 * seconds);
        mp_traffic_totals(bench.traffic, sent[1], NULL);
        assert_memory_equal(sent[0], sent[1], (size_t)n * sizeof **sent);
    }
}

/* ---- many ranks ---- */

struct start {
    double at, seconds;
};

static int compare_starts(const void *a, const void *b) {
    return test_compare_doubles(&((const struct start *)a)->at, &((const struct start *)b)->at);
}

/* The last end of all gates: each a queue of its messages by start. */
static double last_gate(const struct mp_cluster *cluster, const double matrix[],
                        const double ready[]) {
    int n = mp_cluster_ranks(cluster);
    double last = largest(ready, n);
    AUTO(allocated) struct start *starts = calloc((size_t)n * (size_t)n, sizeof *starts);
    assert_non_null(starts);
    for (int level = 1; level < cluster->levels; level++)
        for (int gate = 0; gate < 2 * mp_cluster_gates(cluster, level); gate++) {
            double t = 0;
            size_t count = 0;
            for (int f = 0; f < n * n; f++) {
                int at = gate % 2 ? f % n : f / n;
                if (matrix[f] > 0 && test_gate(cluster, level, at) == gate / 2 &&
                    mp_cluster_level_of(cluster, f / n, f % n) == level)
                    starts[count++] =
                        (struct start){fmax(ready[f / n], ready[f % n]),
                                       matrix[f] / mp_cluster_bandwidth(cluster, level)};
            }
            qsort(starts, count, sizeof *starts, compare_starts);
            for (size_t i = 0; i < count; i++)
                t = fmax(t, starts[i].at) + starts[i].seconds;
            if (count)
                last = fmax(last, t + cluster->level[level].latency.value);
        }
    return last;
}

/* Who sends to whom: everybody to everybody; few neighbours to all; all to them; groups of
 * neighbours to the next group. */
enum { PATTERNS = 4, NEIGHBOURS = 4 };

static bool sends(size_t pattern, int from, int to, int ranks) {
    int groups = (ranks + NEIGHBOURS - 1) / NEIGHBOURS;
    const bool any[PATTERNS] = {true, from < NEIGHBOURS, to < NEIGHBOURS,
                                (from / NEIGHBOURS + 1) % groups == to / NEIGHBOURS};
    return any[pattern];
}

/* Many ranks and few, and a number that fills no lanes. */
TEST_RANDOM(gates_are_queues) {
    static const int shapes[][3] = {{18, 6, 6}, {18, 6, 3}, {18, 6, 1}, {5, 3, 3}, {3, 5, 1}};
    for (size_t i = 0; i < PATTERNS * sizeof shapes / sizeof *shapes; i++) {
        const int *of = shapes[i / PATTERNS];
        struct shape shape = {of[0], of[1], of[2], i / PATTERNS == 2, 100e9, 12.5e9, 2e-6, 5e-6, 0};
        AUTO(bench) struct bench bench = make_bench(&shape);
        int n = bench.ranks;
        double most = i % 3 ? 1e4 : 1e6; /* bytes: gates pause, or do not */
        AUTO(allocated) double *matrix = calloc((size_t)n * (size_t)n, sizeof *matrix);
        double *ready = calloc(2 * (size_t)n, sizeof *ready), *done = ready + n;
        assert_non_null(matrix);
        assert_non_null(ready);
        for (int f = 0; f < n * n; f++)
            if (sends(i % PATTERNS, f / n, f % n, n))
                matrix[f] = test_random(random) % 3 ? ceil(most * test_random_double(random)) : 0;
        /* Some come together, some hardly after them, one when all is over. */
        for (int r = 0; r < n; r++)
            ready[r] = 1e-4 * test_random_int(random, 0, 9) + 1e-9 * test_random_int(random, 0, 9);
        ready[test_random_int(random, 0, n - 1)] = 0.1 * test_random_int(random, 0, 1);
        fill_traffic(bench.traffic, matrix, n);
        mp_network_exchange(bench.network, bench.traffic, false, ready, done);
        assert_within(largest(done, n), last_gate(bench.cluster, matrix, ready), 1e-7);
        free(ready);
    }
}

/* What was added before and after an exchange, in any order, and what was filled in row by row: the
 * same bytes. */
struct rows {
    const uint32_t *matrix;
    int ranks;
};

static int rows_of(void *context, int from, uint32_t rows[], int32_t to[]) {
    const struct rows *given = context;
    int count = 0;
    for (int other = given->ranks - 1; other >= 0; other--) {
        assert_int_equal(rows[other], 0);
        rows[other] = given->matrix[from * given->ranks + other];
        if (rows[other] > 0)
            to[count++] = other;
    }
    return count;
}

TEST_RANDOM_TURNS(order_of_adding_is_no_matter, 60, i) {
    struct shape shape = random_shape(random);
    shape.nodes += i % 3 * 20;
    AUTO(bench) struct bench bench = make_bench(&shape);
    AUTO(traffic) struct mp_traffic *filled;
    int n = bench.ranks, some = test_random_int(random, 1, 30);
    size_t pairs = (size_t)n * (size_t)n, size = (size_t)n * sizeof(double);
    AUTO(allocated) uint32_t *matrix = calloc(pairs, sizeof *matrix);
    AUTO(allocated) double *ready = calloc(5 * (size_t)n, sizeof *ready);
    assert_true(matrix && ready);
    assert_works(mp_traffic_create(bench.network, &filled, &error));
    for (size_t f = 0; f < pairs; f++)
        matrix[f] = test_random_int(random, 0, some) ? 0 : (uint32_t)(test_random(random) % 5000);
    struct rows rows = {matrix, n};
    mp_traffic_add(filled, 0, n - 1, 1e9); /* forgotten */
    mp_traffic_fill(filled, rows_of, &rows, 512);
    for (int pass = 0; pass < 2; pass++) { /* odd ranks' first, backwards */
        for (int from = n - 1; from >= 0; from--)
            for (int to = 0; from % 2 != pass && to < n; to++)
                mp_traffic_add(bench.traffic, from, to, 512.0 * matrix[from * n + to]);
        for (int r = 0; r < n; r++)
            ready[r] = 1e-4 * test_random_double(random);
        mp_network_exchange(bench.network, bench.traffic, pass, ready, ready + n);
    }
    mp_network_exchange(bench.network, filled, true, ready, ready + 2 * n);
    assert_memory_equal(ready + n, ready + 2 * n, size);
    mp_traffic_totals(bench.traffic, ready, ready + n);
    mp_traffic_totals(filled, ready + 2 * n, ready + 3 * n);
    assert_memory_equal(ready, ready + 2 * n, 2 * size);
    assert_works(mp_network_check(bench.network, &error));
}

/* Bytes are kept by message: a matrix of so many ranks would take a thousand times as much. */
TEST(memory_follows_messages) {
    enum { NODES = 2048, PER_NODE = 8, RANKS = NODES * PER_NODE, MOST = 50 << 20 };
    static double ready[RANKS], done[RANKS];
    struct shape shape = {NODES, PER_NODE, PER_NODE, false, 100e9, 10e9, 0, 0, 0};
    struct mallinfo2 before = mallinfo2();
    AUTO(bench) struct bench bench = make_bench(&shape);
    for (int from = 0; from < RANKS; from++)
        for (int next = 1; next <= 2; next++)
            mp_traffic_add(bench.traffic, from, (from + next * PER_NODE) % RANKS, 1e6);
    mp_network_exchange(bench.network, bench.traffic, false, ready, done);
    for (int r = 0; r < RANKS; r++)
        assert_close(done[r], 2e-4, 1e-5);
    struct mallinfo2 after = mallinfo2();
    assert_true(after.uordblks + after.hblkhd - before.uordblks - before.hblkhd < MOST);
}
