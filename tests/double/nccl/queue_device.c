#include "tests/double/nccl/queue_device.h"

#include <stdio.h>
#include <stdlib.h>

#include "tests/double/cuda/double.h"

struct mp_device *queue_device_create(uint64_t seed, int pause_us) {
    const struct mp_cuda_settings settings = {.rank = -1, .ordinal = (int)(seed % 2)};
    const struct mp_device_limits limits = {
        .attention = {1, 16, 1, 16}, .experts = 8, .width = 64, .tokens = 64};
    struct mp_device *device = NULL;
    struct mp_error error = {0};
    setenv("MOEPERF_CUDA_LIBRARY", CUDA_DOUBLE, 1);
    cuda_double_set_seed(seed);
    cuda_double_set_delay(pause_us / 4); /* before each operation, not only some */
    if (mp_device_cuda_create(&settings, &limits, &device, &error))
        fprintf(stderr, "%s\n", error.text);
    return device;
}

int queue_device_live(void) {
    struct cuda_double_counts counts;
    cuda_double_get_counts(&counts);
    return (int)(counts.device_live + counts.host_live + counts.streams + counts.events);
}

void queue_device_fail(int n) {
    cuda_double_fail_allocation(n);
}

int64_t queue_device_allocations(void) {
    struct cuda_double_counts counts;
    cuda_double_get_counts(&counts);
    return counts.allocations;
}

void queue_device_enqueue(struct mp_device *device, mp_stream stream, void (*work)(void *),
                          void *context) {
    cuda_double_enqueue(device->operations->native_stream(device, stream), work, NULL, context);
}
