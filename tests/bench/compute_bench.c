/* Compute: what an expert's feed-forward network gets of the rate of one large matrix product.
 *
 * Everything runs on one thread in this one process and takes turns, so that a busy machine
 * disturbs all alike; figures are medians over the turns. */
#include <dnnl.h>
#include <stdbool.h>
#include <string.h>

#include "tests/bench/bench.h"
#include "tests/bench/compute_bench.h"

enum { EXPERTS = 64, ROUTES = 8192, LARGE = 2048, WIDEST = 2048 };

enum step {
    STEP_FORWARD_IN, /* tokens to expert width */
    STEP_GELU,
    STEP_FORWARD_OUT,
    STEP_OUT_WEIGHT_GRADIENT,
    STEP_OUT_INPUT_GRADIENT,
    STEP_GELU_BACKWARD,
    STEP_IN_WEIGHT_GRADIENT,
    STEP_IN_INPUT_GRADIENT,
    STEPS
};
static const char *const step_names[STEPS] = {
    "forward_in",         "gelu",          "forward_out",        "out_weight_gradient",
    "out_input_gradient", "gelu_backward", "in_weight_gradient", "in_input_gradient",
};

struct network {
    int width, expert_width;
    int rows[EXPERTS]; /* routes of each expert */
    void *in_weight[EXPERTS], *out_weight[EXPERTS];
    void *in_gradient[EXPERTS], *out_gradient[EXPERTS];
    float *x, *hidden, *active, *y, *dy, *dhidden, *dx;
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
    float *arrays[] = {n->x, n->hidden, n->active, n->y, n->dy, n->dhidden, n->dx};
    for (size_t i = 0; i < sizeof arrays / sizeof *arrays; i++)
        device->operations->release(device, arrays[i]);
    for (int e = 0; e < EXPERTS; e++) {
        device->operations->release(device, n->in_weight[e]);
        device->operations->release(device, n->out_weight[e]);
        device->operations->release(device, n->in_gradient[e]);
        device->operations->release(device, n->out_gradient[e]);
    }
}

static int create_network(struct mp_device *device, struct network *n, struct mp_error *error) {
    size_t weight = (size_t)n->width * (size_t)n->expert_width;
    size_t narrow = (size_t)ROUTES * (size_t)n->width;
    size_t wide = (size_t)ROUTES * (size_t)n->expert_width;
    float **arrays[] = {&n->x, &n->y, &n->dy, &n->dx, &n->hidden, &n->active, &n->dhidden};
    bool complete = true;
    skew_rows(n->rows);
    for (size_t i = 0; i < sizeof arrays / sizeof *arrays; i++) {
        *arrays[i] = compute_random_floats(device, i < 4 ? narrow : wide);
        complete = complete && *arrays[i];
    }
    for (int e = 0; e < EXPERTS; e++) {
        n->in_weight[e] = compute_random_floats(device, weight);
        n->out_weight[e] = compute_random_floats(device, weight);
        n->in_gradient[e] = compute_random_floats(device, weight);
        n->out_gradient[e] = compute_random_floats(device, weight);
        complete = complete && n->in_weight[e] && n->out_weight[e] && n->in_gradient[e] &&
                   n->out_gradient[e];
    }
    return complete ? MP_OK
                    : mp_fail(error, MP_ENOMEM, "compute: no memory for %d experts of %d x %d",
                              EXPERTS, n->width, n->expert_width);
}

static void run_step(struct mp_device *device, struct network *n, enum step step) {
    const struct mp_device_operations *o = device->operations;
    size_t wide = (size_t)ROUTES * (size_t)n->expert_width;
    int width = n->width, expert_width = n->expert_width;
    switch (step) {
    case STEP_FORWARD_IN:
        o->grouped_gemm(device, NULL, MP_GROUPED_FORWARD, EXPERTS, n->rows, width, expert_width,
                        n->x, n->in_weight, n->hidden, false);
        break;
    case STEP_GELU:
        o->gelu_forward(device, NULL, wide, n->hidden, n->active);
        break;
    case STEP_FORWARD_OUT:
        o->grouped_gemm(device, NULL, MP_GROUPED_FORWARD, EXPERTS, n->rows, expert_width, width,
                        n->active, n->out_weight, n->y, false);
        break;
    case STEP_OUT_WEIGHT_GRADIENT:
        o->grouped_gemm(device, NULL, MP_GROUPED_WEIGHT_GRADIENT, EXPERTS, n->rows, expert_width,
                        width, n->active, n->out_gradient, n->dy, false);
        break;
    case STEP_OUT_INPUT_GRADIENT:
        o->grouped_gemm(device, NULL, MP_GROUPED_INPUT_GRADIENT, EXPERTS, n->rows, expert_width,
                        width, n->dhidden, n->out_weight, n->dy, false);
        break;
    case STEP_GELU_BACKWARD:
        o->gelu_backward(device, NULL, wide, n->hidden, n->dhidden, n->dhidden, NULL);
        break;
    case STEP_IN_WEIGHT_GRADIENT:
        o->grouped_gemm(device, NULL, MP_GROUPED_WEIGHT_GRADIENT, EXPERTS, n->rows, width,
                        expert_width, n->x, n->in_gradient, n->dhidden, false);
        break;
    default:
        o->grouped_gemm(device, NULL, MP_GROUPED_INPUT_GRADIENT, EXPERTS, n->rows, width,
                        expert_width, n->dx, n->in_weight, n->dhidden, false);
    }
}

