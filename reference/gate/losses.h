/* Losses that gates share: which of them there are, and what the balancing loss is taken over. */
#pragma once

#include "reference/gate/gate.h"

struct mp_gate_losses {
    double z_loss;
    int level; /* enum mp_gate_level: of the batch or by sequence */
};

/* Rows of the option table of a gate whose options have such a struct as member `losses`. */
#define MP_GATE_Z_LOSS(type)                                                                       \
    {                                                                                              \
        "z-loss", MP_OPTION_DOUBLE, offsetof(struct type, losses.z_loss), "", "0", 0, 1e3, NULL,   \
            "weight of the router z-loss, the mean square of the logarithm of the sum of "         \
            "exponentials, "                                                                       \
            "which keeps logits small (Zoph et al., ST-MoE, arXiv 2202.08906, equation 5: 0.001)"  \
    }
#define MP_GATE_LEVEL(type)                                                                        \
    {                                                                                              \
        "balance-over", MP_OPTION_CHOICE, offsetof(struct type, losses.level), "", "batch", 0, 0,  \
            "batch sequence",                                                                      \
            "what the balancing loss counts over: the batch of all ranks, or each sequence for "   \
            "itself, "                                                                             \
            "and then the mean (Megatron-LM's seq_aux_loss)"                                       \
    }

/* Both, for gates with nothing else: table, struct, and what goes into `complete`. */
struct mp_gate_losses_alone {
    struct mp_gate_losses losses;
};
extern const struct mp_option mp_gate_losses_options[];
int mp_gate_losses_complete(const struct mp_gate_sizes *sizes, const void *options,
                            struct mp_gate_rule *rule, struct mp_error *error);

/* What they say, into the rule. */
void mp_gate_take_losses(const struct mp_gate_sizes *sizes, const struct mp_gate_losses *losses,
                         struct mp_gate_rule *rule);
