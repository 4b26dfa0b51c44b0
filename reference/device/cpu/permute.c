/* Moving token rows to the experts' order and back. */
#include "reference/device/cpu/cpu.h"

#include <string.h>

struct copy_arguments {
    size_t width;
    const float *in;
    const int32_t *index;
    float *out;
};

static void gather_range(const void *argument, size_t begin, size_t end) {
    const struct copy_arguments *a = argument;
    for (size_t row = begin; row < end; row++) {
        float *out = a->out + row * a->width;
        if (a->index[row] < 0)
            memset(out, 0, a->width * sizeof *out);
        else
            memcpy(out, a->in + (size_t)a->index[row] * a->width, a->width * sizeof *out);
    }
}

static void scatter_range(const void *argument, size_t begin, size_t end) {
    const struct copy_arguments *a = argument;
    for (size_t row = begin; row < end; row++)
        memcpy(a->out + (size_t)a->index[row] * a->width, a->in + row * a->width,
               a->width * sizeof(float));
}

static void copy_rows(struct mp_device *device, mp_cpu_range *range, int rows, int width,
                      const void *in, const int32_t *index, void *out) {
    struct copy_arguments arguments = {(size_t)width, in, index, out};
    mp_cpu_parallel(mp_cpu_of(device), (size_t)rows, mp_cpu_grain(arguments.width), range,
                    &arguments);
}

static void gather_rows(struct mp_device *device, mp_stream stream, int rows, int width,
                        const void *in, const int32_t *index, void *out) {
    (void)stream;
    copy_rows(device, gather_range, rows, width, in, index, out);
}

static void scatter_rows(struct mp_device *device, mp_stream stream, int rows, int width,
                         const void *in, const int32_t *index, void *out) {
    (void)stream;
    copy_rows(device, scatter_range, rows, width, in, index, out);
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
    size_t begin, end; /* backward: of a token's routes, those that are handed out */
    bool shared;
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

static void combine_forward_range(const void *argument, size_t begin, size_t end) {
    for (size_t token = begin; token < end; token++)
        combine_token(argument, token);
}

static void combine_forward(struct mp_device *device, mp_stream stream, int tokens, int top_k,
                            int width, const void *in, const int32_t *position, const float *weight,
                            const void *residual, void *out) {
    (void)stream;
    struct combine_arguments arguments = {.top_k = (size_t)top_k,
                                          .width = (size_t)width,
                                          .in = in,
                                          .position = position,
                                          .weight = weight,
                                          .residual = residual,
                                          .out = out};
    mp_cpu_parallel(mp_cpu_of(device), (size_t)tokens,
                    mp_cpu_grain(arguments.width * arguments.top_k), combine_forward_range,
                    &arguments);
}

/* Reads in[i] before it writes din[i], or adds to it: the two may be one array. */
static inline __attribute__((always_inline)) float scale_row(size_t width, const float *in,
                                                             float weight, const float *dout,
                                                             bool add, float *din) {
    float product = 0;
#pragma omp simd reduction(+ : product)
    for (size_t i = 0; i < width; i++) {
        product += in[i] * dout[i];
        din[i] = add ? din[i] + weight * dout[i] : weight * dout[i];
    }
    return product;
}

static void combine_backward_range(const void *argument, size_t begin, size_t end) {
    const struct combine_arguments *a = argument;
    for (size_t token = begin; token < end; token++) {
        const float *dout = a->dout + token * a->width;
        for (size_t route = token * a->top_k + a->begin; route < token * a->top_k + a->end;
             route++) {
            float product = 0;
            if (a->position[route] >= 0) {
                size_t first = (size_t)a->position[route] * a->width;
                const float *in = a->in + first;
                float weight = a->weight ? a->weight[route] : 1, *din = a->out + first;
                product = a->shared ? scale_row(a->width, in, weight, dout, true, din)
                                    : scale_row(a->width, in, weight, dout, false, din);
            }
            a->dweight[route] = product;
        }
    }
}

static void combine_backward(struct mp_device *device, mp_stream stream, int tokens, int top_k,
                             int width, const void *in, const int32_t *position,
                             const float *weight, const void *dout, bool shared, void *din,
                             float *dweight) {
    (void)stream;
    struct combine_arguments arguments = {.top_k = (size_t)top_k,
                                          .width = (size_t)width,
                                          .in = in,
                                          .position = position,
                                          .weight = weight,
                                          .dout = dout,
                                          .out = din,
                                          .dweight = dweight,
                                          .shared = shared};
    /* Shared rows one choice after the other: within one, no two threads meet in a row. */
    size_t at_once = shared ? 1 : arguments.top_k;
    for (; arguments.begin < arguments.top_k; arguments.begin = arguments.end) {
        arguments.end = arguments.begin + at_once;
        mp_cpu_parallel(mp_cpu_of(device), (size_t)tokens, mp_cpu_grain(arguments.width * at_once),
                        combine_backward_range, &arguments);
    }
}

struct one_hot_arguments {
    size_t tokens, top_k;
    const int32_t *position;
    const float *weight;
    const float *dmatrix;
    float *out; /* the matrix, or dweight */
};

static void each_route(struct mp_device *device, mp_cpu_range *range,
                       const struct one_hot_arguments *a) {
    mp_cpu_parallel(mp_cpu_of(device), a->tokens * a->top_k, mp_cpu_grain(1), range, a);
}

static void one_hot_range(const void *argument, size_t begin, size_t end) {
    const struct one_hot_arguments *a = argument;
    for (size_t route = begin; route < end; route++)
        if (a->position[route] >= 0)
            a->out[(size_t)a->position[route] * a->tokens + route / a->top_k] =
                a->weight ? a->weight[route] : 1;
}

static void one_hot(struct mp_device *device, mp_stream stream, int tokens, int top_k,
                    const int32_t *position, const float *weight, void *matrix) {
    (void)stream;
    each_route(device, one_hot_range,
               &(struct one_hot_arguments){(size_t)tokens, (size_t)top_k, position,
                                           .weight = weight, .out = matrix});
}

static void one_hot_gradient_range(const void *argument, size_t begin, size_t end) {
    const struct one_hot_arguments *a = argument;
    for (size_t route = begin; route < end; route++)
        a->out[route] = a->position[route] < 0
                            ? 0
                            : a->dmatrix[(size_t)a->position[route] * a->tokens + route / a->top_k];
}

static void one_hot_gradient(struct mp_device *device, mp_stream stream, int tokens, int top_k,
                             const int32_t *position, const float *dmatrix, float *dweight) {
    (void)stream;
    each_route(device, one_hot_gradient_range,
               &(struct one_hot_arguments){(size_t)tokens, (size_t)top_k, position,
                                           .dmatrix = dmatrix, .out = dweight});
}

void MP_CPU_NAME(install_permute)(struct mp_device_operations *operations) {
    operations->gather_rows = gather_rows;
    operations->scatter_rows = scatter_rows;
    operations->combine_forward = combine_forward;
    operations->combine_backward = combine_backward;
    operations->one_hot = one_hot;
    operations->one_hot_gradient = one_hot_gradient;
}
