/* MoETuner's two integer programs: the example worked out by hand, all solutions of small cases,
 * bounds below them, and the sizes of papers. */
#include "baselines/moetuner/clusters.h"
#include "baselines/moetuner/links.h"
#include "tests/reference/base/memory.h"
#include "tests/reference/base/solver.h"
#include "tests/reference/plan/plan_support.h"

static const struct mp_program_limits exact = {.gap = 0, .nodes = 1000000};

/* ---- clusters ---- */

enum { MOST_EXPERTS = 8 };

/* The least deviation of all clusters of equal size. */
static int64_t try_clusters(struct mp_clusters *state, const int64_t load[], int expert, int room[],
                            int32_t cluster[]) {
    if (expert == state->experts)
        return mp_clusters_deviation(state, load, cluster);
    int64_t least = INT64_MAX;
    for (int c = 0; c < state->clusters; c++) {
        if (room[c] == 0)
            continue;
        room[c]--;
        cluster[expert] = c;
        int64_t found = try_clusters(state, load, expert + 1, room, cluster);
        least = found < least ? found : least;
        room[c]++;
    }
    return least;
}

static void assert_clusters(const struct mp_clusters *state, const int32_t cluster[]) {
    int count[MOST_EXPERTS] = {0};
    for (int e = 0; e < state->experts; e++) {
        assert_true(cluster[e] >= 0 && cluster[e] < state->clusters);
        count[cluster[e]]++;
    }
    for (int c = 0; c < state->clusters; c++)
        assert_int_equal(count[c], state->size);
}

/* From the worst start and no bound, so that the solver has to find and prove it all. */
TEST_RANDOM(clusters_are_the_best_of_all) {
    static const int shape[][2] = {{4, 2}, {6, 2}, {6, 3}, {8, 2}, {8, 4}, {5, 1}, {4, 4}};
    int improved = 0;
    need_solver();
    for (int round = 0; round < 200; round++) {
        const int *sizes = shape[test_random_int(random, 0, 6)];
        int64_t load[MOST_EXPERTS], unknown = 0;
        int32_t start[MOST_EXPERTS], cluster[MOST_EXPERTS];
        int room[MOST_EXPERTS];
        struct mp_clusters clusters;
        struct mp_program_result result;
        mp_clusters_create(&memory, sizes[0], sizes[1], &clusters);
        for (int e = 0; e < sizes[0]; e++) {
            load[e] = test_random_int(random, 0, test_random_int(random, 0, 3) ? 100 : 3000);
            start[e] = e / clusters.size;
            room[e] = clusters.size;
        }
        int64_t best = try_clusters(&clusters, load, 0, room, cluster);
        int64_t bound = mp_clusters_bound(&clusters, load);
        assert_true(bound <= best);
        memcpy(cluster, start, sizeof cluster);
        improved += mp_clusters_deviation(&clusters, load, start) > best;
        assert_works(
            mp_clusters_program(&clusters, load, &exact, cluster, &unknown, &result, &error));
        assert_int_equal(result.status, MP_PROGRAM_SOLVED);
        assert_clusters(&clusters, cluster);
        assert_int_equal(mp_clusters_deviation(&clusters, load, cluster), best);
        assert_int_equal(unknown, best);
        mp_clusters_search(&clusters, load, start);
        assert_clusters(&clusters, start);
        assert_true(mp_clusters_deviation(&clusters, load, start) >= best);
    }
    assert_true(improved > 100);
}

/* V-TUNE-1. */
TEST(the_worked_example_of_clusters) {
    static const struct {
        int64_t load[4];
        int32_t cluster[4];
    } row[] = {{{10, 8, 4, 2}, {0, 1, 1, 0}}, {{9, 1, 7, 3}, {0, 0, 1, 1}}};
    struct mp_clusters clusters;
    need_solver();
    mp_clusters_create(&memory, 4, 2, &clusters);
    for (int i = 0; i < 2; i++) {
        int32_t cluster[4] = {0, 0, 1, 1};
        int64_t bound = 0;
        struct mp_program_result result;
        assert_works(
            mp_clusters_program(&clusters, row[i].load, &exact, cluster, &bound, &result, &error));
        assert_memory_equal(cluster, row[i].cluster, sizeof cluster);
        assert_int_equal(mp_clusters_deviation(&clusters, row[i].load, cluster), 0);
        mp_clusters_search(&clusters, row[i].load, cluster);
        assert_memory_equal(cluster, row[i].cluster, sizeof cluster);
    }
}

