#include "harness/cli/export_results.h"

#include <errno.h>
#include <inttypes.h>
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

int cli_write_results(const struct cli_results_export *wanted, const char *path,
                      struct mp_error *error) {
    struct mp_results_selection selection = {.run_id = wanted->run_id};
    struct mp_results_exported exported;
    struct mp_store *store = NULL;
    int code = parse_iterations(wanted->iterations, &selection, error);
    if (!code)
        code = mp_store_open_read_only(wanted->database, &store, error);
    if (code)
        return code;
    if (!strcmp(wanted->kind, "perfetto"))
        code = mp_results_perfetto(store, &selection, path, &exported, error);
    else if (!strcmp(wanted->kind, "json"))
        code = mp_results_json(store, &selection, path, &exported, error);
    else
        code = mp_results_csv(store, &selection, wanted->view, path, &exported, error);
    mp_store_close(store);
    if (!code && !strcmp(wanted->kind, "perfetto"))
        print_timeline(cli_beside(path), path, &exported);
    else if (!code)
        fprintf(cli_beside(path), "%s: %" PRId64 " rows\n", path, exported.rows);
    return code;
}
