/* What moeperf predict --vary prints and draws: when a system pays. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "harness/cli/predict.h"
#include "results/report/grid.h"
#include "results/report/groups.h"
#include "results/report/table.h"

/* With one axis a single grid, its columns the systems; with two a grid of each system. */
struct grids {
    const struct cli_predictions *predictions;
    struct mp_grid *grid; /* [count], owned */
    int count;
    const char *key[CLI_AXES];
    char label[CLI_AXES][CLI_AXIS_VALUES][CLI_AXIS_TEXT];
    char (*name)[CLI_AXIS_TEXT]; /* of each system as every table has it; owned */
};

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

/* As a grid has it (results/report/grid.h). */
static double ratio(const struct cli_predictions *predictions, const char *system, int row,
                    int column) {
    const int at[CLI_AXES] = {row, column};
    const struct cli_prediction *own = find(predictions, system, at);
    const struct cli_prediction *ep = find(predictions, "ep", at);
    if (!own || !ep || own->refusal || ep->refusal)
        return NAN;
    if (own->summary.out_of_memory)
        return 0;
    return ep->summary.out_of_memory ? INFINITY
                                     : ep->summary.seconds_median / own->summary.seconds_median;
}

/* Values as they are shown: batches with the tokens that a rank has of them. */
static void make_labels(struct grids *grids) {
    const struct cli_axes *axes = grids->predictions->points->axes;
    for (int a = 0; a < axes->count; a++) {
        bool is_batch = !strcmp(axes->axis[a].key, "batch");
        grids->key[a] = is_batch ? "batch (tokens)" : axes->axis[a].key;
        for (int v = 0; v < axes->axis[a].count; v++) {
            int at[CLI_AXES] = {0};
            at[a] = v;
            const struct cli_prediction *ep = find(grids->predictions, "ep", at);
            char *text = grids->label[a][v];
            int length = snprintf(text, CLI_AXIS_TEXT, "%s", axes->axis[a].value[v]);
            if (is_batch && ep) {
                const struct mp_job *job = &ep->job->file.job;
                snprintf(text + length, CLI_AXIS_TEXT - (size_t)length, " (%lld)",
                         (long long)mp_job_tokens(job) / job->ranks);
            }
        }
    }
}

static void name_system(const struct cli_predictions *predictions, const char *system,
                        char name[CLI_AXIS_TEXT]) {
    bool is_yardstick = false;
    for (int i = 0; i < predictions->count; i++)
        is_yardstick = is_yardstick || (!strcmp(predictions->points->item[i].system, system) &&
                                        predictions->item[i].job->file.system->capabilities &
                                            MP_SYSTEM_UNATTAINABLE);
    snprintf(name, CLI_AXIS_TEXT, "%.900s%s", system, is_yardstick ? REPORT_UNATTAINABLE : "");
}

/* Of the system number `first`, or with one axis of all `count`. */
static void fill_grid(const struct grids *grids, const char *const system[], int first, int count,
                      struct mp_grid *grid) {
    const struct cli_axis *axis = grids->predictions->points->axes->axis;
    bool by_system = grids->predictions->points->axes->count == 1;
    *grid = (struct mp_grid){.name = by_system ? "all systems" : grids->name[first],
                             .row = grids->key[0],
                             .column = by_system ? "system" : grids->key[1],
                             .rows = axis[0].count,
                             .columns = by_system ? count : axis[1].count};
    for (int r = 0; r < grid->rows; r++)
        grid->row_label[r] = grids->label[0][r];
    for (int c = 0; c < grid->columns; c++) {
        grid->column_label[c] = by_system ? grids->name[c] : grids->label[1][c];
        for (int r = 0; r < grid->rows; r++)
            grid->ratio[r][c] = by_system ? ratio(grids->predictions, system[c], r, 0)
                                          : ratio(grids->predictions, system[first], r, c);
    }
}

/* All systems beside ep, whose points stand one after the other. */
static int list_systems(const struct cli_points *points, const char *system[]) {
    int count = 0;
    for (int i = 0; i < points->count; i++)
        if (strcmp(points->item[i].system, "ep") != 0 &&
            (count == 0 || strcmp(points->item[i].system, system[count - 1]) != 0))
            system[count++] = points->item[i].system;
    return count;
}

static int make_grids(struct grids *grids, struct mp_error *error) {
    const struct cli_points *points = grids->predictions->points;
    const char **system = calloc((size_t)points->count, sizeof *system);
    int count = system ? list_systems(points, system) : 0, code = MP_OK;
    grids->count = points->axes->count == 1 ? count > 0 : count;
    grids->grid = calloc((size_t)grids->count + 1, sizeof *grids->grid);
    grids->name = calloc((size_t)count + 1, sizeof *grids->name);
    if (!system || !grids->grid || !grids->name)
        code = mp_fail(error, MP_ENOMEM, "no memory for the tables");
    if (!code && points->axes->count == 1 && count > MP_GRID_COLUMNS)
        code = mp_fail(error, MP_EINVAL, "--vary: room for at most %d systems beside ep, not %d",
                       MP_GRID_COLUMNS, count);
    make_labels(grids);
    for (int i = 0; i < count && !code; i++)
        name_system(grids->predictions, system[i], grids->name[i]);
    for (int i = 0; i < grids->count && !code; i++)
        fill_grid(grids, system, i, count, &grids->grid[i]);
    free(system);
    return code;
}

