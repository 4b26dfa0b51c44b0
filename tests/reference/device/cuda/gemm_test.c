/* gemm, gemm_float and grouped_gemm against sums in double precision: fp32 and bf16, products side
 * by side and by cuBLAS's grouped routine, with streams that lag behind. */
#include "tests/reference/device/cuda/cuda_support.h"

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
    struct array a = new_array(device, type, (size_t)(lda * (c->transpose_a ? c->k : c->m)), false);
    struct array b = new_array(device, type, (size_t)(ldb * (c->transpose_b ? c->n : c->k)), false);
    struct array out = new_array(device, result, (size_t)(ldc * c->m), c->beta == 0);

    if (to_float)
        device->operations->gemm_float(device, NULL, c->transpose_a, c->transpose_b, c->m, c->n,
                                       c->k, c->alpha, a.memory, lda, b.memory, ldb, c->beta,
                                       out.memory, ldc);
    else
        device->operations->gemm(device, NULL, c->transpose_a, c->transpose_b, c->m, c->n, c->k,
                                 c->alpha, a.memory, lda, b.memory, ldb, c->beta, out.memory, ldc);
    double *got = read_array(device, &out);
    for (int at = 0; at < ldc * c->m; at++) {
        int row = at / ldc, column = at % ldc;
        double sum = 0, magnitude = 0, before = out.value[at];
        if (column >= c->n) { /* what lies between the rows is not touched */
            assert_memory_equal(&got[at], &before, sizeof before);
            continue;
        }
        for (int i = 0; i < c->k; i++) {
            double term = element(&a, lda, c->transpose_a, row, i) *
                          element(&b, ldb, c->transpose_b, i, column) * (double)c->alpha;
            sum += term;
            magnitude += fabs(term);
        }
        if (c->beta != 0) {
            sum += (double)c->beta * before;
            magnitude += fabs((double)c->beta * before);
        }
        double tolerance = tolerance_of(result, sum, magnitude);
        if (!(fabs(got[at] - sum) <= tolerance))
            fail_msg("[%d][%d] is %.9g, expected %.9g within %.3g", row, column, got[at], sum,
                     tolerance);
    }
    free(got);
    free_array(device, &a);
    free_array(device, &b);
    free_array(device, &out);
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

struct grouped {
    struct array in, out, weight[MOST_GROUPS];
};

static const struct grouped_case grouped_cases[] = {
    {"even", 3, 16, 32, {4, 4, 4}},
    {"odd shapes, some empty", 5, 23, 45, {3, 0, 17, 1, 0}},
    {"one group has all", 4, 30, 70, {0, 0, 90, 0}},
    {"more groups than streams", 12, 24, 8, {5, 1, 0, 9, 2, 2, 30, 0, 7, 7, 1, 64}},
    {"no rows at all", 3, 8, 8, {0, 0, 0}},
    {"no columns in", 3, 0, 8, {2, 0, 3}},
    {"no columns out", 2, 8, 0, {2, 3}},
    {"no groups", 0, 8, 8, {0}},
};

/* Adds group g's products, and their magnitudes, to what `kind` writes. */
static void add_group(const struct grouped_case *c, enum mp_grouped_gemm kind, int rows,
                      const double *in, const double *weight, const double *out, double *expected,
                      double *magnitude) {
    for (int row = 0; row < rows; row++) {
        for (int i = 0; i < c->columns_in; i++) {
            for (int o = 0; o < c->columns_out; o++) {
                int at_in = row * c->columns_in + i, at_out = row * c->columns_out + o;
                int at_weight = i * c->columns_out + o;
                int at = kind == MP_GROUPED_FORWARD          ? at_out
                         : kind == MP_GROUPED_INPUT_GRADIENT ? at_in
                                                             : at_weight;
                double term = kind == MP_GROUPED_FORWARD          ? in[at_in] * weight[at_weight]
                              : kind == MP_GROUPED_INPUT_GRADIENT ? out[at_out] * weight[at_weight]
                                                                  : in[at_in] * out[at_out];
                expected[at] += term;
                magnitude[at] += fabs(term);
            }
        }
    }
}

