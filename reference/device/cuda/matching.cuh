/* Choices that a group's tokens make together: see mp_gate_matching in device.h. */
#pragma once

#include "reference/device/cuda/kernel.cuh"

namespace mp {

/* choice [tokens]; bid [tokens] is working memory. */
void auction(struct mp_cuda *cuda, mp_stream stream, int tokens, int experts,
             const struct mp_gate_rule &rule, const float *logits, int32_t *choice, float *bid);
/* choice, weight [tokens][top_k]. */
void experts_choose(struct mp_cuda *cuda, mp_stream stream, int tokens, int experts, int top_k,
                    const struct mp_gate_rule &rule, const float *probability, int32_t *choice,
                    float *weight);

} // namespace mp
