/* Compute: what an expert's feed-forward network gets of the rate of one large matrix product.
 *
 * Everything runs on one thread in this one process and takes turns, so that a busy machine
 * disturbs all alike; figures are medians over the turns. */
#include <dnnl.h>
#include <string.h>

#include "profiler/record/record.h"
#include "reference/base/median.h"
#include "reference/device/memory.h"
#include "tests/bench/bench.h"

enum { MOST_REPEATS = 1000 };

/* Seconds this thread has computed: with one thread, what other programs take does not count. */
static double seconds_now(void) {
    return 1e-9 * (double)mp_clock_thread_cpu_ns();
}

/* Numbers in -1 .. 1; NULL when there is no memory. */
static float *random_floats(struct mp_device_memory *memory, size_t count) {
    float *values = mp_device_take(memory, (int64_t)count, sizeof *values);
    uint32_t state = 12345;
    for (size_t i = 0; values && i < count; i++) {
        state = state * 1664525u + 1013904223u;
        values[i] = (float)(state >> 8) * 0x1p-23f - 1;
    }
    return values;
}

/* ---- arithmetic ---- */

enum { EXPERTS = 64, ROUTES = 8192, LARGE = 2048, WIDEST = 2048 };

/* Arrays of routes, the last ones of the experts' width; and matrices of every expert. */
enum { X, Y, DY, DX, HIDDEN, ACTIVE, DHIDDEN, ARRAYS };
enum { IN, OUT, IN_GRADIENT, OUT_GRADIENT, MATRICES, NONE };

static const struct step {
    const char *name; /* the figure's: a rate, of GELU a time */
    enum mp_grouped_gemm kind;
    int in, matrix, out;
} steps[] = {
    {"forward_in_gflop_per_s", MP_GROUPED_FORWARD, X, IN, HIDDEN},
    {"gelu_ms", 0, HIDDEN, NONE, ACTIVE},
    {"forward_out_gflop_per_s", MP_GROUPED_FORWARD, ACTIVE, OUT, Y},
    {"out_weight_gradient_gflop_per_s", MP_GROUPED_WEIGHT_GRADIENT, ACTIVE, OUT_GRADIENT, DY},
    {"out_input_gradient_gflop_per_s", MP_GROUPED_INPUT_GRADIENT, DHIDDEN, OUT, DY},
    {"gelu_backward_ms", 0, HIDDEN, NONE, DHIDDEN},
    {"in_weight_gradient_gflop_per_s", MP_GROUPED_WEIGHT_GRADIENT, X, IN_GRADIENT, DHIDDEN},
    {"in_input_gradient_gflop_per_s", MP_GROUPED_INPUT_GRADIENT, DX, IN, DHIDDEN},
};
enum { STEPS = sizeof steps / sizeof *steps };

struct network {
    int width, expert_width;
    int rows[EXPERTS]; /* routes of each expert */
    float *array[ARRAYS];
    void *matrix[MATRICES][EXPERTS];
    double seconds[MOST_REPEATS];
    double step_seconds[STEPS][MOST_REPEATS];
};

/* The n-th expert gets a share proportional to 1/n, as words do; what rounding leaves goes to the
 * first. */
static void skew_rows(int rows[EXPERTS]) {
    double harmonic = 0;
    int left = ROUTES;
    for (int e = 0; e < EXPERTS; e++)
        harmonic += 1.0 / (e + 1);
    for (int e = 0; e < EXPERTS; e++) {
        rows[e] = (int)(ROUTES / harmonic / (e + 1));
        left -= rows[e];
    }
    rows[0] += left;
}

static int width_of(const struct network *n, int array) {
    return array < HIDDEN ? n->width : n->expert_width;
}

static void create_network(struct mp_device_memory *memory, struct network *n) {
    skew_rows(n->rows);
    for (int i = 0; i < ARRAYS; i++)
        n->array[i] = random_floats(memory, (size_t)ROUTES * (size_t)width_of(n, i));
    for (int i = 0; i < MATRICES * EXPERTS; i++)
        n->matrix[i / EXPERTS][i % EXPERTS] =
            random_floats(memory, (size_t)n->width * (size_t)n->expert_width);
}

