#include "reference/model/experts.h"

#include <stdlib.h>
#include <string.h>

/* Zeroed, so that what lies behind an expert's last element in its last slice stays zero. */
static void *zeroed(struct mp_experts *experts, size_t count, size_t size) {
    const struct mp_device_operations *operations = experts->device->operations;
    size_t bytes = count ? count * size : 64;
    void *memory = operations->allocate(experts->device, bytes);
    if (memory)
        operations->zero(experts->device, NULL, memory, bytes);
    return memory;
}

/* An expert's first parameters into its slot, or this rank's slice of them into its own. */
static int place(struct mp_experts *experts, const struct mp_placement home[], int layer,
                 int expert, const float *host, struct mp_error *error) {
    const struct mp_device_operations *operations = experts->device->operations;
    float *to = NULL;
    size_t begin = 0, count = experts->chunk;
    if (experts->slice) {
        begin = (size_t)experts->layout.rank * experts->slice;
        count = begin < experts->chunk ? experts->chunk - begin : 0;
        count = count < experts->slice ? count : experts->slice;
        to = mp_experts_own_slice(experts, experts->slice_parameter, layer, expert);
    } else if (mp_placement_holds(&home[layer], expert, experts->layout.rank)) {
        int slot = mp_experts_take(experts, layer, expert);
        if (slot < 0)
            return mp_fail(error, MP_ELIMIT, "rank %d keeps more than %d experts",
                           experts->layout.rank, experts->slots);
        to = experts->parameter + (size_t)slot * experts->chunk;
    }
    if (to && count)
        operations->copy_from_host(experts->device, NULL, to, host + begin, count * sizeof *host);
    return MP_OK;
}

static int fill(struct mp_experts *experts, const struct mp_model_shape *shape, uint64_t seed,
                const struct mp_placement home[], struct mp_error *error) {
    size_t bytes = experts->chunk * sizeof(float);
    float *host = malloc(bytes);
    int code = MP_OK;
    if (!host)
        return mp_fail(error, MP_ENOMEM, "no memory to initialise an expert of %zu bytes", bytes);
    for (int i = 0; i < experts->layers * experts->experts && !code; i++) {
        int layer = i / experts->experts, expert = i % experts->experts;
        if (!experts->slice && !mp_placement_holds(&home[layer], expert, experts->layout.rank))
            continue;
        mp_expert_initialise(shape, seed, layer, expert, host);
        code = place(experts, home, layer, expert, host, error);
    }
    free(host);
    return code;
}

static int allocate(struct mp_experts *experts, struct mp_error *error) {
    const struct mp_experts_layout *layout = &experts->layout;
    size_t all = (size_t)experts->layers * (size_t)experts->experts;
    size_t slots = (size_t)experts->slots * experts->chunk, slices = all * experts->slice;
    size_t copies = (size_t)layout->regions * (size_t)layout->copies * experts->copy_stride;
    size_t element = mp_element_bytes(experts->device);
    struct {
        float **memory;
        size_t count;
    } wanted[] = {{&experts->parameter, slots},       {&experts->gradient, slots},
                  {&experts->first, slots},           {&experts->second, slots},
                  {&experts->copy_gradient, copies},  {&experts->slice_parameter, slices},
                  {&experts->slice_gradient, slices}, {&experts->slice_first, slices},
                  {&experts->slice_second, slices}};
    bool failed = false;
    experts->slot = malloc(all * sizeof *experts->slot);
    experts->moments = malloc(all * sizeof *experts->moments);
    experts->used = calloc((size_t)experts->slots + 1, sizeof *experts->used);
    experts->used_moments = calloc((size_t)experts->slots + 1, sizeof *experts->used_moments);
    for (size_t i = 0; i < sizeof wanted / sizeof *wanted; i++) {
        *wanted[i].memory = zeroed(experts, wanted[i].count, sizeof(float));
        failed = failed || !*wanted[i].memory;
    }
    experts->copy_parameter = zeroed(experts, copies, element);
    bool apart = experts->device->element != MP_FLOAT32;
    experts->working = apart ? zeroed(experts, slots, element) : experts->parameter;
    experts->slice_working = apart ? zeroed(experts, slices, element) : experts->slice_parameter;
    failed = failed || !experts->copy_parameter || !experts->working || !experts->slice_working;
    if (failed || !experts->slot || !experts->moments || !experts->used || !experts->used_moments)
        return mp_fail(error, MP_ENOMEM,
                       "no memory for %d experts, %d x %d copies and %zu slices of experts of %zu "
                       "bytes each",
                       experts->slots, layout->regions, layout->copies, experts->slice ? all : 0,
                       experts->chunk * sizeof(float));
    for (size_t i = 0; i < all; i++)
        experts->slot[i] = experts->moments[i] = -1;
    return MP_OK;
}