/* `got` [count] against what was there before (if it is added to) and the group's products. */
static void compare_group(const struct grouped_case *c, enum mp_grouped_gemm kind, int group,
                          const struct grouped *given, size_t in_at, size_t out_at,
                          const double *got, const double *before, size_t count,
                          enum mp_element type) {
    double *expected = calloc(count + 1, sizeof *expected);
    double *magnitude = calloc(count + 1, sizeof *magnitude);
    assert_non_null(expected);
    assert_non_null(magnitude);
    for (size_t i = 0; before && i < count; i++) {
        expected[i] = before[i];
        magnitude[i] = fabs(before[i]);
    }
    add_group(c, kind, c->rows[group], given->in.value + in_at, given->weight[group].value,
              given->out.value + out_at, expected, magnitude);
    for (size_t i = 0; i < count; i++) {
        double tolerance = tolerance_of(type, expected[i], magnitude[i]);
        if (!(fabs(got[i] - expected[i]) <= tolerance))
            fail_msg("%s, kind %d, group %d: [%zu] is %.9g, expected %.9g within %.3g", c->name,
                     (int)kind, group, i, got[i], expected[i], tolerance);
    }
    free(expected);
    free(magnitude);
}

static void check_kind(struct mp_device *device, const struct grouped_case *c,
                       enum mp_grouped_gemm kind, bool accumulate) {
    struct grouped given;
    void *weight[MOST_GROUPS];
    int sum = 0;
    bool is_weight = kind == MP_GROUPED_WEIGHT_GRADIENT;
    enum mp_element type = device->element, weight_type = is_weight ? MP_FLOAT32 : type;
    size_t weight_size = (size_t)(c->columns_in * c->columns_out);
    for (int g = 0; g < c->groups; g++) {
        sum += c->rows[g];
        given.weight[g] = new_array(device, weight_type, weight_size, is_weight && !accumulate);
        weight[g] = given.weight[g].memory;
    }
    given.in = new_array(device, type, (size_t)(sum * c->columns_in),
                         kind == MP_GROUPED_INPUT_GRADIENT && !accumulate);
    given.out = new_array(device, type, (size_t)(sum * c->columns_out),
                          kind == MP_GROUPED_FORWARD && !accumulate);
    device->operations->grouped_gemm(device, NULL, kind, c->groups, c->rows, c->columns_in,
                                     c->columns_out, given.in.memory, weight, given.out.memory,
                                     accumulate);

    const struct array *rows = kind == MP_GROUPED_FORWARD ? &given.out : &given.in;
    double *got = is_weight ? NULL : read_array(device, rows);
    size_t in_at = 0, out_at = 0;
    for (int g = 0; g < c->groups; g++) {
        size_t in_size = (size_t)(c->rows[g] * c->columns_in);
        size_t out_size = (size_t)(c->rows[g] * c->columns_out);
        size_t at = kind == MP_GROUPED_FORWARD ? out_at : in_at;
        double *written = is_weight ? read_array(device, &given.weight[g]) : got + at;
        const double *before = is_weight ? given.weight[g].value : rows->value + at;
        size_t size = is_weight ? weight_size : kind == MP_GROUPED_FORWARD ? out_size : in_size;
        compare_group(c, kind, g, &given, in_at, out_at, written, accumulate ? before : NULL, size,
                      weight_type);
        if (is_weight)
            free(written);
        in_at += in_size;
        out_at += out_size;
    }
    free(got);
    for (int g = 0; g < c->groups; g++)
        free_array(device, &given.weight[g]);
    free_array(device, &given.in);
    free_array(device, &given.out);
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
    enum { GROUPS = 6, WIDTH = 16, ROWS = 5, SIZE = GROUPS * ROWS * WIDTH };
    struct grouped_case c = {"chain", GROUPS, WIDTH, WIDTH, {5, 5, 5, 5, 5, 5}};
    void *weight[GROUPS];
    (void)state;
    delay_streams(2000);
    for (int library = 0; library < 2; library++) {
        struct mp_device *device = open_device(MP_FLOAT32, library);
        const struct mp_device_operations *operations = device->operations;
        struct grouped given;
        given.in = new_array(device, MP_FLOAT32, SIZE, false);
        given.out = new_array(device, MP_FLOAT32, SIZE, true);
        struct array in = new_array(device, MP_FLOAT32, SIZE, true);
        struct array out = new_array(device, MP_FLOAT32, SIZE, true);
        for (int g = 0; g < GROUPS; g++) {
            given.weight[g] = new_array(device, MP_FLOAT32, WIDTH * WIDTH, false);
            weight[g] = given.weight[g].memory;
        }
        operations->copy(device, NULL, in.memory, given.in.memory, SIZE * sizeof(float));
        operations->grouped_gemm(device, NULL, MP_GROUPED_FORWARD, GROUPS, c.rows, WIDTH, WIDTH,
                                 in.memory, weight, out.memory, false);
        operations->copy(device, NULL, given.out.memory, out.memory, SIZE * sizeof(float));
        operations->zero(device, NULL, out.memory, SIZE * sizeof(float));
        double *got = read_array(device, &given.out);
        for (int g = 0; g < GROUPS; g++) {
            size_t at = (size_t)g * ROWS * WIDTH;
            compare_group(&c, MP_GROUPED_FORWARD, g, &given, at, at, got + at, NULL, ROWS * WIDTH,
                          MP_FLOAT32);
            free_array(device, &given.weight[g]);
        }
        free(got);
        free_array(device, &given.in);
        free_array(device, &given.out);
        free_array(device, &in);
        free_array(device, &out);
        close_device(device);
    }
    delay_streams(0);
}

