/* Predicted jobs: one system on one cluster under one workload, from beginning to end.
 *
 * What a measured job is for the trainer (reference/trainer/job.h), with the machine and the loads
 * named beside it. */
#pragma once

#include <signal.h>

#include "harness/predict/known_bounds.h"
#include "harness/predict/predictor.h"
#include "harness/workload/trace.h"

/* Who carries a job of a suite out; here it is the predictor in any case. */
enum mp_job_executor { MP_EXECUTOR_MEASURED, MP_EXECUTOR_PREDICTED };

/* In suites: `executor: predicted`, `cluster:`, `loads:` and `predict:` beside a job's options. */
struct mp_predict_job {
    struct mp_job_file file;    /* ranks, nodes, ranks_per_node are set from the cluster */
    int executor;               /* enum mp_job_executor */
    char cluster[MP_TEXT_SIZE]; /* name of a shipped one, or a file */
    char change[MP_TEXT_SIZE];  /* "" or words of mp_cluster_set: "nodes=2" */
    char loads[MP_TEXT_SIZE];   /* a trace file, of a format that its name's ending suggests; or a
                                   generator and its options in one line: "dynamics seed=3"; what
                                   the job and cluster know (layers, experts, ranks, tokens, top-k)
                                   need not be said; "": what the job's `routing` replays */
    bool fit;                   /* a trace of another shape is folded or split to the job's
                                   (harness/workload/reshape.h); otherwise, and with other experts
                                   per token in any case, that is an error */
    int64_t first_iteration;    /* number of the first, as planners count: those that look every
                                   hundredth do so where it is full */
    struct mp_predict_options options;
};

/* What predictions are put together by: figures whose means are taken, and those that are added up,
 * as `bytes` are. */
extern const struct mp_named_number mp_prediction_means[], mp_prediction_sums[];

/* All iterations put together: medians over iterations of times, sums of counts. */
struct mp_prediction_summary {
    int64_t iterations;
    double seconds_median, seconds_mean, tokens_per_second;
    double seconds_p99;        /* the smallest that at least 99 % of iterations do not exceed */
    struct mp_prediction mean; /* field by field; counts and bytes are sums */
    struct mp_memory memory;   /* of the fullest rank */
    int memory_rank;
    int shards;     /* into which every expert was cut; 1: none was */
    bool as_chosen; /* every route went to the expert that the loads say */
    bool out_of_memory;
};

/* Defaults. */
int mp_predict_job_create(struct mp_predict_job *job, struct mp_error *error);
void mp_predict_job_destroy(struct mp_predict_job *job); /* accepts a zeroed one */
MP_END(predict_job, struct mp_predict_job, mp_predict_job_destroy(it))

/* The single values beside a job's: executor, cluster, change, loads, fit. */
extern const struct mp_option mp_predict_job_options[];

/* Applies a mapping: values of mp_predict_job_options, the mapping `predict:` (options of
 * mp_predict_options_table), and everything that mp_job_apply takes.  Can be called several times;
 * the errors are mp_job_apply's. */
int mp_predict_job_apply(struct mp_predict_job *job, const struct mp_yaml *mapping,
                         const char *path, const struct mp_systems *systems,
                         struct mp_error *error);
/* One "key=value"; "predict.key=value" and "options.key=value" go to those tables. */
int mp_predict_job_set(struct mp_predict_job *job, const char *assignment,
                       const struct mp_systems *systems, struct mp_error *error);
/* MP_EINVAL for what a prediction takes from its cluster, has an option of its own for, or only
 * training reads, which would be in vain; `flag` is who says "key=value" or the key. */
int mp_predict_job_check_setting(const char *flag, const char *assignment, struct mp_error *error);
/* Whether a serving engine recorded loads, by their source. */
bool mp_predict_loads_are_served(const char *source);
/* Whether an option of predictions counts in the job's mode; in the others it is refused unless it
 * has its usual value. */
bool mp_predict_option_counts(const struct mp_job *job, const char *name);
/* Reads the cluster, whose file is `path` (harness/suite finds it), applies `change`, and gives the
 * job its ranks.  mp_cluster_destroy. */
int mp_predict_job_cluster(struct mp_predict_job *job, const char *path,
                           struct mp_cluster **cluster, struct mp_error *error);

/* Takes what the job leaves open from loads that are in a file: layers, experts, gate and top-k (by
 * experts per token, if they say), micro-batches; of a known model whose loads say no more than
 * layers and experts, its published sizes; and unless they are to be fitted, or are of a whole run,
 * sequence and batch for as many tokens, where ranks and micro-batches divide them (less the rest
 * where loads say no sources, and are split).  Does nothing for generators.  Errors: those of
 * reading the first block. */
int mp_predict_job_adopt(struct mp_predict_job *job, const struct mp_cluster *cluster,
                         struct mp_error *error);

