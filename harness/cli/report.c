/* moeperf report: what the database says. */
#include <errno.h>
#include <string.h>

#include "harness/cli/cli.h"
#include "harness/cli/report_object.h"
#include "results/report/html.h"

struct report_flags {
    const char *database, *run, *suite, *suite_run;
    struct mp_page_output page;
    struct cli_format format;
    bool runs, stragglers;
};

static int parse(struct report_flags *flags, int argc, char *argv[], struct cli_words *words,
                 struct mp_error *error) {
    const struct cli_flag table[] = {
        {"--db", CLI_VALUE, &flags->database, "FILE", "database to read (" CLI_DATABASE ")"},
        {"--run", CLI_VALUE, &flags->run, "ID", "one run in full"},
        {"--suite", CLI_VALUE, &flags->suite, "NAME", "the latest invocation of this suite"},
        {"--suite-run", CLI_VALUE, &flags->suite_run, "ID", "exactly this invocation"},
        {"--runs", CLI_SWITCH, &flags->runs, NULL, "lists the runs in the database instead"},
        {"--html", CLI_VALUE, &flags->page.html, "FILE",
         "writes one self-contained HTML file with charts instead"},
        {"--figures", CLI_VALUE, &flags->page.figures, "FOLDER", CLI_FIGURES_HELP},
        {"--stragglers", CLI_SWITCH, &flags->stragglers, NULL,
         "who waits for whom and why, in full; with --run, of\n"
         "one run"},
        CLI_FORMAT_FLAGS(&flags->format),
        {0},
    };
    const struct cli_usage usage = {
        "moeperf report [options]",
        "Prints what a database says about the latest suite: who was faster, who made the\n"
        "others wait, and where the time went.  With --run, everything about one run.  With\n"
        "--html the same as a page with charts, timelines and heat maps, which loads nothing\n"
        "from anywhere.",
        table,
        0,
        0,
        "  moeperf report\n"
        "  moeperf report --html report.html\n"
        "  moeperf report --figures figures\n"
        "  moeperf report --db out/quickstart/results.db --runs\n"
        "  moeperf report --run 2 --json\n"
        "  moeperf report --format latex\n"
        "  moeperf report --stragglers --run 2\n"};
    int code = cli_parse(&usage, argc, argv, words, error);
    return code ? code : cli_read_format(&flags->format, error);
}

static int print_tables(struct mp_store *store, const struct mp_report_selection *selection,
                        enum mp_report_format format, struct mp_error *error) {
    int code = mp_report_speedup(store, selection, format, stdout, error);
    putchar('\n');
    if (!code)
        code = mp_report_convergence(store, selection, format, stdout, error);
    if (!code)
        code = mp_report_stragglers(store, selection, format, stdout, error);
    putchar('\n');
    return code ? code : mp_report_phases(store, selection, format, stdout, error);
}

/* {"speedup": {...}, "convergence": {...}, "stragglers": {...}, "phases": {...}} */
static int print_json(struct mp_store *store, const struct mp_report_selection *selection,
                      struct mp_error *error) {
    static const char *const name[] = {"speedup", "convergence", "stragglers", "phases"};
    cli_report_function *const reports[] = {mp_report_speedup, mp_report_convergence,
                                            mp_report_stragglers, mp_report_phases};
    json_t *all = json_object();
    int code = MP_OK;
    for (int i = 0; i < 4 && !code; i++) {
        json_t *object = cli_report_object(reports[i], store, selection, error);
        if (!object || json_object_set_new(all, name[i], object))
            code = mp_fail(error, MP_ENOMEM, "no memory for the reports");
    }
    if (!code)
        return cli_print_json(all, error);
    json_decref(all);
    return error->code;
}

static int report(const struct mp_systems *systems, int argc, char *argv[],
                  struct mp_error *error) {
    (void)systems;
    struct report_flags flags = {.database = CLI_DATABASE};
    struct cli_words words;
    struct mp_store *store = NULL;
    int64_t run_id = 0;
    int code = parse(&flags, argc, argv, &words, error);
    if (code)
        return code > 0 ? CLI_SUCCESS : code;
    const enum mp_report_format format = flags.format.kind;
    const bool draws = flags.page.html || flags.page.figures;
    if (draws && (flags.format.json || flags.format.name || flags.runs || flags.stragglers))
        return mp_fail(error, MP_EINVAL, "%s draws; %s does not go with it",
                       flags.page.html ? "--html" : "--figures",
                       flags.format.json   ? "--json"
                       : flags.format.name ? "--format"
                       : flags.runs        ? "--runs"
                                           : "--stragglers");
    if (flags.run)
        code = cli_run_number(flags.run, &run_id, error);
    if (!code)
        code = cli_open_database(flags.database, &store, error);
    const struct mp_report_selection selection = {flags.suite, flags.suite_run, draws ? run_id : 0};
    if (code) {
        mp_store_close(store);
        return code;
    }
    if (draws)
        code = mp_report_html(store, &selection, &flags.page, error);
    else if (flags.stragglers)
        code = mp_report_stragglers_in_full(
            store, &(struct mp_report_selection){flags.suite, flags.suite_run, run_id}, format,
            stdout, error);
    else if (flags.run)
        code = mp_report_run(store, run_id, format, stdout, error);
    else if (flags.runs)
        code = mp_report_runs(store, &selection, format, stdout, error);
    else
        code = format == MP_REPORT_JSON ? print_json(store, &selection, error)
                                        : print_tables(store, &selection, format, error);
    mp_store_close(store);
    if (!code && fflush(stdout))
        code = mp_fail(error, MP_EIO, "can't write the report: %s", strerror(errno));
    return code;
}

const struct cli_command cli_report = {"report", "prints what a database says", report};
