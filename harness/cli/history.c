/* moeperf history: where the runs of many revisions changed. */
#include <string.h>
#include <unistd.h>

#include "harness/cli/cli.h"
#include "harness/predict/job.h"
#include "results/compare/history.h"

static struct {
    const char *append, *suite, *job;
    struct mp_page_output page;
    bool json;
} given;

static const struct cli_flag known_flags[] = {
    {"--suite", CLI_VALUE, &given.suite, "NAME", "of this suite only"},
    {"--job", CLI_VALUE, &given.job, "NAME", "of this job only"},
    {"--append", CLI_VALUE, &given.append, "FILE.jsonl",
     "reads this file, too, and adds a line to it for every run that it\n"
     "lacks: a history that outlives databases"},
    {"--html", CLI_VALUE, &given.page.html, "FILE",
     "writes one self-contained HTML file with a chart of each\n"
     "series instead"},
    {"--figures", CLI_VALUE, &given.page.figures, "FOLDER", CLI_FIGURES_HELP},
    {"--json", CLI_SWITCH, &given.json, NULL, "prints all series as a JSON object"},
    {0},
};
static const struct cli_usage usage = {
    "moeperf history [FILE ...] [options]",
    "Puts the runs of many revisions in a row, each job on each machine by itself, and\n"
    "says where its time or an exact measure changed, and with which revision first.\n"
    "FILE is a database (" CLI_DATABASE "), or lines of an earlier --append, *.jsonl.\n"
    "Times change where the values in front and behind are too far apart for chance;\n"
    "routes, bytes, copies and predicted times where two revisions differ.  It reports\n"
    "and judges nothing: moeperf compare is the gate.",
    known_flags,
    0,
    CLI_WORDS_LIMIT,
    "  moeperf history nightly.db\n"
    "  moeperf history out/results.db --append history.jsonl\n"
    "  moeperf history history.jsonl --html history.html\n"
    "  moeperf history history.jsonl --suite quickstart --job fssdp --json\n"};

static bool has_lines(const char *path) {
    const char *ending = strrchr(path, '.');
    return ending && !strcmp(ending, ".jsonl");
}

static int add_file(struct mp_history *history, const char *path, struct mp_gate_defaults defaults,
                    struct mp_error *error) {
    MP_AUTO(store) struct mp_store *store = NULL;
    if (has_lines(path))
        return mp_history_add_lines(history, path, error);
    MP_TRY(cli_open_database(path, &store, error));
    return mp_history_add_store(history, store, defaults, error);
}

/* What is new goes behind what is there: a file that is cut meanwhile keeps its whole lines. */
static int append(const struct mp_history *history, const char *path, size_t first,
                  struct mp_error *error) {
    FILE *file = fopen(path, "a");
    if (!file)
        return mp_fail_errno(error, "%s", path);
    int code = mp_history_write_lines(history, first, file, error);
    if (fclose(file) && !code)
        code = mp_fail_errno(error, "%s", path);
    const size_t added = json_array_size(history->rows) - first;
    fprintf(stderr, "moeperf history: %zu run%s added to %s\n", added, added == 1 ? "" : "s", path);
    return code;
}

static int history(const struct cli_call *call, struct mp_error *error) {
    const struct mp_gate_defaults defaults = {mp_predict_job_defaults, call->systems};
    MP_AUTO(history) struct mp_history found = {0};
    if (given.append && !has_lines(given.append))
        return mp_fail(error, MP_EINVAL, "--append %.200s: its name has to end in .jsonl",
                       given.append);
    const char *first = call->words->count > 0 ? call->words->word[0] : CLI_DATABASE;
    const bool draws = given.page.html || given.page.figures;
    if (draws && given.json)
        return mp_fail(error, MP_EINVAL, "--html and --figures draw; --json does not go with them");
    if (given.append && !access(given.append, F_OK))
        MP_TRY(mp_history_add_lines(&found, given.append, error));
    const size_t known = json_array_size(found.rows);
    MP_TRY(add_file(&found, first, defaults, error));
    for (int i = 1; i < call->words->count; i++)
        MP_TRY(add_file(&found, call->words->word[i], defaults, error));
    if (given.append && json_array_size(found.rows) > 0) /* without any no file is begun */
        MP_TRY(append(&found, given.append, known, error));
    if (mp_history_find(&found, given.suite, given.job, error))
        return mp_error_prefix(error, "%.300s%s", first, call->words->count > 1 ? ", ..." : "");
    return draws        ? mp_history_html(&found, &given.page, error)
           : given.json ? mp_history_print_json(&found, stdout, error)
                        : mp_history_print(&found, stdout, error);
}

const struct cli_command cli_history = {
    "history", "says which revision changed a time or a measure", history, .usage = &usage};
