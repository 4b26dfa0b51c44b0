/* attention_fused.h's for compute capability 9.0, whose products a warpgroup makes; heads of 64. */
#pragma once

#include "reference/device/cuda/attention_tile.cuh"

namespace mp {
namespace attention {

#ifdef MP_CUDA_WARPGROUPS

/* Whether the GPU is of compute capability 9.0 and heads are 64 wide; the rest fused_can has found.
 */
bool warpgroups_can(const struct mp_cuda *cuda, int head_width);

void warpgroups_forward(struct mp_cuda *cuda, mp_stream stream, const fused_shape &shape,
                        const void *qkv, void *out, float *logsumexp);
/* Of the shape's pairs; delta [pairs][sequence] is there. */
void warpgroups_backward(struct mp_cuda *cuda, mp_stream stream, const fused_shape &shape,
                         const void *qkv, const float *logsumexp, const void *dout,
                         const float *delta, void *dqkv);

#else /* built for no such GPU */

static inline bool warpgroups_can(const struct mp_cuda *, int) {
    return false;
}
static inline void warpgroups_forward(struct mp_cuda *, mp_stream, const fused_shape &,
                                      const void *, void *, float *) {}
static inline void warpgroups_backward(struct mp_cuda *, mp_stream, const fused_shape &,
                                       const void *, const float *, const void *, const float *,
                                       void *) {}

#endif

} // namespace attention
} // namespace mp
