/* Moving token rows to the experts' order and back. */
#include "reference/device/cpu/cpu.h"

#include <string.h>

enum { GRAIN_ELEMENTS = 16384 };

static size_t grain_rows(int width) {
    return (size_t)(GRAIN_ELEMENTS / (width > 0 ? width : 1) + 1);
}

/* Serial: routes of one expert depend on each other's order, and it is a few operations each. */
static void route_positions(struct mp_device *device, mp_stream stream, int tokens, int top_k,
                            int experts, const int32_t *choice, const int *part_begin,
                            const int *part_count, const int *part_row, int32_t *position,
                            int32_t *row_token) {
    (void)stream;
    struct mp_cpu *cpu = mp_cpu_of(device);
    if (experts > cpu->limits.experts) {
        mp_fail(&device->error, MP_ELIMIT,
                "route positions of %d experts: the device was created for up to %d", experts,
                cpu->limits.experts);
        return;
    }
    int32_t *part = cpu->expert_state;           /* [experts] the part that takes the next route */
    int32_t *taken = part + cpu->limits.experts; /* [experts] routes it has taken */
    memcpy(part, part_begin, (size_t)experts * sizeof *part);
    memset(taken, 0, (size_t)experts * sizeof *taken);

    for (int token = 0; token < tokens; token++) {
        for (int j = 0; j < top_k; j++) {
            size_t route = (size_t)token * (size_t)top_k + (size_t)j;
            int32_t expert = choice[route];
            while (part[expert] < part_begin[expert + 1] &&
                   taken[expert] == part_count[part[expert]]) {
                part[expert]++;
                taken[expert] = 0;
            }
            if (part[expert] == part_begin[expert + 1]) {
                position[route] = -1;
                continue;
            }
            int32_t row = part_row[part[expert]] + taken[expert]++;
            position[route] = row;
            row_token[row] = token;
        }
    }
}

struct copy_arguments {
    size_t width;
    const float *in;
    const int32_t *index;
    float *out;
};

static void gather_range(const void *argument, size_t begin, size_t end, int thread) {
    const struct copy_arguments *a = argument;
    (void)thread;
    for (size_t row = begin; row < end; row++)
        memcpy(a->out + row * a->width, a->in + (size_t)a->index[row] * a->width,
               a->width * sizeof(float));
}

static void gather_rows(struct mp_device *device, mp_stream stream, int rows, int width,
                        const float *in, const int32_t *index, float *out) {
    (void)stream;
    struct copy_arguments arguments = {(size_t)width, in, index, out};
    mp_cpu_parallel(mp_cpu_of(device), (size_t)rows, grain_rows(width), gather_range, &arguments);
}

static void scatter_range(const void *argument, size_t begin, size_t end, int thread) {
    const struct copy_arguments *a = argument;
    (void)thread;
    for (size_t row = begin; row < end; row++)
        memcpy(a->out + (size_t)a->index[row] * a->width, a->in + row * a->width,
               a->width * sizeof(float));
}

static void scatter_rows(struct mp_device *device, mp_stream stream, int rows, int width,
                         const float *in, const int32_t *index, float *out) {
    (void)stream;
    struct copy_arguments arguments = {(size_t)width, in, index, out};
    mp_cpu_parallel(mp_cpu_of(device), (size_t)rows, grain_rows(width), scatter_range, &arguments);
}

struct combine_arguments {
    size_t top_k, width;
    const float *in;
    const int32_t *position;
    const float *weight;
    const float *residual;
    const float *dout;
    float *out;
    float *dweight;
};

/* out = start + weight * row; `start` may be `out`. */
static void add_row(size_t width, const float *start, float weight, const float *row, float *out) {
#pragma omp simd
    for (size_t i = 0; i < width; i++)
        out[i] = start[i] + weight * row[i];
}

