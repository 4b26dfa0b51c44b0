#include "results/report/stragglers.h"

#include <math.h>
#include <string.h>

#include "results/report/groups.h"
#include "results/report/query.h"
#include "results/report/table.h"

/* The iterations that count: the steady ones, or all where none is steady. */
#define COUNTED                                                                                    \
    "WITH counted AS (SELECT run_id, iteration, slowest_rank, wait_ms FROM v_iteration "           \
    "WHERE run_id = ?1 AND (steady OR NOT EXISTS (SELECT 1 FROM v_iteration WHERE run_id = ?1 "    \
    "AND steady))) "

static const char whole_sql[] =
    COUNTED "SELECT slowest_rank, count(*), (SELECT count(*) FROM counted), "
            "(SELECT avg(wait_ms) FROM counted) "
            "FROM counted GROUP BY slowest_rank ORDER BY 2 DESC, 1 LIMIT 1";

static const char worst_sql[] =
    COUNTED "SELECT layer, phase, sum(lost_ms), sum(straggler_ms), "
            "avg(slowest_tokens) / nullif(avg(mean_tokens), 0) "
            "FROM counted JOIN v_straggler USING (run_id, iteration) "
            "WHERE phase NOT IN ('validate', 'checkpoint') "
            "GROUP BY layer, phase HAVING sum(lost_ms) > 0 ORDER BY 3 DESC, 1, 2 LIMIT 1";

static const char phase_rank_sql[] =
    COUNTED "SELECT v_straggler.slowest_rank, count(*) "
            "FROM counted JOIN v_straggler USING (run_id, iteration) "
            "WHERE layer = ?2 AND phase = ?3 GROUP BY 1 ORDER BY 2 DESC, 1 LIMIT 1";

static const char layer_wait_sql[] =
    COUNTED "SELECT sum(v_straggler.wait_ms) FROM counted "
            "JOIN v_straggler USING (run_id, iteration) WHERE layer = ?2 "
            "AND phase NOT IN ('validate', 'checkpoint')";

/* Opens a query and takes its first row; *row is NULL when there is none. */
static int first_row(struct mp_store *store, const char *sql, int64_t run_id,
                     const struct straggler *found, sqlite3_stmt **row, struct mp_error *error) {
    int code = query_open(store, sql, run_id, row, error);
    if (code)
        return code;
    if (sqlite3_bind_parameter_count(*row) >= 2)
        sqlite3_bind_int(*row, 2, found->layer);
    if (sqlite3_bind_parameter_count(*row) >= 3)
        sqlite3_bind_text(*row, 3, found->phase, -1, SQLITE_STATIC);
    int got = query_next(store, *row, error);
    if (got == 1)
        return MP_OK;
    sqlite3_finalize(*row);
    *row = NULL;
    return got;
}

static int find_whole(struct mp_store *store, int64_t run_id, struct straggler *found,
                      struct mp_error *error) {
    sqlite3_stmt *row;
    int code = first_row(store, whole_sql, run_id, found, &row, error);
    if (code || !row)
        return code;
    found->slowest_rank = sqlite3_column_int(row, 0);
    found->iterations = sqlite3_column_int64(row, 2);
    found->slowest_share = query_double(row, 1) / query_double(row, 2);
    found->wait_ms = query_double(row, 3);
    sqlite3_finalize(row);
    return MP_OK;
}

static int find_worst(struct mp_store *store, int64_t run_id, struct straggler *found,
                      struct mp_error *error) {
    sqlite3_stmt *row;
    double count = (double)found->iterations;
    int code = first_row(store, worst_sql, run_id, found, &row, error);
    if (code || !row)
        return code;
    found->has_worst = true;
    found->layer = sqlite3_column_int(row, 0);
    table_clean(found->phase, sizeof found->phase, query_text(row, 1));
    found->lost_ms = query_double(row, 2) / count;
    found->longer_ms = query_double(row, 3) / count;
    found->tokens_ratio = query_double(row, 4);
    sqlite3_finalize(row);

    code = first_row(store, phase_rank_sql, run_id, found, &row, error);
    if (code || !row)
        return code;
    found->phase_rank = sqlite3_column_int(row, 0);
    found->phase_rank_share = query_double(row, 1) / count;
    sqlite3_finalize(row);

    code = first_row(store, layer_wait_sql, run_id, found, &row, error);
    if (code || !row)
        return code;
    found->layer_wait_ms = query_double(row, 0) / count;
    sqlite3_finalize(row);
    return MP_OK;
}

