/* Causal attention of the cuda back end against double precision.
 *
 * The reference works on the very elements that the device gets.  Every result is a sum; it may be
 * wrong by a few roundings of the sum of its terms' absolute values (its `size`), the largest of
 * its row, since what cancels in the result does not cancel in the error.  bf16 also rounds the
 * scores: a score s that is off by s / 256 makes its probability off by that much. */
#include "reference/device/cuda/cuda.h"
#include "tests/reference/device/cuda/cuda_support.h"

struct attention_case {
    const char *name;
    struct mp_attention_shape shape;
    int pairs;   /* that scratch has room for at once, 0: what the limits say */
    int shift;   /* elements from an aligned address to where matrices start */
    double size; /* of q and k: how uneven probabilities are; 0: 1.5 */
};

static const struct attention_case cases[] = {
    {"one token", {1, 1, 1, 8}, 0, 0, 0},
    {"one token of several sequences and heads", {3, 1, 2, 16}, 0, 0, 0},
    {"seven tokens", {2, 7, 3, 8}, 0, 0, 0},
    {"33 tokens, one head", {3, 33, 1, 64}, 0, 0, 0},
    {"200 tokens, heads of 128", {1, 200, 1, 128}, 0, 0, 0},
    {"exactly one block", {2, 256, 2, 16}, 0, 0, 0},
    {"one token more than a block", {1, 257, 3, 8}, 0, 0, 0},
    {"three blocks, the last one short", {1, 600, 2, 16}, 0, 0, 0},
    {"several rounds, cut between sequences", {3, 40, 2, 16}, 2, 0, 0},
    {"several rounds, cut in a sequence", {3, 70, 3, 8}, 4, 0, 0},
    {"a round for each head", {2, 300, 2, 8}, 1, 0, 0},
    {"heads that are not aligned", {2, 50, 3, 5}, 0, 0, 0},
    {"heads that are not aligned, several rounds", {3, 20, 3, 7}, 5, 0, 0},
    {"heads that are aligned in fp32 only", {2, 30, 2, 12}, 0, 0, 0},
    {"matrices that are not aligned", {2, 60, 2, 8}, 0, 1, 0},
    {"large scores", {2, 90, 2, 32}, 0, 0, 6},
    {"scores that hardly differ", {2, 90, 2, 32}, 0, 0, 0.01},
    {"rows as long as registers hold", {1, 1030, 1, 8}, 0, 0, 0},
    {"larger blocks, and rows that registers do not hold", {1, 2056, 1, 8}, 0, 0, 0},
};

/* Fused in bf16, whose blocks have 128 rows of 64 elements or 64 rows of 128. */
static const struct attention_case fused_cases[] = {
    {"one token, 64", {2, 1, 3, 64}, 0, 0, 0},
    {"one token, 128", {1, 1, 2, 128}, 0, 0, 0},
    {"seven tokens, 64", {1, 7, 2, 64}, 0, 0, 0},
    {"seven tokens, 128", {2, 7, 1, 128}, 0, 0, 0},
    {"half a block, 64", {2, 64, 2, 64}, 0, 0, 0},
    {"exactly one block, 128", {1, 64, 3, 128}, 0, 0, 0},
    {"65 tokens, 64", {1, 65, 1, 64}, 0, 0, 0},
    {"one token more than a block, 128", {2, 65, 1, 128}, 0, 0, 0},
    {"exactly one block, 64", {2, 128, 2, 64}, 0, 0, 0},
    {"exactly two blocks, 128", {1, 128, 2, 128}, 0, 0, 0},
    {"two blocks, 64", {2, 140, 2, 64}, 0, 0, 0},
    {"three blocks, 64", {1, 257, 1, 64}, 0, 0, 0},
    {"five blocks, 128", {1, 257, 1, 128}, 0, 0, 0},
    {"large scores, 64", {1, 90, 2, 64}, 0, 0, 6},
    {"large scores, 128", {1, 90, 2, 128}, 0, 0, 6},
    {"scores that hardly differ, 64", {1, 140, 1, 64}, 0, 0, 0.01},
    {"more pairs than run together, 128", {11, 65, 3, 128}, 0, 0, 0},
    {"several rounds, 64", {18, 16, 2, 64}, 1, 0, 0},
    {"several rounds, 128", {18, 16, 2, 128}, 1, 0, 0},
    {"matrices that are not aligned, 64", {1, 70, 2, 64}, 0, 1, 0},
};

