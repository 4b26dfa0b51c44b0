/* What all systems of one setting are compared by. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "profiler/record/record.h"
#include "results/report/findings.h"
#include "results/report/page.h"
#include "results/report/query.h"

/* What its parts are made of; the rows' examples stand for them where one run has to. */
struct setting {
    struct page *page;
    int table, count;
    struct speedup_row *row;     /* [count] */
    struct straggler *straggler; /* [count] who waits in the examples */
};

static const struct report_run *example_of(const struct setting *setting, int i) {
    return report_group_example(setting->page->runs, setting->row[i].group);
}

/* ---- in words ---- */

/* The fastest of the table that anyone could run instead of row `own`; NULL for none, and where
 * other programs had the processors for so long that times don't tell. */
static const char *faster_than(const struct setting *setting, int own) {
    const struct speedup_row *best = NULL, *current = &setting->row[own];
    if (report_taken(setting->page->runs, setting->table) > REPORT_TAKEN_MOST)
        return NULL;
    for (int i = 0; i < setting->count; i++) {
        const struct speedup_row *row = &setting->row[i];
        if (!row->unattainable && !(row->dropped > 0) && !row->ranks_share_cores &&
            !isnan(row->ms) && (!best || row->ms < best->ms))
            best = row;
    }
    return best && best->ms < 0.97 * current->ms ? best->run.label : NULL;
}

static int add_incomplete(const struct report_runs *runs, int table, json_t *findings,
                          struct mp_error *error) {
    for (int i = 0; i < runs->count; i++) {
        const struct report_run *run = &runs->run[i];
        char title[160];
        if (run->complete || run->table != table)
            continue;
        if (run->refused)
            snprintf(title, sizeof title, "%.60s: refused, so it was never started", run->job);
        else
            snprintf(title, sizeof title,
                     "Run %lld of %.60s, round %d: %.20s after %lld of %lld iterations",
                     (long long)run->run_id, run->job, run->round + 1, run->status,
                     (long long)run->iterations, (long long)run->iterations_wanted);
        MP_TRY(finding_add(findings, title, run->reason[0] ? run->reason : "no reason was recorded",
                           true, error));
    }
    return MP_OK;
}

/* The system whose waiting stands for the setting: the first that has a whole run.  Where EP has,
 * it is EP, what the others are compared with. */
static int standing_for(const struct setting *setting) {
    const int first = MP_PLACE(i, setting->count, setting->row[i].complete > 0);
    return first < setting->count ? first : 0;
}

static int write_summary(const struct setting *setting, struct mp_error *error) {
    MP_AUTO(json) json_t *findings = json_array();
    const struct report_runs *runs = setting->page->runs;
    const int shown = standing_for(setting);
    const struct report_run *first = example_of(setting, shown);
    MP_TRY(findings_stragglers(&setting->straggler[shown], first->label,
                               faster_than(setting, shown), 1, findings, error));
    MP_TRY(findings_speed(runs, setting->row, setting->count, setting->table, findings, error));
    if (first->predicted)
        MP_TRY(finding_add(findings, "Predicted, not measured",
                           "Every time in this setting is a model's; what it assumes is listed "
                           "with each system.",
                           true, error));
    MP_TRY(add_incomplete(runs, setting->table, findings, error));
    page_findings(setting->page->out, findings);
    return MP_OK;
}

/* ---- speed-up ---- */

static json_t *speedup_data(const struct setting *setting) {
    json_t *list = json_array();
    for (int i = 0; i < setting->count; i++) {
        const struct speedup_row *row = &setting->row[i];
        if (!isnan(row->ms))
            json_array_append_new(list, json_pack("[offfib]", text_value(row->run.label), row->ms,
                                                  row->ms_min, row->ms_max, row->complete,
                                                  row->unattainable));
    }
    return json_pack("{s[ssssss] so}", "columns", "label", "ms", "low", "high", "rounds",
                     "unattainable", "rows", list);
}

