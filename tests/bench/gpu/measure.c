/* Times a case and its floor in turn, with events. */
#include <math.h>

#include "reference/base/median.h"
#include "tests/bench/gpu/gpu_bench.h"

/* A sample lasts about this long, so that the begin and end of its first and last run, and the
 * clock's steps, are of no account. */
static const double sample_milliseconds = 4;
enum { MOST_CALLS = 64 };

typedef void run_function(struct gpu_bench *bench, const struct gpu_bench_case *c,
                          struct gpu_bench_work *work);

static void run_case(struct gpu_bench *bench, const struct gpu_bench_case *c,
                     struct gpu_bench_work *work) {
    c->run(bench->device[c->device], work);
}

static void run_floor(struct gpu_bench *bench, const struct gpu_bench_case *c,
                      struct gpu_bench_work *work) {
    struct mp_device *device = bench->device[c->device];
    void *const *array = bench->floor_array[c->floor];
    int side = bench->product_size;
    (void)work;
    if (c->floor == GPU_BENCH_COPY) {
        device->operations->copy(device, NULL, array[1], array[0], bench->copy_bytes);
        return;
    }
    device = bench->device[GPU_BENCH_BFLOAT16];
    device->operations->gemm(device, NULL, false, false, side, side, side, 1, array[0], side,
                             array[1], side, 0, array[2], side);
}

/* Milliseconds of one of `calls` runs. */
static double sample(struct gpu_bench *bench, run_function *run, const struct gpu_bench_case *c,
                     struct gpu_bench_work *work, int calls) {
    /* The floor of products has a device of its own. */
    bool product = run == run_floor && c->floor == GPU_BENCH_PRODUCT;
    struct mp_device *device = bench->device[product ? GPU_BENCH_BFLOAT16 : c->device];
    const struct mp_device_operations *o = device->operations;
    o->event_record(device, bench->begin, NULL);
    for (int i = 0; i < calls; i++)
        run(bench, c, work);
    o->event_record(device, bench->end, NULL);
    o->event_synchronize(device, bench->end);
    int64_t taken = o->event_time(device, bench->end) - o->event_time(device, bench->begin);
    return (double)taken * 1e-6 / calls;
}

static int calls_of_sample(const struct gpu_bench *bench, double milliseconds) {
    double calls = ceil(sample_milliseconds / fmax(milliseconds, 1e-6));
    return bench->quick || calls < 1 ? 1 : calls > MOST_CALLS ? MOST_CALLS : (int)calls;
}

int gpu_bench_measure(struct gpu_bench *bench, const struct gpu_bench_case *c,
                      struct gpu_bench_work *work, struct gpu_bench_figures *figures,
                      struct mp_error *error) {
    run_function *const run[2] = {run_case, run_floor};
    double taken[2][GPU_BENCH_MOST_REPEATS];
    int calls[2], repeats = bench->repeats;
    struct mp_device *plain = bench->device[GPU_BENCH_BFLOAT16];
    plain->operations->stream_synchronize(plain, NULL); /* which has filled the arrays */
    for (int i = 0; i < 2; i++) {
        sample(bench, run[i], c, work, 1); /* the first of a kind loads its kernels */
        calls[i] = calls_of_sample(bench, sample(bench, run[i], c, work, 1));
    }
    for (int repeat = 0; repeat < repeats; repeat++)
        for (int i = 0; i < 2; i++)
            taken[i][repeat] = sample(bench, run[i], c, work, calls[i]);
    double side = bench->product_size;
    double floor_amount =
        c->floor == GPU_BENCH_COPY ? 2.0 * (double)bench->copy_bytes : 2 * side * side * side;
    figures->milliseconds = mp_median_of(taken[0], repeats);
    figures->floor_milliseconds = mp_median_of(taken[1], repeats);
    figures->rate = work->amount / (1e-3 * figures->milliseconds);
    figures->floor_rate = floor_amount / (1e-3 * figures->floor_milliseconds);
    MP_TRY(mp_device_check(bench->device[c->device], error));
    return mp_device_check(plain, error);
}
