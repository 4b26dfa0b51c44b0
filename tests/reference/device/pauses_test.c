/* Whoever wants pauses in a device's work gets them: on its own thread, often enough, and with the
 * same results. */
#include <pthread.h>

#include "tests/reference/device/device_support.h"
#include "tests/reference/device/rules.h"

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
    pauses->device->operations->add(pauses->device, NULL, SUM, pauses->to, pauses->from,
                                    pauses->to);
    pauses->inside = false;
}

/* An operation: in [size] is never written, out [size] is what is compared. */
struct pauses_case {
    const char *name;
    void (*work)(struct mp_device *device, float *in, float *out);
    int least, most; /* pauses on one thread */
    bool items;      /* below */
};

enum { SIZE = 1843200, PLAIN = 12 * 16385 };

static size_t size_of(const struct pauses_case *c) {
    return c->items ? 3 * PLAIN : SIZE;
}

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

static float *performed(struct mp_device *device, const struct pauses_case *c, float *in) {
    size_t size = size_of(c);
    float *out = new_floats(size);
    memset(out, 0, size * sizeof *out);
    c->work(device, in, out);
    return out;
}

/* ---- Items ----
 *
 * Every operation has 12 grains of items, and a pause is due after four: three on one thread, one
 * of the first of three threads. */

/* Rows of 8000 elements: three are a grain. */
enum { ROWS = 36, WIDE = 8000 };

static void add_plain(struct mp_device *device, float *in, float *out) {
    perform(device, add, PLAIN, in, in, out);
}

static void activate_plain(struct mp_device *device, float *in, float *out) {
    perform(device, gelu_forward, PLAIN, in, out);
}

static void activate_backward(struct mp_device *device, float *in, float *out) {
    perform(device, gelu_backward, PLAIN, in, in, out, NULL);
}

static void update(struct mp_device *device, float *in, float *out) {
    const struct mp_adamw settings = {.step = 1, .beta1 = 0.9, .beta2 = 0.99, .epsilon = 1e-8};
    memset(out, 0, 3 * PLAIN * sizeof *out);
    perform(device, adamw, PLAIN, &settings, out, in, out + PLAIN, out + 2 * PLAIN, NULL);
}

static void gather(struct mp_device *device, float *in, float *out) {
    static const int32_t index[ROWS] = {3, 1, 2, -1};
    perform(device, gather_rows, ROWS, WIDE, in, index, out);
}

static void scatter(struct mp_device *device, float *in, float *out) {
    static int32_t index[ROWS];
    for (int i = 0; i < ROWS; i++)
        index[i] = ROWS - 1 - i;
    perform(device, scatter_rows, ROWS, WIDE, in, index, out);
}

/* Two routes of 4000 elements are as much as a row. */
static void combine(struct mp_device *device, float *in, float *out) {
    static const int32_t position[2 * ROWS] = {0};
    perform(device, combine_forward, ROWS, 2, WIDE / 2, in, position, NULL, NULL, out);
}

static void combine_backwards(struct mp_device *device, float *in, float *out) {
    static int32_t position[2 * ROWS];
    for (int i = 0; i < 2 * ROWS; i++)
        position[i] = i;
    perform(device, combine_backward, ROWS, 2, WIDE / 2, in, position, NULL, in, false, out,
            out + ROWS * WIDE);
}

static void embed(struct mp_device *device, float *in, float *out) {
    static const int32_t token[ROWS] = {1, 0, 1};
    perform(device, embedding_forward, ROWS, 3, WIDE, token, in, in, out);
}

static void embed_backward(struct mp_device *device, float *in, float *out) {
    static const int32_t token[2] = {1, 0};
    memset(out, 0, 4 * 384 * sizeof *out);
    perform(device, embedding_backward, 2, 2, 12 * 32, token, in, out, out + 2 * 384);
}

static void lose(struct mp_device *device, float *in, float *out) {
    static const int32_t target[ROWS] = {1};
    perform(device, cross_entropy, ROWS, WIDE, in, target, 1, out, out + ROWS);
}

static void gate(struct mp_device *device, float *in, float *out) {
    int32_t choice[ROWS];
    perform(device, gate_forward, ROWS, WIDE, 1, SOFTMAX(false), in, NULL, NULL, out, NULL, choice,
            out + ROWS * WIDE);
}

static void gate_backwards(struct mp_device *device, float *in, float *out) {
    static const int32_t choice[ROWS] = {2};
    perform(device, gate_backward, ROWS, WIDE, 1, SOFTMAX(false), in, NULL, choice, NULL, in, in,
            in, out);
}

static void survive(struct mp_device *device, float *in, float *out) {
    enum { MANY = 12 * 8193 };
    int32_t *choice = new_ints(2 * MANY);
    memset(choice, 0, 2 * MANY * sizeof *choice);
    perform(device, survivor_weights, MANY, 2, 2, SOFTMAX(true), in, choice, choice, out);
}

static void normalise_rows(struct mp_device *device, float *in, float *out) {
    enum { COUNT = 12 * 28, WIDTH = 600 };
    float *mean = out + COUNT * WIDTH;
    perform(device, layer_norm_forward, COUNT, WIDTH, in, in, in, out, mean, mean + COUNT);
}

