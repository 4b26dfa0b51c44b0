/* Settings: of the environment, of tests; devices as they are described. */
#include "internal.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct double_state double_state = {
    .lock = PTHREAD_MUTEX_INITIALIZER,
    .progress = PTHREAD_COND_INITIALIZER,
};

static long long number_of(const char *name, long long otherwise) {
    const char *text = getenv(name);
    return text && *text ? strtoll(text, NULL, 0) : otherwise;
}

static void read_device(int ordinal, struct cuda_double_device *device) {
    const char *name = getenv("MOEPERF_DOUBLE_NAMES"), *comma;
    *device = (struct cuda_double_device){
        .capability = 90, .memory = (size_t)8 << 30, .multiprocessors = 4};
    for (int i = 0; name && i < ordinal && (comma = strchr(name, ',')); i++)
        name = comma + 1;
    snprintf(device->name, sizeof device->name, "%.*s", name ? (int)strcspn(name, ",") : -1,
             name ? name : "CUDA double");
    /* The same device has the same one in every process, and no two the same. */
    uint64_t random = 0x6d6f6570657266u + (uint64_t)ordinal;
    for (int i = 0; i < 16; i++)
        device->uuid[i] = (unsigned char)double_random(&random);
}

void double_read_settings(void) {
    struct double_state *s = &double_state;
    s->device_count = (int)number_of("MOEPERF_DOUBLE_DEVICES", 2);
    if (s->device_count < 0 || s->device_count > CUDA_DOUBLE_DEVICES)
        s->device_count = CUDA_DOUBLE_DEVICES;
    for (int i = 0; i < CUDA_DOUBLE_DEVICES; i++)
        read_device(i, &s->devices[i]);
    s->driver = CUDART_VERSION;
    s->delay_us = (int)number_of("MOEPERF_DOUBLE_DELAY", 0);
    s->seed = (uint64_t)number_of("MOEPERF_DOUBLE_SEED", number_of("MOEPERF_SEED", 1));
    s->malloc_limit = s->host_limit = s->streams_left = -1;
    s->allocations_left = s->launches_left = 0;
    s->ready = true;
}

void double_enter(void) {
    pthread_mutex_lock(&double_state.lock);
    if (!double_state.ready)
        double_read_settings();
}

void double_leave(void) {
    pthread_mutex_unlock(&double_state.lock);
}

uint64_t double_random(uint64_t *state) {
    uint64_t z = *state += 0x9E3779B97F4A7C15u;
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
    return z ^ (z >> 31);
}

void cuda_double_reset(void) {
    double_enter();
    double_drain_all();
    double_read_settings();
    double_state.fault = cudaSuccess;
    double_leave();
    cudaGetLastError();
}

void cuda_double_set_device_count(int count) {
    double_enter();
    double_state.device_count = count < CUDA_DOUBLE_DEVICES ? count : CUDA_DOUBLE_DEVICES;
    double_leave();
}

void cuda_double_set_device(int ordinal, const struct cuda_double_device *device) {
    double_enter();
    if (ordinal >= 0 && ordinal < CUDA_DOUBLE_DEVICES)
        double_state.devices[ordinal] = *device;
    double_leave();
}

void cuda_double_get_device(int ordinal, struct cuda_double_device *device) {
    double_enter();
    if (ordinal >= 0 && ordinal < CUDA_DOUBLE_DEVICES)
        *device = double_state.devices[ordinal];
    double_leave();
}

#define SETTER(name, type, field)                                                                  \
    void cuda_double_##name(type value) {                                                          \
        double_enter();                                                                            \
        double_state.field = value;                                                                \
        double_leave();                                                                            \
    }
SETTER(set_driver, int, driver)
SETTER(set_delay, int, delay_us)
SETTER(set_seed, uint64_t, seed)
SETTER(fail_malloc_after, int64_t, malloc_limit)
SETTER(fail_host_after, int64_t, host_limit)
SETTER(fail_streams_after, int, streams_left)
SETTER(fail_allocation, int, allocations_left)

void cuda_double_fail_launch(int n, cudaError_t error) {
    double_enter();
    double_state.launches_left = n;
    double_state.launch_error = error;
    double_leave();
}

void cuda_double_get_counts(struct cuda_double_counts *counts) {
    double_enter();
    *counts = double_state.counts;
    double_leave();
}

void cuda_double_fault(cudaError_t error, const char *sentence, ...) {
    va_list arguments;
    flockfile(stderr);
    fprintf(stderr, "CUDA double: %s: ", cudaGetErrorName(error));
    va_start(arguments, sentence);
    vfprintf(stderr, sentence, arguments);
    va_end(arguments);
    fputc('\n', stderr);
    funlockfile(stderr);
    /* Who waits for the fault finds the whole sentence there. */
    double_enter();
    if (!double_state.fault)
        double_state.fault = error;
    double_leave();
}
