/* Suite: a YAML file that names jobs to run and compare.
 *
 *   suite: skewed                  # its name; required
 *   description: one line
 *   repeat: 3                      # rounds; in each the whole list of jobs runs once
 *   timeout: 600                   # seconds that one job may take
 *   common: {layers: 2, ...}       # job options (moeperf show job) for all jobs
 *   jobs:                          # required; each: job options over the common ones
 *     - {name: ep, system: ep}
 *     - {system: fssdp, options: {overlap: 4}}   # the name defaults to the system's
 *
 * A job with `executor: predicted` is predicted instead of trained; beside a job's options it has
 * those of harness/predict/job.h:
 *   {executor: predicted, cluster: hecate-b, loads: zipf exponent=0.8, predict: {recompute: full}}
 * Predicted and measured jobs may stand in one suite.
 *
 * `text: default` stands for the text that the set-up prepares (paths.h).  `routing: trace` takes a
 * trace's file, seen from the working directory as texts are, or a generator and its options:
 *   {routing: trace, trace: loads.mptrace}, {routing: trace, trace: zipf exponent=1 seed=3} */
#pragma once

#include "harness/predict/job.h"
#include "reference/base/arena.h"
#include "reference/trainer/job.h"

struct mp_suite {
    char name[MP_TEXT_SIZE], description[MP_TEXT_SIZE];
    int repeat;                  /* rounds, >= 1 */
    double timeout;              /* of one job, s */
    char *path, *text;           /* the file and what stands in it, owned */
    int count;                   /* of jobs, >= 1 */
    struct mp_predict_job *job;  /* [count], owned; of measured ones only `file` counts */
    struct mp_cluster **cluster; /* [count], owned; of predicted jobs, NULL of measured ones */
    int *line;                   /* [count], where each job begins, owned */
    char **refusal;              /* [count], why its system can't do the job; NULL: it can */
    struct mp_arena arena;       /* of these */
    const struct mp_yaml *common, *jobs; /* while the file is being read */
};

/* What a suite may say; `repeat` and `timeout` can be set like a job's. */
extern const struct mp_option mp_suite_options[];

/* What the command line changes: applied to every job after the suite's own words. */
struct mp_suite_changes {
    const char *const *set; /* "key=value"; "options.key=value" goes to the systems that have it */
    int set_count;
    const char *text; /* files or folders instead of the suite's, or NULL */
    bool predicted;   /* all jobs are predicted, whatever the suite says */
};

/* Reads and checks a whole suite; nothing of it has to be checked later.  A job that its system
 * can't do is no error while there are others: it stays, with its refusal.  Errors name path, line,
 * key and what would be right: MP_EINVAL, MP_EFORMAT, MP_ENOTFOUND (the file, a system, a text or
 * a trace that does not exist), MP_EREFUSED (every job), MP_EIO, MP_ENOMEM. */
int mp_suite_load(const char *path, const struct mp_systems *systems,
                  const struct mp_suite_changes *changes, struct mp_suite *suite,
                  struct mp_error *error);
void mp_suite_destroy(struct mp_suite *suite); /* accepts a zeroed one */
MP_END(suite, struct mp_suite, mp_suite_destroy(it))

/* The same for a suite that is not in a file: `text` is parsed, and `path` is what errors call it.
 * NULL: what the file says. */
int mp_suite_parse(const char *path, const char *text, const struct mp_systems *systems,
                   const struct mp_suite_changes *changes, struct mp_suite *suite,
                   struct mp_error *error);

/* Finds and reads the cluster that a predicted job names, a ready-made one or a file, and gives the
 * job its ranks.  MP_EINVAL where it names none; errors of mp_path_file and of
 * mp_predict_job_cluster.  mp_cluster_destroy. */
int mp_suite_job_cluster(struct mp_predict_job *job, struct mp_cluster **cluster,
                         struct mp_error *error);

/* How many jobs are not refused. */
static inline int mp_suite_possible(const struct mp_suite *suite) {
    int possible = 0;
    for (int i = 0; i < suite->count; i++)
        possible += !suite->refusal[i];
    return possible;
}

static inline bool mp_suite_is_predicted(const struct mp_suite *suite, int job) {
    return suite->job[job].executor == MP_EXECUTOR_PREDICTED;
}

/* Loads of a job that replays a trace: checked when its suite is read, and turned into the file
 * that its ranks read (reference/trainer/loads_file.h) when it starts. */

/* Reads the whole trace and sets job->trace_digest.  Does nothing for other routings.
 * Errors: MP_EINVAL where the trace has not the job's layers, experts, ranks and top-k, more than
 * one micro-batch, no iteration, or loads that its tokens can't make; those of named.h. */
int mp_suite_check_loads(struct mp_job *job, struct mp_error *error);

/* Writes the iterations that the job needs to `path` and sets job->trace_loads to it.  The same
 * errors, and those of mp_loads_writer_create. */
int mp_suite_write_loads(struct mp_job *job, const char *path, struct mp_error *error);
