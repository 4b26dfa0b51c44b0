/* Operations that work on one row or element after another (layer norm, GELU,
 * sums, AdamW, cross-entropy, embedding), with fp32 and, on a GPU, with bf16 elements, against
 * double precision on the same rounded inputs.
 *
 * A result of elements may be off by their rounding, and any result by a few roundings of fp32 of
 * the magnitude of its terms.  Arrays lie between values that must stay as they are, and start
 * `shift` elements behind an aligned address. */
#include "tests/reference/device/dense_support.h"
#include "tests/reference/model/gelu.h"

static const struct mp_device_limits limits = {
    .attention = {1, 8, 1, 8}, .experts = 4, .width = 33000, .tokens = 5000};

/* ---- layer norm ---- */

struct norm {
    struct mp_device *device;
    size_t rows, width;
    struct array x, gain, bias;
    double *mean, *rstd; /* exact */
    double *magnified;   /* [rows] by how much a rounding error of x grows in (x - mean) rstd */
};

static struct norm new_norm(struct mp_device *device, const struct dense_case *c, int width) {
    struct norm n = {.device = device, .rows = (size_t)c->rows, .width = (size_t)width};
    n.x = random_array(device, device->element, n.rows * n.width, c->shift, scale_of(c), c->offset);
    n.gain = random_array(device, MP_FLOAT32, n.width, 0, 1, 0);
    n.bias = random_array(device, MP_FLOAT32, n.width, 0, 1, 0);
    n.mean = new_doubles(n.rows);
    n.rstd = new_doubles(n.rows);
    n.magnified = new_doubles(n.rows);
    for (size_t row = 0; row < n.rows; row++) {
        const double *x = n.x.value + row * n.width;
        double sum = 0, squares = 0, largest = 0;
        for (size_t i = 0; i < n.width; i++) {
            sum += x[i];
            largest = fmax(largest, fabs(x[i]));
        }
        n.mean[row] = sum / (double)n.width;
        for (size_t i = 0; i < n.width; i++)
            squares += (x[i] - n.mean[row]) * (x[i] - n.mean[row]);
        n.rstd[row] = 1 / sqrt(squares / (double)n.width + 1e-5);
        n.magnified[row] = fmax(1, largest * n.rstd[row]);
    }
    return n;
}

static double normal_of(const struct norm *n, size_t i, const double *mean, const double *rstd) {
    return (n->x.value[i] - mean[i / n->width]) * rstd[i / n->width];
}

/* 1e-6 of the largest of each row's terms, which are of the size `terms`. */
static double *row_tolerance(const struct norm *n, double terms) {
    double *tolerance = new_doubles(n->rows + 1);
    for (size_t row = 0; row < n->rows; row++)
        tolerance[row] = 2e-6 * terms * n->magnified[row];
    return tolerance;
}

static void check_forward(struct mp_device *device, const struct dense_case *c, int width) {
    struct norm n = new_norm(device, c, width);
    struct array y = spoilt_array(device, device->element, n.x.count, c->shift);
    struct array mean = spoilt_array(device, MP_FLOAT32, n.rows, 0);
    struct array rstd = spoilt_array(device, MP_FLOAT32, n.rows, 0);
    device->operations->layer_norm_forward(device, NULL, c->rows, width, n.x.at, n.gain.at,
                                           n.bias.at, y.at, mean.at, rstd.at);
    double *expected = new_doubles(n.x.count), *relative = new_doubles(n.rows + 1);
    double *tolerance = row_tolerance(&n, 3), *of_mean = new_doubles(n.rows + 1);
    for (size_t i = 0; i < n.x.count; i++)
        expected[i] = normal_of(&n, i, n.mean, n.rstd) * n.gain.value[i % n.width] +
                      n.bias.value[i % n.width];
    for (size_t row = 0; row < n.rows; row++) {
        of_mean[row] = 3e-6 * (scale_of(c) + fabs(c->offset));
        relative[row] = tolerance[row] * n.rstd[row];
    }
    check_array(&y, expected, n.width, tolerance, "y");
    check_array(&mean, n.mean, 1, of_mean, "mean");
    check_array(&rstd, n.rstd, 1, relative, "rstd");
}

static int random_width(void) {
    int most = (int[]){40, 600, 3000, 9000}[test_random_int(&random_state, 0, 3)];
    return test_random_int(&random_state, 1, most);
}

static void layer_norm_forward(struct mp_device *device, const struct dense_case *c) {
    if (c->width)
        check_forward(device, c, c->width);
    for (int i = 0; i < 5 && !c->width; i++)
        check_forward(device, c, random_width());
}

