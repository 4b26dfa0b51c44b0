/* One parameter's update by AdamW, by the factors of adamw.h. */
#pragma once

#include "reference/device/adamw.h"
#include "reference/device/cuda/kernel.cuh"

namespace mp {

/* To a unit in the last place, without the branches of sqrtf. */
__device__ __forceinline__ float root(float value) {
#ifdef __CUDA_ARCH__
    asm("sqrt.approx.f32 %0, %0;" : "+f"(value));
    return value;
#else
    return sqrtf(value);
#endif
}

__device__ __forceinline__ void update(const struct mp_adamw_factors &by, float gradient,
                                       float &parameter, float &first, float &second) {
    first = by.beta1 * first + by.fresh1 * gradient;
    second = by.beta2 * second + by.fresh2 * gradient * gradient;
    const float denominator = root(second) * by.inverse_correction + by.epsilon;
    parameter = parameter * by.keep - __fdividef(by.step_size * first, denominator);
}

} // namespace mp
