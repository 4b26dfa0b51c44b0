/* What a command line says of jobs to predict, and of systems: of predict and place. */
#pragma once

#include "harness/predict/job.h"
#include "reference/plan/arguments.h"
#include "reference/plan/system.h"

#define CLI_NODES_MOST (1 << 20)
#define CLI_ITERATIONS_MOST 1000000000000
enum { CLI_JOB_FLAGS = 5, CLI_SETTINGS = CLI_WORDS_LIMIT + 16 };

/* "key=value", in the order in which they are set. */
struct cli_settings {
    const char *item[CLI_SETTINGS]; /* borrowed */
    int count;
};

/* What flags say of a job; NULL: nothing. */
struct cli_job_flags {
    const char *cluster, *trace, *loads;
    int64_t nodes, iterations; /* 0: not said */
    struct cli_words set;
    bool fit;
};
/* The same as settings of the job, --set last; of large size. */
struct cli_job_settings {
    char text[CLI_JOB_FLAGS][MP_TEXT_SIZE + 32];
    struct cli_settings all;
};
/* MP_EINVAL (--trace and --loads, a value that is too long, --set of what the cluster says),
 * MP_ENOTFOUND and MP_EIO (no trace of this name can be read). */
int cli_read_job_flags(const struct cli_job_flags *flags, struct cli_job_settings *settings,
                       struct mp_error *error);

/* The job that all systems get: usual sizes, those of a trace, those that were set ("key=value" of
 * mp_predict_job_set; "options.key=value", of each system, is left out).  job: created; its system
 * is ep. */
int cli_prepare_job(const struct mp_systems *systems, const struct cli_settings *settings,
                    struct mp_predict_job *job, struct mp_error *error);

/* ---- what --system takes: a system's name, and options of it ---- */

enum { CLI_SYSTEM_OPTIONS_LIMIT = 128 };

/* Of "fssdp:window=2,overlap=4". */
struct cli_system_words {
    char text[MP_TEXT_SIZE]; /* the words themselves */
    const struct mp_system *system;
    const char *option[CLI_SYSTEM_OPTIONS_LIMIT][2]; /* name, value */
    int options;
};

/* MP_ENOTFOUND with the nearest name for an unknown system; MP_EINVAL for what is no option=value;
 * both begin with --system.  Whether the system has the options is not looked at. */
int cli_system_words_parse(const struct mp_systems *systems, const char *text,
                           struct cli_system_words *words, struct mp_error *error);
/* Adds an option, which stays the caller's.  MP_EINVAL for one too many. */
int cli_system_words_add(struct cli_system_words *words, const char *name, const char *value,
                         struct mp_error *error);
/* MP_EINVAL, beginning with --system, for an option that the system does not have, with the nearest
 * it has, or that can't have this value; MP_ENOMEM. */
int cli_system_words_check(const struct cli_system_words *words, struct mp_error *error);
