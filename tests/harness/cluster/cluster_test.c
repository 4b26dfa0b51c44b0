/* Clusters: the shipped ones, what they answer, and the sentence for each way of being wrong. */
#include "harness/cluster/cluster.h"

#include <glob.h>

#include "profiler/record/record.h"
#include "tests/errors.h"
#include "tests/harness/folder.h"

TEST_END(cluster, struct mp_cluster *, mp_cluster_destroy(*it))

/* Two nodes of eight, pairs inside, two cards per node. */
static const char good[] = "description: two nodes\n"
                           "nodes: {value: 2, source: the paper}\n"
                           "ranks-per-node: {value: 8, source: the paper}\n"
                           "device:\n"
                           "  name: D\n"
                           "  peak:\n"
                           "    fp16: {value: 100e12, source: the data sheet}\n"
                           "  memory: {value: 32e9, source: the data sheet}\n"
                           "  memory-bandwidth: {value: 1e12, source: the data sheet}\n"
                           "  launch: {value: 5e-6, assumed: usual}\n"
                           "  efficiency:\n"
                           "    tokens: [4, 64, 1024]\n"
                           "    width: [512, 2048]\n"
                           "    share:\n"
                           "      - [0.05, 0.1]\n"
                           "      - [0.2, 0.4]\n"
                           "      - [0.5, {value: 0.8, source: measured}]\n"
                           "    assumed: a guess\n"
                           "levels:\n"
                           "  self:\n"
                           "    bandwidth: {value: 500e9, assumed: half the memory's}\n"
                           "    latency: {value: 0, assumed: none}\n"
                           "  pair:\n"
                           "    ranks: {value: 2, source: the paper}\n"
                           "    bandwidth: {value: 50e9, source: the paper}\n"
                           "    latency: {value: 2e-6, assumed: usual}\n"
                           "    ports: {value: 1, source: the paper}\n"
                           "    sharing: {value: fixed, source: the paper}\n"
                           "  node:\n"
                           "    bandwidth: {value: 10e9, source: the paper}\n"
                           "    latency: {value: 5e-6, assumed: usual}\n"
                           "    ports: {value: 4, source: the paper}\n"
                           "    sharing: {value: fixed, source: the paper}\n"
                           "  cluster:\n"
                           "    bandwidth: {value: 6.25e9, source: the paper}\n"
                           "    latency: {value: 1e-5, assumed: usual}\n"
                           "    ports: {value: 2, source: the paper}\n"
                           "    sharing: {value: fixed, source: the paper}\n";

static int parse(const char *text, struct mp_cluster **cluster, struct mp_error *error) {
    write_file("c.yaml", text);
    return mp_cluster_load("c.yaml", cluster, error);
}

/* The good text with `old` replaced, as the parser sees it; "" for `old` changes nothing. */
static int parse_changed(const char *old, const char *new, struct mp_cluster **cluster,
                         struct mp_error *error) {
    char text[2 * sizeof good];
    const char *at = strstr(good, old);
    assert_non_null(at);
    snprintf(text, sizeof text, "%.*s%s%s", (int)(at - good), good, new, at + strlen(old));
    return parse(text, cluster, error);
}

static struct mp_cluster *parse_good(const char *old, const char *new) {
    struct mp_cluster *cluster = NULL;
    assert_works(parse_changed(old, new, &cluster, &error));
    return cluster;
}

TEST(ranks_meet_at_the_nearest_level) {
    AUTO(cluster) struct mp_cluster *cluster = parse_good("", "");
    static const struct {
        int rank, other, level;
    } pairs[] = {{3, 3, 0}, {2, 3, 1}, {3, 2, 1}, {1, 2, 2}, {0, 7, 2}, {7, 8, 3}, {0, 15, 3}};
    for (size_t i = 0; i < sizeof pairs / sizeof *pairs; i++)
        assert_int_equal(mp_cluster_level_of(cluster, pairs[i].rank, pairs[i].other),
                         pairs[i].level);
    struct mp_topology topology = mp_cluster_topology(cluster);
    assert_numbers(topology.ranks, 16, topology.ranks_per_node, 8);
    for (int a = 0; a < 16; a++)
        for (int b = 0; b < 16; b++)
            assert_true((mp_cluster_level_of(cluster, a, b) == 3) ==
                        (mp_topology_node(&topology, a) != mp_topology_node(&topology, b)));
}

