/* Moving rows, and the gate's gradient, with either type of elements: copies
 * are the same to the last bit, sums are compared with double precision over the same, rounded
 * inputs.  All else about routes is the same for both types. */
#include "tests/reference/device/dense_support.h"
#include "tests/reference/device/rules.h"

static const struct mp_device_limits limits = {
    .attention = {1, 4, 1, 8}, .experts = 1024, .width = 600, .tokens = 12000};

/* 0 .. count - 1 in any order, every so many of them taken out; 0: none is. */
static int32_t *random_rows(int count, int missing) {
    int32_t *order = random_permutation(count);
    for (int i = 0; i < count; i++)
        if (missing && test_random_int(&random_state, 1, missing) == 1)
            order[i] = -1;
    return order;
}

static void rows_are_copied(struct mp_device *device, const struct dense_case *c) {
    size_t rows = (size_t)c->rows, width = (size_t)c->width;
    struct array in = random_array(device, device->element, rows * width, c->shift, 1, 0);
    for (int scatter = 0; scatter < 2; scatter++) {
        int32_t *index = random_rows(c->rows, scatter ? 0 : 4);
        int32_t *on_device = ints_on_device(device, index, rows);
        struct array out = spoilt_array(device, device->element, rows * width, c->shift);
        double *expected = new_doubles(rows * width);
        for (size_t i = 0; i < rows * width; i++) {
            size_t there = (size_t)index[i / width] * width + i % width;
            if (index[i / width] >= 0)
                expected[scatter ? there : i] = in.value[scatter ? i : there];
        }
        (scatter ? device->operations->scatter_rows : device->operations->gather_rows)(
            device, NULL, c->rows, c->width, in.at, on_device, out.at);
        check_exactly(&out, expected, scatter ? "scattered" : "gathered");
    }
}

/* Everything that combining reads, with c->other choices of each token. */
struct combination {
    size_t tokens, top_k, width, rows;
    struct array in, weight, residual, dout;
    int32_t *position, *position_at;
};

static struct combination random_combination(struct mp_device *device, const struct dense_case *c,
                                             bool shared) {
    struct combination a = {.tokens = (size_t)c->rows,
                            .top_k = (size_t)c->other,
                            .width = (size_t)c->width,
                            .rows = (size_t)(c->rows * c->other) + 3}; /* more than are used */
    enum mp_element type = device->element;
    a.in = random_array(device, type, a.rows * a.width, c->shift, 1, 0);
    a.weight = random_array(device, MP_FLOAT32, a.tokens * a.top_k, 0, 1, 0);
    a.residual = random_array(device, type, a.tokens * a.width, c->shift, 1, 0);
    a.dout = random_array(device, type, a.tokens * a.width, c->shift, 1, 0);
    a.position = random_rows((int)a.rows, 5);
    for (size_t j = 0; shared && j < a.top_k; j++) { /* of each choice one token's at most */
        int32_t *row = random_rows((int)a.rows, 5);
        for (size_t t = 0; t < a.tokens; t++)
            a.position[t * a.top_k + j] = row[t];
    }
    a.position_at = ints_on_device(device, a.position, a.tokens * a.top_k);
    return a;
}

/* Neither weights nor residual if `plain`; `in_place`: out is the residual. */
static void combine(struct mp_device *device, const struct dense_case *c, bool plain,
                    bool in_place) {
    struct combination a = random_combination(device, c, false);
    size_t size = a.tokens * a.width;
    struct array out = spoilt_array(device, device->element, size, c->shift);
    double *expected = new_doubles(size), *tolerance = new_doubles(size);
    for (size_t i = 0; i < size; i++) {
        size_t token = i / a.width;
        expected[i] = plain ? 0 : a.residual.value[i];
        tolerance[i] = 1e-6 * fabs(expected[i]);
        for (size_t r = token * a.top_k; r < (token + 1) * a.top_k; r++) {
            if (a.position[r] < 0)
                continue;
            double row = a.in.value[(size_t)a.position[r] * a.width + i % a.width];
            expected[i] += plain ? row : a.weight.value[r] * row;
            tolerance[i] += 1e-6 * fabs(row);
        }
    }
    const struct array *to = in_place ? &a.residual : &out;
    device->operations->combine_forward(device, NULL, c->rows, c->other, c->width, a.in.at,
                                        a.position_at, plain ? NULL : a.weight.at,
                                        plain ? NULL : a.residual.at, to->at);
    check_array(to, expected, 1, tolerance, "sum");
}

static void rows_are_combined(struct mp_device *device, const struct dense_case *c) {
    combine(device, c, false, false);
    combine(device, c, false, true);
    combine(device, c, true, false);
}

/* din and dweight, and how far off they may be: of every row that a route has, and of rows that
 * several have the sum; others stay as they are. */
static void exact_gradient(const struct combination *a, bool plain, bool shared, double *din,
                           double *dweight, double *of_din, double *of_dweight) {
    for (size_t r = 0; r < a->tokens * a->top_k; r++) {
        for (size_t i = 0; a->position[r] >= 0 && i < a->width; i++) {
            size_t at = (size_t)a->position[r] * a->width + i;
            double dout = a->dout.value[r / a->top_k * a->width + i];
            double part = dout * (plain ? 1 : a->weight.value[r]), product = a->in.value[at] * dout;
            din[at] = shared ? din[at] + part : part;
            of_din[at] += shared ? fabs(part) : 0;
            dweight[r] += product;
            of_dweight[r] += 1e-6 * fabs(product);
        }
    }
}

