/* gemm, gemm_float and grouped_gemm against sums in double precision: fp32 and bf16, products side
 * by side and by cuBLAS's grouped routine, with streams that lag behind. */
#include "tests/reference/device/cuda/dense_support.h"

enum { DELAY_US = 300 };

/* ---- single products ---- */

struct gemm_case {
    bool transpose_a, transpose_b;
    int m, n, k;
    float alpha, beta;
    int padding; /* of every leading dimension */
};

static double element(const struct array *matrix, int leading, bool transpose, int row,
                      int column) {
    return matrix->value[transpose ? column * leading + row : row * leading + column];
}

static void check_gemm(struct mp_device *device, const struct gemm_case *c, bool to_float) {
    int lda = (c->transpose_a ? c->m : c->k) + c->padding;
    int ldb = (c->transpose_b ? c->k : c->n) + c->padding;
    int ldc = c->n + c->padding;
    enum mp_element type = device->element, result = to_float ? MP_FLOAT32 : type;
    size_t of_a = (size_t)(lda * (c->transpose_a ? c->k : c->m)), of_out = (size_t)(ldc * c->m);
    size_t of_b = (size_t)(ldb * (c->transpose_b ? c->n : c->k));
    struct array a = random_array(device, type, of_a, 0, 1, 0);
    struct array b = random_array(device, type, of_b, 0, 1, 0);
    struct array out = random_array(device, result, of_out, 0, 1, c->beta == 0 ? (double)NAN : 0);
    if (to_float)
        device->operations->gemm_float(device, NULL, c->transpose_a, c->transpose_b, c->m, c->n,
                                       c->k, c->alpha, a.at, lda, b.at, ldb, c->beta, out.at, ldc);
    else
        device->operations->gemm(device, NULL, c->transpose_a, c->transpose_b, c->m, c->n, c->k,
                                 c->alpha, a.at, lda, b.at, ldb, c->beta, out.at, ldc);
    double *expected = copy_doubles(out.value, of_out), *tolerance = new_doubles(of_out);
    for (int at = 0; at < ldc * c->m; at++) {
        if (at % ldc >= c->n) /* what lies between the rows is not touched */
            continue;
        expected[at] = c->beta != 0 ? (double)c->beta * expected[at] : 0;
        tolerance[at] = 1e-6 * fabs(expected[at]);
        for (int i = 0; i < c->k; i++) {
            double term = element(&a, lda, c->transpose_a, at / ldc, i) *
                          element(&b, ldb, c->transpose_b, i, at % ldc) * (double)c->alpha;
            expected[at] += term;
            tolerance[at] += 1e-6 * fabs(term);
        }
    }
    check_array(&out, expected, 1, tolerance, "c");
    free(expected);
    free(tolerance);
    FREE_ARRAYS(&a, &b, &out);
}

static const enum mp_element elements[] = {MP_FLOAT32, MP_BFLOAT16};

/* Every combination of transposes and of what is added to, at odd and at even shapes. */
static void gemm_matches(void **state) {
    static const float factors[][2] = {{1, 0}, {1, 1}, {-2, 0.5f}, {0.25f, 0}};
    static const int shapes[][3] = {{17, 33, 29}, {1, 65, 70}, {64, 1, 32}, {8, 16, 1},
                                    {0, 5, 7},    {5, 0, 7},   {3, 5, 0}};
    (void)state;
    for (int e = 0; e < 2; e++) {
        struct mp_device *device = open_device(elements[e], false);
        for (int s = 0; s < 7; s++) {
            for (int i = 0; i < 4 * 4 * 2; i++) {
                const float *factor = factors[i / 4 % 4];
                struct gemm_case c = {i & 1,        i & 2,     shapes[s][0], shapes[s][1],
                                      shapes[s][2], factor[0], factor[1],    i / 16 * 3};
                check_gemm(device, &c, false);
                check_gemm(device, &c, true);
            }
        }
        close_device(device);
    }
}

/* ---- grouped ---- */

enum { MOST_GROUPS = 12 };

struct grouped_case {
    const char *name;
    int groups, columns_in, columns_out;
    int rows[MOST_GROUPS];
};

