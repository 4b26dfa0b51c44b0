/* The pipelined exchange: rows travel in steps between groups of ranks, and what a step has brought
 * is computed and returned while later ones are on their way (the smart schedule of FasterMoE,
 * PPoPP 2022, section 4.1; systems.md 2.3.5).
 *
 *   forward   S_0 .. S_(n-1), C_0, R_0, C_1, R_1, ..., then the routes of this rank's own whose
 *             copies were fetched after the gate
 *   backward  S_0 .. S_(n-1), those routes once S_0 has arrived, C_0, R_0, ...
 *
 * Every rank starts the same operations in the same order, also those in which it has no rows. */
#include <stdlib.h>

#include "reference/trainer/internal.h"

int mp_trainer_create_steps(struct mp_trainer *trainer, struct mp_error *error) {
    size_t ranks = (size_t)trainer->comm->ranks;
    int code = MP_OK;
    trainer->step = calloc(2 * ranks, sizeof *trainer->step);
    if (!trainer->step)
        return mp_fail(error, MP_ENOMEM, "no memory for an exchange of %zu steps", ranks);
    for (size_t i = 0; !code && i < 2 * ranks; i++)
        code = mp_request_create(trainer->comm, 0, 0, &trainer->step[i], error);
    return code;
}

void mp_trainer_destroy_steps(struct mp_trainer *trainer) {
    for (int i = 0; trainer->step && i < 2 * trainer->comm->ranks; i++)
        mp_request_destroy(trainer->step[i]);
    free(trainer->step);
    trainer->step = NULL;
}

static struct mp_request *request_of(const struct mp_trainer *trainer, int step, bool back) {
    return trainer->step[back ? trainer->comm->ranks + step : step];
}

/* One step towards the experts, or `back`. */
static int start_step(struct mp_trainer *trainer, int layer, int step, bool back, const void *from,
                      void *to, struct mp_error *error) {
    const struct mp_routing_step *at = &trainer->model.state[layer].routing.step[step];
    size_t row_bytes = (size_t)trainer->setting.route_bytes;
    return mp_exchange_start(trainer->comm, back ? at->receive_rows : at->send_rows,
                             back ? at->send_rows : at->receive_rows, row_bytes, from, to,
                             trainer->model.stream, request_of(trainer, step, back), error);
}

static void *row_of(const struct mp_trainer *trainer, void *matrix, int row) {
    return mp_element_at(trainer->device, matrix, (size_t)row * (size_t)trainer->job.width);
}

/* Waits for a step's rows; they are counted where they are waited for. */
static int wait_step(struct mp_trainer *trainer, int layer, int step, enum mp_phase phase,
                     enum mp_direction direction, struct mp_error *error) {
    struct mp_mark mark = mp_trainer_mark(trainer, phase);
    int code = mp_request_wait(request_of(trainer, step, false), error);
    mp_trainer_spent(trainer, mark, phase, direction, layer,
                     trainer->model.state[layer].routing.step[step].send_total, -1);
    return code;
}

/* What all ranks have returned to this one. */
static int wait_returns(struct mp_trainer *trainer, int layer, struct mp_error *error) {
    int code = MP_OK;
    for (int s = 0; !code && s < trainer->model.state[layer].routing.steps; s++)
        code = mp_request_wait(request_of(trainer, s, true), error);
    return code;
}

/* ---- forward ---- */

static int forward_segment(struct mp_trainer *trainer, int layer, int segment,
                           struct mp_error *error) {
    struct mp_model *model = &trainer->model;
    const struct mp_routing_segment *at = &model->state[layer].routing.segment[segment];
    int code = mp_trainer_wait_fetches(trainer, layer, at->needs_late, error);
    if (code)
        return code;
    struct mp_mark mark = mp_trainer_mark(trainer, MP_PHASE_EXPERT);
    mp_model_experts(model, layer, segment);
    code = mp_comm_progress(trainer->comm, error);
    mp_trainer_spent(trainer, mark, MP_PHASE_EXPERT, MP_FORWARD, layer, at->rows,
                     mp_model_route_flops(&model->shape) * at->rows);
    return code;
}

static int forward_step(struct mp_trainer *trainer, int layer, int step, struct mp_error *error) {
    struct mp_model *model = &trainer->model;
    struct mp_block_state *state = &model->state[layer];
    int code = wait_step(trainer, layer, step, MP_PHASE_DISPATCH, MP_FORWARD, error);
    if (!code)
        code = forward_segment(trainer, layer, step, error);
    if (code)
        return code;
    struct mp_mark mark = mp_trainer_mark(trainer, MP_PHASE_COMBINE);
    code =
        start_step(trainer, layer, step, true,
                   row_of(trainer, model->received, state->routing.segment[step].first),
                   row_of(trainer, state->combine_in, state->routing.step[step].send_first), error);
    mp_trainer_spent(trainer, mark, MP_PHASE_COMBINE, MP_FORWARD, layer,
                     state->routing.step[step].send_total, -1);
    return code;
}

