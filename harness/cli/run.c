/* moeperf run: a suite, recorded, with its tables. */
#include <signal.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "harness/cli/cli.h"
#include "harness/suite/command.h"
#include "harness/suite/keep.h"
#include "harness/suite/paths.h"
#include "harness/suite/runner.h"
#include "reference/base/characters.h"
#include "results/compare/gate.h"
#include "results/compare/statistics.h"

static struct {
    const char *database, *text, *launcher, *trainer, *work, *pairs, *against, *slice, *from,
        *hosts_file, *copy;
    struct mp_hosts hosts;
    struct cli_words set;
    bool json, keep_spools, quiet;
} given = {.database = CLI_DATABASE, .work = "out/runs"};

static const struct cli_flag known_flags[] = {
    {"--db", CLI_VALUE, &given.database, "FILE", "database to add the runs to (" CLI_DATABASE ")"},
    {"--set", CLI_REPEATED, &given.set, "KEY=VALUE",
     "changes an option of all jobs (moeperf show job), of the\n"
     "suite (repeat, timeout), or with options.KEY=VALUE of\n"
     "the systems that have it; may be repeated"},
    {"--text", CLI_VALUE, &given.text, "PATH", "trains on these files or folders (a:b) instead"},
    {"--launcher", CLI_VALUE, &given.launcher, "TEMPLATE",
     "starts ranks with this instead of mpirun, for example\n"
     "\"srun -n {ranks} {program} {arguments}\""},
    {"--hosts", CLI_VALUE, &given.hosts_file, "FILE",
     "starts ranks on the hosts of this file by mpirun --hostfile,\n"
     "unless --launcher says how"},
    {"--copy", CLI_VALUE, &given.copy, "TEMPLATE", CLI_COPY_HELP},
    {"--trainer", CLI_VALUE, &given.trainer, "PATH",
     "program of a rank (moeperf-train beside moeperf)"},
    {"--pairs", CLI_VALUE, &given.pairs, "N",
     "measures two builds N times in turns and compares them;\n"
     "12 is a good number"},
    {"--against", CLI_VALUE, &given.against, "PATH",
     "trainer of the other build (base); without it this one\n"
     "against itself, which measures the noise floor"},
    {"--slice", CLI_VALUE, &given.slice, "SECONDS",
     "both trainers of a pair run at once, each stopped while\n"
     "the other has its time slice (0.15); 0: the second runs\n"
     "after the first, as on GPUs it always does"},
    {"--work", CLI_VALUE, &given.work, "FOLDER",
     "for job files, logs and what ranks record (out/runs)"},
    {"--keep-spools", CLI_SWITCH, &given.keep_spools, NULL,
     "keeps the ranks' files once they are in the database"},
    {"--from", CLI_VALUE, &given.from, "FOLDER",
     "runs nothing: adds the jobs that a moeperf run left in this\n"
     "folder (a suite run's or one job's in out/runs) because it was\n"
     "killed, its disk full or the database locked, as they ended;\n"
     "doing so again adds nothing"},
    {"--quiet", CLI_SWITCH, &given.quiet, NULL, "no progress"},
    {"--json", CLI_SWITCH, &given.json, NULL, "prints the tables as one JSON object"},
    {0},
};
static const struct cli_usage usage = {
    "moeperf run SUITE [options]\n"
    "       moeperf run --from FOLDER [--db FILE]",
    "Runs every job of a suite, records every iteration of every rank in SQLite, and\n"
    "prints the speed-up and straggler tables.  SUITE is a YAML file or the name of a\n"
    "ready-made suite (moeperf list suites).  A job that fails is recorded with its\n"
    "reason and the others still run; the exit status is then 1.  One that its system\n"
    "refuses (by ranks, experts, slots ...) is a row with the reason, and no failure:\n"
    "the others run, and decide the exit status.  With every job refused, or anything\n"
    "else wrong with one, nothing runs and the exit status is 2.  Ctrl-C ends the\n"
    "running job after its iteration and keeps what was recorded.",
    known_flags,
    0,
    1,
    "  moeperf run quickstart\n"
    "  moeperf run convergence --db convergence.db --set seed=2\n"
    "  moeperf run quickstart --text /usr/share/common-licenses --json\n"
    "  moeperf run quickstart --pairs 12 --against before/bin/moeperf-train\n"};

