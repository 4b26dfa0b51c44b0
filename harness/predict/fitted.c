#include "harness/predict/fitted.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "harness/predict/least_squares.h"
#include "reference/base/median.h"

static const double bend[] = {16, 64, 256, 1024}; /* rows */

/* Units of probes: 1 ns of experts is little beside 1 ms of rows. */
static const double EXPERT_UNIT = 1e-9, ROW_UNIT = 1e-3, NO_TIME = 1e-18;
static const double APART = 0.05;  /* share of all rows that are beyond a bend */
static const double TOLD = 0.01;   /* share of exchanges that rows are at least, to be told */
static const double SEEN = 1 / 4.; /* of the rows that could pass a link, mean */
enum { ROUNDS = 8 };               /* in which experts and slow ranks are told apart */

/* Of an iteration, layer and rank: a micro-batch. */
struct mp_fitted_cell {
    double there[2];             /* s of the exchanges that bring rows to their experts */
    double x[MP_EXPERT_COLUMNS]; /* a probe fills two: forward and backward */
    double rows[MP_LINKS];       /* that hold up the forward exchange, by probe */
    double waits[MP_LINKS];      /* its steps that have some */
    double spans;                /* of the forward exchange, in all probes */
};

static double larger(double a, double b) {
    return a > b ? a : b;
}

/* ---- what the run took ---- */

static struct mp_fitted_cell *cell_of(const struct mp_fitted *fitted, int iteration, int layer,
                                      int rank) {
    size_t row = (size_t)iteration * (size_t)fitted->layers + (size_t)layer;
    return &fitted->cell[row * (size_t)fitted->ranks + (size_t)rank];
}

static size_t cells_of(const struct mp_fitted *fitted) {
    return (size_t)fitted->iterations * (size_t)fitted->layers * (size_t)fitted->ranks;
}

static double *own_of(const struct mp_fitted *fitted, int iteration, int phase, int direction,
                      int layer) {
    size_t row = (size_t)iteration * (size_t)(fitted->layers + 1) + (size_t)(layer + 1);
    size_t slot = (row * MP_PHASES + (size_t)phase) * 2 + (direction == MP_BACKWARD);
    return fitted->own + slot * (size_t)fitted->ranks;
}

const double *mp_fitted_own(const struct mp_fitted *fitted, int iteration, enum mp_phase phase,
                            int direction, int layer) {
    return fitted->probe >= 0 ? fitted->none
                              : own_of(fitted, iteration, (int)phase, direction, layer);
}

/* Work that belongs nowhere goes to the embedding, which begins the iteration. */
static void take_own(struct mp_fitted *fitted, const struct mp_what_if_span *span) {
    const struct mp_recorded_span *recorded = span->recorded;
    int direction = recorded->direction, layer = recorded->layer;
    int phase = recorded->phase == MP_PHASE_WEIGHTS ? MP_PHASE_EXPERT : recorded->phase;
    bool is_layer = phase == MP_PHASE_ATTENTION || phase == MP_PHASE_GATE ||
                    phase == MP_PHASE_PLAN || phase == MP_PHASE_DISPATCH ||
                    phase == MP_PHASE_SHARED || phase == MP_PHASE_EXPERT ||
                    phase == MP_PHASE_COMBINE;
    if (is_layer ? layer < 0 || layer >= fitted->layers
                 : phase != MP_PHASE_HEAD && phase != MP_PHASE_EMBED) {
        phase = MP_PHASE_EMBED;
        direction = MP_FORWARD;
    }
    own_of(fitted, span->iteration, phase, direction, is_layer ? layer : -1)[span->rank] +=
        span->own / fitted->micro_batches;
}

static bool is_there(int phase, int direction) {
    return phase == (direction == MP_BACKWARD ? MP_PHASE_COMBINE : MP_PHASE_DISPATCH);
}