/* What can be said without predicting: sizes as mp_job_check sees them but for what only training
 * needs, what its mode would ignore, injected delays, costs, the loads' shape; and last, as
 * MP_EREFUSED, what the system can't do. The job has its ranks. */
int mp_predict_job_check(const struct mp_predict_job *job, const struct mp_cluster *cluster,
                         struct mp_error *error);

/* The tables whose rows may decide what is compared, with their values; of measured jobs one, those
 * of predictions mean nothing to them.  Returns how many. */
int mp_predict_job_deciding(const struct mp_predict_job *job, bool is_predicted,
                            struct mp_option_group group[3]);
/* A digest of all that decides but the loads: the model, the gate, ranks and nodes, and every
 * option whose row says so.  Jobs are compared where it and mp_predict_job_workload are equal. */
uint64_t mp_predict_job_setting(const struct mp_predict_job *job, bool is_predicted);

/* The job as a mapping that mp_predict_job_apply reads back, every option listed: a text to be
 * freed; of a measured job, as ranks read it (mp_job_write).  NULL behind an error. */
int mp_predict_job_text(const struct mp_predict_job *job, bool is_predicted, char **text,
                        struct mp_error *error);

/* Such a text of a job that says its system and gate alone, as far as they are known
 * (mp_gate_defaults). */
char *mp_predict_job_defaults(const struct mp_systems *systems, const char *system,
                              const char *gate, bool is_predicted);

/* Loads of the job as a stream of its shape: opens the trace or starts the generator, and fits it.
 * `cluster` gives the ranks.  With fit, a trace that has one micro-batch per iteration stays so:
 * its loads stand for each of the job's.  Loads of one source (all ranks together), or of a whole
 * run, are split among the ranks and scaled to the job's tokens without it.  MP_EINVAL where a
 * trace's shape is not the job's and fit is off: both shapes and the flag are named; the errors of
 * trace.h, generate.h and reshape.h. */
int mp_predict_job_loads(const struct mp_predict_job *job, const struct mp_cluster *cluster,
                         struct mp_trace_stream **stream, struct mp_error *error);

/* What loads are called beside results: `loads`, or mp_job_workload without. */
const char *mp_predict_job_workload(const struct mp_predict_job *job, char *buffer, size_t size);

/* Told after every iteration; returning false stops with what there is. */
struct mp_predict_watch {
    void *context;
    bool (*step)(void *context, const struct mp_prediction *prediction);
    /* Predictions have their bound where it says something of the system (bound.h) and takes about
     * a second at most; borrowed.  NULL: they don't. */
    struct mp_known_bounds *bounds;
};

/* Predicts every iteration of the loads, at most file.job.iterations of them.  sink and watch may
 * be NULL.  Iterations are called what the loads call them.  Memory for loads is that of one
 * iteration.  Errors: those of the loads and of
 * predictor.h; MP_EINVAL for loads with other numbers of routes than the job's tokens (by more than
 * a hundredth), MP_EFORMAT for a trace without any. */
int mp_predict_job_run(const struct mp_predict_job *job, const struct mp_cluster *cluster,
                       const struct mp_predict_sink *sink, const struct mp_predict_watch *watch,
                       struct mp_prediction_summary *summary, struct mp_error *error);

/* The bound on every such iteration (bound.h): mean and median.  The job's system is not read.
 * `signals`, where not NULL, counts what asks to stop: MP_EINTERRUPTED.  Errors: those of the loads
 * and of bound.h. */
struct mp_predict_bound {
    int64_t iterations;
    double seconds_mean, seconds_median;
};
int mp_predict_job_bound(const struct mp_predict_job *job, const struct mp_cluster *cluster,
                         const volatile sig_atomic_t *signals, struct mp_known_bounds *known,
                         struct mp_predict_bound *bound, struct mp_error *error);

/* Predicts jobs that differ in their systems alone, over loads that are read once, and works out
 * the bound (NULL: not) as mp_predict_job_bound does.  A job that can't be predicted says why in
 * its own failure[i], and the others go on.  All errors are clear before.  Errors: those of the
 * loads and of bound.h. */
int mp_predict_jobs_run(const struct mp_predict_job *const job[], int count,
                        const struct mp_cluster *cluster, struct mp_prediction_summary *summary[],
                        struct mp_error *failure[], struct mp_known_bounds *known,
                        struct mp_predict_bound *bound, struct mp_error *error);

/* Every assumption behind a prediction, one line each, those that matter most first: how loads were
 * made or fitted, efficiencies that the cluster file assumes, options that stand at their defaults,
 * and what else the file marks as assumed. */
typedef void mp_predict_assumption(void *context, const char *text);
int mp_predict_job_assumptions(const struct mp_predict_job *job, const struct mp_cluster *cluster,
                               mp_predict_assumption *each, void *context, struct mp_error *error);
