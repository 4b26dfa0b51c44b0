/* gemm, gemm_float and grouped_gemm against sums in double precision: with fp32 and, on a GPU, with
 * bf16, products side by side and by cuBLAS's grouped routine, with streams that lag behind. */
#include "tests/reference/device/cuda/on_double.h"
#include "tests/reference/device/dense_support.h"

enum { DELAY_US = 300 };

/* What a product that is added to `c` of this type may be off by from rounding to it: see gemm in
 * device.h.  The sum, which may be so much larger, is rounded by as much more. */
static double rounding_of_product(enum mp_element type, double product, bool is_added) {
    return is_added && type == MP_BFLOAT16 ? 0x1.01p-8 * fabs(product) : 0;
}

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
        double product = 0, before = c->beta != 0 ? (double)c->beta * expected[at] : 0;
        tolerance[at] = 1e-6 * fabs(before);
        for (int i = 0; i < c->k; i++) {
            double term = element(&a, lda, c->transpose_a, at / ldc, i) *
                          element(&b, ldb, c->transpose_b, i, at % ldc) * (double)c->alpha;
            product += term;
            tolerance[at] += 1e-6 * fabs(term);
        }
        expected[at] = before + product;
        tolerance[at] += rounding_of_product(result, product, c->beta != 0);
    }
    check_array(&out, expected, 1, tolerance, "c");
}

static void check_gemms(struct mp_device *device, struct gemm_case c) {
    check_gemm(device, &c, false);
    check_gemm(device, &c, true);
}

DEVICE_TEST(so_many_rows_that_others_have_a_turn_between) {
    check_gemms(device, (struct gemm_case){false, true, 2600, 6, 5, 1, 0.5f, 1});
}

/* Every combination of transposes and of what is added to, at odd and at even shapes. */
DEVICE_TEST(combinations_match) {
    static const float factors[][2] = {{1, 0}, {1, 1}, {-2, 0.5f}, {0.25f, 0}};
    static const int shapes[][3] = {{17, 33, 29}, {1, 65, 70}, {64, 1, 32}, {8, 16, 1},
                                    {0, 5, 7},    {5, 0, 7},   {3, 5, 0}};
    for (int s = 0; s < 7; s++) {
        for (int i = 0; i < 4 * 4 * 2; i++) {
            const float *factor = factors[i / 4 % 4];
            check_gemms(device, (struct gemm_case){i & 1, i & 2, shapes[s][0], shapes[s][1],
                                                   shapes[s][2], factor[0], factor[1], i / 16 * 3});
        }
    }
}

/* ---- grouped ---- */

enum { MOST_GROUPS = 12 };

