/* Inside of the cuda back end: the device, its streams and its scratch memory.
 *
 * Host code is C (device.c, list.c, memory.c, streams.c, gemm.c), kernels are CUDA C, one family
 * per file.  Each family exports mp_cuda_install_<family>, which puts its operations into a table,
 * and, if it needs scratch memory, says how much.  The library exports mp_cuda_open and
 * mp_cuda_list (cuda_library.c of reference/device finds them) and nothing else. */
#pragma once

#include <cublas_v2.h>
#include <cuda_runtime_api.h>

#include "reference/device/device.h"

#ifdef __cplusplus
extern "C" {
#endif

enum { MP_CUDA_SIDE_STREAMS = 4, MP_CUDA_EPOCHS = 16 };

/* A moment known on both clocks, and how the GPU's clock runs from there (streams.c). */
struct mp_cuda_epoch {
    cudaEvent_t event; /* of that moment */
    int64_t ns;        /* what event_time says of it */
    int64_t host_ns;   /* what the host's clock showed */
    double rate;       /* host nanoseconds in one of the GPU's */
    double correction; /* ns, spread over the epoch's first second */
};

struct mp_cuda_products; /* host arrays of a grouped GEMM (gemm.c) */
struct mp_cuda_grouped;  /* the same of one kernel for all groups (grouped.cu) */

struct mp_cuda {
    struct mp_device device; /* first: the public face */
    struct mp_device_operations operations;
    struct mp_device_limits limits;
    int rank, ordinal; /* of sentences; ordinal is the GPU */
    int multiprocessors;
    char name[256]; /* of the GPU */
    enum mp_grouped_products grouped_products;
    cudaStream_t stream; /* what NULL means as an mp_stream */
    cublasHandle_t cublas;
    /* Products of a grouped GEMM run on these between the two events. */
    cudaStream_t side[MP_CUDA_SIDE_STREAMS];
    cudaEvent_t fork, join[MP_CUDA_SIDE_STREAMS];
    struct mp_cuda_products *products;
    void *make_map; /* cuTensorMapEncodeTiled; NULL where the GPU is of another kind, too */
    struct mp_cuda_grouped *grouped; /* NULL where the GPU is of another kind */
    /* For event_time: the epochs made last, a ring; those with a rate of 0 are none.  The stream
     * has nothing else to do. */
    cudaStream_t clock_stream;
    struct mp_cuda_epoch epoch[MP_CUDA_EPOCHS];
    int epoch_now;
    /* Scratch of the operation at hand.  Operations that use it are queued on one stream at a time;
     * copy, zero, add and to_elements use none and may run beside them. */
    void *scratch;
    size_t scratch_bytes;
    /* Page-locked, for small host arrays that operations read during the call (parts of routes,
     * pointers and sizes of groups): a ring, since a copy queued from it may not have run when the
     * next operation comes.  See mp_cuda_upload. */
    char *ring;
    void *ring_device;
    size_t ring_bytes, ring_at;
    cudaEvent_t ring_half[2];
    int64_t used, most_used; /* bytes given out by allocate */
    /* What allocate has given out; CUDA does not say how long an allocation is. */
    struct mp_cuda_allocation {
        void *memory;
        size_t bytes;
    } * allocations;
    size_t allocation_count, allocation_room;
};

static inline struct mp_cuda *mp_cuda_of(struct mp_device *device) {
    return (struct mp_cuda *)device;
}

static inline cudaStream_t mp_cuda_stream(struct mp_cuda *cuda, mp_stream stream) {
    return stream ? (cudaStream_t)stream : cuda->stream;
}

static inline size_t mp_cuda_element_bytes(const struct mp_cuda *cuda) {
    return cuda->device.element == MP_FLOAT32 ? 4 : 2;
}

/* Keeps the first failure in the device: "rank 2, GPU 0 (NVIDIA H200): layer norm: ...".  True when
 * status is success. */
bool mp_cuda_note(struct mp_cuda *cuda, const char *doing, cudaError_t status);
bool mp_cuda_note_cublas(struct mp_cuda *cuda, const char *doing, cublasStatus_t status);
/* Keeps a failure, of MP_ELIMIT or MP_EINVAL, with the sentence. */
void mp_cuda_refuse(struct mp_cuda *cuda, int code, const char *sentence, ...)
    __attribute__((format(printf, 3, 4)));

/* The same of a failure while creating things, into `error`; returns the code. */
int mp_cuda_fail(const struct mp_cuda *cuda, const char *doing, cudaError_t status,
                 struct mp_error *error);
/* MP_ENOMEM: how much was wanted for `what`, how much there is, and what would help. */
int mp_cuda_fail_memory(const struct mp_cuda *cuda, const char *what, size_t bytes,
                        struct mp_error *error);

/* Device memory with `count` arrays of the host's, bytes[i] at host[i], one behind the other, in
 * one copy on `stream` before whatever is queued next; it stays until half the ring has been used
 * again.  NULL (and a failure kept) if they are more than half the ring.  128-byte aligned. */
void *mp_cuda_upload(struct mp_cuda *cuda, cudaStream_t stream, int count, const void *const host[],
                     const size_t bytes[]);

/* Sorts `count` keys in ascending order, stably, and an item with each of them.  The memory, of
 * mp_cuda_sorting_bytes(count) or more, is the sort's until it is done; no array may overlap
 * another.  False if a failure was kept. */
bool mp_cuda_sort(struct mp_cuda *cuda, const char *doing, mp_stream stream, int count,
                  const uint32_t *key, uint32_t *sorted_key, const int32_t *item,
                  int32_t *sorted_item, void *memory, size_t bytes);
size_t mp_cuda_sorting_bytes(int count);

/* Each applies one(family) to families of kernels: those with scratch memory, in bytes for these
 * limits, and all of them. */
#define MP_CUDA_SCRATCH_FAMILIES(one)                                                              \
    one(attention) one(embedding) one(gate_statistics) one(gemm) one(layer_norm) one(routes)
#define MP_CUDA_FAMILIES(one)                                                                      \
    MP_CUDA_SCRATCH_FAMILIES(one)                                                                  \
    one(elementwise) one(gate) one(gelu) one(loss) one(optimizer) one(permute)
#define MP_CUDA_DECLARE_SCRATCH(family)                                                            \
    size_t mp_cuda_scratch_##family(const struct mp_device_limits *limits, enum mp_element element);
#define MP_CUDA_DECLARE(family)                                                                    \
    void mp_cuda_install_##family(struct mp_device_operations *operations);
MP_CUDA_SCRATCH_FAMILIES(MP_CUDA_DECLARE_SCRATCH)
MP_CUDA_FAMILIES(MP_CUDA_DECLARE)
void mp_cuda_install_memory(struct mp_device_operations *operations);
void mp_cuda_install_streams(struct mp_device_operations *operations);

/* Steps of mp_cuda_open, each with the one that undoes it, whole or half done. */
int mp_cuda_create_ring(struct mp_cuda *cuda, struct mp_error *error);
void mp_cuda_destroy_ring(struct mp_cuda *cuda);
int mp_cuda_create_streams(struct mp_cuda *cuda, struct mp_error *error);
void mp_cuda_destroy_streams(struct mp_cuda *cuda);
int mp_cuda_create_products(struct mp_cuda *cuda, struct mp_error *error);
void mp_cuda_destroy_products(struct mp_cuda *cuda);
/* A fresh epoch, unless the present one is young: where the host waits anyway. */
void mp_cuda_keep_time(struct mp_cuda *cuda);
/* GPUs there are, at least 1; fails as mp_cuda_open does where there is none to be had. */
int mp_cuda_count(int *count, struct mp_error *error);

/* What the library exports; mp_device_cuda_create and _list of device.h hand through to them. */
int mp_cuda_open(const struct mp_cuda_settings *settings, const struct mp_device_limits *limits,
                 struct mp_device **device, struct mp_error *error);
int mp_cuda_list(struct mp_cuda_gpu gpus[], int limit, int *count, struct mp_error *error);

#ifdef __cplusplus
}
#endif
