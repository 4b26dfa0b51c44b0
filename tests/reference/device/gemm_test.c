/* gemm and grouped_gemm against sums in double precision. */
#include "tests/reference/device/device_support.h"

struct gemm_case {
    bool transpose_a, transpose_b;
    int m, n, k;
    float alpha, beta;
    int padding; /* of every leading dimension */
};

static double element(const float *matrix, int leading, bool transpose, int row, int column) {
    return transpose ? matrix[column * leading + row] : matrix[row * leading + column];
}

static void gemm_matches(struct mp_device *device, const void *argument) {
    const struct gemm_case *c = argument;
    int lda = (c->transpose_a ? c->m : c->k) + c->padding;
    int ldb = (c->transpose_b ? c->k : c->n) + c->padding;
    int ldc = c->n + c->padding;
    float *a = random_floats((size_t)(lda * (c->transpose_a ? c->k : 2 * c->m)), 1);
    float *b = random_floats((size_t)(ldb * (c->transpose_b ? c->n : c->k)), 1);
    size_t size = (size_t)(ldc * 2 * c->m); /* the second half is nobody's */
    float *out = c->beta == 0 ? new_floats(size) : random_floats(size, 1);
    float *before = copy_floats(out, size);

    float *same = copy_floats(out, size); /* where elements are floats, so is c */
    perform(device, gemm, c->transpose_a, c->transpose_b, c->m, c->n, c->k, c->alpha, a, lda, b,
            ldb, c->beta, out, ldc);
    perform(device, gemm_float, c->transpose_a, c->transpose_b, c->m, c->n, c->k, c->alpha, a, lda,
            b, ldb, c->beta, same, ldc);
    assert_memory_equal(out + size / 2, before + size / 2, size / 2 * sizeof *out);
    for (int row = 0; row < c->m; row++) {
        for (int column = 0; column < ldc; column++) {
            int at = row * ldc + column;
            if (column >= c->n) { /* what lies between the rows is not touched */
                assert_memory_equal(&out[at], &before[at], sizeof *out);
                continue;
            }
            double sum = 0, terms = 0;
            for (int i = 0; i < c->k; i++) {
                double term = c->alpha * element(a, lda, c->transpose_a, row, i) *
                              element(b, ldb, c->transpose_b, i, column);
                sum += term;
                terms += fabs(term);
            }
            if (c->beta != 0) {
                sum += (double)c->beta * before[at];
                terms += fabs((double)c->beta * before[at]);
            }
            assert_within(out[at], sum, 1e-6 * terms);
            assert_within(same[at], sum, 1e-6 * terms);
        }
    }
}

enum { MOST_GROUPS = 6 };

struct grouped_case {
    int groups, columns_in, columns_out;
    int rows[MOST_GROUPS];
    bool accumulate;
};

struct grouped {
    size_t in_size, out_size, weight_size;
    float *in, *out;
    void *weight[MOST_GROUPS]; /* floats, too */
};

static struct grouped random_groups(const struct grouped_case *c) {
    size_t sum = 0;
    for (int g = 0; g < c->groups; g++)
        sum += (size_t)c->rows[g];
    struct grouped grouped = {.in_size = sum * (size_t)c->columns_in,
                              .out_size = sum * (size_t)c->columns_out,
                              .weight_size = (size_t)c->columns_in * (size_t)c->columns_out};
    grouped.in = random_floats(grouped.in_size, 1);
    grouped.out = random_floats(grouped.out_size, 1);
    for (int g = 0; g < c->groups; g++)
        grouped.weight[g] = random_floats(grouped.weight_size, 1);
    return grouped;
}

/* Adds what the operation should write to `expected`, all of the group's rows; what is at stake is
 * given by `kind`. */
static void add_group(const struct grouped_case *c, enum mp_grouped_gemm kind, int rows,
                      const float *in, const float *weight, const float *out, double *expected) {
    for (int row = 0; row < rows; row++) {
        for (int i = 0; i < c->columns_in; i++) {
            for (int o = 0; o < c->columns_out; o++) {
                double x = in[row * c->columns_in + i], y = out[row * c->columns_out + o];
                double w = weight[i * c->columns_out + o];
                if (kind == MP_GROUPED_FORWARD)
                    expected[row * c->columns_out + o] += x * w;
                else if (kind == MP_GROUPED_INPUT_GRADIENT)
                    expected[row * c->columns_in + i] += y * w;
                else
                    expected[i * c->columns_out + o] += x * y;
            }
        }
    }
}

