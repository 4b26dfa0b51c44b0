/* Causal attention against double precision, its backward against central differences. */
#include "tests/reference/device/device_support.h"

struct attention {
    struct mp_attention_shape shape;
    double *qkv, *dout;
    double *out, *logsumexp; /* where `loss` puts them */
    double *weight;          /* room for one query's */
};

/* One query of one head: weights over keys 0 .. i. */
static void naive_query(const struct attention *a, int b, int h, int i, double *weight) {
    const struct mp_attention_shape *s = &a->shape;
    int width = s->head_width, model = s->heads * width;
    const double *q = a->qkv + (size_t)(b * s->sequence + i) * 3 * (size_t)model + h * width;
    double largest = -INFINITY, sum = 0;
    for (int j = 0; j <= i; j++) {
        const double *k = a->qkv + ((size_t)(b * s->sequence + j) * 3 + 1) * (size_t)model;
        weight[j] = dot_doubles(q, k + h * width, (size_t)width) / sqrt(width);
        largest = fmax(largest, weight[j]);
    }
    for (int j = 0; j <= i; j++)
        sum += weight[j] = exp(weight[j] - largest);
    a->logsumexp[(b * s->heads + h) * s->sequence + i] = largest + log(sum);
    double *out = a->out + (size_t)(b * s->sequence + i) * (size_t)model + h * width;
    for (int d = 0; d < width; d++)
        out[d] = 0;
    for (int j = 0; j <= i; j++) {
        const double *v = a->qkv + ((size_t)(b * s->sequence + j) * 3 + 2) * (size_t)model;
        for (int d = 0; d < width; d++)
            out[d] += weight[j] / sum * v[h * width + d];
    }
}

static double loss(const void *context) {
    const struct attention *a = context;
    const struct mp_attention_shape *s = &a->shape;
    for (int b = 0; b < s->batch; b++)
        for (int h = 0; h < s->heads; h++)
            for (int i = 0; i < s->sequence; i++)
                naive_query(a, b, h, i, a->weight);
    return dot_doubles(a->out, a->dout,
                       (size_t)(s->batch * s->sequence * s->heads * s->head_width));
}

static void attention_matches(struct mp_device *device, const void *argument) {
    const struct mp_attention_shape *s = argument;
    size_t rows = (size_t)(s->batch * s->sequence), model = (size_t)(s->heads * s->head_width);
    size_t size = rows * model, queries = rows * (size_t)s->heads;
    float *qkv = random_floats(3 * size, 2), *dout = random_floats(size, 1);
    float *out = new_floats(size), *logsumexp = new_floats(queries), *dqkv = new_floats(3 * size);
    perform(device, attention_forward, s, qkv, out, logsumexp);

    struct attention a = {*s,
                          to_doubles(qkv, 3 * size),
                          to_doubles(dout, size),
                          new_doubles(size),
                          new_doubles(queries),
                          new_doubles((size_t)s->sequence)};
    loss(&a);
    assert_floats_close(out, a.out, size, 3e-6);
    for (size_t i = 0; i < queries; i++) /* may come close to 0 through cancellation */
        assert_within(logsumexp[i], a.logsumexp[i], 3e-6 * fmax(1, fabs(a.logsumexp[i])));

    perform(device, attention_backward, s, qkv, out, logsumexp, dout, dqkv);
    assert_gradient(loss, &a, a.qkv, 3 * size, dqkv, 120, 1e-5);
}

#define ATTENTION(name, ...)                                                                       \
    {                                                                                              \
        name, attention_matches, &(const struct mp_attention_shape) {                              \
            __VA_ARGS__                                                                            \
        }                                                                                          \
    }

static const struct device_test tests[] = {
    ATTENTION("one token", 1, 1, 1, 8),
    ATTENTION("one head of width 5", 1, 11, 1, 5),
    ATTENTION("two sequences, three heads of width 7", 2, 13, 3, 7),
    ATTENTION("exactly one block", 1, 64, 2, 16),
    ATTENTION("one token more than a block", 2, 65, 2, 6),
    ATTENTION("several blocks, the last one short", 1, 150, 2, 9),
    ATTENTION("heads of width 64", 1, 70, 1, 64),
    ATTENTION("no sequences", 0, 16, 2, 8),
};

int main(void) {
    return run_device_tests("attention", tests, sizeof tests / sizeof *tests);
}
