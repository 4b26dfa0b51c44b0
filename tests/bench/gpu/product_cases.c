/* Operations that arithmetic bounds: flop that they must do at the least, over the time that they
 * take, beside one large product's. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "tests/bench/gpu/gpu_bench.h"

enum { ELEMENT = 2, FLOAT = 4 }; /* bytes */

/* ---- One large product ---- */

static void prepare_large(struct gpu_bench *bench, struct gpu_bench_work *work) {
    work->rows = bench->product_size;
    size_t size = (size_t)work->rows * (size_t)work->rows;
    for (int i = 0; i < 3; i++) {
        if (work->variant == FLOAT)
            gpu_bench_floats(bench, work, size, 0);
        else
            gpu_bench_elements(bench, work, size, 0);
    }
    snprintf(work->size, sizeof work->size, "%d cubed", work->rows);
    work->amount = 2.0 * (double)size * work->rows;
}

static void run_large(struct mp_device *device, struct gpu_bench_work *work) {
    device->operations->gemm(device, NULL, false, false, work->rows, work->rows, work->rows, 1,
                             work->array[0], work->rows, work->array[1], work->rows, 0,
                             work->array[2], work->rows);
}

/* ---- Experts: forward and backward as reference/model/moe.c queues them ---- */

enum { IN, HIDDEN, ACTIVATED, DHIDDEN, OUT, DOUT };

/* Expert n gets a share proportional to n^-exponent, such that the first has `skew` times the mean;
 * what rounding leaves goes to the first. */
static void skewed_rows(int experts, int routes, double skew, int rows[]) {
    double low = 0, high = 8, sum = 0;
    for (int step = 0; step < 60; step++) {
        double exponent = (low + high) / 2;
        sum = 0;
        for (int e = 0; e < experts; e++)
            sum += pow(e + 1, -exponent);
        if (experts / sum < skew)
            low = exponent;
        else
            high = exponent;
    }
    int left = routes;
    for (int e = 0; e < experts; e++)
        left -= rows[e] = (int)(routes * pow(e + 1, -low) / sum);
    rows[0] += left;
}

/* Pointers to the experts' matrices in one array. */
static void **matrices(void *array, int experts, size_t bytes) {
    void **pointers = calloc((size_t)experts, sizeof *pointers);
    for (int e = 0; pointers && array && e < experts; e++)
        pointers[e] = (char *)array + (size_t)e * bytes;
    return pointers;
}

/* Either as wide as many train, or those of the step that ci/gpu-check times. */
enum { WIDE, SMALL };

static void prepare_experts(struct gpu_bench *bench, struct gpu_bench_work *work) {
    static const int width[] = {[WIDE] = 2048, [SMALL] = 768};
    static const int expert_width[] = {[WIDE] = 8192, [SMALL] = 1536};
    work->experts = gpu_bench_size(bench, 64, 8);
    work->rows = gpu_bench_size(bench, 65536, 96);
    work->width = gpu_bench_size(bench, width[work->variant], 16);
    work->vocabulary = gpu_bench_size(bench, expert_width[work->variant], 32); /* theirs */
    size_t rows = (size_t)work->rows, narrow = rows * (size_t)work->width;
    size_t wide = rows * (size_t)work->vocabulary;
    size_t weight = (size_t)work->width * (size_t)work->vocabulary;
    size_t experts = (size_t)work->experts;
    gpu_bench_elements(bench, work, narrow, 0);
    for (int i = HIDDEN; i <= DHIDDEN; i++)
        gpu_bench_new(bench, work, wide * ELEMENT);
    gpu_bench_new(bench, work, narrow * ELEMENT);
    gpu_bench_elements(bench, work, narrow, 0);
    work->group_rows = calloc(experts, sizeof *work->group_rows);
    bool complete = work->group_rows != NULL;
    for (int i = 0; i < 2; i++) {
        void *weights = gpu_bench_elements(bench, work, experts * weight, 1);
        void *gradients = gpu_bench_new(bench, work, experts * weight * FLOAT);
        work->weight[i] = matrices(weights, work->experts, weight * ELEMENT);
        work->gradient[i] = matrices(gradients, work->experts, weight * FLOAT);
        complete = complete && work->weight[i] && work->gradient[i];
    }
    work->out_of_memory = work->out_of_memory || !complete;
    if (!complete)
        return;
    double skew = bench->quick ? 3 : 8;
    skewed_rows(work->experts, work->rows, skew, work->group_rows);
    snprintf(work->size, sizeof work->size, "%d routes, %d experts %d x %d, skew %g", work->rows,
             work->experts, work->width, work->vocabulary, skew);
    work->amount = 12.0 * (double)rows * (double)weight;
}

