/* Compute: what an expert's feed-forward network gets of the rate of one large matrix product.
 *
 * Everything runs on one thread in this one process and takes turns, so that a busy machine
 * disturbs all alike; figures are medians over the turns. */
#include "tests/bench/compute_bench.h"

#include <dnnl.h>
#include <string.h>

#include "reference/base/median.h"

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
    double seconds[COMPUTE_MOST_REPEATS];
    double step_seconds[STEPS][COMPUTE_MOST_REPEATS];
};

float *compute_random_floats(struct mp_device *device, size_t count) {
    float *values = device->operations->allocate(device, count * sizeof *values);
    uint32_t state = 12345;
    for (size_t i = 0; values && i < count; i++) {
        state = state * 1664525u + 1013904223u;
        values[i] = (float)(state >> 8) * 0x1p-23f - 1;
    }
    return values;
}

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

static void destroy_network(struct mp_device *device, struct network *n) {
    for (int i = 0; i < ARRAYS; i++)
        device->operations->release(device, n->array[i]);
    for (int i = 0; i < MATRICES * EXPERTS; i++)
        device->operations->release(device, n->matrix[i / EXPERTS][i % EXPERTS]);
}

static int width_of(const struct network *n, int array) {
    return array < HIDDEN ? n->width : n->expert_width;
}

static int create_network(struct mp_device *device, struct network *n, struct mp_error *error) {
    size_t count = (size_t)n->width * (size_t)n->expert_width;
    bool complete = true;
    skew_rows(n->rows);
    for (int i = 0; i < ARRAYS; i++) {
        n->array[i] = compute_random_floats(device, (size_t)ROUTES * (size_t)width_of(n, i));
        complete = complete && n->array[i];
    }
    for (int i = 0; i < MATRICES * EXPERTS; i++) {
        void *matrix = n->matrix[i / EXPERTS][i % EXPERTS] = compute_random_floats(device, count);
        complete = complete && matrix;
    }
    return complete ? MP_OK
                    : mp_fail(error, MP_ENOMEM, "compute: no memory for %d experts of %d x %d",
                              EXPERTS, n->width, n->expert_width);
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
    double begin = compute_seconds(), start = begin;
    for (int step = 0; step < STEPS; step++) {
        run_step(device, n, &steps[step]);
        double end = compute_seconds();
        n->step_seconds[step][turn] = end - start;
        start = end;
    }
    n->seconds[turn] = start - begin;
}

/* The yardstick is the library itself, not our call of it. */
static int time_large_product(float *const operand[3], double *seconds, struct mp_error *error) {
    double start = compute_seconds();
    dnnl_status_t status = dnnl_sgemm('N', 'N', LARGE, LARGE, LARGE, 1, operand[0], LARGE,
                                      operand[1], LARGE, 0, operand[2], LARGE);
    *seconds = compute_seconds() - start;
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

static int measure(struct mp_device *device, struct network networks[2], float *const operand[3],
                   int repeats, json_t *result, struct mp_error *error) {
    static double large_seconds[COMPUTE_MOST_REPEATS];
    for (int i = 0; i < 2; i++)
        MP_TRY(create_network(device, &networks[i], error));
    /* Turn -1 warms up: code generation, first touches; its times are overwritten by turn 0. */
    for (int turn = -1; turn < repeats; turn++) {
        int at = turn < 0 ? 0 : turn;
        MP_TRY(time_large_product(operand, &large_seconds[at], error));
        for (int i = 0; i < 2; i++)
            time_network(device, &networks[i], at);
    }
    MP_TRY(mp_device_check(device, error));
    double rate = 2.0 * LARGE * LARGE * LARGE / mp_median_of(large_seconds, repeats);
    return mp_bench_add(result,
                        json_pack("{s:f, s:o, s:o}", "large_gemm_gflop_per_s", 1e-9 * rate,
                                  "expert_ffn", report_network(&networks[0], repeats, rate),
                                  "expert_ffn_narrow", report_network(&networks[1], repeats, rate)),
                        error);
}

/* Arithmetic, whose memory is given back before the other half takes its own. */
static int measure_products(struct mp_device *device, int repeats, json_t *result,
                            struct mp_error *error) {
    static struct network networks[2] = {{.width = 512, .expert_width = 2048},
                                         {.width = 128, .expert_width = 512}};
    float *operand[3];
    int code = MP_OK;
    for (int i = 0; i < 3; i++) {
        operand[i] = compute_random_floats(device, (size_t)LARGE * LARGE);
        if (!operand[i])
            code = mp_fail(error, MP_ENOMEM, "compute: no memory for the large product");
    }
    if (!code)
        code = measure(device, networks, operand, repeats, result, error);
    for (int i = 0; i < 3; i++)
        device->operations->release(device, operand[i]);
    for (int i = 0; i < 2; i++)
        destroy_network(device, &networks[i]);
    return code;
}

struct compute_options {
    int repeats;
};
static const struct mp_option compute_options[] = {
    MP_BENCH_NUMBER(struct compute_options, "repeats", repeats, "7", 1, COMPUTE_MOST_REPEATS,
                    "turns of which the median is shown"),
    {0},
};

static int run(const void *given, json_t *result, struct mp_error *error) {
    const int repeats = ((const struct compute_options *)given)->repeats;
    const struct mp_device_limits limits = {
        .attention = {1, 1, 1, 1}, .experts = EXPERTS, .width = WIDEST, .tokens = ROUTES};
    struct mp_device *device = NULL;
    char description[64];
    MP_TRY(mp_device_cpu_create(1, &limits, &device, error));
    mp_device_describe(device, description, sizeof description);
    json_object_set_new(result, "device", json_string(description));
    int code = measure_products(device, repeats, result, error);
    if (!code)
        code = compute_measure_memory(device, repeats, result, error);
    mp_device_destroy(device);
    return code;
}

const struct mp_bench mp_bench_compute = {
    .name = "compute",
    .help = "expert FFN beside one large matrix product, moved bytes beside a copy; one thread\n"
            "Times are this thread's CPU time.  Needs 1.5 GB of memory.",
    .options = compute_options,
    .options_size = sizeof(struct compute_options),
    .run = run,
};