static const struct cli_named_report reports[] = {{"speedup", mp_report_speedup, true},
                                                  {"convergence", mp_report_convergence, false},
                                                  {"stragglers", mp_report_stragglers, false},
                                                  {0}};

static int print_json(struct mp_store *store, const struct mp_runner_result *result,
                      const char *database, struct mp_error *error) {
    const struct mp_report_selection selection = {.suite_run = result->suite_run};
    return cli_print_reports(json_pack("{s:s, s:s, s:i, s:i, s:i, s:i, s:i, s:i}", "suite_run",
                                       result->suite_run, "database", database, "complete",
                                       result->complete, "failed", result->failed, "refused",
                                       result->refused, "lost", result->lost, "interrupted",
                                       result->interrupted, "left_out", result->left_out),
                             reports, store, &selection, MP_REPORT_JSON, error);
}

/* later: the command that adds jobs which could not be added now. */
static int print_text(struct mp_store *store, const struct mp_runner_result *result,
                      const char *database, const char *later, struct mp_error *error) {
    struct mp_report_selection selection = {.suite_run = result->suite_run};
    MP_TRY(cli_print_reports(NULL, reports, store, &selection, MP_REPORT_TEXT, error));
    printf("\n%d %s complete, %d failed", result->complete, result->complete == 1 ? "job" : "jobs",
           result->failed);
    if (result->refused > 0)
        printf(", %d refused", result->refused);
    if (result->interrupted + result->left_out > 0)
        printf(", %d stopped and %d not started", result->interrupted, result->left_out);
    if (result->lost > 0)
        printf("; %d of them could not be added to %s and %s not lost: %s\n", result->lost,
               database, result->lost == 1 ? "is" : "are", later);
    else
        printf("; everything is in %s\n", database);
    return MP_OK;
}

/* ---- measurements in turns ---- */

enum { PAIRS_MOST = 1000 };
static const double usual_slice = 0.15, shortest_slice = 0.02, longest_slice = 3600; /* s */

/* --pairs N into the suite's rounds.  Every measured job has to be long enough to be judged: a
 * comparison of shorter ones says nothing of their times, after all the time that it takes.
 * MP_EINVAL says how many iterations are right. */
static int read_pairs(struct mp_suite *suite, struct mp_error *error) {
    int64_t pairs = 0;
    if (!mp_whole_number(given.pairs, 1, PAIRS_MOST, &pairs))
        return mp_fail(error, MP_EINVAL, "--pairs %.60s: should be a number from 1 to %d",
                       given.pairs, PAIRS_MOST);
    suite->repeat = (int)pairs;
    for (int i = 0; i < suite->count; i++) {
        const struct mp_job *job = &suite->job[i].file.job;
        int64_t warm_up = (job->iterations + 9) / 10, counted = job->iterations - warm_up;
        if (!mp_suite_is_predicted(suite, i) && counted < MP_STEADY_WINDOW)
            return mp_fail(error, MP_EINVAL,
                           "job %s of suite %s has %lld iterations, of which %lld count without "
                           "the first tenth: with fewer than %d no time can be judged; add --set "
                           "iterations=%d, or more",
                           job->name, suite->name, (long long)job->iterations, (long long)counted,
                           MP_STEADY_WINDOW, 2 * MP_STEADY_WINDOW);
    }
    return MP_OK;
}

/* --slice SECONDS; text NULL: the usual ones.  MP_EINVAL. */
static int parse_slice(const char *text, double *slice, struct mp_error *error) {
    *slice = usual_slice;
    if (text && (!mp_real_number(text, "", 0, longest_slice, slice) ||
                 (*slice > 0 && *slice < shortest_slice)))
        return mp_fail(error, MP_EINVAL, "--slice %.60s: should be from %g to %g seconds, or 0",
                       text, shortest_slice, longest_slice);
    return MP_OK;
}