/* dx [rows][width] without what was there, dgain and dbias [width]; the sums of the magnitudes of
 * the latter two's terms. */
struct norm_gradient {
    double *dx, *dgain, *dbias, *dgain_size, *dbias_size;
};

static struct norm_gradient exact_gradient(const struct norm *n, const double *mean,
                                           const double *rstd, const double *dy) {
    struct norm_gradient g = {new_doubles(n->x.count), new_doubles(n->width), new_doubles(n->width),
                              new_doubles(n->width), new_doubles(n->width)};
    for (size_t row = 0; row < n->rows; row++) {
        double sum = 0, product = 0;
        for (size_t k = 0; k < n->width; k++) {
            size_t i = row * n->width + k;
            double normal = normal_of(n, i, mean, rstd);
            g.dgain[k] += dy[i] * normal;
            g.dgain_size[k] += fabs(dy[i]) * n->magnified[row];
            g.dbias[k] += dy[i];
            g.dbias_size[k] += fabs(dy[i]);
            sum += dy[i] * n->gain.value[k] / (double)n->width;
            product += dy[i] * n->gain.value[k] * normal / (double)n->width;
        }
        for (size_t k = 0; k < n->width; k++) {
            size_t i = row * n->width + k;
            double d = dy[i] * n->gain.value[k];
            g.dx[i] = rstd[row] * (d - sum - normal_of(n, i, mean, rstd) * product);
        }
    }
    return g;
}

static void scale_doubles(double *values, double factor, size_t count) {
    for (size_t i = 0; i < count; i++)
        values[i] = values[i] * factor + 1e-6;
}

struct norm_outputs {
    struct array dx, dgain, dbias;
};

static void check_gradient(const struct norm *n, const struct norm_outputs *o, const double *mean,
                           const double *rstd, const double *dy) {
    struct norm_gradient g = exact_gradient(n, mean, rstd, dy);
    double *tolerance = row_tolerance(n, 6);
    for (size_t row = 0; row < n->rows; row++)
        tolerance[row] = tolerance[row] * fmax(1, n->rstd[row]) + 1e-6;
    add_doubles(g.dx, o->dx.value, o->dx.count);
    scale_doubles(g.dgain_size, 1e-6, n->width);
    scale_doubles(g.dbias_size, 1e-6, n->width);
    check_array(&o->dx, g.dx, n->width, tolerance, "dx");
    check_array(&o->dgain, g.dgain, 1, g.dgain_size, "dgain");
    check_array(&o->dbias, g.dbias, 1, g.dbias_size, "dbias");
}

static void check_backward(struct mp_device *device, const struct dense_case *c, int width) {
    struct norm n = new_norm(device, c, width);
    struct array mean = array_of(device, MP_FLOAT32, n.rows, 0, copy_doubles(n.mean, n.rows));
    struct array rstd = array_of(device, MP_FLOAT32, n.rows, 0, copy_doubles(n.rstd, n.rows));
    struct array dy = random_array(device, device->element, n.x.count, c->shift, 1, 0);
    struct norm_outputs o = {
        .dx = random_array(device, device->element, n.x.count, c->shift, 1, 0),
        .dgain = spoilt_array(device, MP_FLOAT32, n.width, 0),
        .dbias = spoilt_array(device, MP_FLOAT32, n.width, 0),
    };
    struct array *outputs[] = {&o.dx, &o.dgain, &o.dbias};
    double *first[3];
    for (int time = 0; time < 2; time++) {
        device->operations->layer_norm_backward(device, NULL, c->rows, width, n.x.at, n.gain.at,
                                                mean.at, rstd.at, dy.at, o.dx.at, o.dgain.at,
                                                o.dbias.at);
        if (time == 0)
            check_gradient(&n, &o, mean.value, rstd.value, dy.value);
        for (int i = 0; i < 3; i++) {
            if (time == 0) {
                first[i] = received(outputs[i]);
                send(outputs[i]);
            } else {
                check_exactly(outputs[i], first[i], (const char *[]){"dx", "dgain", "dbias"}[i]);
            }
        }
    }
}

static void layer_norm_backward(struct mp_device *device, const struct dense_case *c) {
    if (c->width)
        check_backward(device, c, c->width);
    for (int i = 0; i < 4 && !c->width; i++)
        check_backward(device, c, random_width());
}

/* ---- element by element ---- */

enum { LARGEST_TILE = 256 * 8 * 4 }; /* elements of a block, of any of these operations */

/* The case's rows, or random counts around several tiles. */
static size_t count_of(const struct dense_case *c) {
    return c->rows >= 0 ? (size_t)c->rows
                        : (size_t)test_random_int(&random_state, 1, 3 * LARGEST_TILE);
}

