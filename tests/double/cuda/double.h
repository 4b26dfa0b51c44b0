/* What tests ask of the double beyond the CUDA API: devices that differ, failures on demand,
 * delays, work of one's own on a stream.
 *
 * Settings are of the process.  Some start from an environment variable, so that programs can be
 * run with it; functions may be called at any time.  Launches, bytes and operations are counted
 * from the start or from the last cuda_double_reset. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "cuda_runtime_api.h"

#ifdef __cplusplus
extern "C" {
#endif

enum { CUDA_DOUBLE_DEVICES = 16 }; /* the most there can be */

struct cuda_double_device {
    char name[256];
    unsigned char uuid[16];
    int capability; /* 90: 9.0 */
    int multiprocessors;
    size_t memory;      /* bytes */
    size_t others_used; /* bytes of it that other processes hold */
};

/* Back to what the environment says, and no error kept; nothing may be queued. */
void cuda_double_reset(void);

/* MOEPERF_DOUBLE_DEVICES=N: how many GPUs there are, 2 if it is not said.  0: cudaErrorNoDevice. */
void cuda_double_set_device_count(int count);
/* MOEPERF_DOUBLE_NAMES=name,name,...: the last holds for the ordinals behind it. */
void cuda_double_set_device(int ordinal, const struct cuda_double_device *device);
void cuda_double_get_device(int ordinal, struct cuda_double_device *device);
/* The version that the driver says it has, 12040.  Below CUDART_VERSION's major release:
 * cudaErrorInsufficientDriver.  0: there is no driver. */
void cuda_double_set_driver(int version);

/* The cudaMalloc that would make the bytes of this process on any one device more than this fails;
 * -1: only when the device is full. */
void cuda_double_fail_malloc_after(int64_t bytes);
/* The same of cudaMallocHost. */
void cuda_double_fail_host_after(int64_t bytes);
/* The n-th launch of a kernel from now, 1 the next, fails; 0: none.  cudaErrorLaunchFailure,
 * cudaErrorIllegalAddress, cudaErrorMisalignedAddress, cudaErrorLaunchTimeout and
 * cudaErrorECCUncorrectable come to light when the kernel runs and stay; other errors are what the
 * launch returns. */
void cuda_double_fail_launch(int n, cudaError_t error);
/* Only n streams can be created; -1: any number. */
void cuda_double_fail_streams_after(int n);
/* The n-th allocation of memory of either kind from now, 1 the next, fails; 0: none does. */
void cuda_double_fail_allocation(int n);

/* MOEPERF_DOUBLE_DELAY=microseconds: before each queued operation its stream waits for a random
 * time of up to this. */
void cuda_double_set_delay(int microseconds);
/* MOEPERF_DOUBLE_SEED, else MOEPERF_SEED, else 1: of the delays and of the order in which the
 * blocks of a grid, and the threads of a block between barriers, are run. */
void cuda_double_set_seed(uint64_t seed);

/* Counts: of this process, all devices together. */
struct cuda_double_counts {
    int64_t launches, products;     /* kernels; calls that have cuBLAS multiply */
    int64_t copies, copied_bytes;   /* with cudaMemset */
    int64_t allocations;            /* calls of cudaMalloc so far */
    int64_t device_live, host_live; /* allocations not freed yet; page-locked ones */
    int64_t device_bytes;
    int64_t streams, events;  /* not destroyed yet */
    int64_t synchronisations; /* calls that made the host wait */
};
void cuda_double_get_counts(struct cuda_double_counts *counts);

/* Queues work(context) on the stream, behind what it has; release(context), if given, follows, also
 * where the work is not done because the device has failed.  It runs on the stream's own thread and
 * may block.  False (and nothing called) if the stream is none. */
bool cuda_double_enqueue(cudaStream_t stream, void (*work)(void *context),
                         void (*release)(void *context), void *context);
/* Keeps an error that stays, as a fault of a kernel does, and says `sentence` on standard error. */
void cuda_double_fault(cudaError_t error, const char *sentence, ...)
    __attribute__((format(printf, 2, 3)));
/* What any call on the device fails with now: no driver, no device, or an error that stays. */
cudaError_t cuda_double_check(void);
/* True if [memory, memory + bytes) lies within a live allocation of cudaMalloc, or within
 * page-locked memory, which the GPU reaches at the same address (unified addressing). */
bool cuda_double_is_device(const void *memory, size_t bytes);

/* What the templates of cuda_runtime.h hand over; not for tests. */
cudaError_t cuda_double_launch(const cudaLaunchConfig_t *config, const void *kernel,
                               void (*call)(void *arguments), int (*astray)(const void *arguments),
                               void (*release)(void *arguments), void *arguments);
bool cuda_double_is_reachable(const void *memory);
cudaError_t cuda_double_error(cudaError_t error); /* kept for cudaGetLastError */

#ifdef __cplusplus
}
#endif