/* ---- the reference ---- */

struct matrix {
    size_t rows, columns;
    double *value, *size;
};

struct reference {
    struct mp_attention_shape shape;
    struct matrix qkv, dout;               /* inputs: no sizes */
    struct matrix out, dqkv, logsumexp;    /* logsumexp [B * H][S] */
    double *probability, *score, *largest; /* of the head at hand; largest |score| of any row */
};

static struct matrix new_matrix(size_t rows, size_t columns) {
    struct matrix m = {rows, columns, calloc(rows * columns + 1, sizeof(double)),
                       calloc(rows * columns + 1, sizeof(double))};
    assert_non_null(m.value);
    assert_non_null(m.size);
    return m;
}

static void free_matrix(struct matrix *m) {
    free(m->value);
    free(m->size);
}

struct head {
    size_t token, column, model, width; /* of the first token; first column of q */
};

static double *at(const struct matrix *m, size_t row, size_t column) {
    return m->value + row * m->columns + column;
}

/* A head's part of a row += factor * of, whose size is that of size_factor * of. */
static void add_row(const struct matrix *m, const struct head *h, size_t row, size_t column,
                    double factor, double size_factor, const double *of) {
    double *value = at(m, row, column), *size = m->size + row * m->columns + column;
    for (size_t d = 0; d < h->width; d++) {
        value[d] += factor * of[d];
        size[d] += fabs(size_factor * of[d]);
    }
}

/* The sum of products of a head's parts of two rows; *size: of their sizes. */
static double product(const struct head *h, const double *a, const double *b, double *size) {
    double sum = 0, sizes = 0;
    for (size_t d = 0; d < h->width; d++) {
        sum += a[d] * b[d];
        sizes += fabs(a[d] * b[d]);
    }
    *size = sizes;
    return sum;
}

/* Probabilities of one query, and its row of out. */
static void forward_query(struct reference *r, const struct head *h, size_t pair, size_t i) {
    double largest = -INFINITY, size = 1, sum = 0, root = sqrt((double)h->width), score_size;
    size_t query = h->token + i, k = h->model + h->column, v = k + h->model;
    for (size_t j = 0; j <= i; j++) {
        r->score[j] =
            product(h, at(&r->qkv, query, h->column), at(&r->qkv, h->token + j, k), &score_size) /
            root;
        size = fmax(size, score_size / root);
        largest = fmax(largest, r->score[j]);
        *r->largest = fmax(*r->largest, fabs(r->score[j]));
    }
    for (size_t j = 0; j <= i; j++)
        sum += r->probability[j] = exp(r->score[j] - largest);
    *at(&r->logsumexp, pair, i) = largest + log(sum);
    r->logsumexp.size[pair * r->logsumexp.columns + i] = fmax(size, fabs(largest + log(sum)));
    for (size_t j = 0; j <= i; j++) {
        double p = r->probability[j] /= sum;
        add_row(&r->out, h, query, h->column, p, p, at(&r->qkv, h->token + j, v));
    }
}

/* What the query adds to the gradients; its probabilities are there. */
static void backward_query(struct reference *r, const struct head *h, size_t i) {
    size_t query = h->token + i, k = h->model + h->column, v = k + h->model;
    const double *dout = at(&r->dout, query, h->column), *q = at(&r->qkv, query, h->column);
    double scale = 1 / sqrt((double)h->width), delta_size, dp_size;
    double delta = product(h, dout, at(&r->out, query, h->column), &delta_size);
    product(h, dout, r->out.size + query * h->model + h->column, &delta_size);
    for (size_t j = 0; j <= i; j++) {
        size_t key = h->token + j;
        double p = r->probability[j], dp = product(h, dout, at(&r->qkv, key, v), &dp_size);
        double ds = scale * p * (dp - delta), ds_size = scale * p * (dp_size + delta_size);
        add_row(&r->dqkv, h, key, v, p, p, dout);
        add_row(&r->dqkv, h, query, h->column, ds, ds_size, at(&r->qkv, key, k));
        add_row(&r->dqkv, h, key, k, ds, ds_size, q);
    }
}

static void set_zero(struct matrix *m) {
    memset(m->value, 0, m->rows * m->columns * sizeof *m->value);
    memset(m->size, 0, m->rows * m->columns * sizeof *m->size);
}