int straggler_find(struct mp_store *store, int64_t run_id, struct straggler *found,
                   struct mp_error *error) {
    *found = (struct straggler){.slowest_rank = -1,
                                .slowest_share = NAN,
                                .wait_ms = NAN,
                                .layer = -1,
                                .phase_rank = -1,
                                .phase_rank_share = NAN,
                                .longer_ms = NAN,
                                .lost_ms = NAN,
                                .tokens_ratio = NAN,
                                .layer_wait_ms = NAN};
    int code = find_whole(store, run_id, found, error);
    return code || found->iterations == 0 ? code : find_worst(store, run_id, found, error);
}

/* "layer 1 expert", or the phase alone. */
static const char *place_of(const struct straggler *found, char *buffer, size_t size) {
    if (found->layer >= 0)
        snprintf(buffer, size, "layer %d %s", found->layer, found->phase);
    else
        snprintf(buffer, size, "%s", found->phase);
    return buffer;
}

void straggler_print(const struct straggler *found, const char *label, int ranks, FILE *out) {
    char place[80], tokens[64] = "";
    if (found->iterations == 0) {
        table_paragraph(out, "%s: no iteration was recorded.", label);
        return;
    }
    if (ranks == 1) {
        table_paragraph(out, "%s: one rank, which waits for nobody.", label);
        return;
    }
    if (!found->has_worst) {
        table_paragraph(out, "%s: no rank took longer than another in any phase.", label);
        return;
    }
    if (fabs(found->tokens_ratio - 1) < 0.005)
        snprintf(tokens, sizeof tokens, "no more tokens than the mean but ");
    else if (!isnan(found->tokens_ratio))
        snprintf(tokens, sizeof tokens, "%.2f x the mean tokens, ", found->tokens_ratio);
    table_paragraph(
        out,
        "%s: rank %d was the slowest in %.0f %% of iterations; %s: %s%.2f ms longer than "
        "the mean; the ranks together waited %.2f ms per iteration %s, %.2f ms in all.",
        label, found->slowest_rank, found->slowest_share * 100,
        place_of(found, place, sizeof place), tokens, found->longer_ms, found->layer_wait_ms,
        found->layer >= 0 ? "in that layer" : "outside layers", found->wait_ms);
}

/* ---- the report ---- */

enum { ROWS_IN_WORDS = 5 }; /* of a longer table sentences would be too many to read */

/* Times in ms per iteration. */
static const struct table_column columns[] = {
    {"system", TABLE_LEFT},
    {"most time\nlost in", TABLE_LEFT},
    {"slowest\nrank", TABLE_RIGHT},
    {"often\n%", TABLE_RIGHT},
    {"tokens\nx mean", TABLE_RIGHT},
    {"longer\nms", TABLE_RIGHT},
    {"waits in\nlayer ms", TABLE_RIGHT},
    {"waits\nin all", TABLE_RIGHT},
};

static int add_row(struct table *table, const char *label, const struct straggler *found,
                   struct mp_error *error) {
    char place[80];
    int code = table_add(table, NULL, error);
    if (code)
        return code;
    table_set(table, 0, "%s", label);
    table_set(table, 1, "%s", found->has_worst ? place_of(found, place, sizeof place) : "-");
    if (found->has_worst)
        table_set(table, 2, "%d", found->phase_rank);
    else
        table_set(table, 2, "-");
    table_set_number(table, 3, found->phase_rank_share * 100, 0);
    table_set_number(table, 4, found->tokens_ratio, 2);
    table_set_number(table, 5, found->longer_ms, 2);
    table_set_number(table, 6, found->layer_wait_ms, 2);
    table_set_number(table, 7, found->wait_ms, 2);
    return MP_OK;
}

