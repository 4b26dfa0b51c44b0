/* moeperf export: what is in a database, for others. */
#include <inttypes.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "harness/cli/cli.h"
#include "harness/cli/trace_file.h"
#include "harness/workload/export.h"
#include "harness/workload/run_trace.h"
#include "reference/base/characters.h"
#include "results/export/export.h"

static struct {
    const char *kind, *database, *trace, *view, *iterations;
    struct cli_words runs;
    struct mp_export loads;
} given = {.loads = {.iteration = -1, .layer = -1}};

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
    {"--iteration", CLI_WHOLE, CLI_NUMBER(&given.loads.iteration, 0, INT64_MAX), "N",
     "loads: of this iteration only"},
    {"--layer", CLI_COUNT, CLI_NUMBER(&given.loads.layer, 0, INT32_MAX), "N",
     "loads: of this layer only"},
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

/* ---- results ---- */

/* "A..B", or "A" for one. */
static int parse_iterations(const char *text, struct mp_results_selection *selection,
                            struct mp_error *error) {
    char first[32] = "";
    if (!text)
        return MP_OK;
    const char *dots = strstr(text, "..");
    const size_t length = dots ? (size_t)(dots - text) : strlen(text);
    memcpy(first, text, length < sizeof first ? length : 0);
    selection->some_iterations = true;
    if (mp_whole_number(first, 0, INT64_MAX, &selection->first) &&
        mp_whole_number(dots ? dots + 2 : first, selection->first, INT64_MAX, &selection->last))
        return MP_OK;
    return mp_fail(error, MP_EINVAL,
                   "--iterations %.100s: should be one, or the first and the last, e.g. 10..19",
                   text);
}

/* Refuses iterations that are not there, before a file of nothing is written.  Spans are only asked
 * where the short table of whole iterations has none of them. */
static int check_iterations(struct mp_store *store, const struct mp_results_selection *selection,
                            struct mp_error *error) {
    const int64_t values[] = {selection->run_id, selection->first, selection->last};
    int64_t any = !selection->some_iterations, there[4];
    if (!any)
        MP_TRY(mp_store_numbers(store,
                                "SELECT 1 FROM iteration_summary WHERE (?1 = 0 OR "
                                "run_id = ?1) AND iteration BETWEEN ?2 AND ?3 LIMIT 1",
                                values, 3, &any, 1, error));
    if (any)
        return MP_OK;
    MP_TRY(mp_store_numbers(store,
                            "SELECT count(*), min(iteration), max(iteration), (SELECT count(*) "
                            "FROM run WHERE ?1 = 0 OR run_id = ?1) FROM v_span "
                            "WHERE (?1 = 0 OR run_id = ?1) AND iteration >= 0",
                            values, 1, there, 4, error));
    if (there[0] ? there[1] <= selection->last && selection->first <= there[2]
                 : !there[3]) /* of a run that is not there the export itself says so */
        return MP_OK;
    if (!there[0])
        return mp_fail(error, MP_EINVAL, "--iterations: nothing recorded has an iteration");
    return mp_fail(error, MP_EINVAL,
                   "--iterations %" PRId64 "..%" PRId64 ": there are the iterations %" PRId64
                   "..%" PRId64,
                   selection->first, selection->last, there[1], there[2]);
}

static void print_timeline(FILE *out, const char *path,
                           const struct mp_results_exported *exported) {
    fprintf(out, "%s: %" PRId64 " spans, %" PRId64 " arrows between ranks", path, exported->rows,
            exported->flows);
    if (exported->flows_left_out > 0)
        fprintf(out, " (%" PRId64 " left out, where the ranks' clocks do not agree)",
                exported->flows_left_out);
    fputc('\n', out);
    if (exported->ranges > 0)
        fprintf(out, "%" PRId64 " annotated ranges and marks\n", exported->ranges);
    if (exported->calls + exported->gpu + exported->collectives + exported->gpu_left_out == 0)
        return;
    fprintf(out,
            "%" PRId64 " pieces of GPU work, %" PRId64 " calls, %" PRId64 " collectives, %" PRId64
            " arrows to what was launched\n",
            exported->gpu, exported->calls, exported->collectives, exported->launches);
    if (exported->gpu_left_out > 0)
        fprintf(out, "%" PRId64 " left out, whose times or clock are not known\n",
                exported->gpu_left_out);
}

static int write_file(struct mp_store *store, const struct mp_results_selection *selection,
                      const char *path, struct mp_results_exported *exported,
                      struct mp_error *error) {
    if (!strcmp(given.kind, "perfetto"))
        return mp_results_perfetto(store, selection, path, exported, error);
    if (!strcmp(given.kind, "json"))
        return mp_results_json(store, selection, path, exported, error);
    return mp_results_csv(store, selection, given.view ? given.view : "span", path, exported,
                          error);
}

static const char *database_of(void) {
    return given.database ? given.database : CLI_DATABASE;
}

