/* Another system on a recorded run: see other_system.h. */
#include "harness/predict/other_system.h"

#include <sqlite3.h>
#include <stdlib.h>
#include <string.h>

#include "harness/predict/job.h"
#include "harness/workload/run_trace.h"

/* What a plan asks of a rank in a layer. */
struct demand {
    double routes;   /* computed */
    double rows;     /* sent or received, whichever are more */
    double bytes[2]; /* of copies: forward, and backward with their gradients */
    double early;    /* of forward's: asked for before the gate */
};

struct mp_other_system {
    struct mp_what_if *what_if;
    const struct mp_recorded *recorded;
    struct mp_store *store;
    const char *database;
    const struct mp_systems *systems;
    struct mp_predict_job job;
    struct mp_setting setting; /* but for the job's system */
    int layers;
    struct demand *demand;             /* [iterations][layers][ranks] of the last plan */
    struct demand *own;                /* the same, of the run's own system */
    double *moved;                     /* [iterations] bytes of a rank after the step */
    struct mp_what_if_layer *measured; /* [iterations][layers][ranks] */
    struct mp_what_if_layer *seconds;  /* the same, of the last plan */
    double *attention;                 /* [iterations][layers][ranks][directions] s */
    double *after_step;                /* [iterations] */
    bool hides;                        /* what travels does so beside the attention of its layer */
    double moving;                     /* s, all ranks and iterations */
    struct mp_other_rates rates;
};

static size_t cells(const struct mp_other_system *other) {
    return (size_t)other->recorded->iterations * (size_t)other->layers *
           (size_t)other->recorded->ranks;
}

/* ---- planning ---- */

/* A system at work. */
struct planning {
    struct mp_other_system *other;
    const struct mp_system *system;
    void *self;
    struct mp_placement *home, *next; /* [layers] */
    struct mp_load *load;             /* [layers] */
    struct mp_plan plan;
    struct mp_transfers moves;
    int64_t *computed, *sent, *received; /* [ranks] */
    double *in, *out;                    /* [ranks] bytes */
    bool sliced;
};

static int create_planning(struct planning *planning, const struct mp_job_file *file,
                           struct mp_error *error) {
    struct mp_other_system *other = planning->other;
    const struct mp_setting *setting = &other->setting;
    size_t layers = (size_t)other->layers, ranks = (size_t)setting->topology.ranks;
    planning->system = file->system;
    planning->home = calloc(layers, sizeof *planning->home);
    planning->next = calloc(layers, sizeof *planning->next);
    planning->load = calloc(layers, sizeof *planning->load);
    planning->computed = calloc(3 * ranks, sizeof *planning->computed);
    planning->in = calloc(2 * ranks, sizeof *planning->in);
    if (!planning->home || !planning->next || !planning->load || !planning->computed ||
        !planning->in)
        return mp_fail(error, MP_ENOMEM, "no memory to plan run %lld again",
                       (long long)other->recorded->run_id);
    planning->sent = planning->computed + ranks;
    planning->received = planning->sent + ranks;
    planning->out = planning->in + ranks;
    int code = file->system->create(setting, file->system_options, &planning->self, error);
    for (size_t l = 0; l < layers && !code; l++) {
        code = mp_load_create((int)ranks, setting->experts, &planning->load[l], error);
        if (!code)
            code = mp_placement_create((int)ranks, setting->experts, &planning->home[l], error);
        if (!code)
            code = mp_placement_create((int)ranks, setting->experts, &planning->next[l], error);
    }
    if (!code)
        code = mp_plan_create(&setting->topology, setting->experts, setting->expert_bytes,
                              &planning->plan, error);
    if (!code)
        code = mp_system_initial_homes(file->system, planning->self, other->layers, planning->home,
                                       error);
    if (!code && file->system->optimizer)
        planning->sliced = mp_optimizer_sliced(file->system->optimizer(planning->self));
    return code;
}

