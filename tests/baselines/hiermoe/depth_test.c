/* Depths: the paper's sums by hand, lines from bandwidths, and what options may say; and the
 * system: the depth that it takes. */
#include "baselines/hiermoe/depth.h"

#include "baselines/systems.h"
#include "tests/baselines/rehearsal.h"

enum { RANKS = 16, PER_NODE = 8, EXPERTS = 32, TOP_K = 4 };
static const struct mp_setting setting = {.layers = 1,
                                          .experts = EXPERTS,
                                          .top_k = TOP_K,
                                          .topology = {RANKS, PER_NODE},
                                          .expert_bytes = 1,
                                          .route_bytes = 1000,
                                          .bandwidth = 8e9,
                                          .bandwidth_in_node = 4e9,
                                          .seed = 5};

static struct mp_depths create(const char *hierarchy, const char *inter, const char *intra) {
    const struct mp_depth_texts texts = {hierarchy, inter, intra, 1e-3, 1e-4};
    struct mp_depths depths;
    assert_works(mp_depths_create(&setting, &texts, &depths, &error));
    return depths;
}

/* 2 nodes of 8, in them 4 fours and 8 pairs: U is 1, 2, 4, 8 and there are 16 ranks. */
TEST(depths_take_the_sums_of_the_paper) {
    const struct mp_depths depths = create("node:4:2", "1e-3/2e-9:2e-3/1e-9:3e-3/5e-10",
                                           "4e-3/1e-8:5e-3/4e-9:6e-3/2e-9:7e-3/1e-9");
    static const double tokens[] = {700, 500, 300, 200};
    const double row = 1000, ranks = 200 * row;
    const double inter[] = {1e-3 + 2e-9 * 2 * 700 * row, 2e-3 + 1e-9 * 2 * 500 * row,
                            3e-3 + 5e-10 * 2 * 300 * row};
    const double expected[] = {4e-3 + 1e-8 * 16 * ranks, inter[0] + 5e-3 + 4e-9 * 8 * ranks,
                               inter[0] + inter[1] + 6e-3 + 2e-9 * 4 * ranks,
                               inter[0] + inter[1] + inter[2] + 7e-3 + 1e-9 * 2 * ranks};
    assert_int_equal(depths.levels.count, 4);
    for (int d = 1; d <= 4; d++)
        assert_close(mp_depths_seconds(&depths, d, tokens, row), expected[d - 1], 1e-12);
    assert_int_equal(mp_depths_best(&depths, tokens, row), 3); /* 0.036, 0.0152, 0.0144, 0.0175 s */
}

/* Nothing fitted: a node's cards carry what its ranks get, and every rank's own gate what it gets
 * inside; a group of two nodes has the cards of both, one of two ranks two gates. */
TEST(lines_follow_from_bandwidths) {
    static const double tokens[] = {700, 500, 200};
    const double row = 1000;
    struct mp_depths depths = create("node:2", "", "");
    assert_close(mp_depths_seconds(&depths, 1, tokens, row), 1e-3 + 200 * 8 * row / 8e9, 1e-12);
    double to_nodes = 1e-3 + 700 * row / 8e9;
    assert_close(mp_depths_seconds(&depths, 2, tokens, row), to_nodes + 1e-4 + 200 * row / 4e9,
                 1e-12);
    assert_close(mp_depths_seconds(&depths, 3, tokens, row),
                 to_nodes + 1e-4 + 500 * row / (2 * 4e9) + 1e-4 + 200 * row / 4e9, 1e-12);
    depths = create("16:node", "", "");
    assert_close(mp_depths_seconds(&depths, 3, tokens, row),
                 1e-3 + 700 * row / (2 * 8e9) + 1e-3 + 500 * row / 8e9 + 1e-4 + 200 * row / 4e9,
                 1e-12);
}

