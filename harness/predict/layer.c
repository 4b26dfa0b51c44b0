/* A layer's mixture of experts, forward and backward, in the order of reference/trainer. */
#include "harness/predict/engine.h"

void mp_predictor_spent(struct mp_predictor *predictor, struct mp_activity activity,
                        const int64_t tokens[], const double bytes[], double flops) {
    predictor->moe += mp_timeline_spent(&predictor->timeline, activity, tokens, bytes, flops);
}

void mp_predictor_experts_spent(struct mp_predictor *predictor, struct mp_activity activity,
                                const int64_t rows[], double flops) {
    const struct mp_timeline *timeline = &predictor->timeline;
    for (int r = 0; r < predictor->ranks; r++)
        predictor->expert_seconds[r] += timeline->clock[r] - timeline->mark[r];
    mp_predictor_spent(predictor, activity, rows, NULL, flops);
}

/* ---- transfers ---- */

static int64_t start(struct mp_predictor *predictor, struct mp_activity activity,
                     const struct mp_carriage *carriage) {
    return carriage->any ? mp_timeline_start(&predictor->timeline, activity, carriage->seconds,
                                             carriage->alone, carriage->received)
                         : -1;
}

static void wait_fetch(struct mp_predictor *predictor, struct mp_activity activity,
                       int64_t *number) {
    if (*number < 0)
        return;
    mp_timeline_mark(&predictor->timeline);
    mp_timeline_wait(&predictor->timeline, *number);
    mp_predictor_spent(predictor, activity, NULL, NULL, -1);
    *number = -1;
}

void mp_predictor_wait_fetches(struct mp_predictor *predictor, int layer, bool late) {
    struct mp_activity activity = {MP_PHASE_FETCH, MP_FORWARD, layer};
    wait_fetch(predictor, activity, &predictor->fetch_number);
    if (late)
        wait_fetch(predictor, activity, &predictor->late_number);
}

void mp_predictor_start_prefetch(struct mp_predictor *predictor, int layer) {
    struct mp_activity activity = {MP_PHASE_FETCH, MP_BACKWARD, layer};
    predictor->prefetch_number = start(predictor, activity, &predictor->layer[layer].prefetch);
}

/* Starts the first stage from `stage` on that has something to do. */
static void start_from(struct mp_predictor *predictor, struct mp_predicted_reduction *reduction,
                       int stage) {
    const struct mp_predicted_layer *layer = &predictor->layer[reduction->layer];
    struct mp_activity activity = {MP_PHASE_REDUCE, MP_BACKWARD, reduction->layer};
    while (stage < MP_GRADIENT_STAGES && !layer->gradient[stage].any)
        stage++;
    if (stage == MP_GRADIENT_STAGES) {
        reduction->layer = -1;
        return;
    }
    reduction->stage = stage;
    reduction->number = start(predictor, activity, &layer->gradient[stage]);
}

/* Waits for the stage on its way and starts the next one. */
static void advance(struct mp_predictor *predictor, struct mp_predicted_reduction *reduction) {
    struct mp_activity activity = {MP_PHASE_REDUCE, MP_BACKWARD, reduction->layer};
    if (reduction->layer < 0)
        return;
    mp_timeline_mark(&predictor->timeline);
    mp_timeline_wait(&predictor->timeline, reduction->number);
    start_from(predictor, reduction, reduction->stage + 1);
    mp_predictor_spent(predictor, activity, NULL, NULL, -1);
}

static void wait_reduce(struct mp_predictor *predictor, int layer) {
    struct mp_predicted_reduction *reduction = &predictor->reduction[layer % 2];
    while (reduction->layer >= 0)
        advance(predictor, reduction);
}

void mp_predictor_start_reduce(struct mp_predictor *predictor, int layer) {
    struct mp_predicted_reduction *reduction = &predictor->reduction[layer % 2];
    if (!predictor->layer[layer].reduces)
        return;
    advance(predictor, &predictor->reduction[(layer + 1) % 2]);
    reduction->layer = layer;
    start_from(predictor, reduction, MP_SUM_COPIES);
}

void mp_predictor_finish_reduces(struct mp_predictor *predictor) {
    wait_reduce(predictor, 1);
    wait_reduce(predictor, 0);
}

void mp_predictor_before_gradients(struct mp_predictor *predictor, int layer) {
    struct mp_activity activity = {MP_PHASE_FETCH, MP_BACKWARD, layer};
    wait_fetch(predictor, activity, &predictor->prefetch_number);
    wait_reduce(predictor, layer);
}

/* ---- flat exchange ---- */

/* Rows towards the experts (or, with `back`, to their tokens), put in order at the tokens' end. */
static void exchange(struct mp_predictor *predictor, const struct mp_predicted_layer *layer,
                     struct mp_activity activity, bool back) {
    struct mp_timeline *timeline = &predictor->timeline;
    mp_timeline_mark(timeline);
    if (!back)
        mp_timeline_work_each(timeline, layer->permute);
    mp_timeline_exchange(timeline, activity, layer->traffic, back, layer->alone,
                         back ? layer->sent : layer->received);
    if (back)
        mp_timeline_work_each(timeline, layer->permute);
    mp_predictor_spent(predictor, activity, layer->sent_rows, back ? layer->received : layer->sent,
                       -1);
}