static void run_step(struct mp_device *device, struct network *n, const struct step *step) {
    const struct mp_device_operations *o = device->operations;
    size_t wide = (size_t)ROUTES * (size_t)n->expert_width;
    float *in = n->array[step->in], *out = n->array[step->out];
    if (step->matrix != NONE)
        o->grouped_gemm(device, NULL, step->kind, EXPERTS, n->rows, width_of(n, step->in),
                        width_of(n, step->out), in, n->matrix[step->matrix], out, false);
    else if (step->out == ACTIVE)
        o->gelu_forward(device, NULL, wide, in, out);
    else
        o->gelu_backward(device, NULL, wide, in, out, out, NULL);
}

static void time_network(struct mp_device *device, struct network *n, int turn) {
    double begin = seconds_now(), start = begin;
    for (int step = 0; step < STEPS; step++) {
        run_step(device, n, &steps[step]);
        double end = seconds_now();
        n->step_seconds[step][turn] = end - start;
        start = end;
    }
    n->seconds[turn] = start - begin;
}

/* The yardstick is the library itself, not our call of it. */
static int time_large_product(float *const operand[3], double *seconds, struct mp_error *error) {
    double start = seconds_now();
    dnnl_status_t status = dnnl_sgemm('N', 'N', LARGE, LARGE, LARGE, 1, operand[0], LARGE,
                                      operand[1], LARGE, 0, operand[2], LARGE);
    *seconds = seconds_now() - start;
    return status == dnnl_success
               ? MP_OK
               : mp_fail(error, MP_EDEVICE, "compute: oneDNN status %d", (int)status);
}

static json_t *report_network(struct network *n, int repeats, double large_rate) {
    double products = 2.0 * ROUTES * n->width * n->expert_width; /* of one of the six */
    double seconds = mp_median_of(n->seconds, repeats);
    double rate = 6 * products / seconds;
    json_t *report =
        json_pack("{s:i, s:i, s:i, s:i, s:f, s:f, s:f, s:f}", "width", n->width, "expert_width",
                  n->expert_width, "experts", EXPERTS, "routes", ROUTES, "max_over_mean_routes",
                  (double)n->rows[0] * EXPERTS / ROUTES, "ms", 1e3 * seconds, "gflop_per_s",
                  1e-9 * rate, "share_of_large_gemm", rate / large_rate);
    for (int step = 0; step < STEPS; step++) {
        double taken = mp_median_of(n->step_seconds[step], repeats);
        json_object_set_new(
            report, steps[step].name,
            json_real(steps[step].matrix == NONE ? 1e3 * taken : 1e-9 * products / taken));
    }
    return report;
}

static int measure_products(struct mp_device_memory *memory, int repeats, json_t *result,
                            struct mp_error *error) {
    static double large_seconds[MOST_REPEATS];
    static struct network networks[2] = {{.width = 512, .expert_width = 2048},
                                         {.width = 128, .expert_width = 512}};
    float *operand[3];
    for (int i = 0; i < 3; i++)
        operand[i] = random_floats(memory, (size_t)LARGE * LARGE);
    for (int i = 0; i < 2; i++)
        create_network(memory, &networks[i]);
    if (memory->lacking)
        return mp_fail(error, MP_ENOMEM, "compute: no memory for %d experts and a large product",
                       EXPERTS);
    /* Turn -1 warms up: code generation, first touches; its times are overwritten by turn 0. */
    for (int turn = -1; turn < repeats; turn++) {
        int at = turn < 0 ? 0 : turn;
        MP_TRY(time_large_product(operand, &large_seconds[at], error));
        for (int i = 0; i < 2; i++)
            time_network(memory->device, &networks[i], at);
    }
    MP_TRY(mp_device_check(memory->device, error));
    double rate = 2.0 * LARGE * LARGE * LARGE / mp_median_of(large_seconds, repeats);
    return mp_bench_add(result,
                        json_pack("{s:f, s:o, s:o}", "large_gemm_gflop_per_s", 1e-9 * rate,
                                  "expert_ffn", report_network(&networks[0], repeats, rate),
                                  "expert_ffn_narrow", report_network(&networks[1], repeats, rate)),
                        error);
}

