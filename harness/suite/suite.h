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
 * `text: default` stands for the text that the set-up prepares (paths.h). */
#ifndef MOEPERF_HARNESS_SUITE_SUITE_H
#define MOEPERF_HARNESS_SUITE_SUITE_H

#include "reference/trainer/job.h"

struct mp_suite {
    char name[MP_TEXT_SIZE], description[MP_TEXT_SIZE];
    int repeat;              /* rounds, >= 1 */
    double timeout;          /* of one job, s */
    char *path, *text;       /* the file and what stands in it, owned */
    int count;               /* of jobs, >= 1 */
    struct mp_job_file *job; /* [count], owned */
    int *line;               /* [count], where each job begins, owned */
};

/* The keys of a suite that hold one value each; `repeat` and `timeout` can be set like a job's. */
extern const struct mp_option mp_suite_options[];

/* What the command line changes: applied to every job after the suite's own words. */
struct mp_suite_changes {
    const char *const *set; /* "key=value"; "options.key=value" goes to the systems that have it */
    int set_count;
    const char *text; /* files or folders instead of the suite's, or NULL */
};

/* Reads and checks a whole suite; nothing of it has to be checked later.  Errors name path, line,
 * key and what would be right: MP_EINVAL, MP_EFORMAT, MP_ENOTFOUND (the file, a system, a text that
 * does not exist), MP_EIO, MP_ENOMEM. */
int mp_suite_load(const char *path, const struct mp_systems *systems,
                  const struct mp_suite_changes *changes, struct mp_suite *suite,
                  struct mp_error *error);
void mp_suite_destroy(struct mp_suite *suite); /* accepts a zeroed one */

#endif
