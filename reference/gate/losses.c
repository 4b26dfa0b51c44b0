#include "reference/gate/losses.h"

const struct mp_option mp_gate_losses_options[] = {
    MP_GATE_Z_LOSS(mp_gate_losses_alone),
    MP_GATE_LEVEL(mp_gate_losses_alone),
    {0},
};

int mp_gate_losses_complete(const struct mp_gate_sizes *sizes, const void *options,
                            struct mp_gate_rule *rule, struct mp_error *error) {
    const struct mp_gate_losses_alone *alone = options;
    (void)error;
    mp_gate_take_losses(sizes, &alone->losses, rule);
    return MP_OK;
}

void mp_gate_take_losses(const struct mp_gate_sizes *sizes, const struct mp_gate_losses *losses,
                         struct mp_gate_rule *rule) {
    rule->z_slope = (float)(losses->z_loss / (double)sizes->tokens);
    rule->loss_level = (enum mp_gate_level)losses->level;
}