static void destroy_planning(struct planning *planning) {
    for (int l = 0; l < planning->other->layers; l++) {
        if (planning->load)
            mp_load_destroy(&planning->load[l]);
        if (planning->home)
            mp_placement_destroy(&planning->home[l]);
        if (planning->next)
            mp_placement_destroy(&planning->next[l]);
    }
    mp_plan_destroy(&planning->plan);
    mp_transfers_destroy(&planning->moves);
    if (planning->self)
        planning->system->destroy(planning->self);
    void *const memory[] = {planning->home, planning->next, planning->load, planning->computed,
                            planning->in};
    for (size_t i = 0; i < sizeof memory / sizeof *memory; i++)
        free(memory[i]);
}

static void clear_bytes(struct planning *planning) {
    memset(planning->in, 0, 2 * (size_t)planning->plan.topology.ranks * sizeof *planning->in);
}

static void add_bytes(struct planning *planning, const struct mp_transfers *list, double times) {
    for (int i = 0; i < list->count; i++) {
        planning->out[list->item[i].from] += times * (double)list->item[i].bytes;
        planning->in[list->item[i].to] += times * (double)list->item[i].bytes;
    }
}

static void add_stage(struct planning *planning, const struct mp_transfers *list,
                      enum mp_stage stage) {
    for (int i = 0; i < list->count; i++)
        if (list->item[i].stage == stage) {
            planning->out[list->item[i].from] += (double)list->item[i].bytes;
            planning->in[list->item[i].to] += (double)list->item[i].bytes;
        }
}

static double bytes_of(const struct planning *planning, int rank) {
    return planning->in[rank] > planning->out[rank] ? planning->in[rank] : planning->out[rank];
}

/* Of one layer; `demand` is [ranks]. */
static void note_demand(struct planning *planning, const struct mp_load *load,
                        struct demand demand[], double *moved) {
    const struct mp_plan *plan = &planning->plan;
    int ranks = plan->topology.ranks;
    struct mp_plan_facts facts;
    mp_plan_facts(plan, load, &facts);
    mp_plan_rank_routes(plan, planning->computed, planning->sent, planning->received);
    double padded = (double)facts.rows_padded / ranks;
    for (int r = 0; r < ranks; r++) {
        int64_t rows =
            planning->sent[r] > planning->received[r] ? planning->sent[r] : planning->received[r];
        demand[r] = (struct demand){.routes = (double)planning->computed[r] + padded,
                                    .rows = (double)rows + padded};
    }
    if (planning->sliced) { /* every rank's part is as large */
        for (int r = 0; r < ranks; r++) {
            demand[r].bytes[0] =
                (double)(facts.bytes[MP_STAGE_BEFORE_GATE] + facts.bytes[MP_STAGE_AFTER_GATE]) /
                ranks;
            demand[r].early = (double)facts.bytes[MP_STAGE_BEFORE_GATE] / ranks;
            demand[r].bytes[1] = (double)(facts.bytes[MP_STAGE_BACKWARD_PREFETCH] +
                                          facts.bytes[MP_STAGE_BACKWARD_REDUCE]) /
                                 ranks;
        }
        *moved += (double)facts.bytes[MP_STAGE_AFTER_STEP] / ranks;
        return;
    }
    clear_bytes(planning);
    add_stage(planning, &plan->fetch, MP_STAGE_BEFORE_GATE);
    for (int r = 0; r < ranks; r++)
        demand[r].early = plan->free_transfers ? 0 : bytes_of(planning, r);
    add_stage(planning, &plan->fetch, MP_STAGE_AFTER_GATE);
    for (int r = 0; r < ranks; r++)
        demand[r].bytes[0] = plan->free_transfers ? 0 : bytes_of(planning, r);
    clear_bytes(planning);
    add_bytes(planning, &plan->fetch, plan->rematerialise ? 1 : 0);
    add_bytes(planning, &plan->reduce, 1);
    add_bytes(planning, &plan->share, 1);
    for (int r = 0; r < ranks; r++)
        demand[r].bytes[1] = plan->free_transfers ? 0 : bytes_of(planning, r);
}

