/* LayerNorm over rows.  A row stays in the first-level cache, so that several passes over it cost
 * little beside fetching it; the variance is taken around the mean, not from the squares' sum. */
#include "reference/device/cpu/cpu.h"

#include <math.h>
#include <string.h>

struct arguments {
    struct mp_cpu *cpu;
    size_t width;
    const float *x, *gain, *bias, *dy;
    float *y, *mean, *rstd, *dx;
};

static void forward_row(size_t width, const float *restrict x, const float *restrict gain,
                        const float *restrict bias, float *restrict y, float *mean, float *rstd) {
    float sum = 0, squares = 0;
#pragma omp simd reduction(+ : sum)
    for (size_t i = 0; i < width; i++)
        sum += x[i];
    float center = sum / (float)width;
#pragma omp simd reduction(+ : squares)
    for (size_t i = 0; i < width; i++)
        squares += (x[i] - center) * (x[i] - center);
    float scale = 1.0f / sqrtf(squares / (float)width + 1e-5f);
    for (size_t i = 0; i < width; i++)
        y[i] = (x[i] - center) * scale * gain[i] + bias[i];
    *mean = center;
    *rstd = scale;
}

static void forward_range(const void *argument, size_t begin, size_t end) {
    const struct arguments *a = argument;
    for (size_t row = begin; row < end; row++)
        forward_row(a->width, a->x + row * a->width, a->gain, a->bias, a->y + row * a->width,
                    a->mean + row, a->rstd + row);
}

static void layer_norm_forward(struct mp_device *device, mp_stream stream, int rows, int width,
                               const void *x, const float *gain, const float *bias, void *y,
                               float *mean, float *rstd) {
    (void)stream;
    struct arguments arguments = {.width = (size_t)width,
                                  .x = x,
                                  .gain = gain,
                                  .bias = bias,
                                  .y = y,
                                  .mean = mean,
                                  .rstd = rstd};
    mp_cpu_parallel(mp_cpu_of(device), (size_t)rows, mp_cpu_grain((size_t)width), forward_range,
                    &arguments);
}

/* With h = (x - mean) rstd and d = dy gain:  dx += rstd (d - mean(d) - h mean(d h)). */
static void backward_row(size_t width, const float *restrict x, const float *restrict gain,
                         const float *restrict dy, float center, float scale, float *restrict dx,
                         float *restrict dgain, float *restrict dbias) {
    float sum = 0, product = 0;
#pragma omp simd reduction(+ : sum, product)
    for (size_t i = 0; i < width; i++) {
        float normal = (x[i] - center) * scale;
        float d = dy[i] * gain[i];
        dgain[i] += dy[i] * normal;
        dbias[i] += dy[i];
        sum += d;
        product += d * normal;
    }
    sum /= (float)width;
    product /= (float)width;
    for (size_t i = 0; i < width; i++) {
        float normal = (x[i] - center) * scale;
        dx[i] += scale * (dy[i] * gain[i] - sum - normal * product);
    }
}

/* Each thread sums its rows' gain and bias gradients apart: rounding errors stay those of a short
 * sum even when the caller has accumulated much already, and threads do not meet. */
static void backward_range(const void *argument, size_t begin, size_t end) {
    const struct arguments *a = argument;
    float *dgain = mp_cpu_scratch(a->cpu, mp_cpu_thread()), *dbias = dgain + a->width;
    for (size_t row = begin; row < end; row++)
        backward_row(a->width, a->x + row * a->width, a->gain, a->dy + row * a->width, a->mean[row],
                     a->rstd[row], a->dx + row * a->width, dgain, dbias);
}

static void sum_parts(const struct mp_cpu *cpu, size_t width, size_t offset, float *restrict sum) {
    memset(sum, 0, width * sizeof *sum);
    for (int thread = 0; thread < cpu->threads; thread++) {
        const float *restrict part = cpu->scratch + (size_t)thread * cpu->scratch_floats + offset;
        for (size_t i = 0; i < width; i++)
            sum[i] += part[i];
    }
}

static void layer_norm_backward(struct mp_device *device, mp_stream stream, int rows, int width,
                                const void *x, const float *gain, const float *mean,
                                const float *rstd, const void *dy, void *dx, float *dgain,
                                float *dbias) {
    (void)stream;
    struct mp_cpu *cpu = mp_cpu_of(device);
    if (width > cpu->limits.width) {
        mp_fail(&device->error, MP_ELIMIT,
                "layer norm of width %d: the device was created for widths up to %d", width,
                cpu->limits.width);
        return;
    }
    struct arguments arguments = {.cpu = cpu,
                                  .width = (size_t)width,
                                  .x = x,
                                  .gain = gain,
                                  .dy = dy,
                                  .mean = (float *)mean,
                                  .rstd = (float *)rstd,
                                  .dx = dx};
    for (int thread = 0; thread < cpu->threads; thread++)
        memset(mp_cpu_scratch(cpu, thread), 0, 2 * (size_t)width * sizeof(float));
    mp_cpu_parallel(cpu, (size_t)rows, mp_cpu_grain((size_t)width), backward_range, &arguments);
    sum_parts(cpu, (size_t)width, 0, dgain);
    sum_parts(cpu, (size_t)width, (size_t)width, dbias);
}

void MP_CPU_NAME(install_layer_norm)(struct mp_device_operations *operations) {
    operations->layer_norm_forward = layer_norm_forward;
    operations->layer_norm_backward = layer_norm_backward;
}