static const struct {
    const char *name, *old, *new;
    int level, gates;
    double bandwidth;
} ports[] = {
    {"four ranks on each of two cards", "", "", 3, 4, 6.25e9},
    {"two ports for a rank of a pair", "", "", 2, 16, 20e9},
    {"a rank's own link", "", "", 1, 16, 50e9},
    {"a rank alone", "", "", 0, 16, 500e9},
    {"pooled cards", "{value: 2, source: the paper}\n    sharing: {value: fixed",
     "{value: 3, source: the paper}\n    sharing: {value: pooled", 3, 2, 18.75e9},
};

TEST_EACH(ranks_share_ports, ports, row) {
    AUTO(cluster) struct mp_cluster *cluster = parse_good(row->old, row->new);
    assert_int_equal(mp_cluster_gates(cluster, row->level), row->gates);
    assert_close(mp_cluster_bandwidth(cluster, row->level), row->bandwidth, 1e-3);
}

TEST(nodes_can_be_set) {
    AUTO(cluster) struct mp_cluster *cluster = parse_good("", "");
    assert_works(mp_cluster_set(cluster, "nodes=2048", &error));
    assert_int_equal(mp_cluster_ranks(cluster), 16384);
    assert_true(cluster->nodes.assumed);
    assert_int_equal(mp_cluster_level_of(cluster, 0, 16383), 3);
    assert_int_equal(mp_cluster_gates(cluster, 3), 4096);
}

TEST(links_can_be_set) {
    AUTO(cluster) struct mp_cluster *cluster = parse_good("", "");
    assert_close(cluster->level[2].latency.value, 5e-6, 0);
    assert_works(mp_cluster_set(cluster, "levels.pair.bandwidth=25e9", &error));
    assert_works(mp_cluster_set(cluster, "levels.node.latency=0", &error));
    assert_close(mp_cluster_bandwidth(cluster, 1), 25e9, 0);
    assert_close(cluster->level[2].latency.value, 0, 0);
    assert_true(cluster->level[3].message_cost.value == 0 &&
                !cluster->level[3].message_cost.origin);
    assert_works(mp_cluster_set(cluster, "levels.cluster.message-cost=3e-6", &error));
    assert_close(cluster->level[3].message_cost.value, 3e-6, 0);
    assert_true(cluster->level[1].bandwidth.assumed && cluster->level[2].latency.assumed);
    assert_false(cluster->level[2].bandwidth.assumed);
}

static const struct {
    const char *assignment, *message;
} wrong_settings[] = {
    {"nodes=0", "--set: nodes: 0 is outside"},
    {"nodes=two", "--set: nodes: \"two\" is not"},
    {"nods=2", "did you mean \"nodes\"?"},
    {"nodes", "--set: \"nodes\" should be nodes=NUMBER"},
    {"levels.pair.bandwidth=12.5", "levels.pair.bandwidth: 12.5 is outside"},
    {"levels.pair.latency=-1", "levels.pair.latency: -1 is outside"},
    {"levels.pairs.bandwidth=1e9", "with the name of a level of c.yaml"},
    {"levels.pai.bandwidth=1e9", "with the name of a level of c.yaml"},
    {"levels.pair.ports=2", "levels.NAME.bandwidth or levels.NAME.latency"},
    {"levels.pair=2", "levels.NAME.bandwidth or levels.NAME.latency"},
};

TEST_ROWS(wrong_settings_change_nothing, wrong_settings, row) {
    AUTO(cluster) struct mp_cluster *cluster = parse_good("", "");
    assert_fails(mp_cluster_set(cluster, row->assignment, &error), MP_EINVAL, row->message);
    assert_int_equal(mp_cluster_ranks(cluster), 16);
    assert_close(mp_cluster_bandwidth(cluster, 1), 50e9, 0);
}