/* Homes of the next iteration, and the most that a rank sends or gets of them. */
static int plan_after_step(struct planning *planning, int64_t iteration, double *moved,
                           struct mp_error *error) {
    const struct mp_system *system = planning->system;
    struct mp_rehome change = {.next = planning->next};
    int layers = planning->other->layers;
    if (!system->after_step)
        return MP_OK;
    for (int l = 0; l < layers; l++)
        mp_placement_copy(&planning->next[l], &planning->home[l]);
    int code = system->after_step(planning->self, iteration, planning->load, planning->home,
                                  &change, error);
    if (code || !change.changed)
        return code;
    planning->moves.count = 0;
    int64_t bytes = planning->other->setting.expert_bytes * (change.leave_state ? 1 : 3);
    if (!planning->sliced)
        code = mp_rehome_transfers(planning->home, planning->next, layers, &planning->plan.topology,
                                   bytes, &planning->moves, error);
    clear_bytes(planning);
    add_bytes(planning, &planning->moves, 1);
    double most = 0;
    for (int r = 0; r < planning->plan.topology.ranks; r++)
        most = bytes_of(planning, r) > most ? bytes_of(planning, r) : most;
    *moved += most;
    for (int l = 0; l < layers; l++)
        mp_placement_copy(&planning->home[l], &planning->next[l]);
    return code;
}

/* The blocks of one iteration are planned as they come; `index` of it among the recorded ones, or
 * -1. */
static int plan_layer(struct planning *planning, const struct mp_trace_block *block, int index,
                      struct mp_error *error) {
    struct mp_other_system *other = planning->other;
    size_t ranks = (size_t)other->recorded->ranks;
    double unused_moved = 0;
    int l = block->layer;
    int code = mp_system_begin_plan(planning->system, planning->self, block->iteration, l,
                                    &planning->home[l], &planning->plan, error);
    if (!code)
        code = mp_system_end_plan(planning->system, planning->self, &block->load, &planning->plan,
                                  error);
    if (code)
        return code;
    mp_load_copy(&planning->load[l], &block->load);
    if (index >= 0) {
        struct demand *demand =
            &other->demand[((size_t)index * (size_t)other->layers + (size_t)l) * ranks];
        note_demand(planning, &block->load, demand, &other->moved[index]);
    }
    if (l == other->layers - 1)
        code = plan_after_step(planning, block->iteration,
                               index >= 0 ? &other->moved[index] : &unused_moved, error);
    return code;
}

static int plan_blocks(struct planning *planning, struct mp_trace_stream *stream,
                       struct mp_error *error) {
    const struct mp_recorded *run = planning->other->recorded;
    const struct mp_trace_block *block;
    int at = 0, met = 0, code;
    while (!(code = mp_trace_next(stream, &block, error)) && block) {
        while (at < run->iterations && run->number[at] < block->iteration)
            at++;
        bool is_steady = at < run->iterations && run->number[at] == block->iteration;
        code = plan_layer(planning, block, is_steady ? at : -1, error);
        if (code)
            return code;
        met += is_steady && block->layer == 0;
    }
    if (!code && met != run->iterations)
        code = mp_fail(error, MP_ENOTFOUND, "run %lld of %s lacks the loads of %d iterations",
                       (long long)run->run_id, planning->other->database, run->iterations - met);
    return code;
}

static int open_loads(const struct mp_other_system *other, struct mp_trace_stream **stream,
                      struct mp_error *error) {
    int code =
        mp_trace_open_run(other->store, other->database, other->recorded->run_id, stream, error);
    if (!code)
        mp_trace_allow_ragged(*stream); /* whatever was recorded */
    return code;
}

