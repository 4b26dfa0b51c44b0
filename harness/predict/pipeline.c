/* The pipelined exchange (reference/trainer/pipeline.c): rows travel in steps between groups of
 * ranks, and what a step has brought is computed and returned while later ones are on their way.
 *
 * The comm stream carries steps in the order in which they are started: all steps towards the
 * experts, then returns.  Where the processor that computes also copies, a step's experts take
 * longer by that share of what the rank's gates are busy with the step behind and the return before
 * it, though never more than twice as long: the rest passes while the rank waits. */
#include <stdlib.h>
#include <string.h>

#include "harness/predict/engine.h"

static void *grow(void *memory, size_t count, size_t size) {
    free(memory);
    return malloc((count ? count : 1) * size);
}

/* Room for the steps of the present plan. */
static int reserve(struct mp_predictor *predictor, struct mp_error *error) {
    struct mp_pipeline *pipeline = &predictor->pipeline;
    size_t ranks = (size_t)predictor->ranks, steps = (size_t)pipeline->steps;
    int64_t rows = (pipeline->steps + 1) * pipeline->places;
    if (pipeline->steps > pipeline->steps_limit) {
        pipeline->steps_limit = pipeline->steps;
        pipeline->waits = grow(pipeline->waits, steps, sizeof *pipeline->waits);
        pipeline->arrived = grow(pipeline->arrived, steps * ranks, sizeof(double));
        pipeline->alone = grow(pipeline->alone, steps * ranks, sizeof(double));
        pipeline->matrix = grow(pipeline->matrix, ranks * ranks, sizeof *pipeline->matrix);
        pipeline->returned = grow(pipeline->returned, 3 * ranks, sizeof(double));
        pipeline->tokens = grow(pipeline->tokens, ranks, sizeof *pipeline->tokens);
    }
    if (rows > pipeline->rows_limit) {
        pipeline->rows_limit = 2 * rows;
        pipeline->rows = grow(pipeline->rows, 2 * (size_t)rows, sizeof *pipeline->rows);
    }
    if (!pipeline->waits || !pipeline->arrived || !pipeline->alone || !pipeline->matrix ||
        !pipeline->returned || !pipeline->tokens || !pipeline->rows) {
        pipeline->steps_limit = 0;
        pipeline->rows_limit = 0;
        return mp_fail(error, MP_ENOMEM, "no memory for an exchange of %d steps between %d ranks",
                       pipeline->steps, predictor->ranks);
    }
    pipeline->seconds = pipeline->returned + ranks;
    pipeline->done = pipeline->returned + 2 * ranks;
    return MP_OK;
}

void mp_pipeline_destroy(struct mp_pipeline *pipeline) {
    free(pipeline->waits);
    free(pipeline->arrived);
    free(pipeline->alone);
    free(pipeline->matrix);
    free(pipeline->returned);
    free(pipeline->tokens);
    free(pipeline->rows);
    *pipeline = (struct mp_pipeline){0};
}

/* ---- rows of steps ---- */

/* Routes of a source to the holder at a place of plan.holder. */
static void add_rows(struct mp_predictor *predictor, int source, int expert, int32_t at,
                     uint32_t count) {
    struct mp_pipeline *pipeline = &predictor->pipeline;
    int holder = predictor->plan.holder[at], size = pipeline->group_size;
    bool late = mp_predictor_is_late(predictor, expert, holder);
    int step = (holder / size - source / size + pipeline->steps) % pipeline->steps;
    if (late && holder == source) {
        pipeline->rows[pipeline->steps * pipeline->places + at] += count;
        pipeline->late = true;
        return;
    }
    pipeline->rows[step * pipeline->places + at] += count;
    pipeline->waits[step] |= late;
    pipeline->matrix[(size_t)source * (size_t)predictor->ranks + (size_t)holder] += count;
}