static void add_two_rows(size_t width, const float *start, float weight, const float *row,
                         float other_weight, const float *other, float *out) {
#pragma omp simd
    for (size_t i = 0; i < width; i++)
        out[i] = start[i] + weight * row[i] + other_weight * other[i];
}

/* Routes are added two at a time, which for the common top-2 is one pass over the row. */
static void combine_token(const struct combine_arguments *a, size_t token) {
    float *out = a->out + token * a->width;
    const float *start = a->residual ? a->residual + token * a->width : NULL;
    const float *waiting = NULL;
    float waiting_weight = 0;
    if (!start) {
        memset(out, 0, a->width * sizeof *out);
        start = out;
    }
    for (size_t route = token * a->top_k; route < (token + 1) * a->top_k; route++) {
        if (a->position[route] < 0)
            continue;
        const float *row = a->in + (size_t)a->position[route] * a->width;
        float weight = a->weight ? a->weight[route] : 1;
        if (waiting) {
            add_two_rows(a->width, start, waiting_weight, waiting, weight, row, out);
            start = out;
            waiting = NULL;
        } else {
            waiting = row;
            waiting_weight = weight;
        }
    }
    if (waiting)
        add_row(a->width, start, waiting_weight, waiting, out);
    else if (start != out)
        memcpy(out, start, a->width * sizeof *out);
}

static void combine_forward_range(const void *argument, size_t begin, size_t end, int thread) {
    (void)thread;
    for (size_t token = begin; token < end; token++)
        combine_token(argument, token);
}

static void combine_forward(struct mp_device *device, mp_stream stream, int tokens, int top_k,
                            int width, const float *in, const int32_t *position,
                            const float *weight, const float *residual, float *out) {
    (void)stream;
    struct combine_arguments arguments = {.top_k = (size_t)top_k,
                                          .width = (size_t)width,
                                          .in = in,
                                          .position = position,
                                          .weight = weight,
                                          .residual = residual,
                                          .out = out};
    mp_cpu_parallel(mp_cpu_of(device), (size_t)tokens, grain_rows(width * top_k),
                    combine_forward_range, &arguments);
}

/* Reads in[i] before it writes din[i]: the two may be one array. */
static float scale_row(size_t width, const float *in, float weight, const float *dout, float *din) {
    float product = 0;
#pragma omp simd reduction(+ : product)
    for (size_t i = 0; i < width; i++) {
        product += in[i] * dout[i];
        din[i] = weight * dout[i];
    }
    return product;
}

static void combine_backward_range(const void *argument, size_t begin, size_t end, int thread) {
    const struct combine_arguments *a = argument;
    (void)thread;
    for (size_t token = begin; token < end; token++) {
        for (size_t route = token * a->top_k; route < (token + 1) * a->top_k; route++) {
            float product = 0;
            if (a->position[route] >= 0) {
                size_t first = (size_t)a->position[route] * a->width;
                product = scale_row(a->width, a->in + first, a->weight ? a->weight[route] : 1,
                                    a->dout + token * a->width, a->out + first);
            }
            a->dweight[route] = product;
        }
    }
}

static void combine_backward(struct mp_device *device, mp_stream stream, int tokens, int top_k,
                             int width, const float *in, const int32_t *position,
                             const float *weight, const float *dout, float *din, float *dweight) {
    (void)stream;
    struct combine_arguments arguments = {.top_k = (size_t)top_k,
                                          .width = (size_t)width,
                                          .in = in,
                                          .position = position,
                                          .weight = weight,
                                          .dout = dout,
                                          .out = din,
                                          .dweight = dweight};
    mp_cpu_parallel(mp_cpu_of(device), (size_t)tokens, grain_rows(width * top_k),
                    combine_backward_range, &arguments);
}

void MP_CPU_NAME(install_permute)(struct mp_device_operations *operations) {
    operations->route_positions = route_positions;
    operations->gather_rows = gather_rows;
    operations->scatter_rows = scatter_rows;
    operations->combine_forward = combine_forward;
    operations->combine_backward = combine_backward;
}
