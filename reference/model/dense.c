/* Non-expert parameters: layout, initial values, update. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "reference/base/random.h"
#include "reference/model/model.h"

enum { TENSORS_PER_BLOCK = 7 }; /* and those of a shared expert and a gate's bias, if it has any */
static const float INITIAL_DEVIATION = 0.02f;

/* Of a whole expert. */
static int64_t expert_floats(const struct mp_model_shape *shape) {
    return mp_model_shards(shape) * (int64_t)mp_model_expert_floats(shape);
}

int64_t mp_model_parameters(const struct mp_model_shape *shape) {
    int64_t d = shape->width, l = shape->layers;
    int64_t block = 4 * d + 4 * d * d + d * shape->experts + 2 * d * shape->shared_width;
    int64_t experts = shape->experts * expert_floats(shape);
    return l * (block + experts) + 2 * d + (mp_model_positions(shape) + MP_VOCABULARY) * d;
}

int64_t mp_model_active_parameters(const struct mp_model_shape *shape) {
    int64_t idle = shape->experts - shape->top_k;
    return mp_model_parameters(shape) - shape->layers * idle * expert_floats(shape);
}

int64_t mp_model_iteration_flops(const struct mp_model_shape *shape, int64_t tokens) {
    int64_t d = shape->width;
    int64_t block = 4 * d * d + d * shape->experts + 2 * d * shape->shared_width +
                    shape->top_k * expert_floats(shape);
    int64_t matrices = shape->layers * block + MP_VOCABULARY * d;
    /* Scores and their use: 2 * 2 * S / 2 * D per token forward, twice that backward. */
    if (shape->serves)
        return tokens * shape->layers *
                   (2 * block + (4 * (int64_t)shape->context + 2 * (int64_t)shape->sequence) * d) +
               tokens / shape->sequence * 2 * MP_VOCABULARY * d;
    int64_t attention = shape->layers * 6 * (int64_t)shape->sequence * d;
    return tokens * (6 * matrices + attention);
}

struct layout {
    struct mp_dense *dense;
    size_t offset;
};

static void place(struct layout *layout, const char *prefix, const char *name, size_t count,
                  float deviation, bool decays) {
    struct mp_tensor *tensor = &layout->dense->tensor[layout->dense->tensors++];
    snprintf(tensor->name, sizeof tensor->name, "%s%s", prefix, name);
    tensor->offset = layout->offset;
    tensor->count = count;
    tensor->deviation = deviation;
    tensor->decays = decays;
    layout->offset += (count + 15) / 16 * 16; /* each tensor starts on a cache line */
}

static void place_all(const struct mp_model_shape *shape, struct mp_dense *dense) {
    struct layout layout = {dense, 0};
    size_t d = (size_t)shape->width;
    float residual = INITIAL_DEVIATION / sqrtf(2.0f * (float)shape->layers);
    for (int l = 0; l < shape->layers; l++) {
        char prefix[24];
        snprintf(prefix, sizeof prefix, "layer.%d.", l);
        dense->bucket[l] = layout.offset;
        place(&layout, prefix, "ln1_gain", d, 0, false);
        place(&layout, prefix, "ln1_bias", d, 0, false);
        place(&layout, prefix, "qkv", d * 3 * d, INITIAL_DEVIATION, true);
        place(&layout, prefix, "out", d * d, residual, true);
        place(&layout, prefix, "ln2_gain", d, 0, false);
        place(&layout, prefix, "ln2_bias", d, 0, false);
        place(&layout, prefix, "gate", d * (size_t)shape->experts, INITIAL_DEVIATION, true);
        if (dense->shared) {
            size_t count = d * (size_t)shape->shared_width;
            place(&layout, prefix, "shared1", count, INITIAL_DEVIATION, true);
            place(&layout, prefix, "shared2", count, residual, true);
        }
        if (dense->gate_bias)
            place(&layout, prefix, "gate_bias", (size_t)shape->experts, 0, false);
    }
    dense->bucket[shape->layers] = layout.offset;
    place(&layout, "", "final_gain", d, 0, false);
    place(&layout, "", "final_bias", d, 0, false);
    place(&layout, "", "position_table", (size_t)mp_model_positions(shape) * d, INITIAL_DEVIATION,
          true);
    place(&layout, "", "token_table", MP_VOCABULARY * d, INITIAL_DEVIATION, true);
    dense->bucket[shape->layers + 1] = layout.offset;
    dense->count = layout.offset;
}

