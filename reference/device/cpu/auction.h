/* Choices of tokens that decide together by an auction: see MP_MATCH_AUCTION in device.h. */
#pragma once

#include "reference/device/cpu/cpu.h"

/* choice [tokens]; bid [tokens] is working memory. */
void MP_CPU_NAME(auction)(struct mp_device *device, int tokens, int experts,
                          const struct mp_gate_rule *rule, const float *logits, int32_t *choice,
                          float *bid);
