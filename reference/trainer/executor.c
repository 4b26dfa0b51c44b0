/* The schedule's verbs, in real time. */
#include "reference/base/digest.h"
#include "reference/trainer/internal.h"

/* ---- spans ---- */

static void begin(void *self, struct mp_scheduled_phase activity) {
    struct mp_trainer *trainer = self;
    trainer->phase = mp_spans_mark(&trainer->spans, activity.phase);
}

/* Rows that a phase of the exchange has worked on: those that this rank sends. */
static int64_t sent_rows(const struct mp_routing *routing, int step) {
    if (step == MP_ALL_STEPS)
        return routing->send_total;
    return step < routing->steps ? routing->step[step].send_total : routing->local_rows;
}

static int64_t segment_rows(const struct mp_routing *routing, int step) {
    return step < routing->segments ? routing->segment[step].rows : 0;
}

static void end(void *self, struct mp_scheduled_phase activity) {
    struct mp_trainer *trainer = self;
    const struct mp_model *model = &trainer->model;
    /* Phases of rows are of a layer; the others have no need of it. */
    const struct mp_routing *routing =
        &model->state[activity.layer < 0 ? 0 : activity.layer].routing;
    int64_t tokens = -1, flops = -1;
    switch (activity.phase) {
    case MP_PHASE_EMBED:
    case MP_PHASE_ATTENTION:
    case MP_PHASE_GATE:
    case MP_PHASE_HEAD:
        tokens = activity.products == MP_WEIGHT_PRODUCTS ? -1 : model->tokens; /* told before */
        break;
    case MP_PHASE_SHARED:
        tokens = model->tokens;
        flops = tokens * mp_model_shared_flops(&model->shape) *
                (activity.direction == MP_BACKWARD ? 2 : 1);
        break;
    case MP_PHASE_DISPATCH:
    case MP_PHASE_COMBINE:
        tokens = sent_rows(routing, activity.step);
        break;
    case MP_PHASE_EXPERT:
    case MP_PHASE_WEIGHTS:
        tokens = segment_rows(routing, activity.step);
        flops = tokens * mp_model_route_flops(&model->shape) *
                (activity.direction == MP_BACKWARD ? 2 : 1);
        if (activity.products != MP_ALL_PRODUCTS) /* one of backward's four products comes behind */
            flops = flops / 4 * (activity.products == MP_WEIGHT_PRODUCTS ? 1 : 3);
        break;
    default:
        break;
    }
    mp_spans_spent(&trainer->spans, trainer->phase, activity.phase, activity.direction,
                   activity.layer, tokens, flops);
}

/* ---- own work ---- */

struct mp_adamw mp_trainer_next_update(const struct mp_trainer *trainer) {
    const struct mp_job *job = &trainer->job;
    return (struct mp_adamw){.learning_rate = (float)job->learning_rate,
                             .beta1 = (float)job->beta1,
                             .beta2 = (float)job->beta2,
                             .epsilon = (float)job->epsilon,
                             .weight_decay = (float)job->weight_decay,
                             .step = trainer->updates + 1};
}

static void update(struct mp_trainer *trainer) {
    struct mp_adamw settings = mp_trainer_next_update(trainer);
    trainer->updates++;
    mp_dense_update(&trainer->model.dense, trainer->model.stream, &settings);
    mp_experts_update(&trainer->model.experts, trainer->model.stream, &settings);
    mp_counts_move_biases(&trainer->counts);
}

static int work(void *self, const struct mp_operation *operation, struct mp_error *error) {
    struct mp_trainer *trainer = self;
    struct mp_model *model = &trainer->model;
    struct mp_adamw settings;
    bool forward = operation->direction == MP_FORWARD;
    switch (operation->kind) {
    case MP_WORK_EMBED:
        if (forward)
            mp_model_embed(model, trainer->batch.token_now, trainer->batch.target_now);
        else
            mp_model_embed_backward(model);
        return MP_OK;
    case MP_WORK_ATTENTION:
        if (forward)
            mp_model_attention(model, operation->layer);
        else
            mp_model_attention_backward(model, operation->layer, operation->products);
        return mp_comm_progress(trainer->comm, error);
    case MP_WORK_GATE:
        if (forward)
            return mp_trainer_gate(trainer, operation->layer, error);
        mp_model_gate_backward(model, operation->layer);
        return MP_OK;
    case MP_WORK_PERMUTE:
        return mp_trainer_permute(trainer, operation, error);
    case MP_WORK_SHARED:
        if (forward)
            mp_model_shared(model, operation->layer);
        else
            mp_model_shared_backward(model, operation->layer);
        return mp_comm_progress(trainer->comm, error);
    case MP_WORK_EXPERTS:
        return mp_trainer_experts(trainer, operation, error);
    case MP_WORK_COMBINE: /* in backward the gate's part begins with it */
        if (forward)
            mp_model_combine(model, operation->layer);
        return MP_OK;
    case MP_WORK_HEAD:
        mp_model_head(model, forward ? 0 : 1.0f / (float)trainer->batch.global_tokens, !forward);
        return MP_OK;
    case MP_WORK_UPDATE_EXPERTS:
        settings = mp_trainer_next_update(trainer);
        mp_experts_update_layer(&model->experts, model->stream, &settings, operation->layer);
        return mp_comm_progress(trainer->comm, error);
    default:
        update(trainer);
        return MP_OK;
    }
}

