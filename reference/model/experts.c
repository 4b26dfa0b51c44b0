#include "reference/model/experts.h"

#include <stdlib.h>
#include <string.h>

static float *chunks(struct mp_experts *experts, int count) {
    size_t bytes = (size_t)count * experts->chunk * sizeof(float);
    return experts->device->operations->allocate(experts->device, bytes ? bytes : 64);
}

static int fill(struct mp_experts *experts, const struct mp_model_shape *shape, uint64_t seed,
                const int32_t owner[], struct mp_error *error) {
    const struct mp_device_operations *operations = experts->device->operations;
    size_t bytes = experts->chunk * sizeof(float);
    float *host = malloc(bytes);
    if (!host)
        return mp_fail(error, MP_ENOMEM, "no memory to initialise an expert of %zu bytes", bytes);
    for (int i = 0; i < experts->layers * experts->experts; i++) {
        if (owner[i] != experts->rank)
            continue;
        int layer = i / experts->experts, expert = i % experts->experts;
        int slot = mp_experts_take(experts, layer, expert);
        if (slot < 0) {
            free(host);
            return mp_fail(error, MP_ELIMIT, "rank %d owns more than %d experts", experts->rank,
                           experts->slots);
        }
        mp_expert_initialise(shape, seed, layer, expert, host);
        operations->copy_from_host(experts->device, NULL,
                                   experts->parameter + (size_t)slot * experts->chunk, host, bytes);
    }
    free(host);
    size_t all = (size_t)experts->slots * bytes;
    operations->zero(experts->device, NULL, experts->gradient, all);
    operations->zero(experts->device, NULL, experts->first, all);
    operations->zero(experts->device, NULL, experts->second, all);
    return MP_OK;
}

int mp_experts_create(const struct mp_model_shape *shape, struct mp_device *device, uint64_t seed,
                      int rank, const int32_t owner[], int slots, int regions, int copies,
                      struct mp_experts *experts, struct mp_error *error) {
    size_t all = (size_t)shape->layers * (size_t)shape->experts;
    *experts = (struct mp_experts){.device = device,
                                   .rank = rank,
                                   .layers = shape->layers,
                                   .experts = shape->experts,
                                   .chunk = mp_model_expert_floats(shape),
                                   .slots = slots + 1,
                                   .regions = regions,
                                   .copies = copies};
    experts->slot = malloc(all * sizeof *experts->slot);
    experts->used = calloc((size_t)experts->slots, sizeof *experts->used);
    experts->parameter = chunks(experts, experts->slots);
    experts->gradient = chunks(experts, experts->slots);
    experts->first = chunks(experts, experts->slots);
    experts->second = chunks(experts, experts->slots);
    experts->copy_parameter = chunks(experts, regions * copies);
    experts->copy_gradient = chunks(experts, regions * copies);
    int code = MP_OK;
    if (!experts->slot || !experts->used || !experts->parameter || !experts->gradient ||
        !experts->first || !experts->second || !experts->copy_parameter || !experts->copy_gradient)
        code = mp_fail(error, MP_ENOMEM,
                       "no memory for %d owned experts and %d x %d copies of %zu bytes each",
                       experts->slots, regions, copies, experts->chunk * sizeof(float));
    if (!code) {
        for (size_t i = 0; i < all; i++)
            experts->slot[i] = -1;
        code = fill(experts, shape, seed, owner, error);
    }
    if (code)
        mp_experts_destroy(experts);
    return code;
}

void mp_experts_destroy(struct mp_experts *experts) {
    if (!experts || !experts->device)
        return;
    float *memory[] = {experts->parameter, experts->gradient,       experts->first,
                       experts->second,    experts->copy_parameter, experts->copy_gradient};
    for (size_t i = 0; i < sizeof memory / sizeof *memory; i++)
        experts->device->operations->release(experts->device, memory[i]);
    free(experts->slot);
    free(experts->used);
    *experts = (struct mp_experts){0};
}

int mp_experts_take(struct mp_experts *experts, int layer, int expert) {
    for (int slot = 0; slot < experts->slots; slot++) {
        if (experts->used[slot])
            continue;
        experts->used[slot] = true;
        experts->held++;
        experts->slot[layer * experts->experts + expert] = slot;
        return slot;
    }
    return -1;
}

void mp_experts_give(struct mp_experts *experts, int layer, int expert) {
    int32_t *slot = &experts->slot[layer * experts->experts + expert];
    experts->used[*slot] = false;
    experts->held--;
    *slot = -1;
}

int mp_experts_locate(const struct mp_experts *experts, const struct mp_plan *plan,
                      float *parameter[], float *gradient[], struct mp_error *error) {
    for (int e = 0; e < experts->experts; e++) {
        int32_t slot = experts->slot[plan->layer * experts->experts + e];
        parameter[e] = slot < 0 ? NULL : experts->parameter + (size_t)slot * experts->chunk;
        gradient[e] = slot < 0 ? NULL : experts->gradient + (size_t)slot * experts->chunk;
    }
    int region = plan->layer % experts->regions, copies = 0;
    for (int i = 0; i < plan->fetch.count; i++) {
        const struct mp_transfer *transfer = &plan->fetch.item[i];
        if (transfer->to != experts->rank || transfer->stage == MP_STAGE_BACKWARD_PREFETCH)
            continue;
        if (copies == experts->copies)
            return mp_fail(error, MP_ELIMIT,
                           "layer %d: the plan brings more than %d copies to rank %d, more than "
                           "the system announced",
                           plan->layer, experts->copies, experts->rank);
        size_t place =
            ((size_t)region * (size_t)experts->copies + (size_t)copies++) * experts->chunk;
        parameter[transfer->expert] = experts->copy_parameter + place;
        gradient[transfer->expert] = experts->copy_gradient + place;
    }
    return MP_OK;
}

void mp_experts_update(struct mp_experts *experts, mp_stream stream,
                       const struct mp_adamw *settings) {
    for (int slot = 0; slot < experts->slots; slot++) {
        if (!experts->used[slot])
            continue;
        size_t at = (size_t)slot * experts->chunk;
        experts->device->operations->adamw(experts->device, stream, experts->chunk, settings,
                                           experts->parameter + at, experts->gradient + at,
                                           experts->first + at, experts->second + at);
    }
}
