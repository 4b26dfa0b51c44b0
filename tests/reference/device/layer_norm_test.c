/* LayerNorm against double precision, its backward against central differences. */
#include "tests/reference/device/device_support.h"

struct norm_case {
    int rows, width;
    double scale, offset; /* of x */
};

struct norm {
    int rows, width;
    double *x, *gain, *bias, *dy;
    double *y;
};

static void naive_row(const double *x, const double *gain, const double *bias, int width, double *y,
                      double *mean, double *rstd) {
    double sum = 0, squares = 0;
    for (int i = 0; i < width; i++)
        sum += x[i];
    *mean = sum / width;
    for (int i = 0; i < width; i++)
        squares += (x[i] - *mean) * (x[i] - *mean);
    *rstd = 1 / sqrt(squares / width + 1e-5);
    for (int i = 0; i < width; i++)
        y[i] = (x[i] - *mean) * *rstd * gain[i] + bias[i];
}

static double loss(const void *context) {
    const struct norm *n = context;
    double mean, rstd, sum = 0;
    for (int row = 0; row < n->rows; row++) {
        size_t at = (size_t)(row * n->width);
        naive_row(n->x + at, n->gain, n->bias, n->width, n->y, &mean, &rstd);
        sum += dot_doubles(n->y, n->dy + at, (size_t)n->width);
    }
    return sum;
}

/* Gradients are added to what is there: subtract it to see what was added. */
static void subtract(float *values, const float *before, size_t count) {
    for (size_t i = 0; i < count; i++)
        values[i] -= before[i];
}

static void layer_norm_matches(struct mp_device *device, const void *argument) {
    const struct norm_case *c = argument;
    size_t width = (size_t)c->width, rows = (size_t)c->rows, size = rows * width;
    float *x = random_floats(size, c->scale), *dy = random_floats(size, 1);
    for (size_t i = 0; i < size; i++)
        x[i] += (float)c->offset;
    float *gain = random_floats(width, 1), *bias = random_floats(width, 1);
    float *y = new_floats(size), *mean = new_floats(rows), *rstd = new_floats(rows);
    perform(device, layer_norm_forward, c->rows, c->width, x, gain, bias, y, mean, rstd);

    struct norm n = {c->rows,
                     c->width,
                     to_doubles(x, size),
                     to_doubles(gain, width),
                     to_doubles(bias, width),
                     to_doubles(dy, size),
                     new_doubles(size)};
    double *means = new_doubles(rows), *rstds = new_doubles(rows);
    for (size_t row = 0; row < rows; row++)
        naive_row(n.x + row * width, n.gain, n.bias, c->width, n.y + row * width, &means[row],
                  &rstds[row]);
    /* (x - mean) is as uncertain as x, and deviations much smaller than x magnify that. */
    double magnified = 1, largest = 0;
    for (size_t i = 0; i < size; i++) {
        magnified = fmax(magnified, fabs(n.x[i]) * rstds[i / width]);
        largest = fmax(largest, fabs(n.x[i]));
    }
    double tolerance = 1e-6 * magnified;
    assert_floats_close(y, n.y, size, tolerance);
    for (size_t row = 0; row < rows; row++) /* a mean is a sum that may cancel */
        assert_within(mean[row], means[row], 1e-6 * largest);
    assert_floats_close(rstd, rstds, rows, tolerance);

    float *dx = random_floats(size, 0.1), *dx_before = copy_floats(dx, size);
    float *dgain = random_floats(width, 0.1), *dbias = random_floats(width, 0.1);
    perform(device, layer_norm_backward, c->rows, c->width, x, gain, mean, rstd, dy, dx, dgain,
            dbias);
    subtract(dx, dx_before, size);
    assert_gradient(loss, &n, n.x, size, dx, 100, 5 * tolerance);
    assert_gradient(loss, &n, n.gain, width, dgain, 50, 5 * tolerance);
    assert_gradient(loss, &n, n.bias, width, dbias, 50, 5 * tolerance);
}

#define NORM(name, ...)                                                                            \
    {                                                                                              \
        name, layer_norm_matches, &(const struct norm_case) {                                      \
            __VA_ARGS__                                                                            \
        }                                                                                          \
    }

static const struct device_test tests[] = {
    NORM("width 64", 9, 64, 1, 0),         NORM("width 3", 5, 3, 1, 0),
    NORM("width 17", 40, 17, 2, 0.5),      NORM("one row of 33", 1, 33, 1, 0),
    NORM("no rows", 0, 33, 1, 0),          NORM("width 600, many rows", 220, 600, 1, 0),
    NORM("far from zero", 7, 50, 1, 1000),
};

int main(void) {
    return run_device_tests("layer norm", tests, sizeof tests / sizeof *tests);
}
