/* GELU, tanh form, written with the sigmoid: (1 + tanh u) / 2 = sigmoid(2u).  One exponential and
 * one division, and no cancellation for negative x. */
#include "reference/device/cpu/cpu.h"
#include "reference/device/cpu/vector.h"

enum { GRAIN = 16384 }; /* elements that are worth a thread */

#define SLOPE 1.5957691216f /* 2 sqrt(2 / pi) */
#define CUBIC 0.044715f

/* Beyond +-16 nothing changes any more, while the cubes and squares would overflow for large x. */
static inline float bounded(float x) {
    x = x < -16.0f ? -16.0f : x;
    return x > 16.0f ? 16.0f : x;
}

static inline float opening(float x) {
    float b = bounded(x);
    return vector_sigmoid(SLOPE * b * (1.0f + CUBIC * b * b));
}

struct arguments {
    const float *x;
    const float *dy;
    float *dx;
    float *y;
};

static void forward_range(const void *argument, size_t begin, size_t end, int thread) {
    const struct arguments *arguments = argument;
    const float *x = arguments->x;
    float *y = arguments->y;
    (void)thread;
#pragma omp simd
    for (size_t i = begin; i < end; i++) {
        float v = x[i];
        y[i] = v * opening(v);
    }
}

static void gelu_forward(struct mp_device *device, mp_stream stream, size_t count, const float *x,
                         float *y) {
    (void)stream;
    struct arguments arguments = {.x = x, .y = y};
    mp_cpu_parallel(mp_cpu_of(device), count, GRAIN, forward_range, &arguments);
}

/* With s = sigmoid(w(x)): gelu = x s, gelu' = s + x s (1 - s) w'. */
static inline float derivative(float v, float s) {
    float b = bounded(v);
    return s + b * s * (1.0f - s) * (SLOPE * (1.0f + 3.0f * CUBIC * b * b));
}

static void backward_range(const void *argument, size_t begin, size_t end, int thread) {
    const struct arguments *arguments = argument;
    const float *x = arguments->x, *dy = arguments->dy;
    float *dx = arguments->dx;
    (void)thread;
#pragma omp simd
    for (size_t i = begin; i < end; i++) {
        float v = x[i];
        float s = opening(v);
        dx[i] = dy[i] * derivative(v, s);
    }
}

static void backward_and_value_range(const void *argument, size_t begin, size_t end, int thread) {
    const struct arguments *arguments = argument;
    const float *x = arguments->x, *dy = arguments->dy;
    float *dx = arguments->dx, *y = arguments->y;
    (void)thread;
#pragma omp simd
    for (size_t i = begin; i < end; i++) {
        float v = x[i];
        float s = opening(v);
        dx[i] = dy[i] * derivative(v, s);
        y[i] = v * s;
    }
}

static void gelu_backward(struct mp_device *device, mp_stream stream, size_t count, const float *x,
                          const float *dy, float *dx, float *y) {
    (void)stream;
    struct arguments arguments = {x, dy, dx, y};
    mp_cpu_parallel(mp_cpu_of(device), count, GRAIN, y ? backward_and_value_range : backward_range,
                    &arguments);
}

void MP_CPU_NAME(install_gelu)(struct mp_device_operations *operations) {
    operations->gelu_forward = gelu_forward;
    operations->gelu_backward = gelu_backward;
}
