/* moeperf report: what the database says. */
#include <jansson.h>
#include <stdlib.h>

#include "harness/cli/cli.h"
#include "results/report/html.h"
#include "results/report/report.h"

static struct {
    const char *database, *run, *suite, *suite_run;
    struct mp_page_output page;
    struct cli_format format;
    bool runs, stragglers;
} given = {.database = CLI_DATABASE};

static const struct cli_flag known_flags[] = {
    {"--db", CLI_VALUE, &given.database, "FILE", "database to read (" CLI_DATABASE ")"},
    {"--run", CLI_VALUE, &given.run, "ID", "one run in full"},
    {"--suite", CLI_VALUE, &given.suite, "NAME", "the latest invocation of this suite"},
    {"--suite-run", CLI_VALUE, &given.suite_run, "ID", "exactly this invocation"},
    {"--runs", CLI_SWITCH, &given.runs, NULL, "lists the runs in the database instead"},
    {"--html", CLI_VALUE, &given.page.html, "FILE",
     "writes one self-contained HTML file with charts instead"},
    {"--figures", CLI_VALUE, &given.page.figures, "FOLDER", CLI_FIGURES_HELP},
    {"--stragglers", CLI_SWITCH, &given.stragglers, NULL,
     "who waits for whom and why, in full; with --run, of\n"
     "one run"},
    CLI_FORMAT_FLAGS(&given.format),
    {0},
};
static const struct cli_usage usage = {
    "moeperf report [options]",
    "Prints what a database says about the latest suite: who was faster, who made the\n"
    "others wait, and where the time went.  With --run, everything about one run.  With\n"
    "--html the same as a page with charts, timelines and heat maps, which loads nothing\n"
    "from anywhere.\n\n"
    "Why others wait for a rank: it has more tokens (routing), takes longer with as many\n"
    "always (slow rank) or now and then (one-off), is late already when its iterations\n"
    "begin and nothing recorded says why (late start), plans, validates or does what is\n"
    "no phase (host); the other causes are what their names say.",
    known_flags,
    0,
    0,
    "  moeperf report\n"
    "  moeperf report --html report.html\n"
    "  moeperf report --figures figures\n"
    "  moeperf report --db out/quickstart/results.db --runs\n"
    "  moeperf report --run 2 --json\n"
    "  moeperf report --format latex\n"
    "  moeperf report --stragglers --run 2\n"};

/* One report (results/report/report.h) as an object; NULL with `error` set. */
static json_t *report_object(const struct cli_named_report *report, struct mp_store *store,
                             const struct mp_report_selection *selection, struct mp_error *error) {
    char *text = NULL;
    size_t size;
    json_t *object = NULL;
    FILE *stream = open_memstream(&text, &size);
    if (stream) {
        int code = report->print(store, selection, MP_REPORT_JSON, stream, error);
        if (fclose(stream) == 0 && !code)
            object = json_loadb(text, size, 0, NULL);
    }
    free(text);
    return object;
}

int cli_print_reports(json_t *all, const struct cli_named_report reports[], struct mp_store *store,
                      const struct mp_report_selection *selection, enum mp_report_format format,
                      struct mp_error *error) {
    for (; reports->name; reports++) {
        if (format != MP_REPORT_JSON) {
            MP_TRY(reports->print(store, selection, format, stdout, error));
            fputs(reports->parted ? "\n" : "", stdout);
            continue;
        }
        json_t *object = report_object(reports, store, selection, error);
        if (json_object_set_new(all, reports->name, object)) {
            json_decref(all);
            mp_fail(error, MP_ENOMEM, "no memory for a report"); /* unless it has said why */
            return error->code;
        }
    }
    return format == MP_REPORT_JSON ? cli_print_json(all, error) : MP_OK;
}

static const struct cli_named_report reports[] = {{"speedup", mp_report_speedup, true},
                                                  {"convergence", mp_report_convergence, false},
                                                  {"stragglers", mp_report_stragglers, true},
                                                  {"phases", mp_report_phases, false},
                                                  {0}};

static int report(const struct cli_call *call, struct mp_error *error) {
    (void)call;
    MP_AUTO(store) struct mp_store *store = NULL;
    int64_t run_id = 0;
    const enum mp_report_format format = given.format.kind;
    const bool draws = given.page.html || given.page.figures;
    if (draws && (given.format.json || given.format.name || given.runs || given.stragglers))
        return mp_fail(error, MP_EINVAL, "%s draws; %s does not go with it",
                       given.page.html ? "--html" : "--figures",
                       given.format.json   ? "--json"
                       : given.format.name ? "--format"
                       : given.runs        ? "--runs"
                                           : "--stragglers");
    if (given.runs && (given.run || given.stragglers))
        return mp_fail(error, MP_EINVAL, "--runs lists all; %s does not go with it",
                       given.run ? "--run" : "--stragglers");
    if (given.run)
        MP_TRY(cli_run_number(given.run, &run_id, error));
    MP_TRY(cli_open_database(given.database, &store, error));
    const struct mp_report_selection selection = {given.suite, given.suite_run,
                                                  draws || given.stragglers ? run_id : 0};
    if (draws)
        return mp_report_html(store, &selection, &given.page, error);
    if (given.stragglers)
        return mp_report_stragglers_in_full(store, &selection, format, stdout, error);
    if (given.run)
        return mp_report_run(store, run_id, format, stdout, error);
    if (given.runs)
        return mp_report_runs(store, &selection, format, stdout, error);
    return cli_print_reports(format == MP_REPORT_JSON ? json_object() : NULL, reports, store,
                             &selection, format, error);
}

const struct cli_command cli_report = {"report", "prints what a database says", report,
                                       .usage = &usage};
