/* Parts of equal size, for gates whose experts lie in such. */
#ifndef MOEPERF_REFERENCE_GATE_GROUPS_H
#define MOEPERF_REFERENCE_GATE_GROUPS_H

#include "reference/gate/gate.h"

/* MP_EINVAL unless so many groups, which `option` says, divide the experts evenly and `kept` of
 * them have as many experts as a token takes. */
int mp_gate_check_groups(const struct mp_gate_sizes *sizes, const char *option, int groups,
                         int kept, struct mp_error *error);

#endif
