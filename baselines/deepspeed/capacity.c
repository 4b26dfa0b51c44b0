/* How many routes of a source an expert takes, in the arithmetic of those who invented it. */
#include <math.h>

#include "baselines/deepspeed/deepspeed.h"

/* Python multiplies the factor by k, the scripted function T/E by that tensor of single precision.
 */
static int64_t deepspeed(int64_t tokens, int experts, int top_k, double factor,
                         int64_t min_capacity) {
    float share = (float)((double)tokens / (double)experts);
    float scale = (float)(factor * (double)top_k);
    float product = share * scale;
    int64_t capacity = (int64_t)ceilf(product);

    return capacity < min_capacity ? min_capacity : capacity;
}

int64_t mp_deepspeed_capacity(enum mp_deepspeed_formula formula, int64_t tokens, int experts,
                              int top_k, double factor, int64_t min_capacity) {
    double share = (double)tokens / (double)experts;

    switch (formula) {
    case MP_CAPACITY_HETUMOE:
        return top_k * (int64_t)ceil(share * factor);
    case MP_CAPACITY_TUTEL:
        return top_k * (int64_t)(factor * (double)((tokens + experts - 1) / experts));
    case MP_CAPACITY_MEGATRON:
        return (int64_t)ceil((double)(tokens * top_k) / (double)experts * factor);
    case MP_CAPACITY_FASTMOE:
        return (int64_t)ceil(factor * (double)tokens) * top_k / experts;
    default:
        return deepspeed(tokens, experts, top_k, factor, min_capacity);
    }
}
