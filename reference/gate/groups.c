#include "reference/gate/groups.h"

int mp_gate_check_groups(const struct mp_gate_sizes *sizes, const char *option, int groups,
                         int kept, struct mp_error *error) {
    if (sizes->experts % groups)
        return mp_fail(error, MP_EINVAL,
                       "%s: %d experts can't be divided evenly over %d; take a divisor", option,
                       sizes->experts, groups);
    if (kept > groups)
        return mp_fail(error, MP_EINVAL, "%s: %d of %d groups can't be kept", option, kept, groups);
    if (sizes->experts / groups * kept < sizes->top_k)
        return mp_fail(error, MP_EINVAL,
                       "%s: a token takes %d experts, and %d of %d groups have only %d", option,
                       sizes->top_k, kept, groups, sizes->experts / groups * kept);
    return MP_OK;
}
