/* The gate: softmax over experts, the largest top_k, and their gradients. */
#include "reference/device/cpu/cpu.h"
#include "reference/device/cpu/vector.h"

#include <float.h>
#include <math.h>
#include <string.h>

struct arguments {
    size_t experts;
    int top_k;
    bool renormalise;
    const float *logits;
    const int32_t *forced;
    float *probability;
    int32_t *choice;
    const int32_t *position;
    float *weight;
    const float *dweight;
    const float *auxiliary;
    float *dlogits;
};

static void softmax(size_t count, const float *restrict logits, float *restrict probability) {
    float largest = vector_largest(count, logits), sum = 0;
#pragma omp simd reduction(+ : sum)
    for (size_t e = 0; e < count; e++) {
        float exponential = vector_exp(logits[e] - largest);
        probability[e] = exponential;
        sum += exponential;
    }
    float inverse = 1.0f / sum;
    for (size_t e = 0; e < count; e++)
        probability[e] *= inverse;
}

/* Keeps the best so far in descending order.  An expert enters only above a strictly smaller one,
 * so that of equal ones the lower id stays ahead.  Rows of NaN choose experts 0, 1, ... */
static void choose(size_t experts, int top_k, const float *probability, int32_t *choice) {
    float best[MP_CHOICES_LIMIT];
    for (int j = 0; j < top_k; j++) {
        best[j] = -INFINITY;
        choice[j] = j;
    }
    for (size_t e = 0; e < experts; e++) {
        float p = probability[e];
        /* top_k is 1 .. MP_CHOICES_LIMIT, as gate_forward has checked.
         * NOLINTNEXTLINE(clang-analyzer-core.*) */
        if (!(p > best[top_k - 1]))
            continue;
        int place = top_k - 1;
        /* NOLINTNEXTLINE(clang-analyzer-core.*): place < top_k */
        for (; place > 0 && p > best[place - 1]; place--) {
            best[place] = best[place - 1];
            choice[place] = choice[place - 1];
        }
        best[place] = p;
        choice[place] = (int32_t)e;
    }
}

static void forward_range(const void *argument, size_t begin, size_t end, int thread) {
    const struct arguments *a = argument;
    size_t top_k = (size_t)a->top_k;
    (void)thread;
    for (size_t token = begin; token < end; token++) {
        float *probability = a->probability + token * a->experts;
        int32_t *choice = a->choice + token * top_k;
        float *weight = a->weight + token * top_k;
        softmax(a->experts, a->logits + token * a->experts, probability);
        if (a->forced)
            memcpy(choice, a->forced + token * top_k, top_k * sizeof *choice);
        else
            choose(a->experts, a->top_k, probability, choice);

        float sum = 0;
        for (size_t j = 0; j < top_k; j++) {
            weight[j] = probability[choice[j]];
            sum += weight[j];
        }
        for (size_t j = 0; a->renormalise && j < top_k; j++)
            weight[j] /= sum;
    }
}

static void gate_forward(struct mp_device *device, mp_stream stream, int tokens, int experts,
                         int top_k, bool renormalise, const float *logits, const int32_t *forced,
                         float *probability, int32_t *choice, float *weight) {
    (void)stream;
    if (top_k < 1 || top_k > MP_CHOICES_LIMIT || top_k > experts) {
        mp_fail(&device->error, MP_EINVAL, "gate: top %d of %d experts (at most %d)", top_k,
                experts, MP_CHOICES_LIMIT);
        return;
    }
    struct arguments arguments = {.experts = (size_t)experts,
                                  .top_k = top_k,
                                  .renormalise = renormalise,
                                  .logits = logits,
                                  .forced = forced,
                                  .probability = probability,
                                  .choice = choice,
                                  .weight = weight};
    mp_cpu_parallel(mp_cpu_of(device), (size_t)tokens, mp_cpu_grain((size_t)experts), forward_range,
                    &arguments);
}

/* Sum of a token's probabilities over the routes that were not dropped. */
static float surviving_sum(const struct arguments *a, size_t token) {
    const float *probability = a->probability + token * a->experts;
    float sum = 0;
    for (size_t j = token * (size_t)a->top_k; j < (token + 1) * (size_t)a->top_k; j++)
        sum += a->position[j] < 0 ? 0 : probability[a->choice[j]];
    return sum;
}

static void survivor_range(const void *argument, size_t begin, size_t end, int thread) {
    const struct arguments *a = argument;
    (void)thread;
    for (size_t token = begin; token < end; token++) {
        const float *probability = a->probability + token * a->experts;
        float sum = fmaxf(surviving_sum(a, token), FLT_MIN);
        for (size_t j = token * (size_t)a->top_k; j < (token + 1) * (size_t)a->top_k; j++)
            a->weight[j] = a->position[j] < 0 ? 0 : probability[a->choice[j]] / sum;
    }
}