static void hand_out(struct mp_device *device, const struct dense_case *c, bool plain,
                     bool in_place, bool shared) {
    struct combination a = random_combination(device, c, shared);
    size_t size = a.rows * a.width, routes = a.tokens * a.top_k;
    struct array other = random_array(device, device->element, size, c->shift, shared ? 0 : 1, 0);
    struct array dweight = spoilt_array(device, MP_FLOAT32, routes, 0);
    const struct array *to = in_place ? &a.in : &other;
    double *din = copy_doubles(to->value, size), *of_din = new_doubles(size);
    double *expected = new_doubles(routes), *of_dweight = new_doubles(routes);
    exact_gradient(&a, plain, shared, din, expected, of_din, of_dweight);
    for (size_t i = 0; i < size; i++) /* rounded whenever one more is added */
        of_din[i] *= (double)a.top_k * (device->element == MP_FLOAT32 ? 0x1p-22 : 0x1p-8);
    device->operations->combine_backward(device, NULL, c->rows, c->other, c->width, a.in.at,
                                         a.position_at, plain ? NULL : a.weight.at, a.dout.at,
                                         shared, to->at, dweight.at);
    check_array(to, din, 1, of_din, "gradient");
    check_array(&dweight, expected, 1, of_dweight, "gradient of weight");
}

static void gradients_are_handed_out(struct mp_device *device, const struct dense_case *c) {
    hand_out(device, c, false, false, false);
    hand_out(device, c, false, true, false);
    hand_out(device, c, true, false, false);
    hand_out(device, c, false, false, true);
}

static void all_moves(struct mp_device *device, const struct dense_case *c) {
    rows_are_copied(device, c);
    rows_are_combined(device, c);
    gradients_are_handed_out(device, c);
}

/* The gate's gradient, the only thing of gates that is elements: p (d - sum of p d), where d is the
 * weight's gradient at the chosen one of c->other experts, and the auxiliary one. */
static void gate_passes_gradients(struct mp_device *device, const struct dense_case *c) {
    size_t tokens = (size_t)c->rows, experts = (size_t)c->other, size = tokens * experts;
    struct array probability =
        random_array(device, MP_FLOAT32, size, 0, 0.5 / c->other, 0.5 / c->other);
    struct array dweight = random_array(device, MP_FLOAT32, tokens, 0, 1, 0);
    struct array auxiliary = random_array(device, MP_FLOAT32, experts, 0, 0.5, 0);
    struct array out = spoilt_array(device, device->element, size, c->shift);
    double *expected = new_doubles(size), *tolerance = new_doubles(size);
    int32_t *choice = random_rows(c->rows, 0);
    for (size_t t = 0; t < tokens; t++) {
        double *d = expected + t * experts, sum = 0;
        const double *p = probability.value + t * experts;
        choice[t] %= c->other;
        memcpy(d, auxiliary.value, experts * sizeof *d);
        d[choice[t]] += dweight.value[t];
        for (size_t e = 0; e < experts; e++)
            sum += p[e] * d[e];
        for (size_t e = 0; e < experts; e++) {
            d[e] = p[e] * (d[e] - sum);
            tolerance[t * experts + e] = 4e-6 * p[e];
        }
    }
    int32_t *on_device = ints_on_device(device, choice, tokens);
    device->operations->gate_backward(device, NULL, c->rows, c->other, 1, SOFTMAX(false),
                                      probability.at, NULL, on_device, NULL, dweight.at, dweight.at,
                                      auxiliary.at, out.at);
    check_array(&out, expected, 1, tolerance, "gradient of logits");
}

/* Rows, width, other (choices, or experts), shift, scale, offset. */
static const struct dense_case cases[] = {
    {"width 1", all_moves, 300, 1, 2, 0, 0, 0},
    {"width 7", all_moves, 65, 7, 3, 0, 0, 0},
    {"width 8, top 1", all_moves, 200, 8, 1, 0, 0, 0},
    {"width 12", all_moves, 120, 12, 2, 0, 0, 0},
    {"width 64", all_moves, 70, 64, 2, 0, 0, 0},
    {"width 250, 5 routes", all_moves, 20, 250, 5, 0, 0, 0},
    {"width 512", all_moves, 33, 512, 2, 0, 0, 0},
    {"width 600, 16 routes", all_moves, 9, 600, 16, 0, 0, 0},
    {"width 1000, one row, 4 routes", all_moves, 1, 1000, 4, 0, 0, 0},
    {"width 64, not aligned", all_moves, 20, 64, 2, 1, 0, 0},
    {"width 66, aligned to 4 bytes", all_moves, 20, 66, 2, 2, 0, 0},
    {"no rows", all_moves, 0, 64, 2, 0, 0, 0},
    {"gate, 8 experts", gate_passes_gradients, 300, 0, 8, 0, 0, 0},
    {"gate, one expert", gate_passes_gradients, 40, 0, 1, 0, 0, 0},
    {"gate, 64 experts, not aligned", gate_passes_gradients, 50, 0, 64, 1, 0, 0},
    {"gate, 101 experts", gate_passes_gradients, 33, 0, 101, 0, 0, 0},
    {"gate, 1024 experts", gate_passes_gradients, 9, 0, 1024, 0, 0, 0},
};

DENSE_PROGRAM(cases, limits);