static double *mapped(const struct array *x, double (*function)(double)) {
    double *value = new_doubles(x->count);
    for (size_t i = 0; i < x->count; i++)
        value[i] = function(x->value[i]);
    return value;
}

static void gelu_forward(struct mp_device *device, const struct dense_case *c) {
    size_t count = count_of(c);
    const double tolerance[] = {1e-6 * scale_of(c)};
    struct array x = random_array(device, device->element, count, c->shift, scale_of(c), 0);
    struct array y = spoilt_array(device, device->element, count, c->shift + c->other);
    double *expected = mapped(&x, gelu);
    device->operations->gelu_forward(device, NULL, count, x.at, y.at);
    check_array(&y, expected, 0, tolerance, "y");
    device->operations->gelu_forward(device, NULL, count, x.at, x.at);
    check_array(&x, expected, 0, tolerance, "y in place of x");
}

static void gelu_backward(struct mp_device *device, const struct dense_case *c) {
    size_t count = count_of(c);
    const double tolerance[] = {2e-6 * scale_of(c)};
    struct array x = random_array(device, device->element, count, c->shift, scale_of(c), 0);
    struct array dy = random_array(device, device->element, count, c->shift, 1, 0);
    struct array dx = spoilt_array(device, device->element, count, c->shift);
    struct array y = spoilt_array(device, device->element, count, c->shift);
    double *value = mapped(&x, gelu), *slope = mapped(&x, gelu_slope);
    for (size_t i = 0; i < count; i++)
        slope[i] *= dy.value[i];
    device->operations->gelu_backward(device, NULL, count, x.at, dy.at, dx.at, NULL);
    check_array(&dx, slope, 0, tolerance, "dx");
    send(&dx);
    device->operations->gelu_backward(device, NULL, count, x.at, dy.at, dx.at, y.at);
    check_array(&dx, slope, 0, tolerance, "dx beside the value");
    check_array(&y, value, 0, tolerance, "value");
    device->operations->gelu_backward(device, NULL, count, x.at, dy.at, dy.at, NULL);
    check_array(&dy, slope, 0, tolerance, "dx in place of dy");
}

static void gelu_of_extremes(struct mp_device *device, UNUSED const struct dense_case *c) {
    static const double extremes[] = {-1e30, -200,  -9.9, -5,  -3.5, -1e-30,
                                      0,     1e-30, 9.9,  200, 1e30, (double)NAN};
    enum { COUNT = sizeof extremes / sizeof *extremes };
    double of_value[COUNT], of_slope[COUNT];
    struct array x = array_of(device, device->element, COUNT, 0, copy_doubles(extremes, COUNT));
    struct array dy = random_array(device, device->element, COUNT, 0, 0, 1);
    struct array dx = spoilt_array(device, device->element, COUNT, 0);
    struct array y = spoilt_array(device, device->element, COUNT, 0);
    double *value = mapped(&x, gelu), *slope = mapped(&x, gelu_slope);
    for (int i = 0; i < COUNT; i++) { /* infinity times nothing, in the double precision formula */
        bool far = fabs(x.value[i]) > 100;
        value[i] = far ? fmax(x.value[i], 0) : value[i];
        slope[i] = far ? x.value[i] > 0 : slope[i];
        double relative = fabs(x.value[i]) > 9 ? 0x1p-21 : 3e-6;
        /* -1e30 of what is nearly nothing shows; a GPU's divisions are off by two units. */
        of_value[i] = (far ? 1e-6 : 1e-30) + relative * fabs(value[i]);
        of_slope[i] = (far ? 1e-6 : 1e-30) + relative * fabs(slope[i]);
    }
    device->operations->gelu_backward(device, NULL, COUNT, x.at, dy.at, dx.at, y.at);
    check_array(&dx, slope, 1, of_slope, "dx");
    check_array(&y, value, 1, of_value, "value");
    device->operations->gelu_forward(device, NULL, COUNT, x.at, x.at);
    check_array(&x, value, 1, of_value, "y");
}

/* Sums and rounding are exact: nothing but their own rounding is allowed. */
static void sums(struct mp_device *device, const struct dense_case *c) {
    size_t count = count_of(c);
    const double none[] = {0};
    struct array a = random_array(device, MP_FLOAT32, count, c->shift, 1, 0);
    struct array b = random_array(device, MP_FLOAT32, count, 0, 1, 0);
    struct array out = spoilt_array(device, MP_FLOAT32, count, c->shift);
    double *sum = copy_doubles(a.value, count), *more;
    add_doubles(sum, b.value, count);
    device->operations->add(device, NULL, count, a.at, b.at, out.at);
    check_array(&out, sum, 0, none, "sum");
    more = received(&out);
    add_doubles(more, b.value, count);
    device->operations->add(device, NULL, count, out.at, b.at, out.at);
    check_array(&out, more, 0, none, "sum in place of the first");
    more = received(&out);
    add_doubles(more, b.value, count);
    device->operations->add(device, NULL, count, out.at, b.at, b.at);
    check_array(&b, more, 0, none, "sum in place of the second");
}

