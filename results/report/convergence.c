/* Iterations to a target loss and dropped routes, here and as published. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "results/paper/paper.h"
#include "results/report/query.h"
#include "results/report/speedup.h"
#include "results/report/table.h"

/* What the functions below share. */
struct convergence {
    const struct report_runs *runs;
    const struct speedup_row *row; /* [rows], those with a target */
    int rows;
    json_t *paper;
};

/* ---- the table ---- */

static void show_range(const void *row, char text[TABLE_CELL]) {
    const struct speedup_row *own = row;
    if (own->reached)
        snprintf(text, TABLE_CELL, "%.0f..%.0f", own->to_target_min, own->to_target_max);
    else
        snprintf(text, TABLE_CELL, "-");
}

static void show_reached(const void *row, char text[TABLE_CELL]) {
    const struct speedup_row *own = row;
    snprintf(text, TABLE_CELL, "%d of %d", own->reached, own->rounds);
}

#define ROW(member) offsetof(struct speedup_row, member)
static const struct table_column columns[] = {
    {"system", TABLE_LEFT, .at = ROW(run.label)},
    {"target\nloss", TABLE_NUMBER, NULL, "target_loss", ROW(target), .decimals = 3},
    {"median\nit. to it", TABLE_NUMBER, NULL, "iterations_to_target", .at = ROW(to_target)},
    {"min..max\nit. to it", TABLE_RIGHT, .show = show_range},
    {"seconds\nto it", TABLE_NUMBER, NULL, "seconds_to_target", ROW(s_to_target), .decimals = 1},
    {"final\nloss", TABLE_NUMBER, NULL, "loss_final", ROW(loss_final), .decimals = 4},
    {"dropped", TABLE_NUMBER, "%", "dropped_fraction", ROW(dropped), .decimals = 2},
    {"rounds\nreached", TABLE_RIGHT, .show = show_reached},
    {.key = "suite_run", .at = ROW(run.suite_run)},
    {.key = "job", .at = ROW(run.job)},
    {.key = "system", .at = ROW(run.system)},
    {.key = "workload", .at = ROW(run.workload)},
    {.key = "gate", .at = ROW(run.gate)},
    {NULL, TABLE_FLAG, NULL, "unattainable", .at = ROW(unattainable)},
    {NULL, TABLE_COUNT, NULL, "ranks", .at = ROW(run.ranks)},
    {NULL, TABLE_COUNT, NULL, "rounds", .at = ROW(rounds)},
    {NULL, TABLE_COUNT, NULL, "rounds_reached", .at = ROW(reached)},
    {NULL, TABLE_NUMBER, NULL, "target_window", .at = ROW(window)},
    {NULL, TABLE_NUMBER, NULL, "iterations_to_target_min", .at = ROW(to_target_min)},
    {NULL, TABLE_NUMBER, NULL, "iterations_to_target_max", .at = ROW(to_target_max)},
};
enum { COLUMNS = MP_LENGTH(columns) };

static int print_measured(struct convergence *all, int number, enum mp_report_format format,
                          FILE *out, struct mp_error *error) {
    const struct speedup_row *first = NULL;
    char heading[REPORT_HEADING];
    MP_AUTO(table) struct table table = table_of(columns, COLUMNS);
    for (int i = 0; i < all->rows; i++) {
        if (all->row[i].run.table != number)
            continue;
        first = first ? first : &all->row[i];
        MP_TRY(table_fill(&table, &all->row[i], 1, sizeof *all->row, error));
    }
    report_table_heading(all->runs, number, heading);
    if (first)
        table_write(&table, format, heading, out);
    if (first && format == MP_REPORT_TEXT)
        table_paragraph(out,
                        "The target is reached when the mean loss of %.0f iteration%s is at or "
                        "below it.",
                        first->window, first->window == 1 ? "" : "s");
    return MP_OK;
}

/* The row of a system in a table, or NULL; of several jobs the first. */
static const struct speedup_row *row_of_system(const struct convergence *all, int number,
                                               const char *system) {
    return MP_FIND(all->row, i, all->rows,
                   all->row[i].run.table == number && strcmp(all->row[i].run.system, system) == 0);
}

static const char *paper_text(const json_t *object, const char *key) {
    const char *text = json_string_value(json_object_get(object, key));
    return text ? text : "";
}

/* What a system needs and drops, over what another does. */
struct paper_row {
    char against[TABLE_CELL];
    double iterations, published_iterations, dropped, published_dropped;
};
#define PAPER(member) offsetof(struct paper_row, member)
static const struct table_column paper_columns[] = {
    {"against", TABLE_ARRAY, NULL, "against", .at = PAPER(against)},
    {"iterations\nhere", TABLE_NUMBER, "%", "iterations", PAPER(iterations),
     .decimals = TABLE_SIGNED + 1},
    {"iterations\npublished", TABLE_NUMBER, "%", "iterations_published",
     PAPER(published_iterations), .decimals = TABLE_SIGNED + 1},
    {"dropped\nhere", TABLE_NUMBER, "%", "dropped", PAPER(dropped), .decimals = TABLE_SIGNED + 1},
    {"dropped\npublished", TABLE_NUMBER, "%", "dropped_published", PAPER(published_dropped),
     .decimals = TABLE_SIGNED + 1}};

