/* Moving rows in the cuda back end: copies are the same to the last bit,
 * sums are compared with double precision over the same, rounded inputs. */
#include "tests/reference/device/cuda/routes_support.h"

/* 0 .. count - 1 in random order. */
static int32_t *random_permutation(int count) {
    int32_t *order = malloc(((size_t)count + 1) * sizeof *order);
    assert_non_null(order);
    for (int i = 0; i < count; i++) {
        int at = test_random_int(&random_state, 0, i);
        order[i] = order[at];
        order[at] = i;
    }
    return order;
}

/* A permutation, for the gather with one in four of its entries taken out. */
static void rows_are_copied(struct mp_device *device, const struct test_case *c) {
    size_t rows = (size_t)c->tokens, width = (size_t)c->width, shift = (size_t)c->shift;
    size_t bytes = bytes_of(device->element, 1);
    float *value = random_values(rows * width, 1);
    struct placed in = send_elements(device, device->element, value, rows * width, shift);
    for (int scatter = 0; scatter < 2; scatter++) {
        int32_t *index = random_permutation(c->tokens);
        for (size_t i = 0; !scatter && i < rows; i++)
            index[i] = test_random_int(&random_state, 0, 3) ? index[i] : -1;
        struct placed to = place(device, bytes * rows * width, bytes * shift);
        struct placed at = send(device, index, 4 * rows, 0);
        (scatter ? device->operations->scatter_rows : device->operations->gather_rows)(
            device, NULL, c->tokens, c->width, in.at, (int32_t *)at.at, to.at);
        float *out = take_elements(device, device->element, &to);
        for (size_t i = 0; i < rows; i++) {
            size_t from = scatter ? i : (size_t)index[i], row = scatter ? (size_t)index[i] : i;
            for (size_t column = 0; column < width; column++) {
                float expected = index[i] < 0 ? 0 : value[from * width + column];
                assert_memory_equal(&out[row * width + column], &expected, sizeof expected);
            }
        }
        drop(device, &at);
        FREE(index, out);
    }
    drop(device, &in);
    free(value);
}

/* Rows of the experts' side: a few more than are used. */
static int32_t *route_rows(int routes, int rows) {
    int32_t *position = random_permutation(rows);
    for (int i = 0; i < routes; i++)
        if (test_random_int(&random_state, 0, 4) == 0)
            position[i] = -1;
    return position;
}

/* Everything that combining reads; `weight` NULL where the case has none. */
struct combination {
    size_t tokens, top_k, width, rows;
    float *in, *weight, *residual, *dout;
    int32_t *position;
    struct placed in_at, weight_at, residual_at, dout_at, position_at;
};

static void random_combination(struct mp_device *device, const struct test_case *c,
                               struct combination *a) {
    size_t shift = (size_t)c->shift;
    *a = (struct combination){.tokens = (size_t)c->tokens,
                              .top_k = (size_t)c->top_k,
                              .width = (size_t)c->width,
                              .rows = (size_t)(c->tokens * c->top_k) + 3};
    a->in = random_values(a->rows * a->width, 1);
    a->weight = random_values(a->tokens * a->top_k, 1);
    a->residual = random_values(a->tokens * a->width, 1);
    a->dout = random_values(a->tokens * a->width, 1);
    a->position = route_rows(c->tokens * c->top_k, (int)a->rows);
    a->in_at = send_elements(device, device->element, a->in, a->rows * a->width, shift);
    a->residual_at =
        send_elements(device, device->element, a->residual, a->tokens * a->width, shift);
    a->dout_at = send_elements(device, device->element, a->dout, a->tokens * a->width, shift);
    a->weight_at = send(device, a->weight, 4 * a->tokens * a->top_k, 0);
    a->position_at = send(device, a->position, 4 * a->tokens * a->top_k, 0);
}

static void destroy_combination(struct mp_device *device, struct combination *a) {
    struct placed *memory[] = {&a->weight_at, &a->dout_at, &a->position_at};
    for (size_t i = 0; i < sizeof memory / sizeof *memory; i++)
        drop(device, memory[i]);
    FREE(a->in, a->weight, a->residual, a->dout, a->position);
}