TEST(numbers_can_be_scaled) {
    AUTO(cluster)
    struct mp_cluster *cluster =
        parse_good("    fp16:", "    fp64: {value: 8e12, source: a}\n    fp16:");
    double launch = cluster->launch.value, bytes = mp_cluster_elementwise(cluster);
    double bandwidth = mp_cluster_bandwidth(cluster, 1), latency = cluster->level[2].latency.value;
    assert_works(mp_cluster_scale(cluster, "launch", 3, &error));
    assert_works(mp_cluster_scale(cluster, "elementwise", 0.5, &error));
    assert_works(mp_cluster_scale(cluster, "elementwise", 0.5, &error));
    assert_works(mp_cluster_scale(cluster, "overlap", 0.75, &error));
    assert_works(mp_cluster_scale(cluster, "peak", 0.25, &error));
    assert_works(mp_cluster_scale(cluster, "levels.pair.bandwidth", 0.5, &error));
    assert_works(mp_cluster_scale(cluster, "levels.node.latency", 2, &error));
    assert_works(mp_cluster_scale(cluster, "levels.rack.latency", 2, &error));
    assert_works(mp_cluster_scale(cluster, "levels.pair.message-cost", 2, &error));
    assert_true(cluster->level[1].message_cost.value == 0 &&
                !cluster->level[1].message_cost.origin);
    assert_works(mp_cluster_set(cluster, "levels.pair.message-cost=3e-6", &error));
    assert_works(mp_cluster_scale(cluster, "levels.pair.message-cost", 2, &error));
    assert_close(cluster->level[1].message_cost.value, 6e-6, 1e-15);
    assert_close(cluster->launch.value, 3 * launch, 0);
    assert_close(mp_cluster_elementwise(cluster), bytes / 4, 0);
    assert_close(mp_cluster_overlap(cluster), 0.75, 0); /* of 1, which need not be given */
    assert_true(cluster->peak[MP_FP64].value == 2e12 && cluster->peak[MP_FP16].value == 25e12);
    assert_close(mp_cluster_bandwidth(cluster, 1), bandwidth / 2, 0);
    assert_close(cluster->level[2].latency.value, 2 * latency, 0);
    assert_true(cluster->launch.assumed && cluster->elementwise.assumed);
    assert_null(cluster->peak[MP_FP8].origin); /* what is not there stays so */
}

static const struct {
    const char *key, *message;
    double factor;
} wrong_factors[] = {{"launch", "launch: 0 is no factor above 0", 0},
                     {"lunch", "lunch: should be launch, elementwise, overlap, peak", 2},
                     {"levels.node.ports",
                      "levels.NAME.bandwidth, levels.NAME.latency or levels.NAME.message-cost", 2}};

TEST_ROWS(wrong_factors_are_named, wrong_factors, row) {
    AUTO(cluster) struct mp_cluster *cluster = parse_good("", "");
    assert_fails(mp_cluster_scale(cluster, row->key, row->factor, &error), MP_EINVAL, row->message);
}

TEST(one_node_needs_no_cluster_level) {
    char text[sizeof good];
    strcpy(text, good);
    *strstr(text, "  cluster:\n") = '\0';
    strstr(text, "nodes: {value: 2")[15] = '1';
    AUTO(cluster) struct mp_cluster *cluster = NULL;
    assert_works(parse(text, &cluster, &error));
    assert_int_equal(mp_cluster_level_of(cluster, 0, 7), 2);
    assert_fails(mp_cluster_set(cluster, "nodes=2", &error), MP_EINVAL,
                 "c.yaml has no level cluster");
}

