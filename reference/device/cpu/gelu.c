/* GELU, tanh form.  With w = 2 sqrt(2/pi) (x + 0.044715 x^3) it is x / (1 + e^-w): one exponential,
 * one division, and no cancellation for negative x. */
#include "reference/device/cpu/cpu.h"
#include "reference/device/cpu/vector.h"

/* w = SLOPE x + CUBIC x^3; the exponent of two is -w log2(e). */
#define SLOPE 1.5957691216f
#define CUBIC (SLOPE * 0.044715f)
#define LOG2_E 1.44269504f

/* Beyond +-9.9 the function is 0 or x and its derivative 0 or 1 to all digits, while e^-w would
 * soon overflow. */
static inline float bounded(float x) {
    x = x < -9.9f ? -9.9f : x;
    return x > 9.9f ? 9.9f : x;
}

/* e^-w, for a bounded x. */
static inline float closing(float x) {
    return vector_exp2(x * (-SLOPE * LOG2_E - CUBIC * LOG2_E * (x * x)));
}

struct arguments {
    const float *x;
    const float *dy;
    float *dx;
    float *y;
};

static void forward_range(const void *argument, size_t begin, size_t end) {
    const struct arguments *arguments = argument;
    const float *x = arguments->x;
    float *y = arguments->y;
#pragma omp simd
    for (size_t i = begin; i < end; i++) {
        float v = x[i];
        y[i] = v / (1.0f + closing(bounded(v)));
    }
}

static void gelu_forward(struct mp_device *device, mp_stream stream, size_t count, const void *x,
                         void *y) {
    (void)stream;
    struct arguments arguments = {.x = x, .y = y};
    mp_cpu_parallel(mp_cpu_of(device), count, mp_cpu_grain(1), forward_range, &arguments);
}

/* With e = e^-w and s = 1 / (1 + e): gelu = x s, gelu' = s + x s (1 - s) w', and 1 - s = e s. */
static inline float derivative(float x, float e, float s) {
    return s + x * (SLOPE + 3.0f * CUBIC * (x * x)) * (e * s * s);
}

static inline __attribute__((always_inline)) void backward(const struct arguments *arguments,
                                                           size_t begin, size_t end, bool value) {
    const float *x = arguments->x, *dy = arguments->dy;
    float *dx = arguments->dx, *y = arguments->y;
#pragma omp simd
    for (size_t i = begin; i < end; i++) {
        float v = x[i];
        float b = bounded(v);
        float e = closing(b);
        float s = 1.0f / (1.0f + e);
        dx[i] = dy[i] * derivative(b, e, s);
        if (value)
            y[i] = v * s;
    }
}

static void backward_range(const void *argument, size_t begin, size_t end) {
    backward(argument, begin, end, false);
}

static void backward_and_value_range(const void *argument, size_t begin, size_t end) {
    backward(argument, begin, end, true);
}

static void gelu_backward(struct mp_device *device, mp_stream stream, size_t count, const void *x,
                          const void *dy, void *dx, void *y) {
    (void)stream;
    struct arguments arguments = {x, dy, dx, y};
    mp_cpu_parallel(mp_cpu_of(device), count, mp_cpu_grain(1),
                    y ? backward_and_value_range : backward_range, &arguments);
}

void MP_CPU_NAME(install_gelu)(struct mp_device_operations *operations) {
    operations->gelu_forward = gelu_forward;
    operations->gelu_backward = gelu_backward;
}
