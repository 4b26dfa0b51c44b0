#include "harness/cli/export_results.h"

#include <errno.h>
#include <inttypes.h>
#include <sqlite3.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "harness/cli/cli.h"
#include "results/export/export.h"

/* "A..B", or "A" for one. */
static int parse_iterations(const char *text, struct mp_results_selection *selection,
                            struct mp_error *error) {
    char *end;
    if (!text)
        return MP_OK;
    errno = 0;
    selection->some_iterations = true;
    selection->first = selection->last = strtoll(text, &end, 10);
    bool good = end != text && selection->first >= 0;
    if (good && !strncmp(end, "..", 2)) {
        const char *second = end + 2;
        selection->last = strtoll(second, &end, 10);
        good = end != second;
    }
    if (good && !*end && !errno && selection->first <= selection->last)
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
    int64_t any = !selection->some_iterations, of_run, there[3];
    int code = any ? MP_OK
                   : mp_store_numbers(store,
                                      "SELECT 1 FROM iteration_summary WHERE (?1 = 0 OR "
                                      "run_id = ?1) AND iteration BETWEEN ?2 AND ?3 LIMIT 1",
                                      values, 3, &any, 1, error);
    if (code || any)
        return code;
    code = mp_store_numbers(store,
                            "SELECT count(*), min(iteration), max(iteration) FROM v_span "
                            "WHERE (?1 = 0 OR run_id = ?1) AND iteration >= 0",
                            values, 1, there, 3, error);
    if (!code)
        code = mp_store_numbers(store, "SELECT count(*) FROM run WHERE ?1 = 0 OR run_id = ?1",
                                values, 1, &of_run, 1, error);
    if (code || (there[0] && there[1] <= selection->last && selection->first <= there[2]))
        return code;
    if (!there[0]) /* of a run that is not there the export itself says so */
        return of_run ? mp_fail(error, MP_EINVAL, "--iterations: nothing recorded has an iteration")
                      : MP_OK;
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

static int write_file(struct mp_store *store, const struct cli_results_export *wanted,
                      const struct mp_results_selection *selection, const char *path,
                      struct mp_results_exported *exported, struct mp_error *error) {
    if (!strcmp(wanted->kind, "perfetto"))
        return mp_results_perfetto(store, selection, path, exported, error);
    if (!strcmp(wanted->kind, "json"))
        return mp_results_json(store, selection, path, exported, error);
    return mp_results_csv(store, selection, wanted->view, path, exported, error);
}

int cli_write_results(const struct cli_results_export *wanted, const char *path,
                      struct mp_error *error) {
    struct mp_results_selection selection = {.run_id = wanted->run_id};
    struct mp_results_exported exported;
    struct mp_store *store = NULL;
    int code = parse_iterations(wanted->iterations, &selection, error);
    if (!code)
        code = cli_open_database(wanted->database, &store, error);
    if (code)
        return code;
    code = check_iterations(store, &selection, error);
    if (!code)
        code = write_file(store, wanted, &selection, path, &exported, error);
    mp_store_close(store);
    if (!code && !strcmp(wanted->kind, "perfetto"))
        print_timeline(cli_beside(path), path, &exported);
    else if (!code)
        fprintf(cli_beside(path), "%s: %" PRId64 " rows\n", path, exported.rows);
    return code;
}