/* kind NO_WEIGHT: neither weights nor residual; IN_PLACE: out is the residual. */
static void rows_are_combined(struct mp_device *device, const struct test_case *c) {
    struct combination a;
    random_combination(device, c, &a);
    bool plain = c->kind == NO_WEIGHT, in_place = c->kind == IN_PLACE;
    size_t bytes = bytes_of(device->element, a.tokens * a.width);
    struct placed to = in_place ? a.residual_at : place(device, bytes, a.residual_at.shift);
    device->operations->combine_forward(
        device, NULL, c->tokens, c->top_k, c->width, a.in_at.at, (int32_t *)a.position_at.at,
        plain ? NULL : (float *)a.weight_at.at, plain ? NULL : a.residual_at.at, to.at);
    float *out = take_elements(device, device->element, &to);
    for (size_t i = 0; i < a.tokens * a.width; i++) {
        size_t token = i / a.width;
        double sum = plain ? 0 : (double)a.residual[i], size = fabs(sum);
        for (size_t route = token * a.top_k; route < (token + 1) * a.top_k; route++) {
            if (a.position[route] < 0)
                continue;
            double row = (double)a.in[(size_t)a.position[route] * a.width + i % a.width];
            sum += plain ? row : a.weight[route] * row;
            size += fabs(row);
        }
        assert_near(out[i], sum, tolerance_of(device->element, sum, size), "sum", (int64_t)i);
    }
    if (!in_place)
        drop(device, &a.residual_at);
    drop(device, &a.in_at);
    destroy_combination(device, &a);
    free(out);
}

static void check_route(const struct combination *a, enum mp_element type, bool plain, size_t route,
                        const float *din, float dweight) {
    const float *dout = a->dout + route / a->top_k * a->width;
    double product = 0, size = 0;
    if (a->position[route] >= 0) {
        size_t first = (size_t)a->position[route] * a->width;
        for (size_t i = 0; i < a->width; i++) {
            double expected = (double)dout[i] * (plain ? 1 : (double)a->weight[route]);
            assert_near(din[first + i], expected, tolerance_of(type, expected, fabs(expected)),
                        "gradient", (int64_t)(first + i));
            product += (double)a->in[first + i] * dout[i];
            size += fabs((double)a->in[first + i] * dout[i]);
        }
    }
    assert_near(dweight, product, 1e-6 * size, "gradient of weight", (int64_t)route);
}

/* kind NO_WEIGHT: no weights; IN_PLACE: din is in.  Rows that no route has stay as they are. */
static void gradients_are_handed_out(struct mp_device *device, const struct test_case *c) {
    struct combination a;
    random_combination(device, c, &a);
    bool plain = c->kind == NO_WEIGHT, in_place = c->kind == IN_PLACE;
    float *before = random_values(a.rows * a.width, 1);
    struct placed to = a.in_at, dw = place(device, 4 * a.tokens * a.top_k, 0);
    if (!in_place)
        to = send_elements(device, device->element, before, a.rows * a.width, (size_t)c->shift);
    device->operations->combine_backward(
        device, NULL, c->tokens, c->top_k, c->width, a.in_at.at, (int32_t *)a.position_at.at,
        plain ? NULL : (float *)a.weight_at.at, a.dout_at.at, false, to.at, (float *)dw.at);
    float *din = take_elements(device, device->element, &to), *dweight = take(device, &dw);
    bool *used = calloc(a.rows, sizeof *used);
    assert_non_null(used);
    for (size_t route = 0; route < a.tokens * a.top_k; route++) {
        check_route(&a, device->element, plain, route, din, dweight[route]);
        if (a.position[route] >= 0)
            used[a.position[route]] = true;
    }
    for (size_t i = 0; i < a.rows * a.width; i++)
        if (!used[i / a.width])
            assert_memory_equal(&din[i], in_place ? &a.in[i] : &before[i], sizeof din[i]);
    if (!in_place)
        drop(device, &a.in_at);
    drop(device, &a.residual_at);
    destroy_combination(device, &a);
    FREE(before, din, dweight, used);
}

