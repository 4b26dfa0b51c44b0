/* The experts of this rank's tokens on the host: where a system looks at transitions between
 * layers, or the job records them.  Otherwise nothing is kept, and nothing is copied. */
#include <limits.h>
#include <stdlib.h>
#include <string.h>

#include "reference/plan/routes.h"
#include "reference/trainer/internal.h"

static size_t choices_of_layer(const struct mp_trainer *trainer) {
    return (size_t)trainer->model.tokens * (size_t)trainer->model.shape.top_k;
}

static size_t transitions_of(const struct mp_trainer *trainer) {
    size_t experts = (size_t)trainer->job.experts;
    return (size_t)(trainer->job.layers - 1) * experts * experts;
}

int mp_trainer_create_routes(struct mp_trainer *trainer, struct mp_error *error) {
    bool sums = trainer->planner.system->capabilities & MP_SYSTEM_USES_TRANSITIONS;
    size_t layers = (size_t)trainer->job.layers, experts = (size_t)trainer->job.experts;
    size_t transitions = transitions_of(trainer);
    if (!sums && !trainer->job.record_routes)
        return MP_OK;
    if (sums && transitions > INT_MAX)
        return mp_fail(error, MP_ELIMIT,
                       "%zu transitions between %d experts of %d layers; at most %d are summed",
                       transitions, trainer->job.experts, trainer->job.layers, INT_MAX);
    MP_TAKE(&trainer->arena, trainer->choices, layers * choices_of_layer(trainer));
    if (sums) {
        MP_TAKE_EACH(&trainer->arena, transitions, trainer->transitions, trainer->transition_sums);
    }
    for (size_t l = 0; sums && l + 1 < layers; l++) {
        struct mp_load *load = &trainer->load[l];
        load->next = calloc(experts * experts, sizeof *load->next);
        if (!load->next)
            return mp_fail(error, MP_ENOMEM, "no memory for the experts of %zu routes",
                           layers * choices_of_layer(trainer));
    }
    return mp_arena_check(&trainer->arena, error);
}

void mp_trainer_read_choices(struct mp_trainer *trainer, int layer) {
    const struct mp_model *model = &trainer->model;
    size_t choices = choices_of_layer(trainer);
    if (trainer->choices && !trainer->spans.validating)
        trainer->device->operations->copy_to_host(
            trainer->device, model->stream, trainer->choices + (size_t)layer * choices,
            model->state[layer].choice, choices * sizeof *trainer->choices);
}

void mp_trainer_record_choices(struct mp_trainer *trainer, int layer) {
    size_t choices = choices_of_layer(trainer);
    if (trainer->job.record_routes)
        mp_record_choices(trainer->spans.compute, trainer->iteration, layer, trainer->job.experts,
                          trainer->model.shape.top_k, (int64_t)choices,
                          trainer->choices + (size_t)layer * choices);
}

int mp_trainer_sum_transitions(struct mp_trainer *trainer, struct mp_error *error) {
    size_t choices = choices_of_layer(trainer), transitions = transitions_of(trainer);
    size_t experts = (size_t)trainer->job.experts, cells = experts * experts;
    uint32_t *own = trainer->transitions;
    double *sum = trainer->transition_sums;
    if (!own || transitions == 0)
        return MP_OK;
    memset(own, 0, transitions * sizeof *own);
    for (size_t l = 0; l + 1 < (size_t)trainer->job.layers; l++)
        mp_routes_transitions(trainer->model.tokens, trainer->model.shape.top_k, (int)experts,
                              trainer->choices + l * choices, trainer->choices + (l + 1) * choices,
                              own + l * cells);
    for (size_t i = 0; i < transitions; i++)
        sum[i] = own[i];
    int code = mp_comm_sum(trainer->comm, sum, (int)transitions, error);
    for (size_t i = 0; i < transitions; i++)
        trainer->load[i / cells].next[i % cells] = (uint32_t)sum[i];
    return code;
}
