/* Operations that memory bounds: bytes that they must read and write at the least, over the time
 * that they take, beside a copy's.  `wanted` leaves room for what one pass over the rows costs more
 * than a copy: indices, sums over rows, uneven ends. */
#include <stdio.h>

#include "tests/bench/gpu/gpu_bench.h"

enum { ELEMENT = 2, FLOAT = 4 }; /* bytes */
enum { SEQUENCE = 2048, GELU_VALUES = 1 << 27 };

/* Positions in work->array, as the case's prepare has made them. */
enum { A, B, C, D, E, F, G, H };

enum { FORWARD, BACKWARD }; /* variants */

static void rows_of_width(struct gpu_bench *bench, struct gpu_bench_work *work, int rows,
                          int quick_rows) {
    work->rows = gpu_bench_size(bench, rows, quick_rows);
    work->width = gpu_bench_size(bench, 2048, 48);
    snprintf(work->size, sizeof work->size, "%d rows of %d", work->rows, work->width);
}

static size_t row_elements(const struct gpu_bench_work *work) {
    return (size_t)work->rows * (size_t)work->width;
}

/* ---- Rows of tokens ---- */

static void prepare_moves(struct gpu_bench *bench, struct gpu_bench_work *work) {
    rows_of_width(bench, work, 65536, 40);
    gpu_bench_elements(bench, work, row_elements(work), 0);
    gpu_bench_new(bench, work, row_elements(work) * ELEMENT);
    gpu_bench_integers(bench, work, (size_t)work->rows, work->rows, true);
    work->amount = 2.0 * ELEMENT * (double)row_elements(work) + 4.0 * work->rows;
}

static void run_gather(struct mp_device *device, struct gpu_bench_work *work) {
    device->operations->gather_rows(device, NULL, work->rows, work->width, work->array[A],
                                    work->array[C], work->array[B]);
}

static void run_scatter(struct mp_device *device, struct gpu_bench_work *work) {
    device->operations->scatter_rows(device, NULL, work->rows, work->width, work->array[A],
                                     work->array[C], work->array[B]);
}

/* in, position, weight, residual or dout, out or din, dweight */
static void prepare_combine(struct gpu_bench *bench, struct gpu_bench_work *work) {
    const bool backward = work->variant == BACKWARD;
    rows_of_width(bench, work, 32768, 24);
    work->top_k = 2;
    size_t tokens = row_elements(work), routes = (size_t)(work->rows * work->top_k);
    gpu_bench_elements(bench, work, 2 * tokens, 0);
    gpu_bench_integers(bench, work, routes, (int)routes, true);
    gpu_bench_floats(bench, work, routes, 0);
    gpu_bench_elements(bench, work, tokens, 0);
    gpu_bench_new(bench, work, (backward ? 2 : 1) * tokens * ELEMENT);
    gpu_bench_new(bench, work, routes * FLOAT);
    snprintf(work->size, sizeof work->size, "%d tokens of %d, top %d", work->rows, work->width,
             work->top_k);
    work->amount = ELEMENT * (backward ? 5.0 : 4.0) * (double)tokens +
                   (backward ? 12.0 : 8.0) * (double)routes;
}

static void run_combine_forward(struct mp_device *device, struct gpu_bench_work *work) {
    device->operations->combine_forward(device, NULL, work->rows, work->top_k, work->width,
                                        work->array[A], work->array[B], work->array[C],
                                        work->array[D], work->array[E]);
}

static void run_combine_backward(struct mp_device *device, struct gpu_bench_work *work) {
    device->operations->combine_backward(device, NULL, work->rows, work->top_k, work->width,
                                         work->array[A], work->array[B], work->array[C],
                                         work->array[D], false, work->array[E], work->array[F]);
}

/* ---- Gate ---- */

static void prepare_gate(struct gpu_bench *bench, struct gpu_bench_work *work) {
    work->rows = gpu_bench_size(bench, 1 << 20, 50);
    work->experts = gpu_bench_size(bench, 64, 8);
    work->top_k = 2;
    size_t logits = (size_t)work->rows * (size_t)work->experts;
    size_t routes = (size_t)work->rows * 2;
    gpu_bench_floats(bench, work, logits, 0);
    gpu_bench_new(bench, work, logits * FLOAT);
    gpu_bench_new(bench, work, routes * sizeof(int32_t));
    gpu_bench_new(bench, work, routes * FLOAT);
    snprintf(work->size, sizeof work->size, "%d tokens, %d experts, top 2", work->rows,
             work->experts);
    work->amount = 2.0 * FLOAT * (double)logits + 8.0 * (double)routes;
}

static void run_gate(struct mp_device *device, struct gpu_bench_work *work) {
    const struct mp_gate_rule rule = {.renormalise = true};
    device->operations->gate_forward(device, NULL, work->rows, work->experts, work->top_k, &rule,
                                     work->array[A], NULL, NULL, work->array[B], NULL,
                                     work->array[C], work->array[D]);
}

