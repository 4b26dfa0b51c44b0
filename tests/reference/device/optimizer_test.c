/* AdamW over several steps against double precision. */
#include "tests/reference/device/device_support.h"

struct adamw_case {
    size_t count;
    int steps;
    struct mp_adamw settings;
};

static void naive_step(const struct mp_adamw *s, int step, double g, double *p, double *m,
                       double *v) {
    *p -= (double)s->learning_rate * s->weight_decay * *p;
    *m = (double)s->beta1 * *m + (1 - (double)s->beta1) * g;
    *v = (double)s->beta2 * *v + (1 - (double)s->beta2) * g * g;
    *p -= s->learning_rate * (*m / (1 - pow(s->beta1, step))) /
          (sqrt(*v / (1 - pow(s->beta2, step))) + s->epsilon);
}

static void adamw_matches(struct mp_device *device, const void *argument) {
    const struct adamw_case *c = argument;
    float *parameter = random_floats(c->count, 1);
    float *first = random_floats(c->count, 0), *second = random_floats(c->count, 0);
    double *p = to_doubles(parameter, c->count), *m = new_doubles(c->count),
           *v = new_doubles(c->count);
    for (int step = 1; step <= c->steps; step++) {
        float *gradient = random_floats(c->count, 0.3);
        struct mp_adamw settings = c->settings;
        settings.step = step;
        perform(device, adamw, c->count, &settings, parameter, gradient, first, second,
                step % 2 ? parameter : NULL);
        for (size_t i = 0; i < c->count; i++)
            naive_step(&settings, step, gradient[i], &p[i], &m[i], &v[i]);
    }
    assert_floats_close(parameter, p, c->count, 3e-6);
    assert_floats_close(first, m, c->count, 3e-6);
    assert_floats_close(second, v, c->count, 3e-6);
}

#define ADAMW(name, ...)                                                                           \
    {                                                                                              \
        name, adamw_matches, &(const struct adamw_case) {                                          \
            __VA_ARGS__                                                                            \
        }                                                                                          \
    }

static const struct device_test tests[] = {
    ADAMW("the usual settings", 1001, 12, {0.001f, 0.9f, 0.999f, 1e-8f, 0.01f, 0}),
    ADAMW("no decay", 63, 5, {0.01f, 0.9f, 0.95f, 1e-8f, 0, 0}),
    ADAMW("large steps, large epsilon", 130, 20, {0.1f, 0.8f, 0.9f, 1e-2f, 0.3f, 0}),
    ADAMW("enough for threads", 70001, 3, {0.001f, 0.9f, 0.999f, 1e-8f, 0.1f, 0}),
};

int main(void) {
    return run_device_tests("optimizer", tests, sizeof tests / sizeof *tests);
}
