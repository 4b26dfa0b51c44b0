/* The network against SimGrid's flow-level simulation of the same exchange on the same platform.
 *
 * SimGrid's model is CM02: max-min fair sharing of links by all flows at once.  What its models
 * know of TCP is turned off (a window's limit, factors on bandwidth and latency, weights of round
 * trips, acknowledgements), since the links here are those of InfiniBand and NVLink and physics are
 * to be compared; clocks are resolved to 1e-12 s, for messages of some hundred bytes; at every
 * event the shares of all links are worked out anew, since on routes over four links SimGrid 3.32's
 * lazy updates let flows have more than a link carries (by 42 %, as seen).  Every gate is a link
 * per direction, and so is what a rank gets of one at most; every pair of ranks has a route over
 * the sender's and the receiver's. */
#include "harness/predict/network.h"

#include "tests/harness/folder.h"
#include "tests/harness/predict/exchange.h"

#define SIMGRID_OPTIONS                                                                            \
    "--cfg=network/model:CM02 --cfg=network/TCP-gamma:0 --cfg=network/bandwidth-factor:1 "         \
    "--cfg=network/latency-factor:1 --cfg=network/weight-S:0 --cfg=network/crosstraffic:0 "        \
    "--cfg=network/optim:Full --cfg=surf/precision:1e-12 --cfg=maxmin/precision:1e-9 "             \
    "--cfg=contexts/stack-size:128 --log=root.threshold:error"

#if defined(__OPTIMIZE__) && !defined(__SANITIZE_ADDRESS__)
enum { OPTIMIZED = true }; /* so that speed means something */
#else
enum { OPTIMIZED = false };
#endif

#ifdef MOEPERF_SIMGRID

static const char *const kind_names[KINDS] = {
    "uniform",      "hot receiver", "hot receivers",  "hot source", "hot node", "Zipf receivers",
    "Zipf entries", "lognormal",    "lognormal wide", "sparse",     "two each"};

static const char platform[] = "platform.xml", flows[] = "flows";

static void write_platform(const struct mp_cluster *cluster) {
    int n = mp_cluster_ranks(cluster);
    FILE *file = fopen(platform, "w");
    assert_non_null(file);
    fprintf(file, "<?xml version='1.0'?>\n<!DOCTYPE platform SYSTEM "
                  "\"https://simgrid.org/simgrid.dtd\">\n<platform version=\"4.1\">\n"
                  "<zone id=\"all\" routing=\"Full\">\n");
    for (int r = 0; r < n; r++)
        fprintf(file, "<host id=\"%d\" speed=\"1Gf\"/>\n", r);
    for (int level = 1; level < cluster->levels; level++)
        for (int gate = 0; gate < mp_cluster_gates(cluster, level); gate++)
            for (int way = 0; way < 2; way++) /* a message's latency is that of its first link */
                fprintf(file, "<link id=\"%d-%d-%d\" bandwidth=\"%.17gBps\" latency=\"%.17gs\"/>\n",
                        level, gate, way, mp_cluster_bandwidth(cluster, level),
                        way == 0 ? cluster->level[level].latency.value : 0);
    for (int level = 1; level < cluster->levels; level++)
        for (int r = 0; r < n; r++)
            for (int way = 0; way < 2; way++)
                fprintf(file, "<link id=\"own-%d-%d-%d\" bandwidth=\"%.17gBps\" latency=\"0s\"/>\n",
                        level, r, way, mp_cluster_rank_bandwidth(cluster, level));
    for (int i = 0; i < n; i++)
        for (int j = 0; j < n; j++) {
            int level = mp_cluster_level_of(cluster, i, j);
            if (i != j)
                fprintf(file,
                        "<route src=\"%d\" dst=\"%d\" symmetrical=\"NO\"><link_ctn "
                        "id=\"%d-%d-0\"/><link_ctn id=\"own-%d-%d-0\"/><link_ctn "
                        "id=\"own-%d-%d-1\"/><link_ctn id=\"%d-%d-1\"/></route>\n",
                        i, j, level, test_gate(cluster, level, i), level, i, level, j, level,
                        test_gate(cluster, level, j));
        }
    fprintf(file, "</zone>\n</platform>\n");
    assert_int_equal(fclose(file), 0);
}