/* Every choice in a row that no other token has for this choice: sums of what they hand out. */
static void rows_get_the_sum_of_their_routes(struct mp_device *device, const struct test_case *c) {
    struct combination a;
    random_combination(device, c, &a);
    size_t routes = a.tokens * a.top_k, size = a.rows * a.width;
    double *expected = calloc(size + 1, sizeof *expected), *most = calloc(size + 1, sizeof *most);
    float *zero = calloc(size + 1, sizeof *zero);
    for (size_t j = 0; j < a.top_k; j++) {
        int32_t *row = route_rows(c->tokens, (int)a.rows);
        for (size_t t = 0; t < a.tokens; t++) {
            size_t route = t * a.top_k + j;
            a.position[route] = row[t];
            for (size_t i = 0; row[t] >= 0 && i < a.width; i++) {
                double part = (double)a.weight[route] * a.dout[t * a.width + i];
                expected[(size_t)row[t] * a.width + i] += part;
                most[(size_t)row[t] * a.width + i] += fabs(part);
            }
        }
        free(row);
    }
    device->operations->copy_from_host(device, NULL, a.position_at.at, a.position, 4 * routes);
    struct placed to = send_elements(device, device->element, zero, size, (size_t)c->shift);
    struct placed dw = place(device, 4 * routes, 0);
    device->operations->combine_backward(device, NULL, c->tokens, c->top_k, c->width, a.in_at.at,
                                         (int32_t *)a.position_at.at, (float *)a.weight_at.at,
                                         a.dout_at.at, true, to.at, (float *)dw.at);
    float *din = take_elements(device, device->element, &to), *dweight = take(device, &dw);
    for (size_t i = 0; i < size; i++)
        assert_near(din[i], expected[i],
                    (double)a.top_k * tolerance_of(device->element, most[i], most[i]), "gradient",
                    (int64_t)i);
    for (size_t route = 0; route < routes; route++) {
        double product = 0, magnitude = 0;
        for (size_t i = 0; a.position[route] >= 0 && i < a.width; i++) {
            double part = (double)a.in[(size_t)a.position[route] * a.width + i] *
                          a.dout[route / a.top_k * a.width + i];
            product += part;
            magnitude += fabs(part);
        }
        assert_near(dweight[route], product, 1e-6 * magnitude, "gradient of weight",
                    (int64_t)route);
    }
    drop(device, &a.in_at);
    drop(device, &a.residual_at);
    destroy_combination(device, &a);
    FREE(expected, most, zero, din, dweight);
}

#define ALL(name, rows, top_k, width, shift)                                                        \
    {"copied, " name, rows_are_copied, rows, 1, 1, PLAIN, shift, width, 0},                         \
        {"combined, " name, rows_are_combined, rows, 1, top_k, PLAIN, shift, width, 0},             \
        {"combined in place, " name, rows_are_combined, rows, 1, top_k, IN_PLACE, shift, width, 0}, \
        {"backward, " name, gradients_are_handed_out, rows, 1, top_k, PLAIN, shift, width, 0}, {    \
        "backward in place, " name, gradients_are_handed_out, rows, 1, top_k, IN_PLACE, shift,      \
            width, 0                                                                                \
    }

static const struct test_case cases[] = {
    ALL("width 1", 300, 2, 1, 0),
    ALL("width 7", 65, 3, 7, 0),
    ALL("width 8, top 1", 200, 1, 8, 0),
    ALL("width 12", 120, 2, 12, 0),
    ALL("width 64", 70, 2, 64, 0),
    ALL("width 250, 5 routes", 20, 5, 250, 0),
    ALL("width 512", 33, 2, 512, 0),
    ALL("width 600, 16 routes", 9, 16, 600, 0),
    ALL("width 1000, one row, 4 routes", 1, 4, 1000, 0),
    ALL("width 64, not aligned", 20, 2, 64, 1),
    ALL("width 66, aligned to 4 bytes", 20, 2, 66, 2),
    ALL("no rows", 0, 2, 64, 0),
    {"combined, no weight", rows_are_combined, 50, 1, 2, NO_WEIGHT, 0, 40, 0},
    {"combined, no weight, 7 routes", rows_are_combined, 20, 1, 7, NO_WEIGHT, 0, 33, 0},
    {"backward, no weight", gradients_are_handed_out, 50, 1, 2, NO_WEIGHT, 0, 40, 0},
    {"backward, shared rows", rows_get_the_sum_of_their_routes, 60, 1, 2, PLAIN, 0, 64, 0},
    {"backward, shared rows, 3 routes", rows_get_the_sum_of_their_routes, 40, 1, 3, PLAIN, 1, 33,
     0},
};

int main(void) {
    return run_cases("permutation on cuda", cases, sizeof cases / sizeof *cases);
}
