/* Memory: exactly as large as asked for, filled with what no program expects, and known. */
#include "internal.h"

#include <stdlib.h>
#include <string.h>

#if defined(__SANITIZE_ADDRESS__)
enum { TAIL = 0 }; /* the sanitizer sees accesses behind the end */
#else
enum { TAIL = 64 }; /* bytes behind the end that stay as they are */
#endif
enum { ALIGNMENT = 256, GARBAGE = 0xff, TAIL_BYTE = 0xa5, FILLED = 4 << 20 };

enum home { DEVICE, PINNED };

/* Where it is is kept inverted, lest the leak sanitizer take this list for a user of it. */
struct allocation {
    struct allocation *next;
    uintptr_t inverted;
    size_t bytes;
    enum home home;
    int device;
};

static struct allocation *allocations;

/* The allocation that contains the address; locked. */
static struct allocation *find(const void *memory) {
    for (struct allocation *a = allocations; a; a = a->next) {
        uintptr_t start = ~a->inverted, at = (uintptr_t)memory;
        if (at >= start && at - start < a->bytes)
            return a;
    }
    return NULL;
}

static bool contains(const struct allocation *a, const void *memory, size_t bytes) {
    size_t before = (uintptr_t)memory - ~a->inverted;
    return bytes <= a->bytes - before;
}

bool cuda_double_is_device(const void *memory, size_t bytes) {
    double_enter();
    const struct allocation *a = find(memory);
    bool is = a && contains(a, memory, bytes);
    double_leave();
    return is;
}

/* By a kernel: within device or page-locked memory, at the end of it (where nothing is read), or
 * nowhere. */
bool cuda_double_is_reachable(const void *memory) {
    double_enter();
    bool reachable = !memory || find(memory) || find((const char *)memory - 1);
    double_leave();
    return reachable;
}

/* Large memory, such as the workspace of a library, only at its ends: filling the pages of all
 * would take longer than most tests. */
static void fill_with_garbage(unsigned char *memory, size_t bytes) {
    if (bytes <= 4 * (size_t)FILLED) {
        memset(memory, GARBAGE, bytes);
        return;
    }
    memset(memory, GARBAGE, FILLED);
    memset(memory + bytes - FILLED, GARBAGE, FILLED);
}

/* Bytes that the device at hand has left; locked. */
static size_t left_on_device(void) {
    const struct cuda_double_device *of = &double_state.devices[double_device()];
    size_t used = of->others_used + (size_t)double_state.device_used[double_device()];
    return used < of->memory ? of->memory - used : 0;
}

/* sign: 1 for what comes, -1 for what goes.  Locked. */
static void count_allocation(const struct allocation *a, int sign) {
    struct double_state *s = &double_state;
    int64_t bytes = sign * (int64_t)a->bytes;
    *(a->home == DEVICE ? &s->device_used[a->device] : &s->host_used) += bytes;
    *(a->home == DEVICE ? &s->counts.device_live : &s->counts.host_live) += sign;
    s->counts.device_bytes += a->home == DEVICE ? bytes : 0;
    s->counts.allocations += a->home == DEVICE && sign > 0;
}

/* Locked. */
static cudaError_t allocate(void **memory, size_t bytes, enum home home) {
    struct double_state *s = &double_state;
    int64_t limit = home == DEVICE ? s->malloc_limit : s->host_limit;
    int64_t used = home == DEVICE ? s->device_used[double_device()] : s->host_used;
    size_t room = home == DEVICE ? left_on_device() : SIZE_MAX / 2;
    struct allocation *a;
    unsigned char *made = NULL;
    if (bytes > room || (limit >= 0 && bytes > (size_t)(limit > used ? limit - used : 0)))
        return cudaErrorMemoryAllocation;
    *memory = NULL;
    if (bytes == 0)
        return cudaSuccess;
    if (s->allocations_left > 0 && --s->allocations_left == 0)
        return cudaErrorMemoryAllocation;
    if (!(a = malloc(sizeof *a)) || posix_memalign((void **)&made, ALIGNMENT, bytes + TAIL) != 0) {
        free(a);
        return cudaErrorMemoryAllocation;
    }
    *a = (struct allocation){allocations, ~(uintptr_t)made, bytes, home, double_device()};
    allocations = a;
    count_allocation(a, 1);
    fill_with_garbage(made, bytes);
    memset(made + bytes, TAIL_BYTE, TAIL);
    *memory = made;
    return cudaSuccess;
}

static bool tail_untouched(const struct allocation *a) {
    const unsigned char *tail = (const unsigned char *)~a->inverted + a->bytes;
    for (int i = 0; i < TAIL; i++)
        if (tail[i] != TAIL_BYTE)
            return false;
    return true;
}

/* Takes the allocation that starts here and is of this kind out of the list; locked. */
static struct allocation *delist(const void *memory, enum home home) {
    for (struct allocation **link = &allocations; *link; link = &(*link)->next) {
        struct allocation *a = *link;
        if (~a->inverted == (uintptr_t)memory && a->home == home) {
            *link = a->next;
            return a;
        }
    }
    return NULL;
}

