#include "harness/predict/what_if_rates.h"

#include <stdlib.h>
#include <string.h>

#include "harness/predict/what_if_demand.h"

double mp_fitted_at(const struct mp_fitted_line *line, double x) {
    double inside = x < line->largest ? x : line->largest;
    return line->fixed + line->slope * inside + line->beyond * (x - inside);
}

/* ---- what the run took ---- */

struct measuring {
    const struct mp_recorded *recorded;
    struct mp_what_if_measured *measured;
    int layers;
};

static void take_span(void *context, const struct mp_what_if_span *span) {
    const struct measuring *measuring = context;
    const struct mp_recorded_span *recorded = span->recorded;
    int phase = recorded->phase, way = recorded->direction == MP_BACKWARD;
    if (phase == MP_PHASE_MOVE)
        measuring->measured->moving += recorded->end - recorded->start;
    if (recorded->layer < 0 || recorded->layer >= measuring->layers)
        return;
    size_t cell = ((size_t)span->iteration * (size_t)measuring->layers + (size_t)recorded->layer) *
                      (size_t)measuring->recorded->ranks +
                  (size_t)span->rank;
    struct mp_what_if_layer *layer = &measuring->measured->layer[cell];
    if (phase == MP_PHASE_EXPERT)
        layer->expert[way] += span->own;
    else if (phase == MP_PHASE_DISPATCH)
        layer->dispatch[way] += span->transfer;
    else if (phase == MP_PHASE_COMBINE)
        layer->combine[way] += span->transfer;
    else if (phase == MP_PHASE_FETCH || phase == MP_PHASE_REDUCE)
        layer->stall[way] += recorded->end - recorded->start;
    else if (phase == MP_PHASE_ATTENTION)
        measuring->measured->attention[cell][way] += span->own;
}

int mp_what_if_measure(const struct mp_what_if *what_if, const struct mp_recorded *recorded,
                       int layers, struct mp_what_if_measured *measured, struct mp_error *error) {
    size_t cells = (size_t)recorded->iterations * (size_t)layers * (size_t)recorded->ranks;
    struct measuring measuring = {recorded, measured, layers};
    *measured = (struct mp_what_if_measured){0};
    measured->layer = calloc(cells, sizeof *measured->layer);
    measured->attention = calloc(cells, sizeof *measured->attention);
    if (!measured->layer || !measured->attention) {
        mp_what_if_measured_destroy(measured);
        return mp_fail(error, MP_ENOMEM, "no memory for what %zu layers of ranks took", cells);
    }
    mp_what_if_each(what_if, take_span, &measuring);
    return MP_OK;
}

void mp_what_if_measured_destroy(struct mp_what_if_measured *measured) {
    free(measured->layer);
    free(measured->attention);
    *measured = (struct mp_what_if_measured){0};
}

/* ---- lines ---- */

/* What a rate is fitted to. */
struct points {
    double *x, *y, *distance; /* [count]; room for all cells */
    size_t count;
};

static void add_point(struct points *points, double x, double y) {
    points->x[points->count] = x;
    points->y[points->count++] = y;
}

static double distance_of(const struct mp_fitted_line *line, double x, double y) {
    double difference = y - line->fixed - line->slope * x;
    return difference < 0 ? -difference : difference;
}

/* Least squares over the points within `limit` of `line`, with neither part negative: what does not
 * grow with x is fixed, and what has no fixed part, or whose x hardly differ, is in proportion. */
static struct mp_fitted_line fit_near(const struct points *points,
                                      const struct mp_fitted_line *line, double limit) {
    double count = 0, x = 0, y = 0, xx = 0, xy = 0;
    for (size_t i = 0; i < points->count; i++) {
        if (limit >= 0 && distance_of(line, points->x[i], points->y[i]) > limit)
            continue;
        count++;
        x += points->x[i];
        y += points->y[i];
        xx += points->x[i] * points->x[i];
        xy += points->x[i] * points->y[i];
    }
    double spread = count * xx - x * x;
    if (spread > 1e-4 * count * xx) {
        double slope = (count * xy - x * y) / spread, fixed = (y - slope * x) / count;
        if (slope < 0)
            return (struct mp_fitted_line){.fixed = y / count};
        if (fixed >= 0)
            return (struct mp_fitted_line){.fixed = fixed, .slope = slope};
    }
    if (xx > 0)
        return (struct mp_fitted_line){.slope = xy / xx};
    return (struct mp_fitted_line){.fixed = count > 0 ? y / count : 0};
}

static int compare_doubles(const void *left, const void *right) {
    double a = *(const double *)left, b = *(const double *)right;
    return (a > b) - (a < b);
}

static double middle_of(double value[], size_t count) {
    qsort(value, count, sizeof *value, compare_doubles);
    return value[count / 2];
}