static void compute_reference(struct reference *r) {
    const struct mp_attention_shape *s = &r->shape;
    size_t sequence = (size_t)s->sequence, heads = (size_t)s->heads;
    size_t width = (size_t)s->head_width;
    set_zero(&r->out);
    set_zero(&r->dqkv);
    for (size_t pair = 0; pair < (size_t)s->batch * heads; pair++) {
        struct head head = {pair / heads * sequence, pair % heads * width, heads * width, width};
        for (size_t i = 0; i < sequence; i++) {
            forward_query(r, &head, pair, i);
            backward_query(r, &head, i);
        }
    }
}

static struct reference new_reference(const struct mp_attention_shape *shape) {
    size_t tokens = (size_t)shape->batch * (size_t)shape->sequence;
    size_t model = (size_t)shape->heads * (size_t)shape->head_width;
    struct reference r = {.shape = *shape,
                          .qkv = new_matrix(tokens, 3 * model),
                          .dout = new_matrix(tokens, model),
                          .out = new_matrix(tokens, model),
                          .dqkv = new_matrix(tokens, 3 * model),
                          .logsumexp = new_matrix((size_t)shape->batch * (size_t)shape->heads,
                                                  (size_t)shape->sequence),
                          .probability = calloc((size_t)shape->sequence, sizeof(double)),
                          .score = calloc((size_t)shape->sequence, sizeof(double)),
                          .largest = calloc(1, sizeof(double))};
    assert_true(r.probability && r.score && r.largest);
    return r;
}

static void free_reference(struct reference *r) {
    struct matrix *all[] = {&r->qkv, &r->dout, &r->out, &r->dqkv, &r->logsumexp};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        free_matrix(all[i]);
    free(r->probability);
    free(r->score);
    free(r->largest);
}

/* ---- elements ---- */

static double round_to(enum mp_element element, double value) {
    float single = (float)value;
    return (double)(element == MP_FLOAT32 ? single : from_bfloat16(to_bfloat16(single)));
}

static void fill_random(enum mp_element element, struct matrix *m, size_t first, size_t last,
                        double size) {
    for (size_t row = 0; row < m->rows; row++)
        for (size_t column = first; column < last; column++)
            m->value[row * m->columns + column] =
                round_to(element, size * (2 * test_random_double(&random_state) - 1));
}

static void put(enum mp_element element, char *to, size_t index, double value) {
    float single = (float)value;
    uint16_t narrow = to_bfloat16(single);
    if (element == MP_FLOAT32)
        memcpy(to + 4 * index, &single, 4);
    else
        memcpy(to + 2 * index, &narrow, 2);
}

static double get(enum mp_element element, const char *from, size_t index) {
    float single = 0;
    uint16_t narrow = 0;
    if (element == MP_FLOAT32)
        memcpy(&single, from + 4 * index, 4);
    else
        memcpy(&narrow, from + 2 * index, 2);
    return (double)(element == MP_FLOAT32 ? single : from_bfloat16(narrow));
}

/* ---- on the device ---- */

/* A matrix in device memory, `shift` elements behind an aligned address. */
struct there {
    char *allocation;
    void *start;
    size_t bytes;
};

static struct there new_there(struct mp_device *device, size_t bytes, size_t shift_bytes) {
    struct there t = {device->operations->allocate(device, bytes + shift_bytes), NULL, bytes};
    assert_non_null(t.allocation);
    t.start = t.allocation + shift_bytes;
    return t;
}

/* Every byte 0xff, which is a NaN in both element types: what is read before it is written shows,
 * and so does what is never written. */
static void fill_nan(struct mp_device *device, void *memory, size_t bytes) {
    char *nan = malloc(bytes + 1);
    assert_non_null(nan);
    memset(nan, 0xff, bytes);
    device->operations->copy_from_host(device, NULL, memory, nan, bytes);
    free(nan);
}

static struct there send(struct mp_device *device, const struct matrix *m, size_t shift) {
    size_t bytes = bytes_of(device->element, 1), count = m->rows * m->columns;
    struct there t = new_there(device, count * bytes, shift * bytes);
    char *host = malloc(count * bytes + 1);
    assert_non_null(host);
    for (size_t i = 0; i < count; i++)
        put(device->element, host, i, m->value[i]);
    device->operations->copy_from_host(device, NULL, t.start, host, t.bytes);
    free(host);
    return t;
}

/* The largest and the mean square of errors, the former in the largest size of the row, the latter
 * in that of the sizes: where there are many, their mean is far from the worst. */
