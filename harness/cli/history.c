/* moeperf history: where the runs of many revisions changed. */
#include <errno.h>
#include <string.h>
#include <unistd.h>

#include "harness/cli/cli.h"
#include "results/compare/history.h"

struct history_flags {
    const char *append, *suite, *job;
    struct mp_page_output page;
    bool json;
};

static int parse(struct history_flags *flags, int argc, char *argv[], struct cli_words *words,
                 struct mp_error *error) {
    const struct cli_flag table[] = {
        {"--suite", CLI_VALUE, &flags->suite, "NAME", "of this suite only"},
        {"--job", CLI_VALUE, &flags->job, "NAME", "of this job only"},
        {"--append", CLI_VALUE, &flags->append, "FILE.jsonl",
         "reads this file, too, and adds a line to it for every run that it\n"
         "lacks: a history that outlives databases"},
        {"--html", CLI_VALUE, &flags->page.html, "FILE",
         "writes one self-contained HTML file with a chart of each\n"
         "series instead"},
        {"--figures", CLI_VALUE, &flags->page.figures, "FOLDER", CLI_FIGURES_HELP},
        {"--json", CLI_SWITCH, &flags->json, NULL, "prints all series as a JSON object"},
        {0},
    };
    const struct cli_usage usage = {
        "moeperf history [FILE ...] [options]",
        "Puts the runs of many revisions in a row, each job on each machine by itself, and\n"
        "says where its time or an exact measure changed, and with which revision first.\n"
        "FILE is a database (" CLI_DATABASE "), or lines of an earlier --append, *.jsonl.\n"
        "Times change where the values in front and behind are too far apart for chance;\n"
        "routes, bytes, copies and predicted times where two revisions differ.  It reports\n"
        "and judges nothing: moeperf compare is the gate.",
        table,
        0,
        CLI_WORDS_LIMIT,
        "  moeperf history nightly.db\n"
        "  moeperf history out/results.db --append history.jsonl\n"
        "  moeperf history history.jsonl --html history.html\n"
        "  moeperf history history.jsonl --suite quickstart --job fssdp --json\n"};
    return cli_parse(&usage, argc, argv, words, error);
}

static bool has_lines(const char *path) {
    const char *ending = strrchr(path, '.');
    return ending && !strcmp(ending, ".jsonl");
}

static int add_file(struct mp_history *history, const char *path, struct mp_error *error) {
    struct mp_store *store = NULL;
    if (has_lines(path))
        return mp_history_add_lines(history, path, error);
    int code = cli_open_database(path, &store, error);
    if (!code)
        code = mp_history_add_store(history, store, error);
    mp_store_close(store);
    return code;
}

/* What is new goes behind what is there: a file that is cut meanwhile keeps its whole lines. */
static int append(const struct mp_history *history, const char *path, size_t first,
                  struct mp_error *error) {
    FILE *file = fopen(path, "a");
    if (!file)
        return mp_fail(error, MP_EIO, "%s: %s", path, strerror(errno));
    int code = mp_history_write_lines(history, first, file, error);
    if (fclose(file) && !code)
        code = mp_fail(error, MP_EIO, "%s: %s", path, strerror(errno));
    fprintf(stderr, "moeperf history: %zu runs added to %s\n",
            json_array_size(history->rows) - first, path);
    return code;
}

static int history(const struct mp_systems *systems, int argc, char *argv[],
                   struct mp_error *error) {
    (void)systems;
    struct history_flags flags = {0};
    struct cli_words words;
    struct mp_history found = {0};
    size_t known = 0;
    int code = parse(&flags, argc, argv, &words, error);
    if (code)
        return code > 0 ? CLI_SUCCESS : code;
    if (flags.append && !has_lines(flags.append))
        return mp_fail(error, MP_EINVAL, "--append %.200s: its name has to end in .jsonl",
                       flags.append);
    const bool draws = flags.page.html || flags.page.figures;
    if (draws && flags.json)
        return mp_fail(error, MP_EINVAL, "--html and --figures draw; --json does not go with them");
    if (flags.append && !access(flags.append, F_OK))
        code = mp_history_add_lines(&found, flags.append, error);
    known = json_array_size(found.rows);
    for (int i = 0; i < words.count && !code; i++)
        code = add_file(&found, words.word[i], error);
    if (!code && words.count == 0)
        code = add_file(&found, CLI_DATABASE, error);
    if (!code && flags.append)
        code = append(&found, flags.append, known, error);
    if (!code)
        code = mp_history_find(&found, flags.suite, flags.job, error);
    if (!code && draws)
        code = mp_history_html(&found, &flags.page, error);
    else if (!code)
        code = flags.json ? mp_history_print_json(&found, stdout, error)
                          : mp_history_print(&found, stdout, error);
    mp_history_destroy(&found);
    return code;
}

const struct cli_command cli_history = {"history",
                                        "says which revision changed a time or a measure", history};
