/* Double of CUDA's mathematics and bit functions that C's library lacks; part of
 * device_functions.h.  What is approximate on a GPU (__expf) is exact to the last bit or so here.
 */
#ifndef MOEPERF_TESTS_DOUBLE_CUDA_DEVICE_MATH_H
#define MOEPERF_TESTS_DOUBLE_CUDA_DEVICE_MATH_H

/* The C library declares some of these names for itself, without defining them. */
namespace cuda_double {

inline float fast_exp(float x) {
    return expf(x);
}
inline float fast_log(float x) {
    return logf(x);
}
inline float fast_log2(float x) {
    return log2f(x);
}
inline float fast_exp10(float x) {
    return powf(10, x);
}
inline float fast_pow(float x, float y) {
    return powf(x, y);
}
inline float fast_sin(float x) {
    return sinf(x);
}
inline float fast_cos(float x) {
    return cosf(x);
}

} // namespace cuda_double

#define __expf(x) cuda_double::fast_exp(x)
#define __logf(x) cuda_double::fast_log(x)
#define __log2f(x) cuda_double::fast_log2(x)
#define __exp10f(x) cuda_double::fast_exp10(x)
#define __powf(x, y) cuda_double::fast_pow(x, y)
#define __sinf(x) cuda_double::fast_sin(x)
#define __cosf(x) cuda_double::fast_cos(x)

inline float rsqrtf(float x) {
    return (float)(1 / sqrt((double)x));
}
inline double rsqrt(double x) {
    return 1 / sqrt(x);
}
inline float __fdividef(float x, float y) {
    return x / y;
}
inline float fdividef(float x, float y) {
    return x / y;
}
inline float __frcp_rn(float x) {
    return 1 / x;
}
inline float __frsqrt_rn(float x) {
    return rsqrtf(x);
}
inline float __fsqrt_rn(float x) {
    return sqrtf(x);
}
inline float __fadd_rn(float x, float y) {
    return x + y;
}
inline float __fsub_rn(float x, float y) {
    return x - y;
}
inline float __fmul_rn(float x, float y) {
    return x * y;
}
inline float __fdiv_rn(float x, float y) {
    return x / y;
}
inline float __fmaf_rn(float x, float y, float z) {
    return fmaf(x, y, z);
}
inline double __dadd_rn(double x, double y) {
    return x + y;
}
inline double __dmul_rn(double x, double y) {
    return x * y;
}
inline float __saturatef(float x) {
    return x > 0 ? (x < 1 ? x : 1) : 0; /* NaN becomes 0 */
}

/* Rounding conversions, saturated as on a GPU. */
inline int __float2int_rn(float x) {
    return isnan(x) ? 0 : x >= 0x1p31f ? INT32_MAX : x < -0x1p31f ? INT32_MIN : (int)rintf(x);
}
inline int __float2int_rz(float x) {
    return __float2int_rn(truncf(x));
}
inline int __float2int_rd(float x) {
    return __float2int_rn(floorf(x));
}
inline int __float2int_ru(float x) {
    return __float2int_rn(ceilf(x));
}
inline float __int2float_rn(int x) {
    return (float)x;
}
inline float __uint2float_rn(unsigned x) {
    return (float)x;
}

#define CUDA_DOUBLE_BITS(to, name, from)                                                           \
    inline to name(from value) {                                                                   \
        to bits;                                                                                   \
        static_assert(sizeof bits == sizeof value, "the same bits");                               \
        memcpy(&bits, &value, sizeof bits);                                                        \
        return bits;                                                                               \
    }
CUDA_DOUBLE_BITS(int, __float_as_int, float)
CUDA_DOUBLE_BITS(unsigned, __float_as_uint, float)
CUDA_DOUBLE_BITS(float, __int_as_float, int)
CUDA_DOUBLE_BITS(float, __uint_as_float, unsigned)
CUDA_DOUBLE_BITS(long long, __double_as_longlong, double)
CUDA_DOUBLE_BITS(double, __longlong_as_double, long long)