/* Fills demand and moved. */
static int plan_run(struct mp_other_system *other, const struct mp_job_file *file,
                    struct mp_error *error) {
    struct planning planning = {.other = other};
    struct mp_trace_stream *stream = NULL;
    memset(other->moved, 0, (size_t)other->recorded->iterations * sizeof *other->moved);
    int code = open_loads(other, &stream, error);
    if (!code)
        code = create_planning(&planning, file, error);
    if (!code)
        code = plan_blocks(&planning, stream, error);
    destroy_planning(&planning);
    mp_trace_stream_destroy(stream);
    return code;
}

/* ---- rates ---- */

static double at_line(const struct mp_fitted_line *line, double x) {
    double inside = x < line->largest ? x : line->largest;
    return line->fixed + line->slope * inside + line->beyond * (x - inside);
}

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
    struct mp_fitted_line line = fit_near(points, NULL, -1);
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

static void take_span(void *context, const struct mp_what_if_span *span) {
    struct mp_other_system *other = context;
    const struct mp_recorded_span *recorded = span->recorded;
    int phase = recorded->phase, way = recorded->direction == MP_BACKWARD;
    if (phase == MP_PHASE_MOVE)
        other->moving += recorded->end - recorded->start;
    if (recorded->layer < 0 || recorded->layer >= other->layers)
        return;
    size_t cell = ((size_t)span->iteration * (size_t)other->layers + (size_t)recorded->layer) *
                      (size_t)other->recorded->ranks +
                  (size_t)span->rank;
    struct mp_what_if_layer *layer = &other->measured[cell];
    if (phase == MP_PHASE_EXPERT)
        layer->expert[way] += span->own;
    else if (phase == MP_PHASE_DISPATCH)
        layer->dispatch[way] += span->transfer;
    else if (phase == MP_PHASE_COMBINE)
        layer->combine[way] += span->transfer;
    else if (phase == MP_PHASE_FETCH || phase == MP_PHASE_REDUCE)
        layer->stall[way] += recorded->end - recorded->start;
    else if (phase == MP_PHASE_ATTENTION)
        other->attention[2 * cell + (size_t)way] += span->own;
}

/* One kind of what was measured over what was planned; rows tell whether any crossed a border. */
enum fitted { EXPERT, DISPATCH, COMBINE, COPIES, FITTED };

static void collect_points(const struct mp_other_system *other, enum fitted kind, int way,
                           struct points *points) {
    points->count = 0;
    for (size_t i = 0; i < cells(other); i++) {
        const struct demand *demand = &other->demand[i];
        const struct mp_what_if_layer *measured = &other->measured[i];
        if (kind == DISPATCH || kind == COMBINE)
            add_point(points, demand->rows,
                      kind == DISPATCH ? measured->dispatch[way] : measured->combine[way]);
        else if (kind == EXPERT && demand->routes > 0)
            add_point(points, demand->routes, measured->expert[way]);
        else if (kind == COPIES && demand->bytes[way] > 0)
            add_point(points, demand->bytes[way], measured->stall[way]);
    }
}

