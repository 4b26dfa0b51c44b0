#include "harness/cli/predict_standing.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "harness/predict/bound.h"
#include "results/report/groups.h"
#include "results/report/query.h"

static const double NEAR = 0.01;

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
        double ratio = seconds_of(cli_prediction_at(predictions, other, point->at)) /
                       seconds_of(&predictions->item[i]);
        if (isnan(ratio))
            continue;
        sum += log(ratio);
        both++;
    }
    return both ? exp(sum / both) : NAN;
}

/* Adds a point of the system; shares[bounded] becomes its share. */
static void add_point(const struct cli_prediction *item, double least,
                      struct cli_standing *standing, double shares[]) {
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
    const struct cli_axes *axes = predictions->points->axes;
    int points = cli_axes_points(axes);
    double *least = malloc((size_t)points * sizeof *least);
    for (int p = 0; least && p < points; p++)
        least[p] = INFINITY;
    for (int i = 0; least && i < predictions->count; i++) {
        int at = cli_axes_number(axes, predictions->points->item[i].at);
        if (is_rated(&predictions->item[i]))
            least[at] = fmin(least[at], predictions->item[i].summary.seconds_median);
    }
    return least;
}

static void find_standing(const struct cli_predictions *predictions, const char *system,
                          const double least[], double shares[], struct cli_standing *standing) {
    const struct cli_points *points = predictions->points;
    *standing = (struct cli_standing){.system = system, .median = NAN, .worst = NAN};
    for (int i = 0; i < predictions->count; i++) {
        if (strcmp(points->item[i].system, system) != 0)
            continue;
        standing->unattainable =
            predictions->item[i].job->file.system->capabilities & MP_SYSTEM_UNATTAINABLE;
        add_point(&predictions->item[i], least[cli_axes_number(points->axes, points->item[i].at)],
                  standing, shares);
    }
    if (standing->bounded) {
        standing->median = report_median(shares, standing->bounded);
        standing->worst = shares[0]; /* sorted now */
    }
    standing->ep = times_as_fast(predictions, system, "ep");
    standing->fssdp = times_as_fast(predictions, system, "fssdp");
}

struct cli_standing *cli_standings(const struct cli_predictions *predictions, int *count) {
    const struct cli_points *points = predictions->points;
    struct cli_standing *standing = calloc((size_t)points->count + 1, sizeof *standing);
    double *least = find_least(predictions);
    double *shares = malloc((size_t)points->count * sizeof *shares);
    *count = 0;
    for (int i = 0; standing && least && shares && i < points->count; i++)
        if (i == 0 || strcmp(points->item[i].system, points->item[i - 1].system) != 0)
            find_standing(predictions, points->item[i].system, least, shares,
                          &standing[(*count)++]);
    bool failed = !least || !shares;
    free(least);
    free(shares);
    if (failed) {
        free(standing);
        return NULL;
    }
    return standing;
}

/* ---- showing ---- */

enum { SYSTEM, POINTS, MEDIAN, WORST, FASTEST, CLOSE, EP, FSSDP, COLUMNS };

static const struct table_column columns[COLUMNS] = {
    [SYSTEM] = {"system", TABLE_LEFT},
    [POINTS] = {"points", TABLE_RIGHT},
    [MEDIAN] = {"bound /\ntime %", TABLE_RIGHT},
    [WORST] = {"worst\n%", TABLE_RIGHT},
    [FASTEST] = {"fastest", TABLE_RIGHT},
    [CLOSE] = {"within\n1 %", TABLE_RIGHT},
    [EP] = {"vs\nEP", TABLE_RIGHT},
    [FSSDP] = {"vs\nFSSDP", TABLE_RIGHT},
};

int cli_standing_table(const struct cli_standing standing[], int count, struct table *table,
                       struct mp_error *error) {
    int code = MP_OK;
    table_init(table, columns, COLUMNS);
    table->drops_empty = true;
    for (int i = 0; i < count && !code; i++) {
        const struct cli_standing *one = &standing[i];
        code = table_add(table, NULL, error);
        if (code)
            break;
        table_set(table, SYSTEM, "%.90s%s", one->system,
                  one->unattainable ? REPORT_UNATTAINABLE : "");
        table_set(table, POINTS, one->ran < one->points ? "%d of %d" : "%d", one->ran, one->points);
        table_set_number(table, MEDIAN, 100 * one->median, 1);
        table_set_number(table, WORST, 100 * one->worst, 1);
        table_set_number(table, FASTEST, one->fastest, 0);
        table_set_number(table, CLOSE, one->near, 0);
        table_set_number(table, EP, one->ep, 3);
        table_set_number(table, FSSDP, one->fssdp, 3);
    }
    return code;
}

json_t *cli_standing_json(const struct cli_predictions *predictions) {
    int count;
    struct cli_standing *standing = cli_standings(predictions, &count);
    json_t *list = standing ? json_array() : NULL;
    for (int i = 0; list && i < count; i++) {
        const struct cli_standing *one = &standing[i];
        json_array_append_new(
            list, json_pack("{so sb si si so so si si so so}", "system", json_text(one->system),
                            "unattainable", one->unattainable, "points", one->points, "ran",
                            one->ran, "of_bound_median", json_number(one->median), "of_bound_worst",
                            json_number(one->worst), "fastest", one->fastest, "within_1_percent",
                            one->near, "speedup_vs_ep", json_number(one->ep), "speedup_vs_fssdp",
                            json_number(one->fssdp)));
    }
    free(standing);
    return list;
}