static void grouped(struct mp_device *device, struct gpu_bench_work *work,
                    enum mp_grouped_gemm kind, int second, void *in, void *out) {
    int columns[2] = {work->width, work->vocabulary};
    void *const *weight =
        kind == MP_GROUPED_WEIGHT_GRADIENT ? work->gradient[second] : work->weight[second];
    device->operations->grouped_gemm(device, NULL, kind, work->experts, work->group_rows,
                                     columns[second], columns[!second], in, weight, out, false);
}

static void run_experts(struct mp_device *device, struct gpu_bench_work *work) {
    void *const *a = work->array;
    size_t wide = (size_t)work->rows * (size_t)work->vocabulary;
    grouped(device, work, MP_GROUPED_FORWARD, 0, a[IN], a[HIDDEN]);
    device->operations->gelu_forward(device, NULL, wide, a[HIDDEN], a[ACTIVATED]);
    grouped(device, work, MP_GROUPED_FORWARD, 1, a[ACTIVATED], a[OUT]);
    grouped(device, work, MP_GROUPED_INPUT_GRADIENT, 1, a[DHIDDEN], a[DOUT]);
    device->operations->gelu_backward(device, NULL, wide, a[HIDDEN], a[DHIDDEN], a[DHIDDEN],
                                      a[ACTIVATED]);
    grouped(device, work, MP_GROUPED_WEIGHT_GRADIENT, 1, a[ACTIVATED], a[DOUT]);
    grouped(device, work, MP_GROUPED_WEIGHT_GRADIENT, 0, a[IN], a[DHIDDEN]);
    /* The gradient of the input has a place of its own here, so that every run sees the same. */
    grouped(device, work, MP_GROUPED_INPUT_GRADIENT, 0, a[OUT], a[DHIDDEN]);
}

/* ---- Experts' update: gradients of their weights, and AdamW with them at once ---- */

/* Even loads and the shape of the step that ci/gpu-check times: the bytes of the update bound it.
 */
enum { ROWS_IN, ROWS_OUT };

static void prepare_update(struct gpu_bench *bench, struct gpu_bench_work *work) {
    size_t experts = (size_t)(work->experts = gpu_bench_size(bench, 64, 8));
    size_t rows = (size_t)(work->rows = gpu_bench_size(bench, 65536, 96));
    size_t in = (size_t)(work->width = gpu_bench_size(bench, 768, 16));
    size_t out = (size_t)(work->vocabulary = gpu_bench_size(bench, 1536, 32)); /* theirs */
    size_t all = experts * in * out;
    struct mp_device *device = bench->device[GPU_BENCH_BFLOAT16];
    gpu_bench_elements(bench, work, rows * in, 0);
    gpu_bench_elements(bench, work, rows * out, 1);
    float *parameter = gpu_bench_floats(bench, work, all, 1);
    float *first = gpu_bench_floats(bench, work, all, 1);
    float *second = gpu_bench_new(bench, work, all * FLOAT);
    char *working = gpu_bench_new(bench, work, all * ELEMENT);
    void *gradients = gpu_bench_new(bench, work, all * FLOAT);
    work->group_rows = calloc(experts, sizeof *work->group_rows);
    work->state = calloc(experts, sizeof *work->state);
    work->gradient[0] = matrices(gradients, work->experts, in * out * FLOAT);
    if (work->out_of_memory || !work->group_rows || !work->state || !work->gradient[0]) {
        work->out_of_memory = true;
        return;
    }
    device->operations->zero(device, NULL, second, all * FLOAT);
    for (size_t e = 0, at = 0; e < experts; e++, at += in * out) {
        work->group_rows[e] = work->rows / work->experts;
        work->state[e] = (struct mp_weight_state){parameter + at, first + at, second + at,
                                                  working + at * ELEMENT};
    }
    snprintf(work->size, sizeof work->size, "%d routes, %d experts %d x %d", work->rows,
             work->experts, work->width, work->vocabulary);
    work->amount = (6.0 * FLOAT + ELEMENT) * (double)all + ELEMENT * (double)(rows * (in + out));
}

