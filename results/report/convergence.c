/* Iterations to a target loss and dropped routes, here and as published. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "results/paper/paper.h"
#include "results/report/groups.h"
#include "results/report/query.h"
#include "results/report/table.h"

/* A run as v_convergence shows it; NAN where it has no value. */
struct target_run {
    bool has_target;
    double loss, window, iterations, seconds, dropped;
};

/* The rounds of one job put together; NAN where nothing is known. */
struct convergence_row {
    int group, rounds, reached;
    double target, window;
    double iterations, least, most; /* median and extremes of the rounds that reached it */
    double seconds, loss_final, dropped;
};

/* What the functions below share. */
struct convergence {
    struct report_runs runs;
    struct target_run *target;   /* [runs.count] */
    struct convergence_row *row; /* [rows] */
    double *values;              /* [runs.count], working memory */
    int rows;
    json_t *paper;
};

static const char target_sql[] =
    "SELECT target_loss, target_window, iterations_to_target, seconds_to_target, dropped_fraction "
    "FROM v_convergence WHERE run_id = ?1";

static int read_target(struct mp_store *store, int64_t run_id, struct target_run *target,
                       struct mp_error *error) {
    sqlite3_stmt *statement = NULL;
    int code = query_open(store, target_sql, run_id, &statement, error);
    if (code)
        return code;
    int got = query_next(store, statement, error);
    *target = (struct target_run){.has_target = got > 0};
    if (got > 0)
        *target = (struct target_run){true,
                                      query_double(statement, 0),
                                      query_double(statement, 1),
                                      query_double(statement, 2),
                                      query_double(statement, 3),
                                      query_double(statement, 4)};
    sqlite3_finalize(statement);
    return got < 0 ? got : MP_OK;
}

/* Median of a field over the group's complete runs, NAN left out; sorted values stay in
 * `all->values`. */
static double median_of(struct convergence *all, int group, const double *first, size_t stride,
                        int *count) {
    *count = 0;
    for (int i = 0; i < all->runs.count; i++) {
        double value = *(const double *)((const char *)first + (size_t)i * stride);
        if (all->runs.run[i].group == group && all->runs.run[i].complete && !isnan(value))
            all->values[(*count)++] = value;
    }
    return report_median(all->values, *count);
}

static struct convergence_row row_of(struct convergence *all, int group) {
    struct convergence_row row = {.group = group, .target = NAN};
    size_t run = sizeof *all->runs.run, target = sizeof *all->target;
    int count;
    for (int i = all->runs.count - 1; i >= 0; i--) {
        if (all->runs.run[i].group != group)
            continue;
        row.rounds++;
        row.target = all->target[i].has_target ? all->target[i].loss : row.target;
        row.window = all->target[i].has_target ? all->target[i].window : row.window;
    }
    row.loss_final = median_of(all, group, &all->runs.run->loss_final, run, &count);
    row.dropped = median_of(all, group, &all->target->dropped, target, &count);
    row.seconds = median_of(all, group, &all->target->seconds, target, &count);
    row.iterations = median_of(all, group, &all->target->iterations, target, &row.reached);
    row.least = row.reached ? all->values[0] : NAN;
    row.most = row.reached ? all->values[row.reached - 1] : NAN;
    return row;
}

static void free_all(struct convergence *all) {
    free(all->target);
    free(all->row);
    free(all->values);
    json_decref(all->paper);
    report_runs_free(&all->runs);
}

static int load_all(struct mp_store *store, const struct mp_report_selection *selection,
                    struct convergence *all, struct mp_error *error) {
    *all = (struct convergence){0};
    int code = report_runs_load(store, selection, &all->runs, error);
    if (code)
        return code;
    size_t count = (size_t)all->runs.count;
    all->target = calloc(count, sizeof *all->target);
    all->row = calloc((size_t)all->runs.groups, sizeof *all->row);
    all->values = calloc(count, sizeof *all->values);
    all->paper = json_loads(mp_paper_symi, 0, NULL);
    if (!all->target || !all->row || !all->values || !all->paper)
        code = mp_fail(error, MP_ENOMEM, "no memory for the report");
    for (int i = 0; !code && i < all->runs.count; i++)
        code = read_target(store, all->runs.run[i].run_id, &all->target[i], error);
    for (int group = 0; !code && group < all->runs.groups; group++) {
        struct convergence_row row = row_of(all, group);
        if (!isnan(row.target))
            all->row[all->rows++] = row;
    }
    if (code)
        free_all(all);
    return code;
}