static void check_matrix(const char *name, enum mp_element element, const char *actual,
                         const struct matrix *expected, double tolerance) {
    double errors = 1e-300, sizes = 1e-300;
    for (size_t row = 0; row < expected->rows; row++) {
        const double *value = expected->value + row * expected->columns;
        const double *size = expected->size + row * expected->columns;
        double largest = 0;
        for (size_t i = 0; i < expected->columns; i++)
            largest = fmax(largest, size[i]);
        for (size_t i = 0; i < expected->columns; i++) {
            double got = get(element, actual, row * expected->columns + i);
            double error = fabs(got - value[i]);
            if (!(error <= tolerance * largest)) /* NaN fails, too */
                fail_msg("%s[%zu][%zu] is %.9g, expected %.9g: off by %.3g of %.3g, tolerance %.3g",
                         name, row, i, got, value[i], error / largest, largest, tolerance);
            errors += error * error;
            sizes += size[i] * size[i];
        }
    }
    const double mean_tolerance =
        expected->rows * expected->columns < 64 ? tolerance : tolerance / 4;
    if (sqrt(errors / sizes) > mean_tolerance)
        fail_msg("%s is off by %.3g in the mean, tolerance %.3g", name, sqrt(errors / sizes),
                 mean_tolerance);
}

static void receive_and_check(struct mp_device *device, const char *name, enum mp_element element,
                              const struct there *t, const struct matrix *expected,
                              double tolerance) {
    char *host = malloc(t->bytes + 1);
    assert_non_null(host);
    device->operations->copy_to_host(device, NULL, host, t->start, t->bytes);
    check_matrix(name, element, host, expected, tolerance);
    free(host);
}

/* With as much scratch as a model of this shape gets. */
static struct mp_device *new_device(enum mp_element element,
                                    const struct mp_attention_shape *shape) {
    const struct mp_cuda_settings settings = {-1, 0, element, false};
    const struct mp_device_limits limits = {
        .attention = *shape, .experts = 4, .width = 64, .tokens = 64};
    struct mp_device *device = NULL;
    struct mp_error error = {0};
    if (mp_device_cuda_create(&settings, &limits, &device, &error))
        fail_msg("%s", error.text);
    return device;
}

/* Bytes that hold at least `pairs` pairs, and not two more: two squares of scores and a few values
 * per query.  The device's own scratch is larger than rounds of few pairs need. */
static void leave_room(struct mp_device *device, const struct mp_attention_shape *s, int pairs) {
    struct mp_cuda *cuda = mp_cuda_of(device);
    size_t sequence = (size_t)s->sequence, row = (sequence + 7) / 8 * 8;
    size_t pair = 2 * sequence * row * bytes_of(device->element, 1) + 4 * sequence +
                  11 * sizeof(void *) * ((sequence + 255) / 256);
    size_t bytes = 1024 + (size_t)pairs * pair;
    assert_true(bytes <= cuda->scratch_bytes);
    cuda->scratch_bytes = bytes;
}

static bool fused_in_bfloat16(const struct attention_case *c) {
    return (c->shape.head_width == 64 || c->shape.head_width == 128) && c->shift == 0;
}

struct run {
    const struct attention_case *c;
    enum mp_element element;
    char name[160];
};

