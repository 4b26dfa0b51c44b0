/* What moeperf predict --vary prints and draws: when a system pays. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "harness/cli/predict.h"
#include "harness/predict/bound.h"
#include "reference/base/arena.h"
#include "reference/base/characters.h"
#include "reference/base/median.h"
#include "results/report/groups.h"
#include "results/report/html.h"
#include "results/report/query.h"
#include "results/report/table.h"

/* The prediction of a system (with its options, as it was asked for) at a point; NULL: left out. */
static const struct cli_prediction *prediction_at(const struct cli_predictions *predictions,
                                                  const char *system, int number) {
    for (int i = 0; i < predictions->count; i++) {
        const struct cli_point *point = &predictions->points->item[i];
        if (!strcmp(point->system, system) && point->number == number)
            return &predictions->item[i];
    }
    return NULL;
}

/* ---- where systems stand over all points ---- */

static const double NEAR = 0.01;

/* Of one system; NAN where there is nothing to tell. */
struct standing {
    const char *system; /* borrowed of the points */
    bool unattainable;
    int points, ran;      /* ran: neither refused nor out of memory; of these */
    int bounded;          /* the bound covers it and is known: its share of the time there, */
    double median, worst; /* 0 .. 1 */
    int fastest, near;    /* the fastest of all systems that are rated; within 1 % of that */
    double ep, fssdp;     /* how many times as fast, geometric means of points where both ran */
};

static double seconds_of(const struct cli_prediction *item) {
    return item && !item->refusal && !item->summary.out_of_memory ? item->summary.seconds_median
                                                                  : NAN;
}

/* Whether a system's times may be compared with others', however its rows travel and whether or
 * not its experts are whole. */
static bool is_rated(const struct cli_prediction *item) {
    return !isnan(seconds_of(item)) && item->summary.as_chosen &&
           !(item->job->file.system->capabilities & MP_SYSTEM_UNATTAINABLE);
}

/* The geometric mean of a yardstick's times over the system's. */
static double times_as_fast(const struct cli_predictions *predictions, const char *system,
                            const char *other) {
    double sum = 0;
    int both = 0;
    for (int i = 0; i < predictions->count; i++) {
        const struct cli_point *point = &predictions->points->item[i];
        if (strcmp(point->system, system) != 0)
            continue;
        double ratio = seconds_of(prediction_at(predictions, other, point->number)) /
                       seconds_of(&predictions->item[i]);
        if (isnan(ratio))
            continue;
        sum += log(ratio);
        both++;
    }
    return both ? exp(sum / both) : NAN;
}

/* Adds a point of the system; shares[bounded] becomes its share. */
static void add_point(const struct cli_prediction *item, double least, struct standing *standing,
                      double shares[]) {
    double seconds = seconds_of(item), share = cli_prediction_of_bound(item);
    standing->points++;
    standing->ran += !isnan(seconds);
    if (!is_rated(item))
        return;
    standing->fastest += seconds <= least;
    standing->near += seconds <= (1 + NEAR) * least;
    if (!isnan(share))
        shares[standing->bounded++] = share;
}

/* The shortest time of all systems that are rated at every point, [points]. */
static void find_least(const struct cli_predictions *predictions, double least[]) {
    for (int p = 0; p < cli_axes_points(predictions->points->axes); p++)
        least[p] = INFINITY;
    for (int i = 0; i < predictions->count; i++) {
        int at = predictions->points->item[i].number;
        if (is_rated(&predictions->item[i]))
            least[at] = fmin(least[at], predictions->item[i].summary.seconds_median);
    }
}

static void find_standing(const struct cli_predictions *predictions, const char *system,
                          const double least[], double shares[], struct standing *standing) {
    const struct cli_points *points = predictions->points;
    *standing = (struct standing){.system = system, .median = NAN, .worst = NAN};
    for (int i = 0; i < predictions->count; i++) {
        if (strcmp(points->item[i].system, system) != 0)
            continue;
        standing->unattainable =
            predictions->item[i].job->file.system->capabilities & MP_SYSTEM_UNATTAINABLE;
        add_point(&predictions->item[i], least[points->item[i].number], standing, shares);
    }
    if (standing->bounded) {
        standing->median = mp_median_of(shares, standing->bounded);
        standing->worst = shares[0]; /* sorted now */
    }
    standing->ep = times_as_fast(predictions, system, "ep");
    standing->fssdp = times_as_fast(predictions, system, "fssdp");
}

