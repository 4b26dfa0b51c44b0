/* What tests of the cuda back end share.  They run on the double of CUDA (tests/double/cuda): the
 * library that MOEPERF_CUDA_LIBRARY names is built of the same sources, and loaded as the real one
 * is.  Those of its kernels also run on a GPU (on_double.h).  Results are compared with sums in
 * double precision over the same, rounded inputs. */
#pragma once

#include <string.h>

#include "reference/device/device.h"
#include "tests/errors.h"
#include "tests/reference/device/cuda/on_double.h"

static const struct mp_device_limits test_limits = {
    .attention = {2, 64, 2, 32}, .experts = 64, .width = 256, .tokens = 512};

static inline struct mp_device *open_device(enum mp_element element) {
    struct mp_cuda_settings settings = {.rank = 2, .element = element};
    struct mp_device *device = NULL;
    assert_works(mp_device_cuda_create(&settings, &test_limits, &device, &error));
    return device;
}

/* The device is destroyed, must not have failed, and must have left nothing behind. */
static inline void close_device(struct mp_device *device) {
    device->operations->stream_synchronize(device, NULL);
    assert_works(mp_device_check(device, &error));
    mp_device_destroy(device);
    struct cuda_double_counts counts = double_counts();
    assert_numbers(counts.device_live, 0, counts.host_live, 0, counts.streams, 0, counts.events, 0);
}

static inline void sleep_us(int microseconds) {
    struct timespec time = {microseconds / 1000000, microseconds % 1000000 * 1000L};
    nanosleep(&time, NULL);
}
