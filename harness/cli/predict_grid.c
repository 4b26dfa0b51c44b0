/* What moeperf predict --vary prints: when a system pays. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "harness/cli/predict.h"
#include "results/report/table.h"

/* The prediction of a system at values of the axes; NULL: left out. */
static const struct cli_prediction *find(const struct cli_predictions *predictions,
                                         const char *system, const int at[]) {
    for (int i = 0; i < predictions->count; i++) {
        const struct cli_point *point = &predictions->points->item[i];
        if (!strcmp(point->system, system) && !memcmp(point->at, at, sizeof point->at))
            return &predictions->item[i];
    }
    return NULL;
}

/* How many times as fast as ep; NAN where one of both has no time, or not the memory for it. */
static double ratio(const struct cli_predictions *predictions, const char *system, const int at[]) {
    const struct cli_prediction *own = find(predictions, system, at);
    const struct cli_prediction *ep = find(predictions, "ep", at);
    return own && ep && !own->summary.out_of_memory && !ep->summary.out_of_memory &&
                   own->summary.seconds_median > 0
               ? ep->summary.seconds_median / own->summary.seconds_median
               : NAN;
}

static void set_ratio(const struct cli_predictions *predictions, const char *system, const int at[],
                      struct table *table, int column) {
    const struct cli_prediction *own = find(predictions, system, at);
    if (own && own->summary.out_of_memory)
        table_set(table, column, "memory");
    else
        table_set_number(table, column, ratio(predictions, system, at), 2);
}

/* A value as its axis shows it: batches with the tokens that a rank has of them. */
static const char *label(const struct cli_predictions *predictions, int axis, int index,
                         char text[CLI_AXIS_TEXT]) {
    const struct cli_axis *own = &predictions->points->axes.axis[axis];
    int at[CLI_AXES] = {0};
    at[axis] = index;
    const struct cli_prediction *ep = find(predictions, "ep", at);
    if (!strcmp(own->key, "batch") && ep) {
        const struct mp_job *job = &ep->job->file.job;
        snprintf(text, CLI_AXIS_TEXT, "%s (%lld tokens)", own->value[index],
                 (long long)job->batch * job->sequence / job->ranks);
        return text;
    }
    return own->value[index];
}

/* In words: where it pays, and how much. */
static void print_range(const struct cli_predictions *predictions, const char *system) {
    const struct cli_axes *axes = &predictions->points->axes;
    char words[2][2 * CLI_AXIS_TEXT];
    double least = INFINITY, most = -INFINITY;
    int known = 0, faster = 0;
    for (int p = 0; p < cli_axes_points(axes); p++) {
        int at[CLI_AXES];
        cli_axes_point(axes, p, at);
        double value = ratio(predictions, system, at);
        known += !isnan(value);
        faster += value > 1;
        if (value < least)
            cli_axes_name(axes, at, words[0], sizeof words[0]);
        if (value > most)
            cli_axes_name(axes, at, words[1], sizeof words[1]);
        least = value < least ? value : least;
        most = value > most ? value : most;
    }
    if (known > 1)
        table_paragraph(stdout,
                        "%s is faster than ep at %d of %d points, from %.2f x (%s) to %.2f "
                        "x (%s).",
                        system, faster, known, least, words[0] + 1, most, words[1] + 1);
}

/* One system, the first axis downwards and the second one to the right. */
static int print_system(const struct cli_predictions *predictions, const char *system,
                        struct mp_error *error) {
    const struct cli_axis *axis = predictions->points->axes.axis;
    struct table_column columns[CLI_AXIS_VALUES + 1] = {{axis[0].key, TABLE_LEFT}};
    static char labels[CLI_AXIS_VALUES][CLI_AXIS_TEXT];
    char text[CLI_AXIS_TEXT];
    struct table table;
    int code = MP_OK;
    for (int c = 0; c < axis[1].count; c++)
        columns[c + 1] = (struct table_column){label(predictions, 1, c, labels[c]), TABLE_RIGHT};
    table_init(&table, columns, axis[1].count + 1);
    for (int r = 0; r < axis[0].count && !code; r++) {
        code = table_add(&table, NULL, error);
        for (int c = 0; c < axis[1].count && !code; c++)
            set_ratio(predictions, system, (const int[CLI_AXES]){r, c}, &table, c + 1);
        if (!code)
            table_set(&table, 0, "%s", label(predictions, 0, r, text));
    }
    if (!code) {
        printf("\n%s, times as fast as ep, by %s:\n", system, axis[1].key);
        table_print(&table, stdout);
        print_range(predictions, system);
    }
    table_free(&table);
    return code;
}

/* All systems, the only axis downwards. */
static int print_systems(const struct cli_predictions *predictions, const char *const system[],
                         int count, struct mp_error *error) {
    const struct cli_axis *axis = predictions->points->axes.axis;
    struct table_column columns[TABLE_COLUMNS] = {{axis->key, TABLE_LEFT}};
    char text[CLI_AXIS_TEXT];
    struct table table;
    int code = MP_OK;
    if (count > TABLE_COLUMNS - 1)
        return mp_fail(error, MP_EINVAL, "--vary: a table has room for at most %d systems",
                       TABLE_COLUMNS - 1);
    for (int c = 0; c < count; c++)
        columns[c + 1] = (struct table_column){system[c], TABLE_RIGHT};
    table_init(&table, columns, count + 1);
    for (int r = 0; r < axis->count && !code; r++) {
        code = table_add(&table, NULL, error);
        for (int c = 0; c < count && !code; c++)
            set_ratio(predictions, system[c], (const int[CLI_AXES]){r}, &table, c + 1);
        if (!code)
            table_set(&table, 0, "%s", label(predictions, 0, r, text));
    }
    if (!code) {
        puts("\nTimes as fast as ep:");
        table_print(&table, stdout);
        for (int c = 0; c < count; c++)
            print_range(predictions, system[c]);
    }
    table_free(&table);
    return code;
}

int cli_print_grid(const struct cli_predictions *predictions, struct mp_error *error) {
    const struct cli_points *points = predictions->points;
    const char **system = calloc((size_t)points->count, sizeof *system);
    int count = 0, code = system ? MP_OK : mp_fail(error, MP_ENOMEM, "no memory for the tables");
    for (int i = 0; i < points->count && !code; i++)
        if (strcmp(points->item[i].system, "ep") != 0 &&
            (count == 0 || strcmp(points->item[i].system, system[count - 1]) != 0))
            system[count++] = points->item[i].system;
    if (!code && points->axes.count == 1)
        code = print_systems(predictions, system, count, error);
    for (int i = 0; i < count && points->axes.count == 2 && !code; i++)
        code = print_system(predictions, system[i], error);
    free(system);
    return code;
}