struct grouped_case {
    const char *name;
    int groups, columns_in, columns_out;
    int rows[MOST_GROUPS];
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

/* Adds the products of what was given, and what each may be off by. */
UNCHECKED static void add_products(const struct grouped_case *c, enum mp_grouped_gemm kind,
                                   const struct grouped *given, double *expected,
                                   double *tolerance) {
    int in = c->columns_in, out = c->columns_out, row = 0;
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
}

/* Against `result`, which has what the operation has made of what was given. */
static void check_result(const struct grouped_case *c, enum mp_grouped_gemm kind,
                         struct grouped *given, const struct array *result, bool accumulate) {
    double *expected = new_doubles(result->count), *tolerance = new_doubles(result->count);
    add_products(c, kind, given, expected, tolerance);
    for (size_t i = 0; accumulate && i < result->count; i++) {
        tolerance[i] +=
            rounding_of_product(result->type, expected[i], true) + 1e-6 * fabs(result->value[i]);
        expected[i] += result->value[i];
    }
    check_array(result, expected, 1, tolerance, "result");
}

static const struct grouped_case grouped_cases[] = {
    {"even", 3, 16, 32, {4, 4, 4}},
    {"odd shapes, some empty", 5, 23, 45, {3, 0, 17, 1, 0}},
    {"one group has all", 4, 30, 70, {0, 0, 90, 0}},
    {"more groups than streams", 12, 24, 8, {5, 1, 0, 9, 2, 2, 30, 0, 7, 7, 1, 64}},
    {"long enough to meet", 4, 100, 60, {90, 90, 90, 90}},
    {"turned and not", 6, 72, 264, {15, 16, 23, 48, 128, 129}},
    {"more than a tile", 4, 264, 520, {300, 0, 129, 1}},
    {"turned, odd widths", 3, 53, 301, {17, 100, 31}},
    {"wider than the limit", 1, 30, 700, {20}},
    {"no rows at all", 3, 8, 8, {0, 0, 0}},
    {"no columns in", 3, 0, 8, {2, 0, 3}},
    {"no columns out", 2, 8, 0, {2, 3}},
    {"no groups", 0, 8, 8, {0}},
};

/* Each kind, with its result spoilt and added to. */
DEVICE_EACH(grouped_gemm_matches, grouped_cases) {
    delay_streams(DELAY_US);
    for (int i = 0; i < GROUPED_WAYS * 3 * 2; i++) {
        const enum mp_grouped_gemm kind = (enum mp_grouped_gemm)(i / 2 % 3);
        const enum mp_grouped_products way = (enum mp_grouped_products)(i / 6);
        const bool accumulate = i % 2;
        if (way != MP_GROUPED_AUTO && !on_cuda(device))
            break;
        if (way == MP_GROUPED_STREAMS && on_double())
            continue; /* as auto there */
        struct mp_device *by = way == MP_GROUPED_AUTO ? device : cuda_device(device->element, way);
        struct grouped given = random_grouped(by, c, kind, accumulate);
        perform(by, grouped_gemm, kind, c->groups, c->rows, c->columns_in, c->columns_out,
                given.in.at, given.each, given.out.at, accumulate);
        check_result(c, kind, &given, result_of(&given, kind), accumulate);
    }
    delay_streams(0);
}

/* What AdamW changes, for weights of all groups that lie behind each other. */
struct states {
    struct array array[4]; /* parameter, both moments, working elements */
    struct mp_weight_state each[MOST_GROUPS];
};

/* Like those of `as`, unless NULL; the second moment is never negative. */
static struct states states_of(struct mp_device *device, int groups, size_t size,
                               const struct states *as) {
    struct states states = {0};
    for (int i = 0; i < 4; i++) {
        enum mp_element type = i < 3 ? MP_FLOAT32 : device->element;
        states.array[i] =
            as ? array_of(device, type, (size_t)groups * size, 0,
                          copy_doubles(as->array[i].value, (size_t)groups * size))
               : random_array(device, type, (size_t)groups * size, 0, 1, i == 2 ? 1 : 0);
    }
    for (int g = 0; g < groups; g++) {
        size_t at = (size_t)g * size;
        states.each[g] = (struct mp_weight_state){
            (float *)states.array[0].at + at, (float *)states.array[1].at + at,
            (float *)states.array[2].at + at,
            (char *)states.array[3].at + at * bytes_of(device->element)};
    }
    return states;
}

/* AdamW with gradients that need not get to memory: what the two operations make, one after the
 * other, also where two groups have one weight. */
DEVICE_EACH(grouped_update_is_both, grouped_cases) {
    static const char *const what[] = {"parameter", "first moment", "second moment", "elements"};
    const struct mp_adamw settings = {3e-3f, 0.9f, 0.95f, 1e-8f, 0.1f, 3};
    size_t size = (size_t)c->columns_in * (size_t)c->columns_out;
    if (!device->operations->grouped_update ||
        !device->operations->can_update_grouped(device, c->groups, c->columns_in, c->columns_out))
        return;
    for (int shared = 0; shared < 2; shared++) {
        struct grouped given = random_grouped(device, c, MP_GROUPED_WEIGHT_GRADIENT, false);
        struct states two = states_of(device, c->groups, size, NULL);
        struct states one = states_of(device, c->groups, size, &two);
        if (shared && c->groups > 1) {
            given.each[1] = given.each[0];
            one.each[1] = one.each[0];
        }
        perform(device, grouped_gemm, MP_GROUPED_WEIGHT_GRADIENT, c->groups, c->rows, c->columns_in,
                c->columns_out, given.in.at, given.each, given.out.at, false);
        for (int g = 0; g < c->groups; g++)
            if (g == 0 || given.each[g] != given.each[g - 1])
                perform(device, adamw, size, &settings, two.each[g].parameter, given.each[g],
                        two.each[g].first, two.each[g].second, two.each[g].working);
        double *expected[4];
        for (int i = 0; i < 4; i++)
            expected[i] = received(&two.array[i]);
        perform(device, grouped_update, c->groups, c->rows, c->columns_in, c->columns_out,
                given.in.at, given.out.at, one.each, &settings);
        for (int i = 0; i < 4; i++) {
            double *tolerance = new_doubles(one.array[i].count);
            for (size_t k = 0; k < one.array[i].count; k++)
                tolerance[k] = 1e-6 * (1 + fabs(expected[i][k]));
            check_array(&one.array[i], expected[i], 1, tolerance, what[i]);
        }
    }
}

/* Rows of all groups, and one weight, as floats. */
struct floats {
    float *in, *out, *weight;
};

static struct floats random_floats_of(const struct grouped_case *c) {
    size_t rows = 0, in = (size_t)c->columns_in, out = (size_t)c->columns_out;
    for (int g = 0; g < c->groups; g++)
        rows += (size_t)c->rows[g];
    return (struct floats){random_floats(rows * in, 1), random_floats(rows * out, 1),
                           random_floats(in * out, 1)};
}

/* Groups of one weight: its gradient is the sum of what each of them gives alone, to the last bit
 * where products are made apart, and so are the rows of each. */
static const struct {
    const char *name;
    bool accumulate;
} sums[] = {{"add up", false}, {"are added", true}};

DEVICE_EACH(groups_of_one_weight, sums) {
    enum { GROUPS = 6, IN = 70, OUT = 150, SIZE = IN * OUT };
    const struct grouped_case of = {"", GROUPS, IN, OUT, {150, 37, 20, 0, 131, 3}};
    static const int weight_of[GROUPS] = {0, 0, 1, 2, 2, 2};
    if (device->element != MP_FLOAT32)
        return;
    struct floats given = random_floats_of(&of);
    float *sum[3], *alone[GROUPS], *expected[3];
    void *shared[GROUPS];
    for (int w = 0; w < 3; w++) {
        sum[w] = random_floats(SIZE, 1);
        expected[w] = c->accumulate ? copy_floats(sum[w], SIZE) : new_floats(SIZE);
        memset(expected[w], 0, c->accumulate ? 0 : SIZE * sizeof(float));
    }
    float *in = given.in, *out = given.out;
    for (int g = 0; g < GROUPS; g++) {
        void *weight[] = {alone[g] = new_floats(SIZE)};
        perform(device, grouped_gemm, MP_GROUPED_WEIGHT_GRADIENT, 1, &of.rows[g], IN, OUT, in,
                weight, out, false);
        for (int i = 0; i < SIZE; i++)
            expected[weight_of[g]][i] += alone[g][i];
        shared[g] = sum[weight_of[g]];
        in += of.rows[g] * IN;
        out += of.rows[g] * OUT;
    }
    perform(device, grouped_gemm, MP_GROUPED_WEIGHT_GRADIENT, GROUPS, of.rows, IN, OUT, given.in,
            shared, given.out, c->accumulate);
    for (int w = 0; w < 3; w++)
        for (int i = 0; i < SIZE; i++) {
            assert_within(sum[w][i], expected[w][i], 2e-5);
            assert_true(on_cuda(device) || sum[w][i] == expected[w][i]);
        }
}

static const struct {
    const char *name;
    enum mp_grouped_gemm kind;
} ways[] = {{"forward", MP_GROUPED_FORWARD}, {"backward", MP_GROUPED_INPUT_GRADIENT}};

DEVICE_EACH(rows_of_a_group_are_its_own, ways) {
    if (device->element != MP_FLOAT32)
        return;
    const struct grouped_case of = {"", 3, 260, 262, {51, 37, 110}};
    struct floats given = random_floats_of(&of);
    bool forward = c->kind == MP_GROUPED_FORWARD;
    void *weight[] = {given.weight, given.weight, given.weight};
    perform(device, grouped_gemm, c->kind, 3, of.rows, 260, 262, given.in, weight, given.out,
            false);
    const float *together = forward ? given.out : given.in;
    float *in = given.in, *out = given.out;
    for (int g = 0; g < 3; g++) {
        size_t count = (size_t)of.rows[g] * (forward ? 262 : 260);
        float *alone = new_floats(count);
        perform(device, grouped_gemm, c->kind, 1, &of.rows[g], 260, 262, forward ? in : alone,
                weight, forward ? alone : out, false);
        for (size_t i = 0; i < count; i++) {
            assert_close(alone[i], together[i], 2e-5);
            assert_true(on_cuda(device) || alone[i] == together[i]);
        }
        together += count;
        in += of.rows[g] * 260;
        out += of.rows[g] * 262;
    }
}

/* What a grouped product reads is written by what was queued before it on the operation's stream,
 * and what comes after it there reads its result: without a wait of the host in between. */
DEVICE_TEST(grouped_products_keep_the_order_of_their_stream) {
    const struct grouped_case c = {"", 6, 16, 16, {5, 5, 5, 5, 5, 5}};
    if (!on_cuda(device) || device->element != MP_FLOAT32)
        return;
    delay_streams(2000);
    for (int way = 0; way < GROUPED_WAYS; way++) {
        device = cuda_device(MP_FLOAT32, (enum mp_grouped_products)way);
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
    }
    delay_streams(0);
}

/* No memory is taken once the device is there, and the host waits for nothing. */
DEVICE_TEST(products_allocate_nothing) {
    const struct grouped_case c = {"", 3, 8, 8, {2, 0, 1}};
    if (!on_cuda(device))
        return;
    device = cuda_device(device->element, MP_GROUPED_LIBRARY);
    struct grouped given = random_grouped(device, &c, MP_GROUPED_FORWARD, false);
    const struct cuda_double_counts before = double_counts();
    device->operations->grouped_gemm(device, NULL, MP_GROUPED_FORWARD, c.groups, c.rows, 8, 8,
                                     given.in.at, given.each, given.out.at, false);
    device->operations->gemm(device, NULL, false, false, 3, 8, 8, 1, given.in.at, 8,
                             given.weight.at, 8, 0, given.out.at, 8);
    const struct cuda_double_counts after = double_counts();
    assert_numbers(after.allocations, before.allocations, after.host_live, before.host_live);
    assert_int_equal(after.synchronisations, before.synchronisations);
}

DEVICE_TEST(more_groups_than_the_limit_are_refused) {
    enum { GROUPS = 1025 };
    static int rows[GROUPS];
    static void *weight[GROUPS];
    if (!on_cuda(device))
        return;
    for (int g = 0; g < GROUPS; g++)
        weight[g] = &rows[g];
    perform(device, grouped_gemm, MP_GROUPED_FORWARD, GROUPS, rows, 8, 8, NULL, weight, NULL,
            false);
    assert_fails(mp_device_check(device, &error), MP_ELIMIT, "GPU 0 (",
                 "1025 weights, the limit is 1024");
    device->error = (struct mp_error){0};
}

DEVICE_PROGRAM(.limits = &test_limits, .has_elements = true);