/* One hot expert, one dead one, loads that can't be divided: bounds that are met. */
TEST(bounds_that_are_met) {
    static const struct {
        int64_t load[6], bound; /* 3 x deviation of 3 clusters of 2 */
    } row[] = {{{100, 1, 1, 1, 1, 1}, 2 * (3 * 101 - 105)},
               {{100, 100, 1, 1, 1, 1}, 2 * (3 * 202 - 2 * 204)},
               {{0, 60, 60, 60, 60, 60}, 2 * (300 - 3 * 60)},
               {{1, 1, 1, 1, 1, 2}, 2 * 1 * 2}};
    struct mp_clusters clusters;
    mp_clusters_create(&memory, 6, 3, &clusters);
    for (size_t i = 0; i < sizeof row / sizeof *row; i++) {
        int32_t cluster[6];
        assert_int_equal(mp_clusters_bound(&clusters, row[i].load), row[i].bound);
        mp_clusters_search(&clusters, row[i].load, cluster);
        assert_int_equal(mp_clusters_deviation(&clusters, row[i].load, cluster), row[i].bound);
    }
}

/* ---- links ---- */

enum { MOST_RANKS = 32, MOST_LAYERS = 8 };

static void set_flows(uint64_t *random, struct mp_links *links, int most) {
    int ranks = links->topology.ranks;
    for (int i = 0; i < (links->layers - 1) * ranks * ranks; i++)
        links->flow[i] =
            test_random_int(random, 0, test_random_int(random, 0, 4) ? most / 8 : most);
}

static bool next_permutation(int32_t place[], int count) {
    int i = count - 2, j = count - 1;
    while (i >= 0 && place[i] > place[i + 1])
        i--;
    if (i < 0)
        return false;
    while (place[j] < place[i])
        j--;
    int32_t kept = place[i];
    place[i] = place[j];
    place[j] = kept;
    for (int from = i + 1, to = count - 1; from < to; from++, to--) {
        kept = place[from];
        place[from] = place[to];
        place[to] = kept;
    }
    return true;
}

/* The least seconds of all placements of the layers from `layer` on. */
static double try_places(struct mp_links *links, int layer, int32_t rank[]) {
    int ranks = links->topology.ranks;
    if (layer == links->layers)
        return mp_links_seconds(links, rank);
    int32_t *place = rank + (long)layer * ranks;
    double least = HUGE_VAL;
    for (int r = 0; r < ranks; r++)
        place[r] = r;
    do
        least = fmin(least, try_places(links, layer + 1, rank));
    while (next_permutation(place, ranks));
    return least;
}

static void assert_places(const struct mp_links *links, const int32_t rank[]) {
    int ranks = links->topology.ranks;
    for (int l = 0; l < links->layers; l++) {
        uint64_t taken = 0;
        for (int c = 0; c < ranks; c++) {
            int32_t place = rank[(long)l * ranks + c];
            assert_true(place >= 0 && place < ranks);
            taken |= UINT64_C(1) << place;
        }
        assert_int_equal(taken, (UINT64_C(1) << ranks) - 1);
    }
}

static void place_in_order(const struct mp_links *links, int32_t rank[]) {
    for (int i = 0; i < links->layers * links->topology.ranks; i++)
        rank[i] = i % links->topology.ranks;
}

TEST_RANDOM(places_are_the_best_of_all) {
    static const struct {
        int layers;
        struct mp_topology topology;
    } shape[] = {{3, {4, 2}}, {2, {5, 2}}, {3, {4, 4}}, {3, {3, 2}}, {3, {4, 1}},
                 {3, {4, 3}}, {2, {3, 1}}, {2, {5, 3}}, {1, {3, 2}}, {4, {2, 2}}};
    int improved = 0;
    need_solver();
    for (int round = 0; round < 200; round++) {
        int which = test_random_int(random, 0, 9), layers = shape[which].layers;
        int32_t rank[MOST_LAYERS * MOST_RANKS], searched[MOST_LAYERS * MOST_RANKS];
        double proven;
        struct mp_links links;
        struct mp_program_result result;
        mp_links_create(&memory, layers, &shape[which].topology, &links);
        links.between = 1;
        links.in_node = test_random_int(random, 0, 2) * 0.25;
        set_flows(random, &links, round % 2 ? 30 : 3000);
        double best = try_places(&links, 0, rank);
        double bound = mp_links_bound(&links);
        assert_true(bound <= best);
        mp_links_search(&links, searched);
        assert_places(&links, searched);
        double found = mp_links_seconds(&links, searched);
        assert_true(found >= best);
        if (mp_topology_nodes(&links.topology) == 1 || links.topology.ranks_per_node == 1) {
            assert_close(found, best, 0); /* as links.h says */
            assert_close(bound, best, 0);
        }
        place_in_order(&links, rank);
        improved += mp_links_seconds(&links, rank) > best;
        if (layers > 1) {
            assert_works(
                mp_links_program(&links, 0, layers - 1, &exact, rank, &proven, &result, &error));
            assert_int_equal(result.status, MP_PROGRAM_SOLVED);
            assert_places(&links, rank);
            assert_close(mp_links_seconds(&links, rank), best, 1e-12);
            assert_close(proven, best, 1e-6);
        }
    }
    assert_true(improved > 100);
}