static void time_network(struct mp_device *device, struct network *n, int turn) {
    double begin = compute_seconds(), start = begin;
    for (int step = 0; step < STEPS; step++) {
        run_step(device, n, step);
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
    double seconds = mp_bench_median(n->seconds, repeats);
    double rate = 6 * products / seconds;
    json_t *steps = json_object();
    for (int step = 0; step < STEPS; step++) {
        double step_seconds = mp_bench_median(n->step_seconds[step], repeats);
        char name[64];
        bool is_gelu = step == STEP_GELU || step == STEP_GELU_BACKWARD;
        snprintf(name, sizeof name, "%s_%s", step_names[step], is_gelu ? "ms" : "gflop_per_s");
        json_object_set_new(
            steps, name, json_real(is_gelu ? 1e3 * step_seconds : 1e-9 * products / step_seconds));
    }
    json_t *report =
        json_pack("{s:i, s:i, s:i, s:i, s:f, s:f, s:f, s:f}", "width", n->width, "expert_width",
                  n->expert_width, "experts", EXPERTS, "routes", ROUTES, "max_over_mean_routes",
                  (double)n->rows[0] * EXPERTS / ROUTES, "ms", 1e3 * seconds, "gflop_per_s",
                  1e-9 * rate, "share_of_large_gemm", rate / large_rate);
    json_object_update(report, steps);
    json_decref(steps);
    return report;
}

static int measure(struct mp_device *device, struct network networks[2], int repeats,
                   json_t *result, struct mp_error *error) {
    static double large_seconds[COMPUTE_MOST_REPEATS];
    float *operand[3];
    int code = MP_OK;
    for (int i = 0; i < 3; i++) {
        operand[i] = compute_random_floats(device, (size_t)LARGE * LARGE);
        if (!operand[i])
            code = mp_fail(error, MP_ENOMEM, "compute: no memory for the large product");
    }
    for (int i = 0; i < 2 && !code; i++)
        code = create_network(device, &networks[i], error);
    /* Turn -1 warms up: code generation, first touches; its times are overwritten by turn 0. */
    for (int turn = -1; turn < repeats && !code; turn++) {
        code = time_large_product(operand, &large_seconds[turn < 0 ? 0 : turn], error);
        for (int i = 0; i < 2 && !code; i++)
            time_network(device, &networks[i], turn < 0 ? 0 : turn);
    }
    for (int i = 0; i < 3; i++)
        device->operations->release(device, operand[i]);
    if (!code)
        code = mp_device_check(device, error);
    if (!code) {
        double rate = 2.0 * LARGE * LARGE * LARGE / mp_bench_median(large_seconds, repeats);
        json_object_set_new(result, "large_gemm_gflop_per_s", json_real(1e-9 * rate));
        for (int i = 0; i < 2; i++)
            json_object_set_new(result, i ? "expert_ffn_narrow" : "expert_ffn",
                                report_network(&networks[i], repeats, rate));
    }
    for (int i = 0; i < 2; i++)
        destroy_network(device, &networks[i]);
    return code;
}

static int run(int argc, char **argv, json_t *result, struct mp_error *error) {
    static struct network networks[2];
    long repeats = 7;
    const struct mp_bench_option options[] = {
        {"repeats", &repeats, 1, COMPUTE_MOST_REPEATS},
        {0},
    };
    int code = mp_bench_options(argc, argv, options, error);
    if (code)
        return code;

    const struct mp_device_limits limits = {
        .attention = {1, 1, 1, 1}, .experts = EXPERTS, .width = WIDEST, .tokens = ROUTES};
    struct mp_device *device = NULL;
    code = mp_device_cpu_create(1, &limits, &device, error);
    if (code)
        return code;
    char description[64];
    mp_device_describe(device, description, sizeof description);
    json_object_set_new(result, "device", json_string(description));

    memset(networks, 0, sizeof networks);
    networks[0].width = 512;
    networks[0].expert_width = 2048;
    networks[1].width = 128;
    networks[1].expert_width = 512;
    code = measure(device, networks, (int)repeats, result, error);
    if (!code)
        code = compute_measure_memory(device, (int)repeats, result, error);
    mp_device_destroy(device);
    return code;
}

const struct mp_bench mp_bench_compute = {
    .name = "compute",
    .help = "expert FFN beside one large matrix product, moved bytes beside a copy; one thread\n"
            "  --repeats N  turns of which the median is shown, 7 unless given\n"
            "  Times are this thread's CPU time.  Needs 1.5 GB of memory.\n",
    .run = run,
};