/* No memory is taken once the device is there. */
static void products_allocate_nothing(void **state) {
    enum { GROUPS = 3, WIDTH = 8 };
    int rows[GROUPS] = {2, 0, 1};
    void *weight[GROUPS];
    (void)state;
    struct mp_device *device = open_device(MP_BFLOAT16, true);
    struct array in = new_array(device, MP_BFLOAT16, 3 * WIDTH, false);
    struct array matrices = new_array(device, MP_BFLOAT16, (size_t)GROUPS * WIDTH * WIDTH, false);
    struct array out = new_array(device, MP_BFLOAT16, 3 * WIDTH, true);
    for (size_t g = 0; g < GROUPS; g++)
        weight[g] = (char *)matrices.memory + g * bytes_of(MP_BFLOAT16, WIDTH * WIDTH);
    const struct cuda_double_counts before = double_counts();
    device->operations->grouped_gemm(device, NULL, MP_GROUPED_FORWARD, GROUPS, rows, WIDTH, WIDTH,
                                     in.memory, weight, out.memory, false);
    device->operations->gemm(device, NULL, false, false, 3, WIDTH, WIDTH, 1, in.memory, WIDTH,
                             matrices.memory, WIDTH, 0, out.memory, WIDTH);
    const struct cuda_double_counts after = double_counts();
    assert_int_equal(after.allocations, before.allocations);
    assert_int_equal(after.host_live, before.host_live);
    assert_int_equal(after.synchronisations, before.synchronisations);
    free_array(device, &in);
    free_array(device, &matrices);
    free_array(device, &out);
    close_device(device);
}

static void more_groups_than_the_limit_are_refused(void **state) {
    enum { GROUPS = 65 };
    static int rows[GROUPS];
    static void *weight[GROUPS];
    struct mp_error error = {0};
    (void)state;
    struct mp_device *device = open_device(MP_FLOAT32, false);
    for (int g = 0; g < GROUPS; g++)
        weight[g] = &rows[g];
    device->operations->grouped_gemm(device, NULL, MP_GROUPED_FORWARD, GROUPS, rows, 8, 8, NULL,
                                     weight, NULL, false);
    assert_int_equal(mp_device_check(device, &error), MP_ELIMIT);
    assert_non_null(strstr(error.text, "rank 2, GPU 0 ("));
    assert_non_null(strstr(error.text, "65 weights, the limit is 64"));
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
