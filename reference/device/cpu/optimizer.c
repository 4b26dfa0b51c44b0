/* AdamW: one pass over parameter, gradient and both moments. */
#include "reference/device/adamw.h"
#include "reference/device/cpu/cpu.h"

struct arguments {
    struct mp_adamw_factors by;
    float *parameter;
    const float *gradient;
    float *first;
    float *second;
};

static void adamw_range(const void *argument, size_t begin, size_t end) {
    const struct arguments a = *(const struct arguments *)argument;
    float *restrict parameter = a.parameter, *restrict first = a.first, *restrict second = a.second;
    const float *restrict gradient = a.gradient;
#pragma omp simd
    for (size_t i = begin; i < end; i++) {
        float g = gradient[i];
        float m = a.by.beta1 * first[i] + a.by.fresh1 * g;
        float v = a.by.beta2 * second[i] + a.by.fresh2 * g * g;
        first[i] = m;
        second[i] = v;
        float denominator = sqrtf(v) * a.by.inverse_correction + a.by.epsilon;
        parameter[i] = parameter[i] * a.by.keep - a.by.step_size * m / denominator;
    }
}

static void adamw(struct mp_device *device, mp_stream stream, size_t count,
                  const struct mp_adamw *settings, float *parameter, const float *gradient,
                  float *first, float *second, void *working) {
    struct arguments arguments = {
        .by = mp_adamw_factors_of(settings),
        .parameter = parameter,
        .gradient = gradient,
        .first = first,
        .second = second,
    };
    mp_cpu_parallel(mp_cpu_of(device), count, mp_cpu_grain(1), adamw_range, &arguments);
    if (working)
        device->operations->to_elements(device, stream, count, parameter, working);
}

void MP_CPU_NAME(install_optimizer)(struct mp_device_operations *operations) {
    operations->adamw = adamw;
}
