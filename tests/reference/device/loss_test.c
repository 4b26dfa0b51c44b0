/* Softmax cross-entropy against double precision, its gradient against central differences. */
#include "tests/reference/device/device_support.h"

struct loss_case {
    int rows, vocabulary;
    double spread; /* of the logits */
    float scale;
};

struct losses {
    int rows, vocabulary;
    double scale;
    double *logits;
    const int32_t *target;
};

static double row_loss(const struct losses *l, int row) {
    const double *logits = l->logits + (size_t)row * (size_t)l->vocabulary;
    double largest = -INFINITY, sum = 0;
    for (int i = 0; i < l->vocabulary; i++)
        largest = fmax(largest, logits[i]);
    for (int i = 0; i < l->vocabulary; i++)
        sum += exp(logits[i] - largest);
    return largest + log(sum) - logits[l->target[row]];
}

static double total(const void *context) {
    const struct losses *l = context;
    double sum = 0;
    for (int row = 0; row < l->rows; row++)
        sum += l->scale * row_loss(l, row);
    return sum;
}

static void cross_entropy_matches(struct mp_device *device, const void *argument) {
    const struct loss_case *c = argument;
    size_t size = (size_t)c->rows * (size_t)c->vocabulary;
    float *logits = random_floats(size, c->spread), *loss = new_floats((size_t)c->rows);
    int32_t *target = new_ints((size_t)c->rows);
    for (int row = 0; row < c->rows; row++)
        target[row] = test_random_int(&random_state, 0, c->vocabulary - 1);
    struct losses l = {c->rows, c->vocabulary, c->scale, to_doubles(logits, size), target};
    float *gradient = new_floats(size);
    perform(device, cross_entropy, c->rows, c->vocabulary, logits, target, c->scale, loss,
            gradient);
    for (size_t i = 0; i < size; i++)
        assert_close(logits[i], l.logits[i], 0);
    for (int row = 0; row < c->rows; row++)
        assert_close(loss[row], row_loss(&l, row), 1e-6);
    assert_gradient(total, &l, l.logits, size, gradient, 100, 3e-6);

    float *again = new_floats((size_t)c->rows);
    perform(device, cross_entropy, c->rows, c->vocabulary, logits, target, c->scale, again, logits);
    assert_memory_equal(again, loss, (size_t)c->rows * sizeof *loss);
    assert_memory_equal(logits, gradient, size * sizeof *logits);
}

/* A logit far above the others: no overflow, and the loss of a sure choice is 0. */
static void cross_entropy_survives_large_logits(struct mp_device *device, const void *argument) {
    (void)argument;
    float *logits = copy_floats((const float[]){1e4f, 0, -1e4f, 1e4f, 0, -1e4f}, 6);
    float *loss = new_floats(2);
    int32_t *target = copy_ints((const int32_t[]){0, 2}, 2);
    perform(device, cross_entropy, 2, 3, logits, target, 1, loss, logits);
    const double gradient[] = {0, 0, 0, 1, 0, -1};
    assert_close(loss[0], 0, 1e-6);
    assert_close(loss[1], 2e4, 1e-6);
    assert_floats_close(logits, gradient, 6, 1e-6);
}

#define LOSS(name, ...)                                                                            \
    {                                                                                              \
        name, cross_entropy_matches, &(const struct loss_case) {                                   \
            __VA_ARGS__                                                                            \
        }                                                                                          \
    }

static const struct device_test tests[] = {
    LOSS("bytes", 7, 256, 5, 1.0f / 7),
    LOSS("odd vocabulary", 13, 37, 3, 0.5f),
    LOSS("two words", 3, 2, 1, 1),
    LOSS("one word", 2, 1, 1, 1),
    LOSS("rows for every thread", 300, 259, 4, 1.0f / 300),
    LOSS("no rows", 0, 10, 1, 1),
    {"logits of ten thousand", cross_entropy_survives_large_logits, NULL},
};

int main(void) {
    return run_device_tests("loss", tests, sizeof tests / sizeof *tests);
}