static void take_span(void *context, const struct mp_what_if_span *span) {
    struct mp_fitted *fitted = context;
    const struct mp_recorded_span *recorded = span->recorded;
    double part = 1. / ((double)fitted->ranks * fitted->iterations);
    switch (recorded->phase) {
    case MP_PHASE_FETCH:
    case MP_PHASE_REDUCE:
    case MP_PHASE_MOVE:
        fitted->stalled += part * (span->own + span->transfer);
        return;
    case MP_PHASE_ALLREDUCE:
        fitted->summing += part * (span->own + span->transfer);
        return;
    case MP_PHASE_WAIT:
        fitted->agreeing += part * (span->own + span->transfer);
        return;
    case MP_PHASE_OPTIMIZER:
        fitted->updating += part * span->own;
        return;
    default:
        take_own(fitted, span);
    }
    if (is_there(recorded->phase, recorded->direction) && recorded->layer >= 0 &&
        recorded->layer < fitted->layers)
        cell_of(fitted, span->iteration, recorded->layer, span->rank)
            ->there[recorded->direction == MP_BACKWARD] += span->transfer / fitted->micro_batches;
}

/* ---- life ---- */

int mp_fitted_create(const struct mp_what_if *what_if, const struct mp_recorded *recorded,
                     const struct mp_setting *setting, int micro_batches, bool hides,
                     struct mp_fitted **made, struct mp_error *error) {
    MP_TRY(MP_NEW(*made, 1, error));
    struct mp_fitted *fitted = *made;
    int near = recorded->ranks_per_node, ranks = recorded->ranks;
    *fitted = (struct mp_fitted){.setting = setting,
                                 .iterations = recorded->iterations,
                                 .layers = setting->layers,
                                 .ranks = ranks,
                                 .ranks_per_node = near > 0 && ranks % near == 0 ? near : ranks,
                                 .micro_batches = micro_batches,
                                 .hides = hides,
                                 .far = MP_LINK_FAR,
                                 .copies = 1,
                                 .sums = 1,
                                 .update = 1};
    size_t cells = cells_of(fitted), width = (size_t)ranks, layers = (size_t)fitted->layers + 1;
    MP_TAKE(&fitted->memory, fitted->own,
            (size_t)fitted->iterations * layers * MP_PHASES * 2 * width);
    MP_TAKE(&fitted->memory, fitted->none, width);
    MP_TAKE(&fitted->memory, fitted->speed, 2 * width);
    MP_TAKE(&fitted->memory, fitted->cell, cells);
    if (fitted->memory.lacking) {
        int code = mp_arena_check(&fitted->memory, error);
        mp_fitted_destroy(fitted);
        *made = NULL;
        return code;
    }
    mp_what_if_each(what_if, take_span, fitted);
    return MP_OK;
}

void mp_fitted_destroy(struct mp_fitted *fitted) {
    if (!fitted)
        return;
    mp_arena_release(&fitted->memory);
    free(fitted);
}

/* ---- probes ---- */

double mp_fitted_expert(const struct mp_fitted_experts *experts, double rows) {
    double seconds = experts->weight[MP_EXPERT_EACH] + experts->weight[MP_EXPERT_ROW] * rows;
    for (int b = 0; MP_EXPERT_BEND + b < MP_EXPERT_EACH; b++)
        seconds += experts->weight[MP_EXPERT_BEND + b] * (rows < bend[b] ? rows : bend[b]);
    return seconds;
}

void mp_fitted_probe(struct mp_fitted *fitted, int probe) {
    fitted->probe = probe;
    for (int way = 0; way < 2; way++) {
        fitted->experts[way] = (struct mp_fitted_experts){{0}};
        fitted->experts[way].weight[2 * probe + way] = EXPERT_UNIT;
    }
    for (int r = 0; r < 2 * fitted->ranks; r++)
        fitted->speed[r] = 1;
    for (int i = 0; i < MP_LINKS; i++)
        fitted->link[i] = (struct mp_fitted_link){0, i == probe ? ROW_UNIT : NO_TIME};
    fitted->far = probe == MP_LINK_SHARED ? MP_LINK_SHARED : MP_LINK_FAR;
}

void mp_fitted_take(struct mp_fitted *fitted, int iteration, int rank, const struct mp_span *span) {
    int way = span->direction == MP_BACKWARD;
    double part = 1. / fitted->micro_batches;
    if (span->layer < 0)
        return;
    struct mp_fitted_cell *cell = cell_of(fitted, iteration, span->layer, rank);
    if (mp_phase_of_experts(span->phase)) {
        cell->x[2 * fitted->probe + way] += part * (double)(span->end_ns - span->start_ns);
    } else if (span->phase == MP_PHASE_DISPATCH && !way) {
        cell->rows[fitted->probe] += part * 1e-9 * (double)span->wait_ns / ROW_UNIT;
        cell->waits[fitted->probe] += span->wait_ns > 0 ? part : 0;
        cell->spans += part;
    }
}