static const struct grouped_case grouped_cases[] = {
    {"even", 3, 16, 32, {4, 4, 4}},
    {"odd shapes, some empty", 5, 23, 45, {3, 0, 17, 1, 0}},
    {"one group has all", 4, 30, 70, {0, 0, 90, 0}},
    {"more groups than streams", 12, 24, 8, {5, 1, 0, 9, 2, 2, 30, 0, 7, 7, 1, 64}},
    {"long enough to meet", 4, 100, 60, {90, 90, 90, 90}},
    {"no rows at all", 3, 8, 8, {0, 0, 0}},
    {"no columns in", 3, 0, 8, {2, 0, 3}},
    {"no columns out", 2, 8, 0, {2, 3}},
    {"no groups", 0, 8, 8, {0}},
};

/* What one of the kinds reads and writes; weights of all groups lie behind each other. */
struct grouped {
    struct array in, out, weight;
    void *each[MOST_GROUPS]; /* group's weight */
};

static struct array *result_of(struct grouped *given, enum mp_grouped_gemm kind) {
    return kind == MP_GROUPED_FORWARD          ? &given->out
           : kind == MP_GROUPED_INPUT_GRADIENT ? &given->in
                                               : &given->weight;
}

static struct grouped random_grouped(struct mp_device *device, const struct grouped_case *c,
                                     enum mp_grouped_gemm kind, bool accumulate) {
    bool is_weight = kind == MP_GROUPED_WEIGHT_GRADIENT;
    enum mp_element type = device->element, weight_type = is_weight ? MP_FLOAT32 : type;
    size_t rows = 0, in = (size_t)c->columns_in, out = (size_t)c->columns_out;
    for (int g = 0; g < c->groups; g++)
        rows += (size_t)c->rows[g];
    struct grouped given = {
        .in = random_array(device, type, rows * in, 0, 1, 0),
        .out = random_array(device, type, rows * out, 0, 1, 0),
        .weight = random_array(device, weight_type, (size_t)c->groups * in * out, 0, 1, 0)};
    for (size_t g = 0; g < (size_t)c->groups; g++)
        given.each[g] = (char *)given.weight.at + g * in * out * bytes_of(weight_type);
    struct array *result = result_of(&given, kind);
    for (size_t i = 0; !accumulate && i < result->count; i++)
        result->value[i] = (double)NAN; /* what reads it shows */
    send(result);
    return given;
}

/* Against `result`, which has what the operation has made of what was given. */
static void check_result(const struct grouped_case *c, enum mp_grouped_gemm kind,
                         struct grouped *given, const struct array *result, bool accumulate) {
    int in = c->columns_in, out = c->columns_out, row = 0;
    double *expected = new_doubles(result->count), *tolerance = new_doubles(result->count);
    for (size_t i = 0; accumulate && i < result->count; i++) {
        expected[i] = result->value[i];
        tolerance[i] = 1e-6 * fabs(expected[i]);
    }
    for (int g = 0; g < c->groups; g++) {
        for (int end = row + c->rows[g]; row < end; row++) {
            for (int i = 0; i < in * out; i++) {
                int at_in = row * in + i / out, at_out = row * out + i % out;
                int at_weight = g * in * out + i;
                double x = given->in.value[at_in], w = given->weight.value[at_weight];
                double y = given->out.value[at_out];
                int at = kind == MP_GROUPED_FORWARD          ? at_out
                         : kind == MP_GROUPED_INPUT_GRADIENT ? at_in
                                                             : at_weight;
                double term = kind == MP_GROUPED_FORWARD          ? x * w
                              : kind == MP_GROUPED_INPUT_GRADIENT ? y * w
                                                                  : x * y;
                expected[at] += term;
                tolerance[at] += 1e-6 * fabs(term);
            }
        }
    }
    check_array(result, expected, 1, tolerance, c->name);
    free(expected);
    free(tolerance);
}

static void check_kind(struct mp_device *device, const struct grouped_case *c,
                       enum mp_grouped_gemm kind, bool accumulate) {
    struct grouped given = random_grouped(device, c, kind, accumulate);
    device->operations->grouped_gemm(device, NULL, kind, c->groups, c->rows, c->columns_in,
                                     c->columns_out, given.in.at, given.each, given.out.at,
                                     accumulate);
    check_result(c, kind, &given, result_of(&given, kind), accumulate);
    FREE_ARRAYS(&given.in, &given.out, &given.weight);
}

