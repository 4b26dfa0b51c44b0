#include "reference/base/elementary.h"

#include <math.h>

#include "reference/base/random.h"

/* ln 2 in two parts: the first has 32 bits, so that its product with an exponent is exact. */
static const double ln2_high = 0x1.62e42feep-1, ln2_low = 0x1.a39ef35793c76p-33;

double mp_elementary_exp(double x) {
    enum { TERMS = 16 };
    if (x < -700)
        return 0;
    double exponent = floor(x * 0x1.71547652b82fep+0 + 0.5);
    double rest = (x - exponent * ln2_high) - exponent * ln2_low; /* |rest| <= ln 2 / 2 */
    double sum = 1;
    for (int i = TERMS; i > 0; i--)
        sum = 1 + sum * rest / i;
    return ldexp(sum, (int)exponent);
}

double mp_elementary_log(double x) {
    enum { TERMS = 23 }; /* odd powers of at most 0.172: the next is below 1e-19 */
    int exponent;
    double fraction = frexp(x, &exponent);
    if (fraction < 0x1.6a09e667f3bcdp-1) { /* keeps it within sqrt(1/2) .. sqrt(2) */
        fraction *= 2;
        exponent--;
    }
    double t = (fraction - 1) / (fraction + 1), square = t * t, sum = 0;
    for (int i = TERMS; i > 0; i -= 2)
        sum = sum * square + 1.0 / i;
    return exponent * ln2_high + (exponent * ln2_low + 2 * t * sum);
}

double mp_elementary_power(double x, double power) {
    return mp_elementary_exp(power * mp_elementary_log(x));
}

double mp_elementary_uniform(uint64_t seed, uint64_t stream, uint64_t index) {
    return ((double)(mp_random_bits(seed, stream, index) >> 12) + 0.5) * 0x1p-52;
}

double mp_elementary_normal(uint64_t seed, uint64_t stream, uint64_t index) {
    uint64_t own = mp_random_bits(seed, stream, index); /* a sequence of its own for the trials */
    for (uint64_t trial = 0;; trial += 2) {
        double x = 2 * mp_elementary_uniform(seed, own, trial) - 1;
        double y = 2 * mp_elementary_uniform(seed, own, trial + 1) - 1;
        double square = x * x + y * y;
        if (square < 1) /* and above 0: x and y are odd multiples of 2^-52 */
            return x * sqrt(-2 * mp_elementary_log(square) / square);
    }
}