static void show_system(const void *row, char text[TABLE_CELL]) {
    const struct standing *own = row;
    snprintf(text, TABLE_CELL, "%.90s%s", own->system,
             own->unattainable ? REPORT_UNATTAINABLE : "");
}

static void show_points(const void *row, char text[TABLE_CELL]) {
    const struct standing *own = row;
    snprintf(text, TABLE_CELL, own->ran < own->points ? "%d of %d" : "%d", own->ran, own->points);
}

int cli_standing_table(const struct cli_predictions *predictions, struct table *table,
                       struct mp_error *error) {
#define AT(member) offsetof(struct standing, member)
    static const struct table_column columns[] = {
        {"system", TABLE_LEFT, .show = show_system},
        {.key = "system", .at = AT(system)},
        {"points", TABLE_RIGHT, .show = show_points},
        {"bound /\ntime", TABLE_NUMBER, "%", "of_bound_median", AT(median), .decimals = 1},
        {"worst", TABLE_NUMBER, "%", "of_bound_worst", AT(worst), .decimals = 1},
        {"fastest", TABLE_COUNT, NULL, "fastest", .at = AT(fastest)},
        {"within\n1 %", TABLE_COUNT, NULL, "within_1_percent", .at = AT(near)},
        {"vs\nEP", TABLE_NUMBER, NULL, "speedup_vs_ep", AT(ep), .decimals = 3},
        {"vs\nFSSDP", TABLE_NUMBER, NULL, "speedup_vs_fssdp", AT(fssdp), .decimals = 3},
        {NULL, TABLE_FLAG, NULL, "unattainable", .at = AT(unattainable)},
        {NULL, TABLE_COUNT, NULL, "points", .at = AT(points)},
        {NULL, TABLE_COUNT, NULL, "ran", .at = AT(ran)},
    };
    const struct cli_points *points = predictions->points;
    MP_AUTO(arena) struct mp_arena arena = {0};
    double *least, *shares;
    MP_TAKE(&arena, least, cli_axes_points(points->axes));
    MP_TAKE(&arena, shares, points->count);
    *table = table_of(columns, MP_LENGTH(columns));
    table->drops_empty = true;
    MP_TRY(mp_arena_check(&arena, error));
    find_least(predictions, least);
    for (int i = 0; i < points->count; i++) {
        struct standing standing;
        if (i > 0 && strcmp(points->item[i].system, points->item[i - 1].system) == 0)
            continue;
        find_standing(predictions, points->item[i].system, least, shares, &standing);
        MP_TRY(table_fill(table, &standing, 1, sizeof standing, error));
    }
    return MP_OK;
}

/* ---- grids ---- */

/* With one axis a single grid, its columns the systems; with more a grid of each system, its
 * columns the last axis and its rows all values of the others. */
struct grids {
    const struct cli_predictions *predictions;
    const struct cli_axes *axes;
    const char **system;  /* [systems] beside ep, borrowed; owned array */
    struct mp_grid *grid; /* [count], and one of ep's times; owned */
    int systems, count;
    bool by_system;
    char key[2][CLI_AXIS_TEXT];
    char row[MP_GRID_ROWS][CLI_AXIS_TEXT], column[MP_GRID_COLUMNS][CLI_AXIS_TEXT];
    char (*name)[CLI_AXIS_TEXT]; /* of each system as every table has it; owned */
    struct mp_arena *arena;      /* of the tables */
};

/* The prediction in a cell of a grid; of ep there, for a NULL grid. */
static const struct cli_prediction *find(const struct grids *grids, const struct mp_grid *grid,
                                         int row, int column) {
    int columns = grids->by_system ? 1 : grids->axes->axis[grids->axes->count - 1].count;
    const char *system = !grid              ? "ep"
                         : grids->by_system ? grids->system[column]
                                            : grids->system[grid - grids->grid];
    return prediction_at(grids->predictions, system,
                         row * columns + (grids->by_system ? 0 : column));
}

/* As a grid has it (results/report/html.h). */
static double ratio(const struct cli_prediction *own, const struct cli_prediction *ep) {
    if (!own || !ep || own->refusal || ep->refusal)
        return NAN;
    if (own->summary.out_of_memory)
        return 0;
    return ep->summary.out_of_memory ? INFINITY
                                     : ep->summary.seconds_median / own->summary.seconds_median;
}

