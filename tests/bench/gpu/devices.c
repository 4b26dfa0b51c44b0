/* Devices of the benchmark, and arrays of random numbers. */
#include <stdlib.h>
#include <string.h>

#include "reference/base/random.h"
#include "tests/bench/gpu/gpu_bench.h"

enum { FULL_POOL = (1 << 24) + 4104, QUICK_POOL = 4104 };
static const float pool_deviation[GPU_BENCH_POOLS] = {1, 0.02f};

static int create_device(struct gpu_bench *bench, enum gpu_bench_device which,
                         struct mp_error *error) {
    bool is_float = which == GPU_BENCH_FLOAT32;
    static const enum mp_grouped_products way[GPU_BENCH_DEVICES] = {
        [GPU_BENCH_BFLOAT16_STREAMS] = MP_GROUPED_STREAMS,
        [GPU_BENCH_BFLOAT16_LIBRARY] = MP_GROUPED_LIBRARY,
    };
    struct mp_cuda_settings settings = {.rank = -1,
                                        .ordinal = bench->ordinal,
                                        .element = is_float ? MP_FLOAT32 : MP_BFLOAT16,
                                        .grouped_products = way[which]};
    struct mp_device_limits limits = {
        .attention = {16, 2048, 12, 64}, .experts = 64, .width = 8192, .tokens = 1 << 21};
    struct mp_device_limits small = {
        .attention = {2, 64, 2, 16}, .experts = 64, .width = 256, .tokens = 8192};
    /* The fp32 device multiplies one pair of matrices. */
    return mp_device_cuda_create(&settings, bench->quick || is_float ? &small : &limits,
                                 &bench->device[which], error);
}

/* Pieces of the pool, the first from a place of its own. */
static void fill(struct gpu_bench *bench, char *to, const char *pool, size_t count, size_t width) {
    struct mp_device *device = bench->device[GPU_BENCH_BFLOAT16];
    size_t from = 8 * mp_random_below(bench->seed, 1, bench->drawn++, bench->pool_count / 8);
    for (size_t done = 0; done < count; from = 0) {
        size_t piece = bench->pool_count - from;
        if (piece > count - done)
            piece = count - done;
        device->operations->copy(device, NULL, to + done * width, pool + from * width,
                                 piece * width);
        done += piece;
    }
}

static int create_pools(struct gpu_bench *bench, struct mp_error *error) {
    struct mp_device *device = bench->device[GPU_BENCH_BFLOAT16];
    size_t count = bench->pool_count = bench->quick ? QUICK_POOL : FULL_POOL;
    float *host = malloc(count * sizeof *host);
    bool complete = host != NULL;
    for (int i = 0; i < GPU_BENCH_POOLS && complete; i++) {
        float *floats = device->operations->allocate(device, count * sizeof *floats);
        void *elements = device->operations->allocate(device, count * 2);
        bench->pool[i] = floats;
        bench->pool_elements[i] = elements;
        complete = floats && elements;
        if (!complete)
            break;
        mp_random_normal(bench->seed, 2 + (uint64_t)i, pool_deviation[i], count, host);
        device->operations->copy_from_host(device, NULL, floats, host, count * sizeof *host);
        device->operations->to_elements(device, NULL, count, floats, elements);
    }
    free(host);
    return complete ? MP_OK : mp_fail(error, MP_ENOMEM, "no memory for %zu random numbers", count);
}

static int create_floors(struct gpu_bench *bench, struct mp_error *error) {
    struct mp_device *device = bench->device[GPU_BENCH_BFLOAT16];
    bench->copy_bytes = bench->quick ? 1 << 14 : 512u << 20;
    bench->product_size = gpu_bench_size(bench, 8192, 32);
    for (int floor = 0; floor < GPU_BENCH_FLOORS; floor++) {
        size_t side = (size_t)bench->product_size;
        size_t count = floor == GPU_BENCH_COPY ? bench->copy_bytes / 2 : side * side;
        for (int i = 0; i < 3; i++) {
            void *array = device->operations->allocate(device, count * 2);
            if (!array)
                return mp_fail(error, MP_ENOMEM, "no memory for %zu elements on the GPU", count);
            bench->floor_array[floor][i] = array;
            fill(bench, array, bench->pool_elements[0], count, 2);
        }
    }
    return MP_OK;
}