/* ---- experts ---- */

static void add_point(struct mp_fit_points *points, const double x[], double y) {
    memcpy(points->x + points->count * (size_t)points->columns, x,
           (size_t)points->columns * sizeof *x);
    points->y[points->count++] = y;
}

static double expert_seconds(const struct mp_fitted *fitted, size_t cell, int way) {
    size_t row = cell / (size_t)fitted->ranks, layers = (size_t)fitted->layers;
    return own_of(fitted, (int)(row / layers), MP_PHASE_EXPERT, way ? MP_BACKWARD : MP_FORWARD,
                  (int)(row % layers))[cell % (size_t)fitted->ranks];
}

/* How much longer each rank takes than all do, in the middle of its cells; on average no longer. */
static void find_speed(struct mp_fitted *fitted, int way, double value[]) {
    const double *weight = fitted->experts[way].weight;
    double *speed = fitted->speed + way * fitted->ranks, sum = 0;
    for (int r = 0; r < fitted->ranks; r++) {
        size_t count = 0;
        for (size_t i = (size_t)r; i < cells_of(fitted); i += (size_t)fitted->ranks) {
            double seconds = 0;
            for (int c = 0; c < MP_EXPERT_COLUMNS; c++)
                seconds += weight[c] * fitted->cell[i].x[c];
            if (seconds > 0)
                value[count++] = expert_seconds(fitted, i, way) / seconds;
        }
        speed[r] = count ? mp_median_of(value, (int64_t)count) : 1;
        sum += speed[r] / fitted->ranks;
    }
    for (int r = 0; r < fitted->ranks; r++)
        speed[r] = sum > 0 && speed[r] > 0 ? speed[r] / sum : 1;
}

/* With ranks as slow as they are known to be.  Where a run can't tell experts from their rows, they
 * take what it measured of one. */
static int fit_expert(struct mp_fitted *fitted, int way, struct mp_fit_points *points,
                      struct mp_error *error) {
    double *weight = fitted->experts[way].weight;
    memset(weight, 0, sizeof fitted->experts[way].weight);
    /* Backward has twice as many products. */
    weight[MP_EXPERT_EACH] = (way ? 2 : 1) * fitted->setting->seconds_per_expert;
    points->columns = MP_EXPERT_COLUMNS;
    points->count = 0;
    for (size_t i = 0; i < cells_of(fitted); i++) {
        double speed = fitted->speed[(size_t)(way * fitted->ranks) + i % (size_t)fitted->ranks];
        if (fitted->cell[i].x[MP_EXPERT_ROW] > 0)
            add_point(points, fitted->cell[i].x, expert_seconds(fitted, i, way) / speed);
    }
    return mp_fit(points, weight, error);
}

/* Bends count that some rows are beyond. */
static int fit_experts(struct mp_fitted *fitted, struct mp_fit_points *points,
                       struct mp_error *error) {
    double sum[MP_EXPERT_COLUMNS] = {0};
    for (size_t i = 0; i < cells_of(fitted); i++)
        for (int c = 0; c < MP_EXPERT_COLUMNS; c++)
            sum[c] += fitted->cell[i].x[c];
    for (size_t i = 0; i < cells_of(fitted); i++)
        for (int c = MP_EXPERT_BEND; c < MP_EXPERT_EACH; c++)
            if (sum[MP_EXPERT_ROW] - sum[c] < APART * sum[MP_EXPERT_ROW])
                fitted->cell[i].x[c] = 0;
    for (int way = 0; way < 2; way++)
        for (int round = 0; round < ROUNDS; round++) {
            MP_TRY(fit_expert(fitted, way, points, error));
            find_speed(fitted, way, points->y);
        }
    return MP_OK;
}

/* ---- links ---- */

/* An exchange as a whole: the last rank is done when the busiest gate is. */
struct busiest {
    double rows[MP_LINKS], waits[MP_LINKS], seconds;
};