/* Runs one kind with its output spoilt (or, when it accumulates, random) and compares. */
static void check_kind(struct mp_device *device, const struct grouped_case *c,
                       enum mp_grouped_gemm kind) {
    struct grouped given = random_groups(c), used = given;
    float *in = used.in = copy_floats(given.in, given.in_size);
    float *out = used.out = copy_floats(given.out, given.out_size);
    bool keep = c->accumulate;
    for (size_t i = 0; i < used.in_size && kind == MP_GROUPED_INPUT_GRADIENT && !keep; i++)
        used.in[i] = NAN;
    for (size_t i = 0; i < used.out_size && kind == MP_GROUPED_FORWARD && !keep; i++)
        used.out[i] = NAN;
    for (int g = 0; g < c->groups; g++) {
        float *weight = used.weight[g] = copy_floats(given.weight[g], given.weight_size);
        for (size_t i = 0; i < used.weight_size && kind == MP_GROUPED_WEIGHT_GRADIENT && !keep; i++)
            weight[i] = NAN;
    }
    perform(device, grouped_gemm, kind, c->groups, c->rows, c->columns_in, c->columns_out, used.in,
            used.weight, used.out, c->accumulate);

    const float *given_in = given.in, *given_out = given.out;
    for (int g = 0; g < c->groups; g++) {
        size_t in_size = (size_t)(c->rows[g] * c->columns_in);
        size_t out_size = (size_t)(c->rows[g] * c->columns_out);
        const float *before[] = {given_out, given_in, given.weight[g]};
        const float *after[] = {out, in, used.weight[g]};
        size_t size[] = {out_size, in_size, given.weight_size};
        double *expected = keep ? to_doubles(before[kind], size[kind]) : new_doubles(size[kind]);
        add_group(c, kind, c->rows[g], given_in, given.weight[g], given_out, expected);
        assert_floats_close(after[kind], expected, size[kind], 1e-5);
        given_in += in_size;
        given_out += out_size;
        in += in_size;
        out += out_size;
    }
}

static void grouped_gemm_matches(struct mp_device *device, const void *argument) {
    static const enum mp_grouped_gemm kinds[] = {MP_GROUPED_FORWARD, MP_GROUPED_INPUT_GRADIENT,
                                                 MP_GROUPED_WEIGHT_GRADIENT};
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
        check_kind(device, argument, kinds[i]);
        if (on_cuda(device))
            check_kind(cuda_device(true), argument, kinds[i]);
    }
}

#define GEMM(name, ...)                                                                            \
    {                                                                                              \
        "gemm, " name, gemm_matches, &(const struct gemm_case) {                                   \
            __VA_ARGS__                                                                            \
        }                                                                                          \
    }
#define GROUPED(name, ...)                                                                         \
    {                                                                                              \
        "grouped gemm, " name, grouped_gemm_matches, &(const struct grouped_case) {                \
            __VA_ARGS__                                                                            \
        }                                                                                          \
    }

/* Groups of one weight: its gradient is the sum of what each of them gives alone, to the last bit
 * where products are made apart, and so are the rows of each. */
static void groups_of_one_weight_add_up(struct mp_device *device, const void *argument) {
    enum { GROUPS = 6, IN = 70, OUT = 150, SIZE = IN * OUT };
    const struct grouped_case c = {GROUPS, IN, OUT, {150, 37, 20, 0, 131, 3}, false};
    static const int weight_of[GROUPS] = {0, 0, 1, 2, 2, 2};
    const bool *accumulate = argument;
    struct grouped given = random_groups(&c);
    float *sum[3], *alone[GROUPS], *expected[3];
    void *shared[GROUPS];
    for (int w = 0; w < 3; w++) {
        sum[w] = random_floats(SIZE, 1);
        expected[w] = *accumulate ? copy_floats(sum[w], SIZE) : new_floats(SIZE);
        memset(expected[w], 0, *accumulate ? 0 : SIZE * sizeof(float));
    }
    float *in = given.in, *out = given.out;
    for (int g = 0; g < GROUPS; g++) {
        void *weight[] = {alone[g] = new_floats(SIZE)};
        perform(device, grouped_gemm, MP_GROUPED_WEIGHT_GRADIENT, 1, &c.rows[g], IN, OUT, in,
                weight, out, false);
        for (int i = 0; i < SIZE; i++)
            expected[weight_of[g]][i] += alone[g][i];
        shared[g] = sum[weight_of[g]];
        in += c.rows[g] * IN;
        out += c.rows[g] * OUT;
    }
    perform(device, grouped_gemm, MP_GROUPED_WEIGHT_GRADIENT, GROUPS, c.rows, IN, OUT, given.in,
            shared, given.out, *accumulate);
    for (int w = 0; w < 3; w++)
        for (int i = 0; i < SIZE; i++) {
            assert_within(sum[w][i], expected[w][i], 2e-5);
            assert_true(on_cuda(device) || sum[w][i] == expected[w][i]);
        }
}