TEST(shares_are_exact_at_points) {
    static const double tokens[] = {4, 64, 1024}, width[] = {512, 2048};
    static const double share[3][2] = {{0.05, 0.1}, {0.2, 0.4}, {0.5, 0.8}};
    AUTO(cluster) struct mp_cluster *cluster = parse_good("", "");
    for (int i = 0; i < 3; i++)
        for (int j = 0; j < 2; j++)
            assert_true(mp_cluster_share(cluster, MP_FORWARD, tokens[i], width[j]) == share[i][j]);
    assert_close(mp_cluster_share(cluster, MP_FORWARD, 16, 512), 0.1,
                 1e-12); /* halfway in logarithms */
    assert_close(mp_cluster_share(cluster, MP_FORWARD, 64, 1024), sqrt(0.2 * 0.4), 1e-12);
    assert_close(mp_cluster_share(cluster, MP_FORWARD, 256, 1024),
                 sqrt(sqrt(0.2 * 0.4 * 0.5 * 0.8)), 1e-12);
    assert_close(mp_cluster_share(cluster, MP_FORWARD, 1e6, 1e6), 0.8, 0); /* at the edge */
    assert_close(mp_cluster_share(cluster, MP_FORWARD, 1e6, 1), 0.5, 0);
    assert_close(mp_cluster_share(cluster, MP_FORWARD, 1, 512), 0.05 / 4,
                 1e-12); /* in proportion */
}

static void count_numbers(void *context, const char *place, UNUSED const char *unit,
                          const struct mp_quantity *quantity) {
    static const char table[] = "device.efficiency.backward.";
    *(int *)context += !strcmp(place, "levels.self.bandwidth") && quantity->value == 500e9;
    *(int *)context += !strcmp(place, "levels.pair.bandwidth") && quantity->value == 50e9;
    if (strncmp(place, table, sizeof table - 1) != 0)
        return;
    ++*(int *)context;
    if (!strcmp(place + sizeof table - 1, "64.512"))
        assert_true(quantity->value == 0.03);
}

/* A second table is that of backward; without one the first is both directions'. */
TEST(gradients_may_have_shares_of_their_own) {
    struct mp_cluster *cluster = parse_good("", "");
    assert_true(mp_cluster_share(cluster, MP_BACKWARD, 64, 2048) == 0.4);
    mp_cluster_destroy(cluster);
    cluster = parse_good("    assumed: a guess\n", "    assumed: a guess\n"
                                                   "    backward:\n"
                                                   "      - [0.01, 0.02]\n"
                                                   "      - [0.03, 0.04]\n"
                                                   "      - [0.06, 0.07]\n");
    assert_true(mp_cluster_share(cluster, MP_FORWARD, 64, 2048) == 0.4);
    assert_true(mp_cluster_share(cluster, MP_BACKWARD, 64, 2048) == 0.04);
    assert_true(mp_cluster_share(cluster, MP_BACKWARD, 4, 512) == 0.01);
    assert_string_equal(cluster->efficiency.share[MP_BACKWARD][2][1].origin, "a guess");
    double forward, backward;
    mp_cluster_product_seconds(cluster, MP_FP16, MP_FORWARD, 1024, 2048, 2048, &forward, NULL);
    mp_cluster_product_seconds(cluster, MP_FP16, MP_BACKWARD, 1024, 2048, 2048, &backward, NULL);
    assert_close((backward - 5e-6) / (forward - 5e-6), 0.8 / 0.07, 1e-9);
    int entries = 0;
    mp_cluster_each(cluster, count_numbers, &entries);
    assert_int_equal(entries, 8); /* six shares, two levels */
    mp_cluster_destroy(cluster);
}

/* Of products in halves that go forward. */
static double product_seconds(const struct mp_cluster *cluster, double rows, double inner,
                              double columns) {
    double seconds;
    assert_works(mp_cluster_product_seconds(cluster, MP_FP16, MP_FORWARD, rows, inner, columns,
                                            &seconds, &error));
    return seconds;
}