static int add_paper_row(struct table *table, const struct speedup_row *own,
                         const struct speedup_row *other, const json_t *published,
                         struct mp_error *error) {
    const char *variant = paper_text(published, "variant");
    struct paper_row row = {
        .iterations = own->to_target / other->to_target - 1,
        .published_iterations = json_number_value(json_object_get(published, "iterations")),
        .dropped = own->dropped / other->dropped - 1,
        .published_dropped = json_number_value(json_object_get(published, "dropped"))};
    snprintf(row.against, sizeof row.against, "%.60s%s%.60s", paper_text(published, "against"),
             *variant ? ", " : "", variant);
    return table_fill(table, &row, 1, sizeof row, error);
}

/* Whether the paper's claim holds here, in kind. */
static void print_claim(const char *own_name, const struct speedup_row *own, const char *other_name,
                        const struct speedup_row *other, FILE *out) {
    bool drops_less = own->dropped < other->dropped;
    bool needs_less = own->to_target < other->to_target;
    if (isnan(own->to_target) || isnan(other->to_target) || isnan(own->dropped) ||
        isnan(other->dropped))
        return;
    table_paragraph(
        out, "Here %s drops %.2f %% of the routes and %s %.2f %%; it needs %s iterations%s.",
        own_name, 100 * own->dropped, other_name, 100 * other->dropped,
        needs_less                           ? "fewer"
        : own->to_target == other->to_target ? "as many"
                                             : "more",
        drops_less && needs_less ? ", as published: fewer drops, fewer iterations" : "");
}

static int print_published(const struct convergence *all, int number, enum mp_report_format format,
                           FILE *out, struct mp_error *error) {
    char title[REPORT_HEADING];
    const char *system = paper_text(all->paper, "system"), *last = "";
    const struct speedup_row *own = row_of_system(all, number, system);
    const json_t *list = json_object_get(all->paper, "convergence");
    if (!own)
        return MP_OK;
    MP_AUTO(table) struct table table = table_of(paper_columns, MP_LENGTH(paper_columns));
    for (size_t i = 0; i < json_array_size(list); i++) {
        const json_t *published = json_array_get(list, i);
        const struct speedup_row *other =
            row_of_system(all, number, paper_text(published, "against"));
        if (other)
            MP_TRY(add_paper_row(&table, own, other, published, error));
    }
    snprintf(title, sizeof title, "%s against others, here and in %s, %s (%s; %s)", system,
             paper_text(all->paper, "paper"), paper_text(all->paper, "source"),
             paper_text(all->paper, "setting"), paper_text(all->paper, "certainty"));
    if (table.rows > 0) {
        fputc('\n', out);
        table_write(&table, format, title, out);
    }
    for (size_t i = 0; format == MP_REPORT_TEXT && i < json_array_size(list); i++) {
        const char *against = paper_text(json_array_get(list, i), "against");
        const struct speedup_row *other = row_of_system(all, number, against);
        if (other && strcmp(against, last) != 0)
            print_claim(system, own, against, other, out);
        last = against;
    }
    return MP_OK;
}

static int print_tables(struct convergence *all, enum mp_report_format format, FILE *out,
                        struct mp_error *error) {
    for (int number = 0; number < all->runs->tables; number++) {
        bool found = false;
        for (int i = 0; i < all->rows; i++)
            found = found || all->row[i].run.table == number;
        if (!found)
            continue;
        MP_TRY(print_measured(all, number, format, out, error));
        MP_TRY(print_published(all, number, format, out, error));
        fputc('\n', out);
    }
    return check_printed(out, error);
}

/* ---- JSON ---- */

static int print_json(const struct convergence *all, FILE *out, struct mp_error *error) {
    json_t *rows = json_array();
    for (int i = 0; i < all->rows; i++)
        json_array_append_new(rows, table_object(columns, COLUMNS, &all->row[i]));
    return print_object(
        json_pack("{ss so sO}", "report", "convergence", "rows", rows, "published", all->paper),
        out, error);
}

int mp_report_convergence(struct mp_store *store, const struct mp_report_selection *selection,
                          enum mp_report_format format, FILE *out, struct mp_error *error) {
    MP_AUTO(runs) struct report_runs runs = {0};
    MP_AUTO(speedup_rows) struct speedup_row *rows = NULL;
    MP_AUTO(json) json_t *paper = json_loads(mp_paper_symi, 0, NULL);
    int groups;
    MP_TRY(report_runs_load(store, selection, &runs, error));
    MP_TRY(speedup_rows(&runs, -1, &rows, &groups, error));
    struct convergence all = {&runs, rows, 0, paper};
    for (int g = 0; g < groups; g++)
        if (!isnan(rows[g].target))
            rows[all.rows++] = rows[g];
    return format == MP_REPORT_JSON ? print_json(&all, out, error)
                                    : print_tables(&all, format, out, error);
}
