#include "reference/plan/policy.h"

const struct mp_policy mp_policy_plain = {.outgoing_limit = -1, .outside_cost = 1};

const char *mp_optimizer_name(enum mp_optimizer_split split) {
    static const char *const name[MP_OPTIMIZER_SPLITS] = {
        "owner",         "replicated",     "slices",
        "slices-of-sum", "replica-slices", "replica-slices-of-sum"};
    return (unsigned)split < MP_OPTIMIZER_SPLITS ? name[split] : "no-split";
}

const char *mp_route_order_name(enum mp_route_order order) {
    static const char *const name[MP_ROUTE_ORDERS] = {"by-token", "by-choice", "by-probability",
                                                      "at-random"};
    return (unsigned)order < MP_ROUTE_ORDERS ? name[order] : "no-order";
}
