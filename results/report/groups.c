#include "results/report/groups.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "reference/base/arena.h"
#include "results/report/command.h"
#include "results/report/query.h"
#include "results/report/table.h"

/* Where a run's columns go. */
#define RUN(member) offsetof(struct report_run, member)
#define CONVERGENCE(column)                                                                        \
    "(SELECT " column " FROM v_convergence WHERE v_convergence.run_id = v_run.run_id)"
static const struct query_field fields[] = {
    {"v_run.suite", QUERY_TEXT, RUN(suite)},
    {"v_run.suite_run", QUERY_TEXT, RUN(suite_run)},
    {"v_run.job", QUERY_TEXT, RUN(job)},
    {"v_run.system", QUERY_TEXT, RUN(system)},
    {"v_run.executor", QUERY_TEXT, RUN(executor)},
    {"v_run.workload", QUERY_TEXT, RUN(workload)},
    {"v_run.gate", QUERY_TEXT, RUN(gate)},
    {"v_run.model", QUERY_TEXT, RUN(model)},
    {"v_run.setting_key", QUERY_TEXT, RUN(setting_key)},
    {"v_run.status", QUERY_TEXT, RUN(status)},
    {"v_run.reason", QUERY_TEXT, RUN(reason)},
    {"v_run.started_at", QUERY_TEXT, RUN(started_at)},
    {"v_run.status = 'complete'", QUERY_FLAG, RUN(complete)},
    {"v_run.status = 'refused'", QUERY_FLAG, RUN(refused)},
    {"v_run.executor = 'predicted'", QUERY_FLAG, RUN(predicted)},
    {"v_run.run_id", QUERY_LARGE, RUN(run_id)},
    {"v_run.round", QUERY_COUNT, RUN(round)},
    {"v_run.ranks", QUERY_COUNT, RUN(ranks)},
    {"iterations", QUERY_LARGE, RUN(iterations)},
    {"iterations_wanted", QUERY_LARGE, RUN(iterations_wanted)},
    {"v_run.ranks_share_cores", QUERY_FLAG, RUN(ranks_share_cores)},
    {"ms_per_iteration", QUERY_NUMBER, RUN(ms_per_iteration)},
    {"tokens_per_s", QUERY_NUMBER, RUN(tokens_per_s)},
    {"speedup_vs_ep", QUERY_NUMBER, RUN(speedup_vs_ep)},
    {"speed_vs_balanced", QUERY_NUMBER, RUN(speed_vs_balanced)},
    {"loss_final", QUERY_NUMBER, RUN(loss_final)},
    {"max_loss_difference", QUERY_NUMBER, RUN(max_loss_difference)},
    {"iterations_agreed", QUERY_NUMBER, RUN(iterations_agreed)},
    {"dropped_fraction", QUERY_NUMBER, RUN(dropped)},
    {"v_run.unattainable", QUERY_FLAG, RUN(unattainable)},
    {"processor_taken", QUERY_NUMBER, RUN(taken)},
    {"EXISTS (SELECT 1 FROM rank CROSS JOIN number USING (run_id, rank) WHERE rank.run_id = "
     "v_run.run_id AND iteration = -1 AND layer = -1 AND name_id = (SELECT id FROM StringIds "
     "WHERE value = 'nvtx-pair-ns'))",
     QUERY_FLAG, RUN(foreign)},
    {"ms_p99", QUERY_NUMBER, RUN(ms_p99)},
    {"mode IS NOT NULL", QUERY_FLAG, RUN(serves)},
    {"bound_ms", QUERY_NUMBER, RUN(bound_ms)},
    {"of_bound", QUERY_NUMBER, RUN(of_bound)},
    {CONVERGENCE("target_loss"), QUERY_NUMBER, RUN(target)},
    {CONVERGENCE("target_window"), QUERY_NUMBER, RUN(window)},
    {CONVERGENCE("iterations_to_target"), QUERY_NUMBER, RUN(to_target)},
    {CONVERGENCE("seconds_to_target"), QUERY_NUMBER, RUN(s_to_target)},
};
enum { FIELDS = sizeof fields / sizeof *fields };

static const char runs_sql[] =
    "FROM v_run JOIN v_speedup USING (run_id) WHERE "
    "CASE WHEN ?1 <> 0 THEN v_run.run_id = ?1 "
    "WHEN ?2 IS NOT NULL THEN v_run.suite_run = ?2 "
    "ELSE v_run.suite_run = (SELECT suite_run FROM v_run WHERE ?3 IS NULL OR suite = ?3 "
    "ORDER BY run_id DESC LIMIT 1) END ORDER BY v_run.run_id";

