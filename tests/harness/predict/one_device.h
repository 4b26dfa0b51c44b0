/* A cluster and a job small enough to work costs out by hand, for tests. */
#ifndef MOEPERF_TESTS_HARNESS_PREDICT_ONE_DEVICE_H
#define MOEPERF_TESTS_HARNESS_PREDICT_ONE_DEVICE_H

#include "harness/predict/cost.h"
#include "tests/errors.h"
#include "tests/harness/predict/ends.h"

/* What products reach of the peak: half, so that they wait for memory; or a ten-thousandth of the
 * root of rows times the fourth root of width, half of that where they give gradients, with which
 * they wait for operations. */
#define ALWAYS_HALF "    tokens: [1]\n    width: [1]\n    share: [[0.5]]\n"
#define BY_ROOTS                                                                                   \
    "    tokens: [1, 10000]\n    width: [1, 10000]\n    share: [[0.0001, 0.001], [0.01, 0.1]]\n"   \
    "    backward: [[0.00005, 0.0005], [0.005, 0.05]]\n"

/* One node of two ranks; products reach a share of 1e12 operations/s; 1e9 bytes/s of memory; a
 * microsecond for a launch.  `more` goes into the device: "" or lines of two blanks and a key. */
static inline struct mp_cluster *device_with(const char *efficiency, const char *more) {
    char text[2048];
    struct mp_cluster *cluster = NULL;
    int size = snprintf(text, sizeof text,
                        "description: by hand\n"
                        "nodes: {value: 1, source: a test}\n"
                        "ranks-per-node: {value: 2, source: a test}\n"
                        "device:\n"
                        "  name: D\n"
                        "  peak:\n"
                        "    fp32: {value: 0.5e12, source: a test}\n"
                        "    fp16: {value: 1e12, source: a test}\n"
                        "  memory: {value: 8e9, source: a test}\n"
                        "  memory-bandwidth: {value: 1e9, source: a test}\n"
                        "  launch: {value: 1e-6, source: a test}\n"
                        "%s"
                        "  efficiency:\n"
                        "%s"
                        "    source: a test\n"
                        "levels:\n"
                        "  self:\n"
                        "    bandwidth: {value: 5e8, source: a test}\n"
                        "    latency: {value: 0, source: a test}\n"
                        "  node:\n"
                        "    bandwidth: {value: 2e8, source: a test}\n"
                        "    latency: {value: 1e-6, source: a test}\n"
                        "    ports: {value: 1, source: a test}\n"
                        "    sharing: {value: fixed, source: a test}\n",
                        more, efficiency);
    assert_works(mp_cluster_parse("one.yaml", text, (size_t)size, &cluster, &error));
    return cluster;
}

static inline struct mp_cluster *one_device(const char *more) {
    return device_with(ALWAYS_HALF, more);
}

/* Two layers of eight experts, D = 64, H = 4, F = 128, S = 32, top-2, two sequences for two ranks:
 * N = 32 tokens. */
static inline struct mp_job small_job(void) {
    return (struct mp_job){.layers = 2,
                           .width = 64,
                           .heads = 4,
                           .experts = 8,
                           .expert_width = 128,
                           .sequence = 32,
                           .gate = mp_gate_find("gshard"),
                           .top_k = MP_AUTO,
                           .batch = 2,
                           .seed = 7};
}

static inline struct mp_predict_options default_options(void) {
    struct mp_predict_options options;
    assert_works(mp_options_set_defaults(mp_predict_options_table, &options, &error));
    return options;
}

static inline struct mp_costs *create_costs(const struct mp_cluster *cluster,
                                            const struct mp_job *job,
                                            const struct mp_predict_options *options) {
    struct mp_costs *costs = NULL;
    assert_works(mp_costs_create(cluster, job, options, &costs, &error));
    return costs;
}

#endif