static void check_grouped(bool grouped_library) {
    delay_streams(DELAY_US);
    for (int e = 0; e < 2; e++) {
        struct mp_device *device = open_device(elements[e], grouped_library);
        for (size_t i = 0; i < sizeof grouped_cases / sizeof *grouped_cases; i++)
            for (int kind = 0; kind < 3 * 2; kind++)
                check_kind(device, &grouped_cases[i], (enum mp_grouped_gemm)(kind / 2), kind % 2);
        close_device(device);
    }
    delay_streams(0);
}

static void grouped_products_side_by_side_match(void **state) {
    (void)state;
    check_grouped(false);
}

static void grouped_products_of_the_library_match(void **state) {
    (void)state;
    check_grouped(true);
}

/* What a grouped product reads is written by what was queued before it on the operation's stream,
 * and what comes after it there reads its result: without a wait of the host in between. */
static void grouped_products_keep_the_order_of_their_stream(void **state) {
    const struct grouped_case c = {"chain", 6, 16, 16, {5, 5, 5, 5, 5, 5}};
    (void)state;
    delay_streams(2000);
    for (int library = 0; library < 2; library++) {
        struct mp_device *device = open_device(MP_FLOAT32, library);
        const struct mp_device_operations *operations = device->operations;
        struct grouped given = random_grouped(device, &c, MP_GROUPED_FORWARD, false);
        size_t count = given.in.count, bytes = count * sizeof(float);
        struct array in = spoilt_array(device, MP_FLOAT32, count, 0);
        struct array out = spoilt_array(device, MP_FLOAT32, count, 0);
        operations->copy(device, NULL, in.at, given.in.at, bytes);
        operations->grouped_gemm(device, NULL, MP_GROUPED_FORWARD, c.groups, c.rows, c.columns_in,
                                 c.columns_out, in.at, given.each, out.at, false);
        operations->copy(device, NULL, given.out.at, out.at, bytes);
        operations->zero(device, NULL, out.at, bytes);
        check_result(&c, MP_GROUPED_FORWARD, &given, &given.out, false);
        FREE_ARRAYS(&given.in, &given.out, &given.weight, &in, &out);
        close_device(device);
    }
    delay_streams(0);
}

/* No memory is taken once the device is there, and the host waits for nothing. */
static void products_allocate_nothing(void **state) {
    const struct grouped_case c = {"", 3, 8, 8, {2, 0, 1}};
    (void)state;
    struct mp_device *device = open_device(MP_BFLOAT16, true);
    struct grouped given = random_grouped(device, &c, MP_GROUPED_FORWARD, false);
    const struct cuda_double_counts before = double_counts();
    device->operations->grouped_gemm(device, NULL, MP_GROUPED_FORWARD, c.groups, c.rows, 8, 8,
                                     given.in.at, given.each, given.out.at, false);
    device->operations->gemm(device, NULL, false, false, 3, 8, 8, 1, given.in.at, 8,
                             given.weight.at, 8, 0, given.out.at, 8);
    const struct cuda_double_counts after = double_counts();
    assert_int_equal(after.allocations, before.allocations);
    assert_int_equal(after.host_live, before.host_live);
    assert_int_equal(after.synchronisations, before.synchronisations);
    FREE_ARRAYS(&given.in, &given.out, &given.weight);
    close_device(device);
}

static void more_groups_than_the_limit_are_refused(void **state) {
    enum { GROUPS = 65 };
    static int rows[GROUPS];
    static void *weight[GROUPS];
    (void)state;
    struct mp_device *device = open_device(MP_FLOAT32, false);
    for (int g = 0; g < GROUPS; g++)
        weight[g] = &rows[g];
    device->operations->grouped_gemm(device, NULL, MP_GROUPED_FORWARD, GROUPS, rows, 8, 8, NULL,
                                     weight, NULL, false);
    assert_fails(mp_device_check(device, &error), MP_ELIMIT, "rank 2, GPU 0 (",
                 "65 weights, the limit is 64");
    mp_device_destroy(device);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(gemm_matches),
        cmocka_unit_test(grouped_products_side_by_side_match),
        cmocka_unit_test(grouped_products_of_the_library_match),
        cmocka_unit_test(grouped_products_keep_the_order_of_their_stream),
        cmocka_unit_test(products_allocate_nothing),
        cmocka_unit_test(more_groups_than_the_limit_are_refused),
    };
    random_state = test_seed();
    return cmocka_run_group_tests_name("cuda gemm", tests, NULL, NULL);
}
