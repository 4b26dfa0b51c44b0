/* Arrays of fp32 or bf16 in a device's memory, until the test ends, for the tests of operations:
 * between values that must stay as they are, and starting some elements behind an aligned address.
 */
#pragma once

#include "tests/reference/device/device_support.h"

enum { BESIDE = 16 }; /* elements behind an array that nobody may write */

struct array {
    struct mp_device *device;
    enum mp_element type;
    size_t count, shift;
    double *value; /* what it was given */
    void *base, *at;
};

static inline uint16_t to_bfloat16(float value) {
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    if (isnan(value))
        return 0x7fff;
    return (uint16_t)((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

static inline float from_bfloat16(uint16_t value) {
    uint32_t bits = (uint32_t)value << 16;
    float result;
    memcpy(&result, &bits, sizeof result);
    return result;
}

static inline size_t bytes_of(enum mp_element type) {
    return type == MP_FLOAT32 ? 4 : 2;
}

static inline void write_value(enum mp_element type, char *raw, size_t i, double value) {
    float wide = (float)value;
    uint16_t narrow = to_bfloat16(wide);
    if (type == MP_FLOAT32)
        memcpy(raw + 4 * i, &wide, 4);
    else
        memcpy(raw + 2 * i, &narrow, 2);
}

static inline double read_value(enum mp_element type, const char *raw, size_t i) {
    float wide;
    uint16_t narrow;
    if (type == MP_FLOAT32) {
        memcpy(&wide, raw + 4 * i, 4);
        return (double)wide;
    }
    memcpy(&narrow, raw + 2 * i, 2);
    return (double)from_bfloat16(narrow);
}

/* Front guard of `shift` elements, the array, and the guard behind it. */
static inline size_t whole(const struct array *a) {
    return a->shift + a->count + BESIDE;
}

/* Sends value[], and keeps in it what the device has after rounding.  Guards are -77. */
static inline void send(struct array *a) {
    size_t bytes = whole(a) * bytes_of(a->type);
    char *raw = new_host(bytes, 1);
    for (size_t i = 0; i < whole(a); i++) {
        bool guard = i < a->shift || i >= a->shift + a->count;
        write_value(a->type, raw, i, guard ? -77 : a->value[i - a->shift]);
        if (!guard)
            a->value[i - a->shift] = read_value(a->type, raw, i);
    }
    a->device->operations->copy_from_host(a->device, NULL, a->base, raw, bytes);
}

/* Takes `value` over. */
static inline struct array array_of(struct mp_device *device, enum mp_element type, size_t count,
                                    int shift, double *value) {
    struct array a = {device, type, count, (size_t)shift, value, NULL, NULL};
    a.base = new_on_device(whole(&a) * bytes_of(type));
    a.at = (char *)a.base + a.shift * bytes_of(type);
    send(&a);
    return a;
}

static inline double *copy_doubles(const double *from, size_t count) {
    double *values = new_doubles(count);
    memcpy(values, from, count * sizeof *values);
    return values;
}

/* Uniform in offset +- scale. */
static inline struct array random_array(struct mp_device *device, enum mp_element type,
                                        size_t count, int shift, double scale, double offset) {
    double *value = new_doubles(count);
    for (size_t i = 0; i < count; i++)
        value[i] = offset + scale * (2 * test_random_double(&random_state) - 1);
    return array_of(device, type, count, shift, value);
}

/* For results: what reads it before it is written shows. */
static inline struct array spoilt_array(struct mp_device *device, enum mp_element type,
                                        size_t count, int shift) {
    return random_array(device, type, count, shift, 0, (double)NAN);
}

/* What the device has now, in doubles; its guards must be as they were. */
static inline double *received(const struct array *a) {
    size_t bytes = whole(a) * bytes_of(a->type);
    char *raw = new_host(bytes, 1);
    double *value = new_doubles(a->count);
    a->device->operations->copy_to_host(a->device, NULL, raw, a->base, bytes);
    for (size_t i = 0; i < whole(a); i++) {
        if (i >= a->shift && i < a->shift + a->count)
            value[i - a->shift] = read_value(a->type, raw, i);
        else if (read_value(a->type, raw, i) != -77)
            fail_msg("element %zu beside an array of %zu has been written", i, a->count);
    }
    return value;
}

/* |actual - expected| within rounding to the array's type and within `tolerance`, which holds for
 * every element, or for element i with that of row i / width. */
static inline void check_array(const struct array *a, const double *expected, size_t width,
                               const double tolerance[], const char *what) {
    double *actual = received(a);
    double rounding = a->type == MP_FLOAT32 ? 0x1p-24 : 0x1p-8;
    for (size_t i = 0; i < a->count; i++) {
        double allowed =
            1.001 * rounding * fabs(expected[i]) + tolerance[width ? i / width : 0] + 1e-38;
        if (fabs(actual[i] - expected[i]) <= allowed || (isnan(actual[i]) && isnan(expected[i])) ||
            actual[i] == expected[i])
            continue;
        fail_msg("%s[%zu] is %.9g, expected %.9g within %.3g", what, i, actual[i], expected[i],
                 allowed);
    }
}

/* The same to the last bit. */
static inline void check_exactly(const struct array *a, const double *expected, const char *what) {
    double *actual = received(a);
    for (size_t i = 0; i < a->count; i++)
        if (memcmp(&actual[i], &expected[i], sizeof actual[i]) != 0)
            fail_msg("%s[%zu] is %.17g, not %.17g", what, i, actual[i], expected[i]);
}

static inline void add_doubles(double *to, const double *from, size_t count) {
    for (size_t i = 0; i < count; i++)
        to[i] += from[i];
}

static inline int32_t *ints_on_device(struct mp_device *device, const int32_t *values,
                                      size_t count) {
    int32_t *memory = new_on_device((count + 1) * sizeof *values);
    device->operations->copy_from_host(device, NULL, memory, values, count * sizeof *values);
    return memory;
}

/* ---- cases ---- */

struct dense_case {
    const char *name;
    void (*run)(struct mp_device *device, const struct dense_case *c);
    int rows, width; /* width 0: several random ones */
    int other;       /* vocabulary, sequence: see the test */
    int shift;
    double scale, offset; /* of inputs; scale 0: 1 */
};

static inline double scale_of(const struct dense_case *c) {
    return c->scale != 0 ? c->scale : 1;
}

/* A program of these. */
#define DENSE_PROGRAM(cases, limits_)                                                              \
    DEVICE_EACH(operation_matches, cases) {                                                        \
        c->run(device, c);                                                                         \
    }                                                                                              \
    DEVICE_PROGRAM(.limits = &(limits_), .has_elements = true)
