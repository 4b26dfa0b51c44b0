/* Softmax cross-entropy; the logits may become their own gradient. */
#include "reference/device/cpu/cpu.h"
#include "reference/device/cpu/vector.h"

#include <math.h>

struct arguments {
    size_t vocabulary;
    const float *logits;
    float *gradient;
    const int32_t *target;
    float scale;
    float *loss;
};

static float loss_of_row(size_t vocabulary, const float *logits, size_t target, float scale,
                         float *gradient) {
    float target_logit = logits[target];
    float largest = vector_largest(vocabulary, logits);
    float sum = vector_exponentials(vocabulary, logits, largest, gradient);
    float factor = scale / sum;
    for (size_t i = 0; i < vocabulary; i++)
        gradient[i] *= factor;
    gradient[target] -= scale;
    return (float)(log((double)sum) + ((double)largest - (double)target_logit));
}

static void cross_entropy_range(const void *argument, size_t begin, size_t end) {
    const struct arguments *a = argument;
    for (size_t row = begin; row < end; row++)
        a->loss[row] =
            loss_of_row(a->vocabulary, a->logits + row * a->vocabulary, (size_t)a->target[row],
                        a->scale, a->gradient + row * a->vocabulary);
}

static void cross_entropy(struct mp_device *device, mp_stream stream, int rows, int vocabulary,
                          const float *logits, const int32_t *target, float scale, float *loss,
                          void *gradient) {
    (void)stream;
    struct arguments arguments = {(size_t)vocabulary, logits, gradient, target, scale, loss};
    mp_cpu_parallel(mp_cpu_of(device), (size_t)rows, mp_cpu_grain((size_t)vocabulary),
                    cross_entropy_range, &arguments);
}

void MP_CPU_NAME(install_loss)(struct mp_device_operations *operations) {
    operations->cross_entropy = cross_entropy;
}