/* All exchanges that are seen: not in steps that pass beside experts. */
static size_t list_exchanges(const struct mp_fitted *fitted, struct busiest list[]) {
    size_t count = 0;
    for (size_t i = 0; i < cells_of(fitted); i += (size_t)fitted->ranks)
        for (int way = 0; way < 2; way++) {
            const struct mp_fitted_cell *cell = &fitted->cell[i];
            struct busiest most = {{0}, {0}, 0};
            if (fitted->hides && cell->spans > MP_FITTED_PROBES)
                continue;
            for (int r = 0; r < fitted->ranks; r++, cell++) {
                for (int l = 0; l < MP_LINKS; l++) {
                    most.rows[l] = larger(most.rows[l], cell->rows[l]);
                    most.waits[l] = larger(most.waits[l], cell->waits[l]);
                }
                most.seconds = larger(most.seconds, cell->there[way]);
            }
            list[count++] = most;
        }
    return count;
}

struct links {
    struct mp_fitted *fitted;
    struct busiest *list;
    size_t count;
    struct mp_fit_points points;
    double *value;        /* [count] */
    double usual;         /* s of an exchange, if rows can't tell */
    double off[MP_LINKS]; /* s from the link to the exchange in the middle */
};

/* Of points with so few rows that they can't tell what many take: exchanges alone. */
static double middle_exchange(struct links *links, double row) {
    const struct mp_fit_points *points = &links->points;
    for (size_t i = 0; i < points->count; i++) {
        const double *x = points->x + 2 * i;
        links->value[i] = larger(points->y[i] - row * x[0], 0) / x[1];
    }
    return points->count ? mp_median_of(links->value, (int64_t)points->count) : links->usual;
}

/* Of rows that make no difference, however many there are: they take what the run's bandwidth says,
 * and no longer than the exchanges that they were in. */
static struct mp_fitted_link link_of_all_alike(struct links *links, double row) {
    const struct mp_fit_points *points = &links->points;
    size_t count = 0;
    for (size_t i = 0; i < points->count; i++)
        if (points->x[2 * i] > 0)
            links->value[count++] = points->y[i] / points->x[2 * i];
    const double most = count ? mp_median_of(links->value, (int64_t)count) : INFINITY;
    return (struct mp_fitted_link){middle_exchange(links, most < row ? most : row),
                                   most < row ? most : 0};
}

/* Sets a link; its rows take no time if they are not seen. */
static int fit_link(struct links *links, int number, struct mp_error *error) {
    const struct mp_setting *setting = links->fitted->setting;
    const double row = (double)setting->route_bytes / setting->bandwidth;
    double weight[] = {0, links->usual}, sum = 0, seconds = 0;
    double full = (double)setting->tokens_per_rank * setting->top_k *
                  (number == MP_LINK_SHARED ? links->fitted->ranks_per_node : 1);
    struct mp_fit_points *points = &links->points;
    points->columns = 2;
    points->count = 0;
    for (size_t i = 0; i < links->count; i++) {
        const struct busiest *most = &links->list[i];
        sum += most->rows[number];
        seconds += most->seconds;
        if (most->waits[number] > 0)
            add_point(points, (const double[]){most->rows[number], most->waits[number]},
                      most->seconds);
    }
    if (sum <= SEEN * full * (double)links->count) {
        links->fitted->link[number] = (struct mp_fitted_link){middle_exchange(links, row), 0};
        return MP_OK;
    }
    MP_TRY(mp_fit(points, weight, error));
    for (size_t i = 0; i < points->count; i++)
        links->value[i] = fabs(points->y[i] - mp_fit_at(points, i, weight));
    links->off[number] = mp_median_of(links->value, (int64_t)points->count);
    links->fitted->link[number] = weight[0] * sum > TOLD * seconds
                                      ? (struct mp_fitted_link){weight[1], weight[0]}
                                      : link_of_all_alike(links, row);
    return MP_OK;
}

/* Agreeing on the loss takes a ring of all nodes, and one in each, there and back: nothing but
 * messages (network.h).  Those of one link, if others take so much. */
static double message_of(const struct mp_fitted *fitted, int messages, double others) {
    return messages > 0 ? larger(fitted->agreeing / 2 - others, 0) / messages : 0;
}