/* Twice without those that are far from the line before: beyond 4 median distances, and by more
 * than what is usual. */
static struct mp_fitted_line fit_line(struct points *points) {
    struct mp_fitted_line line = {0};
    line = fit_near(points, &line, -1);
    for (int round = 0; round < 2 && points->count > 0; round++) {
        for (size_t i = 0; i < points->count; i++)
            points->distance[i] = distance_of(&line, points->x[i], points->y[i]);
        double limit = 4 * middle_of(points->distance, points->count);
        memcpy(points->distance, points->y, points->count * sizeof *points->y);
        double usual = middle_of(points->distance, points->count);
        line = fit_near(points, &line, limit > usual ? limit : usual);
    }
    return line;
}

/* ---- rates ---- */

/* One kind of what was measured over what was planned. */
enum fitted { EXPERT, DISPATCH, COMBINE, COPIES, FITTED };

/* What an exchange in steps takes is not seen where it hides behind the experts. */
static bool shows_exchange(const struct mp_demand *demand, bool hides) {
    return !(demand->pipelined && hides);
}

/* Steps are so many calls, each of a part. */
static void add_cell(const struct mp_demand *demand, const struct mp_what_if_layer *measured,
                     enum fitted kind, int way, bool hides, struct points *points) {
    double calls = demand->calls > 0 ? demand->calls : 1;
    double exchanges = demand->exchanges > 0 ? demand->exchanges : 1;
    if (kind == EXPERT && demand->routes > 0)
        add_point(points, demand->routes / calls, measured->expert[way] / calls);
    else if (kind == COPIES && demand->bytes[way] > 0)
        add_point(points, demand->bytes[way], measured->stall[way]);
    else if ((kind == DISPATCH || kind == COMBINE) && shows_exchange(demand, hides))
        add_point(points, demand->rows / exchanges,
                  (kind == DISPATCH ? measured->dispatch[way] : measured->combine[way]) /
                      exchanges);
}

static double moved_bytes(const struct mp_demands *own) {
    double bytes = 0;
    for (int i = 0; i < own->iterations; i++)
        bytes += own->moved[i] * own->ranks;
    return bytes;
}

/* Where the line ends and how it goes on there: no steeper than `known`, or, for 0, than on the way
 * from nothing to its end.  A line without an x goes on as known from its beginning. */
static void set_end(struct mp_fitted_line *line, const struct points *points, double known) {
    for (size_t i = 0; i < points->count; i++)
        line->largest = points->x[i] > line->largest ? points->x[i] : line->largest;
    if (line->largest <= 0) {
        line->slope = line->beyond = known;
        return;
    }
    double mean = line->fixed / line->largest + line->slope;
    double most = known > 0 ? known : mean;
    line->beyond = line->slope < most ? line->slope : most;
}

static void fit_all(const struct mp_demands *own, const struct mp_what_if_measured *measured,
                    const struct mp_setting *setting, struct points *points,
                    struct mp_other_rates *rates) {
    struct mp_fitted_line *const lines[FITTED] = {rates->expert, rates->dispatch, rates->combine,
                                                  rates->copies};
    double byte_seconds = 1 / setting->bandwidth, moved = moved_bytes(own);
    size_t cells = mp_demands_count(own);
    for (size_t i = 0; i < cells; i++) {
        const struct mp_demand *demand = &own->demand[i];
        rates->rows_counted |= demand->rows > 0 && shows_exchange(demand, rates->hides);
        rates->copies_counted |= demand->bytes[0] + demand->bytes[1] > 0;
    }
    for (int kind = 0; kind < FITTED; kind++)
        for (int way = 0; way < 2; way++) {
            points->count = 0;
            for (size_t i = 0; i < cells; i++)
                add_cell(&own->demand[i], &measured->layer[i], (enum fitted)kind, way, rates->hides,
                         points);
            struct mp_fitted_line *line = &lines[kind][way];
            *line = fit_line(points);
            set_end(line, points,
                    kind == EXPERT   ? 0
                    : kind == COPIES ? byte_seconds
                                     : (double)setting->route_bytes * byte_seconds);
        }
    rates->move = moved > 0 ? measured->moving / moved : byte_seconds;
}

int mp_what_if_fit(const struct mp_demands *own, const struct mp_what_if_measured *measured,
                   const struct mp_setting *setting, struct mp_other_rates *rates,
                   struct mp_error *error) {
    size_t count = mp_demands_count(own);
    double *memory = calloc(3 * count, sizeof *memory);
    if (!memory)
        return mp_fail(error, MP_ENOMEM, "no memory to fit %zu times", count);
    struct points points = {.x = memory, .y = memory + count, .distance = memory + 2 * count};
    fit_all(own, measured, setting, &points, rates);
    free(memory);
    return MP_OK;
}
