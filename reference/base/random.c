#include "reference/base/random.h"

#include <math.h>

static uint64_t mix(uint64_t value) {
    value += UINT64_C(0x9e3779b97f4a7c15);
    value = (value ^ (value >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    value = (value ^ (value >> 27)) * UINT64_C(0x94d049bb133111eb);
    return value ^ (value >> 31);
}

uint64_t mp_random_bits(uint64_t seed, uint64_t stream, uint64_t index) {
    return mix(mix(mix(seed) ^ stream) ^ index);
}

uint64_t mp_random_below(uint64_t seed, uint64_t stream, uint64_t index, uint64_t bound) {
    return (uint64_t)(((unsigned __int128)mp_random_bits(seed, stream, index) * bound) >> 64);
}

void mp_random_normal_from(uint64_t seed, uint64_t stream, float deviation, size_t first,
                           size_t count, float *out) {
    const double unit = 1.0 / 9007199254740992.0; /* 2^-53 */
    for (size_t i = first - first % 2; i < first + count; i += 2) {
        /* (0, 1]: the logarithm must not meet zero. */
        double u = (double)((mp_random_bits(seed, stream, i) >> 11) + 1) * unit;
        double angle = 2 * M_PI * (double)(mp_random_bits(seed, stream, i + 1) >> 11) * unit;
        double radius = deviation * sqrt(-2 * log(u));
        if (i >= first)
            out[i - first] = (float)(radius * cos(angle));
        if (i + 1 < first + count)
            out[i + 1 - first] = (float)(radius * sin(angle));
    }
}

void mp_random_normal(uint64_t seed, uint64_t stream, float deviation, size_t count, float *out) {
    mp_random_normal_from(seed, stream, deviation, 0, count, out);
}
