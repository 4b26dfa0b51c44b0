/* Double of CUDA's bfloat16: the types and their conversions.  Arithmetic and comparison between
 * them are left out on purpose: kernels compute in float. */
#pragma once

typedef struct {
    unsigned short x;
} __nv_bfloat16_raw;

#ifdef __cplusplus

#include "cuda_runtime.h"

struct __nv_bfloat16 {
    __nv_bfloat16() = default;
    __nv_bfloat16(__nv_bfloat16_raw raw) : bits(raw.x) {}
    __nv_bfloat16(float value) : bits(rounded(value)) {}
    operator float() const {
        return __uint_as_float((unsigned)bits << 16);
    }
    operator __nv_bfloat16_raw() const {
        return __nv_bfloat16_raw{bits};
    }

  private:
    /* To nearest, ties to even; any NaN becomes 0x7fff, as CUDA's does. */
    static unsigned short rounded(float value) {
        unsigned whole = __float_as_uint(value);
        if (isnan(value))
            return 0x7fff;
        return (unsigned short)((whole + 0x7fffu + (whole >> 16 & 1u)) >> 16);
    }
    unsigned short bits;
};

struct __attribute__((aligned(4))) __nv_bfloat162 {
    __nv_bfloat16 x, y;
};

typedef __nv_bfloat16 nv_bfloat16;
typedef __nv_bfloat162 nv_bfloat162;

#define CUDA_DOUBLE_NO_OPERATOR(sign)                                                              \
    void operator sign(__nv_bfloat16, __nv_bfloat16) = delete;                                     \
    void operator sign(__nv_bfloat16, float) = delete;                                             \
    void operator sign(float, __nv_bfloat16) = delete;
CUDA_DOUBLE_NO_OPERATOR(+)
CUDA_DOUBLE_NO_OPERATOR(-)
CUDA_DOUBLE_NO_OPERATOR(*)
CUDA_DOUBLE_NO_OPERATOR(/)
CUDA_DOUBLE_NO_OPERATOR(<)
CUDA_DOUBLE_NO_OPERATOR(>)
CUDA_DOUBLE_NO_OPERATOR(<=)
CUDA_DOUBLE_NO_OPERATOR(>=)
CUDA_DOUBLE_NO_OPERATOR(==)
CUDA_DOUBLE_NO_OPERATOR(!=)

inline float __bfloat162float(__nv_bfloat16 value) {
    return (float)value;
}
inline __nv_bfloat16 __float2bfloat16_rn(float value) {
    return __nv_bfloat16(value);
}
inline unsigned short __bfloat16_as_ushort(__nv_bfloat16 value) {
    return static_cast<__nv_bfloat16_raw>(value).x;
}
inline __nv_bfloat162 __floats2bfloat162_rn(float low, float high) {
    return __nv_bfloat162{__nv_bfloat16(low), __nv_bfloat16(high)};
}

#else

typedef __nv_bfloat16_raw __nv_bfloat16;

#endif