int gpu_bench_create(struct gpu_bench *bench, struct mp_error *error) {
    for (int i = 0; i < GPU_BENCH_DEVICES; i++)
        MP_TRY(create_device(bench, i, error));
    struct mp_device *device = bench->device[GPU_BENCH_BFLOAT16];
    MP_TRY(device->operations->event_create(device, &bench->begin, error));
    MP_TRY(device->operations->event_create(device, &bench->end, error));
    MP_TRY(create_pools(bench, error));
    MP_TRY(create_floors(bench, error));
    return mp_device_check(device, error);
}

void gpu_bench_destroy(struct gpu_bench *bench) {
    struct mp_device *device = bench->device[GPU_BENCH_BFLOAT16];
    if (device) {
        for (int i = 0; i < GPU_BENCH_FLOORS * 3; i++)
            device->operations->release(device, bench->floor_array[i / 3][i % 3]);
        for (int i = 0; i < GPU_BENCH_POOLS; i++) {
            device->operations->release(device, bench->pool[i]);
            device->operations->release(device, bench->pool_elements[i]);
        }
        if (bench->begin)
            device->operations->event_destroy(device, bench->begin);
        if (bench->end)
            device->operations->event_destroy(device, bench->end);
    }
    for (int i = 0; i < GPU_BENCH_DEVICES; i++)
        mp_device_destroy(bench->device[i]);
}

void *gpu_bench_new(struct gpu_bench *bench, struct gpu_bench_work *work, size_t bytes) {
    struct mp_device *device = bench->device[GPU_BENCH_BFLOAT16];
    bool room = !work->out_of_memory && work->arrays < GPU_BENCH_MOST_ARRAYS;
    void *array = room ? device->operations->allocate(device, bytes) : NULL;
    if (array)
        work->array[work->arrays++] = array;
    else
        work->out_of_memory = true;
    return array;
}

float *gpu_bench_floats(struct gpu_bench *bench, struct gpu_bench_work *work, size_t count,
                        int pool) {
    float *array = gpu_bench_new(bench, work, count * sizeof *array);
    if (array)
        fill(bench, (char *)array, (const char *)bench->pool[pool], count, sizeof *array);
    return array;
}

void *gpu_bench_elements(struct gpu_bench *bench, struct gpu_bench_work *work, size_t count,
                         int pool) {
    void *array = gpu_bench_new(bench, work, count * 2);
    if (array)
        fill(bench, array, bench->pool_elements[pool], count, 2);
    return array;
}

int32_t *gpu_bench_integers(struct gpu_bench *bench, struct gpu_bench_work *work, size_t count,
                            int bound, bool permutation) {
    struct mp_device *device = bench->device[GPU_BENCH_BFLOAT16];
    uint64_t stream = 16 + bench->drawn++;
    int32_t *host = malloc(count * sizeof *host);
    int32_t *array = gpu_bench_new(bench, work, count * sizeof *array);
    if (!host)
        work->out_of_memory = true;
    for (size_t i = 0; host && i < count; i++) {
        if (!permutation) {
            host[i] = (int32_t)mp_random_below(bench->seed, stream, i, (uint64_t)bound);
            continue;
        }
        size_t other = mp_random_below(bench->seed, stream, i, i + 1);
        host[i] = host[other];
        host[other] = (int32_t)i;
    }
    if (host && array)
        device->operations->copy_from_host(device, NULL, array, host, count * sizeof *host);
    free(host);
    return array;
}

void gpu_bench_release(struct gpu_bench *bench, struct gpu_bench_work *work) {
    struct mp_device *device = bench->device[GPU_BENCH_BFLOAT16];
    for (int i = 0; i < work->arrays; i++)
        device->operations->release(device, work->array[i]);
    free(work->group_rows);
    free(work->state);
    for (int i = 0; i < 2; i++) {
        free(work->weight[i]);
        free(work->gradient[i]);
    }
    memset(work, 0, sizeof *work);
}
