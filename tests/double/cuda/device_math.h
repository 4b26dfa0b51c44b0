/* Double of CUDA's mathematics and bit functions that C's library lacks; part of
 * device_functions.h. */
#pragma once

inline float __fdividef(float x, float y) {
    return x / y;
}

/* Rounding conversions, saturated as on a GPU. */

#define CUDA_DOUBLE_BITS(to, name, from)                                                           \
    inline to name(from value) {                                                                   \
        to bits;                                                                                   \
        static_assert(sizeof bits == sizeof value, "the same bits");                               \
        memcpy(&bits, &value, sizeof bits);                                                        \
        return bits;                                                                               \
    }
CUDA_DOUBLE_BITS(unsigned, __float_as_uint, float)
CUDA_DOUBLE_BITS(float, __uint_as_float, unsigned)

inline int __popc(unsigned x) {
    return __builtin_popcount(x);
}
inline unsigned long long __umul64hi(unsigned long long x, unsigned long long y) {
    return (unsigned long long)((unsigned __int128)x * y >> 64);
}

/* Of two indices, as kernels use it. */
inline int min(int x, int y) {
    return y < x ? y : x;
}