/* A file's name without its folder, if no other value ends so. */
static const char *short_value(const struct cli_axis *axis, int value) {
    const char *slash = strrchr(axis->value[value], '/');
    for (int v = 0; v < axis->count && slash; v++) {
        const char *other = strrchr(axis->value[v], '/');
        if (v != value && !strcmp(other ? other + 1 : axis->value[v], slash + 1))
            slash = NULL;
    }
    return slash ? slash + 1 : axis->value[value];
}

/* Tokens that a rank has of a batch; 0 where that differs from point to point, or it is none. */
static int64_t tokens_of(const struct grids *grids, int axis, int value) {
    int64_t tokens = 0;
    for (int p = 0; p < cli_axes_points(grids->axes); p++) {
        const struct cli_prediction *ep = prediction_at(grids->predictions, "ep", p);
        if (!ep || cli_axes_index(grids->axes, p, axis) != value)
            continue;
        int64_t own = mp_job_tokens(&ep->job->file.job) / ep->job->file.job.ranks;
        if (strcmp(grids->axes->axis[axis].key, "batch") != 0 || (tokens && own != tokens))
            return 0;
        tokens = own;
    }
    return tokens;
}

/* Values as they are shown: batches with a rank's tokens. */
static void label_value(const struct grids *grids, int axis, int value, char *text, size_t size) {
    const int64_t tokens = tokens_of(grids, axis, value);
    snprintf(text, size, "%s", short_value(&grids->axes->axis[axis], value));
    if (tokens)
        mp_text_add(text, size, "", " (%lld)", (long long)tokens);
}

/* Names and values of the axes first to last - 1 at a point, "cluster, nodes" and "h100, 4". */
static void label_axes(const struct grids *grids, int first, int last, int number, char *key,
                       char *text) {
    *key = *text = '\0';
    for (int a = first; a < last; a++) {
        char value[CLI_AXIS_TEXT];
        const struct cli_axis *axis = &grids->axes->axis[a];
        bool has_tokens = MP_ANY(v, axis->count, tokens_of(grids, a, v) > 0);
        label_value(grids, a, cli_axes_index(grids->axes, number, a), value, sizeof value);
        mp_text_add(key, CLI_AXIS_TEXT, ", ", "%s", has_tokens ? "batch (tokens)" : axis->key);
        mp_text_add(text, CLI_AXIS_TEXT, ", ", "%s", value);
    }
}

static void make_labels(struct grids *grids, int rows, int columns) {
    int last = grids->axes->count - 1;
    for (int r = 0; r < rows; r++)
        label_axes(grids, 0, grids->by_system ? 1 : last, r * (grids->by_system ? 1 : columns),
                   grids->key[0], grids->row[r]);
    for (int c = 0; c < columns && !grids->by_system; c++)
        label_axes(grids, last, last + 1, c, grids->key[1], grids->column[c]);
}

static void name_system(const struct cli_predictions *predictions, const char *system,
                        char name[CLI_AXIS_TEXT]) {
    int first = 0;
    while (strcmp(predictions->points->item[first].system, system) != 0)
        first++;
    const struct mp_system *own = predictions->item[first].job->file.system;
    snprintf(name, CLI_AXIS_TEXT, "%.900s%s", system,
             own->capabilities & MP_SYSTEM_UNATTAINABLE ? REPORT_UNATTAINABLE : "");
}

static struct mp_grid *name_grid(struct grids *grids, int number, const char *name, int rows,
                                 int columns) {
    struct mp_grid *grid = &grids->grid[number];
    *grid = (struct mp_grid){.name = name,
                             .row = grids->key[0],
                             .column = grids->by_system ? "system" : grids->key[1],
                             .rows = rows,
                             .columns = columns};
    for (int c = 0; c < columns; c++)
        grid->column_label[c] = grids->by_system ? grids->name[c] : grids->column[c];
    for (int r = 0; r < rows; r++)
        grid->row_label[r] = grids->row[r];
    return grid;
}

