/* What the tests of exports share: where they write, and timelines read back. */
#pragma once

#include "results/export/export.h"
#include "tests/results/export/trace_events.h"
#include "tests/results/runs.h"

static const struct mp_results_selection everything;
static struct mp_results_exported exported; /* by the latest call */

/* The path of the file to write; the folder's test removes it. */
static inline const char *out_path(const struct runs_folder *folder) {
    return formatted("%s/out", folder->path);
}

static inline json_t *load_json(const char *path, size_t flags) {
    json_error_t error;
    json_t *value = json_load_file(path, flags, &error);
    if (!value)
        fail_msg("%s: %s", path, error.text);
    return value;
}

/* A timeline that readers can draw. */
static inline json_t *timeline(struct runs_folder *folder,
                               const struct mp_results_selection *selection) {
    assert_works(
        mp_results_perfetto(folder->store, selection, out_path(folder), &exported, &error));
    json_t *all = load_json(out_path(folder), JSON_ALLOW_NUL);
    trace_check(all);
    return all;
}
