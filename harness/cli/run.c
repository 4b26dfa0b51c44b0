/* moeperf run: a suite, recorded, with its tables. */
#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>

#include "harness/cli/cli.h"
#include "harness/cli/report_object.h"
#include "harness/suite/paths.h"
#include "harness/suite/runner.h"

struct run_flags {
    const char *database, *text, *launcher, *trainer, *work;
    struct cli_words set;
    bool json, keep_spools, quiet;
};

static volatile sig_atomic_t signals; /* SIGINT and SIGTERM so far */

static void count_signal(int number) {
    (void)number;
    signals = signals + 1;
}

static void catch_signals(void) {
    struct sigaction action = {.sa_handler = count_signal}; /* no SA_RESTART: poll must return */
    sigemptyset(&action.sa_mask);
    sigaction(SIGINT, &action, NULL);
    sigaction(SIGTERM, &action, NULL);
    signal(SIGPIPE, SIG_IGN); /* a closed pager must not end a suite */
}

static int parse(struct run_flags *flags, int argc, char *argv[], struct cli_words *words,
                 struct mp_error *error) {
    const struct cli_flag table[] = {
        {"--db", CLI_VALUE, &flags->database, "FILE",
         "database to add the runs to (" CLI_DATABASE ")"},
        {"--set", CLI_REPEATED, &flags->set, "KEY=VALUE",
         "changes an option of all jobs (moeperf show job), of the\n"
         "suite (repeat, timeout), or with options.KEY=VALUE of\n"
         "the systems that have it; may be repeated"},
        {"--text", CLI_VALUE, &flags->text, "PATH",
         "trains on these files or folders (a:b) instead"},
        {"--launcher", CLI_VALUE, &flags->launcher, "TEMPLATE",
         "starts ranks with this instead of mpirun, for example\n"
         "\"srun -n {ranks} {program} {arguments}\""},
        {"--trainer", CLI_VALUE, &flags->trainer, "PATH",
         "program of a rank (moeperf-train beside moeperf)"},
        {"--work", CLI_VALUE, &flags->work, "FOLDER", "for job files and logs (out/runs)"},
        {"--keep-spools", CLI_SWITCH, &flags->keep_spools, NULL,
         "keeps the ranks' files once they are in the database"},
        {"--quiet", CLI_SWITCH, &flags->quiet, NULL, "no progress"},
        {"--json", CLI_SWITCH, &flags->json, NULL, "prints the tables as one JSON object"},
        {0},
    };
    const struct cli_usage usage = {
        "moeperf run SUITE [options]",
        "Runs every job of a suite, records every iteration of every rank in SQLite, and\n"
        "prints the speed-up and straggler tables.  SUITE is a YAML file or the name of a\n"
        "ready-made suite (moeperf list suites).  A job that fails is recorded with its\n"
        "reason and the others still run; the exit status is then 1.  Ctrl-C ends the\n"
        "running job after its iteration and keeps what was recorded.",
        table,
        1,
        1,
        "  moeperf run quickstart\n"
        "  moeperf run convergence --db convergence.db --set seed=2\n"
        "  moeperf run quickstart --text /usr/share/common-licenses --json\n"};
    return cli_parse(&usage, argc, argv, words, error);
}

static int print_json(struct mp_store *store, const struct mp_runner_result *result,
                      const char *database, struct mp_error *error) {
    struct mp_report_selection selection = {.suite_run = result->suite_run};
    json_t *speedup = cli_report_object(mp_report_speedup, store, &selection, error);
    json_t *convergence = cli_report_object(mp_report_convergence, store, &selection, error);
    json_t *stragglers = cli_report_object(mp_report_stragglers, store, &selection, error);
    if (!speedup || !convergence || !stragglers) {
        json_decref(speedup);
        json_decref(convergence);
        json_decref(stragglers);
        return error->code;
    }
    return cli_print_json(json_pack("{s:s, s:s, s:i, s:i, s:i, s:i, s:i, s:o, s:o, s:o}",
                                    "suite_run", result->suite_run, "database", database,
                                    "complete", result->complete, "failed", result->failed, "lost",
                                    result->lost, "interrupted", result->interrupted, "left_out",
                                    result->left_out, "speedup", speedup, "convergence",
                                    convergence, "stragglers", stragglers),
                          error);
}

