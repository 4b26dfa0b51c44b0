/* Inside of the cpu back end: the device, its scratch memory and its threads.
 *
 * The kernel files (one family each) are compiled once per instruction set.  Each exports one
 * function, MP_CPU_NAME(install_<family>), which puts the family's operations into a table. */
#pragma once

#include "reference/device/device.h"

#ifndef MP_CPU_VARIANT
#define MP_CPU_VARIANT baseline
#endif
#define MP_CPU_JOIN(name, variant) mp_cpu_##name##_##variant
#define MP_CPU_EXPAND(name, variant) MP_CPU_JOIN(name, variant)
#define MP_CPU_NAME(name) MP_CPU_EXPAND(name, MP_CPU_VARIANT)

/* MP_CPU_FAMILIES(one) applies one(family, variant) to every kernel family. */
#define MP_CPU_FAMILIES(one, variant)                                                              \
    one(attention, variant) one(elementwise, variant) one(embedding, variant) one(gate, variant)   \
        one(gelu, variant) one(gemm, variant) one(layer_norm, variant) one(loss, variant)          \
            one(optimizer, variant) one(permute, variant) one(routes, variant)

#define MP_CPU_DECLARE(family, variant)                                                            \
    void MP_CPU_EXPAND(install_##family, variant)(struct mp_device_operations * operations);
MP_CPU_FAMILIES(MP_CPU_DECLARE, baseline)
MP_CPU_FAMILIES(MP_CPU_DECLARE, avx2)
MP_CPU_FAMILIES(MP_CPU_DECLARE, avx512)

struct mp_cpu {
    struct mp_device device; /* first: the public face */
    struct mp_device_operations operations;
    const char *instruction_set;
    int threads;
    struct mp_device_limits limits;
    float *scratch;        /* one part per thread, `scratch_floats` each, 64-byte aligned */
    size_t scratch_floats; /* a multiple of 16 */
    float *turned;         /* [2][MP_CPU_TURNED_ROWS * limits.width], for grouped_gemm */
    int32_t *expert_state; /* [2][limits.experts], for route_positions */
    uint64_t *keys;        /* [2][limits.tokens], for sorting routes */
    int64_t worked;        /* since `between` was called last */
};

static inline struct mp_cpu *mp_cpu_of(struct mp_device *device) {
    return (struct mp_cpu *)device;
}

static inline float *mp_cpu_scratch(struct mp_cpu *cpu, int thread) {
    return cpu->scratch + (size_t)thread * cpu->scratch_floats;
}

/* Query rows that attention works on at once, and the floats of scratch per thread that a shape
 * needs: two blocks of scores, keys and values turned, and a value per query. */
enum { MP_CPU_QUERY_BLOCK = 64 };
static inline size_t mp_cpu_attention_floats(const struct mp_attention_shape *shape) {
    return (size_t)shape->sequence * (2 * MP_CPU_QUERY_BLOCK + 2 * (size_t)shape->head_width + 1);
}

/* Rows of a grouped GEMM up to which it may turn its matrices (gemm.c). */
enum { MP_CPU_TURNED_ROWS = 128 };

/* Replaces the kernels by those for the named set: "avx512", "avx2", "baseline", or NULL for the
 * best there is.  False, and nothing changed, when this machine or this build does not have it. */
bool mp_cpu_use_instruction_set(struct mp_device *device, const char *name);

/* memory.c: allocation, copies, streams and events; one variant is enough. */
void mp_cpu_install_memory(struct mp_device_operations *operations);
void *mp_cpu_allocate(struct mp_device *device, size_t bytes);
void mp_cpu_release(struct mp_device *device, void *memory);

/* The number of this thread among those of an operation; that which its caller is on has 0. */
int mp_cpu_thread(void);

/* Works on items [begin, end). */
typedef void mp_cpu_range(const void *arguments, size_t begin, size_t end);

/* What has been worked, in flop of products; others count as many as take as long.  Calls `between`
 * after MP_CPU_PAUSE of it, about 100 us of a core, from the caller's thread alone. */
enum { MP_CPU_PAUSE = 8 << 20, MP_CPU_GRAIN = 2 << 20 /* of the items that are worth a thread */ };
void mp_cpu_pause(struct mp_cpu *cpu);
static inline void mp_cpu_worked(struct mp_cpu *cpu, int64_t work) {
    if (cpu->device.between && (cpu->threads == 1 || mp_cpu_thread() == 0)) {
        cpu->worked += work;
        if (cpu->worked >= MP_CPU_PAUSE)
            mp_cpu_pause(cpu);
    }
}

/* Splits `count` items into one contiguous range per thread, at most one per `grain` items, and
 * returns when all are done; where somebody wants pauses, ranges are cut up into grains.  What is
 * computed for an item must not depend on the split. */
void mp_cpu_parallel(struct mp_cpu *cpu, size_t count, size_t grain, mp_cpu_range *range,
                     const void *arguments);

/* The grain of items of so many elements: those of 16384 elements are worth a thread. */
static inline size_t mp_cpu_grain(size_t elements) {
    return 16384 / (elements ? elements : 1) + 1;
}

/* Makes the library's next operation of this thread use the device's number of threads. */
void mp_cpu_use_threads(int threads);
