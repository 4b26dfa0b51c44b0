/* Elementary functions that compilers turn into vector code: no branch, no table, no call. */
#pragma once

#include <stddef.h>
#include <stdint.h>

/* Adding 1.5 * 2^23 rounds to an integer, which is then in the low bits of the sum. */
#define VECTOR_ROUND 12582912.0f

/* 2^n, n given as n + VECTOR_ROUND, times e^r for |r| <= ln 2 / 2.  The polynomial interpolates e^r
 * at Chebyshev's nodes, with the first two coefficients set to 1; it is off by 2e-8 at most. */
static inline float vector_power(float n_shifted, float r) {
    union {
        float value;
        uint32_t bits;
    } shifted = {.value = n_shifted}, power;
    float series = 0.00139411189f;
    series = series * r + 0.00837513477f;
    series = series * r + 0.0416663528f;
    series = series * r + 0.166664154f;
    series = series * r + 0.500000005f;
    series = series * r + 1.0f;
    series = series * r + 1.0f;
    power.bits = (shifted.bits + 127) << 23;
    return series * power.value;
}

/* e^x, relative error below 2e-7.  x is held within -87 .. 87, so that neither the result nor its
 * reciprocal is denormal or infinite; NaN stays NaN. */
static inline float vector_exp(float x) {
    /* ln 2 in two parts: the first has so few bits that its product with an exponent is exact. */
    const float ln2_high = 0.693359375f, ln2_low = -2.12194440e-4f;
    x = x < -87.0f ? -87.0f : x;
    x = x > 87.0f ? 87.0f : x;
    float shifted = x * 1.44269504f + VECTOR_ROUND;
    float n = shifted - VECTOR_ROUND;
    float r = x - n * ln2_high;
    r = r - n * ln2_low;
    return vector_power(shifted, r);
}

/* 2^x for |x| <= 126 or NaN; relative error below 2e-7. */
static inline float vector_exp2(float x) {
    float shifted = x + VECTOR_ROUND;
    float fraction = x - (shifted - VECTOR_ROUND);
    return vector_power(shifted, fraction * 0.693147181f);
}

/* out[i] = e^(x[i] - largest), which may be x; returns their sum. */
static inline float vector_exponentials(size_t count, const float *x, float largest, float *out) {
    float sum = 0;
#pragma omp simd reduction(+ : sum)
    for (size_t i = 0; i < count; i++) {
        float exponential = vector_exp(x[i] - largest);
        out[i] = exponential;
        sum += exponential;
    }
    return sum;
}

/* The largest of count >= 1 values, NaN left out unless it is the first.  Lanes by hand: clang does
 * not vectorise a maximum of floats as a reduction while NaN may occur. */
static inline float vector_largest(size_t count, const float *x) {
    enum { LANES = 16 };
    float lane[LANES];
    for (int l = 0; l < LANES; l++)
        lane[l] = x[0];
    size_t i = 0;
    for (; i + LANES <= count; i += LANES)
        for (int l = 0; l < LANES; l++)
            lane[l] = x[i + (size_t)l] > lane[l] ? x[i + (size_t)l] : lane[l];
    float largest = lane[0];
    for (int l = 1; l < LANES; l++)
        largest = lane[l] > largest ? lane[l] : largest;
    for (; i < count; i++)
        largest = x[i] > largest ? x[i] : largest;
    return largest;
}