int mp_trainer_pipeline_forward(struct mp_trainer *trainer, int layer, struct mp_error *error) {
    struct mp_model *model = &trainer->model;
    const struct mp_routing *routing = &model->state[layer].routing;
    struct mp_mark mark = mp_trainer_mark(trainer, MP_PHASE_DISPATCH);
    int code = MP_OK;
    mp_model_permute(model, layer, mp_trainer_route_seed(trainer, layer));
    for (int s = 0; !code && s < routing->steps; s++)
        code = start_step(trainer, layer, s, false,
                          row_of(trainer, model->send, routing->step[s].send_first),
                          mp_model_receive_buffer(model, layer, s), error);
    mp_trainer_spent(trainer, mark, MP_PHASE_DISPATCH, MP_FORWARD, layer, routing->local_rows, -1);
    for (int s = 0; !code && s < routing->steps; s++)
        code = forward_step(trainer, layer, s, error);
    /* Also without rows for them: what has been fetched is used in backward. */
    if (!code)
        code = mp_trainer_wait_fetches(trainer, layer, true, error);
    if (!code && routing->segments > routing->steps)
        code = forward_segment(trainer, layer, routing->steps, error);
    if (code)
        return code;
    mark = mp_trainer_mark(trainer, MP_PHASE_COMBINE);
    code = wait_returns(trainer, layer, error);
    if (!code)
        mp_model_combine(model, layer);
    mp_trainer_spent(trainer, mark, MP_PHASE_COMBINE, MP_FORWARD, layer, routing->local_rows, -1);
    return code;
}

/* ---- backward ---- */

static int backward_segment(struct mp_trainer *trainer, int layer, int segment, bool accumulate,
                            struct mp_error *error) {
    struct mp_model *model = &trainer->model;
    int rows = model->state[layer].routing.segment[segment].rows;
    struct mp_mark mark = mp_trainer_mark(trainer, MP_PHASE_EXPERT);
    mp_model_experts_backward(model, layer, segment, accumulate);
    int code = mp_comm_progress(trainer->comm, error);
    mp_trainer_spent(trainer, mark, MP_PHASE_EXPERT, MP_BACKWARD, layer, rows,
                     2 * mp_model_route_flops(&model->shape) * rows);
    return code;
}

static int backward_step(struct mp_trainer *trainer, int layer, int step, bool accumulate,
                         struct mp_error *error) {
    struct mp_model *model = &trainer->model;
    const struct mp_routing *routing = &model->state[layer].routing;
    int code = backward_segment(trainer, layer, step, accumulate, error);
    if (code)
        return code;
    struct mp_mark mark = mp_trainer_mark(trainer, MP_PHASE_DISPATCH);
    code = start_step(trainer, layer, step, true,
                      row_of(trainer, model->received, routing->segment[step].first),
                      row_of(trainer, model->send, routing->step[step].send_first), error);
    mp_trainer_spent(trainer, mark, MP_PHASE_DISPATCH, MP_BACKWARD, layer,
                     routing->step[step].send_total, -1);
    return code;
}

int mp_trainer_pipeline_backward(struct mp_trainer *trainer, int layer, struct mp_error *error) {
    struct mp_model *model = &trainer->model;
    const struct mp_routing *routing = &model->state[layer].routing;
    bool last = routing->segments > routing->steps;
    struct mp_mark mark = mp_trainer_mark(trainer, MP_PHASE_COMBINE);
    int code = MP_OK;
    mp_model_combine_backward(model, layer);
    for (int s = 0; !code && s < routing->steps; s++)
        code = start_step(trainer, layer, s, false,
                          row_of(trainer, model->send, routing->step[s].send_first),
                          row_of(trainer, model->received, routing->segment[s].first), error);
    mp_trainer_spent(trainer, mark, MP_PHASE_COMBINE, MP_BACKWARD, layer, routing->local_rows, -1);
    if (!code)
        code = mp_trainer_before_expert_gradients(trainer, layer, error);
    for (int s = 0; !code && s < routing->steps; s++) {
        code = wait_step(trainer, layer, s, MP_PHASE_COMBINE, MP_BACKWARD, error);
        /* Its rows are here already, and could be computed while the first step travels.  But where
         * the processor that computes also sends, others would wait for that step meanwhile. */
        if (!code && s == 0 && last)
            code = backward_segment(trainer, layer, routing->steps, false, error);
        if (!code)
            code = backward_step(trainer, layer, s, last || s > 0, error);
    }
    if (!code)
        code = mp_trainer_start_reduce(trainer, layer, error);
    if (code)
        return code;
    mark = mp_trainer_mark(trainer, MP_PHASE_DISPATCH);
    code = wait_returns(trainer, layer, error);
    mp_trainer_spent(trainer, mark, MP_PHASE_DISPATCH, MP_BACKWARD, layer, routing->local_rows, -1);
    return code;
}
