/* moeperf export: what is in a database, for others. */
#include <inttypes.h>
#include <string.h>

#include "harness/cli/cli.h"
#include "harness/cli/export_results.h"
#include "harness/cli/trace_file.h"
#include "harness/workload/export.h"
#include "harness/workload/run_trace.h"

struct export_flags {
    const char *kind, *database, *trace, *iteration, *layer, *view, *iterations;
    struct cli_words runs;
};

static struct export_flags given = {.kind = "trace"};

static const struct cli_flag known_flags[] = {
    {"--as", CLI_VALUE, &given.kind, "KIND",
     "what to write: of a run perfetto (a timeline for ui.perfetto.dev or\n"
     "chrome://tracing), csv (a view), json (all about it); of a run's\n"
     "loads or a trace's trace (the default), csv (a row for every rank\n"
     "and expert)"},
    {"--run", CLI_REPEATED, &given.runs, "ID",
     "the run; not needed if the database has one only; a view of all\n"
     "runs if it is not given"},
    {"--db", CLI_VALUE, &given.database, "FILE", "database to read (" CLI_DATABASE ")"},
    {"--trace", CLI_VALUE, &given.trace, "FILE", "loads of a trace instead of a run"},
    {"--view", CLI_VALUE, &given.view, "VIEW",
     "csv of a run: which, e.g. speedup; span (the default), or loads: its\n"
     "loads as of a trace"},
    {"--iterations", CLI_VALUE, &given.iterations, "A..B",
     "perfetto, json, views: of these iterations only"},
    {"--iteration", CLI_VALUE, &given.iteration, "N", "loads: of this iteration only"},
    {"--layer", CLI_VALUE, &given.layer, "N", "loads: of this layer only"},
    {0},
};
static const struct cli_usage usage = {
    "moeperf export --as KIND (--run ID [--db FILE] | --trace FILE) OUT",
    "Writes what a database has of a recorded run: its timeline, a view, all about it, or\n"
    "its loads: how many routes every rank sent to every expert, in every layer of every\n"
    "iteration that all ranks finished, before any were dropped; or those of a trace.",
    known_flags,
    1,
    1,
    "  moeperf export --as perfetto --run 1 --db out/quickstart/results.db ep.json\n"
    "  moeperf export --as csv --view speedup --db out/quickstart/results.db speedup.csv\n"
    "  moeperf export --as trace --run 1 --db out/quickstart/results.db ep.mptrace\n"
    "  moeperf generate zipf -o zipf.mptrace --ranks 4 --experts 16 --iterations 3\n"
    "  moeperf export --as csv --trace zipf.mptrace --layer 0 zipf.csv\n"};

/* 0: none was named. */
static int choose_run(const struct export_flags *flags, int64_t *run_id, struct mp_error *error) {
    *run_id = 0;
    if (flags->runs.count == 0)
        return MP_OK;
    if (flags->runs.count > 1)
        return mp_fail(error, MP_EINVAL,
                       "--run is given %d times; a file is of one run, so export one at a time",
                       flags->runs.count);
    return cli_run_number(flags->runs.word[0], run_id, error);
}

/* The loads that were named: a trace's, or a run's. */
static int open_loads(const struct export_flags *flags, struct mp_store **store,
                      struct mp_trace_stream **stream, struct mp_error *error) {
    int64_t run_id = 0;
    if (flags->trace && (flags->runs.count > 0 || flags->database))
        return mp_fail(error, MP_EINVAL, "--trace and --run or --db: the loads are of one of them");
    if (flags->trace)
        return mp_trace_open(flags->trace, stream, error);
    const char *database = flags->database ? flags->database : CLI_DATABASE;
    int code = choose_run(flags, &run_id, error);
    if (!code)
        code = cli_open_database(database, store, error);
    if (!code)
        code = mp_trace_open_run(*store, database, run_id, stream, error);
    return code;
}