static int write_speedup(const struct setting *setting, struct mp_error *error) {
    MP_AUTO(table) struct table table = {0};
    bool shared = false, has_ratios = false;
    for (int i = 0; i < setting->count; i++) {
        shared = shared || setting->row[i].ranks_share_cores;
        has_ratios = has_ratios || !isnan(setting->row[i].speedup);
    }
    const char *caption =
        shared ? "Median over rounds of each run's median steady iteration (ms). Ranks shared "
                 "cores: these wall times are no speed-up."
               : "Median over rounds of each run's median steady iteration (ms); lines reach from "
                 "the fastest to the slowest round, dashed bars are what no system attains.";
    MP_TRY(page_figure_of(setting->page, "speedup", "Time per iteration", caption,
                          speedup_data(setting), error));
    MP_TRY(speedup_table(setting->row, setting->count, &table, error));
    page_table(setting->page->out, &table,
               has_ratios ? "Ratios compare inside a round and are the median of the rounds' "
                            "own; ranges are the smallest and largest round."
                          : NULL,
               NULL);
    return MP_OK;
}

/* ---- curves and phases ---- */

#define BINNED                                                                                     \
    "WITH bins AS (SELECT (count(*) + 199) / 200 AS width FROM v_iteration WHERE run_id = ?1) "

static const char iterations_sql[] =
    BINNED "SELECT min(iteration) AS iteration, avg(ms) AS ms, max(ms) AS high, max(steady) AS "
           "steady FROM v_iteration, bins WHERE run_id = ?1 GROUP BY iteration / width ORDER BY 1";

static const char losses_sql[] =
    BINNED "SELECT min(iteration) AS iteration, avg(loss) AS loss FROM v_iteration, bins "
           "WHERE run_id = ?1 AND loss IS NOT NULL GROUP BY iteration / width ORDER BY 1";

/* iteration_ms is the same in all rows; what the phases leave of it belongs to none. */
static const char phases_sql[] =
    "WITH inside AS (SELECT *, (SELECT count(*) * 1.0 FROM v_iteration WHERE run_id = ?1) AS n "
    "FROM v_phase WHERE run_id = ?1 AND share IS NOT NULL) "
    "SELECT " PAGE_FAMILY ", phase, exposed_ms / n, wait_ms / n FROM inside UNION ALL "
    "SELECT 7, '', max(0, max(iteration_ms) - sum(exposed_ms)) / max(n), 0 FROM inside "
    "HAVING count(*) > 0";

/* ms that a rank waits in a phase until others come, of the `blocked` ms that transfers are in,
 * too; all of those where the analysis abstains. */
static double waits_in(const struct straggler *straggler, const char *phase, double blocked) {
    const struct mp_straggler *found = &straggler->found;
    const int number = (int)mp_phase_find(phase, strlen(phase));
    double seconds = 0;
    for (int p = 0; p < found->places; p++)
        seconds += found->place[p].phase == number ? found->place[p].waiting / found->ranks : 0;
    return found->slowdowns.rank ? fmin(blocked, 1e3 * seconds) : blocked;
}

static int add_phases(const struct setting *setting, int i, json_t *list, struct mp_error *error) {
    double ms[PAGE_FAMILIES] = {0};
    bool is_there[PAGE_FAMILIES] = {false};
    struct query query =
        query_begin(setting->page->store, phases_sql, example_of(setting, i)->run_id, error);
    while (query_next(&query)) {
        const int family = sqlite3_column_int(query.row, 0);
        const double waits =
            waits_in(&setting->straggler[i], query_text(query.row, 1), query_double(query.row, 3));
        ms[family] += query_double(query.row, 2) - waits;
        ms[PAGE_WAITING] += waits;
        is_there[family] = is_there[PAGE_WAITING] = true;
    }
    for (int f = 0; f < PAGE_FAMILIES; f++)
        if (is_there[f])
            json_array_append_new(
                list, json_pack("[oif]", text_value(setting->row[i].run.label), f, ms[f]));
    return query_end(&query);
}

static int write_phases(const struct setting *setting, struct mp_error *error) {
    MP_AUTO(json) json_t *list = json_array();
    for (int i = 0; i < setting->count; i++)
        MP_TRY(add_phases(setting, i, list, error));
    return page_figure_of(
        setting->page, "phases", "Where an iteration goes",
        "Mean over iterations and ranks (ms), the rank's own thread: what lies behind computation "
        "is not in it. Red is waiting until other ranks come; what transfers take then is with "
        "what they carry.",
        json_pack("{s[sss] sO}", "columns", "label", "family", "ms", "rows", list), error);
}

static const struct {
    const char *chart, *sql, *title, *caption;
} comparisons[] = {
    {"iteration-time", iterations_sql, "Iteration time",
     "The first iterations may leave the frame, which is drawn for the steady ones (ms)."},
    {"loss", losses_sql, "Training loss",
     "Systems that change nothing that is computed lie on each other."},
};