int mp_experts_create(const struct mp_model_shape *shape, struct mp_device *device, uint64_t seed,
                      const struct mp_placement home[], const struct mp_experts_layout *layout,
                      struct mp_experts *experts, struct mp_error *error) {
    bool sliced = mp_optimizer_sliced(layout->optimizer);
    size_t ranks = (size_t)layout->ranks;
    *experts = (struct mp_experts){.device = device,
                                   .layout = *layout,
                                   .layers = shape->layers,
                                   .experts = shape->experts,
                                   .chunk = mp_model_expert_floats(shape),
                                   .slots = sliced ? 0 : layout->slots + 1};
    experts->slice = sliced ? (experts->chunk + ranks - 1) / ranks : 0;
    experts->copy_stride = sliced ? ranks * experts->slice : experts->chunk;
    int code = allocate(experts, error);
    if (!code)
        code = fill(experts, shape, seed, home, error);
    if (!code)
        mp_experts_refresh_all(experts, NULL);
    if (code)
        mp_experts_destroy(experts);
    return code;
}

void mp_experts_destroy(struct mp_experts *experts) {
    if (!experts || !experts->device)
        return;
    void *memory[] = {experts->parameter,
                      experts->gradient,
                      experts->first,
                      experts->second,
                      experts->copy_parameter,
                      experts->copy_gradient,
                      experts->slice_parameter,
                      experts->slice_gradient,
                      experts->slice_first,
                      experts->slice_second,
                      experts->working != experts->parameter ? experts->working : NULL,
                      experts->slice_working != experts->slice_parameter ? experts->slice_working
                                                                         : NULL};
    for (size_t i = 0; i < sizeof memory / sizeof *memory; i++)
        experts->device->operations->release(experts->device, memory[i]);
    free(experts->slot);
    free(experts->moments);
    free(experts->used);
    free(experts->used_moments);
    *experts = (struct mp_experts){0};
}

static int first_free(bool used[], int slots) {
    for (int slot = 0; slot < slots; slot++)
        if (!used[slot])
            return slot;
    return -1;
}

int mp_experts_take(struct mp_experts *experts, int layer, int expert) {
    int at = layer * experts->experts + expert;
    int slot = first_free(experts->used, experts->slots);
    int moments = first_free(experts->used_moments, experts->slots);
    if (slot < 0 || moments < 0)
        return -1;
    experts->used[slot] = experts->used_moments[moments] = true;
    experts->held++;
    experts->moments[at] = moments;
    return experts->slot[at] = slot;
}

void mp_experts_give(struct mp_experts *experts, int layer, int expert) {
    int at = layer * experts->experts + expert;
    experts->used[experts->slot[at]] = experts->used_moments[experts->moments[at]] = false;
    experts->held--;
    experts->slot[at] = experts->moments[at] = -1;
}

/* Finds the next place for a copy of a layer. */
static int locate_copy(const struct mp_experts *experts, int layer, int expert, int *copies,
                       void *parameter[], float *gradient[], struct mp_error *error) {
    const struct mp_experts_layout *layout = &experts->layout;
    size_t region = (size_t)(layer % layout->regions);
    if (*copies == layout->copies)
        return mp_fail(error, MP_ELIMIT,
                       "layer %d: the plan brings more than %d copies to rank %d, more than the "
                       "system announced",
                       layer, layout->copies, layout->rank);
    size_t at = (region * (size_t)layout->copies + (size_t)(*copies)++) * experts->copy_stride;
    parameter[expert] = mp_element_at(experts->device, experts->copy_parameter, at);
    gradient[expert] = experts->copy_gradient + at;
    return MP_OK;
}

