/* Sums of arrays. */
#include "reference/device/cpu/cpu.h"

struct arguments {
    const float *a;
    const float *b;
    float *out;
};

static void add_range(const void *argument, size_t begin, size_t end) {
    const struct arguments *arguments = argument;
    const float *a = arguments->a, *b = arguments->b;
    float *out = arguments->out;
#pragma omp simd
    for (size_t i = begin; i < end; i++)
        out[i] = a[i] + b[i];
}

static void add(struct mp_device *device, mp_stream stream, size_t count, const float *a,
                const float *b, float *out) {
    (void)stream;
    struct arguments arguments = {a, b, out};
    mp_cpu_parallel(mp_cpu_of(device), count, mp_cpu_grain(1), add_range, &arguments);
}

/* Elements are floats here. */
static void to_elements(struct mp_device *device, mp_stream stream, size_t count, const float *from,
                        void *to) {
    if (to != from)
        device->operations->copy(device, stream, to, from, count * sizeof *from);
}

void MP_CPU_NAME(install_elementwise)(struct mp_device_operations *operations) {
    operations->add = add;
    operations->to_elements = to_elements;
}
