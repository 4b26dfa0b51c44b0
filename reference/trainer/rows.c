/* Tokens' rows on their way to the experts and back, step by step, and the experts that work on
 * them. */
#include "reference/trainer/internal.h"

static struct mp_request *request_of(const struct mp_trainer *trainer,
                                     const struct mp_operation *operation) {
    bool back = operation->kind == MP_TRAVEL_RETURNS;
    return trainer->rows[2 * operation->step + back];
}

static void *row_of(const struct mp_trainer *trainer, void *matrix, int row) {
    return mp_element_at(trainer->device, matrix, (size_t)row * (size_t)trainer->job.width);
}

/* Rows leave from model->send and arrive where the experts want them; results return to
 * combine_in, gradients to model->send.  Where the routing stays they are there already. */
int mp_trainer_start_rows(struct mp_trainer *trainer, const struct mp_operation *operation,
                          struct mp_error *error) {
    struct mp_model *model = &trainer->model;
    struct mp_block_state *state = &model->state[operation->layer];
    if (state->routing.deduplicated)
        return mp_distinct_rows_start(&trainer->distinct, operation, request_of(trainer, operation),
                                      error);
    const struct mp_routing_step *at = &state->routing.step[operation->step];
    int arrives = state->routing.segment[operation->step].first;
    bool forward = operation->direction == MP_FORWARD;
    bool back = operation->kind == MP_TRAVEL_RETURNS;
    void *here = row_of(trainer, model->received, arrives);
    void *from = back ? here : row_of(trainer, model->send, at->send_first);
    void *to = here;
    if (back)
        to = row_of(trainer, forward ? state->combine_in : model->send, at->send_first);
    else if (forward)
        to = mp_model_receive_buffer(model, operation->layer, operation->step);
    if (state->routing.stays)
        from = to;
    struct mp_exchange_path direct;
    return mp_exchange_path_start(trainer->comm, mp_paths_of(&trainer->paths, operation, &direct),
                                  back, (size_t)trainer->setting.route_bytes, from, to,
                                  (void *[]){mp_paths_transit(&trainer->paths, operation, 0),
                                             mp_paths_transit(&trainer->paths, operation, 1)},
                                  model->stream, request_of(trainer, operation), error);
}

int mp_trainer_wait_rows(struct mp_trainer *trainer, const struct mp_operation *operation,
                         struct mp_error *error) {
    MP_TRY(mp_request_wait(request_of(trainer, operation), error));
    if (trainer->model.state[operation->layer].routing.deduplicated)
        mp_distinct_rows_arrive(&trainer->distinct, operation);
    return MP_OK;
}

/* Of what this rank draws for its routes of a layer in this iteration. */
static uint64_t route_seed(const struct mp_trainer *trainer, int layer) {
    return mp_model_route_seed((uint64_t)trainer->job.seed, trainer->iteration, layer,
                               trainer->comm->rank);
}

static int make_distinct(struct mp_trainer *trainer, int layer, struct mp_error *error) {
    MP_TRY(mp_distinct_rows_gather(&trainer->distinct, layer, error));
    int64_t before = trainer->model.row_bytes;
    int code = mp_distinct_rows_make(&trainer->distinct, layer, error);
    return mp_trainer_note_rows(trainer, layer, before, code, error);
}

int mp_trainer_permute(struct mp_trainer *trainer, const struct mp_operation *operation,
                       struct mp_error *error) {
    struct mp_model *model = &trainer->model;
    int layer = operation->layer, code = MP_OK;
    if (operation->direction != MP_FORWARD) {
        mp_model_combine_backward(model, layer);
        return MP_OK;
    }
    mp_model_permute(model, layer, route_seed(trainer, layer));
    if (model->state[layer].routing.deduplicated) {
        code = make_distinct(trainer, layer, error);
        if (!code)
            mp_model_gather_sent(model, layer, model->state[layer].normed2);
    }
    return code;
}

/* Whether gradients of a layer's experts are whole when they have been computed, and nobody else's:
 * of a rank alone, if nothing of the layer travels in the background, as slices do.  Of several
 * ranks, layers without copies could be updated so, too, which systems with a few copies in each
 * would pay for: they are compared with all experts updated from gradients in memory. */
static bool gradients_stay(const struct mp_trainer *trainer, int layer) {
    const struct mp_scheduled_layer *at = &trainer->schedule.layer[layer];
    return trainer->comm->ranks == 1 && !at->travels && at->steps == 1 &&
           !trainer->model.experts.layout.host;
}

/* Parameters have been located when the layer was planned (forward); copies that came again may lie
 * elsewhere. */
static int backward(struct mp_trainer *trainer, const struct mp_operation *operation,
                    struct mp_error *error) {
    struct mp_model *model = &trainer->model;
    const struct mp_scheduled_layer *layer = &trainer->schedule.layer[operation->layer];
    bool first = operation->step == (layer->own ? layer->steps : 0);
    if (first && operation->products != MP_WEIGHT_PRODUCTS)
        MP_TRY(mp_experts_locate(&model->experts,
                                 mp_planner_plan(&trainer->planner, operation->layer),
                                 model->parameter, model->gradient, error));
    const struct mp_adamw update = mp_trainer_next_update(trainer);
    mp_model_experts_backward(model, operation->layer, operation->step, operation->products, !first,
                              gradients_stay(trainer, operation->layer) ? &update : NULL);
    return MP_OK;
}

int mp_trainer_experts(struct mp_trainer *trainer, const struct mp_operation *operation,
                       struct mp_error *error) {
    if (operation->direction == MP_FORWARD)
        mp_model_experts(&trainer->model, operation->layer, operation->step);
    else
        MP_TRY(backward(trainer, operation, error));
    return mp_comm_progress(trainer->comm, error);
}