/* Floors of this very measurement are kept only after it was judged by earlier ones. */
static int keep_floors(const struct mp_gate *gate, struct mp_store *store,
                       const struct mp_runner_result *result, struct mp_error *error) {
    int kept;
    MP_TRY(mp_gate_keep_floors(gate, store, result->suite_run, &kept, error));
    if (!given.json)
        printf("Both sides are the same program: %s\n",
               kept > 0 ? "what they differ by is kept as noise floor."
                        : "no time could be judged, so no noise floor.");
    return MP_OK;
}

/* Compares the two sides on standard output.  If they are the same program, their noise floors are
 * kept in the database for later comparisons.  CLI_SUCCESS, CLI_FINDING or a code. */
static int compare_pairs(const struct mp_systems *systems, struct mp_store *store,
                         const struct mp_runner_result *result, struct mp_error *error) {
    const struct mp_gate_side base = {store, result->base_run, NULL, 0},
                              head = {store, result->suite_run, NULL, 0};
    const struct mp_gate_options options = {.minimum_effect = MP_MINIMUM_EFFECT,
                                            .defaults = {mp_predict_job_defaults, systems}};
    MP_AUTO(gate) struct mp_gate *gate = NULL;
    MP_TRY(mp_gate_compare(&base, &head, &options, &gate, error));
    MP_TRY(mp_gate_print(gate, given.json ? MP_REPORT_JSON : MP_REPORT_TEXT, stdout, error));
    if (gate->same_program)
        MP_TRY(keep_floors(gate, store, result, error));
    return mp_gate_outcome(gate) == MP_OUTCOME_FAIL ? CLI_FINDING : CLI_SUCCESS;
}

/* The command that adds the jobs which could not be added now, of both sides of pairs; free it.
 * NULL without memory. */
static char *create_later(const struct mp_runner_result *result) {
    const char *const runs[] = {result->base_run, result->suite_run};
    char *all = NULL;
    for (int i = 0; i < 2; i++) {
        char folder[MP_PATH_SIZE], *before = all;
        if (!*runs[i])
            continue;
        snprintf(folder, sizeof folder, "%.*s/%s", MP_PATH_SIZE - 160, given.work, runs[i]);
        char *command = mp_suite_killed_command(folder, given.database, &given.hosts);
        if (!command ||
            asprintf(&all, "%s%s%s", before ? before : "", before ? " && " : "", command) < 0)
            all = NULL;
        free(command);
        free(before);
    }
    return all;
}

/* The suite is read; runs it and prints.  CLI_SUCCESS, CLI_FINDING or a code. */
static int run_suite(const struct mp_systems *systems, const struct mp_suite *suite,
                     struct mp_error *error) {
    MP_AUTO(store) struct mp_store *store = NULL;
    char trainer[MP_PATH_SIZE] = "";
    struct mp_runner_result result;
    struct mp_progress progress;
    double slice;
    int code = MP_OK;
    MP_TRY(parse_slice(given.slice, &slice, error));
    if (given.trainer)
        snprintf(trainer, sizeof trainer, "%s", given.trainer);
    else if (MP_ANY(i, suite->count, !mp_suite_is_predicted(suite, i) && !suite->refusal[i]))
        MP_TRY(mp_path_program("moeperf-train", trainer, error));
    mp_progress_begin(&progress, given.quiet ? NULL : stderr);
    struct mp_runner runner = {.suite = suite,
                               .work = given.work,
                               .launcher = given.launcher,
                               .hosts = given.copy ? &given.hosts : NULL,
                               .trainer = trainer,
                               .against = given.against ? given.against
                                          : given.pairs ? trainer
                                                        : NULL,
                               .slice = slice,
                               .keep_spools = given.keep_spools,
                               .progress = &progress,
                               .signals = cli_count_signals()};
    signal(SIGPIPE, SIG_IGN); /* a closed pager must not end a suite */
    signal(SIGXFSZ, SIG_IGN); /* and a file at its size limit is like a full disk */
    /* A mistyped program makes no database. */
    MP_TRY(mp_runner_check(&runner, error));
    MP_TRY(cli_create_database(given.database, &store, error));
    runner.store = store;
    MP_TRY(mp_runner_run(&runner, &result, error));
    int ended = result.complete + result.failed + result.interrupted + result.refused;
    char *command = create_later(&result);
    const char *later = command ? command : "moeperf run --from";
    if (ended > 0 && result.lost == ended)
        code = mp_fail(error, MP_EIO,
                       "%s: no job could be added to it; nothing is lost, this adds them: %s",
                       given.database, later);
    else if (given.pairs && result.complete > 0)
        code = compare_pairs(systems, store, &result, error);
    else if (ended > 0)
        code = given.json ? print_json(store, &result, given.database, error)
                          : print_text(store, &result, given.database, later, error);
    free(command);
    if (code)
        return code; /* a finding, too */
    return result.failed + result.interrupted + result.left_out + result.lost > 0 ? CLI_FINDING
                                                                                  : CLI_SUCCESS;
}