static const struct {
    const char *hierarchy, *inter, *intra, *says;
} wrong[] = {
    {"", "", "", "hiermoe hierarchy: \"\" is no list of group sizes, \"node\" or 1 .. 16 ranks"},
    {"nodes", "", "", "hierarchy: \"nodes\" is no list"},
    {"8:", "", "", "hierarchy: \"8:\" is no list"},
    {"8,4", "", "", "hierarchy: \"8,4\" is no list"},
    {"17", "", "", "hierarchy: \"17\" is no list"},
    {"0", "", "", "hierarchy: \"0\" is no list"},
    {"4:8", "", "", "groups of 4 ranks can't be divided into groups of 8"},
    {"node:3", "", "", "groups of 8 ranks can't be divided into groups of 3"},
    {"4:1", "", "", "groups of 4 ranks can't be divided into groups of 1"},
    {"4:4", "", "", "groups of 4 ranks can't be divided into groups of 4"},
    {"16:8:4:2", "", "", "hierarchy: 16:8:4:2 has more than 3 levels"},
    {"8:4", "1/2", "", "hiermoe inter: \"1/2\" is no list of 2 alpha/beta"},
    {"8", "1e-3", "", "inter: \"1e-3\" is no list of 1"},
    {"8", "1e-3/2", "", "inter: \"1e-3/2\" is no list of 1"},
    {"8", "-1e-3/1e-9", "", "inter: \"-1e-3/1e-9\" is no list of 1"},
    {"8", "nan/1e-9", "", "inter: \"nan/1e-9\" is no list of 1"},
    {"8", "1e-3/1e-9:", "", "is no list of 1"},
    {"8", "", "1e-3/1e-9", "hiermoe intra: \"1e-3/1e-9\" is no list of 2 alpha/beta"},
};

TEST_ROWS(options_say_what_is_wrong, wrong, c) {
    const struct mp_depth_texts texts = {c->hierarchy, c->inter, c->intra, 1, 1};
    struct mp_depths depths;
    assert_fails(mp_depths_create(&setting, &texts, &depths, &error), MP_EINVAL, c->says);
}

/* ---- the system ---- */

static void begin(uint64_t *random, const char *options, struct rehearsal *running) {
    rehearsal_open(running, &mp_system_hiermoe, &setting, options);
    for (int i = 0; i < RANKS * EXPERTS; i++)
        running->load->count[i] = TOP_K * (uint32_t)test_random_int(random, 0, i % 5 ? 20 : 90);
}

static void expect_levels(struct rehearsal *running, const int size[3]) {
    rehearsal_plan(running, 0, running->load);
    assert_memory_equal(running->planner.plan->level_size, size, 3 * sizeof *size);
}

/* Lines of one depth are short, all others long: from all levels to the depth in question. */
TEST_RANDOM(auto_takes_the_depth_of_least_time) {
    static const struct {
        const char *inter, *intra;
        int size[3];
    } cases[] = {
        {"0/0:0/0:0/0", "0/0:1e-3/0:1e-3/0:1e-3/0", {16}},
        {"0/0:0/0:0/0", "0/0:0/0:0/0:0/0", {16}}, /* all alike */
        {"0/0:1e-3/0:0/0", "1e-4/0:0/0:0/0:0/0", {8}},
        {"0/0:0/0:1e-3/0", "1e-4/0:1e-4/0:0/0:0/0", {8, 4}},
        {"0/0:0/0:0/0", "1e-4/0:1e-4/0:1e-4/0:0/0", {8, 4, 2}},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        AUTO(rehearsal) struct rehearsal running;
        begin(random,
              formatted("hierarchy=node:4:2 inter=%s intra=%s", cases[i].inter, cases[i].intra),
              &running);
        expect_levels(&running, (const int[3]){8, 4, 2}); /* nothing is known */
        rehearsal_step(&running, running.load);
        expect_levels(&running, cases[i].size);
    }
}

TEST_RANDOM(a_depth_has_its_levels) {
    AUTO(rehearsal) struct rehearsal running;
    assert_refusal(&mp_system_hiermoe,
                   &(const struct refusal){"experts=32 ranks=16 ranks-per-node=8",
                                           "hierarchy=8:2 depth=4",
                                           "hiermoe depth 4 needs 3 levels of groups, hierarchy "
                                           "8:2 has 2"});
    begin(random, "hierarchy=8:4:2 depth=3", &running);
    expect_levels(&running, (const int[3]){8, 4, 0});
    rehearsal_step(&running, running.load);
    expect_levels(&running, (const int[3]){8, 4, 0});
}

/* What was learnt is known again, but not where there are fewer levels. */
TEST_RANDOM(depths_survive_restarts) {
    static const char given[] = "hierarchy=8:4:2 inter=0/0:0/0:1e-3/0 intra=1e-4/0:1e-4/0:0/0:0/0";
    AUTO(rehearsal) struct rehearsal before, after, other;
    int32_t saved[4];
    begin(random, given, &before);
    begin(random, given, &after);
    begin(random, NULL, &other);
    rehearsal_step(&before, before.load);
    rehearsal_restart(&before, &after);
    expect_levels(&after, (const int[3]){8, 4, 0});
    size_t bytes = mp_system_hiermoe.save(before.planner.self, saved, sizeof saved);
    assert_in_range(bytes, 1, sizeof saved);
    assert_fails(mp_system_hiermoe.load(other.planner.self, saved, bytes, &error), MP_EFORMAT, "");
}