TEST(products_cost_launch_and_the_longer_of_two) {
    AUTO(cluster) struct mp_cluster *cluster = parse_good("", "");
    double seconds;
    assert_close(product_seconds(cluster, 1024, 2048, 4096),
                 5e-6 + 2.0 * 1024 * 2048 * 4096 / 80e12, 1e-15);
    /* Few rows: reading the weights takes longer than computing at 0.2 of the peak. */
    assert_close(product_seconds(cluster, 64, 512, 1 << 20),
                 5e-6 + 2.0 * 64 * 512 * (1 << 20) / 20e12, 1e-12);
    cluster->memory_bandwidth.value = 1e11;
    assert_close(product_seconds(cluster, 64, 512, 1 << 20),
                 5e-6 + 2.0 * (64 * 512 + 576.0 * (1 << 20)) / 1e11, 1e-12);
    cluster->memory_bandwidth.value = 1e15; /* below the table's least: */
    assert_close(product_seconds(cluster, 1, 512, 512), product_seconds(cluster, 4, 512, 512),
                 1e-18);
    assert_close(product_seconds(cluster, 0, 512, 512), 0, 0);
    assert_close(product_seconds(cluster, 512, 0, 512), 0, 0);
    assert_close(product_seconds(cluster, 512, 512, 0), 0, 0);
    assert_true(product_seconds(cluster, 1, 1, 1) > 5e-6);
    assert_sentence(
        mp_cluster_product_seconds(cluster, MP_BF16, MP_FORWARD, 1, 1, 1, &seconds, &error),
        MP_EINVAL,
        "c.yaml:7: peak: gives none for bf16; give it, or take another (predict.precision)");
}