inline int __popc(unsigned x) {
    return __builtin_popcount(x);
}
inline int __popcll(unsigned long long x) {
    return __builtin_popcountll(x);
}
inline int __ffs(int x) {
    return __builtin_ffs(x);
}
inline int __ffsll(long long x) {
    return __builtin_ffsll(x);
}
inline int __clz(int x) {
    return x ? __builtin_clz((unsigned)x) : 32;
}
inline int __clzll(long long x) {
    return x ? __builtin_clzll((unsigned long long)x) : 64;
}
inline unsigned __brev(unsigned x) {
    unsigned reversed = 0;
    for (int i = 0; i < 32; i++)
        reversed |= (x >> i & 1u) << (31 - i);
    return reversed;
}
inline unsigned __umulhi(unsigned x, unsigned y) {
    return (unsigned)((uint64_t)x * y >> 32);
}
inline int __mulhi(int x, int y) {
    return (int)((int64_t)x * y >> 32);
}
inline unsigned long long __umul64hi(unsigned long long x, unsigned long long y) {
    return (unsigned long long)((unsigned __int128)x * y >> 64);
}
inline unsigned __funnelshift_l(unsigned low, unsigned high, unsigned shift) {
    return (unsigned)(((uint64_t)high << 32 | low) << (shift & 31) >> 32);
}
inline unsigned __funnelshift_r(unsigned low, unsigned high, unsigned shift) {
    return (unsigned)(((uint64_t)high << 32 | low) >> (shift & 31));
}

/* min and max: of NaN and a number, the number. */
#define CUDA_DOUBLE_LEAST_AND_MOST(type)                                                           \
    inline type min(type x, type y) {                                                              \
        return y < x ? y : x;                                                                      \
    }                                                                                              \
    inline type max(type x, type y) {                                                              \
        return x < y ? y : x;                                                                      \
    }
CUDA_DOUBLE_LEAST_AND_MOST(int)
CUDA_DOUBLE_LEAST_AND_MOST(unsigned)
CUDA_DOUBLE_LEAST_AND_MOST(long)
CUDA_DOUBLE_LEAST_AND_MOST(unsigned long)
CUDA_DOUBLE_LEAST_AND_MOST(long long)
CUDA_DOUBLE_LEAST_AND_MOST(unsigned long long)
inline float min(float x, float y) {
    return fminf(x, y);
}
inline float max(float x, float y) {
    return fmaxf(x, y);
}
inline double min(double x, double y) {
    return fmin(x, y);
}
inline double max(double x, double y) {
    return fmax(x, y);
}
inline unsigned min(int x, unsigned y) {
    return min((unsigned)x, y);
}
inline unsigned min(unsigned x, int y) {
    return min(x, (unsigned)y);
}
inline unsigned max(int x, unsigned y) {
    return max((unsigned)x, y);
}
inline unsigned max(unsigned x, int y) {
    return max(x, (unsigned)y);
}

#define CUDA_DOUBLE_MAKE(type, name)                                                               \
    inline name##1 make_##name##1(type x) {                                                        \
        return name##1 {x};                                                                        \
    }                                                                                              \
    inline name##2 make_##name##2(type x, type y) {                                                \
        return name##2 {x, y};                                                                     \
    }                                                                                              \
    inline name##3 make_##name##3(type x, type y, type z) {                                        \
        return name##3 {x, y, z};                                                                  \
    }                                                                                              \
    inline name##4 make_##name##4(type x, type y, type z, type w) {                                \
        return name##4 {x, y, z, w};                                                               \
    }
CUDA_DOUBLE_MAKE(signed char, char)
CUDA_DOUBLE_MAKE(unsigned char, uchar)
CUDA_DOUBLE_MAKE(short, short)
CUDA_DOUBLE_MAKE(unsigned short, ushort)
CUDA_DOUBLE_MAKE(int, int)
CUDA_DOUBLE_MAKE(unsigned, uint)
CUDA_DOUBLE_MAKE(float, float)
CUDA_DOUBLE_MAKE(long long, longlong)
CUDA_DOUBLE_MAKE(unsigned long long, ulonglong)
CUDA_DOUBLE_MAKE(double, double)

#endif