static int write_comparisons(const struct setting *setting, struct mp_error *error) {
    for (size_t c = 0; c < MP_LENGTH(comparisons); c++) {
        MP_AUTO(json) json_t *data = page_data();
        for (int i = 0; i < setting->count; i++)
            MP_TRY(page_data_add(setting->page, data, comparisons[c].sql,
                                 example_of(setting, i)->run_id, 0, setting->row[i].run.label,
                                 error));
        MP_TRY(page_figure_of(setting->page, comparisons[c].chart, comparisons[c].title,
                              comparisons[c].caption, json_incref(data), error));
    }
    return MP_OK;
}

/* ---- predicted beside measured ---- */

/* The other executor's run of the same system: of the same invocation and job, or else of the same
 * model and workload. */
static const char counterpart_sql[] =
    "SELECT other.ms_per_iteration, (SELECT value FROM v_fact WHERE "
    "v_fact.run_id = max(own.run_id * (own.executor = 'predicted'), other.run_id * (other.executor "
    "= 'predicted')) AND name = 'cluster') FROM v_speedup AS own JOIN v_speedup AS "
    "other ON other.system = own.system AND other.executor <> own.executor AND other.ranks = "
    "own.ranks AND (other.suite_run = own.suite_run AND other.job = own.job OR other.model IS "
    "own.model AND other.workload = own.workload) WHERE own.run_id = ?1 AND other.status = "
    "'complete' AND other.ms_per_iteration IS NOT NULL ORDER BY other.suite_run = own.suite_run "
    "DESC, other.run_id DESC LIMIT 1";

struct pair {
    const char *label;
    double measured, predicted, ratio;
    char cluster[96];
};

static const struct table_column pair_columns[] = {
    {"system", TABLE_LEFT, .at = offsetof(struct pair, label)},
    {"measured", TABLE_NUMBER, "ms", .at = offsetof(struct pair, measured), .decimals = 2},
    {"predicted", TABLE_NUMBER, "ms", .at = offsetof(struct pair, predicted), .decimals = 2},
    {"predicted / measured", TABLE_NUMBER, .at = offsetof(struct pair, ratio), .decimals = 2},
    {"predicted for", TABLE_ARRAY, .at = offsetof(struct pair, cluster)}};

/* Adds the pair, if there is one, to the chart's rows and to the table. */
static int add_pair(const struct setting *setting, int i, json_t *chart, struct table *table,
                    struct mp_error *error) {
    const struct speedup_row *row = &setting->row[i];
    const struct report_run *run = example_of(setting, i);
    struct query other = query_begin(setting->page->store, counterpart_sql, run->run_id, error);
    if (query_next(&other) && !isnan(row->ms)) {
        double counterpart = query_double(other.row, 0);
        struct pair pair = {.label = row->run.label,
                            .measured = run->predicted ? counterpart : row->ms,
                            .predicted = run->predicted ? row->ms : counterpart};
        pair.ratio = pair.predicted / pair.measured;
        snprintf(pair.cluster, sizeof pair.cluster, "%s", query_text(other.row, 1));
        json_array_append_new(
            chart, json_pack("[off]", text_value(pair.label), pair.measured, pair.predicted));
        other.code = table_fill(table, &pair, 1, sizeof pair, error);
    }
    return query_end(&other);
}

static int write_predicted(const struct setting *setting, struct mp_error *error) {
    MP_AUTO(json) json_t *chart = json_array();
    MP_AUTO(table) struct table table = table_of(pair_columns, MP_LENGTH(pair_columns));
    for (int i = 0; i < setting->count; i++)
        MP_TRY(add_pair(setting, i, chart, &table, error));
    if (table.rows > 0)
        MP_TRY(page_figure_of(
            setting->page, "predicted", "Predicted beside measured",
            "Median time per iteration (ms) of the same system, measured and by the predictor.",
            json_pack("{s[sss] sO}", "columns", "label", "measured", "predicted", "rows", chart),
            error));
    page_table(setting->page->out, &table, NULL, NULL);
    return MP_OK;
}

/* ---- single systems ---- */

enum { FINDINGS_OF_RUN = 4 };