/* ---- memory ----
 *
 * Operations bound by it, in bytes per second, beside a copy of as many bytes: what they must read
 * and write, each once, over the time they take. */

enum { ROWS = 8192, WIDTH = 512, TOP_K = 2, ELEMENTS = ROWS * WIDTH };
enum { TABLES = 7, COLUMNS = 2, LINES = 4 };

struct buffers {
    float *table[TABLES];   /* [ROWS][WIDTH] each */
    float *column[COLUMNS]; /* [ROWS] */
    float *line[LINES];     /* [WIDTH] */
    float *from, *to;       /* for the copy: as large as the most bytes of an operation */
    int32_t *index;         /* [ROWS] a permutation */
};

static void norm_forward(struct mp_device *d, const struct buffers *b) {
    d->operations->layer_norm_forward(d, NULL, ROWS, WIDTH, b->table[0], b->line[0], b->line[1],
                                      b->table[1], b->column[0], b->column[1]);
}

static void norm_backward(struct mp_device *d, const struct buffers *b) {
    d->operations->layer_norm_backward(d, NULL, ROWS, WIDTH, b->table[0], b->line[0], b->column[0],
                                       b->column[1], b->table[1], b->table[2], b->line[2],
                                       b->line[3]);
}

static void gelu_forward(struct mp_device *d, const struct buffers *b) {
    d->operations->gelu_forward(d, NULL, ELEMENTS, b->table[0], b->table[1]);
}

static void gelu_backward(struct mp_device *d, const struct buffers *b) {
    d->operations->gelu_backward(d, NULL, ELEMENTS, b->table[0], b->table[1], b->table[1], NULL);
}

static void adamw(struct mp_device *d, const struct buffers *b) {
    const struct mp_adamw settings = {1e-3f, 0.9f, 0.999f, 1e-8f, 0.01f, 10};
    d->operations->adamw(d, NULL, ELEMENTS, &settings, b->table[3], b->table[4], b->table[5],
                         b->table[6], NULL);
}

static void add(struct mp_device *d, const struct buffers *b) {
    d->operations->add(d, NULL, ELEMENTS, b->table[2], b->table[0], b->table[2]);
}

static void gather(struct mp_device *d, const struct buffers *b) {
    d->operations->gather_rows(d, NULL, ROWS, WIDTH, b->table[0], b->index, b->table[1]);
}

static void combine_forward(struct mp_device *d, const struct buffers *b) {
    d->operations->combine_forward(d, NULL, ROWS / TOP_K, TOP_K, WIDTH, b->table[0], b->index,
                                   b->column[0], b->table[1], b->table[2]);
}

static void combine_backward(struct mp_device *d, const struct buffers *b) {
    d->operations->combine_backward(d, NULL, ROWS / TOP_K, TOP_K, WIDTH, b->table[0], b->index,
                                    b->column[0], b->table[1], false, b->table[2], b->column[1]);
}

static const struct operation {
    const char *name;
    void (*run)(struct mp_device *device, const struct buffers *buffers);
    double passes; /* over [ROWS][WIDTH], reading or writing */
} operations[] = {
    {"layer_norm_forward", norm_forward, 2},
    {"layer_norm_backward", norm_backward, 4},
    {"gelu_forward", gelu_forward, 2},
    {"gelu_backward", gelu_backward, 3},
    {"adamw", adamw, 7},
    {"add", add, 3},
    {"gather", gather, 2},
    {"combine_forward", combine_forward, 2}, /* rows; half as many residuals and results */
    {"combine_backward", combine_backward, 2.5},
};
enum { OPERATIONS = sizeof operations / sizeof *operations };

