/* GELU, sums of arrays. */
#include <float.h>

#include "tests/reference/device/device_support.h"

static double gelu(double x) {
    return 0.5 * x * (1 + tanh(sqrt(2 / acos(-1.0)) * (x + 0.044715 * x * x * x)));
}

static double gelu_derivative(double x) {
    double step = 1e-5;
    return (gelu(x + step) - gelu(x - step)) / (2 * step);
}

struct gelu_case {
    size_t count;
    double scale;
    bool in_place, wants_value;
};

static void gelu_matches(struct mp_device *device, const void *argument) {
    const struct gelu_case *c = argument;
    float *x = random_floats(c->count, c->scale), *dy = random_floats(c->count, 1);
    float *y = c->in_place ? copy_floats(x, c->count) : new_floats(c->count);
    float *dx = c->in_place ? copy_floats(dy, c->count) : new_floats(c->count);
    float *value = c->wants_value ? new_floats(c->count) : NULL;
    perform(device, gelu_forward, c->count, c->in_place ? y : x, y);
    perform(device, gelu_backward, c->count, x, c->in_place ? dx : dy, dx, value);
    for (size_t i = 0; i < c->count; i++) {
        assert_within(y[i], gelu(x[i]), 3e-6 * fmaxf(1, fabsf(x[i])));
        assert_within(dx[i], dy[i] * gelu_derivative(x[i]), 1e-6 * fabsf(dy[i])); /* of about 1 */
        if (value)
            assert_close(value[i], y[i], 8 * FLT_EPSILON); /* two divisions of a GPU's */
    }
}

/* In the tails: no overflow, no NaN, and small results right relative to themselves. */
static void gelu_has_its_limits(struct mp_device *device, const void *argument) {
    (void)argument;
    const float given[] = {-3.5f, -5, -1e4f, 1e4f, -1e30f, 1e30f, 0, NAN};
    const float ones[] = {1, 1, 1, 1, 1, 1, 1, 1};
    enum { COUNT = sizeof given / sizeof *given };
    float *x = copy_floats(given, COUNT), *one = copy_floats(ones, COUNT);
    float *y = new_floats(COUNT), *dx = new_floats(COUNT);
    perform(device, gelu_forward, COUNT, x, y);
    perform(device, gelu_backward, COUNT, x, one, dx, NULL);
    assert_close(y[0] / gelu(-3.5), 1, 3e-6);
    assert_close(y[1] / gelu(-5), 1, 3e-6);
    const double limit[][2] = {{0, 0}, {1e4, 1}, {0, 0}, {1e30, 1}, {0, 0.5}};
    for (int i = 2; i < COUNT - 1; i++) {
        assert_within(y[i], limit[i - 2][0], 1e-6 * fmax(1, limit[i - 2][0]));
        assert_within(dx[i], limit[i - 2][1], 1e-6);
    }
    assert_true(isnan(y[COUNT - 1]) && isnan(dx[COUNT - 1]));
}

static void add_matches(struct mp_device *device, const void *argument) {
    size_t count = *(const size_t *)argument;
    float *a = random_floats(count, 1), *b = random_floats(count, 1), *out = new_floats(count);
    float *sum = copy_floats(b, count);
    perform(device, add, count, a, b, out);
    perform(device, accumulate, count, a, sum);
    perform(device, add, count, a, b, b); /* the output may be an input */
    for (size_t i = 0; i < count; i++) {
        assert_close(sum[i], out[i], 0);
        assert_close(b[i], out[i], 0);
        assert_close(out[i], a[i] + (sum[i] - a[i]), 1e-6);
    }
}

/* Elements of these devices are floats: nothing is rounded. */
static void elements_are_floats(struct mp_device *device, const void *argument) {
    size_t count = *(const size_t *)argument;
    float *from = random_floats(count, 1), *to = new_floats(count);
    assert_int_equal(device->element, MP_FLOAT32);
    perform(device, to_elements, count, from, to);
    assert_memory_equal(to, from, count * sizeof *to);
    perform(device, to_elements, count, to, to);
    assert_memory_equal(to, from, count * sizeof *to);
}

#define GELU(name, ...)                                                                            \
    {                                                                                              \
        "gelu, " name, gelu_matches, &(const struct gelu_case) {                                   \
            __VA_ARGS__                                                                            \
        }                                                                                          \
    }

static const struct device_test tests[] = {
    GELU("one element", 1, 3, false, false),
    GELU("odd length", 1003, 3, false, true),
    GELU("in place", 77, 6, true, false),
    GELU("in place with the value", 130, 6, true, true),
    GELU("long enough for threads", 50001, 4, false, true),
    GELU("nothing", 0, 1, false, false),
    {"gelu, limits", gelu_has_its_limits, NULL},
    {"add, odd length", add_matches, &(const size_t){1013}},
    {"add, long enough for threads", add_matches, &(const size_t){70007}},
    {"to elements", elements_are_floats, &(const size_t){1025}},
};

int main(void) {
    return run_device_tests("elementwise", tests, sizeof tests / sizeof *tests);
}