static void fill_grid(struct grids *grids, int number, int rows, int columns) {
    struct mp_grid *grid = name_grid(
        grids, number, grids->by_system ? "all systems" : grids->name[number], rows, columns);
    for (int r = 0; r < rows; r++)
        for (int c = 0; c < columns; c++) {
            const struct cli_prediction *own = find(grids, grid, r, c);
            grid->ratio[r][c] = ratio(own, find(grids, NULL, r, c));
            bool ran = own && !own->refusal && !own->summary.out_of_memory;
            grid->share[r][c] = ran ? cli_prediction_of_bound(own) : NAN;
            grid->has_shares = grid->has_shares || !isnan(grid->share[r][c]);
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
    int last = grids->axes->axis[grids->axes->count - 1].count, code = MP_OK;
    grids->by_system = grids->axes->count == 1;
    MP_TAKE(grids->arena, grids->system, points->count);
    grids->systems = grids->system ? list_systems(points, grids->system) : 0;
    grids->count = grids->by_system ? grids->systems > 0 : grids->systems;
    MP_TAKE(grids->arena, grids->grid, (size_t)grids->count + 1);
    MP_TAKE(grids->arena, grids->name, (size_t)grids->systems + 1);
    int columns = grids->by_system ? grids->systems : last;
    int rows = grids->by_system ? last : cli_axes_points(grids->axes) / last;
    if (grids->arena->lacking)
        code = mp_arena_check(grids->arena, error);
    else if (columns > MP_GRID_COLUMNS)
        code = mp_fail(error, MP_EINVAL, "--vary: room for at most %d systems beside ep, not %d",
                       MP_GRID_COLUMNS, columns);
    if (code)
        return code;
    make_labels(grids, rows, columns);
    for (int i = 0; i < grids->systems; i++)
        name_system(grids->predictions, grids->system[i], grids->name[i]);
    for (int i = 0; i < grids->count; i++)
        fill_grid(grids, i, rows, columns);
    struct mp_grid *ep = name_grid(grids, grids->count, "ep", rows, grids->by_system ? 1 : columns);
    ep->column_label[0] = grids->by_system ? ep->name : ep->column_label[0];
    return MP_OK;
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

static void set_cell(struct table *table, const struct grids *grids, const struct mp_grid *grid,
                     int row, int column) {
    const struct cli_prediction *own = find(grids, grid, row, column);
    double value = grid->ratio[row][column], share = grid->share[row][column];
    if (value == 0 || isinf(value))
        table_set(table, column + 1, value == 0 ? "memory" : "ep: memory");
    else if (own && isnan(value) && isnan(share))
        table_set(table, column + 1, own->refusal ? "refused" : "ep: refused");
    else if (isnan(share))
        table_set_number(table, column + 1, value, 2);
    else if (isnan(value))
        table_set(table, column + 1, "- %.0f%%", 100 * share);
    else
        table_set(table, column + 1, "%.2f %.0f%%", value, 100 * share);
}

/* What others are so many times as fast as. */
static void set_times(struct table *table, const struct cli_prediction *ep, int column) {
    if (ep && (ep->refusal || ep->summary.out_of_memory))
        table_set(table, column + 1, ep->refusal ? "refused" : "memory");
    else if (ep)
        table_set(table, column + 1, "%.2f %.0f", 1e3 * ep->summary.seconds_median,
                  ep->summary.tokens_per_second);
}

/* A label in two lines where one would be longer than that: of several words, or, of
 * "levels.node.bandwidth", node and bandwidth. */
static const char *header_of(const char *label, size_t most, char text[CLI_AXIS_TEXT]) {
    static const char level[] = "levels.", option[] = "predict.";
    const size_t skipped = strncmp(label, level, sizeof level - 1) ? 0 : sizeof level - 1;
    snprintf(text, CLI_AXIS_TEXT, "%s", label + skipped);
    char *cut = strchr(text, ' ');
    if (!cut && (skipped || !strncmp(label, option, sizeof option - 1)))
        cut = strchr(text, '.');
    if (cut && strlen(text) > most)
        *cut = '\n';
    return text;
}

static int print_grid(const struct grids *grids, const struct mp_grid *grid,
                      struct mp_error *error) {
    const bool is_ep = grid == &grids->grid[grids->count];
    char key[CLI_AXIS_TEXT], header[MP_GRID_COLUMNS][CLI_AXIS_TEXT];
    struct table_column columns[MP_GRID_COLUMNS + 1] = {
        {header_of(grid->row, 16, key), .kind = TABLE_LEFT}};
    for (int c = 0; c < grid->columns; c++)
        columns[c + 1] = (struct table_column){header_of(grid->column_label[c], 8, header[c]),
                                               .kind = TABLE_RIGHT};
    MP_AUTO(table) struct table table = table_of(columns, grid->columns + 1);
    for (int r = 0; r < grid->rows; r++) {
        MP_TRY(table_add(&table, NULL, error));
        table_set(&table, 0, "%s", grid->row_label[r]);
        for (int c = 0; c < grid->columns; c++)
            if (is_ep)
                set_times(&table, find(grids, NULL, r, c), c);
            else
                set_cell(&table, grids, grid, r, c);
    }
    putchar('\n');
    table_paragraph(stdout, "%s, %s%s%s%s:", grid->name,
                    is_ep ? "ms per iteration and tokens per second" : "times as fast as ep",
                    grid->has_shares ? ", and bound / time" : "", grids->by_system ? "" : ", by ",
                    grids->by_system ? "" : grid->column);
    table_print(&table, stdout);
    if (!grids->by_system && !is_ep)
        print_range(grid);
    return MP_OK;
}

static const char STANDING_NOTE[] =
    "bound / time, where it is known: in the median and at worst.  fastest: at so many points, of "
    "the systems that "
    "drop nothing and keep the gate, or within 1 % of that one.  vs: how many times as fast, "
    "geometric means.";

static void print_standing(const struct table *table, const struct cli_predictions *predictions) {
    printf("\nOver all points:\n");
    table_print(table, stdout);
    table_paragraph(stdout, "%s", STANDING_NOTE);
    if (MP_ANY(i, predictions->count,
               !predictions->item[i].refusal && predictions->item[i].bound.iterations == 0))
        table_paragraph(stdout, "Where the bound would take more than a second or so it is not "
                                "there; --bound works it out.");
}

/* What was predicted, for the page. */
static int write_html(const struct grids *grids, const struct table *standing,
                      struct mp_error *error) {
    MP_AUTO(text) char *about = NULL;
    size_t size;
    FILE *memory = open_memstream(&about, &size);
    if (memory)
        cli_print_prediction_heading(grids->predictions, memory);
    if (!memory || fclose(memory))
        return mp_no_memory(error);
    const struct mp_grids page = {.grid = grids->grid,
                                  .count = grids->count,
                                  .title = "When a system pays",
                                  .about = about,
                                  .table = standing,
                                  .table_caption = STANDING_NOTE};
    return mp_grid_html(&page, &grids->predictions->page, error);
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

/* Of the first point of each system of which it is so. */
static void print_remark(const struct cli_predictions *predictions, cli_remark *remark,
                         bool names_point) {
    const struct cli_prediction *item = predictions->item;
    const struct cli_point *point = predictions->points->item;
    char text[CLI_REMARK];
    for (int i = 0; i < predictions->count; i++) {
        bool is_new = !item[i].refusal;
        for (int j = 0; j < i && is_new; j++)
            is_new = strcmp(point[j].system, point[i].system) != 0 || item[j].refusal ||
                     !remark(&item[j], "", text);
        if (is_new &&
            remark(&item[i], names_point ? item[i].job->file.job.name : point[i].system, text))
            table_paragraph(stdout, "%s", text);
    }
}

int cli_print_grids(const struct cli_predictions *predictions, struct mp_error *error) {
    static struct grids grids;
    MP_AUTO(table) struct table table = {0};
    MP_AUTO(arena) struct mp_arena arena = {0};
    grids = (struct grids){
        .predictions = predictions, .axes = predictions->points->axes, .arena = &arena};
    MP_TRY(make_grids(&grids, error));
    MP_TRY(cli_standing_table(predictions, &table, error));
    if (predictions->page.html || predictions->page.figures)
        MP_TRY(write_html(&grids, &table, error));
    MP_TRY(print_grid(&grids, &grids.grid[grids.count], error));
    for (int i = 0; i < grids.count; i++)
        MP_TRY(print_grid(&grids, &grids.grid[i], error));
    print_standing(&table, predictions);
    print_refusals(predictions);
    print_remark(predictions, cli_prediction_interval, false);
    print_remark(predictions, cli_prediction_mean, true);
    return MP_OK;
}
