/* AdamW: one pass over parameter, gradient and both moments. */
#include "reference/device/cpu/cpu.h"

#include <math.h>

enum { GRAIN = 16384 }; /* elements that are worth a thread */

struct arguments {
    float keep;               /* 1 - learning rate * decay */
    float beta1, fresh1;      /* and 1 - beta1 */
    float beta2, fresh2;      /* and 1 - beta2 */
    float step_size;          /* learning rate / (1 - beta1^step) */
    float inverse_correction; /* 1 / sqrt(1 - beta2^step) */
    float epsilon;
    float *parameter;
    const float *gradient;
    float *first;
    float *second;
};

static void adamw_range(const void *argument, size_t begin, size_t end, int thread) {
    const struct arguments a = *(const struct arguments *)argument;
    float *restrict parameter = a.parameter, *restrict first = a.first, *restrict second = a.second;
    const float *restrict gradient = a.gradient;
    (void)thread;
#pragma omp simd
    for (size_t i = begin; i < end; i++) {
        float g = gradient[i];
        float m = a.beta1 * first[i] + a.fresh1 * g;
        float v = a.beta2 * second[i] + a.fresh2 * g * g;
        first[i] = m;
        second[i] = v;
        float denominator = sqrtf(v) * a.inverse_correction + a.epsilon;
        parameter[i] = parameter[i] * a.keep - a.step_size * m / denominator;
    }
}

static void adamw(struct mp_device *device, mp_stream stream, size_t count,
                  const struct mp_adamw *settings, float *parameter, const float *gradient,
                  float *first, float *second, void *working) {
    double step = (double)settings->step;
    double correction1 = 1.0 - pow(settings->beta1, step);
    double correction2 = 1.0 - pow(settings->beta2, step);
    struct arguments arguments = {
        .keep = (float)(1.0 - (double)settings->learning_rate * settings->weight_decay),
        .beta1 = settings->beta1,
        .fresh1 = (float)(1.0 - (double)settings->beta1),
        .beta2 = settings->beta2,
        .fresh2 = (float)(1.0 - (double)settings->beta2),
        .step_size = (float)(settings->learning_rate / correction1),
        .inverse_correction = (float)(1.0 / sqrt(correction2)),
        .epsilon = settings->epsilon,
        .parameter = parameter,
        .gradient = gradient,
        .first = first,
        .second = second,
    };
    mp_cpu_parallel(mp_cpu_of(device), count, GRAIN, adamw_range, &arguments);
    if (working)
        device->operations->to_elements(device, stream, count, parameter, working);
}

void MP_CPU_NAME(install_optimizer)(struct mp_device_operations *operations) {
    operations->adamw = adamw;
}