static int create_buffers(struct mp_device_memory *memory, struct buffers *b,
                          struct mp_error *error) {
    for (int i = 0; i < TABLES; i++)
        b->table[i] = random_floats(memory, ELEMENTS);
    for (int i = 0; i < COLUMNS; i++)
        b->column[i] = random_floats(memory, ROWS);
    for (int i = 0; i < LINES; i++)
        b->line[i] = random_floats(memory, WIDTH);
    b->from = random_floats(memory, (size_t)ELEMENTS * 7 / 2);
    b->to = random_floats(memory, (size_t)ELEMENTS * 7 / 2);
    b->index = mp_device_take(memory, ROWS, sizeof *b->index);
    if (memory->lacking)
        return mp_fail(error, MP_ENOMEM, "compute: no memory for the moved arrays");
    /* As tokens are sorted by expert: one group after another, each in token order. */
    for (uint32_t group = 0, row = 0; group < 64; group++) {
        for (uint32_t i = 0; i < ROWS; i++) {
            if (i * 2654435761u >> 26 == group)
                b->index[row++] = (int32_t)i;
        }
    }
    for (int i = 0; i < ELEMENTS; i++) /* second moments are not negative */
        b->table[6][i] *= b->table[6][i];
    return MP_OK;
}

static int measure_memory(struct mp_device_memory *memory, int repeats, json_t *result,
                          struct mp_error *error) {
    static double seconds[OPERATIONS][MOST_REPEATS];
    static double copy_seconds[OPERATIONS][MOST_REPEATS];
    struct buffers buffers = {0};
    MP_TRY(create_buffers(memory, &buffers, error));
    for (int turn = 0; turn < repeats; turn++) {
        for (int i = 0; i < OPERATIONS; i++) {
            size_t bytes = (size_t)(operations[i].passes * ELEMENTS * sizeof(float));
            double start = seconds_now();
            operations[i].run(memory->device, &buffers);
            double middle = seconds_now();
            memcpy(buffers.to, buffers.from, bytes / 2); /* half is read and half written */
            copy_seconds[i][turn] = seconds_now() - middle;
            seconds[i][turn] = middle - start;
        }
    }
    MP_TRY(mp_device_check(memory->device, error));
    json_t *table = json_array();
    MP_TRY(mp_bench_add(result, json_pack("{s:o}", "memory", table), error));
    for (int i = 0; i < OPERATIONS; i++) {
        double gigabytes = 1e-9 * operations[i].passes * ELEMENTS * sizeof(float);
        double taken = mp_median_of(seconds[i], repeats);
        double floor = mp_median_of(copy_seconds[i], repeats);
        MP_TRY(mp_bench_add_row(table,
                                json_pack("{s:s, s:f, s:f, s:f}", "operation", operations[i].name,
                                          "gb_per_s", gigabytes / taken, "copy_gb_per_s",
                                          gigabytes / floor, "time_over_copy", taken / floor),
                                error));
    }
    return MP_OK;
}

static const struct mp_option compute_options[] = {
    MP_BENCH_NUMBER("repeats", repeats, "7", 1, MOST_REPEATS, "turns of which the median is shown"),
    {0},
};

static int run(const struct mp_bench_options *options, json_t *result, struct mp_error *error) {
    const struct mp_device_limits limits = {
        .attention = {1, 1, 1, 1}, .experts = EXPERTS, .width = WIDEST, .tokens = ROUTES};
    struct mp_device_memory memory = {0};
    char description[64];
    MP_TRY(mp_device_cpu_create(1, &limits, &memory.device, error));
    mp_device_describe(memory.device, description, sizeof description);
    json_object_set_new(result, "device", json_string(description));
    int code = measure_products(&memory, options->repeats, result, error);
    mp_device_memory_release(&memory); /* before the other half takes its own */
    if (!code)
        code = measure_memory(&memory, options->repeats, result, error);
    mp_device_memory_release(&memory);
    mp_device_destroy(memory.device);
    return code;
}

const struct mp_bench mp_bench_compute = {
    .name = "compute",
    .help = "expert FFN beside one large matrix product, moved bytes beside a copy; one thread\n"
            "Times are this thread's CPU time.  Needs 1.5 GB of memory.",
    .options = compute_options,
    .run = run,
};