static void attention_matches(void **state) {
    const struct run *run = *state;
    const struct mp_attention_shape *s = &run->c->shape;
    const size_t shift = (size_t)run->c->shift, model = (size_t)(s->heads * s->head_width);
    const double size = run->c->size > 0 ? run->c->size : 1.5;
    struct mp_device *device = new_device(run->element, s);
    const struct mp_device_operations *operations = device->operations;
    struct reference r = new_reference(s);
    fill_random(run->element, &r.qkv, 0, 2 * model, size);
    fill_random(run->element, &r.qkv, 2 * model, 3 * model, 1);
    fill_random(run->element, &r.dout, 0, model, 1);
    compute_reference(&r);
    if (run->c->pairs)
        leave_room(device, s, run->c->pairs);
    fill_nan(device, mp_cuda_of(device)->scratch,
             (size_t)fmin((double)mp_cuda_of(device)->scratch_bytes, 1 << 24));

    struct there qkv = send(device, &r.qkv, shift), dout = send(device, &r.dout, shift);
    struct there out = new_there(device, dout.bytes, shift * bytes_of(run->element, 1));
    struct there dqkv = new_there(device, qkv.bytes, shift * bytes_of(run->element, 1));
    struct there logsumexp = new_there(device, r.logsumexp.rows * r.logsumexp.columns * 4, 0);
    fill_nan(device, out.start, out.bytes);
    fill_nan(device, dqkv.start, dqkv.bytes);
    fill_nan(device, logsumexp.start, logsumexp.bytes);
    mp_stream stream;
    struct mp_error error = {0};
    assert_int_equal(operations->stream_create(device, 0, &stream, &error), MP_OK);
    const int64_t products = double_counts().products;
    operations->attention_forward(device, stream, s, qkv.start, out.start, logsumexp.start);
    operations->attention_backward(device, stream, s, qkv.start, out.start, logsumexp.start,
                                   dout.start, dqkv.start);
    operations->stream_synchronize(device, stream);
    const bool fused = fused_in_bfloat16(run->c) && run->element == MP_BFLOAT16;
    if (on_double())
        assert_true((double_counts().products == products) == fused);

    /* A GPU's exponential is off by two units.  Roundings: of scores, if they are in memory
     * (largest score / 256), probabilities, their gradients, the result. */
    const double score = fused ? 0 : *r.largest;
    const double unit = run->element == MP_FLOAT32 ? 0x1p-22 : 0x1p-9;
    const double tolerance = unit * (6 + score);
    receive_and_check(device, "logsumexp", MP_FLOAT32, &logsumexp, &r.logsumexp,
                      run->element == MP_FLOAT32 ? 0x1p-20
                      : fused                    ? 0x1p-18
                                                 : 0x1.1p-8);
    receive_and_check(device, "out", run->element, &out, &r.out, tolerance);
    receive_and_check(device, "dqkv", run->element, &dqkv, &r.dqkv, tolerance);

    operations->stream_destroy(device, stream);
    struct there *all[] = {&qkv, &dout, &out, &dqkv, &logsumexp};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        operations->release(device, all[i]->allocation);
    free_reference(&r);
    close_device(device);
}

/* out, logsumexp and dqkv of random inputs, in this order, as the device's bytes. */
static char *results_of(struct mp_device *device, const struct mp_attention_shape *s,
                        const struct matrix *inputs, size_t *bytes) {
    const struct mp_device_operations *operations = device->operations;
    struct there qkv = send(device, &inputs[0], 0), dout = send(device, &inputs[1], 0);
    size_t sums = 4 * (size_t)s->batch * (size_t)s->heads * (size_t)s->sequence, at = 0;
    struct there results[] = {new_there(device, dout.bytes, 0), new_there(device, sums, 0),
                              new_there(device, qkv.bytes, 0)};
    *bytes = dout.bytes + sums + qkv.bytes;
    char *host = malloc(*bytes + 1);
    assert_non_null(host);
    operations->attention_forward(device, NULL, s, qkv.start, results[0].start, results[1].start);
    operations->attention_backward(device, NULL, s, qkv.start, results[0].start, results[1].start,
                                   dout.start, results[2].start);
    for (size_t i = 0; i < 3; i++) {
        operations->copy_to_host(device, NULL, host + at, results[i].start, results[i].bytes);
        at += results[i].bytes;
        operations->release(device, results[i].allocation);
    }
    operations->release(device, qkv.allocation);
    operations->release(device, dout.allocation);
    return host;
}

/* Whatever order blocks and threads run in. */
static void results_are_the_same_each_time(void **state) {
    (void)state;
    const struct mp_attention_shape shapes[] = {{1, 130, 2, 64}, {1, 70, 2, 128}, {2, 90, 2, 16}};
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
        const struct mp_attention_shape *s = &shapes[i];
        size_t tokens = (size_t)(s->batch * s->sequence), bytes = 0;
        size_t model = (size_t)(s->heads * s->head_width);
        struct mp_device *device = new_device(MP_BFLOAT16, s);
        struct matrix inputs[] = {new_matrix(tokens, 3 * model), new_matrix(tokens, model)};
        fill_random(MP_BFLOAT16, &inputs[0], 0, 3 * model, 1.5);
        fill_random(MP_BFLOAT16, &inputs[1], 0, model, 1);
        reorder_blocks(test_random(&random_state));
        char *once = results_of(device, s, inputs, &bytes);
        reorder_blocks(test_random(&random_state));
        char *again = results_of(device, s, inputs, &bytes);
        assert_memory_equal(once, again, bytes);
        free(once);
        free(again);
        free_matrix(&inputs[0]);
        free_matrix(&inputs[1]);
        close_device(device);
    }
}

