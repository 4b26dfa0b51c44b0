#include "reference/trainer/choices.h"

#include <limits.h>
#include <string.h>

#include "reference/plan/routes.h"

static size_t of_layer(const struct mp_choices *choices) {
    return (size_t)choices->model->tokens * (size_t)choices->model->shape.top_k;
}

static size_t transitions_of(const struct mp_choices *choices) {
    size_t experts = (size_t)choices->experts;
    return (size_t)(choices->model->shape.layers - 1) * experts * experts;
}

int mp_choices_create(struct mp_choices *choices, bool uses_transitions, struct mp_arena *arena,
                      struct mp_error *error) {
    size_t layers = (size_t)choices->model->shape.layers, experts = (size_t)choices->experts;
    size_t transitions = transitions_of(choices);
    if (!uses_transitions && !choices->records)
        return MP_OK;
    if (uses_transitions && transitions > INT_MAX)
        return mp_fail(error, MP_ELIMIT,
                       "%zu transitions between %zu experts of %zu layers; at most %d are summed",
                       transitions, experts, layers, INT_MAX);
    MP_TAKE(arena, choices->expert, layers * of_layer(choices));
    if (uses_transitions) {
        MP_TAKE_EACH(arena, transitions, choices->transitions, choices->sums);
    }
    for (size_t l = 0; uses_transitions && l + 1 < layers; l++) {
        MP_TAKE(arena, choices->load[l].next, experts * experts);
    }
    return mp_arena_check(arena, error);
}

void mp_choices_read(struct mp_choices *choices, int layer) {
    const struct mp_model *model = choices->model;
    size_t each = of_layer(choices);
    if (choices->expert && !choices->spans->validating)
        model->device->operations->copy_to_host(
            model->device, model->stream, choices->expert + (size_t)layer * each,
            model->state[layer].choice, each * sizeof *choices->expert);
}

void mp_choices_record(const struct mp_choices *choices, int layer) {
    const struct mp_spans *spans = choices->spans;
    size_t each = of_layer(choices);
    if (choices->records)
        mp_record_choices(spans->compute, *spans->iteration, layer, choices->experts,
                          choices->model->shape.top_k, (int64_t)each,
                          choices->expert + (size_t)layer * each);
}

int mp_choices_sum(struct mp_choices *choices, struct mp_error *error) {
    size_t each = of_layer(choices), transitions = transitions_of(choices);
    size_t experts = (size_t)choices->experts, cells = experts * experts;
    uint32_t *own = choices->transitions;
    double *sum = choices->sums;
    if (!own || transitions == 0)
        return MP_OK;
    memset(own, 0, transitions * sizeof *own);
    for (size_t l = 0; l + 1 < (size_t)choices->model->shape.layers; l++)
        mp_routes_transitions(choices->model->tokens, choices->model->shape.top_k, (int)experts,
                              choices->expert + l * each, choices->expert + (l + 1) * each,
                              own + l * cells);
    for (size_t i = 0; i < transitions; i++)
        sum[i] = own[i];
    int code = mp_comm_sum(choices->comm, sum, (int)transitions, error);
    for (size_t i = 0; i < transitions; i++)
        choices->load[i / cells].next[i % cells] = (uint32_t)sum[i];
    return code;
}