static int split(struct mp_predictor *predictor, struct mp_error *error) {
    const struct mp_plan *plan = &predictor->plan;
    struct mp_pipeline *pipeline = &predictor->pipeline;
    size_t ranks = (size_t)predictor->ranks;
    pipeline->group_size = plan->group_size;
    pipeline->steps = predictor->ranks / plan->group_size;
    pipeline->places = plan->holder_begin[plan->experts];
    int code = reserve(predictor, error);
    if (code)
        return code;
    pipeline->late = false;
    memset(pipeline->waits, 0, (size_t)pipeline->steps * sizeof *pipeline->waits);
    memset(pipeline->matrix, 0, ranks * ranks * sizeof *pipeline->matrix);
    memset(pipeline->rows, 0,
           (size_t)((pipeline->steps + 1) * pipeline->places) * sizeof *pipeline->rows);
    for (int source = 0; source < predictor->ranks; source++)
        for (int expert = 0; expert < plan->experts; expert++) {
            int parts;
            const struct mp_dispatch_part *part = mp_plan_parts(plan, source, expert, &parts);
            for (int i = 0; i < parts; i++)
                for (int32_t at = part[i].first; at < part[i].first + part[i].run; at++)
                    add_rows(predictor, source, expert, at, part[i].count);
        }
    return MP_OK;
}

/* The rows of a step as the present traffic. */
static void fill_step(struct mp_predictor *predictor, int step) {
    const struct mp_pipeline *pipeline = &predictor->pipeline;
    double bytes = mp_costs_row_bytes(predictor->costs);
    int size = pipeline->group_size;
    mp_traffic_clear(predictor->traffic);
    for (int from = 0; from < predictor->ranks; from++) {
        const uint32_t *row = pipeline->matrix + (size_t)from * (size_t)predictor->ranks;
        int first = (from / size + step) % pipeline->steps * size;
        for (int to = first; to < first + size; to++)
            if (row[to])
                mp_traffic_add(predictor->traffic, from, to, row[to] * bytes);
    }
}

/* One step towards the experts, or `back`, as soon as ranks come to it. */
static void start_step(struct mp_predictor *predictor, struct mp_activity activity, int step,
                       bool back, double done[]) {
    struct mp_pipeline *pipeline = &predictor->pipeline;
    double *alone = pipeline->alone + (size_t)step * (size_t)predictor->ranks;
    double *bytes = predictor->fetch.received; /* free by now, and there if spans are wanted */
    fill_step(predictor, step);
    mp_network_alone(predictor->network, predictor->traffic, alone);
    if (bytes)
        mp_traffic_totals(predictor->traffic, back ? bytes : NULL, back ? NULL : bytes);
    mp_timeline_exchange_start(&predictor->timeline, activity, predictor->traffic, back, alone,
                               bytes, predictor->timeline.clock, done);
}

static double *arrival(const struct mp_predictor *predictor, int step) {
    return predictor->pipeline.arrived + (size_t)step * (size_t)predictor->ranks;
}

/* ---- experts ---- */

/* What the processor also copies while a step is computed. */
static void stretch(struct mp_predictor *predictor, int step) {
    struct mp_pipeline *pipeline = &predictor->pipeline;
    double share = 1 - predictor->timeline.overlap;
    int ranks = predictor->ranks;
    for (int r = 0; share > 0 && r < ranks; r++) {
        double busy = 0;
        for (int other = step - 1; other <= step + 1; other += 2)
            if (other >= 0 && other < pipeline->steps)
                busy += pipeline->alone[(size_t)other * (size_t)ranks + (size_t)r];
        double most = pipeline->seconds[r];
        pipeline->seconds[r] += share * (busy < most ? busy : most);
    }
}

/* The experts on the rows of a step, or behind the last step on a rank's own rows of late copies.
 */
static void compute(struct mp_predictor *predictor, int layer, int step,
                    enum mp_direction direction) {
    struct mp_pipeline *pipeline = &predictor->pipeline;
    const int64_t *rows = pipeline->rows + step * pipeline->places;
    double flops = mp_costs_route_flops(predictor->costs) * (direction == MP_FORWARD ? 1 : 2);
    memset(pipeline->seconds, 0, (size_t)predictor->ranks * sizeof(double));
    memset(pipeline->tokens, 0, (size_t)predictor->ranks * sizeof *pipeline->tokens);
    for (int64_t at = 0; at < pipeline->places; at++) {
        int rank = predictor->plan.holder[at];
        pipeline->seconds[rank] += mp_costs_expert(predictor->costs, rows[at], direction);
        pipeline->tokens[rank] += rows[at];
    }
    if (step < pipeline->steps)
        stretch(predictor, step);
    mp_timeline_mark(&predictor->timeline);
    mp_timeline_work_each(&predictor->timeline, pipeline->seconds);
    mp_predictor_experts_spent(predictor, (struct mp_activity){MP_PHASE_EXPERT, direction, layer},
                               pipeline->tokens, flops);
}