static void write_flows(const double matrix[], int n) {
    int count = 0;
    FILE *file = fopen(flows, "w");
    assert_non_null(file);
    for (int f = 0; f < n * n; f++)
        count += matrix[f] > 0;
    fprintf(file, "%d %d\n", n, count);
    for (int f = 0; f < n * n; f++)
        if (matrix[f] > 0)
            fprintf(file, "%d %d %.0f\n", f / n, f % n, matrix[f]);
    assert_int_equal(fclose(file), 0);
}

/* done[] of each rank, and the seconds that it took. */
static double simulate(const struct mp_cluster *cluster, const double matrix[], double done[]) {
    char command[1024], line[128];
    int n = mp_cluster_ranks(cluster);
    write_platform(cluster);
    write_flows(matrix, n);
    snprintf(command, sizeof command, "%s %s %s " SIMGRID_OPTIONS, MOEPERF_SIMGRID, platform,
             flows);
    FILE *pipe = popen(command, "r");
    assert_non_null(pipe);
    assert_non_null(fgets(line, sizeof line, pipe));
    double seconds = strtod(line, NULL);
    for (int r = 0; r < n; r++) {
        assert_non_null(fgets(line, sizeof line, pipe));
        done[r] = strtod(line, NULL);
    }
    assert_int_equal(pclose(pipe), 0);
    return seconds;
}

static double now(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec + 1e-9 * (double)time.tv_nsec;
}

/* done[] of each rank, and the seconds of an exchange: a quarter of filling the bytes in and
 * carrying them out four times, twice forwards and twice back, as a layer does.  The median of
 * several. */
static double predict(const struct mp_cluster *cluster, const double matrix[], double done[]) {
    enum { TIMES = 51 };
    AUTO(network) struct mp_network *network = NULL;
    AUTO(traffic) struct mp_traffic *traffic = NULL;
    double seconds[TIMES], ready[MOST_RANKS] = {0};
    assert_works(mp_network_create(cluster, &network, &error));
    assert_works(mp_traffic_create(network, &traffic, &error));
    for (int i = 0; i < TIMES; i++) {
        double begin = now(), back[MOST_RANKS];
        fill_traffic(traffic, matrix, mp_cluster_ranks(cluster));
        for (int times = 0; times < 2; times++) {
            mp_network_exchange(network, traffic, false, ready, done);
            mp_network_exchange(network, traffic, true, done, back);
        }
        seconds[i] = (now() - begin) / 4;
    }
    qsort(seconds, TIMES, sizeof *seconds, test_compare_doubles);
    return seconds[TIMES / 2];
}

enum { ROWS = 4 * KINDS * 3 };

static struct {
    int count, ranks, speeds;
    double makespan[ROWS], rank[ROWS * MOST_RANKS], speed[ROWS];
    double worst[2]; /* without and with limits of ranks */
    double late;     /* how much later than SimGrid, at most */
} errors;