static void to_elements(struct mp_device *device, const struct dense_case *c) {
    static const double special[] = {INFINITY, -INFINITY, (double)NAN, 0x1.01p0,
                                     0x1.03p0, 3e38,      1e-39};
    size_t count = count_of(c), known = sizeof special / sizeof *special;
    struct array from = random_array(device, MP_FLOAT32, count, c->shift, 1, 0);
    for (size_t i = 0; i < count && i < known; i++)
        from.value[i] = special[i];
    send(&from);
    struct array to = spoilt_array(device, device->element, count, c->shift);
    device->operations->to_elements(device, NULL, count, from.at, to.at);
    double *actual = received(&to);
    for (size_t i = 0; i < count; i++) {
        char raw[4];
        write_value(device->element, raw, 0, from.value[i]);
        double expected = read_value(device->element, raw, 0);
        if (actual[i] != expected && !(isnan(actual[i]) && isnan(expected)))
            fail_msg("element %zu: %.9g became %.9g, not %.9g", i, from.value[i], actual[i],
                     expected);
    }
    if (device->element == MP_FLOAT32) {
        const double none[] = {0};
        device->operations->to_elements(device, NULL, count, from.at, from.at);
        check_array(&from, from.value, 0, none, "in place");
    }
}

/* ---- AdamW ---- */

struct adamw_arrays {
    struct array parameter, gradient, first, second, working;
};

static void exact_adamw(const struct mp_adamw *s, struct adamw_arrays *a, double *p, double *m,
                        double *v) {
    for (size_t i = 0; i < a->parameter.count; i++) {
        double g = a->gradient.value[i];
        p[i] -= (double)s->learning_rate * (double)s->weight_decay * p[i];
        m[i] = (double)s->beta1 * m[i] + (1 - (double)s->beta1) * g;
        v[i] = (double)s->beta2 * v[i] + (1 - (double)s->beta2) * g * g;
        double step = (double)s->step;
        p[i] -= (double)s->learning_rate * (m[i] / (1 - pow((double)s->beta1, step))) /
                (sqrt(v[i] / (1 - pow((double)s->beta2, step))) + (double)s->epsilon);
    }
}

static void check_adamw_step(struct mp_device *device, const struct mp_adamw *settings,
                             struct adamw_arrays *a, void *working, double *expected[3]) {
    const double tolerance[] = {2e-6};
    exact_adamw(settings, a, expected[0], expected[1], expected[2]);
    device->operations->adamw(device, NULL, a->parameter.count, settings, a->parameter.at,
                              a->gradient.at, a->first.at, a->second.at, working);
    check_array(&a->parameter, expected[0], 0, tolerance, "parameter");
    check_array(&a->first, expected[1], 0, tolerance, "first moment");
    check_array(&a->second, expected[2], 0, tolerance, "second moment");
}

/* `other` says whether there is a working copy; 2: that one is not aligned, the rest is. */
static void adamw(struct mp_device *device, const struct dense_case *c) {
    size_t count = count_of(c);
    struct mp_adamw settings = {.learning_rate = 3e-3f,
                                .beta1 = 0.9f,
                                .beta2 = 0.95f,
                                .epsilon = 1e-8f,
                                .weight_decay = 0.1f};
    struct adamw_arrays a = {
        random_array(device, MP_FLOAT32, count, c->shift, 1, 0),
        random_array(device, MP_FLOAT32, count, c->shift, 1, 0),
        random_array(device, MP_FLOAT32, count, c->shift, 0, 0),
        random_array(device, MP_FLOAT32, count, c->shift, 0, 0),
        spoilt_array(device, device->element, count, c->shift + (c->other == 2))};
    double *expected[] = {copy_doubles(a.parameter.value, count), new_doubles(count),
                          new_doubles(count)};
    void *working = !c->other                       ? NULL
                    : device->element == MP_FLOAT32 ? a.parameter.at
                                                    : a.working.at;
    for (settings.step = 1; settings.step <= 3; settings.step++) {
        check_adamw_step(device, &settings, &a, working, expected);
        if (working == a.working.at) {
            const double none[] = {0};
            double *parameter = received(&a.parameter);
            check_array(&a.working, parameter, 0, none, "working copy");
        }
        for (size_t i = 0; i < count; i++)
            a.gradient.value[i] = i % 7 == 3 ? 0 : 2 * test_random_double(&random_state) - 1;
        send(&a.gradient);
    }
}

