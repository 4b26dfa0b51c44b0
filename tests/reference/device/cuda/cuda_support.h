/* What tests of the cuda back end share.  They run on the double of CUDA (tests/double/cuda): the
 * library that MOEPERF_CUDA_LIBRARY names is built of the same sources, and loaded as the real one
 * is.  Those of its kernels also run on a GPU (on_double.h).  Results are compared with sums in
 * double precision over the same, rounded inputs. */
#ifndef MOEPERF_TESTS_REFERENCE_DEVICE_CUDA_CUDA_SUPPORT_H
#define MOEPERF_TESTS_REFERENCE_DEVICE_CUDA_CUDA_SUPPORT_H

#include <string.h>

#include "reference/device/device.h"
#include "tests/reference/device/cuda/on_double.h"
#include "tests/support.h"

static uint64_t random_state;

static const struct mp_device_limits test_limits = {
    .attention = {2, 64, 2, 32}, .experts = 64, .width = 256, .tokens = 512};

static inline struct mp_device *open_device(enum mp_element element, bool grouped_library) {
    struct mp_cuda_settings settings = {
        .rank = 2, .element = element, .grouped_library = grouped_library};
    struct mp_error error = {0};
    struct mp_device *device = NULL;
    if (mp_device_cuda_create(&settings, &test_limits, &device, &error))
        fail_msg("%s", error.text);
    return device;
}

/* The device is destroyed, must not have failed, and must have left nothing behind. */
static inline void close_device(struct mp_device *device) {
    struct mp_error error = {0};
    device->operations->stream_synchronize(device, NULL);
    if (mp_device_check(device, &error))
        fail_msg("%s", error.text);
    mp_device_destroy(device);
    struct cuda_double_counts counts = double_counts();
    assert_int_equal(counts.device_live, 0);
    assert_int_equal(counts.host_live, 0);
    assert_int_equal(counts.streams, 0);
    assert_int_equal(counts.events, 0);
}

/* ---- arrays of a type in device memory ---- */

/* To the nearest bf16, ties to even: the upper half of a float's bits. */
static inline uint16_t to_bfloat16(float value) {
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    return (uint16_t)((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

static inline float from_bfloat16(uint16_t value) {
    uint32_t bits = (uint32_t)value << 16;
    float result;
    memcpy(&result, &bits, sizeof result);
    return result;
}

static inline size_t bytes_of(enum mp_element type, size_t count) {
    return count * (type == MP_FLOAT32 ? 4 : 2);
}

/* Values on the host, as the device has them, and where it has them. */
struct array {
    enum mp_element type;
    size_t count;
    double *value;
    void *memory;
};

/* value[] rounded to the type, in device memory. */
static inline void send_array(struct mp_device *device, const struct array *array) {
    size_t bytes = bytes_of(array->type, array->count);
    char *raw = malloc(bytes + 1);
    assert_non_null(raw);
    for (size_t i = 0; i < array->count; i++) {
        float value = (float)array->value[i];
        uint16_t narrow = to_bfloat16(value);
        if (array->type == MP_FLOAT32)
            memcpy(raw + 4 * i, &value, 4);
        else
            memcpy(raw + 2 * i, &narrow, 2);
        array->value[i] = (double)(array->type == MP_FLOAT32 ? value : from_bfloat16(narrow));
    }
    device->operations->copy_from_host(device, NULL, array->memory, raw, bytes);
    free(raw);
}

/* Uniform in -1 .. 1; NaN where `spoilt`, for what is only written. */
static inline struct array new_array(struct mp_device *device, enum mp_element type, size_t count,
                                     bool spoilt) {
    struct array array = {type, count, malloc((count + 1) * sizeof(double)),
                          device->operations->allocate(device, bytes_of(type, count))};
    assert_non_null(array.value);
    assert_non_null(array.memory);
    for (size_t i = 0; i < count; i++)
        array.value[i] = spoilt ? (double)NAN : 2 * test_random_double(&random_state) - 1;
    send_array(device, &array);
    return array;
}

/* What the device has now, into a new array of doubles. */
static inline double *read_array(struct mp_device *device, const struct array *array) {
    size_t bytes = bytes_of(array->type, array->count);
    double *value = malloc((array->count + 1) * sizeof *value);
    char *raw = malloc(bytes + 1);
    assert_non_null(value);
    assert_non_null(raw);
    device->operations->copy_to_host(device, NULL, raw, array->memory, bytes);
    for (size_t i = 0; i < array->count; i++) {
        float wide = 0;
        uint16_t narrow = 0;
        if (array->type == MP_FLOAT32)
            memcpy(&wide, raw + 4 * i, 4);
        else
            memcpy(&narrow, raw + 2 * i, 2);
        value[i] = (double)(array->type == MP_FLOAT32 ? wide : from_bfloat16(narrow));
    }
    free(raw);
    return value;
}

static inline void free_array(struct mp_device *device, struct array *array) {
    device->operations->release(device, array->memory);
    free(array->value);
}

/* Rounding of a result: to the type, from sums in fp32 whose terms are of the given magnitude. */
static inline double tolerance_of(enum mp_element type, double result, double magnitude) {
    return (type == MP_FLOAT32 ? 0 : fabs(result) * 0x1p-8) + 1e-6 * magnitude + 1e-30;
}

static inline void sleep_us(int microseconds) {
    struct timespec time = {microseconds / 1000000, microseconds % 1000000 * 1000L};
    nanosleep(&time, NULL);
}

#endif