/* Efficiencies, what-ifs, places and ranks: the tables of moeperf report --stragglers. */
static int write_analysis(const struct straggler *straggler, FILE *out, struct mp_error *error) {
    MP_AUTO(text) char *text = NULL;
    char *rest;
    size_t size;
    FILE *memory = open_memstream(&text, &size);
    const int code = memory ? stragglers_detail_print(straggler, memory, error) : MP_OK;
    if (!memory || fclose(memory))
        return mp_no_memory(error);
    MP_TRY(code);
    if (!text[0])
        return MP_OK;
    fputs("<details><summary>Waiting, in full</summary><pre>", out);
    for (char *line = text; (rest = strchr(line, '\n')); line = rest + 1) {
        *rest = '\0';
        page_print(out, "%s", line);
        fputc('\n', out);
    }
    fputs("</pre></details>\n", out);
    return MP_OK;
}

static int write_run(const struct setting *setting, int i, struct mp_error *error) {
    struct page *page = setting->page;
    const struct straggler *straggler = &setting->straggler[i];
    const struct report_run *run = example_of(setting, i);
    MP_AUTO(json) json_t *findings = json_array();
    page_print(page->out, "<section data-label=\"%s\">\n", run->label);
    page_print(page->out, "<p class=\"muted\">Job %s, run ", run->job);
    fprintf(page->out, "%lld", (long long)run->run_id);
    page_print(page->out, "%s%s</p>\n", run->predicted ? REPORT_PREDICTED : "",
               run->ranks_share_cores ? "; its ranks shared cores: these times are no speed-up"
                                      : "");
    MP_TRY(findings_stragglers(straggler, NULL, faster_than(setting, i), FINDINGS_OF_RUN, findings,
                               error));
    page_findings(page->out, findings);
    MP_TRY(write_analysis(straggler, page->out, error));
    MP_TRY(page_run(page, run, error));
    fputs("</section>\n", page->out);
    return MP_OK;
}

/* Those that were analysed, and how to see the others. */
static int write_runs(const struct setting *setting, struct mp_error *error) {
    struct page *page = setting->page;
    int left = 0;
    char command[COMMAND_TEXT] = "";
    fputs("<h2>One system in detail</h2>\n<div data-choose=\"System\">\n", page->out);
    for (int i = 0; i < setting->count; i++) {
        long long run_id = (long long)example_of(setting, i)->run_id;
        if (setting->straggler[i].context.run_id != 0)
            MP_TRY(write_run(setting, i, error));
        else if (left++ == 0)
            command_text(command, mp_store_path(page->store),
                         "report --run %lld --html run-%lld.html", run_id, run_id);
    }
    fputs("</div>\n", page->out);
    if (left > 0) {
        page_print(page->out,
                   "<p class=\"muted\">%d more are left out to keep this file small; the first of "
                   "them is shown by:",
                   left);
        page_command(page->out, command);
        fputs("</p>\n", page->out);
    }
    return MP_OK;
}

static int write_setting(const struct setting *setting, struct mp_error *error) {
    struct page *page = setting->page;
    for (int i = 0; i < setting->count; i++) {
        bool shown = i == standing_for(setting) || page->run_sections < MP_HTML_RUNS;
        page->run_sections += shown;
        MP_TRY(straggler_find(page->store, example_of(setting, i)->run_id, &setting->straggler[i],
                              error));
        if (!shown) /* no section of its own */
            setting->straggler[i].context.run_id = 0;
    }
    MP_TRY(write_summary(setting, error));
    MP_TRY(write_speedup(setting, error));
    MP_TRY(write_phases(setting, error));
    MP_TRY(write_comparisons(setting, error));
    MP_TRY(write_predicted(setting, error));
    return write_runs(setting, error);
}

int page_setting(struct page *page, int table, struct mp_error *error) {
    MP_AUTO(speedup_rows) struct speedup_row *rows = NULL;
    MP_AUTO(stragglers) struct straggler_list list = {0};
    char heading[REPORT_HEADING];
    int count;
    MP_TRY(speedup_rows(page->runs, table, &rows, &count, error));
    MP_TRY(straggler_list_make(&list, count, error));
    report_table_heading(page->runs, table, heading);
    page_print(page->out, "<section data-label=\"%s\">\n<h2>%s</h2>\n", heading, heading);
    const struct setting setting = {page, table, count, rows, list.one};
    MP_TRY(write_setting(&setting, error));
    fputs("</section>\n", page->out);
    return MP_OK;
}
