/* The router z-loss, an option that gates with one softmax share. */
#ifndef MOEPERF_REFERENCE_GATE_Z_LOSS_H
#define MOEPERF_REFERENCE_GATE_Z_LOSS_H

#include "reference/gate/gate.h"

struct mp_gate_z_loss {
    double weight;
};
extern const struct mp_option mp_gate_z_loss_options[];
/* For mp_gate_kind.complete. */
int mp_gate_z_loss_complete(const struct mp_gate_sizes *sizes, const void *options,
                            struct mp_gate_rule *rule, struct mp_error *error);

#endif
