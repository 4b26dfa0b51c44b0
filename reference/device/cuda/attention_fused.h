/* Causal attention in bf16 whose scores never leave the chip, for heads of 64 and 128 elements. */
#pragma once

#include "reference/device/cuda/cuda.h"

namespace mp {
namespace attention {

/* Whether the functions below can do it: elements are bf16 (compute capability 8.0 at least, which
 * the device's creation has made sure of), heads 64 or 128 wide, and all matrices start at
 * multiples of 16 bytes.  NULL stands for a matrix that there is not. */
bool fused_can(const struct mp_cuda *cuda, const struct mp_attention_shape *shape, const void *qkv,
               const void *out, const void *dout, const void *dqkv);

/* attention_forward and _backward of device.h.  Backward uses 4 bytes of scratch per token and
 * head, for as many heads at once as there is room for, one at least. */
void fused_forward(struct mp_cuda *cuda, mp_stream stream, const struct mp_attention_shape *shape,
                   const void *qkv, void *out, float *logsumexp);
void fused_backward(struct mp_cuda *cuda, mp_stream stream, const struct mp_attention_shape *shape,
                    const void *qkv, const void *out, const float *logsumexp, const void *dout,
                    void *dqkv);

} // namespace attention
} // namespace mp
