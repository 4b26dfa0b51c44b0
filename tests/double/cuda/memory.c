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

/* Locked. */
static cudaError_t enlist(void *memory, size_t bytes, enum home home) {
    struct allocation *a = malloc(sizeof *a);
    if (!a)
        return cudaErrorMemoryAllocation;
    *a = (struct allocation){allocations, ~(uintptr_t)memory, bytes, home, double_device()};
    allocations = a;
    return cudaSuccess;
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

/* Locked. */
static cudaError_t allocate(void **memory, size_t bytes, enum home home) {
    unsigned char *made = NULL;
    if (double_state.allocations_left > 0 && --double_state.allocations_left == 0)
        return cudaErrorMemoryAllocation;
    if (bytes > SIZE_MAX / 2 || posix_memalign((void **)&made, ALIGNMENT, bytes + TAIL) != 0)
        return cudaErrorMemoryAllocation;
    cudaError_t error = enlist(made, bytes, home);
    if (error) {
        free(made);
        return error;
    }
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

static void report_tail(const struct allocation *a, const char *what) {
    cuda_double_fault(cudaErrorIllegalAddress, "something was written behind %zu bytes of %s",
                      a->bytes, what);
}

cudaError_t cudaMalloc(void **memory, size_t bytes) {
    struct double_state *s = &double_state;
    int device = double_device();
    double_enter();
    cudaError_t error = double_check();
    if (!error && !memory)
        error = cudaErrorInvalidValue;
    const struct cuda_double_device *of = &s->devices[device];
    size_t used = of->others_used + (size_t)s->device_used[device];
    if (!error &&
        (used > of->memory || bytes > of->memory - used ||
         (s->malloc_limit >= 0 && bytes > (size_t)s->malloc_limit) ||
         (s->malloc_limit >= 0 && s->device_used[device] > s->malloc_limit - (int64_t)bytes)))
        error = cudaErrorMemoryAllocation;
    if (!error && bytes == 0) {
        *memory = NULL;
    } else if (!error) {
        error = allocate(memory, bytes, DEVICE);
        if (!error) {
            s->device_used[device] += (int64_t)bytes;
            s->counts.allocations++;
            s->counts.device_live++;
            s->counts.device_bytes += (int64_t)bytes;
        }
    }
    double_leave();
    return cuda_double_error(error);
}

cudaError_t cudaFree(void *memory) {
    double_enter();
    cudaError_t error = double_check();
    if (!memory) {
        double_leave();
        return cuda_double_error(error);
    }
    double_drain_all();
    struct allocation *a = delist(memory, DEVICE);
    if (a) {
        double_state.device_used[a->device] -= (int64_t)a->bytes;
        double_state.counts.device_live--;
        double_state.counts.device_bytes -= (int64_t)a->bytes;
    } else if (!error) {
        error = cudaErrorInvalidValue;
    }
    double_leave();
    if (a && !tail_untouched(a)) {
        report_tail(a, "cudaMalloc");
        error = cudaErrorIllegalAddress;
    }
    if (a)
        free(memory);
    free(a);
    return cuda_double_error(error);
}

cudaError_t cudaMallocHost(void **memory, size_t bytes) {
    struct double_state *s = &double_state;
    double_enter();
    cudaError_t error = double_check();
    if (!error && !memory)
        error = cudaErrorInvalidValue;
    if (!error && s->host_limit >= 0 &&
        (bytes > (size_t)s->host_limit || s->host_used > s->host_limit - (int64_t)bytes))
        error = cudaErrorMemoryAllocation;
    if (!error && bytes == 0) {
        *memory = NULL;
    } else if (!error) {
        error = allocate(memory, bytes, PINNED);
        if (!error) {
            s->host_used += (int64_t)bytes;
            s->counts.host_live++;
        }
    }
    double_leave();
    return cuda_double_error(error);
}

cudaError_t cudaFreeHost(void *memory) {
    double_enter();
    cudaError_t error = double_check();
    if (!memory) {
        double_leave();
        return cuda_double_error(error);
    }
    double_drain_all();
    struct allocation *a = delist(memory, PINNED);
    if (a) {
        double_state.host_used -= (int64_t)a->bytes;
        double_state.counts.host_live--;
    } else if (!error) {
        error = cudaErrorInvalidValue;
    }
    double_leave();
    if (a && !tail_untouched(a)) {
        report_tail(a, "page-locked memory");
        error = cudaErrorIllegalAddress;
    }
    if (a)
        free(memory);
    free(a);
    return cuda_double_error(error);
}

cudaError_t cudaMemGetInfo(size_t *free_bytes, size_t *total) {
    double_enter();
    cudaError_t error = double_check();
    if (!error && (!free_bytes || !total))
        error = cudaErrorInvalidValue;
    if (!error) {
        const struct cuda_double_device *of = &double_state.devices[double_device()];
        size_t used = of->others_used + (size_t)double_state.device_used[double_device()];
        *total = of->memory;
        *free_bytes = used < of->memory ? of->memory - used : 0;
    }
    double_leave();
    return cuda_double_error(error);
}

/* Copies. */

struct copy {
    void *to;
    const void *from;
    size_t bytes;
    int value; /* of a fill */
    unsigned char staged[];
};

static void run_copy(void *context) {
    struct copy *copy = context;
    memmove(copy->to, copy->from, copy->bytes);
}

static void run_fill(void *context) {
    struct copy *copy = context;
    memset(copy->to, copy->value, copy->bytes);
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
static cudaError_t queue_copy(void *to, const void *from, size_t bytes, enum cudaMemcpyKind kind,
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
    struct copy *copy = malloc(sizeof *copy + (from_pageable ? bytes : 0));
    if (!copy)
        return cudaErrorMemoryAllocation;
    copy->to = to;
    copy->from = from;
    copy->bytes = bytes;
    if (from_pageable)
        copy->from = memcpy(copy->staged, from, bytes);
    cudaError_t error = double_queue(stream, run_copy, free, copy);
    if (error)
        free(copy);
    else if (to_pageable)
        double_drain(stream);
    double_state.counts.copies++;
    double_state.counts.copied_bytes += (int64_t)bytes;
    return error;
}

cudaError_t cudaMemcpyAsync(void *to, const void *from, size_t bytes, enum cudaMemcpyKind kind,
                            cudaStream_t stream) {
    double_enter();
    cudaError_t error = double_check();
    if (!error)
        error = queue_copy(to, from, bytes, kind, double_stream(stream));
    double_leave();
    return cuda_double_error(error);
}

/* Locked. */
static cudaError_t queue_fill(void *memory, int value, size_t bytes, struct CUstream_st *stream) {
    if (!stream)
        return cudaErrorInvalidResourceHandle;
    if (bytes == 0)
        return cudaSuccess;
    const struct allocation *a = find(memory);
    if (!a || !contains(a, memory, bytes))
        return cudaErrorInvalidValue;
    struct copy *fill = malloc(sizeof *fill);
    if (!fill)
        return cudaErrorMemoryAllocation;
    *fill = (struct copy){.to = memory, .bytes = bytes, .value = value};
    cudaError_t error = double_queue(stream, run_fill, free, fill);
    if (error)
        free(fill);
    double_state.counts.copies++;
    double_state.counts.copied_bytes += (int64_t)bytes;
    return error;
}

cudaError_t cudaMemsetAsync(void *memory, int value, size_t bytes, cudaStream_t stream) {
    double_enter();
    cudaError_t error = double_check();
    if (!error)
        error = queue_fill(memory, value, bytes, double_stream(stream));
    double_leave();
    return cuda_double_error(error);
}