static const struct {
    const char *name, *old, *new, *message;
} malformed[] = {
    {"plain number", "nodes: {value: 2, source: the paper}", "nodes: 2",
     "c.yaml:2: nodes: should be {value: ..., source: \"whose\"} or {value: ..., assumed: "
     "\"why\"}"},
    {"no origin", "{value: 2, source: the paper}", "{value: 2}",
     "c.yaml:2: nodes: has neither source nor assumed; give source: whose number it is, or "
     "assumed: why"},
    {"two origins", "{value: 2, source: the paper}", "{value: 2, source: a, assumed: b}",
     "c.yaml:2: nodes: has both source and assumed; give source: whose number it is, or assumed: "
     "why"},
    {"empty origin", "{value: 2, source: the paper}", "{value: 2, source: ''}",
     "c.yaml:2: source: should be some text"},
    {"no value", "{value: 8, source: the paper}", "{source: the paper}",
     "c.yaml:3: value: not given; ranks-per-node needs a value: the number"},
    {"unknown key",
     "nodes:", "nods:", "c.yaml:2: unknown option \"nods\" for a cluster; did you mean \"nodes\"?"},
    {"unknown key of the device", "  memory:", "  memry:",
     "c.yaml:8: unknown option \"memry\" for the device; did you mean \"memory\"?"},
    {"unknown key of a level", "    latency: {value: 2e-6", "    latencies: {value: 2e-6",
     "c.yaml:26: unknown option \"latencies\" for a level; did you mean \"latency\"?"},
    {"unknown key of a value", "value: 32e9, source", "value: 32e9, sorce",
     "c.yaml:8: unknown option \"sorce\" for memory; did you mean \"source\"?"},
    {"unknown precision",
     "fp16:", "fp17:", "c.yaml:7: unknown option \"fp17\" for the peak; did you mean \"fp16\"?"},
    {"missing key", "  launch: {value: 5e-6, assumed: usual}\n", "",
     "c.yaml:5: launch: not given; the device needs a number 0 .. 1 s: fixed cost of a kernel"},
    {"no description", "description: two nodes\n", "",
     "c.yaml:1: description: not given; a cluster needs some text"},
    {"zero bandwidth", "value: 6.25e9", "value: 0", "c.yaml:35: bandwidth: 0 is outside"},
    {"bandwidth in GB/s", "value: 50e9", "value: 50", "c.yaml:25: bandwidth: 50 is outside"},
    {"negative latency", "value: 1e-5", "value: -1e-5", "c.yaml:36: latency: -1e-5 is outside"},
    {"not a number", "value: 100e12", "value: fast", "c.yaml:7: fp16: \"fast\" is not"},
    {"infinite peak", "value: 100e12", "value: inf", "c.yaml:7: fp16: "},
    {"peak of nothing", "value: 100e12", "value: nan", "c.yaml:7: fp16: "},
    {"no nodes", "value: 2,", "value: 0,", "c.yaml:2: nodes: 0 is outside"},
    {"half a rank", "value: 8,", "value: 7.5,",
     "c.yaml:3: ranks-per-node: 7.5 is not a whole number"},
    {"cards that don't divide the ranks", "ports: {value: 2,", "ports: {value: 3,",
     "c.yaml:37: ports: 3 fixed ports can't be shared by 8 ranks: one number should divide the "
     "other, or sharing be pooled"},
    {"sharing without ports", "    ports: {value: 1, source: the paper}\n", "",
     "c.yaml:23: level pair: ports is not given"},
    {"unknown sharing", "value: fixed", "value: fixd", "c.yaml:28: sharing: \"fixd\" is not"},
    {"a value that is a list", "value: 2,", "value: [2],",
     "c.yaml:2: nodes: should be one value: a number 1 .. 1048576"},
    {"tokens that don't ascend", "[4, 64, 1024]", "[4, 64, 8]",
     "c.yaml:12: tokens: 8 follows 64; they should ascend"},
    {"no tokens", "[4, 64, 1024]", "[]",
     "c.yaml:12: tokens: should be a list of 1 to 32, each a number"},
    {"row too many", "[4, 64, 1024]", "[4, 64]",
     "c.yaml:15: share: should be a list of 2 lists, one per token count"},
    {"short row", "[0.2, 0.4]", "[0.2]",
     "c.yaml:16: share: should be a list of 2 numbers, one per width"},
    {"share above the peak", "0.4", "1.4", "c.yaml:16: share: 1.4 is outside"},
    {"share of nothing", "[0.05,", "[0,", "c.yaml:15: share: 0 is outside"},
    {"short table of gradients", "    assumed: a guess\n",
     "    assumed: a guess\n    backward: [[1, 1]]\n",
     "c.yaml:19: backward: should be a list of 3 lists, one per token count"},
    {"table without origin", "    assumed: a guess\n", "",
     "c.yaml:12: efficiency: has neither source nor assumed; give source: whose number it is, or "
     "assumed: why"},
    {"group that splits nodes", "ranks: {value: 2", "ranks: {value: 3",
     "c.yaml:23: level pair: should go from near to far: self, groups that each hold several "
     "whole ones before them, node (8 ranks), cluster"},
    {"first level is not self", "  self:\n", "  alone:\n    ranks: {value: 2, source: a}\n",
     "c.yaml:20: level alone: ports is not given, as in {value: 1, assumed: \"why\"}"},
    {"level without ranks", "    ranks: {value: 2, source: the paper}\n", "",
     "c.yaml:23: level pair: ranks is not given; only self, node and cluster do without"},
    {"node with ranks", "  node:\n", "  node:\n    ranks: {value: 8, source: a}\n",
     "c.yaml:30: ranks: level node has those that its name says; leave it out"},
    {"self with ports", "  self:\n", "  self:\n    ports: {value: 8, source: a}\n",
     "c.yaml:20: level self: has no ports, no sharing, no rank-bandwidth and no message-cost; "
     "leave them out"},
    {"self with a cost of messages", "  self:\n",
     "  self:\n    message-cost: {value: 1e-6, source: a}\n",
     "c.yaml:20: level self: has no ports"},
    {"not all joined", "  cluster:\n", "  rack:\n    ranks: {value: 16, source: a}\n",
     "c.yaml:34: level rack: should go from near to far"},
    {"a device of nothing", "  peak:\n    fp16: {value: 100e12, source: the data sheet}\n",
     "  peak: {}\n", "c.yaml:6: peak: should be a mapping: fp64, fp32, tf32, bf16, fp16, fp8"},
    {"more than all beside a transfer", "  efficiency:\n",
     "  overlap: {value: 1.5, source: measured}\n  efficiency:\n",
     "c.yaml:11: overlap: 1.5 is outside 0 .. 1"},
    {"attention at nothing", "  efficiency:\n",
     "  attention: {value: 0, source: measured}\n  efficiency:\n",
     "c.yaml:11: attention: 0 is outside"},
    {"update in other units", "  efficiency:\n",
     "  update: {value: 12.5, source: measured}\n  efficiency:\n",
     "c.yaml:11: update: 12.5 is outside"},
    {"plain number that may be left out", "  efficiency:\n", "  elementwise: 3e11\n  efficiency:\n",
     "c.yaml:11: elementwise: should be {value"},
    {"no mapping", "description: two nodes\n", "- ", "c.yaml:"},
};

