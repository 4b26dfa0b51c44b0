#include "results/report/groups.h"

#include <math.h>
#include <stdlib.h>

#include "reference/base/arena.h"
#include "results/report/command.h"
#include "results/report/query.h"
#include "results/report/table.h"

/* Where a run's columns go. */
#define RUN(member) offsetof(struct report_run, member)
#define CONVERGENCE(column)                                                                        \
    "(SELECT " column " FROM v_convergence WHERE v_convergence.run_id = chosen.run_id)"
static const struct query_field fields[] = {
    {"suite", QUERY_TEXT, RUN(suite)},
    {"suite_run", QUERY_TEXT, RUN(suite_run)},
    {"job", QUERY_TEXT, RUN(job)},
    {"system", QUERY_TEXT, RUN(system)},
    {"executor", QUERY_TEXT, RUN(executor)},
    {"workload", QUERY_TEXT, RUN(workload)},
    {"gate", QUERY_TEXT, RUN(gate)},
    {"model", QUERY_TEXT, RUN(model)},
    {"status", QUERY_TEXT, RUN(status)},
    {"reason", QUERY_TEXT, RUN(reason)},
    {"started_at", QUERY_TEXT, RUN(started_at)},
    {"status = 'complete'", QUERY_FLAG, RUN(complete)},
    {"status = 'refused'", QUERY_FLAG, RUN(refused)},
    {"executor = 'predicted'", QUERY_FLAG, RUN(predicted)},
    {"run_id", QUERY_LARGE, RUN(run_id)},
    {"round", QUERY_COUNT, RUN(round)},
    {"ranks", QUERY_COUNT, RUN(ranks)},
    {"iterations", QUERY_LARGE, RUN(iterations)},
    {"iterations_wanted", QUERY_LARGE, RUN(iterations_wanted)},
    {"ranks_share_cores", QUERY_FLAG, RUN(ranks_share_cores)},
    {"ms_per_iteration", QUERY_NUMBER, RUN(ms_per_iteration)},
    {"tokens_per_s", QUERY_NUMBER, RUN(tokens_per_s)},
    {"speedup_vs_ep", QUERY_NUMBER, RUN(speedup_vs_ep)},
    {"speed_vs_balanced", QUERY_NUMBER, RUN(speed_vs_balanced)},
    {"loss_final", QUERY_NUMBER, RUN(loss_final)},
    {"max_loss_difference", QUERY_NUMBER, RUN(max_loss_difference)},
    {"iterations_agreed", QUERY_NUMBER, RUN(iterations_agreed)},
    {"dropped_fraction", QUERY_NUMBER, RUN(dropped)},
    {"unattainable", QUERY_FLAG, RUN(unattainable)},
    {"processor_taken", QUERY_NUMBER, RUN(taken)},
    {"suite IN ('record', 'import')", QUERY_FLAG, RUN(foreign)},
    {"(SELECT sum(ms) / (max(start_ms + ms) - min(start_ms)) FROM v_iteration WHERE "
     "v_iteration.run_id = chosen.run_id AND steady)",
     QUERY_NUMBER, RUN(at_once)},
    {"ms_p99", QUERY_NUMBER, RUN(ms_p99)},
    {"mode IS NOT NULL", QUERY_FLAG, RUN(serves)},
    {"bound_ms", QUERY_NUMBER, RUN(bound_ms)},
    {"of_bound", QUERY_NUMBER, RUN(of_bound)},
    {"dense_rank() OVER (ORDER BY first_of_table) - 1", QUERY_COUNT, RUN(table)},
    {"dense_rank() OVER (ORDER BY first_of_group) - 1", QUERY_COUNT, RUN(group)},
    {"iif(timed > 0, place = (timed + 1) / 2, run_id = max(run_id) OVER (PARTITION BY "
     "first_of_group))",
     QUERY_FLAG, RUN(is_example)},
    {"iif(min(first_of_group) OVER same < max(first_of_group) OVER same, job, system) || "
     "iif(unattainable, '" REPORT_UNATTAINABLE "', '')",
     QUERY_TEXT, RUN(label)},
    {CONVERGENCE("target_loss"), QUERY_NUMBER, RUN(target)},
    {CONVERGENCE("target_window"), QUERY_NUMBER, RUN(window)},
    {CONVERGENCE("iterations_to_target"), QUERY_NUMBER, RUN(to_target)},
    {CONVERGENCE("seconds_to_target"), QUERY_NUMBER, RUN(s_to_target)},
};
enum { FIELDS = MP_LENGTH(fields) };

/* The selected runs, each with the first of its table and of its group, whose complete runs with a
 * time are `timed` and come first by that. */
static const char runs_sql[] =
    "FROM (SELECT *, row_number() OVER (PARTITION BY first_of_group ORDER BY NOT is_timed, "
    "ms_per_iteration, run_id) AS place, sum(is_timed) OVER (PARTITION BY first_of_group) AS timed "
    "FROM (SELECT v_run.*, ms_per_iteration, tokens_per_s, speedup_vs_ep, speed_vs_balanced, "
    "loss_final, max_loss_difference, iterations_agreed, dropped_fraction, mode, ms_p99, bound_ms, "
    "of_bound, v_run.status = 'complete' AND ms_per_iteration IS NOT NULL AS is_timed, min(run_id) "
    "OVER (PARTITION BY v_run.workload, setting_key) AS first_of_table, "
    "min(run_id) OVER (PARTITION BY v_run.workload, setting_key, v_run.system, "
    "v_run.job) AS first_of_group FROM v_run JOIN v_speedup USING (run_id) WHERE CASE WHEN ?1 <> 0 "
    "THEN run_id = ?1 WHEN ?2 IS NOT NULL THEN v_run.suite_run = ?2 ELSE v_run.suite_run = (SELECT "
    "suite_run FROM v_run WHERE ?3 IS NULL OR suite = ?3 ORDER BY run_id DESC LIMIT 1) END)) AS "
    "chosen WINDOW same AS (PARTITION BY first_of_table, system) ORDER BY run_id";