static cudaError_t release(void *memory, enum home home) {
    cudaError_t error = double_begin();
    if (!memory)
        return double_end(error);
    double_drain_all();
    struct allocation *a = delist(memory, home);
    if (a)
        count_allocation(a, -1);
    else if (!error)
        error = cudaErrorInvalidValue;
    double_leave();
    if (a && !tail_untouched(a)) {
        error = cudaErrorIllegalAddress;
        cuda_double_fault(error, "something was written behind %zu bytes of %s", a->bytes,
                          home == DEVICE ? "cudaMalloc" : "page-locked memory");
    }
    if (a)
        free(memory);
    free(a);
    return cuda_double_error(error);
}

cudaError_t cudaMalloc(void **memory, size_t bytes) {
    cudaError_t error = double_begin();
    return double_end(error ? error : allocate(memory, bytes, DEVICE));
}

cudaError_t cudaFree(void *memory) {
    return release(memory, DEVICE);
}

cudaError_t cudaMallocHost(void **memory, size_t bytes) {
    cudaError_t error = double_begin();
    return double_end(error ? error : allocate(memory, bytes, PINNED));
}

cudaError_t cudaFreeHost(void *memory) {
    return release(memory, PINNED);
}

cudaError_t cudaMemGetInfo(size_t *free_bytes, size_t *total) {
    cudaError_t error = double_begin();
    *total = double_state.devices[double_device()].memory;
    *free_bytes = left_on_device();
    return double_end(error);
}

/* Copies, and what fills memory. */

struct copy {
    void *to;
    const void *from; /* NULL: `value` instead */
    size_t bytes;
    int value;
    unsigned char staged[];
};

static void run_copy(void *context) {
    struct copy *copy = context;
    if (copy->from)
        memmove(copy->to, copy->from, copy->bytes);
    else
        memset(copy->to, copy->value, copy->bytes);
}

/* `stages`: it is read now.  Locked. */
static cudaError_t queue_copy(const struct copy *given, bool stages, struct CUstream_st *stream) {
    struct copy *copy = malloc(sizeof *copy + (stages ? given->bytes : 0));
    if (!copy)
        return cudaErrorMemoryAllocation;
    *copy = *given;
    if (stages)
        copy->from = memcpy(copy->staged, given->from, given->bytes);
    cudaError_t error = double_queue(stream, run_copy, free, copy);
    if (error)
        free(copy);
    double_state.counts.copies++;
    double_state.counts.copied_bytes += (int64_t)given->bytes;
    return error;
}

/* Which memory is at one end of a copy; false if it is cut short there.  Locked. */
static bool end_of_copy(const void *memory, size_t bytes, bool *device, bool *pageable) {
    const struct allocation *a = find(memory);
    *device = a && a->home == DEVICE;
    *pageable = !a;
    return memory && (!a || contains(a, memory, bytes));
}

/* As the runtime does it: what comes from pageable memory has been read when the call returns, and
 * what goes there has arrived. */
static cudaError_t copy_memory(void *to, const void *from, size_t bytes, enum cudaMemcpyKind kind,
                               struct CUstream_st *stream) {
    bool to_device, from_device, to_pageable, from_pageable;
    if ((unsigned)kind > cudaMemcpyDefault)
        return cudaErrorInvalidMemcpyDirection;
    if (!stream)
        return cudaErrorInvalidResourceHandle;
    if (bytes == 0)
        return cudaSuccess;
    if (!end_of_copy(to, bytes, &to_device, &to_pageable) ||
        !end_of_copy(from, bytes, &from_device, &from_pageable))
        return cudaErrorInvalidValue;
    if (kind != cudaMemcpyDefault &&
        (to_device != (kind == cudaMemcpyHostToDevice || kind == cudaMemcpyDeviceToDevice) ||
         from_device != (kind == cudaMemcpyDeviceToHost || kind == cudaMemcpyDeviceToDevice)))
        return cudaErrorInvalidValue;
    cudaError_t error =
        queue_copy(&(struct copy){.to = to, .from = from, .bytes = bytes}, from_pageable, stream);
    if (!error && to_pageable)
        double_drain(stream);
    return error;
}

cudaError_t cudaMemcpyAsync(void *to, const void *from, size_t bytes, enum cudaMemcpyKind kind,
                            cudaStream_t stream) {
    cudaError_t error = double_begin();
    return double_end(error ? error : copy_memory(to, from, bytes, kind, double_stream(stream)));
}

static cudaError_t fill_memory(void *memory, int value, size_t bytes, struct CUstream_st *stream) {
    if (!stream)
        return cudaErrorInvalidResourceHandle;
    if (bytes == 0)
        return cudaSuccess;
    const struct allocation *a = find(memory);
    if (!a || !contains(a, memory, bytes))
        return cudaErrorInvalidValue;
    return queue_copy(&(struct copy){.to = memory, .bytes = bytes, .value = value}, false, stream);
}

cudaError_t cudaMemsetAsync(void *memory, int value, size_t bytes, cudaStream_t stream) {
    cudaError_t error = double_begin();
    return double_end(error ? error : fill_memory(memory, value, bytes, double_stream(stream)));
}
