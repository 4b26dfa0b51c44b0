/* The program moeperf: what its subcommands share.
 *
 * One file per subcommand.  A command parses its arguments with cli_parse, prints its result on
 * standard output and returns its exit status; errors go up to main, which prints them. */
#pragma once

#include <jansson.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>

#include "harness/suite/paths.h"
#include "harness/suite/progress.h"
#include "reference/plan/arguments.h"
#include "reference/plan/system.h"
#include "results/report/report.h"

enum { CLI_SUCCESS = 0, CLI_FINDING = 1, CLI_BAD_INPUT = 2 }; /* exit statuses */

#define CLI_DATABASE "out/results.db" /* of run and report when --db is not given */

/* What a command was called with, beside the flags that its usage has set. */
struct cli_call {
    const struct mp_systems *systems;
    const struct cli_usage *usage;
    const struct cli_words *words; /* arguments that are no flags */
    char **rest; /* what stands behind "--", where that is allowed; NULL: nothing */
};

struct cli_command {
    const char *name;
    const char *summary; /* one line for `moeperf --help` */
    /* CLI_SUCCESS, CLI_FINDING, or a negative code.  What is printed is flushed behind it. */
    int (*run)(const struct cli_call *call, struct mp_error *error);
    const struct cli_usage *usage;
    /* Instead of a usage, where that depends on the arguments.  NULL with `error` set. */
    const struct cli_usage *(*find_usage)(int argc, char *argv[], struct mp_error *error);
    bool takes_rest;
};

extern const struct cli_command cli_run, cli_list, cli_show, cli_report, cli_import, cli_export,
    cli_calibrate, cli_doctor;
extern const struct cli_command cli_cite, cli_compare, cli_history, cli_reproduce;
extern const struct cli_command cli_record;
extern const struct cli_command cli_generate, cli_reshape, cli_predict, cli_place;

/* cli_parse_arguments; for unknown flags of commands with --set also the settings of jobs and
 * suites.  Reads the format where there is a flag --format, as CLI_FORMAT_FLAGS has it. */
int cli_parse(const struct cli_usage *usage, int argc, char *argv[], struct cli_words *words,
              struct mp_error *error);

/* Opens a database to read it.  Errors: those of mp_store_open_read_only; where there is none of
 * this name, the sentence names those of the working folder. */
int cli_open_database(const char *path, struct mp_store **store, struct mp_error *error);

/* Opens a database to write to it, as cli_wait_for_lock says, and creates it and its folder where
 * there are none.  Errors: those of mp_path_create_parent and mp_store_open. */
int cli_create_database(const char *path, struct mp_store **store, struct mp_error *error);

#define CLI_COPY_HELP                                                                              \
    "folders on --hosts' own disks are copied by this command, for\n"                              \
    "example \"scp -qr {from} {to}\"; without it they are shared"

/* --figures, of commands that write pages with charts. */
#define CLI_FIGURES_HELP                                                                           \
    "writes every chart as SVG and PDF into this folder, for one\n"                                \
    "column of a paper (3.3 inches) and for two (7, NAME-wide)"

/* Prints reports (results/report/report.h), up to a row without a name, one after the other, or in
 * JSON as members of `all`, which is consumed.  Errors: those of the reports, MP_ENOMEM. */
struct cli_named_report {
    const char *name;
    int (*print)(struct mp_store *store, const struct mp_report_selection *selection,
                 enum mp_report_format format, FILE *out, struct mp_error *error);
    bool parted; /* by an empty line from what follows */
};
int cli_print_reports(json_t *all, const struct cli_named_report reports[], struct mp_store *store,
                      const struct mp_report_selection *selection, enum mp_report_format format,
                      struct mp_error *error);

/* A system, gate, exchange, workload, generator, suite, cluster, rules or topic of this name, as
 * moeperf show prints it in JSON, to be given up.  MP_ENOTFOUND with the nearest name. */
int cli_find(const struct mp_systems *systems, const char *name, json_t **object,
             struct mp_error *error);

/* The number of a run that --run was given.  MP_EINVAL says where such numbers are listed. */
int cli_run_number(const char *text, int64_t *run_id, struct mp_error *error);

/* At SIGHUP, SIGINT and SIGTERM files that are not whole yet are removed, and the program ends. */
void cli_leave_nothing_at_signals(void);

/* From here on SIGINT and SIGTERM are counted, and nothing else happens at them; calls that wait
 * are interrupted.  So is SIGHUP, unless it is ignored (nohup), but only as a first one: those who
 * close a terminal send several.  The count. */
const volatile sig_atomic_t *cli_count_signals(void);

/* Prints `value` on standard output, consumes it.  NULL is no memory.  Returns 0 or a code. */
int cli_print_json(json_t *value, struct mp_error *error);

/* --format and --json of commands that print tables, and what they come to. */
struct cli_format {
    const char *name; /* first, as the flag's target; NULL: not given */
    bool json;
    enum mp_report_format kind;
};
#define CLI_FORMAT_FLAGS(format)                                                                   \
    {"--format", CLI_VALUE, &(format)->name, CLI_FORMAT_KINDS,                                     \
     "csv, markdown and latex are of the tables alone"},                                           \
    {                                                                                              \
        "--json", CLI_SWITCH, &(format)->json, NULL, "prints one JSON object"                      \
    }
#define CLI_FORMAT_KINDS "text|json|csv|markdown|latex"

/* Draws how many of all tasks are done since `started` (mp_seconds_now), one of which is at hand.
 */
void cli_draw_share(struct mp_progress *progress, const char *name, int done, int all,
                    double started);

/* While another program has the database locked, says so once on standard error and waits up to a
 * minute, or until a counted signal comes. */
void cli_wait_for_lock(struct mp_store *store);

/* Where to print what is said about an output file: standard output, but standard error where that
 * is the file itself (-o /dev/stdout). */
FILE *cli_beside(const char *path);

/* Prints `length` bytes of a text of others, clean (reference/base/characters.h). */
void cli_print_clean(FILE *stream, const char *text, size_t length);

/* What this computer has, in words. */
struct cli_machine {
    char processor[256]; /* "unknown" where /proc/cpuinfo does not say */
    int cores;           /* that this process may use */
    int64_t memory;      /* bytes */
};
void cli_machine_read(struct cli_machine *machine);

/* Starts the cpu device and asks it what it is: "oneDNN 2.6.3, avx512". */
int cli_machine_compute(char *text, size_t size, struct mp_error *error);

/* ---- the manual: the folders' pages (README.md), by topic ---- */

/* Prints the topics, each with its page's title.  Returns 0 or a code. */
int cli_manual_list(struct mp_error *error);

/* Prints a topic's page: text filled to the page's width, commands as they stand, a table's rows
 * below each other.  MP_ENOTFOUND with the nearest topic. */
int cli_manual_print(const char *topic, struct mp_error *error);

/* ---- what is built in, for list and show (show.c) ---- */

/* All of it, an object each as `moeperf show` has it, with "kind" and "name" (show.c).  NULL: no
 * memory. */
json_t *cli_catalog(const struct mp_systems *systems);

/* What a capability of enum mp_system_capability means to somebody who reads a result. */
struct cli_capability {
    unsigned bit;
    const char *brief; /* some words, for list; NULL: nothing that changes how a result is read */
    const char *words; /* a sentence, for show */
};

/* By the name of its bit (mp_system_capability_name). */
const struct cli_capability *cli_capability_find(const char *name);