static void rows_of_a_group_are_its_own(struct mp_device *device, const void *argument) {
    const enum mp_grouped_gemm *kind = argument;
    const struct grouped_case c = {3, 260, 262, {51, 37, 110}, false};
    struct grouped given = random_groups(&c);
    bool forward = *kind == MP_GROUPED_FORWARD;
    void *weight[] = {given.weight[0], given.weight[0], given.weight[0]};
    perform(device, grouped_gemm, *kind, 3, c.rows, 260, 262, given.in, weight, given.out, false);
    const float *together = forward ? given.out : given.in;
    float *in = given.in, *out = given.out;
    for (int g = 0; g < 3; g++) {
        size_t count = (size_t)c.rows[g] * (forward ? 262 : 260);
        float *alone = new_floats(count);
        perform(device, grouped_gemm, *kind, 1, &c.rows[g], 260, 262, forward ? in : alone, weight,
                forward ? alone : out, false);
        for (size_t i = 0; i < count; i++) {
            assert_close(alone[i], together[i], 2e-5);
            assert_true(on_cuda(device) || alone[i] == together[i]);
        }
        together += count;
        in += c.rows[g] * 260;
        out += c.rows[g] * 262;
    }
}

static const struct device_test tests[] = {
    {"groups of one weight add up", groups_of_one_weight_add_up, &(const bool){false}},
    {"groups of one weight are added", groups_of_one_weight_add_up, &(const bool){true}},
    {"rows of a group are its own", rows_of_a_group_are_its_own,
     &(const enum mp_grouped_gemm){MP_GROUPED_FORWARD}},
    {"rows of a group are its own, backwards", rows_of_a_group_are_its_own,
     &(const enum mp_grouped_gemm){MP_GROUPED_INPUT_GRADIENT}},
    GEMM("so many rows that others have a turn between", false, true, 2600, 6, 5, 1, 0.5f, 1),
    GEMM("plain", false, false, 17, 33, 29, 1, 0, 0),
    GEMM("first transposed", true, false, 19, 31, 45, 1, 1, 3),
    GEMM("second transposed", false, true, 21, 37, 50, 0.25f, 0, 5),
    GEMM("both transposed", true, true, 23, 41, 9, -2, 0.5f, 1),
    GEMM("one row", false, false, 1, 65, 70, 1, 0, 2),
    GEMM("one row, second transposed", false, true, 1, 65, 70, 1, 0, 2),
    GEMM("no rows", false, false, 0, 5, 7, 1, 0, 0),
    GEMM("an empty sum clears", false, false, 3, 5, 0, 1, 0, 2),
    GEMM("an empty sum scales", false, false, 3, 5, 0, 1, 0.5f, 2),
    GROUPED("even", 3, 16, 32, {4, 4, 4}, false),
    GROUPED("odd shapes, some empty", 5, 23, 45, {3, 0, 17, 1, 0}, false),
    GROUPED("odd shapes, some empty, accumulating", 5, 23, 45, {0, 5, 0, 33, 2}, true),
    GROUPED("one group has all", 4, 30, 70, {0, 0, 90, 0}, false),
    GROUPED("turned and not", 6, 72, 264, {15, 16, 23, 48, 128, 129}, false),
    GROUPED("turned, odd widths", 3, 53, 301, {17, 100, 31}, false),
    GROUPED("not turned when accumulating", 2, 53, 301, {17, 31}, true),
    GROUPED("wider than the limit", 1, 30, 700, {20}, false),
    GROUPED("no rows at all", 3, 8, 8, {0, 0, 0}, false),
    GROUPED("no groups", 0, 8, 8, {0}, false),
};

int main(void) {
    return run_device_tests("gemm", tests, sizeof tests / sizeof *tests);
}