static void compute(struct mp_predictor *predictor, int number, enum mp_direction direction) {
    const struct mp_predicted_layer *layer = &predictor->layer[number];
    double flops = mp_costs_route_flops(predictor->costs) * (direction == MP_FORWARD ? 1 : 2);
    mp_timeline_mark(&predictor->timeline);
    mp_timeline_work_each(&predictor->timeline, layer->expert[direction]);
    mp_predictor_experts_spent(predictor, (struct mp_activity){MP_PHASE_EXPERT, direction, number},
                               layer->rows, flops);
}

/* ---- forward ---- */

static int attend(struct mp_predictor *predictor, int number, struct mp_error *error) {
    struct mp_timeline *timeline = &predictor->timeline;
    mp_timeline_mark(timeline);
    int code = mp_predictor_plan_before(predictor, number, error);
    if (code)
        return code;
    mp_timeline_spent(timeline, (struct mp_activity){MP_PHASE_PLAN, MP_FORWARD, number}, NULL, NULL,
                      -1);
    mp_predictor_carry_fetch(predictor, MP_STAGE_BEFORE_GATE, &predictor->fetch);
    predictor->fetch_number = start(
        predictor, (struct mp_activity){MP_PHASE_FETCH, MP_FORWARD, number}, &predictor->fetch);
    mp_timeline_mark(timeline);
    mp_timeline_work(timeline, mp_costs_attention(predictor->costs, MP_FORWARD));
    mp_timeline_spent(timeline, (struct mp_activity){MP_PHASE_ATTENTION, MP_FORWARD, number},
                      predictor->tokens, NULL, -1);
    return MP_OK;
}

/* The gate, and what it takes until every rank knows all loads. */
static void gate(struct mp_predictor *predictor, int number) {
    struct mp_activity activity = {MP_PHASE_GATE, MP_FORWARD, number};
    mp_timeline_mark(&predictor->timeline);
    mp_timeline_work(&predictor->timeline, mp_costs_gate(predictor->costs, MP_FORWARD));
    mp_timeline_together(&predictor->timeline, activity, predictor->gather_seconds);
    mp_predictor_spent(predictor, activity, predictor->tokens, NULL, -1);
}

static int plan(struct mp_predictor *predictor, int number, struct mp_error *error) {
    struct mp_activity activity = {MP_PHASE_PLAN, MP_FORWARD, number};
    struct mp_predicted_layer *layer = &predictor->layer[number];
    mp_timeline_mark(&predictor->timeline);
    int code = mp_predictor_plan_after(predictor, number, error);
    if (code)
        return code;
    if (!predictor->plan.free_transfers)
        mp_timeline_work(&predictor->timeline, predictor->options.planning);
    mp_predictor_spent(predictor, activity, NULL, NULL, -1);
    layer->rematerialise = predictor->plan.rematerialise;
    activity.phase = MP_PHASE_FETCH;
    mp_predictor_carry_fetch(predictor, MP_STAGE_AFTER_GATE, &predictor->late_fetch);
    predictor->late_number = start(predictor, activity, &predictor->late_fetch);
    mp_predictor_carry_gradients(predictor, layer);
    return mp_predictor_dispatch(predictor, number, error);
}

int mp_predictor_forward(struct mp_predictor *predictor, int number, struct mp_error *error) {
    struct mp_predicted_layer *layer = &predictor->layer[number];
    int code = attend(predictor, number, error);
    if (code)
        return code;
    gate(predictor, number);
    code = plan(predictor, number, error);
    if (code)
        return code;
    if (layer->pipelined)
        return mp_predictor_pipeline_forward(predictor, number, error);
    exchange(predictor, layer, (struct mp_activity){MP_PHASE_DISPATCH, MP_FORWARD, number}, false);
    mp_predictor_wait_fetches(predictor, number, true);
    compute(predictor, number, MP_FORWARD);
    exchange(predictor, layer, (struct mp_activity){MP_PHASE_COMBINE, MP_FORWARD, number}, true);
    return MP_OK;
}

/* ---- backward ---- */

int mp_predictor_backward(struct mp_predictor *predictor, int number, struct mp_error *error) {
    struct mp_predicted_layer *layer = &predictor->layer[number];
    int code = mp_predictor_restore(predictor, number, error);
    if (!code && layer->pipelined)
        code = mp_predictor_pipeline_backward(predictor, number, error);
    if (code)
        return code;
    if (!layer->pipelined) {
        exchange(predictor, layer, (struct mp_activity){MP_PHASE_COMBINE, MP_BACKWARD, number},
                 false);
        mp_predictor_before_gradients(predictor, number);
        compute(predictor, number, MP_BACKWARD);
        mp_predictor_start_reduce(predictor, number);
        exchange(predictor, layer, (struct mp_activity){MP_PHASE_DISPATCH, MP_BACKWARD, number},
                 true);
    }
    mp_timeline_mark(&predictor->timeline);
    mp_timeline_work(&predictor->timeline, mp_costs_gate(predictor->costs, MP_BACKWARD));
    mp_predictor_spent(predictor, (struct mp_activity){MP_PHASE_GATE, MP_BACKWARD, number},
                       predictor->tokens, NULL, -1);
    return MP_OK;
}