/* ---- Layer norm: x, gain, bias, y, mean, rstd, dx and, for backward, dgain ---- */

static void prepare_norm(struct gpu_bench *bench, struct gpu_bench_work *work) {
    rows_of_width(bench, work, 65536, 40);
    size_t size = row_elements(work), width = (size_t)work->width, rows = (size_t)work->rows;
    gpu_bench_elements(bench, work, size, 0);
    gpu_bench_floats(bench, work, width, 0);
    gpu_bench_floats(bench, work, width, 0);
    gpu_bench_new(bench, work, size * ELEMENT);
    gpu_bench_new(bench, work, rows * FLOAT);
    gpu_bench_new(bench, work, rows * FLOAT);
    work->amount = 2.0 * ELEMENT * (double)size + 8.0 * (double)rows;
}

static void run_norm(struct mp_device *device, struct gpu_bench_work *work) {
    device->operations->layer_norm_forward(device, NULL, work->rows, work->width, work->array[A],
                                           work->array[B], work->array[C], work->array[D],
                                           work->array[E], work->array[F]);
}

/* The bias's gradient takes the bias's place: nobody reads that one any more. */
static void prepare_norm_backward(struct gpu_bench *bench, struct gpu_bench_work *work) {
    struct mp_device *device = bench->device[GPU_BENCH_BFLOAT16];
    prepare_norm(bench, work);
    gpu_bench_elements(bench, work, row_elements(work), 1);
    gpu_bench_floats(bench, work, (size_t)work->width, 0);
    if (!work->out_of_memory)
        run_norm(device, work);
    work->amount = 4.0 * ELEMENT * (double)row_elements(work) + 8.0 * work->rows;
}

static void run_norm_backward(struct mp_device *device, struct gpu_bench_work *work) {
    device->operations->layer_norm_backward(
        device, NULL, work->rows, work->width, work->array[A], work->array[B], work->array[E],
        work->array[F], work->array[D], work->array[G], work->array[H], work->array[C]);
}

/* ---- GELU ---- */

static void prepare_gelu(struct gpu_bench *bench, struct gpu_bench_work *work) {
    work->rows = gpu_bench_size(bench, GELU_VALUES, 5000);
    for (int i = 0; i < 4; i++)
        gpu_bench_elements(bench, work, (size_t)work->rows, 0);
    snprintf(work->size, sizeof work->size, "%d values", work->rows);
    work->amount = (work->variant == BACKWARD ? 4.0 : 2.0) * ELEMENT * work->rows;
}

static void run_gelu(struct mp_device *device, struct gpu_bench_work *work) {
    device->operations->gelu_forward(device, NULL, (size_t)work->rows, work->array[A],
                                     work->array[B]);
}

/* With the value, as the experts use it. */
static void run_gelu_backward(struct mp_device *device, struct gpu_bench_work *work) {
    device->operations->gelu_backward(device, NULL, (size_t)work->rows, work->array[A],
                                      work->array[B], work->array[C], work->array[D]);
}

/* ---- Optimizer: parameter, gradient, both moments, working copy ---- */

static void prepare_adamw(struct gpu_bench *bench, struct gpu_bench_work *work) {
    work->rows = gpu_bench_size(bench, 1 << 27, 5000);
    size_t count = (size_t)work->rows;
    struct mp_device *device = bench->device[GPU_BENCH_BFLOAT16];
    for (int i = 0; i < 3; i++)
        gpu_bench_floats(bench, work, count, 1);
    void *second = gpu_bench_new(bench, work, count * FLOAT);
    gpu_bench_new(bench, work, count * ELEMENT);
    if (second) /* it is never negative, and the first steps make it what it should be */
        device->operations->zero(device, NULL, second, count * FLOAT);
    snprintf(work->size, sizeof work->size, "%d parameters", work->rows);
    work->amount = (7.0 * FLOAT + ELEMENT) * work->rows;
}

static void run_adamw(struct mp_device *device, struct gpu_bench_work *work) {
    const struct mp_adamw settings = {1e-4f, 0.9f, 0.999f, 1e-8f, 0.01f, 100};
    device->operations->adamw(device, NULL, (size_t)work->rows, &settings, work->array[A],
                              work->array[B], work->array[C], work->array[D], work->array[E]);
}

/* ---- Vocabulary ---- */

static void prepare_loss(struct gpu_bench *bench, struct gpu_bench_work *work) {
    work->rows = gpu_bench_size(bench, 8192, 20);
    work->vocabulary = gpu_bench_size(bench, 50304, 100);
    size_t size = (size_t)work->rows * (size_t)work->vocabulary;
    gpu_bench_floats(bench, work, size, 0);
    gpu_bench_integers(bench, work, (size_t)work->rows, work->vocabulary, false);
    gpu_bench_new(bench, work, (size_t)work->rows * FLOAT);
    gpu_bench_new(bench, work, size * ELEMENT);
    snprintf(work->size, sizeof work->size, "%d rows of %d", work->rows, work->vocabulary);
    work->amount = (double)(FLOAT + ELEMENT) * (double)size;
}