static int print_text(struct mp_store *store, const struct mp_runner_result *result,
                      const char *database, struct mp_error *error) {
    struct mp_report_selection selection = {.suite_run = result->suite_run};
    int code = mp_report_speedup(store, &selection, MP_REPORT_TEXT, stdout, error);
    putchar('\n');
    if (!code)
        code = mp_report_convergence(store, &selection, MP_REPORT_TEXT, stdout, error);
    if (!code)
        code = mp_report_stragglers(store, &selection, MP_REPORT_TEXT, stdout, error);
    if (code)
        return code;
    printf("\n%d %s complete, %d failed", result->complete, result->complete == 1 ? "job" : "jobs",
           result->failed);
    if (result->interrupted + result->left_out > 0)
        printf(", %d stopped and %d not started", result->interrupted, result->left_out);
    if (result->lost > 0)
        printf(" (%d could not be added to %s)\n", result->lost, database);
    else
        printf("; everything is in %s\n", database);
    return fflush(stdout) ? mp_fail(error, MP_EIO, "can't write the tables: %s", strerror(errno))
                          : MP_OK;
}

/* The suite is read; runs it and prints.  CLI_SUCCESS, CLI_FINDING or a code. */
static int run_suite(const struct run_flags *flags, const struct mp_suite *suite,
                     struct mp_store *store, struct mp_error *error) {
    char trainer[MP_PATH_SIZE];
    struct mp_runner_result result;
    struct mp_progress progress;
    int code = MP_OK;
    if (flags->trainer)
        snprintf(trainer, sizeof trainer, "%s", flags->trainer);
    else
        code = mp_path_program("moeperf-train", trainer, error);
    if (code)
        return code;
    mp_progress_begin(&progress, flags->quiet ? NULL : stderr);
    const struct mp_runner runner = {.suite = suite,
                                     .store = store,
                                     .work = flags->work,
                                     .launcher = flags->launcher,
                                     .trainer = trainer,
                                     .keep_spools = flags->keep_spools,
                                     .progress = &progress,
                                     .signals = &signals};
    catch_signals();
    code = mp_runner_run(&runner, &result, error);
    if (code)
        return code;
    int ended = result.complete + result.failed + result.interrupted;
    if (ended > 0 && result.lost == ended)
        return mp_fail(error, MP_EIO,
                       "%s: no job could be added to it; what they recorded stays in %s/%s",
                       flags->database, flags->work, result.suite_run);
    if (ended > 0)
        code = flags->json ? print_json(store, &result, flags->database, error)
                           : print_text(store, &result, flags->database, error);
    if (code)
        return code;
    return result.failed + result.interrupted + result.left_out > 0 ? CLI_FINDING : CLI_SUCCESS;
}

/* The folder that the database will lie in. */
static int create_parent(const char *path, struct mp_error *error) {
    char folder[MP_PATH_SIZE];
    const char *slash = strrchr(path, '/');
    if (!slash || slash == path || slash - path >= MP_PATH_SIZE)
        return MP_OK;
    snprintf(folder, sizeof folder, "%.*s", (int)(slash - path), path);
    return mp_path_create_folder(folder, error);
}

static int run(const struct mp_systems *systems, int argc, char *argv[], struct mp_error *error) {
    struct run_flags flags = {.database = CLI_DATABASE, .work = "out/runs"};
    struct cli_words words;
    struct mp_suite suite = {0};
    struct mp_store *store = NULL;
    char path[MP_PATH_SIZE];
    int code = parse(&flags, argc, argv, &words, error);
    if (code)
        return code > 0 ? CLI_SUCCESS : code;
    const struct mp_suite_changes changes = {flags.set.word, flags.set.count, flags.text};
    code = mp_path_suite(words.word[0], path, error);
    if (!code)
        code = mp_suite_load(path, systems, &changes, &suite, error);
    if (!code)
        code = create_parent(flags.database, error);
    if (!code)
        code = mp_store_open(flags.database, &store, error);
    if (!code)
        code = run_suite(&flags, &suite, store, error);
    mp_store_close(store);
    mp_suite_destroy(&suite);
    return code;
}

const struct cli_command cli_run = {"run", "runs a suite and prints who was faster, and why", run};
