/* Everything that is no matrix product and no message: bytes per second by the counts of bytes that
 * predictors charge for the same operations (harness/predict/cost.c). */
#include "reference/machine/bench.h"

enum { WIDTH = 256, HIDDEN = 1024 };

/* Large enough to leave the cache, and of the size of rows that a rank keeps for itself. */
static size_t large_floats(const struct bench *bench) {
    return bench->pool_floats;
}
enum { ROWS_FLOATS = 1 << 19, FEW_FLOATS = 16 };

struct copying {
    const struct bench *bench;
    size_t floats;
    int times;
};

static int copy(void *context, int turn, struct mp_error *error) {
    const struct copying *c = context;
    (void)error;
    for (int i = 0; i < c->times; i++)
        c->bench->device->operations->copy(
            c->bench->device, NULL, bench_part(c->bench, 1, turn * c->times + i, c->floats),
            bench_part(c->bench, 0, turn * c->times + i, c->floats), c->floats * sizeof(float));
    return MP_OK;
}

static int time_copy(struct bench *bench, size_t floats, int times, double *seconds,
                     struct mp_error *error) {
    struct copying copying = {bench, floats, times};
    int code = bench_time(bench, false, copy, &copying, seconds, error);
    *seconds /= times;
    bench_step(bench);
    return code;
}

static int measure_copies(struct bench *bench, struct mp_machine *machine, struct mp_error *error) {
    double large, rows, few;
    MP_TRY(time_copy(bench, large_floats(bench), 1, &large, error));
    MP_TRY(time_copy(bench, ROWS_FLOATS, 1, &rows, error));
    MP_TRY(time_copy(bench, FEW_FLOATS, 1000, &few, error));
    machine->memory_bandwidth = 2.0 * sizeof(float) * (double)large_floats(bench) / large;
    machine->copy_latency = few;
    machine->copy_bandwidth =
        sizeof(float) * (double)ROWS_FLOATS / (rows > few ? rows - few : rows);
    return MP_OK;
}

/* A block's elementwise work on so many tokens, forward and backward. */
static int tokens_of(const struct bench *bench) {
    return bench->settings->quick ? 256 : 1024;
}

static int work_on_elements(void *context, int turn, struct mp_error *error) {
    const struct bench *bench = context;
    const struct mp_device_operations *operations = bench->device->operations;
    int n = tokens_of(bench);
    size_t wide = (size_t)n * HIDDEN, narrow = (size_t)n * WIDTH;
    float *x = bench_part(bench, 0, turn, wide), *y = bench_part(bench, 1, turn, wide);
    float *dx = bench_part(bench, 2, turn, wide), *row = bench_part(bench, 3, turn, wide);
    float *mean = row + narrow, *rstd = mean + n, *gain = rstd + n;
    (void)error;
    operations->gelu_forward(bench->device, NULL, wide, x, y);
    operations->gelu_backward(bench->device, NULL, wide, x, dx, dx, y);
    operations->layer_norm_forward(bench->device, NULL, n, WIDTH, x, gain, gain, row, mean, rstd);
    operations->layer_norm_backward(bench->device, NULL, n, WIDTH, x, gain, mean, rstd, row, dx,
                                    gain + WIDTH, gain + 2 * WIDTH);
    operations->add(bench->device, NULL, narrow, x, y, dx);
    return MP_OK;
}

/* Bytes as predictors count them: gelu 2 and 3, layer norm 2 and 4, addition 3 per element. */
static int measure_elements(struct bench *bench, struct mp_machine *machine,
                            struct mp_error *error) {
    double seconds, n = tokens_of(bench);
    int code = bench_time(bench, false, work_on_elements, bench, &seconds, error);
    machine->elementwise = sizeof(float) * n * (5 * HIDDEN + 9 * WIDTH) / seconds;
    bench_step(bench);
    return code;
}

static int update(void *context, int turn, struct mp_error *error) {
    const struct bench *bench = context;
    const struct mp_adamw settings = {1e-3f, 0.9f, 0.95f, 1e-8f, 0.1f, turn + 1};
    size_t count = bench->pool_floats / 4;
    float *second = bench_part(bench, 3, turn, count);
    (void)error;
    bench->device->operations->adamw(
        bench->device, NULL, count, &settings, bench_part(bench, 0, turn, count),
        bench_part(bench, 1, turn, count), bench_part(bench, 2, turn, count), second, NULL);
    return MP_OK;
}

static int measure_update(struct bench *bench, struct mp_machine *machine, struct mp_error *error) {
    double seconds;
    /* Second moments are squares; random ones would be negative. */
    bench->device->operations->zero(bench->device, NULL, bench->pool[3],
                                    bench->pool_floats * sizeof(float));
    int code = bench_time(bench, false, update, bench, &seconds, error);
    machine->update = 28.0 * (double)(bench->pool_floats / 4) / seconds;
    bench_step(bench);
    return code;
}

static int attend(void *context, int turn, struct mp_error *error) {
    const struct bench *bench = context;
    const struct mp_attention_shape shape = {bench->settings->quick ? 1 : BENCH_SEQUENCES,
                                             BENCH_SEQUENCE, BENCH_HEADS, BENCH_HEAD_WIDTH};
    size_t tokens = (size_t)shape.batch * BENCH_SEQUENCE;
    size_t floats = 3 * tokens * BENCH_HEADS * BENCH_HEAD_WIDTH;
    float *qkv = bench_part(bench, 0, turn, floats), *dqkv = bench_part(bench, 1, turn, floats);
    float *out = bench_part(bench, 2, turn, floats), *sums = bench_part(bench, 3, turn, floats);
    (void)error;
    bench->device->operations->attention_forward(bench->device, NULL, &shape, qkv, out, sums);
    bench->device->operations->attention_backward(bench->device, NULL, &shape, qkv, out, sums,
                                                  out + floats / 3, dqkv);
    return MP_OK;
}

static int measure_attention(struct bench *bench, struct mp_machine *machine,
                             struct mp_error *error) {
    double seconds, tokens = (bench->settings->quick ? 1 : BENCH_SEQUENCES) * BENCH_SEQUENCE;
    int code = bench_time(bench, false, attend, bench, &seconds, error);
    double operations = 7 * tokens * BENCH_SEQUENCE * BENCH_HEADS * BENCH_HEAD_WIDTH;
    double share = operations / (seconds * machine->peak);
    machine->attention = share < 1 ? share : 1;
    bench_step(bench);
    return code;
}

int machine_kernels(struct bench *bench, struct mp_machine *machine, struct mp_error *error) {
    MP_TRY(measure_copies(bench, machine, error));
    MP_TRY(measure_elements(bench, machine, error));
    MP_TRY(measure_attention(bench, machine, error));
    return measure_update(bench, machine, error); /* last: it zeroes a buffer */
}