static int table_of(const struct convergence *all, const struct convergence_row *row) {
    return report_group_first(&all->runs, row->group)->table;
}

/* ---- text ---- */

static const struct table_column columns[] = {{"system", TABLE_LEFT},
                                              {"target\nloss", TABLE_RIGHT},
                                              {"median\nit. to it", TABLE_RIGHT},
                                              {"min..max\nit. to it", TABLE_RIGHT},
                                              {"seconds\nto it", TABLE_RIGHT},
                                              {"final\nloss", TABLE_RIGHT},
                                              {"dropped\n%", TABLE_RIGHT},
                                              {"rounds\nreached", TABLE_RIGHT}};

static int add_row(struct table *table, const struct convergence *all,
                   const struct convergence_row *row, struct mp_error *error) {
    int code = table_add(table, NULL, error);
    if (code)
        return code;
    table_set(table, 0, "%s", report_group_label(&all->runs, row->group));
    table_set_number(table, 1, row->target, 3);
    table_set_number(table, 2, row->iterations, 0);
    if (row->reached)
        table_set(table, 3, "%.0f..%.0f", row->least, row->most);
    else
        table_set(table, 3, "-");
    table_set_number(table, 4, row->seconds, 1);
    table_set_number(table, 5, row->loss_final, 4);
    table_set_number(table, 6, 100 * row->dropped, 2);
    table_set(table, 7, "%d of %d", row->reached, row->rounds);
    return MP_OK;
}

static int print_measured(struct convergence *all, int number, FILE *out, struct mp_error *error) {
    const struct convergence_row *first = NULL;
    struct table table;
    int code = MP_OK;
    table_init(&table, columns, sizeof columns / sizeof *columns);
    for (int i = 0; !code && i < all->rows; i++) {
        if (table_of(all, &all->row[i]) != number)
            continue;
        first = first ? first : &all->row[i];
        code = add_row(&table, all, &all->row[i], error);
    }
    if (!code && first) {
        report_table_heading(&all->runs, number, out);
        table_print(&table, out);
        table_paragraph(out,
                        "The target is reached when the mean loss of %.0f iteration%s is at or "
                        "below it.",
                        first->window, first->window == 1 ? "" : "s");
    }
    table_free(&table);
    return code;
}

/* The row of a system in a table, or NULL; of several jobs the first. */
static const struct convergence_row *row_of_system(const struct convergence *all, int number,
                                                   const char *system) {
    for (int i = 0; i < all->rows; i++)
        if (table_of(all, &all->row[i]) == number &&
            strcmp(report_group_first(&all->runs, all->row[i].group)->system, system) == 0)
            return &all->row[i];
    return NULL;
}

static const char *paper_text(const json_t *object, const char *key) {
    const char *text = json_string_value(json_object_get(object, key));
    return text ? text : "";
}

static const struct table_column paper_columns[] = {{"against", TABLE_LEFT},
                                                    {"iterations\nhere %", TABLE_RIGHT},
                                                    {"iterations\npublished %", TABLE_RIGHT},
                                                    {"dropped\nhere %", TABLE_RIGHT},
                                                    {"dropped\npublished %", TABLE_RIGHT}};

static void set_change(struct table *table, int column, double fraction) {
    if (isfinite(fraction))
        table_set(table, column, "%+.1f", 100 * fraction);
    else
        table_set(table, column, "-"); /* not reached, or nothing dropped to compare with */
}

static int add_paper_row(struct table *table, const struct convergence_row *own,
                         const struct convergence_row *other, const json_t *published,
                         struct mp_error *error) {
    const char *variant = paper_text(published, "variant");
    int code = table_add(table, NULL, error);
    if (code)
        return code;
    table_set(table, 0, "%s%s%s", paper_text(published, "against"), *variant ? ", " : "", variant);
    set_change(table, 1, own->iterations / other->iterations - 1);
    set_change(table, 2, json_number_value(json_object_get(published, "iterations")));
    set_change(table, 3, own->dropped / other->dropped - 1);
    set_change(table, 4, json_number_value(json_object_get(published, "dropped")));
    return MP_OK;
}