static int write_table(const struct export_flags *flags, struct mp_trace_stream *stream,
                       const char *path, struct mp_error *error) {
    struct mp_export chosen = {.iteration = -1, .layer = -1};
    int64_t layer = -1;
    int code = MP_OK;
    if (flags->iteration)
        code = cli_whole("--iteration", flags->iteration, 0, INT64_MAX, &chosen.iteration, error);
    if (!code && flags->layer)
        code = cli_whole("--layer", flags->layer, 0, INT32_MAX, &layer, error);
    chosen.layer = (int)layer;
    if (!code)
        code = mp_export_csv(stream, &chosen, path, error);
    if (!code)
        fprintf(cli_beside(path), "%s: %" PRId64 " blocks\n", path, chosen.blocks_done);
    mp_trace_stream_destroy(stream);
    return code;
}

/* --as csv with --view loads, or of a trace, is for loads. */
static bool writes_results(const struct export_flags *flags) {
    if (!strcmp(flags->kind, "csv"))
        return !flags->trace && !(flags->view && !strcmp(flags->view, "loads"));
    return !strcmp(flags->kind, "perfetto") || !strcmp(flags->kind, "json");
}

static int check_kind(const struct export_flags *flags, struct mp_error *error) {
    static const char *const kinds[] = {"trace", "csv", "perfetto", "json"};
    const bool results = writes_results(flags), native = !strcmp(flags->kind, "trace");
    enum { KINDS = sizeof kinds / sizeof *kinds };
    size_t known = 0;
    while (known < KINDS && strcmp(kinds[known], flags->kind) != 0)
        known++;
    if (known == KINDS)
        return mp_fail(error, MP_EINVAL,
                       "--as %.100s: trace, csv, perfetto and json can be written", flags->kind);
    if (flags->view && (strcmp(flags->kind, "csv") != 0 || flags->trace))
        return mp_fail(error, MP_EINVAL, "--view is for csv of a database: %s has no views",
                       flags->trace ? "a trace" : flags->kind);
    if (results && flags->trace)
        return mp_fail(error, MP_EINVAL,
                       "--trace: a trace has loads only, no times: %s is of a run", flags->kind);
    if (!results && flags->iterations)
        return mp_fail(error, MP_EINVAL,
                       "--iterations is for perfetto, json and views; --iteration N chooses loads");
    if ((results || native) && (flags->iteration || flags->layer))
        return mp_fail(error, MP_EINVAL, "--iteration and --layer are for loads as csv: %s",
                       native ? "a trace has all of the loads"
                              : "--iterations A..B chooses here, --view loads writes loads");
    return MP_OK;
}

static int export_results(const struct export_flags *flags, const char *path,
                          struct mp_error *error) {
    struct cli_results_export wanted = {.kind = flags->kind,
                                        .view = flags->view ? flags->view : "span",
                                        .iterations = flags->iterations,
                                        .database =
                                            flags->database ? flags->database : CLI_DATABASE};
    int code = choose_run(flags, &wanted.run_id, error);
    return code ? code : cli_write_results(&wanted, path, error);
}

static int export_loads(const struct export_flags *flags, const char *path,
                        struct mp_error *error) {
    struct mp_store *store = NULL;
    struct mp_trace_stream *stream = NULL;
    int code = open_loads(flags, &store, &stream, error);
    if (!code)
        code = !strcmp(flags->kind, "trace") ? cli_write_trace(stream, path, error)
                                             : write_table(flags, stream, path, error);
    mp_store_close(store);
    return code;
}

static int export(const struct cli_call *call, struct mp_error *error) {
    int code = check_kind(&given, error);
    if (code)
        return code;
    return writes_results(&given) ? export_results(&given, call->words->word[0], error)
                                  : export_loads(&given, call->words->word[0], error);
}

const struct cli_command cli_export = {"export", "writes a run, a view or loads for other programs",
                                       export, .usage = &usage};