static void run_loss(struct mp_device *device, struct gpu_bench_work *work) {
    device->operations->cross_entropy(device, NULL, work->rows, work->vocabulary, work->array[A],
                                      work->array[B], 1.0f / (float)work->rows, work->array[C],
                                      work->array[D]);
}

/* token, both tables, out or dout */
static void prepare_embedding(struct gpu_bench *bench, struct gpu_bench_work *work) {
    rows_of_width(bench, work, 65536, 64);
    work->vocabulary = gpu_bench_size(bench, 50304, 100);
    size_t width = (size_t)work->width, tokens = row_elements(work);
    int sequence = gpu_bench_size(bench, SEQUENCE, 16);
    gpu_bench_integers(bench, work, (size_t)work->rows, work->vocabulary, false);
    gpu_bench_floats(bench, work, (size_t)work->vocabulary * width, 1);
    gpu_bench_floats(bench, work, (size_t)sequence * width, 1);
    gpu_bench_elements(bench, work, tokens, 0);
    work->attention.sequence = sequence;
    snprintf(work->size, sizeof work->size, "%d tokens of %d, %d words", work->rows, work->width,
             work->vocabulary);
    work->amount =
        (double)(FLOAT + ELEMENT) * (double)tokens + (double)FLOAT * sequence * (double)width;
}

static void run_embedding(struct mp_device *device, struct gpu_bench_work *work) {
    device->operations->embedding_forward(device, NULL, work->rows, work->attention.sequence,
                                          work->width, work->array[A], work->array[B],
                                          work->array[C], work->array[D]);
}

/* Gradients of the tables are read and written: of the words that occur, about as many as a random
 * draw of so many tokens has different ones (1 - 1/V)^N of V are missing. */
static void prepare_embedding_backward(struct gpu_bench *bench, struct gpu_bench_work *work) {
    prepare_embedding(bench, work);
    double missing = 1, words = work->vocabulary;
    for (int i = 0; i < work->rows; i++)
        missing *= 1 - 1 / words;
    double rows = words * (1 - missing) + work->attention.sequence;
    work->amount = (double)ELEMENT * (double)row_elements(work) + 2.0 * FLOAT * rows * work->width;
}

static void run_embedding_backward(struct mp_device *device, struct gpu_bench_work *work) {
    device->operations->embedding_backward(device, NULL, work->rows, work->attention.sequence,
                                           work->width, work->array[A], work->array[D],
                                           work->array[B], work->array[C]);
}

/* ---- The copy itself, as the first row ---- */

static void prepare_copy(struct gpu_bench *bench, struct gpu_bench_work *work) {
    size_t bytes = bench->copy_bytes;
    gpu_bench_elements(bench, work, bytes / ELEMENT, 0);
    gpu_bench_new(bench, work, bytes);
    work->rows = (int)(bytes / 1024);
    snprintf(work->size, sizeof work->size, "%d KiB", work->rows);
    work->amount = 2.0 * (double)bytes;
}

static void run_copy(struct mp_device *device, struct gpu_bench_work *work) {
    device->operations->copy(device, NULL, work->array[B], work->array[A],
                             (size_t)work->rows * 1024);
}

#define CASE(name, wanted, prepare, run, variant)                                                  \
    { name, GPU_BENCH_BFLOAT16, GPU_BENCH_COPY, wanted, prepare, run, variant }

const struct gpu_bench_case gpu_bench_memory_cases[] = {
    CASE("copy", 0, prepare_copy, run_copy, 0),
    CASE("gather_rows", 0.85, prepare_moves, run_gather, 0),
    CASE("scatter_rows", 0.85, prepare_moves, run_scatter, 0),
    CASE("combine_forward", 0.85, prepare_combine, run_combine_forward, FORWARD),
    CASE("combine_backward", 0.85, prepare_combine, run_combine_backward, BACKWARD),
    CASE("gate_forward", 0.85, prepare_gate, run_gate, 0),
    CASE("layer_norm_forward", 0.85, prepare_norm, run_norm, 0),
    CASE("layer_norm_backward", 0.85, prepare_norm_backward, run_norm_backward, 0),
    CASE("gelu_forward", 0.85, prepare_gelu, run_gelu, FORWARD),
    CASE("gelu_backward", 0.85, prepare_gelu, run_gelu_backward, BACKWARD),
    CASE("adamw", 0.85, prepare_adamw, run_adamw, 0),
    CASE("cross_entropy", 0.85, prepare_loss, run_loss, 0),
    CASE("embedding_forward", 0.85, prepare_embedding, run_embedding, 0),
    CASE("embedding_backward", 0.5, prepare_embedding_backward, run_embedding_backward, 0),
    {.name = NULL},
};