/* ---- cross-entropy ---- */

static int32_t *random_ints(size_t count, int most) {
    int32_t *values = (int32_t *)new_doubles(count / 2 + 1); /* released with the others */
    assert_non_null(values);
    for (size_t i = 0; i < count; i++)
        values[i] = test_random_int(&random_state, 0, most);
    return values;
}

/* gradient becomes scale * (softmax - onehot). */
static void exact_cross_entropy(const struct array *logits, size_t vocabulary,
                                const int32_t *target, double scale, double *loss,
                                double *gradient) {
    for (size_t row = 0; row * vocabulary < logits->count; row++) {
        const double *x = logits->value + row * vocabulary;
        double *g = gradient + row * vocabulary, largest = x[0], sum = 0;
        for (size_t i = 1; i < vocabulary; i++)
            largest = fmax(largest, x[i]);
        for (size_t i = 0; i < vocabulary; i++)
            sum += exp(x[i] - largest);
        for (size_t i = 0; i < vocabulary; i++)
            g[i] = scale * (exp(x[i] - largest) / sum - (i == (size_t)target[row]));
        loss[row] = log(sum) + (largest - x[target[row]]);
    }
}

static void cross_entropy(struct mp_device *device, const struct dense_case *c) {
    const float scale = 0.25f;
    size_t rows = (size_t)c->rows, vocabulary = (size_t)c->other, count = rows * vocabulary;
    struct array logits = random_array(device, MP_FLOAT32, count, c->shift, scale_of(c), c->offset);
    int32_t *target = random_ints(rows, c->other - 1);
    for (size_t i = 0; i < count && vocabulary > 2; i++) /* some can't be chosen */
        if (test_random_int(&random_state, 0, 9) == 0 &&
            i % vocabulary != (size_t)target[i / vocabulary])
            logits.value[i] = -INFINITY;
    send(&logits);
    int32_t *on_device = ints_on_device(device, target, rows);
    struct array loss = spoilt_array(device, MP_FLOAT32, rows, 0);
    struct array gradient = spoilt_array(device, device->element, count, c->shift);
    double *losses = new_doubles(rows), *gradients = new_doubles(count);
    double size = scale_of(c) + fabs(c->offset);
    const double of_loss[] = {4e-6 * (size + log((double)vocabulary))},
                 of_gradient[] = {1e-6 * fmin(size, 3) * (double)scale};
    exact_cross_entropy(&logits, vocabulary, target, (double)scale, losses, gradients);
    device->operations->cross_entropy(device, NULL, c->rows, c->other, logits.at, on_device, scale,
                                      loss.at, gradient.at);
    check_array(&loss, losses, 0, of_loss, "loss");
    check_array(&gradient, gradients, 0, of_gradient, "gradient");
    if (device->element == MP_FLOAT32) {
        send(&loss);
        device->operations->cross_entropy(device, NULL, c->rows, c->other, logits.at, on_device,
                                          scale, loss.at, logits.at);
        check_array(&loss, losses, 0, of_loss, "loss");
        check_array(&logits, gradients, 0, of_gradient, "gradient in place of logits");
    }
}

/* ---- embedding ---- */

enum { VOCABULARY = 300 };

/* Few tokens are very frequent, as in text; with a scale of 0 all are the same. */
static int32_t *random_tokens(const struct dense_case *c) {
    int32_t *token = random_ints((size_t)c->rows, VOCABULARY - 1);
    for (int i = 0; i < c->rows; i++) {
        if (c->scale < 0)
            token[i] = VOCABULARY - 1;
        else if (test_random_int(&random_state, 0, 2) == 0)
            token[i] = 17;
    }
    return token;
}

static void embedding_forward(struct mp_device *device, const struct dense_case *c) {
    size_t rows = (size_t)c->rows, width = (size_t)c->width, sequence = (size_t)c->other;
    const double none[] = {0};
    int32_t *token = random_tokens(c), *on_device = ints_on_device(device, token, rows);
    struct array tokens = random_array(device, MP_FLOAT32, VOCABULARY * width, c->shift, 1, 0);
    struct array positions = random_array(device, MP_FLOAT32, sequence * width, 0, 1, 0);
    struct array out = spoilt_array(device, device->element, rows * width, c->shift);
    double *expected = new_doubles(rows * width);
    for (size_t i = 0; i < rows * width; i++) {
        double sum = tokens.value[(size_t)token[i / width] * width + i % width] +
                     positions.value[i / width % sequence * width + i % width];
        expected[i] = (double)(float)sum;
    }
    device->operations->embedding_forward(device, NULL, c->rows, c->other, c->width, on_device,
                                          tokens.at, positions.at, out.at);
    check_array(&out, expected, 0, none, "out");
}