static double moved_bytes(const struct mp_other_system *other) {
    double bytes = 0;
    for (int i = 0; i < other->recorded->iterations; i++)
        bytes += other->moved[i] * other->recorded->ranks;
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

static void fit_all(struct mp_other_system *other, struct points *points) {
    struct mp_other_rates *rates = &other->rates;
    struct mp_fitted_line *const lines[FITTED] = {rates->expert, rates->dispatch, rates->combine,
                                                  rates->copies};
    double byte_seconds = 1 / other->setting.bandwidth, moved = moved_bytes(other);
    for (size_t i = 0; i < cells(other); i++) {
        rates->rows_counted |= other->demand[i].rows > 0;
        rates->copies_counted |= other->demand[i].bytes[0] + other->demand[i].bytes[1] > 0;
    }
    for (int kind = 0; kind < FITTED; kind++)
        for (int way = 0; way < 2; way++) {
            collect_points(other, (enum fitted)kind, way, points);
            struct mp_fitted_line *line = &lines[kind][way];
            *line = fit_line(points);
            set_end(line, points,
                    kind == EXPERT   ? 0
                    : kind == COPIES ? byte_seconds
                                     : (double)other->setting.route_bytes * byte_seconds);
        }
    rates->move = moved > 0 ? other->moving / moved : byte_seconds;
}

/* From what the run's own system planned (demand) and what it took (measured). */
static int fit_rates(struct mp_other_system *other, struct mp_error *error) {
    size_t count = cells(other);
    double *memory = calloc(3 * count, sizeof *memory);
    if (!memory)
        return mp_fail(error, MP_ENOMEM, "no memory to fit %zu times", count);
    struct points points = {.x = memory, .y = memory + count, .distance = memory + 2 * count};
    fit_all(other, &points);
    free(memory);
    return MP_OK;
}

/* ---- creating ---- */

/* A number that the run recorded of itself; 0 if it did not. */
static double number_of(const struct mp_other_system *other, const char *name) {
    sqlite3_stmt *row = NULL;
    double value = 0;
    if (sqlite3_prepare_v2(mp_store_connection(other->store),
                           "SELECT value FROM v_number WHERE run_id = ?1 AND name = ?2 AND "
                           "iteration = -1",
                           -1, &row, NULL) == SQLITE_OK &&
        sqlite3_bind_int64(row, 1, other->recorded->run_id) == SQLITE_OK &&
        sqlite3_bind_text(row, 2, name, -1, SQLITE_STATIC) == SQLITE_OK &&
        sqlite3_step(row) == SQLITE_ROW)
        value = sqlite3_column_double(row, 0);
    sqlite3_finalize(row);
    return value;
}

static int read_job(struct mp_other_system *other, struct mp_error *error) {
    const struct mp_recorded *run = other->recorded;
    struct mp_yaml *document = NULL;
    char name[64];
    snprintf(name, sizeof name, "job of run %lld", (long long)run->run_id);
    if (!*run->job_text)
        return mp_fail(error, MP_ENOTFOUND,
                       "run %lld of %s has no job file, so no sizes to plan by",
                       (long long)run->run_id, other->database);
    int code = mp_predict_job_create(&other->job, error);
    if (!code)
        code = mp_yaml_parse(name, run->job_text, strlen(run->job_text), &document, error);
    if (!code)
        code = mp_predict_job_apply(&other->job, document, name, other->systems, error);
    mp_yaml_destroy(document);
    if (!code && !other->job.file.system)
        code = mp_fail(error, MP_ENOTFOUND, "%s names no system", name);
    other->job.file.job.inject[0] = '\0';   /* what was put in is part of the recording */
    other->job.file.job.ranks = run->ranks; /* those of a prediction are its cluster's */
    other->job.file.job.ranks_per_node = run->ranks_per_node;
    return code;
}

static int describe_setting(struct mp_other_system *other, struct mp_error *error) {
    const struct mp_job *job = &other->job.file.job;
    const struct mp_recorded *run = other->recorded;
    struct mp_trace_stream *stream;
    int code = open_loads(other, &stream, error);
    if (code)
        return code;
    const struct mp_trace_shape *shape = &mp_trace_stream_info(stream)->shape;
    double bandwidth = number_of(other, "bandwidth");
    double route = number_of(other, "seconds-per-route");
    double block = number_of(other, "non-moe-seconds");
    other->layers = shape->layers;
    other->setting = (struct mp_setting){
        .layers = shape->layers,
        .experts = shape->experts,
        .top_k = mp_job_top_k(job),
        .topology = {run->ranks,
                     run->ranks_per_node < run->ranks ? run->ranks_per_node : run->ranks},
        .tokens_per_rank = (int64_t)(job->batch / run->ranks) * job->sequence,
        .expert_bytes = 2 * (int64_t)sizeof(float) * job->width * job->expert_width,
        .route_bytes = (int64_t)sizeof(float) * job->width,
        .seed = (uint64_t)job->seed,
        .bandwidth = bandwidth > 0 ? bandwidth : 1e9,
        .seconds_per_route = route > 0 ? route : 1e-6,
        .seconds_per_expert = number_of(other, "seconds-per-expert"),
        .non_moe_seconds = block > 0 ? block : 1e-3,
    };
    mp_trace_stream_destroy(stream);
    if (other->layers != mp_what_if_layers(other->what_if))
        return mp_fail(error, MP_ENOTFOUND,
                       "run %lld of %s has experts in %d layers and loads in %d",
                       (long long)run->run_id, other->database, mp_what_if_layers(other->what_if),
                       other->layers);
    return MP_OK;
}

static int allocate(struct mp_other_system *other, struct mp_error *error) {
    size_t iterations = (size_t)other->recorded->iterations;
    other->demand = calloc(cells(other), sizeof *other->demand);
    other->own = calloc(cells(other), sizeof *other->own);
    other->measured = calloc(cells(other), sizeof *other->measured);
    other->seconds = calloc(cells(other), sizeof *other->seconds);
    other->attention = calloc(2 * cells(other), sizeof *other->attention);
    other->moved = calloc(iterations, sizeof *other->moved);
    other->after_step = calloc(iterations, sizeof *other->after_step);
    return other->demand && other->own && other->measured && other->seconds && other->attention &&
                   other->moved && other->after_step
               ? MP_OK
               : mp_fail(error, MP_ENOMEM, "no memory to plan run %lld again",
                         (long long)other->recorded->run_id);
}

int mp_other_system_create(struct mp_what_if *what_if, const struct mp_recorded *recorded,
                           struct mp_store *store, const char *database,
                           const struct mp_systems *systems, struct mp_other_system **made,
                           struct mp_error *error) {
    struct mp_other_system *other = calloc(1, sizeof *other);
    *made = NULL;
    if (!other)
        return mp_fail(error, MP_ENOMEM, "no memory to plan run %lld again",
                       (long long)recorded->run_id);
    *other = (struct mp_other_system){.what_if = what_if,
                                      .recorded = recorded,
                                      .store = store,
                                      .database = database,
                                      .systems = systems,
                                      .hides = !strcmp(recorded->executor, "predicted")};
    int code = read_job(other, error);
    if (!code && mp_what_if_layers(what_if) == 0)
        code = mp_fail(error, MP_ENOTFOUND, "run %lld of %s has no spans of experts",
                       (long long)recorded->run_id, database);
    if (!code)
        code = describe_setting(other, error);
    if (!code)
        code = allocate(other, error);
    if (!code)
        code = plan_run(other, &other->job.file, error);
    if (!code) {
        memcpy(other->own, other->demand, cells(other) * sizeof *other->own);
        mp_what_if_each(what_if, take_span, other);
        code = fit_rates(other, error);
    }
    if (code)
        mp_other_system_destroy(other);
    else
        *made = other;
    return code;
}

void mp_other_system_destroy(struct mp_other_system *other) {
    if (!other)
        return;
    mp_predict_job_destroy(&other->job);
    void *const memory[] = {other->demand,  other->own,       other->moved,     other->measured,
                            other->seconds, other->attention, other->after_step};
    for (size_t i = 0; i < sizeof memory / sizeof *memory; i++)
        free(memory[i]);
    free(other);
}

const struct mp_other_rates *mp_other_system_rates(const struct mp_other_system *other) {
    return &other->rates;
}

/* ---- another system ---- */

/* How long a rank's experts have to wait for copies, or it for their gradients. */
static double stall_of(const struct mp_other_system *other, size_t cell, int way) {
    const struct demand *demand = &other->demand[cell];
    const struct mp_fitted_line *line = &other->rates.copies[way];
    if (demand->bytes[way] <= 0)
        return 0;
    if (other->rates.copies_counted || !other->hides)
        return at_line(line, demand->bytes[way]);
    double hidden = way ? demand->bytes[way] : demand->early;
    double beyond = at_line(line, hidden) - other->attention[2 * cell + (size_t)way];
    return (beyond > 0 ? beyond : 0) + line->beyond * (demand->bytes[way] - hidden);
}

/* What the run took, and what is to be added for asking for something else; not below nothing. */
static double instead(double measured, const struct mp_fitted_line *line, double own, double now) {
    double seconds = measured + at_line(line, now) - at_line(line, own);
    return seconds > 0 ? seconds : 0;
}

/* The own system's by its rates alone, to show what they are worth; another's as the run's own with
 * the rates' difference, so that what rates don't explain stays as it was. */
static void take_seconds(struct mp_other_system *other, bool rates_alone) {
    const struct mp_other_rates *rates = &other->rates;
    for (size_t i = 0; i < cells(other); i++) {
        const struct demand *demand = &other->demand[i], *own = &other->own[i];
        const struct mp_what_if_layer *measured = &other->measured[i];
        struct mp_what_if_layer *seconds = &other->seconds[i];
        for (int way = 0; way < 2; way++) {
            const struct mp_fitted_line *expert = &rates->expert[way];
            const struct mp_fitted_line *dispatch = &rates->dispatch[way];
            const struct mp_fitted_line *combine = &rates->combine[way];
            bool alone = rates_alone || own->routes <= 0;
            seconds->expert[way] =
                demand->routes <= 0 ? 0
                : alone             ? at_line(expert, demand->routes)
                        : instead(measured->expert[way], expert, own->routes, demand->routes);
            seconds->dispatch[way] =
                rates_alone ? at_line(dispatch, demand->rows)
                            : instead(measured->dispatch[way], dispatch, own->rows, demand->rows);
            seconds->combine[way] =
                rates_alone ? at_line(combine, demand->rows)
                            : instead(measured->combine[way], combine, own->rows, demand->rows);
            bool both = own->bytes[way] > 0 && demand->bytes[way] > 0 && !rates_alone;
            seconds->stall[way] = both ? instead(measured->stall[way], &rates->copies[way],
                                                 own->bytes[way], demand->bytes[way])
                                       : stall_of(other, i, way);
        }
    }
    for (int i = 0; i < other->recorded->iterations; i++)
        other->after_step[i] = rates->move * other->moved[i];
}

/* The run's job with another system's defaults; the own one keeps its options. */
static int choose_system(struct mp_other_system *other, const char *name, struct mp_job_file *file,
                         struct mp_error *error) {
    char assignment[128];
    *file = other->job.file;
    if (!strcmp(name, other->job.file.system->name))
        return MP_OK;
    file->system = NULL;
    file->system_options = NULL;
    snprintf(assignment, sizeof assignment, "system=%.100s", name);
    return mp_job_set(file, assignment, other->systems, error);
}

int mp_other_system_median(struct mp_other_system *other, const char *name, double *seconds,
                           struct mp_error *error) {
    struct mp_job_file file;
    int code = choose_system(other, name, &file, error);
    if (!code)
        code = mp_job_check_model(&file, error);
    if (!code)
        code = plan_run(other, &file, error);
    if (file.system_options != other->job.file.system_options)
        free(file.system_options);
    if (code)
        return code;
    take_seconds(other, !strcmp(name, other->job.file.system->name));
    struct mp_what_if_change change = mp_what_if_nothing();
    change.other = other->seconds;
    change.after_step = other->after_step;
    *seconds = mp_what_if_median(other->what_if, &change);
    return MP_OK;
}