/* ---- both directions ---- */

/* All steps towards the experts set out. */
static void send(struct mp_predictor *predictor, const struct mp_predicted_layer *layer,
                 struct mp_activity activity) {
    mp_timeline_mark(&predictor->timeline);
    mp_timeline_work_each(&predictor->timeline, layer->permute);
    for (int step = 0; step < predictor->pipeline.steps; step++)
        start_step(predictor, activity, step, false, arrival(predictor, step));
    mp_predictor_spent(predictor, activity, layer->sent_rows, layer->sent, -1);
    memset(predictor->pipeline.returned, 0, (size_t)predictor->ranks * sizeof(double));
}

static void wait_step(struct mp_predictor *predictor, struct mp_activity activity, int step) {
    mp_timeline_mark(&predictor->timeline);
    mp_timeline_wait_until(&predictor->timeline, arrival(predictor, step));
    mp_predictor_spent(predictor, activity, NULL, NULL, -1);
}

static void return_step(struct mp_predictor *predictor, struct mp_activity activity, int step) {
    struct mp_pipeline *pipeline = &predictor->pipeline;
    start_step(predictor, activity, step, true, pipeline->done);
    for (int r = 0; r < predictor->ranks; r++)
        if (pipeline->done[r] > pipeline->returned[r])
            pipeline->returned[r] = pipeline->done[r];
}

static void receive(struct mp_predictor *predictor, const struct mp_predicted_layer *layer,
                    struct mp_activity activity) {
    mp_timeline_mark(&predictor->timeline);
    mp_timeline_wait_until(&predictor->timeline, predictor->pipeline.returned);
    mp_timeline_forget_late(&predictor->timeline);
    mp_timeline_work_each(&predictor->timeline, layer->permute);
    mp_predictor_spent(predictor, activity, NULL, layer->received, -1);
}

int mp_predictor_pipeline_forward(struct mp_predictor *predictor, int number,
                                  struct mp_error *error) {
    const struct mp_predicted_layer *layer = &predictor->layer[number];
    struct mp_activity dispatch = {MP_PHASE_DISPATCH, MP_FORWARD, number};
    struct mp_activity combine = {MP_PHASE_COMBINE, MP_FORWARD, number};
    struct mp_pipeline *pipeline = &predictor->pipeline;
    int code = split(predictor, error);
    if (code)
        return code;
    send(predictor, layer, dispatch);
    for (int step = 0; step < pipeline->steps; step++) {
        wait_step(predictor, dispatch, step);
        mp_predictor_wait_fetches(predictor, number, pipeline->waits[step]);
        compute(predictor, number, step, MP_FORWARD);
        return_step(predictor, combine, step);
    }
    mp_predictor_wait_fetches(predictor, number, true);
    if (pipeline->late)
        compute(predictor, number, pipeline->steps, MP_FORWARD);
    receive(predictor, layer, combine);
    return MP_OK;
}

int mp_predictor_pipeline_backward(struct mp_predictor *predictor, int number,
                                   struct mp_error *error) {
    const struct mp_predicted_layer *layer = &predictor->layer[number];
    struct mp_activity dispatch = {MP_PHASE_DISPATCH, MP_BACKWARD, number};
    struct mp_activity combine = {MP_PHASE_COMBINE, MP_BACKWARD, number};
    struct mp_pipeline *pipeline = &predictor->pipeline;
    int code = split(predictor, error);
    if (code)
        return code;
    send(predictor, layer, combine);
    mp_predictor_before_gradients(predictor, number);
    for (int step = 0; step < pipeline->steps; step++) {
        wait_step(predictor, combine, step);
        if (step == 0 && pipeline->late)
            compute(predictor, number, pipeline->steps, MP_BACKWARD);
        compute(predictor, number, step, MP_BACKWARD);
        return_step(predictor, dispatch, step);
    }
    mp_predictor_start_reduce(predictor, number);
    receive(predictor, layer, dispatch);
    return MP_OK;
}
