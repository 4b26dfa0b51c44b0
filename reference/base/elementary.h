/* Elementary functions with the same bits on every machine.
 *
 * C libraries differ in the last bit of exp and log, which is enough to move a token from one
 * expert to another.  These use additions, multiplications, divisions and square roots alone, which
 * IEEE 754 rounds one way, in a fixed order (the folder is compiled without contraction to fused
 * operations). Relative errors are below 1e-14. */
#pragma once

#include <stdint.h>

double mp_elementary_exp(double x);                 /* 0 below -700; |x| <= 700 otherwise */
double mp_elementary_log(double x);                 /* x > 0, finite */
double mp_elementary_power(double x, double power); /* x > 0 */

/* Uniform in (0, 1), of (seed, stream, index) alone. */
double mp_elementary_uniform(uint64_t seed, uint64_t stream, uint64_t index);
/* N(0, 1), of (seed, stream, index) alone (Marsaglia's polar method). */
double mp_elementary_normal(uint64_t seed, uint64_t stream, uint64_t index);