static void run_update(struct mp_device *device, struct gpu_bench_work *work) {
    const struct mp_adamw settings = {1e-4f, 0.9f, 0.999f, 1e-8f, 0.01f, 100};
    const struct mp_device_operations *operations = device->operations;
    if (operations->grouped_update) {
        operations->grouped_update(device, NULL, work->experts, work->group_rows, work->width,
                                   work->vocabulary, work->array[ROWS_IN], work->array[ROWS_OUT],
                                   work->state, &settings);
        return;
    }
    operations->grouped_gemm(device, NULL, MP_GROUPED_WEIGHT_GRADIENT, work->experts,
                             work->group_rows, work->width, work->vocabulary, work->array[ROWS_IN],
                             work->gradient[0], work->array[ROWS_OUT], false);
    operations->adamw(device, NULL,
                      (size_t)work->experts * (size_t)work->width * (size_t)work->vocabulary,
                      &settings, work->state->parameter, work->gradient[0][0], work->state->first,
                      work->state->second, work->state->working);
}

/* ---- Attention: qkv, out, logsumexp, dout, dqkv ---- */

static void prepare_attention(struct gpu_bench *bench, struct gpu_bench_work *work) {
    struct mp_attention_shape full = {16, 2048, 12, 64}, quick = {2, 40, 2, 16};
    struct mp_attention_shape *s = &work->attention;
    *s = bench->quick ? quick : full;
    size_t rows = (size_t)s->batch * (size_t)s->sequence;
    size_t size = rows * (size_t)(s->heads * s->head_width);
    gpu_bench_elements(bench, work, 3 * size, 0);
    gpu_bench_new(bench, work, size * ELEMENT);
    gpu_bench_new(bench, work, rows * (size_t)s->heads * FLOAT);
    snprintf(work->size, sizeof work->size, "%d sequences of %d, %d heads of %d", s->batch,
             s->sequence, s->heads, s->head_width);
    /* Two products over the pairs of a token with itself and those before it. */
    work->amount = 4.0 * (double)size * (s->sequence + 1) / 2;
}

static void run_attention(struct mp_device *device, struct gpu_bench_work *work) {
    device->operations->attention_forward(device, NULL, &work->attention, work->array[0],
                                          work->array[1], work->array[2]);
}

/* Five products: one of forward's again, and four gradients. */
static void prepare_attention_backward(struct gpu_bench *bench, struct gpu_bench_work *work) {
    prepare_attention(bench, work);
    const struct mp_attention_shape *s = &work->attention;
    size_t size = (size_t)s->batch * (size_t)s->sequence * (size_t)(s->heads * s->head_width);
    gpu_bench_elements(bench, work, size, 0);
    gpu_bench_new(bench, work, 3 * size * ELEMENT);
    if (!work->out_of_memory)
        run_attention(bench->device[GPU_BENCH_BFLOAT16], work);
    work->amount *= 2.5;
}

static void run_attention_backward(struct mp_device *device, struct gpu_bench_work *work) {
    device->operations->attention_backward(device, NULL, &work->attention, work->array[0],
                                           work->array[1], work->array[2], work->array[3],
                                           work->array[4]);
}

#define CASE(name, device, wanted, prepare, run, variant)                                          \
    { name, GPU_BENCH_##device, GPU_BENCH_PRODUCT, wanted, prepare, run, variant }

const struct gpu_bench_case gpu_bench_product_cases[] = {
    CASE("gemm_bf16", BFLOAT16, 0, prepare_large, run_large, ELEMENT),
    CASE("gemm_fp32", FLOAT32, 0, prepare_large, run_large, FLOAT),
    CASE("experts", BFLOAT16, 0.75, prepare_experts, run_experts, WIDE),
    CASE("experts_streams", BFLOAT16_STREAMS, 0, prepare_experts, run_experts, WIDE),
    CASE("experts_library", BFLOAT16_LIBRARY, 0, prepare_experts, run_experts, WIDE),
    CASE("experts_small", BFLOAT16, 0, prepare_experts, run_experts, SMALL),
    CASE("experts_small_streams", BFLOAT16_STREAMS, 0, prepare_experts, run_experts, SMALL),
    CASE("experts_small_library", BFLOAT16_LIBRARY, 0, prepare_experts, run_experts, SMALL),
    {"experts_update", GPU_BENCH_BFLOAT16, GPU_BENCH_COPY, 0.85, prepare_update, run_update, 0},
    CASE("attention_forward", BFLOAT16, 0.45, prepare_attention, run_attention, 0),
    CASE("attention_backward", BFLOAT16, 0.37, prepare_attention_backward, run_attention_backward,
         0),
    {.name = NULL},
};
