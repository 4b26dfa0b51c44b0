/* What an update of AdamW needs of its settings, worked out once in double precision and the same
 * on every device (Loshchilov, Hutter, ICLR 2019, algorithm 2, with bias correction moved out of
 * the moments):
 *
 *     m = beta1 m + fresh1 g
 *     v = beta2 v + fresh2 g^2
 *     parameter = keep parameter - step_size m / (inverse_correction sqrt(v) + epsilon)  */
#pragma once

#include <math.h>

#include "reference/device/device.h"

struct mp_adamw_factors {
    float keep;               /* 1 - learning rate * decay */
    float beta1, fresh1;      /* and 1 - beta1 */
    float beta2, fresh2;      /* and 1 - beta2 */
    float step_size;          /* learning rate / (1 - beta1^step) */
    float inverse_correction; /* 1 / sqrt(1 - beta2^step) */
    float epsilon;
};

static inline struct mp_adamw_factors mp_adamw_factors_of(const struct mp_adamw *settings) {
    double step = (double)settings->step, rate = (double)settings->learning_rate;
    double beta1 = (double)settings->beta1, beta2 = (double)settings->beta2;
    struct mp_adamw_factors factors;
    factors.keep = (float)(1.0 - rate * (double)settings->weight_decay);
    factors.beta1 = settings->beta1;
    factors.fresh1 = (float)(1.0 - beta1);
    factors.beta2 = settings->beta2;
    factors.fresh2 = (float)(1.0 - beta2);
    factors.step_size = (float)(rate / (1.0 - pow(beta1, step)));
    factors.inverse_correction = (float)(1.0 / sqrt(1.0 - pow(beta2, step)));
    factors.epsilon = settings->epsilon;
    return factors;
}
