/* Predicted jobs for tests: small ones on two nodes of a ready-made cluster, in a folder of their
 * own. */
#pragma once

#include "baselines/systems.h"
#include "harness/predict/job.h"
#include "tests/errors.h"
#include "tests/harness/folder.h"
#include "tests/harness/predict/ends.h"

static const char CLUSTERS[] = MOEPERF_SOURCE "/harness/cluster/clusters";
static struct mp_systems systems;

/* All that is given, up to a NULL. */
#define set(job, ...) set_each(job, (const char *const[]){__VA_ARGS__, NULL})
static inline void set_each(struct mp_predict_job *job, const char *const assignment[]) {
    for (; *assignment; assignment++)
        assert_works(mp_predict_job_set(job, *assignment, &systems, &error));
}

/* The ready-made one that the job names, changed as it says. */
static inline struct mp_cluster *read_cluster(struct mp_predict_job *job) {
    struct mp_cluster *cluster;
    assert_works(mp_predict_job_cluster(job, formatted("%s/%s.yaml", CLUSTERS, job->cluster),
                                        &cluster, &error));
    return cluster;
}

/* With a system, and whatever else is set before its cluster is read. */
#define make_job(job, ...) make_job_with(job, (const char *const[]){__VA_ARGS__, NULL})
static inline struct mp_cluster *make_job_with(struct mp_predict_job *job,
                                               const char *const settings[]) {
    assert_works(mp_predict_job_create(job, &error));
    set(job, "cluster=fastermoe-johnny", "change=nodes=2", "layers=3", "width=64", "heads=4",
        "experts=32", "expert-width=128", "sequence=64", "iterations=7", "nodes=5",
        "loads=zipf exponent=0.5 seed=11");
    set_each(job, settings);
    struct mp_cluster *cluster = read_cluster(job);
    assert_int_equal(job->file.job.ranks, mp_cluster_ranks(cluster));
    assert_int_equal(job->file.job.nodes, 0); /* the cluster's, whatever was said */
    job->file.job.batch = 2 * job->file.job.ranks;
    return cluster;
}

static inline int enter(void **state) {
    return enter_folder(state) || mp_systems_register_all(&systems, NULL);
}

struct seen {
    int steps, stop_after;
    double seconds[64];
    struct mp_prediction sum; /* field by field */
    uint64_t loads;           /* hash of all that the sink was told */
    int64_t load_routes, spans;
    /* Of spans, loads and steps: one more than the last iteration, and how often another came. */
    int64_t next[3], changes[3];
};

static inline void see_iteration(struct seen *seen, int who, int64_t iteration) {
    seen->changes[who] += seen->next[who] != iteration + 1;
    seen->next[who] = iteration + 1;
}

static inline bool see_step(void *context, const struct mp_prediction *prediction) {
    struct seen *seen = context;
    see_iteration(seen, 2, prediction->iteration);
    seen->seconds[seen->steps++] = prediction->seconds;
    for (const struct mp_named_number *row = mp_prediction_means; row->name; row++)
        *(double *)((char *)&seen->sum + row->offset) += mp_named_value(row, prediction);
    seen->sum.routes += prediction->routes;
    seen->sum.dropped += prediction->dropped;
    seen->sum.copies += prediction->copies;
    for (int stage = 0; stage < MP_STAGES; stage++)
        seen->sum.bytes[stage] += prediction->bytes[stage];
    seen->sum.exchanged_bytes += prediction->exchanged_bytes;
    return seen->steps != seen->stop_after;
}

static inline void see_load(void *context, int rank, int64_t iteration, int layer, int experts,
                            const uint32_t routes[], UNUSED const uint32_t dropped[]) {
    struct seen *seen = context;
    see_iteration(seen, 1, iteration);
    uint64_t place = (uint64_t)rank * 31 + (uint64_t)iteration * 1009 + (uint64_t)layer * 65537;
    for (int e = 0; e < experts; e++) {
        seen->loads += (place * 64 + (uint64_t)e + 1) * 0x9e3779b97f4a7c15u * (routes[e] + 1);
        seen->load_routes += routes[e];
    }
}

static inline void see_span(void *context, UNUSED int rank, UNUSED enum mp_predict_stream stream,
                            const struct mp_span *span) {
    see_iteration(context, 0, span->iteration);
    ((struct seen *)context)->spans++;
}

static inline void watch_job(const char *system, int stop_after, struct seen *seen,
                             struct mp_prediction_summary *summary) {
    AUTO(job) struct mp_predict_job job;
    AUTO(cluster)
    struct mp_cluster *cluster =
        make_job(&job, formatted("system=%s", system), "loads=w6 period=2 heat=0.4 seed=5");
    *seen = (struct seen){.stop_after = stop_after};
    const struct mp_predict_sink sink = {.context = seen, .span = see_span, .load = see_load};
    const struct mp_predict_watch watch = {seen, see_step, NULL};
    assert_works(mp_predict_job_run(&job, cluster, &sink, &watch, summary, &error));
}
