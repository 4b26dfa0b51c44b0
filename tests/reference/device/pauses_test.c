/* Whoever wants pauses in a device's work gets them: on its own thread, often enough, and with the
 * same results. */
#include <pthread.h>

#include "tests/reference/device/device_support.h"

enum { SUM = 40000 };

struct pauses {
    struct mp_device *device;
    pthread_t thread;
    int calls;
    bool inside;
    float *from, *to; /* [SUM] */
};

/* Adds, as arrived gradients are added; a pause has none itself. */
static void add_in_pause(void *context) {
    struct pauses *pauses = context;
    assert_true(pthread_equal(pauses->thread, pthread_self()) && !pauses->inside);
    pauses->inside = true;
    pauses->calls++;
    pauses->device->operations->accumulate(pauses->device, NULL, SUM, pauses->from, pauses->to);
    pauses->inside = false;
}

/* An operation: in [size] is never written, out [size] is what is compared. */
struct pauses_case {
    void (*work)(struct mp_device *device, float *in, float *out);
    int least, most; /* pauses on one thread */
};

enum { SIZE = 1843200 };

static const struct mp_attention_shape shape = {3, 200, 3, 64};
enum { TOKENS = 600, MODEL = 192 };

static void attend(struct mp_device *device, float *in, float *out) {
    perform(device, attention_forward, &shape, in, out, out + TOKENS * MODEL);
}

static void attend_backward(struct mp_device *device, float *in, float *out) {
    float *logsumexp = out + TOKENS * MODEL;
    perform(device, attention_forward, &shape, in, out, logsumexp);
    perform(device, attention_backward, &shape, in, out, logsumexp, in + 4 * TOKENS * MODEL,
            logsumexp + TOKENS * 3);
}

/* 64 x 64 of 4096 rows, which are four parts; and with few rows, which are one. */
static void multiply(struct mp_device *device, float *in, float *out) {
    perform(device, gemm, false, false, 4096, 64, 64, 1, in, 64, in + 4096 * 64, 64, 0, out, 64);
}

static void multiply_turned(struct mp_device *device, float *in, float *out) {
    perform(device, gemm, false, true, 4097, 64, 64, 1, in, 64, in + 4097 * 64, 64, 0, out, 64);
}

static void multiply_little(struct mp_device *device, float *in, float *out) {
    perform(device, gemm, true, false, 64, 64, 64, 1, in, 64, in + 4096, 64, 0, out, 64);
}

static void multiply_groups(struct mp_device *device, float *in, float *out) {
    static const int rows[] = {300, 0, 200, 200, 1, 99};
    enum { WIDTH = 200 };
    float *weight = in + 800 * WIDTH;
    void *const weights[] = {weight, weight, weight, weight, weight, weight};
    perform(device, grouped_gemm, MP_GROUPED_FORWARD, 6, rows, WIDTH, WIDTH, in, weights, out,
            false);
}

static void normalise(struct mp_device *device, float *in, float *out) {
    enum { ROWS = 3000, WIDTH = 600 };
    perform(device, layer_norm_forward, ROWS, WIDTH, in, in, in + WIDTH, out, out + ROWS * WIDTH,
            out + ROWS * WIDTH + ROWS);
}

static void activate(struct mp_device *device, float *in, float *out) {
    perform(device, gelu_forward, 1000000, in, out);
}

static float *performed(struct mp_device *device, const struct pauses_case *c, float *in) {
    float *out = new_floats(SIZE);
    memset(out, 0, SIZE * sizeof *out);
    c->work(device, in, out);
    return out;
}

static void work_has_pauses(struct mp_device *device, const void *argument) {
    const struct pauses_case *c = argument;
    struct pauses pauses = {device, pthread_self(), 0, false, random_floats(SUM, 1), NULL};
    float *in = random_floats(SIZE, 1), *before = random_floats(SUM, 1);
    pauses.to = copy_floats(before, SUM);
    float *expected = performed(device, c, in);
    device->between = add_in_pause;
    device->between_context = &pauses;
    float *out = performed(device, c, in);
    device->between = NULL;
    assert_memory_equal(out, expected, SIZE * sizeof *out);
    int calls = pauses.calls;
    performed(device, c, in);
    assert_int_equal(pauses.calls, calls);
    for (int i = 0; i < SUM; i++)
        for (int call = 0; call < calls; call++)
            before[i] += pauses.from[i];
    assert_memory_equal(pauses.to, before, SUM * sizeof *before);
    if (device->deferred)
        assert_int_equal(calls, 0);
    else /* the first of three threads has a third of it */
        assert_in_range(calls, c->least / 3, c->most);
}

static const struct device_test tests[] = {
    {"attention", work_has_pauses, &(const struct pauses_case){attend, 6, 18}},
    {"attention, backwards", work_has_pauses, &(const struct pauses_case){attend_backward, 18, 54}},
    {"a product of many rows", work_has_pauses, &(const struct pauses_case){multiply, 4, 4}},
    {"another", work_has_pauses, &(const struct pauses_case){multiply_turned, 4, 4}},
    {"a small product", work_has_pauses, &(const struct pauses_case){multiply_little, 0, 0}},
    {"groups of rows", work_has_pauses, &(const struct pauses_case){multiply_groups, 4, 8}},
    {"layer norm", work_has_pauses, &(const struct pauses_case){normalise, 20, 30}},
    {"GELU", work_has_pauses, &(const struct pauses_case){activate, 10, 16}},
};

int main(void) {
    return run_device_tests("pauses", tests, sizeof tests / sizeof *tests);
}
