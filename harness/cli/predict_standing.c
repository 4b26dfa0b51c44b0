#include "harness/cli/predict.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "harness/predict/bound.h"
#include "reference/base/median.h"
#include "results/report/groups.h"
#include "results/report/query.h"

static const double NEAR = 0.01;

/* Of one system; NAN where there is nothing to tell. */
struct standing {
    const char *system; /* borrowed of the points */
    bool unattainable;
    int points, ran;      /* ran: neither refused nor out of memory; of these */
    int bounded;          /* the bound covers it and is known: its share of the time there, */
    double median, worst; /* 0 .. 1 */
    int fastest, near;    /* the fastest of all systems that the bound covers; within 1 % of that */
    double ep, fssdp;     /* how many times as fast, geometric means of points where both ran */
};

static double seconds_of(const struct cli_prediction *item) {
    return item && !item->refusal && !item->summary.out_of_memory ? item->summary.seconds_median
                                                                  : NAN;
}

/* Whether a system's times may be compared with others', however its rows travel. */
static bool is_rated(const struct cli_prediction *item) {
    return !isnan(seconds_of(item)) &&
           mp_bound_covers(item->job->file.system, MP_EXCHANGE_DEDUPLICATED,
                           item->summary.mean.dropped > 0, item->summary.shards);
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
        double ratio = seconds_of(cli_prediction_at(predictions, other, point->number)) /
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
static double *find_least(const struct cli_predictions *predictions) {
    int points = cli_axes_points(predictions->points->axes);
    double *least = malloc((size_t)points * sizeof *least);
    for (int p = 0; least && p < points; p++)
        least[p] = INFINITY;
    for (int i = 0; least && i < predictions->count; i++) {
        int at = predictions->points->item[i].number;
        if (is_rated(&predictions->item[i]))
            least[at] = fmin(least[at], predictions->item[i].summary.seconds_median);
    }
    return least;
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
    double *least = find_least(predictions);
    double *shares = malloc((size_t)points->count * sizeof *shares);
    int code = least && shares ? MP_OK : mp_fail(error, MP_ENOMEM, "no memory for the tables");
    table_init(table, columns, sizeof columns / sizeof *columns);
    table->drops_empty = true;
    for (int i = 0; i < points->count && !code; i++) {
        struct standing standing;
        if (i > 0 && strcmp(points->item[i].system, points->item[i - 1].system) == 0)
            continue;
        find_standing(predictions, points->item[i].system, least, shares, &standing);
        code = table_fill(table, &standing, 1, sizeof standing, error);
    }
    free(least);
    free(shares);
    return code;
}