/* Whether the paper's claim holds here, in kind. */
static void print_claim(const char *own_name, const struct convergence_row *own,
                        const char *other_name, const struct convergence_row *other, FILE *out) {
    bool drops_less = own->dropped < other->dropped;
    bool needs_less = own->iterations < other->iterations;
    if (isnan(own->iterations) || isnan(other->iterations) || isnan(own->dropped) ||
        isnan(other->dropped))
        return;
    table_paragraph(
        out, "Here %s drops %.2f %% of the routes and %s %.2f %%; it needs %s iterations%s.",
        own_name, 100 * own->dropped, other_name, 100 * other->dropped,
        needs_less                             ? "fewer"
        : own->iterations == other->iterations ? "as many"
                                               : "more",
        drops_less && needs_less ? ", as published: fewer drops, fewer iterations" : "");
}

static int print_published(const struct convergence *all, int number, FILE *out,
                           struct mp_error *error) {
    const char *system = paper_text(all->paper, "system"), *last = "";
    const struct convergence_row *own = row_of_system(all, number, system);
    const json_t *list = json_object_get(all->paper, "convergence");
    struct table table;
    int code = MP_OK;
    if (!own)
        return MP_OK;
    table_init(&table, paper_columns, sizeof paper_columns / sizeof *paper_columns);
    for (size_t i = 0; !code && i < json_array_size(list); i++) {
        const json_t *published = json_array_get(list, i);
        const struct convergence_row *other =
            row_of_system(all, number, paper_text(published, "against"));
        if (other)
            code = add_paper_row(&table, own, other, published, error);
    }
    if (!code && table.rows > 0) {
        fputc('\n', out);
        table_paragraph(out, "%s against others, here and in %s, %s (%s; %s)", system,
                        paper_text(all->paper, "paper"), paper_text(all->paper, "source"),
                        paper_text(all->paper, "setting"), paper_text(all->paper, "certainty"));
        table_print(&table, out);
    }
    for (size_t i = 0; !code && i < json_array_size(list); i++) {
        const char *against = paper_text(json_array_get(list, i), "against");
        const struct convergence_row *other = row_of_system(all, number, against);
        if (other && strcmp(against, last) != 0)
            print_claim(system, own, against, other, out);
        last = against;
    }
    table_free(&table);
    return code;
}

static int print_text(struct convergence *all, FILE *out, struct mp_error *error) {
    int code = MP_OK;
    for (int number = 0; !code && number < all->runs.tables; number++) {
        bool found = false;
        for (int i = 0; i < all->rows; i++)
            found = found || table_of(all, &all->row[i]) == number;
        if (!found)
            continue;
        code = print_measured(all, number, out, error);
        if (!code)
            code = print_published(all, number, out, error);
        fputc('\n', out);
    }
    return code ? code : check_printed(out, error);
}

/* ---- JSON ---- */

static json_t *row_json(const struct convergence *all, const struct convergence_row *row) {
    const struct report_run *first = report_group_first(&all->runs, row->group);
    return json_pack("{so so so sb so so si si si so so so so so so so so}", //
                     "suite_run", json_text(first->suite_run),               //
                     "job", json_text(first->job),                           //
                     "system", json_text(first->system),                     //
                     "unattainable", first->unattainable,                    //
                     "workload", json_text(first->workload),                 //
                     "gate", json_text(first->gate),                         //
                     "ranks", first->ranks, "rounds", row->rounds,           //
                     "rounds_reached", row->reached,                         //
                     "target_loss", json_number(row->target),                //
                     "target_window", json_number(row->window),              //
                     "iterations_to_target", json_number(row->iterations),   //
                     "iterations_to_target_min", json_number(row->least),    //
                     "iterations_to_target_max", json_number(row->most),     //
                     "seconds_to_target", json_number(row->seconds),         //
                     "loss_final", json_number(row->loss_final),             //
                     "dropped_fraction", json_number(row->dropped));
}

static int print_json(const struct convergence *all, FILE *out, struct mp_error *error) {
    json_t *rows = json_array();
    for (int i = 0; i < all->rows; i++)
        json_array_append_new(rows, row_json(all, &all->row[i]));
    return json_print(
        json_pack("{ss so sO}", "report", "convergence", "rows", rows, "published", all->paper),
        out, error);
}

int mp_report_convergence(struct mp_store *store, const struct mp_report_selection *selection,
                          enum mp_report_format format, FILE *out, struct mp_error *error) {
    struct convergence all;
    int code = load_all(store, selection, &all, error);
    if (code)
        return code;
    code = format == MP_REPORT_JSON ? print_json(&all, out, error) : print_text(&all, out, error);
    free_all(&all);
    return code;
}