/* 0: none was named. */
static int choose_run(int64_t *run_id, struct mp_error *error) {
    *run_id = 0;
    if (given.runs.count == 0)
        return MP_OK;
    if (given.runs.count > 1)
        return mp_fail(error, MP_EINVAL,
                       "--run is given %d times; a file is of one run, so export one at a time",
                       given.runs.count);
    return cli_run_number(given.runs.word[0], run_id, error);
}

/* The loads that were named: a trace's, or a run's. */
static int open_loads(struct mp_store **store, struct mp_trace_stream **stream,
                      struct mp_error *error) {
    int64_t run_id = 0;
    if (given.trace && (given.runs.count > 0 || given.database))
        return mp_fail(error, MP_EINVAL, "--trace and --run or --db: the loads are of one of them");
    if (given.trace)
        return mp_trace_open(given.trace, stream, error);
    MP_TRY(choose_run(&run_id, error));
    MP_TRY(cli_open_database(database_of(), store, error));
    return mp_trace_open_run(*store, run_id, stream, error);
}

static int write_table(struct mp_trace_stream *stream, const char *path, struct mp_error *error) {
    struct mp_export chosen = given.loads;
    int code = mp_export_csv(stream, &chosen, path, error);
    if (!code)
        fprintf(cli_beside(path), "%s: %" PRId64 " block%s\n", path, chosen.blocks_done,
                chosen.blocks_done == 1 ? "" : "s");
    mp_trace_stream_destroy(stream);
    return code;
}

/* --as csv with --view loads, or of a trace, is for loads. */
static bool writes_results(void) {
    if (!strcmp(given.kind, "csv"))
        return !given.trace && !(given.view && !strcmp(given.view, "loads"));
    return !strcmp(given.kind, "perfetto") || !strcmp(given.kind, "json");
}

/* Without --as a trace, unless the file's name is that of another kind. */
static int check_kind(const char *path, struct mp_error *error) {
    static const char *const kinds[] = {"trace", "csv", "perfetto", "json"};
    const char *ending = strrchr(path, '.');
    if (!given.kind && ending && (!strcmp(ending, ".json") || !strcmp(ending, ".csv")))
        return mp_fail(error, MP_EINVAL,
                       "%s: without --as it would be a trace, whose name ends in .mptrace; %s is "
                       "right",
                       path, ending[1] == 'c' ? "--as csv" : "--as json or --as perfetto");
    given.kind = given.kind ? given.kind : "trace";
    const bool results = writes_results(), native = !strcmp(given.kind, "trace");
    if (!MP_ANY(i, MP_LENGTH(kinds), !strcmp(kinds[i], given.kind)))
        return mp_fail(error, MP_EINVAL,
                       "--as %.100s: trace, csv, perfetto and json can be written", given.kind);
    if (given.view && (strcmp(given.kind, "csv") != 0 || given.trace))
        return mp_fail(error, MP_EINVAL, "--view is for csv of a database: %s has no views",
                       given.trace ? "a trace" : given.kind);
    if (results && given.trace)
        return mp_fail(error, MP_EINVAL,
                       "--trace: a trace has loads only, no times: %s is of a run", given.kind);
    if (!results && given.iterations)
        return mp_fail(error, MP_EINVAL,
                       "--iterations is for perfetto, json and views; --iteration N chooses loads");
    if ((results || native) && (given.loads.iteration >= 0 || given.loads.layer >= 0))
        return mp_fail(error, MP_EINVAL, "--iteration and --layer are for loads as csv: %s",
                       native ? "a trace has all of the loads"
                              : "--iterations A..B chooses here, --view loads writes loads");
    return MP_OK;
}

/* Writes the file and says what is in it. */
static int export_results(const char *path, struct mp_error *error) {
    struct mp_results_selection selection = {0};
    struct mp_results_exported exported;
    MP_AUTO(store) struct mp_store *store = NULL;
    MP_TRY(choose_run(&selection.run_id, error));
    MP_TRY(parse_iterations(given.iterations, &selection, error));
    MP_TRY(cli_open_database(database_of(), &store, error));
    MP_TRY(check_iterations(store, &selection, error));
    MP_TRY(write_file(store, &selection, path, &exported, error));
    if (!strcmp(given.kind, "perfetto"))
        print_timeline(cli_beside(path), path, &exported);
    else
        fprintf(cli_beside(path), "%s: %" PRId64 " row%s\n", path, exported.rows,
                exported.rows == 1 ? "" : "s");
    return MP_OK;
}

static int export_loads(const char *path, struct mp_error *error) {
    MP_AUTO(store) struct mp_store *store = NULL;
    struct mp_trace_stream *stream = NULL;
    MP_TRY(open_loads(&store, &stream, error));
    return !strcmp(given.kind, "trace") ? cli_write_trace(stream, path, error)
                                        : write_table(stream, path, error);
}

static int export(const struct cli_call *call, struct mp_error *error) {
    MP_TRY(check_kind(call->words->word[0], error));
    return writes_results() ? export_results(call->words->word[0], error)
                            : export_loads(call->words->word[0], error);
}

const struct cli_command cli_export = {"export", "writes a run, a view or loads for other programs",
                                       export, .usage = &usage};