/* ---- what travels ---- */

/* Loss over all ranks. */
static int agree(struct mp_trainer *trainer, struct mp_error *error) {
    double sums[3] = {mp_model_loss_sum(&trainer->model, trainer->batch.loss),
                      mp_counts_loss(&trainer->counts), trainer->stop};
    int code = mp_comm_sum(trainer->comm, sums, 3, error);
    *trainer->result = (struct mp_trainer_result){
        trainer->iteration, sums[0] / (double)trainer->batch.answers, sums[1], sums[2] > 0};
    return code;
}

static int start_bucket(struct mp_trainer *trainer, int bucket, struct mp_error *error) {
    const struct mp_dense *dense = &trainer->model.dense;
    size_t first = dense->bucket[bucket], last = dense->bucket[bucket + 1];
    trainer->dense_flight[bucket] = mp_spans_departed(&trainer->spans, MP_PHASE_ALLREDUCE);
    return mp_all_reduce_start(trainer->comm, dense->gradient + first, last - first,
                               trainer->model.stream, trainer->dense_request[bucket], error);
}

static int wait_bucket(struct mp_trainer *trainer, int bucket, struct mp_error *error) {
    const struct mp_model *model = &trainer->model;
    size_t floats = model->dense.bucket[bucket + 1] - model->dense.bucket[bucket];
    int code = mp_request_wait(trainer->dense_request[bucket], error);
    mp_spans_arrived(&trainer->spans, trainer->dense_flight[bucket], MP_PHASE_ALLREDUCE,
                     MP_BACKWARD, bucket < model->shape.layers ? bucket : -1,
                     (int64_t)(floats * sizeof(float)));
    return code;
}

static int start(void *self, const struct mp_operation *operation, struct mp_error *error) {
    struct mp_trainer *trainer = self;
    switch (operation->kind) {
    case MP_TRAVEL_COUNTS:
        return mp_counts_start(&trainer->counts, error);
    case MP_TRAVEL_ROWS:
    case MP_TRAVEL_RETURNS:
        return mp_trainer_start_rows(trainer, operation, error);
    case MP_TRAVEL_SUM_DENSE:
        return start_bucket(trainer, operation->layer, error);
    case MP_TRAVEL_MOVES:
        trainer->totals.moves += trainer->planner.moves.count;
        return mp_moves_start(&trainer->moves, error);
    case MP_TRAVEL_HOMES:
        return mp_carriages_start_homes(&trainer->carriages, operation->layer, error);
    case MP_TRAVEL_LOSS:
        return agree(trainer, error);
    default:
        return mp_carriages_start(&trainer->carriages, operation, error);
    }
}

static int wait(void *self, const struct mp_operation *operation, struct mp_error *error) {
    struct mp_trainer *trainer = self;
    int code;
    switch (operation->kind) {
    case MP_TRAVEL_COUNTS:
        code = mp_counts_wait(&trainer->counts, operation->layer, error);
        if (!code)
            mp_choices_read(&trainer->choices, operation->layer);
        return code;
    case MP_TRAVEL_ROWS:
    case MP_TRAVEL_RETURNS:
        return mp_trainer_wait_rows(trainer, operation, error);
    case MP_TRAVEL_SUM_DENSE:
        return wait_bucket(trainer, operation->layer, error);
    case MP_TRAVEL_HOMES:
        return mp_carriages_wait_homes(&trainer->carriages, operation->layer, error);
    case MP_TRAVEL_MOVES:
        return mp_moves_wait(&trainer->moves, error);
    case MP_TRAVEL_LOSS: /* starting it has waited for it */
        return MP_OK;
    default:
        return mp_carriages_wait(&trainer->carriages, operation, error);
    }
}

/* ---- plans ---- */

static int plan(void *self, int layer, bool before_gate, const struct mp_plan **of_layer,
                struct mp_error *error) {
    struct mp_trainer *trainer = self;
    *of_layer = mp_planner_plan(&trainer->planner, layer);
    return mp_trainer_plan(trainer, layer, before_gate, error);
}

static int learn(void *self, const struct mp_rehome **change, struct mp_error *error) {
    struct mp_trainer *trainer = self;
    uint64_t homes = MP_DIGEST;
    *change = &trainer->planner.change;
    MP_TRY(mp_choices_sum(&trainer->choices, error));
    MP_TRY(mp_planner_after_step(&trainer->planner, trainer->iteration, trainer->load, error));
    if (!trainer->job.check_plans)
        return MP_OK;
    for (int layer = 0; (*change)->changed && layer < trainer->job.layers; layer++)
        homes = mp_placement_digest(&(*change)->next[layer], homes);
    return mp_trainer_agree(trainer, homes, "homes", error);
}

const struct mp_executor mp_trainer_executor = {begin, end, plan, work, start, wait, learn};
