/* What somebody says of a recorded run beside the recording: of record and import. */
#pragma once

#include "harness/record/run.h"
#include "harness/suite/paths.h"
#include "reference/plan/arguments.h"
#include "reference/plan/system.h"

struct cli_recording_flags {
    const char *job, *suggest;
    struct cli_words rules;
    struct mp_record_run
        run; /* its system, workload and loads; once they are read, the rest, too */
    struct mp_rules loaded;
    char *job_text;
    char suggested[MP_PATH_SIZE];
    char *resume; /* the command that goes on, begun by the command itself; NULL: no memory */
};

#define CLI_RULES_HELP                                                                             \
    "which range is which phase: a name of moeperf list rules or a\n"                              \
    "file that ends in .yaml; repeated, the first that match count.\n"                             \
    "Without it, all ready-made ones"
#define CLI_SUGGEST_HELP                                                                           \
    "rules file to write, which must not exist: what the ranges are\n"                             \
    "called, and a phase proposed for each.  Without it that is done\n"                            \
    "where no range became a phase of the model, or none an\n"                                     \
    "iteration"
#define CLI_LOADS_HELP                                                                             \
    "tokens per expert of every rank, iteration and layer, counted\n"                              \
    "by something else: a file or folder of loads (moeperf import\n"                               \
    "--help), or an .mptrace"
#define CLI_LOADS_AS_HELP "what that is; else its name says so"
#define CLI_JOB_HELP                                                                               \
    "a job file (moeperf show job) with the model's sizes, so that\n"                              \
    "moeperf predict --run can say what another system would do"

/* Reads what the flags name and puts it into the run: the job, rules (without --rules all
 * ready-made ones), where rules are proposed (the file that was wanted, else one beside the
 * database). MP_EINVAL for flags that don't go together, a rules file to write that is there or has
 * another ending, a job that names no system, and what else is wrong with one; errors of
 * mp_path_file and mp_rules_load.  To be destroyed in any case. */
int cli_read_recording_flags(struct cli_recording_flags *flags, const char *database,
                             const struct mp_systems *systems, struct mp_error *error);
void cli_destroy_recording_flags(struct cli_recording_flags *flags);

/* Adds a flag (or none, "") and a word, quoted for a shell, to the command that goes on; nothing
 * for NULL. */
void cli_add_word(struct cli_recording_flags *flags, const char *flag, const char *word);
/* The same for all of these flags but those on rules; `system`: what the run is called where they
 * don't say so. */
void cli_add_recording_flags(struct cli_recording_flags *flags, const char *system);