/* Adds dout to the rows of both tables; sizes get the magnitudes of all terms. */
static void exact_embedding(const struct array *dout, const int32_t *token, size_t width,
                            size_t sequence, double *tokens[2], double *positions[2]) {
    for (size_t i = 0; i < dout->count; i++) {
        size_t row = i / width, column = i % width;
        size_t of_token = (size_t)token[row] * width + column;
        size_t of_position = row % sequence * width + column;
        tokens[0][of_token] += dout->value[i];
        tokens[1][of_token] += 1e-6 * fabs(dout->value[i]);
        positions[0][of_position] += dout->value[i];
        positions[1][of_position] += 1e-6 * fabs(dout->value[i]);
    }
}

static void embedding_backward(struct mp_device *device, const struct dense_case *c) {
    size_t rows = (size_t)c->rows, width = (size_t)c->width, sequence = (size_t)c->other;
    int32_t *token = random_tokens(c), *on_device = ints_on_device(device, token, rows);
    struct array dout = random_array(device, device->element, rows * width, c->shift, 1, 0);
    struct array tables[] = {random_array(device, MP_FLOAT32, VOCABULARY * width, 0, 1, 0),
                             random_array(device, MP_FLOAT32, sequence * width, c->shift, 1, 0)};
    double *expected[2][2], *first[2];
    for (int i = 0; i < 2; i++) {
        expected[i][0] = copy_doubles(tables[i].value, tables[i].count);
        expected[i][1] = new_doubles(tables[i].count);
        scale_doubles(expected[i][1], 1, tables[i].count);
    }
    exact_embedding(&dout, token, width, sequence, expected[0], expected[1]);
    for (int time = 0; time < 2; time++) {
        device->operations->embedding_backward(device, NULL, c->rows, c->other, c->width, on_device,
                                               dout.at, tables[0].at, tables[1].at);
        for (int i = 0; i < 2; i++) {
            const char *what = i == 0 ? "dtoken_table" : "dposition_table";
            check_array(&tables[i], expected[i][0], 1, expected[i][1], what);
            if (time == 0) {
                first[i] = received(&tables[i]);
                send(&tables[i]);
                continue;
            }
            check_exactly(&tables[i], first[i], what);
        }
    }
}

/* ---- beyond the limits ---- */

static void beyond_limits(struct mp_device *device, const struct dense_case *c) {
    struct array row = random_array(device, MP_FLOAT32, 8, 0, 1, 0);
    if (c->other == 0)
        perform(device, layer_norm_backward, 0, limits.width + 1, row.at, row.at, row.at, row.at,
                row.at, row.at, row.at, row.at);
    else if (!on_cuda(device))
        return; /* which needs no room for these */
    else if (c->other == 1)
        perform(device, layer_norm_forward, 0, limits.width + 1, row.at, row.at, row.at, row.at,
                row.at, row.at);
    else
        perform(device, embedding_backward, limits.tokens + 1, 8, 1, row.at, row.at, row.at,
                row.at);
    assert_fails(mp_device_check(device, &error), MP_ELIMIT, "created for");
    device->error = (struct mp_error){0};
}

/* ---- cases ---- */