int mp_experts_locate_held(const struct mp_experts *experts, int layer,
                           const struct mp_placement *placement, void *parameter[],
                           float *gradient[], struct mp_error *error) {
    int copies = 0, code = MP_OK;
    for (int e = 0; e < experts->experts && !code; e++) {
        parameter[e] = gradient[e] = NULL;
        if (mp_placement_holds(placement, e, experts->layout.rank))
            code = locate_copy(experts, layer, e, &copies, parameter, gradient, error);
    }
    return code;
}

int mp_experts_locate(const struct mp_experts *experts, const struct mp_plan *plan,
                      void *parameter[], float *gradient[], struct mp_error *error) {
    int copies = 0, code = MP_OK;
    if (experts->slice)
        return mp_experts_locate_held(experts, plan->layer, &plan->during, parameter, gradient,
                                      error);
    for (int e = 0; e < experts->experts; e++) {
        int32_t slot = experts->slot[plan->layer * experts->experts + e];
        parameter[e] = slot < 0 ? NULL
                                : mp_element_at(experts->device, experts->working,
                                                (size_t)slot * experts->chunk);
        gradient[e] = slot < 0 ? NULL : experts->gradient + (size_t)slot * experts->chunk;
    }
    for (int i = 0; i < plan->fetch.count && !code; i++) {
        const struct mp_transfer *transfer = &plan->fetch.item[i];
        if (transfer->to == experts->layout.rank && transfer->stage != MP_STAGE_BACKWARD_PREFETCH)
            code = locate_copy(experts, plan->layer, transfer->expert, &copies, parameter, gradient,
                               error);
    }
    return code;
}

bool mp_experts_state(const struct mp_experts *experts, int layer, int expert, float *state[3]) {
    int at = layer * experts->experts + expert;
    float *const whole[] = {experts->parameter, experts->first, experts->second};
    float *const slices[] = {experts->slice_parameter, experts->slice_first, experts->slice_second};
    const int32_t place[] = {experts->slot[at], experts->moments[at], experts->moments[at]};
    if (!experts->slice && experts->slot[at] < 0)
        return false;
    for (int i = 0; i < 3; i++)
        state[i] = experts->slice ? mp_experts_own_slice(experts, slices[i], layer, expert)
                                  : whole[i] + (size_t)place[i] * experts->chunk;
    return true;
}

void mp_experts_refresh(struct mp_experts *experts, mp_stream stream, int layer, int expert) {
    int32_t slot = experts->slot[layer * experts->experts + expert];
    if (slot < 0 || experts->working == experts->parameter)
        return;
    size_t at = (size_t)slot * experts->chunk;
    experts->device->operations->to_elements(experts->device, stream, experts->chunk,
                                             experts->parameter + at,
                                             mp_element_at(experts->device, experts->working, at));
}

void mp_experts_refresh_all(struct mp_experts *experts, mp_stream stream) {
    size_t all = (size_t)experts->layers * (size_t)experts->experts;
    for (int i = 0; i < (int)all; i++)
        mp_experts_refresh(experts, stream, i / experts->experts, i % experts->experts);
    if (experts->slice_working != experts->slice_parameter)
        experts->device->operations->to_elements(experts->device, stream, all * experts->slice,
                                                 experts->slice_parameter, experts->slice_working);
}

void mp_experts_update(struct mp_experts *experts, mp_stream stream,
                       const struct mp_adamw *settings) {
    const struct mp_device_operations *operations = experts->device->operations;
    int all = experts->layers * experts->experts;
    for (int i = 0; i < all; i++) {
        if (experts->slot[i] < 0)
            continue;
        size_t at = (size_t)experts->slot[i] * experts->chunk;
        size_t moments = (size_t)experts->moments[i] * experts->chunk;
        operations->adamw(experts->device, stream, experts->chunk, settings,
                          experts->parameter + at, experts->gradient + at, experts->first + moments,
                          experts->second + moments,
                          mp_element_at(experts->device, experts->working, at));
    }
    if (experts->slice)
        operations->adamw(experts->device, stream, (size_t)all * experts->slice, settings,
                          experts->slice_parameter, experts->slice_gradient, experts->slice_first,
                          experts->slice_second, experts->slice_working);
}