static int fit_links(struct links *links, struct mp_error *error) {
    struct mp_fitted *fitted = links->fitted;
    int inside = fitted->ranks_per_node - 1, outside = fitted->ranks / fitted->ranks_per_node - 1;
    links->usual = message_of(fitted, inside + outside, 0);
    links->count = list_exchanges(fitted, links->list);
    for (int l = 0; l < MP_LINKS; l++)
        MP_TRY(fit_link(links, l, error));
    fitted->far =
        links->off[MP_LINK_SHARED] <= links->off[MP_LINK_FAR] ? MP_LINK_SHARED : MP_LINK_FAR;
    struct mp_fitted_link *near = &fitted->link[MP_LINK_NODE], *far = &fitted->link[fitted->far];
    if (far->row > 0) {
        near->exchange = message_of(fitted, inside, outside * far->exchange);
        near->row = far->row; /* what leaves nodes hides it */
    }
    return MP_OK;
}

/* Links that were not seen have the bandwidth that the run measured; and, where nothing passes
 * beside work, copies have it, too. */
static void fill_links(struct mp_fitted *fitted) {
    double row = (double)fitted->setting->route_bytes / fitted->setting->bandwidth;
    fitted->rows_counted = mp_fitted_farthest(fitted)->row > 0;
    for (int l = 0; l < MP_LINKS; l++)
        if (!(fitted->link[l].row > 0))
            fitted->link[l].row = row;
    fitted->copies = fitted->hides ? 1 : mp_fitted_farthest(fitted)->row / row;
}

int mp_fitted_fit(struct mp_fitted *fitted, struct mp_error *error) {
    size_t count = 2 * cells_of(fitted);
    struct links links = {.fitted = fitted};
    MP_AUTO(arena) struct mp_arena memory = {0};
    MP_TAKE_EACH(&memory, count, links.list, links.points.y, links.value);
    MP_TAKE(&memory, links.points.x, count * MP_EXPERT_COLUMNS);
    MP_TRY(mp_arena_check(&memory, error));
    MP_TRY(fit_experts(fitted, &links.points, error));
    MP_TRY(fit_links(&links, error));
    fill_links(fitted);
    fitted->probe = -1;
    return MP_OK;
}

/* ---- links as a cluster ---- */

const struct mp_fitted_link *mp_fitted_farthest(const struct mp_fitted *fitted) {
    return &fitted->link[fitted->ranks > fitted->ranks_per_node ? fitted->far : MP_LINK_NODE];
}

double mp_fitted_byte(const struct mp_fitted *fitted) {
    return mp_fitted_farthest(fitted)->row / (double)fitted->setting->route_bytes / fitted->copies;
}

static struct mp_quantity quantity(double value) {
    return (struct mp_quantity){.value = value, .origin = "fitted to a run"};
}

/* Gates of ranks, or one that those of a node share. */
static void add_level(const struct mp_fitted *fitted, const char *name, int link, int span,
                      struct mp_cluster *cluster) {
    double bytes = (double)fitted->setting->route_bytes * fitted->copies;
    bool fixed = link == MP_LINK_FAR;
    cluster->level[cluster->levels++] = (struct mp_cluster_level){
        .name = name,
        .span = span,
        .bandwidth = quantity(bytes / fitted->link[link].row),
        .latency = quantity(fitted->link[link].exchange),
        .ports = quantity(fixed ? fitted->ranks_per_node : 1),
        .sharing = {.choice = fixed ? MP_SHARING_FIXED : MP_SHARING_POOLED}};
}

void mp_fitted_cluster(const struct mp_fitted *fitted, struct mp_cluster *cluster) {
    int nodes = fitted->ranks / fitted->ranks_per_node;
    bool hides = fitted->hides || fitted->probe >= 0;
    *cluster = (struct mp_cluster){.nodes = quantity(nodes),
                                   .ranks_per_node = quantity(fitted->ranks_per_node),
                                   .memory_bandwidth = quantity(INFINITY),
                                   .overlap = quantity(hides ? 1 : 0)};
    cluster->level[cluster->levels++] = (struct mp_cluster_level){
        .name = "self", .span = 1, .bandwidth = quantity(INFINITY), .ports = quantity(1)};
    if (fitted->ranks_per_node > 1)
        add_level(fitted, "node", MP_LINK_NODE, fitted->ranks_per_node, cluster);
    if (nodes > 1)
        add_level(fitted, "cluster", fitted->far, 0, cluster);
}
