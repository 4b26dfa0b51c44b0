#include "reference/gate/z_loss.h"

const struct mp_option mp_gate_z_loss_options[] = {
    {"z-loss", MP_OPTION_DOUBLE, offsetof(struct mp_gate_z_loss, weight), "", "0", 0, 1e3, NULL,
     "weight of the router z-loss, the mean square of the logarithm of the sum of exponentials, "
     "which keeps logits small (Zoph et al., ST-MoE, arXiv 2202.08906, equation 5: 0.001)"},
    {0},
};

int mp_gate_z_loss_complete(const struct mp_gate_sizes *sizes, const void *options,
                            struct mp_gate_rule *rule, struct mp_error *error) {
    const struct mp_gate_z_loss *loss = options;
    (void)error;
    rule->z_slope = (float)(loss->weight / (double)sizes->tokens);
    return MP_OK;
}