static void normalise_backward(struct mp_device *device, float *in, float *out) {
    enum { COUNT = 12 * 28, WIDTH = 600 };
    float *dgain = out + COUNT * WIDTH;
    memset(out, 0, (COUNT + 2) * WIDTH * sizeof *out);
    perform(device, layer_norm_backward, COUNT, WIDTH, in, in, in, in, in, out, dgain,
            dgain + WIDTH);
}

/* Heads so small that their products are nothing beside the grain that each of them is. */
static const struct mp_attention_shape small_shape = {3, 2, 4, 2};

static void attend_small(struct mp_device *device, float *in, float *out) {
    perform(device, attention_forward, &small_shape, in, out, out + 48);
}

static void attend_small_backward(struct mp_device *device, float *in, float *out) {
    perform(device, attention_backward, &small_shape, in, in, in, in, out);
}

static void count_pause(void *context) {
    ++*(int *)context;
}

static int pauses_of(struct mp_device *device,
                     void (*work)(struct mp_device *device, float *in, float *out), float *in,
                     float *out) {
    int calls = 0;
    device->between = count_pause;
    device->between_context = &calls;
    mp_cpu_of(device)->worked = 0;
    work(device, in, out);
    device->between = NULL;
    return calls;
}

/* 64 x 64 of 1024 rows are just a pause's work. */
static int product_rows;

static void multiply_rows(struct mp_device *device, float *in, float *out) {
    perform(device, gemm, false, false, product_rows, 64, 64, 1, in, 64, in, 64, 0, out, 64);
}

static void multiply_rows_turned(struct mp_device *device, float *in, float *out) {
    perform(device, gemm, true, false, product_rows, 64, 64, 1, in, product_rows, in, 64, 0, out,
            64);
}

DEVICE_TEST(products_make_pauses) {
    static const int rows[] = {1023, 1024, 2047, 2048, 3071, 3072}, pauses[] = {0, 1, 1, 2, 2, 3};
    if (device->deferred)
        return;
    float *in = random_floats(3 * PLAIN, 1), *out = new_floats(3 * PLAIN);
    for (int i = 0; i < 6; i++) {
        product_rows = rows[i];
        assert_int_equal(pauses_of(device, multiply_rows, in, out), pauses[i]);
        assert_int_equal(pauses_of(device, multiply_rows_turned, in, out), pauses[i] > 0);
    }
}

static const struct pauses_case cases[] = {
    {"attention", attend, 6, 18, false},
    {"attention, backwards", attend_backward, 18, 54, false},
    {"a product of many rows", multiply, 4, 4, false},
    {"another", multiply_turned, 4, 4, false},
    {"a small product", multiply_little, 0, 0, false},
    {"groups of rows", multiply_groups, 4, 8, false},
    {"sums", add_plain, 3, 3, true},
    {"GELU", activate_plain, 3, 3, true},
    {"GELU, backwards", activate_backward, 3, 3, true},
    {"AdamW", update, 3, 3, true},
    {"gathering", gather, 3, 3, true},
    {"scattering", scatter, 3, 3, true},
    {"combining", combine, 3, 3, true},
    {"combining, backwards", combine_backwards, 3, 3, true},
    {"embedding", embed, 3, 3, true},
    {"embedding, backwards", embed_backward, 3, 3, true},
    {"cross-entropy", lose, 3, 3, true},
    {"gate", gate, 3, 3, true},
    {"gate, backwards", gate_backwards, 3, 3, true},
    {"survivors' weights", survive, 3, 3, true},
    {"layer norm", normalise_rows, 3, 3, true},
    {"layer norm, backwards", normalise_backward, 3, 3, true},
    {"small heads", attend_small, 3, 3, true},
    {"small heads, backwards", attend_small_backward, 3, 3, true},
};

DEVICE_EACH(work_has_pauses, cases) {
    if (c->items && device->deferred)
        return;
    struct pauses pauses = {device, pthread_self(), 0, false, random_floats(SUM, 1), NULL};
    float *in = random_floats(size_of(c), 1), *before = random_floats(SUM, 1);
    pauses.to = copy_floats(before, SUM);
    float *expected = performed(device, c, in);
    device->between = add_in_pause;
    device->between_context = &pauses;
    float *out = performed(device, c, in);
    device->between = NULL;
    assert_memory_equal(out, expected, size_of(c) * sizeof *out);
    int calls = pauses.calls;
    performed(device, c, in);
    assert_int_equal(pauses.calls, calls);
    for (int i = 0; i < SUM; i++)
        for (int call = 0; call < calls; call++)
            before[i] += pauses.from[i];
    assert_memory_equal(pauses.to, before, SUM * sizeof *before);
    if (device->deferred)
        assert_int_equal(calls, 0);
    else if (c->items)
        assert_int_equal(calls, mp_cpu_of(device)->threads == 1 ? c->most : c->most / 3);
    else /* the first of three threads has a third of it */
        assert_in_range(calls, c->least / 3, c->most);
}

DEVICE_PROGRAM(.limits = &test_limits);
