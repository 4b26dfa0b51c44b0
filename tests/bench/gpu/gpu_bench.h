/* moeperf-bench-gpu: operations of the cuda back end beside what the GPU can do at most.
 *
 * Each case alternates with its floor, so that both meet the same clocks and neighbours: a copy of
 * device memory for operations that memory bounds, one large product of bf16 matrices for those
 * that arithmetic bounds.  All inputs are normal random numbers: zeros draw less power, and the
 * GPU's clock follows the power drawn. */
#pragma once

#include "reference/device/device.h"

enum gpu_bench_device {
    GPU_BENCH_BFLOAT16,         /* grouped GEMM by one kernel, where there is one */
    GPU_BENCH_BFLOAT16_STREAMS, /* by one product after another */
    GPU_BENCH_BFLOAT16_LIBRARY, /* by the library's own routine */
    GPU_BENCH_FLOAT32,
    GPU_BENCH_DEVICES
};

enum gpu_bench_floor {
    GPU_BENCH_COPY,    /* device memory, bytes read and written */
    GPU_BENCH_PRODUCT, /* bf16, flop */
    GPU_BENCH_FLOORS
};

enum { GPU_BENCH_POOLS = 2, GPU_BENCH_MOST_ARRAYS = 24, GPU_BENCH_MOST_REPEATS = 101 };

struct gpu_bench {
    bool quick;
    int ordinal, repeats;
    uint64_t seed;
    struct mp_device *device[GPU_BENCH_DEVICES];
    mp_event begin, end; /* of any device: one GPU */
    /* Normal numbers that arrays are filled from: deviations 1 and 0.02. */
    size_t pool_count;
    float *pool[GPU_BENCH_POOLS];
    void *pool_elements[GPU_BENCH_POOLS];
    uint64_t drawn; /* arrays so far: none begins like another */
    void *floor_array[GPU_BENCH_FLOORS][3];
    size_t copy_bytes; /* of one copy: as many are read and written */
    int product_size;  /* rows and columns of all three matrices */
};

/* What a case has made for itself.  Everything in `array` is released after it. */
struct gpu_bench_work {
    int variant;   /* the case's */
    char size[96]; /* in words */
    double amount; /* bytes or flop of one run, at the least */
    void *array[GPU_BENCH_MOST_ARRAYS];
    int arrays;
    bool out_of_memory;
    int rows, width, experts, top_k, vocabulary;
    struct mp_attention_shape attention;
    int *group_rows;                 /* [experts] */
    void **weight[2], **gradient[2]; /* [experts] */
    struct mp_weight_state *state;   /* [experts] */
};

struct gpu_bench_case {
    const char *name;
    enum gpu_bench_device device;
    enum gpu_bench_floor floor;
    /* Least share of the floor's rate that passes; 0: the figure is for information. */
    double wanted;
    /* Allocates and fills with the functions below; their failure shows in out_of_memory. */
    void (*prepare)(struct gpu_bench *bench, struct gpu_bench_work *work);
    void (*run)(struct mp_device *device, struct gpu_bench_work *work);
    int variant; /* for `prepare`, where it makes several: 1 for backward, the experts' width ... */
};

/* Tables end with a row whose name is NULL. */
extern const struct gpu_bench_case gpu_bench_memory_cases[];
extern const struct gpu_bench_case gpu_bench_product_cases[];

/* Creates the devices and the arrays of the floors.  Errors: those of mp_device_cuda_create,
 * MP_ENOMEM. */
int gpu_bench_create(struct gpu_bench *bench, struct mp_error *error);
void gpu_bench_destroy(struct gpu_bench *bench);

struct gpu_bench_figures {
    double milliseconds, floor_milliseconds; /* of one run; medians */
    double rate, floor_rate;                 /* bytes or flop per second */
};
/* `work` has been prepared.  Errors: the device's first. */
int gpu_bench_measure(struct gpu_bench *bench, const struct gpu_bench_case *c,
                      struct gpu_bench_work *work, struct gpu_bench_figures *figures,
                      struct mp_error *error);

/* Full size, or `quick` in quick runs. */
static inline int gpu_bench_size(const struct gpu_bench *bench, int full, int quick) {
    return bench->quick ? quick : full;
}

/* Arrays of a case; NULL once memory has run out.  `pool`: 0 for deviation 1, 1 for 0.02. */
void *gpu_bench_new(struct gpu_bench *bench, struct gpu_bench_work *work, size_t bytes);
float *gpu_bench_floats(struct gpu_bench *bench, struct gpu_bench_work *work, size_t count,
                        int pool);
void *gpu_bench_elements(struct gpu_bench *bench, struct gpu_bench_work *work, size_t count,
                         int pool);
/* Whole numbers below `bound`, or each of them once if `permutation` (then count is the bound). */
int32_t *gpu_bench_integers(struct gpu_bench *bench, struct gpu_bench_work *work, size_t count,
                            int bound, bool permutation);
void gpu_bench_release(struct gpu_bench *bench, struct gpu_bench_work *work);