/* The reference's own gradients, which all of the above relies on. */
static void reference_matches_differences(void **state) {
    (void)state;
    const struct mp_attention_shape shape = {2, 5, 2, 3};
    const double step = 1e-5;
    struct reference r = new_reference(&shape), moved = new_reference(&shape);
    size_t inputs = r.qkv.rows * r.qkv.columns, outputs = r.out.rows * r.out.columns;
    fill_random(MP_FLOAT32, &r.qkv, 0, r.qkv.columns, 1.5);
    fill_random(MP_FLOAT32, &r.dout, 0, r.dout.columns, 1);
    compute_reference(&r);
    memcpy(moved.dout.value, r.dout.value, outputs * sizeof(double));
    for (size_t i = 0; i < inputs; i++) {
        double difference = 0;
        for (int sign = -1; sign <= 1; sign += 2) {
            memcpy(moved.qkv.value, r.qkv.value, inputs * sizeof(double));
            moved.qkv.value[i] += sign * step;
            compute_reference(&moved);
            for (size_t o = 0; o < outputs; o++)
                difference += sign * moved.out.value[o] * r.dout.value[o];
        }
        assert_within(r.dqkv.value[i], difference / (2 * step), 1e-8);
    }
    free_reference(&r);
    free_reference(&moved);
}

/* Nothing is queued and nothing written; the device says what it was asked for. */
static void longer_sequences_are_refused(void **state) {
    (void)state;
    const struct mp_attention_shape longest = {1, 2056, 1, 8}, shape = {1, 2057, 1, 8};
    struct mp_device *device = new_device(MP_BFLOAT16, &longest);
    struct mp_error error = {0};
    float before = 3.5f, after = 0;
    struct there memory = new_there(device, sizeof before, 0);
    device->operations->copy_from_host(device, NULL, memory.start, &before, sizeof before);
    device->operations->attention_forward(device, NULL, &shape, memory.start, memory.start,
                                          memory.start);
    device->operations->copy_to_host(device, NULL, &after, memory.start, sizeof after);
    assert_true(before == after);
    assert_int_equal(mp_device_check(device, &error), MP_ELIMIT);
    assert_non_null(strstr(error.text, "2057"));
    assert_non_null(strstr(error.text, "2056"));
    device->operations->release(device, memory.allocation);
    mp_device_destroy(device);
}

static void no_tokens_do_nothing(void **state) {
    (void)state;
    const struct mp_attention_shape most = {2, 16, 2, 64};
    struct mp_device *device = new_device(MP_BFLOAT16, &most);
    const struct mp_attention_shape shapes[] = {{0, 16, 2, 8},  {2, 0, 2, 8},  {2, 16, 0, 8},
                                                {0, 16, 2, 64}, {2, 0, 2, 64}, {2, 16, 0, 64}};
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
        device->operations->attention_forward(device, NULL, &shapes[i], NULL, NULL, NULL);
        device->operations->attention_backward(device, NULL, &shapes[i], NULL, NULL, NULL, NULL,
                                               NULL);
    }
    close_device(device);
}

int main(void) {
    enum {
        BOTH = 2 * sizeof cases / sizeof *cases,
        RUNS = BOTH + sizeof fused_cases / sizeof *fused_cases,
        OTHERS = 4
    };
    static struct run runs[RUNS];
    static struct CMUnitTest tests[RUNS + OTHERS];
    random_state = test_seed();
    for (int i = 0; i < RUNS; i++) {
        struct run *run = &runs[i];
        run->c = i < BOTH ? &cases[i / 2] : &fused_cases[i - BOTH];
        run->element = i < BOTH && i % 2 == 0 ? MP_FLOAT32 : MP_BFLOAT16;
        snprintf(run->name, sizeof run->name, "%s (%s)", run->c->name,
                 run->element == MP_FLOAT32 ? "fp32" : "bf16");
        tests[i] = (struct CMUnitTest){run->name, attention_matches, NULL, NULL, run};
    }
    const struct CMUnitTest others[OTHERS] = {
        cmocka_unit_test(reference_matches_differences),
        cmocka_unit_test(longer_sequences_are_refused),
        cmocka_unit_test(no_tokens_do_nothing),
        cmocka_unit_test(results_are_the_same_each_time),
    };
    memcpy(tests + RUNS, others, sizeof others);
    return _cmocka_run_group_tests("attention", tests, sizeof tests / sizeof *tests, NULL, NULL);
}