/* Rows, width, other, shift, scale, offset. */
static const struct dense_case cases[] = {
    {"layer norm: no rows", layer_norm_forward, 0, 64, 0, 0, 0, 0},
    {"layer norm: width 1", layer_norm_forward, 5, 1, 0, 0, 0, 0},
    {"layer norm: width 8", layer_norm_forward, 3, 8, 0, 0, 0, 0},
    {"layer norm: width 64, more rows than a block's", layer_norm_forward, 9, 64, 0, 0, 0, 0},
    {"layer norm: width 250, whole accesses of no type", layer_norm_forward, 4, 250, 0, 0, 0, 0},
    {"layer norm: width 256", layer_norm_forward, 5, 256, 0, 0, 0, 0},
    {"layer norm: width 264", layer_norm_forward, 5, 264, 0, 0, 0, 0},
    {"layer norm: width 768, far from zero", layer_norm_forward, 5, 768, 0, 0, 1, 100},
    {"layer norm: width 1024, small", layer_norm_forward, 5, 1024, 0, 0, 1e-4, 0},
    {"layer norm: width 1032", layer_norm_forward, 2, 1032, 0, 0, 0, 0},
    {"layer norm: width 2048", layer_norm_forward, 2, 2048, 0, 0, 0, 0},
    {"layer norm: width 4096", layer_norm_forward, 2, 4096, 0, 0, 0, 0},
    {"layer norm: width 8192", layer_norm_forward, 2, 8192, 0, 0, 0, 0},
    {"layer norm: width 8200", layer_norm_forward, 2, 8200, 0, 0, 0, 0},
    {"layer norm: width 16400", layer_norm_forward, 1, 16400, 0, 0, 0, 0},
    {"layer norm: width 32768", layer_norm_forward, 1, 32768, 0, 0, 0, 0},
    {"layer norm: width 32776", layer_norm_forward, 2, 32776, 0, 0, 0, 0},
    {"layer norm: rows for every thread", layer_norm_forward, 220, 600, 0, 0, 0, 0},
    {"layer norm: rows not aligned", layer_norm_forward, 5, 512, 0, 1, 0, 0},
    {"layer norm: random widths", layer_norm_forward, 3, 0, 0, 0, 2, 0.5},
    {"layer norm's gradient: no rows", layer_norm_backward, 0, 64, 0, 0, 0, 0},
    {"layer norm's gradient: one row", layer_norm_backward, 1, 256, 0, 0, 0, 0},
    {"layer norm's gradient: width 1", layer_norm_backward, 5, 1, 0, 0, 0, 0},
    {"layer norm's gradient: width 3", layer_norm_backward, 70, 3, 0, 0, 0, 0},
    {"layer norm's gradient: width 64, rounds", layer_norm_backward, 411, 64, 0, 0, 0, 0},
    {"layer norm's gradient: rounds of a large GPU", layer_norm_backward, 6001, 8, 0, 0, 0, 0},
    {"layer norm's gradient: width 250", layer_norm_backward, 135, 250, 0, 0, 0, 0},
    {"layer norm's gradient: width 512", layer_norm_backward, 77, 512, 0, 0, 0, 0},
    {"layer norm's gradient: width 1024", layer_norm_backward, 71, 1024, 0, 0, 0, 0},
    {"layer norm's gradient: width 1032", layer_norm_backward, 37, 1032, 0, 0, 0, 0},
    {"layer norm's gradient: width 4096", layer_norm_backward, 19, 4096, 0, 0, 0, 0},
    {"layer norm's gradient: width 8192", layer_norm_backward, 9, 8192, 0, 0, 0, 0},
    {"layer norm's gradient: width 8200", layer_norm_backward, 3, 8200, 0, 0, 0, 0},
    {"layer norm's gradient: rows not aligned", layer_norm_backward, 5, 512, 0, 1, 0, 0},
    {"layer norm's gradient: random widths", layer_norm_backward, 23, 0, 0, 0, 2, 0.5},
    {"GELU: nothing", gelu_forward, 0, 0, 0, 0, 3, 0},
    {"GELU: one element", gelu_forward, 1, 0, 0, 0, 3, 0},
    {"GELU: a tile", gelu_forward, LARGEST_TILE, 0, 0, 0, 12, 0},
    {"GELU: random counts", gelu_forward, -1, 0, 0, 0, 4, 0},
    {"GELU: long enough for threads", gelu_forward, 50001, 0, 0, 0, 4, 0},
    {"GELU: not aligned", gelu_forward, -1, 0, 0, 3, 4, 0},
    {"GELU: only the result not aligned", gelu_forward, -1, 0, 1, 0, 4, 0},
    {"GELU: extremes", gelu_of_extremes, 0, 0, 0, 0, 0, 0},
    {"GELU's gradient: nothing", gelu_backward, 0, 0, 0, 0, 3, 0},
    {"GELU's gradient: one element", gelu_backward, 1, 0, 0, 0, 3, 0},
    {"GELU's gradient: a tile", gelu_backward, LARGEST_TILE / 2, 0, 0, 0, 12, 0},
    {"GELU's gradient: random counts", gelu_backward, -1, 0, 0, 0, 4, 0},
    {"GELU's gradient: long enough for threads", gelu_backward, 50001, 0, 0, 0, 4, 0},
    {"GELU's gradient: not aligned", gelu_backward, -1, 0, 0, 3, 4, 0},
    {"sums: nothing", sums, 0, 0, 0, 0, 0, 0},
    {"sums: five", sums, 5, 0, 0, 0, 0, 0},
    {"sums: a tile", sums, LARGEST_TILE / 2, 0, 0, 0, 0, 0},
    {"sums: random counts", sums, -1, 0, 0, 0, 0, 0},
    {"sums: long enough for threads", sums, 70007, 0, 0, 0, 0, 0},
    {"sums: not aligned", sums, -1, 0, 0, 1, 0, 0},
    {"rounding: nothing", to_elements, 0, 0, 0, 0, 0, 0},
    {"rounding: a tile", to_elements, LARGEST_TILE / 2, 0, 0, 0, 0, 0},
    {"rounding: random counts", to_elements, -1, 0, 0, 0, 0, 0},
    {"rounding: not aligned", to_elements, -1, 0, 0, 1, 0, 0},
    {"AdamW: nothing", adamw, 0, 0, 1, 0, 0, 0},
    {"AdamW: a tile", adamw, LARGEST_TILE / 8, 0, 1, 0, 0, 0},
    {"AdamW: random counts", adamw, -1, 0, 1, 0, 0, 0},
    {"AdamW: no working copy", adamw, -1, 0, 0, 0, 0, 0},
    {"AdamW: enough for threads", adamw, 70001, 0, 1, 0, 0, 0},
    {"AdamW: not aligned", adamw, -1, 0, 1, 1, 0, 0},
    {"AdamW: only the copy not aligned", adamw, -1, 0, 2, 0, 0, 0},
    {"cross-entropy: no rows", cross_entropy, 0, 0, 5, 0, 0, 0},
    {"cross-entropy: one token", cross_entropy, 3, 0, 1, 0, 0, 0},
    {"cross-entropy: 5 tokens", cross_entropy, 9, 0, 5, 0, 0, 0},
    {"cross-entropy: bytes", cross_entropy, 21, 0, 256, 0, 5, 0},
    {"cross-entropy: bytes, not aligned", cross_entropy, 6, 0, 256, 1, 5, 0},
    {"cross-entropy: 257 tokens", cross_entropy, 5, 0, 257, 0, 5, 0},
    {"cross-entropy: rows for every thread", cross_entropy, 300, 0, 259, 0, 4, 0},
    {"cross-entropy: 1000 tokens, far apart", cross_entropy, 5, 0, 1000, 0, 90, 20},
    {"cross-entropy: 1025 tokens", cross_entropy, 18, 0, 1025, 0, 5, 0},
    {"cross-entropy: 1027 tokens, not aligned", cross_entropy, 5, 0, 1027, 2, 5, 0},
    {"cross-entropy: 5003 tokens, far apart", cross_entropy, 5, 0, 5003, 0, 90, -20},
    {"cross-entropy: 5003 tokens, not aligned", cross_entropy, 3, 0, 5003, 2, 5, 0},
    {"cross-entropy: 9000 tokens", cross_entropy, 7, 0, 9000, 0, 1, 0},
    {"cross-entropy: 9001 tokens, not aligned", cross_entropy, 3, 0, 9001, 3, 5, 0},
    {"cross-entropy: more tokens than a block holds", cross_entropy, 3, 0, 50257, 0, 5, 0},
    {"embedding: nothing", embedding_forward, 0, 16, 4, 0, 0, 0},
    {"embedding: width 1", embedding_forward, 40, 1, 10, 0, 0, 0},
    {"embedding: width 5", embedding_forward, 33, 5, 16, 0, 0, 0},
    {"embedding: width 64", embedding_forward, 70, 64, 35, 0, 0, 0},
    {"embedding: width 1100", embedding_forward, 9, 1100, 3, 0, 0, 0},
    {"embedding: not aligned", embedding_forward, 21, 64, 7, 1, 0, 0},
    {"embedding's gradient: nothing", embedding_backward, 0, 16, 4, 0, 0, 0},
    {"embedding's gradient: one token", embedding_backward, 1, 16, 4, 0, 0, 0},
    {"embedding's gradient: width 1", embedding_backward, 700, 1, 10, 0, 0, 0},
    {"embedding's gradient: width 5", embedding_backward, 512, 5, 16, 0, 0, 0},
    {"embedding's gradient: as many tokens as allowed", embedding_backward, 5000, 16, 200, 0, 0, 0},
    {"embedding's gradient: one token all along", embedding_backward, 1500, 64, 30, 0, -1, 0},
    {"embedding's gradient: width 1100", embedding_backward, 530, 1100, 53, 0, 0, 0},
    {"embedding's gradient: not aligned", embedding_backward, 300, 64, 30, 1, 0, 0},
    {"layer norm's gradient beyond the limits", beyond_limits, 0, 0, 0, 0, 0, 0},
    {"layer norm beyond the limits", beyond_limits, 0, 0, 1, 0, 0, 0},
    {"embedding's gradient beyond the limits", beyond_limits, 0, 0, 2, 0, 0, 0},
};

DENSE_PROGRAM(cases, limits);