TEST(rows_are_well_formed) {
    assert_works(mp_options_check(mp_cluster_rows, sizeof(struct mp_cluster), "a cluster", &error));
}

TEST_EACH(malformed_files_are_named, malformed, row) {
    struct mp_cluster *cluster = NULL;
    struct mp_error error = {0};
    int code = parse_changed(row->old, row->new, &cluster, &error);
    assert_null(cluster);
    assert_true(code == MP_EINVAL || code == MP_EFORMAT);
    error.text[strnlen(row->message, sizeof error.text - 1)] = '\0';
    assert_string_equal(error.text, row->message);
}

TEST(all_ranks_are_joined) {
    struct mp_cluster *cluster = NULL;
    char text[sizeof good];
    strcpy(text, good);
    *strstr(text, "  cluster:\n") = '\0';
    assert_sentence(parse(text, &cluster, &error), MP_EINVAL,
                    "c.yaml:20: levels: cluster is missing, so not all ranks are joined");
    *strstr(text, "  node:\n") = '\0';
    strstr(text, "nodes: {value: 2")[15] = '1';
    assert_sentence(parse(text, &cluster, &error), MP_EINVAL,
                    "c.yaml:20: levels: node is missing, so not all ranks are joined");
}

/* What calibration measures and data sheets do not say. */
TEST(measured_figures_have_stand_ins) {
    AUTO(cluster) struct mp_cluster *cluster = parse_good("", "");
    assert_true(mp_cluster_elementwise(cluster) == 1e12);
    assert_true(mp_cluster_update(cluster) == 1e12);
    assert_true(mp_cluster_overlap(cluster) == 1);
    assert_null(cluster->attention.origin);
    mp_cluster_destroy(cluster);

    cluster = parse_good("  launch:", "  elementwise: {value: 3e11, source: measured}\n"
                                      "  update: {value: 2e11, source: measured}\n"
                                      "  attention: {value: 0.25, source: measured}\n"
                                      "  overlap: {value: 0, source: measured}\n"
                                      "  launch:");
    assert_true(mp_cluster_elementwise(cluster) == 3e11);
    assert_true(mp_cluster_update(cluster) == 2e11);
    assert_true(mp_cluster_overlap(cluster) == 0);
    assert_true(cluster->attention.value == 0.25);
}

/* No beginning of a file is taken for a whole one, and none does harm. */
TEST(cut_files_are_refused) {
    const size_t most = sizeof good - 2; /* but its last line break */
    for (size_t size = 0; size < most; size++) {
        struct mp_cluster *cluster = NULL;
        struct mp_error error = {0};
        write_bytes("c.yaml", good, size);
        int code = mp_cluster_load("c.yaml", &cluster, &error);
        assert_true(code < 0);
        assert_null(cluster);
        assert_true(*error.text);
    }
}

struct visited {
    int count, assumed;
    const char *file;
};

static void check_quantity(void *context, const char *place, const char *unit,
                           const struct mp_quantity *quantity) {
    struct visited *visited = context;
    if (!quantity->origin || strlen(quantity->origin) < 8 || quantity->line < 1)
        fail_msg("%s: %s has no origin", visited->file, place);
    assert_true(quantity->word || (isfinite(quantity->value) && quantity->value > 0));
    assert_non_null(unit);
    visited->count++;
    visited->assumed += quantity->assumed;
}