/* Adds the groups' rows to the table, or with `words` prints their sentences. */
static int visit_groups(struct mp_store *store, const struct report_runs *runs, int table_number,
                        struct table *table, FILE *words, struct mp_error *error) {
    int code = MP_OK;
    for (int g = 0; !code && g < runs->groups; g++) {
        const struct report_run *example = report_group_example(runs, g);
        struct straggler found;
        if (example->table != table_number)
            continue;
        code = straggler_find(store, example->run_id, &found, error);
        if (!code && words)
            straggler_print(&found, report_group_label(runs, g), example->ranks, words);
        else if (!code)
            code = add_row(table, report_group_label(runs, g), &found, error);
    }
    return code;
}

static int print_table(struct mp_store *store, const struct report_runs *runs, int table_number,
                       FILE *out, struct mp_error *error) {
    struct table table;
    table_init(&table, columns, sizeof columns / sizeof *columns);
    int code = visit_groups(store, runs, table_number, &table, NULL, error);
    if (!code) {
        report_table_heading(runs, table_number, out);
        table_print(&table, out);
        if (table.rows <= ROWS_IN_WORDS)
            code = visit_groups(store, runs, table_number, &table, out, error);
        else
            table_paragraph(out, "moeperf report --run ID says it in words for one run, with all "
                                 "its phases; --runs lists them.");
    }
    if (!code)
        report_print_bounds(runs, table_number, out);
    table_free(&table);
    return code;
}

static json_t *row_json(const struct report_run *run, const struct straggler *found) {
    return json_pack(
        "{sI so so sb so so si sI so so so so so so so so so so so}", "run_id",
        (json_int_t)run->run_id, "job", json_text(run->job), "system", json_text(run->system),
        "unattainable", run->unattainable, "workload", json_text(run->workload), "status",
        json_text(run->status), "ranks", run->ranks, "iterations", (json_int_t)found->iterations,
        "slowest_rank", found->slowest_rank < 0 ? json_null() : json_integer(found->slowest_rank),
        "slowest_share", json_number(found->slowest_share), "wait_ms", json_number(found->wait_ms),
        "layer", found->has_worst ? json_integer(found->layer) : json_null(), "phase",
        json_text(found->has_worst ? found->phase : NULL), "phase_slowest_rank",
        found->has_worst ? json_integer(found->phase_rank) : json_null(), "phase_slowest_share",
        json_number(found->phase_rank_share), "tokens_over_mean", json_number(found->tokens_ratio),
        "straggler_ms", json_number(found->longer_ms), "lost_ms", json_number(found->lost_ms),
        "layer_wait_ms", json_number(found->layer_wait_ms));
}

static int print_json(struct mp_store *store, const struct report_runs *runs, FILE *out,
                      struct mp_error *error) {
    json_t *rows = json_array();
    int code = MP_OK;
    for (int g = 0; !code && g < runs->groups; g++) {
        const struct report_run *example = report_group_example(runs, g);
        struct straggler found;
        code = straggler_find(store, example->run_id, &found, error);
        if (!code)
            json_array_append_new(rows, row_json(example, &found));
    }
    if (code) {
        json_decref(rows);
        return code;
    }
    return json_print(json_pack("{ss so}", "report", "stragglers", "rows", rows), out, error);
}

int mp_report_stragglers(struct mp_store *store, const struct mp_report_selection *selection,
                         enum mp_report_format format, FILE *out, struct mp_error *error) {
    struct report_runs runs;
    int code = report_runs_load(store, selection, &runs, error);
    if (code)
        return code;
    if (format == MP_REPORT_JSON)
        code = print_json(store, &runs, out, error);
    for (int t = 0; !code && format == MP_REPORT_TEXT && t < runs.tables; t++) {
        if (t > 0)
            fputc('\n', out);
        code = print_table(store, &runs, t, out, error);
    }
    if (!code && format == MP_REPORT_TEXT)
        code = check_printed(out, error);
    report_runs_free(&runs);
    return code;
}