static void survivor_weights(struct mp_device *device, mp_stream stream, int tokens, int experts,
                             int top_k, const float *probability, const int32_t *choice,
                             const int32_t *position, float *weight) {
    (void)stream;
    struct arguments arguments = {.experts = (size_t)experts,
                                  .top_k = top_k,
                                  .probability = (float *)probability,
                                  .choice = (int32_t *)choice,
                                  .position = position,
                                  .weight = weight};
    mp_cpu_parallel(mp_cpu_of(device), (size_t)tokens, mp_cpu_grain((size_t)top_k), survivor_range,
                    &arguments);
}

/* The same as below for weights of survivors.  Where the sum is held at its least, weights are
 * probabilities times a constant. */
static void survivor_gradient(const struct arguments *a, size_t token, float *dprobability) {
    size_t first = token * (size_t)a->top_k, end = first + (size_t)a->top_k;
    float sum = surviving_sum(a, token), common = 0;
    if (sum < FLT_MIN) {
        sum = FLT_MIN;
    } else {
        for (size_t j = first; j < end; j++)
            common += a->position[j] < 0 ? 0 : a->dweight[j] * a->weight[j];
    }
    for (size_t j = first; j < end; j++)
        if (a->position[j] >= 0)
            dprobability[a->choice[j]] += (a->dweight[j] - common) / sum;
}

/* Into dlogits: the gradient of the probabilities.  A renormalised weight is w_j = p_j / sum,
 * hence dp_j = (dw_j - sum_i dw_i w_i) / sum. */
static void probability_gradient(const struct arguments *a, size_t token, float *dprobability) {
    size_t first = token * (size_t)a->top_k;
    const float *probability = a->probability + token * a->experts;
    memcpy(dprobability, a->auxiliary, a->experts * sizeof *dprobability);
    if (a->position) {
        survivor_gradient(a, token, dprobability);
        return;
    }
    float sum = 1, common = 0;
    if (a->renormalise) {
        sum = 0;
        for (size_t j = first; j < first + (size_t)a->top_k; j++) {
            sum += probability[a->choice[j]];
            common += a->dweight[j] * a->weight[j];
        }
    }
    for (size_t j = first; j < first + (size_t)a->top_k; j++)
        dprobability[a->choice[j]] += (a->dweight[j] - common) / sum;
}

static void softmax_gradient(size_t count, const float *restrict probability,
                             float *restrict gradient) {
    float product = 0;
#pragma omp simd reduction(+ : product)
    for (size_t e = 0; e < count; e++)
        product += probability[e] * gradient[e];
    for (size_t e = 0; e < count; e++)
        gradient[e] = probability[e] * (gradient[e] - product);
}

static void backward_range(const void *argument, size_t begin, size_t end, int thread) {
    const struct arguments *a = argument;
    (void)thread;
    for (size_t token = begin; token < end; token++) {
        float *gradient = a->dlogits + token * a->experts;
        probability_gradient(a, token, gradient);
        softmax_gradient(a->experts, a->probability + token * a->experts, gradient);
    }
}

static void gate_backward(struct mp_device *device, mp_stream stream, int tokens, int experts,
                          int top_k, bool renormalise, const float *probability,
                          const int32_t *choice, const int32_t *position, const float *weight,
                          const float *dweight, const float *auxiliary, void *dlogits) {
    (void)stream;
    struct arguments arguments = {.experts = (size_t)experts,
                                  .top_k = top_k,
                                  .renormalise = renormalise,
                                  .probability = (float *)probability,
                                  .choice = (int32_t *)choice,
                                  .position = position,
                                  .weight = (float *)weight,
                                  .dweight = dweight,
                                  .auxiliary = auxiliary,
                                  .dlogits = dlogits};
    mp_cpu_parallel(mp_cpu_of(device), (size_t)tokens, mp_cpu_grain((size_t)experts),
                    backward_range, &arguments);
}

static void gate_statistics(struct mp_device *device, mp_stream stream, int tokens, int experts,
                            int top_k, const float *probability, const int32_t *choice,
                            uint32_t *routes, uint32_t *firsts, float *mass) {
    (void)device;
    (void)stream;
    size_t count = (size_t)experts;
    memset(routes, 0, count * sizeof *routes);
    memset(firsts, 0, count * sizeof *firsts);
    memset(mass, 0, count * sizeof *mass);
    for (int token = 0; token < tokens; token++) {
        const float *restrict row = probability + (size_t)token * count;
        float *restrict sum = mass;
        for (size_t e = 0; e < count; e++)
            sum[e] += row[e];
        const int32_t *chosen = choice + (size_t)token * (size_t)top_k;
        firsts[chosen[0]]++;
        for (int j = 0; j < top_k; j++)
            routes[chosen[j]]++;
    }
}

void MP_CPU_NAME(install_gate)(struct mp_device_operations *operations) {
    operations->gate_forward = gate_forward;
    operations->gate_backward = gate_backward;
    operations->gate_statistics = gate_statistics;
    operations->survivor_weights = survivor_weights;
}