static void initialise(struct mp_dense *dense, uint64_t seed, float *host) {
    memset(host, 0, dense->count * sizeof *host);
    for (int i = 0; i < dense->tensors; i++) {
        const struct mp_tensor *tensor = &dense->tensor[i];
        size_t length = strlen(tensor->name);
        if (tensor->deviation > 0)
            mp_random_normal(seed, (uint64_t)i, tensor->deviation, tensor->count,
                             host + tensor->offset);
        else if (length > 4 && strcmp(tensor->name + length - 4, "gain") == 0)
            for (size_t j = 0; j < tensor->count; j++)
                host[tensor->offset + j] = 1;
    }
}

/* Buffers with the first values. */
static int fill(const struct mp_model_shape *shape, uint64_t seed, struct mp_dense *dense,
                struct mp_error *error) {
    struct mp_device *device = dense->device;
    const struct mp_device_operations *operations = device->operations;
    int64_t count = (int64_t)dense->count;
    size_t bytes = dense->count * sizeof(float);
    float *host = malloc(bytes);
    float **buffer[] = {&dense->parameter, &dense->gradient, &dense->first, &dense->second};
    int buffers = shape->serves ? 1 : 4, code = MP_OK;
    for (int i = 0; i < buffers; i++)
        *buffer[i] = mp_device_take(&dense->memory, count, sizeof(float));
    dense->working = device->element == MP_FLOAT32
                         ? dense->parameter
                         : mp_device_take(&dense->memory, count, mp_element_bytes(device));
    if (dense->memory.lacking || !host) {
        code = mp_fail(error, MP_ENOMEM, "no memory for %zu non-expert parameters and their state",
                       dense->count);
    } else {
        initialise(dense, seed, host);
        operations->copy_from_host(device, NULL, dense->parameter, host, bytes);
        mp_dense_refresh(dense, NULL);
        for (int i = 1; i < buffers; i++)
            operations->zero(device, NULL, *buffer[i], bytes);
    }
    free(host);
    return code;
}

int mp_dense_create(const struct mp_model_shape *shape, struct mp_device *device, uint64_t seed,
                    struct mp_dense *dense, struct mp_error *error) {
    bool shares = shape->shared_width > 0, has_bias = shape->gate.bias_rate > 0;
    int own = TENSORS_PER_BLOCK + (shares ? 2 : 0), per_block = own + has_bias;
    *dense = (struct mp_dense){.device = device,
                               .memory = {.device = device},
                               .per_block = per_block,
                               .shared = shares ? TENSORS_PER_BLOCK : 0,
                               .gate_bias = has_bias ? own : 0};
    MP_TAKE(&dense->arena, dense->tensor, shape->layers * per_block + MP_COMMON_TENSORS);
    MP_TAKE(&dense->arena, dense->bucket, shape->layers + 2);
    int code = mp_arena_check(&dense->arena, error);
    if (!code) {
        place_all(shape, dense);
        code = fill(shape, seed, dense, error);
    }
    if (code)
        mp_dense_destroy(dense);
    return code;
}

void mp_dense_destroy(struct mp_dense *dense) {
    if (!dense)
        return;
    mp_device_memory_release(&dense->memory);
    mp_arena_release(&dense->arena);
    *dense = (struct mp_dense){0};
}

