/* A cluster and a job small enough to work costs out by hand, for tests. */
#pragma once

#include "harness/predict/cost.h"
#include "reference/model/model.h"
#include "tests/harness/predict/ends.h"
#include "tests/harness/predict/machine.h"

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
    struct test_machine machine = {1, 2, .peak = 1e12, .memory = 8e9, .memory_bandwidth = 1e9};
    machine.launch = machine.latency = 1e-6;
    machine.bandwidth = 2e8;
    machine.overlap = 1;
    machine.efficiency = efficiency;
    machine.device = more;
    return test_cluster(&machine);
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

static inline struct mp_model_shape shape_of(const struct mp_job *job) {
    return (struct mp_model_shape){.layers = job->layers,
                                   .width = job->width,
                                   .heads = job->heads,
                                   .experts = job->experts,
                                   .expert_width = job->expert_width,
                                   .sequence = job->sequence,
                                   .top_k = mp_job_top_k(job)};
}

/* What costs are asked of, options as they are by default; the cluster is its own. */
struct work {
    struct mp_cluster *cluster;
    struct mp_job job;
    struct mp_predict_options options;
};

TEST_END(work, struct work, mp_cluster_destroy(it->cluster))

static inline struct work work_on(struct mp_cluster *cluster, struct mp_job job) {
    struct work work = {.cluster = cluster, .job = job};
    assert_works(mp_options_set_defaults(mp_predict_options_table, &work.options, &error));
    return work;
}

static inline struct mp_costs *costs_of(const struct work *work) {
    struct mp_costs *costs = NULL;
    assert_works(mp_costs_create(work->cluster, &work->job, &work->options, &costs, &error));
    return costs;
}