/* In words: where it pays, and how much. */
static void print_range(const struct mp_grid *grid) {
    int known = 0, faster = 0, least[2] = {0}, most[2] = {0};
    for (int r = 0; r < grid->rows; r++)
        for (int c = 0; c < grid->columns; c++) {
            double value = grid->ratio[r][c];
            if (!(value > 0) || isinf(value))
                continue;
            faster += value > 1;
            if (known++ == 0 || value < grid->ratio[least[0]][least[1]])
                memcpy(least, (int[]){r, c}, sizeof least);
            if (known == 1 || value > grid->ratio[most[0]][most[1]])
                memcpy(most, (int[]){r, c}, sizeof most);
        }
    if (known > 1)
        table_paragraph(stdout,
                        "Faster than ep at %d of %d points: %.2f x at %s %s, %s %s to %.2f x at %s "
                        "%s, %s %s.",
                        faster, known, grid->ratio[least[0]][least[1]], grid->row,
                        grid->row_label[least[0]], grid->column, grid->column_label[least[1]],
                        grid->ratio[most[0]][most[1]], grid->row, grid->row_label[most[0]],
                        grid->column, grid->column_label[most[1]]);
}

static void set_ratio(struct table *table, int column, double ratio) {
    if (ratio == 0 || isinf(ratio))
        table_set(table, column, ratio == 0 ? "memory" : "ep: memory");
    else
        table_set_number(table, column, ratio, 2);
}

static int print_grid(const struct mp_grid *grid, bool by_system, struct mp_error *error) {
    struct table_column columns[MP_GRID_COLUMNS + 1] = {{grid->row, TABLE_LEFT}};
    struct table table;
    int code = MP_OK;
    for (int c = 0; c < grid->columns; c++)
        columns[c + 1] = (struct table_column){grid->column_label[c], TABLE_RIGHT};
    table_init(&table, columns, grid->columns + 1);
    for (int r = 0; r < grid->rows && !code; r++) {
        code = table_add(&table, NULL, error);
        if (!code)
            table_set(&table, 0, "%s", grid->row_label[r]);
        for (int c = 0; c < grid->columns && !code; c++)
            set_ratio(&table, c + 1, grid->ratio[r][c]);
    }
    if (!code) {
        printf("\n%s, times as fast as ep%s%s:\n", grid->name, by_system ? "" : ", by ",
               by_system ? "" : grid->column);
        table_print(&table, stdout);
        if (!by_system)
            print_range(grid);
    }
    table_free(&table);
    return code;
}

/* What was predicted, for the page. */
static int write_html(const struct grids *grids, const char *path, struct mp_error *error) {
    const struct cli_predictions *predictions = grids->predictions;
    char *about = NULL;
    size_t size;
    FILE *memory = open_memstream(&about, &size);
    if (memory)
        cli_print_prediction_heading(predictions, memory);
    int code = memory && !fclose(memory) ? mp_grid_html(grids->grid, grids->count,
                                                        "When a system pays", about, path, error)
                                         : mp_fail(error, MP_ENOMEM, "no memory for the page");
    free(about);
    return code;
}

/* Each reason once, with the first job that has it. */
static void print_refusals(const struct cli_predictions *predictions) {
    for (int i = 0; i < predictions->count; i++) {
        const struct cli_prediction *item = &predictions->item[i];
        bool is_new = item->refusal;
        for (int j = 0; j < i && is_new; j++)
            is_new = !predictions->item[j].refusal ||
                     strcmp(item->refusal, predictions->item[j].refusal) != 0;
        if (is_new)
            table_paragraph(stdout, "%s: refused: %s", item->job->file.job.name, item->refusal);
    }
}

int cli_print_grids(const struct cli_predictions *predictions, struct mp_error *error) {
    struct grids *grids = calloc(1, sizeof *grids);
    if (!grids)
        return mp_fail(error, MP_ENOMEM, "no memory for the tables");
    grids->predictions = predictions;
    int code = make_grids(grids, error);
    if (!code && predictions->html)
        code = write_html(grids, predictions->html, error);
    for (int i = 0; i < grids->count && !code; i++)
        code = print_grid(&grids->grid[i], predictions->points->axes->count == 1, error);
    if (!code)
        print_refusals(predictions);
    free(grids->grid);
    free(grids->name);
    free(grids);
    return code;
}