/* What a killed run left is as it was recorded: nothing of it can be chosen now. */
static int check_from(const struct cli_words *words, struct mp_error *error) {
    if (!given.from && words->count == 0)
        return mp_fail(error, MP_EINVAL,
                       "an argument is missing: which suite to run (moeperf list suites)");
    if (given.from && words->count > 0)
        return mp_fail(error, MP_EINVAL,
                       "--from takes one folder and no suite: \"%.200s\" is left over",
                       words->word[0]);
    if (given.from && (given.text || given.launcher || given.trainer || given.pairs ||
                       given.set.count > 0 || given.json || given.keep_spools))
        return mp_fail(error, MP_EINVAL,
                       "--from runs nothing, it takes what was recorded: only --db, --hosts and "
                       "--copy go with it");
    return MP_OK;
}

static int add_killed(struct mp_error *error) {
    MP_AUTO(store) struct mp_store *store = NULL;
    MP_TRY(mp_suite_check_killed(given.from, error)); /* a mistyped folder makes no database */
    MP_TRY(cli_create_database(given.database, &store, error));
    return mp_suite_keep_killed(store, given.from, &given.hosts, stdout, error);
}

/* The hosts' file, and the launcher that starts ranks there; `launcher` is to be freed. */
static int read_hosts(char **launcher, struct mp_error *error) {
    MP_TRY(mp_hosts_read(given.hosts_file, given.copy, &given.hosts, error));
    if (!given.hosts_file || given.launcher || given.from)
        return MP_OK;
    if (strpbrk(given.hosts_file, " \t\n{"))
        return mp_fail(error, MP_EINVAL,
                       "--hosts \"%.200s\": a name without blanks and braces is right",
                       given.hosts_file);
    if (asprintf(launcher, MP_COMMAND_HOSTS_TEMPLATE, given.hosts_file) < 0) {
        *launcher = NULL;
        return mp_fail(error, MP_ENOMEM, "no memory for a command line");
    }
    given.launcher = *launcher;
    return MP_OK;
}

/* What the flags ask for. */
static int carry_out(const struct mp_systems *systems, const struct cli_words *words,
                     struct mp_error *error) {
    MP_AUTO(suite) struct mp_suite suite = {0};
    char path[MP_PATH_SIZE];
    const struct mp_suite_changes changes = {
        .set = given.set.word, .set_count = given.set.count, .text = given.text};
    MP_TRY(mp_path_file(MP_SUITES, words->word[0], path, error));
    MP_TRY(mp_suite_load(path, systems, &changes, &suite, error));
    if (given.pairs)
        MP_TRY(read_pairs(&suite, error));
    return run_suite(systems, &suite, error);
}

static int run(const struct cli_call *call, struct mp_error *error) {
    char *launcher = NULL;
    if (given.against && !given.pairs)
        return mp_fail(error, MP_EINVAL, "--against takes --pairs N, for example --pairs 12");
    if (given.slice && !given.pairs)
        return mp_fail(error, MP_EINVAL, "--slice takes --pairs N, for example --pairs 12");
    int code = check_from(call->words, error);
    if (!code)
        code = read_hosts(&launcher, error);
    if (!code)
        code = given.from ? add_killed(error) : carry_out(call->systems, call->words, error);
    mp_hosts_destroy(&given.hosts);
    free(launcher);
    return code;
}

const struct cli_command cli_run = {"run", "runs a suite and prints who was faster, and why", run,
                                    .usage = &usage};