/* The papers' figures: ranks, a peak, and bytes/s that a node's ranks have between nodes. */
static const struct {
    const char *name;
    int nodes, ranks;
    enum mp_precision precision;
    double peak, memory, node_bandwidth;
} shipped[] = {
    {"hecate-a", 4, 32, MP_FP16, 125e12, 32e9, 12.5e9},
    {"hecate-b", 4, 32, MP_FP16, 312e12, 40e9, 50e9},
    {"swiftmoe", 16, 16, MP_FP16, 312e12, 80e9, 12.5e9},
    {"fastermoe-johnny", 2, 16, MP_FP16, 112e12, 32e9, 6.25e9},
    {"fastermoe-trevor", 16, 64, MP_FP16, 125e12, 32e9, 12.5e9},
    {"smartmoe-blinky", 8, 64, MP_FP16, 112e12, 32e9, 6.25e9},
    {"smartmoe-pinky", 16, 64, MP_FP16, 125e12, 32e9, 12.5e9},
    {"smartmoe-inky", 8, 64, MP_BF16, 312e12, 40e9, 25e9},
    {"laer-moe", 4, 32, MP_BF16, 312e12, 80e9, 88.9539e9},
    {"hiermoe", 4, 32, MP_BF16, 154.8e12, 48e9, 25e9},
    {"tutel", 16, 128, MP_FP16, 312e12, 80e9, 200e9},
    {"hetumoe", 8, 64, MP_FP16, 130e12, 24e9, 12.5e9},
    {"moetuner-h100", 1, 4, MP_BF16, 1978e12, 160e9, 400e9},
    {"moetuner-h200", 2, 4, MP_BF16, 3956e12, 564e9, 400e9},
    {"h100", 4, 32, MP_FP8, 1979e12, 80e9, 400e9},
    {"h200", 4, 32, MP_BF16, 989e12, 141e9, 400e9},
    {"b200", 4, 32, MP_BF16, 2250e12, 180e9, 400e9},
};

static struct mp_cluster *load_shipped(const char *name) {
    char path[4096];
    struct mp_cluster *cluster = NULL;
    snprintf(path, sizeof path, "%s/%s.yaml", CLUSTERS_FOLDER, name);
    assert_works(mp_cluster_load(path, &cluster, &error));
    return cluster;
}

TEST(all_shipped_clusters_are_known) {
    glob_t found;
    assert_int_equal(glob(CLUSTERS_FOLDER "/*.yaml", 0, NULL, &found), 0);
    assert_int_equal(found.gl_pathc, sizeof shipped / sizeof *shipped);
    globfree(&found);
}

TEST_EACH(shipped_clusters_say_where_every_number_is_from, shipped, row) {
    AUTO(cluster) struct mp_cluster *cluster = load_shipped(row->name);
    struct visited visited = {.file = row->name};
    mp_cluster_each(cluster, check_quantity, &visited);
    assert_in_range(visited.count, 45, 100);
    assert_in_range(visited.assumed, 1, visited.count - 1);
    assert_int_equal((int)cluster->nodes.value, row->nodes);
    assert_int_equal(mp_cluster_ranks(cluster), row->ranks);
    assert_close(cluster->peak[row->precision].value, row->peak, 1);
    assert_close(cluster->memory.value, row->memory, 1);
    int last = cluster->levels - 1;
    assert_close(mp_cluster_bandwidth(cluster, last) * mp_cluster_gates(cluster, last) / row->nodes,
                 row->node_bandwidth, 1);
}

/* Farther is never faster nor sooner, more work never takes less time. */
TEST_EACH(shipped_clusters_are_sensible, shipped, row) {
    AUTO(cluster) struct mp_cluster *cluster = load_shipped(row->name);
    for (int level = 1; level < cluster->levels; level++) {
        assert_true(mp_cluster_bandwidth(cluster, level) * mp_cluster_gates(cluster, level) <=
                    mp_cluster_bandwidth(cluster, level - 1) *
                        mp_cluster_gates(cluster, level - 1));
        assert_true(cluster->level[level].latency.value >= cluster->level[level - 1].latency.value);
    }
    double last = 0, seconds, rows = 1;
    for (int step = 0; step < 52; step++, rows *= 1.25) {
        mp_cluster_product_seconds(cluster, row->precision, MP_FORWARD, rows, 1024, 4096, &seconds,
                                   NULL);
        assert_true(seconds >= last * (1 - 1e-12));
        last = seconds;
    }
}

TEST_GROUP(enter_folder, leave_folder);