/* V-TUNE-1: on two ranks, bandwidth 1 across, what stays takes no time. */
TEST(the_worked_example_of_links) {
    static const int64_t flow[4] = {9, 3, 2, 10};
    static const struct mp_topology pair = {2, 2};
    int32_t rank[4] = {0, 1, 1, 0};
    double proven;
    struct mp_links links;
    struct mp_program_result result;
    need_solver();
    mp_links_create(&memory, 2, &pair, &links);
    links.between = links.in_node = 1;
    memcpy(links.flow, flow, sizeof flow);
    assert_close(mp_links_seconds(&links, rank), 10, 0);
    assert_close(mp_links_bound(&links), 3, 0);
    assert_works(mp_links_program(&links, 0, 1, &exact, rank, &proven, &result, &error));
    assert_close(mp_links_seconds(&links, rank), 3, 0);
    assert_int_equal(rank[0] == 0, rank[2] == 0);
    mp_links_search(&links, rank);
    assert_close(mp_links_seconds(&links, rank), 3, 0);
}

/* Layers between others whose nodes stay: never worse, and as good as the best of what is free. */
TEST_RANDOM(parts_of_the_layers) {
    static const struct mp_topology topology = {4, 2};
    need_solver();
    for (int round = 0; round < 30; round++) {
        int first = test_random_int(random, 0, 3), last = test_random_int(random, first, 3);
        int32_t rank[16], nodes[16];
        double proven;
        struct mp_links links;
        struct mp_program_result result;
        mp_links_create(&memory, 4, &topology, &links);
        links.between = 1;
        links.in_node = 0.5;
        set_flows(random, &links, 1000);
        mp_links_bound(&links);
        place_in_order(&links, rank);
        double before = mp_links_seconds(&links, rank);
        for (int i = 0; i < 16; i++)
            nodes[i] = rank[i] / 2;
        assert_works(mp_links_program(&links, first, last, &exact, rank, &proven, &result, &error));
        assert_places(&links, rank);
        assert_true(mp_links_seconds(&links, rank) <= before);
        for (int l = 0; l < 4; l++)
            for (int c = 0; c < 4 && (first > 0 || last < 3); c++)
                if (l < first || l > last)
                    assert_int_equal(rank[l * 4 + c] / 2, nodes[l * 4 + c]);
        double around = 0;
        mp_links_seconds(&links, rank);
        for (int l = first > 0 ? first - 1 : 0; l <= last && l < 3; l++)
            around += links.seconds[l];
        assert_close(around, proven, 1e-6);
    }
}

/* Eight layers of eight experts on eight GPUs, on one node and on two, of any flows. */
TEST_RANDOM(eight_layers_of_eight) {
    const struct mp_program_limits limits = {.gap = 0.025, .nodes = 20000};
    need_solver();
    for (int size = 4; size <= 8; size += 4) {
        const struct mp_topology topology = {8, size};
        int32_t rank[64];
        double proven;
        struct mp_links links;
        struct mp_program_result result;
        mp_links_create(&memory, 8, &topology, &links);
        links.between = 1.0 / 50;
        links.in_node = 1.0 / 900;
        set_flows(random, &links, 100000);
        double bound = mp_links_bound(&links);
        mp_links_search(&links, rank);
        double searched = mp_links_seconds(&links, rank);
        assert_works(mp_links_program(&links, 0, 7, &limits, rank, &proven, &result, &error));
        print_message("nodes of %d: bound of pairs %.0f, search %.0f, program %.0f >= %.0f, %d "
                      "nodes\n",
                      size, bound, searched, mp_links_seconds(&links, rank), proven, result.nodes);
        assert_places(&links, rank);
        assert_int_equal(result.status, MP_PROGRAM_SOLVED);
        assert_true(result.gap <= 0.025);
        assert_true(mp_links_seconds(&links, rank) <= searched);
    }
}