static int read_runs(struct mp_store *store, const struct mp_report_selection *selection,
                     struct report_runs *runs, struct mp_error *error) {
    struct query query =
        query_fields(store, fields, FIELDS, runs_sql, selection ? selection->run_id : 0, error);
    sqlite3_bind_text(query.row, 2, selection ? selection->suite_run : NULL, -1, SQLITE_STATIC);
    sqlite3_bind_text(query.row, 3, selection ? selection->suite : NULL, -1, SQLITE_STATIC);
    while (query_next(&query))
        if (MP_ROOM(runs->run, runs->count)) {
            struct report_run *run = &runs->run[runs->count++];
            *run = (struct report_run){0};
            query_struct(&query, fields, FIELDS, run);
        } else {
            query.code = mp_no_memory(error);
        }
    return query_end(&query);
}

static bool same_setting(const struct report_run *a, const struct report_run *b) {
    return strcmp(a->suite_run, b->suite_run) == 0 && strcmp(a->workload, b->workload) == 0 &&
           strcmp(a->setting_key, b->setting_key) == 0;
}

static void number_groups(struct report_runs *runs) {
    for (int i = 0; i < runs->count; i++) {
        struct report_run *run = &runs->run[i];
        run->group = run->table = -1;
        for (int j = 0; j < i; j++) {
            const struct report_run *earlier = &runs->run[j];
            if (!same_setting(run, earlier))
                continue;
            run->table = earlier->table;
            if (strcmp(run->system, earlier->system) == 0 && strcmp(run->job, earlier->job) == 0)
                run->group = earlier->group;
        }
        run->table = run->table < 0 ? runs->tables++ : run->table;
        run->group = run->group < 0 ? runs->groups++ : run->group;
    }
}

/* Whether a system has several jobs in the run's table. */
static bool system_repeats(const struct report_runs *runs, const struct report_run *own) {
    for (int i = 0; i < runs->count; i++) {
        const struct report_run *other = &runs->run[i];
        if (other->table == own->table && other->group != own->group &&
            strcmp(other->system, own->system) == 0)
            return true;
    }
    return false;
}

static int label_runs(struct report_runs *runs, struct mp_error *error) {
    for (int i = 0; i < runs->count; i++) {
        struct report_run *run = &runs->run[i];
        const char *name = system_repeats(runs, run) ? run->job : run->system;
        size_t size = strlen(name) + sizeof REPORT_UNATTAINABLE;
        run->label = malloc(size);
        if (!run->label)
            return mp_no_memory(error);
        snprintf(run->label, size, "%s%s", name, run->unattainable ? REPORT_UNATTAINABLE : "");
    }
    return MP_OK;
}

int report_runs_load(struct mp_store *store, const struct mp_report_selection *selection,
                     struct report_runs *runs, struct mp_error *error) {
    char lists[COMMAND_TEXT];
    *runs = (struct report_runs){0};
    int code = read_runs(store, selection, runs, error);
    command_text(lists, mp_store_path(store), "report --runs");
    if (!code && runs->count == 0 && selection && selection->run_id)
        code = mp_fail(error, MP_ENOTFOUND, "%s: no run %lld; %s lists them", mp_store_path(store),
                       (long long)selection->run_id, lists);
    else if (!code && runs->count == 0 && selection && (selection->suite_run || selection->suite))
        code = mp_fail(error, MP_ENOTFOUND, "%s: no run of suite %s'%.200s'; %s lists them",
                       mp_store_path(store), selection->suite_run ? "invocation " : "",
                       selection->suite_run ? selection->suite_run : selection->suite, lists);
    else if (!code && runs->count == 0)
        code = mp_fail(error, MP_ENOTFOUND, "%s: no runs yet", mp_store_path(store));
    if (!code) {
        number_groups(runs);
        code = label_runs(runs, error);
    }
    if (code)
        report_runs_free(runs);
    return code;
}

void report_runs_free(struct report_runs *runs) {
    for (int i = 0; i < runs->count; i++) {
        query_free_texts(fields, FIELDS, &runs->run[i]);
        free(runs->run[i].label);
    }
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
    const struct report_run *last = NULL, *example = NULL;
    int complete = 0;
    for (int i = 0; i < runs->count; i++) {
        last = runs->run[i].group == group ? &runs->run[i] : last;
        complete += runs->run[i].group == group && runs->run[i].complete &&
                    !isnan(runs->run[i].ms_per_iteration);
    }
    /* The run with exactly (complete - 1) / 2 faster ones; ties go by run_id. */
    for (int i = 0; i < runs->count; i++) {
        const struct report_run *run = &runs->run[i];
        if (run->group != group || !run->complete || isnan(run->ms_per_iteration))
            continue;
        int faster = 0;
        for (int j = 0; j < runs->count; j++) {
            const struct report_run *other = &runs->run[j];
            if (other->group == group && other->complete)
                faster += other->ms_per_iteration < run->ms_per_iteration ||
                          (other->ms_per_iteration == run->ms_per_iteration && j < i);
        }
        if (faster == (complete - 1) / 2)
            example = run;
    }
    return example ? example : last;
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
