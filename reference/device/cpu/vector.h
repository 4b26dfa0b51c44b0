/* Elementary functions that compilers turn into vector code: no branch, no table, no call. */
#ifndef MOEPERF_REFERENCE_DEVICE_CPU_VECTOR_H
#define MOEPERF_REFERENCE_DEVICE_CPU_VECTOR_H

#include <stddef.h>
#include <stdint.h>

/* e^x, relative error below 2e-7.  x is held within -87 .. 87, so that neither the result nor its
 * reciprocal is denormal or infinite; NaN stays NaN. */
static inline float vector_exp(float x) {
    const float log2_e = 1.44269504f;
    /* ln 2 in two parts: the first has so few bits that its product with an exponent is exact. */
    const float ln2_high = 0.693359375f, ln2_low = -2.12194440e-4f;
    /* Adding 1.5 * 2^23 rounds to an integer and leaves it in the low bits of the sum. */
    const float round = 12582912.0f;
    x = x < -87.0f ? -87.0f : x;
    x = x > 87.0f ? 87.0f : x;

    union {
        float value;
        uint32_t bits;
    } shifted = {.value = x * log2_e + round}, power;
    float exponent = shifted.value - round;
    float r = x - exponent * ln2_high;
    r = r - exponent * ln2_low;
    /* The exponential series; |r| <= ln 2 / 2, the first term left out is below 6e-9. */
    float series = 1.0f / 5040;
    series = series * r + 1.0f / 720;
    series = series * r + 1.0f / 120;
    series = series * r + 1.0f / 24;
    series = series * r + 1.0f / 6;
    series = series * r + 0.5f;
    series = series * r + 1.0f;
    series = series * r + 1.0f;
    power.bits = (shifted.bits + 127) << 23;
    return series * power.value;
}

/* 1 / (1 + e^-x); accurate relative to its value at both ends. */
static inline float vector_sigmoid(float x) {
    return 1.0f / (1.0f + vector_exp(-x));
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

#endif