static int read_runs(struct mp_store *store, const struct mp_report_selection *selection,
                     struct report_runs *runs, struct mp_error *error) {
    struct query query =
        query_fields(store, fields, FIELDS, runs_sql, selection ? selection->run_id : 0, error);
    sqlite3_bind_text(query.row, 2, selection ? selection->suite_run : NULL, -1, SQLITE_STATIC);
    sqlite3_bind_text(query.row, 3, selection ? selection->suite : NULL, -1, SQLITE_STATIC);
    while (query_next(&query) && !(query.code = MP_GROW(runs->run, runs->count, error))) {
        struct report_run *run = &runs->run[runs->count++];
        *run = (struct report_run){0};
        query_struct(&query, fields, FIELDS, run);
        runs->tables = run->table < runs->tables ? runs->tables : run->table + 1;
        runs->groups = run->group < runs->groups ? runs->groups : run->group + 1;
    }
    return query_end(&query);
}

int report_runs_load(struct mp_store *store, const struct mp_report_selection *selection,
                     struct report_runs *runs, struct mp_error *error) {
    const char *path = mp_store_path(store);
    char lists[COMMAND_TEXT];
    *runs = (struct report_runs){0};
    MP_TRY(read_runs(store, selection, runs, error));
    if (runs->count > 0)
        return MP_OK;
    command_text(lists, path, "report --runs");
    if (selection && selection->run_id)
        return mp_fail(error, MP_ENOTFOUND, "%s: no run %lld; %s lists them", path,
                       (long long)selection->run_id, lists);
    if (selection && (selection->suite_run || selection->suite))
        return mp_fail(error, MP_ENOTFOUND, "%s: no run of suite %s'%.200s'; %s lists them", path,
                       selection->suite_run ? "invocation " : "",
                       selection->suite_run ? selection->suite_run : selection->suite, lists);
    return mp_fail(error, MP_ENOTFOUND, "%s: no runs yet", path);
}

void report_runs_free(struct report_runs *runs) {
    for (int i = 0; i < runs->count; i++)
        query_free_texts(fields, FIELDS, &runs->run[i]);
    free(runs->run);
    *runs = (struct report_runs){0};
}

const struct report_run *report_group_first(const struct report_runs *runs, int group) {
    const struct report_run *run = runs->run;
    while (run->group != group)
        run++;
    return run;
}

const struct report_run *report_group_example(const struct report_runs *runs, int group) {
    const struct report_run *run = runs->run;
    while (run->group != group || !run->is_example)
        run++;
    return run;
}

const char *report_group_label(const struct report_runs *runs, int group) {
    return report_group_first(runs, group)->label;
}

static const struct report_run *busiest(const struct report_runs *runs, int table) {
    const struct report_run *most = NULL;
    for (int i = 0; i < runs->count; i++) {
        const struct report_run *run = &runs->run[i];
        if ((table < 0 || run->table == table) && !run->ranks_share_cores && !isnan(run->taken) &&
            (!most || run->taken > most->taken))
            most = run;
    }
    return most;
}

double report_taken(const struct report_runs *runs, int table) {
    const struct report_run *most = busiest(runs, table);
    return most ? most->taken : NAN;
}

const char *report_busy(const struct report_runs *runs, char text[REPORT_BUSY_TEXT]) {
    const struct report_run *most = busiest(runs, -1);
    text[0] = '\0';
    if (most && most->taken > REPORT_TAKEN)
        snprintf(text, REPORT_BUSY_TEXT,
                 "for up to %.0f %% of the time (%.100s) other programs had the processors of "
                 "these runs. Their times and ratios say as much about those programs as about "
                 "the systems; run them again when nothing else runs.",
                 100 * most->taken, most->label);
    return text;
}

void report_print_busy(const struct report_runs *runs, FILE *out) {
    char text[REPORT_BUSY_TEXT];
    if (*report_busy(runs, text))
        table_paragraph(out, "The machine was busy: %s\n", text);
}

void report_print_yardsticks(const struct report_runs *runs, int table, FILE *out) {
    for (int group = 0; group < runs->groups; group++) {
        const struct report_run *run = report_group_first(runs, group);
        if (run->unattainable && run->table == table)
            table_paragraph(
                out,
                "%s is a yardstick and no system: what it does at no cost takes time on every "
                "machine.",
                run->label);
    }
}

const char *report_table_heading(const struct report_runs *runs, int table,
                                 char text[REPORT_HEADING]) {
    const struct report_run *run = runs->run;
    while (run->table != table)
        run++;
    snprintf(text, REPORT_HEADING, "%s: %s%s%s%s%s, %d rank%s, %s", run->suite, run->workload,
             run->gate[0] ? ", gate " : "", run->gate, run->model[0] ? ", " : "", run->model,
             run->ranks, run->ranks == 1 ? "" : "s", run->executor);
    return text;
}
