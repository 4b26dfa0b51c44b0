/* What somebody says of the model beside a recording of it: --loads, --loads-as, --experts, --job.
 */
#ifndef MOEPERF_HARNESS_CLI_MODEL_FLAGS_H
#define MOEPERF_HARNESS_CLI_MODEL_FLAGS_H

#include <stddef.h>

#include "harness/record/recorded_loads.h"
#include "reference/plan/system.h"

struct cli_model_flags {
    const char *job;
    struct mp_record_loads_source loads;
    char *job_text; /* of the job file; free it */
};

#define CLI_LOADS_HELP                                                                             \
    "tokens per expert of every rank, iteration and layer, counted\n"                              \
    "by something else: a file or folder of loads (moeperf import\n"                               \
    "--help), or an .mptrace"
#define CLI_LOADS_AS_HELP "what that is; else its name says so"
#define CLI_JOB_HELP                                                                               \
    "a job file (moeperf show job) with the model's sizes, so that\n"                              \
    "moeperf predict --run can say what another system would do"

/* Reads the flags' values.  MP_EINVAL for those that don't go together, a job that names no system,
 * and what else is wrong with one. */
int cli_read_model_flags(struct cli_model_flags *flags, const struct mp_systems *systems,
                         struct mp_error *error);

/* Adds the same flags to a command that says how to go on, as cli_add_word. */
void cli_add_model_flags(char *command, size_t size, const struct cli_model_flags *flags);

#endif
