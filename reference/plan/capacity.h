/* Capacities in the arithmetic of those who invented them: one table, a row per framework.
 *
 * The order of operations is that of the framework imitated, in its precision, since it decides
 * what is rounded up.  T tokens of a source, E experts, k choices of a token, factor f:
 *   deepspeed       max(ceil(T/E * (f k)), least).  f k is a double that becomes a tensor, and so
 *                   a float, and T/E, a double too, becomes a float when it meets it; so does the
 *                   product.  100 tokens, 4 experts, f 1.2: 25 * 1.2 is just above 30, ceil 31;
 *                   with k = 2 and f 1.1 just 55, where doubles give 56
 *   hetumoe         k ceil(T/E * f)
 *   tutel           k floor(f * ceil(T/E)), the quotient rounded up in integers
 *   megatron        ceil(T k / E * f)
 *   fastmoe         floor(ceil(f T) * k / E), the quotient rounded down in integers; k is 2 there
 *   fastmoe-switch  ceil(f T / experts of a rank), of all sources together; k is 1 there */
#pragma once

#include "reference/plan/system.h"

/* In the order of an option's choices, MP_CAPACITY_CHOICES. */
enum mp_capacity_formula {
    MP_CAPACITY_DEEPSPEED,
    MP_CAPACITY_HETUMOE,
    MP_CAPACITY_TUTEL,
    MP_CAPACITY_MEGATRON,
    MP_CAPACITY_FASTMOE,
    MP_CAPACITY_FASTMOE_SWITCH,
    MP_CAPACITY_FORMULAS
};
#define MP_CAPACITY_CHOICES "deepspeed hetumoe tutel megatron fastmoe fastmoe-switch"

/* T and f not negative, the others not below 1, but `least`. */
struct mp_capacity_sizes {
    int64_t tokens; /* T, of a source */
    int experts, top_k;
    double factor;
    int64_t least;        /* of formula deepspeed, which alone has one */
    int experts_per_rank; /* of formula fastmoe-switch */
};

struct mp_capacity_rule {
    const char *name, *source;
    bool at_receiver; /* most routes of an expert over all sources; else of one (source, expert) */
    int64_t (*routes)(const struct mp_capacity_sizes *sizes); /* 0 if the formula leaves none */
};
extern const struct mp_capacity_rule mp_capacity_rules[MP_CAPACITY_FORMULAS];

static inline int64_t mp_capacity(enum mp_capacity_formula formula,
                                  const struct mp_capacity_sizes *sizes) {
    return mp_capacity_rules[formula].routes(sizes);
}

/* Of a job, without `least`. */
struct mp_capacity_sizes mp_capacity_sizes_of(const struct mp_setting *setting, double factor);
/* MP_EINVAL, with the job's numbers behind the system's name, for a capacity of a rank's routes
 * that is not within 1 .. INT32_MAX. */
int mp_capacity_check(const char *system, const struct mp_setting *setting, double factor,
                      int64_t capacity, struct mp_error *error);