static void compare(uint64_t *seed, const struct shape *shape, enum kind kind, double bytes) {
    static double matrix[MOST_RANKS * MOST_RANKS];
    AUTO(cluster) struct mp_cluster *cluster = shape_cluster(shape);
    int n = mp_cluster_ranks(cluster);
    double theirs[MOST_RANKS], ours[MOST_RANKS], worst = 0;
    fill_matrix(seed, kind, shape, bytes, matrix);
    double their_seconds = simulate(cluster, matrix, theirs);
    double our_seconds = predict(cluster, matrix, ours);
    double expected = largest(theirs, n), makespan = largest(ours, n);
    for (int r = 0; r < n; r++) {
        double error = fabs(ours[r] - theirs[r]) / expected;
        errors.rank[errors.ranks++] = error;
        worst = fmax(worst, error);
    }
    double off = fabs(makespan / expected - 1);
    errors.makespan[errors.count++] = off;
    errors.worst[shape->limit > 0] = fmax(errors.worst[shape->limit > 0], off);
    errors.late = fmax(errors.late, makespan / expected - 1);
    print_message("%5d  %5d  %-14s  %9.0f  %11.4g  %11.4g  %+7.3f  %7.3f  %9.0f\n", n, shape->ports,
                  kind_names[kind], bytes, expected, makespan, makespan / expected - 1, worst,
                  their_seconds / our_seconds);
    /* Few messages are quick to simulate, and take as long as many here: not counted. */
    if (n >= 32 && kind != SPARSE && kind != TWO_EACH)
        errors.speed[errors.speeds++] = their_seconds / our_seconds;
}

TEST_RANDOM(close_to_simgrid) {
    static const int sizes[][2] = {{2, 4}, {4, 4}, {4, 8}, {8, 8}};
    static const double bytes[] = {10240, 1 << 20, 64 << 20};
    print_message("ranks  cards  kind            bytes/rank  SimGrid, s     ours, s    error  of a "
                  "rank  times faster\n");
    for (int size = 0; size < 4; size++)
        for (int kind = 0; kind < KINDS; kind++)
            for (int b = 0; b < 3; b++) {
                /* SimGrid takes long for many ranks, which get one of the sizes each. */
                if (sizes[size][0] * sizes[size][1] >= 32 && b != (size + kind) % 3)
                    continue;
                struct shape shape = {
                    sizes[size][0], sizes[size][1], sizes[size][1] >> (size + kind + b) % 3,
                    false,          150e9,          12.5e9,
                    2e-6,           5e-6,           (size + kind + b) % 2 ? 5e9 : 0};
                compare(random, &shape, (enum kind)kind, bytes[b]);
            }
    qsort(errors.makespan, (size_t)errors.count, sizeof(double), test_compare_doubles);
    qsort(errors.rank, (size_t)errors.ranks, sizeof(double), test_compare_doubles);
    double median = errors.makespan[errors.count / 2];
    print_message(
        "makespan: median error %.4f, worst %.4f, with limits of ranks %.4f; ranks, of the "
        "makespan: median %.4f, 9 in 10 %.4f, worst %.4f\n",
        median, errors.worst[false], errors.worst[true], errors.rank[errors.ranks / 2],
        errors.rank[errors.ranks * 9 / 10], errors.rank[errors.ranks - 1]);
    qsort(errors.speed, (size_t)errors.speeds, sizeof(double), test_compare_doubles);
    print_message("times faster, 32 ranks and more, all to all: median %.0f, least %.0f\n",
                  errors.speed[errors.speeds / 2], errors.speed[0]);
    assert_true(median <= 0.05);
    assert_true(errors.worst[false] <= 0.15);
    /* A rank that is alone at a gate for four in the end, with 0.4 of it: 0.23 by hand; 0.22 seen.
     */
    assert_true(errors.worst[true] <= 0.3);
    /* All come together, so the busiest gate's bytes are the least that any sharing takes. */
    assert_true(errors.late <= 0.001);
    /* Of the median row: a row's time is a few milliseconds of a machine that others use, and the
     * rows that SimGrid is quickest with are near the limit (620 and 950 times were seen). */
    assert_true(!OPTIMIZED || errors.speed[errors.speeds / 2] >= 1000);
}

#else

TEST(close_to_simgrid) {
    (void)SIMGRID_OPTIONS;
    (void)OPTIMIZED;
    skip("libsimgrid-dev was not there when this was built");
}

#endif

TEST_GROUP(enter_folder, leave_folder);