struct mp_block_tensors mp_dense_block(const struct mp_dense *dense, float *buffer, int layer) {
    const struct mp_tensor *tensor = &dense->tensor[layer * dense->per_block];
    return (struct mp_block_tensors){
        .norm1_gain = buffer + tensor[0].offset,
        .norm1_bias = buffer + tensor[1].offset,
        .qkv = buffer + tensor[2].offset,
        .out = buffer + tensor[3].offset,
        .norm2_gain = buffer + tensor[4].offset,
        .norm2_bias = buffer + tensor[5].offset,
        .gate = buffer + tensor[6].offset,
        .shared1 = dense->shared ? buffer + tensor[dense->shared].offset : NULL,
        .shared2 = dense->shared ? buffer + tensor[dense->shared + 1].offset : NULL,
        .gate_bias = dense->gate_bias ? buffer + tensor[dense->gate_bias].offset : NULL,
    };
}

static const void *matrix_of(const struct mp_dense *dense, int layer, int place) {
    const struct mp_tensor *tensor = &dense->tensor[layer * dense->per_block + place];
    return mp_element_at(dense->device, dense->working, tensor->offset);
}

struct mp_block_matrices mp_dense_matrices(const struct mp_dense *dense, int layer) {
    return (struct mp_block_matrices){
        .qkv = matrix_of(dense, layer, 2),
        .out = matrix_of(dense, layer, 3),
        .gate = matrix_of(dense, layer, 6),
        .shared1 = dense->shared ? matrix_of(dense, layer, dense->shared) : NULL,
        .shared2 = dense->shared ? matrix_of(dense, layer, dense->shared + 1) : NULL,
    };
}

const void *mp_dense_token_table(const struct mp_dense *dense) {
    const struct mp_tensor *tensor = &dense->tensor[dense->tensors - MP_COMMON_TENSORS];
    return mp_element_at(dense->device, dense->working, tensor[MP_TOKEN_TABLE].offset);
}

void mp_dense_refresh(struct mp_dense *dense, mp_stream stream) {
    if (dense->working != dense->parameter)
        dense->device->operations->to_elements(dense->device, stream, dense->count,
                                               dense->parameter, dense->working);
}

const struct mp_tensor *mp_dense_find(const struct mp_dense *dense, const char *name) {
    for (int i = 0; i < dense->tensors; i++)
        if (strcmp(dense->tensor[i].name, name) == 0)
            return &dense->tensor[i];
    return NULL;
}

float *mp_dense_common(const struct mp_dense *dense, float *buffer, enum mp_common_tensor which) {
    return buffer + dense->tensor[dense->tensors - MP_COMMON_TENSORS + (int)which].offset;
}

/* Tensors that decay alike in one call: zeros between them stay zeros. */
void mp_dense_update(struct mp_dense *dense, mp_stream stream, const struct mp_adamw *settings) {
    for (int i = 0, end; i < dense->tensors; i = end) {
        const struct mp_tensor *first = &dense->tensor[i], *last = first;
        struct mp_adamw own = *settings;
        for (end = i + 1; end < dense->tensors && dense->tensor[end].decays == first->decays; end++)
            last = &dense->tensor[end];
        if (!first->decays)
            own.weight_decay = 0;
        dense->device->operations->adamw(
            dense->device, stream, last->offset + last->count - first->offset, &own,
            dense->parameter + first->offset, dense->gradient + first->offset,
            dense->first + first->offset, dense->second + first->offset,
            mp_element_at(dense->device, dense->working, first->offset));
    }
}

void mp_expert_initialise(const struct mp_model_shape *shape, uint64_t seed, int layer, int expert,
                          float *chunk) {
    size_t d = (size_t)shape->width, f = (size_t)mp_model_shard_width(shape);
    size_t experts = (size_t)shape->experts, shard = (size_t)expert / experts;
    /* Streams of experts start far above those of the non-expert tensors. */
    uint64_t stream =
        (UINT64_C(1) << 32) + 2 * ((uint64_t)layer * experts + (size_t)expert % experts);
    mp_random_normal_rows(seed, stream, INITIAL_DEVIATION, shard * f, (size_t)shape->expert_width,
                          d, f, chunk);
    mp_random_normal_rows(seed, stream + 1, INITIAL_DEVIATION / sqrtf(2.0f * (float)shape->layers),
                          shard * f * d, f * d, 1, f * d, chunk + d * f);
}
