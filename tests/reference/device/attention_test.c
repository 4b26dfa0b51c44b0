/* Causal attention against double precision.
 *
 * The reference works on the very elements that the device gets.  Every result is a sum; it may be
 * wrong by a few roundings of the sum of its terms' absolute values (its `size`), the largest of
 * its row, since what cancels in the result does not cancel in the error.  bf16 also rounds the
 * scores: a score s that is off by s / 256 makes its probability off by that much. */
#include "reference/device/cuda/cuda.h"
#include "tests/reference/device/cuda/on_double.h"
#include "tests/reference/device/dense_support.h"

struct attention_case {
    const char *name;
    struct mp_attention_shape shape;
    int pairs;   /* that scratch has room for at once, 0: what the limits say */
    int shift;   /* elements from an aligned address to where matrices start */
    double size; /* of q and k: how uneven probabilities are; 0: 1.5 */
    bool fused;  /* of interest with bf16 only, on a GPU */
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
    return (struct matrix){rows, columns, new_doubles(rows * columns), new_doubles(rows * columns)};
}

struct head {
    size_t token, column, model, width; /* of the first token; first column of q */
};

UNCHECKED static double *at(const struct matrix *m, size_t row, size_t column) {
    return m->value + row * m->columns + column;
}

/* A head's part of a row += factor * of, whose size is that of size_factor * of. */
UNCHECKED static void add_row(const struct matrix *m, const struct head *h, size_t row,
                              size_t column, double factor, double size_factor, const double *of) {
    double *value = at(m, row, column), *size = m->size + row * m->columns + column;
    for (size_t d = 0; d < h->width; d++) {
        value[d] += factor * of[d];
        size[d] += fabs(size_factor * of[d]);
    }
}

/* The sum of products of a head's parts of two rows; *size: of their sizes. */
UNCHECKED static double product(const struct head *h, const double *a, const double *b,
                                double *size) {
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
    return (struct reference){.shape = *shape,
                              .qkv = new_matrix(tokens, 3 * model),
                              .dout = new_matrix(tokens, model),
                              .out = new_matrix(tokens, model),
                              .dqkv = new_matrix(tokens, 3 * model),
                              .logsumexp = new_matrix((size_t)shape->batch * (size_t)shape->heads,
                                                      (size_t)shape->sequence),
                              .probability = new_doubles((size_t)shape->sequence),
                              .score = new_doubles((size_t)shape->sequence),
                              .largest = new_doubles(1)};
}

/* ---- on the device ---- */

/* Uniform in +-size, but for the last third of the columns of qkv, which are the values, in +-1. */
static void fill_random(struct matrix *m, size_t first, double size) {
    for (size_t i = 0; i < m->rows * m->columns; i++)
        m->value[i] =
            (i % m->columns < first ? size : 1) * (2 * test_random_double(&random_state) - 1);
}

/* What the matrix has, which is rounded to what the device gets. */
static struct array sent(struct mp_device *device, struct matrix *m, int shift) {
    size_t count = m->rows * m->columns;
    struct array a = array_of(device, device->element, count, shift, copy_doubles(m->value, count));
    memcpy(m->value, a.value, count * sizeof *m->value);
    return a;
}

static struct array unwritten(struct mp_device *device, enum mp_element type,
                              const struct matrix *m, int shift) {
    return spoilt_array(device, type, m->rows * m->columns, shift);
}

/* The largest and the mean square of errors, the former in the largest size of the row, the latter
 * in that of the sizes: where there are many, their mean is far from the worst. */
static void check_matrix(const char *name, const struct array *array, const struct matrix *expected,
                         double tolerance) {
    double *actual = received(array);
    double errors = 1e-300, sizes = 1e-300;
    for (size_t row = 0; row < expected->rows; row++) {
        const double *value = expected->value + row * expected->columns;
        const double *size = expected->size + row * expected->columns;
        double largest = 0;
        for (size_t i = 0; i < expected->columns; i++)
            largest = fmax(largest, size[i]);
        for (size_t i = 0; i < expected->columns; i++) {
            double got = actual[row * expected->columns + i];
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

/* Bytes that hold at least `pairs` pairs, and not two more: two squares of scores and a few values
 * per query.  The device's own scratch is larger than rounds of few pairs need. */
static void leave_room(struct mp_device *device, const struct mp_attention_shape *s, int pairs) {
    struct mp_cuda *cuda = mp_cuda_of(device);
    size_t sequence = (size_t)s->sequence, row = (sequence + 7) / 8 * 8;
    size_t pair = 2 * sequence * row * bytes_of(device->element) + 4 * sequence +
                  11 * sizeof(void *) * ((sequence + 255) / 256);
    size_t bytes = 1024 + (size_t)pairs * pair;
    assert_true(bytes <= cuda->scratch_bytes);
    cuda->scratch_bytes = bytes;
}

/* Every byte 0xff, which is a NaN in both element types: what is read before it is written shows.
 */
static void spoil_scratch(struct mp_device *device) {
    const struct mp_cuda *cuda = mp_cuda_of(device);
    size_t bytes = cuda->scratch_bytes < 1 << 24 ? cuda->scratch_bytes : 1 << 24;
    AUTO(allocated) char *nan = malloc(bytes);
    assert_non_null(nan);
    memset(nan, 0xff, bytes);
    device->operations->copy_from_host(device, NULL, cuda->scratch, nan, bytes);
}

static bool fused_in_bfloat16(const struct attention_case *c) {
    return (c->shape.head_width == 64 || c->shape.head_width == 128) && c->shift == 0;
}

static const struct attention_case cases[] = {
    {"one token", {1, 1, 1, 8}, 0, 0, 0, false},
    {"one token of several sequences and heads", {3, 1, 2, 16}, 0, 0, 0, false},
    {"seven tokens", {2, 7, 3, 8}, 0, 0, 0, false},
    {"33 tokens, one head", {3, 33, 1, 64}, 0, 0, 0, false},
    {"200 tokens, heads of 128", {1, 200, 1, 128}, 0, 0, 0, false},
    {"exactly one block", {2, 256, 2, 16}, 0, 0, 0, false},
    {"one token more than a block", {1, 257, 3, 8}, 0, 0, 0, false},
    {"three blocks, the last one short", {1, 600, 2, 16}, 0, 0, 0, false},
    {"several rounds, cut between sequences", {3, 40, 2, 16}, 2, 0, 0, false},
    {"several rounds, cut in a sequence", {3, 70, 3, 8}, 4, 0, 0, false},
    {"a round for each head", {2, 300, 2, 8}, 1, 0, 0, false},
    {"heads that are not aligned", {2, 50, 3, 5}, 0, 0, 0, false},
    {"heads that are not aligned, several rounds", {3, 20, 3, 7}, 5, 0, 0, false},
    {"heads that are aligned in fp32 only", {2, 30, 2, 12}, 0, 0, 0, false},
    {"matrices that are not aligned", {2, 60, 2, 8}, 0, 1, 0, false},
    {"large scores", {2, 90, 2, 32}, 0, 0, 6, false},
    {"scores that hardly differ", {2, 90, 2, 32}, 0, 0, 0.01, false},
    {"rows as long as registers hold", {1, 1030, 1, 8}, 0, 0, 0, false},
    {"larger blocks, and rows that registers do not hold", {1, 2056, 1, 8}, 0, 0, 0, false},
    /* Fused in bf16, whose blocks have 128 rows of 64 elements or 64 rows of 128. */
    {"one token, 64", {2, 1, 3, 64}, 0, 0, 0, true},
    {"one token, 128", {1, 1, 2, 128}, 0, 0, 0, true},
    {"seven tokens, 64", {1, 7, 2, 64}, 0, 0, 0, true},
    {"seven tokens, 128", {2, 7, 1, 128}, 0, 0, 0, true},
    {"half a block, 64", {2, 64, 2, 64}, 0, 0, 0, true},
    {"exactly one block, 128", {1, 64, 3, 128}, 0, 0, 0, true},
    {"65 tokens, 64", {1, 65, 1, 64}, 0, 0, 0, true},
    {"one token more than a block, 128", {2, 65, 1, 128}, 0, 0, 0, true},
    {"exactly one block, 64", {2, 128, 2, 64}, 0, 0, 0, true},
    {"exactly two blocks, 128", {1, 128, 2, 128}, 0, 0, 0, true},
    {"two blocks, 64", {2, 140, 2, 64}, 0, 0, 0, true},
    {"three blocks, 64", {1, 257, 1, 64}, 0, 0, 0, true},
    {"five blocks, 128", {1, 257, 1, 128}, 0, 0, 0, true},
    {"large scores, 64", {1, 90, 2, 64}, 0, 0, 6, true},
    {"large scores, 128", {1, 90, 2, 128}, 0, 0, 6, true},
    {"scores that hardly differ, 64", {1, 140, 1, 64}, 0, 0, 0.01, true},
    {"more pairs than run together, 128", {11, 65, 3, 128}, 0, 0, 0, true},
    {"several rounds, 64", {18, 16, 2, 64}, 1, 0, 0, true},
    {"several rounds, 128", {18, 16, 2, 128}, 1, 0, 0, true},
    /* By warpgroups, on a GPU that has them: blocks of 256 rows in forward, 192 in backward. */
    {"a block of warpgroups in backward, 64", {2, 192, 1, 64}, 0, 0, 0, true},
    {"four tokens more, 64", {1, 196, 3, 64}, 0, 0, 0, true},
    {"two and a half blocks of warpgroups, 64", {1, 480, 2, 64}, 0, 0, 0, true},
    {"large scores of several blocks, 64", {1, 260, 2, 64}, 0, 0, 6, true},
    {"rounds of several blocks, 64", {3, 200, 3, 64}, 4, 0, 0, true},
    {"more pairs than run together, 64", {11, 68, 3, 64}, 0, 0, 0, true},
    {"matrices that are not aligned, 64", {1, 70, 2, 64}, 0, 1, 0, true},
};

DEVICE_EACH(attention_matches, cases) {
    const struct mp_attention_shape *s = &c->shape;
    const bool fused = fused_in_bfloat16(c) && device->element == MP_BFLOAT16;
    struct reference r = new_reference(s);
    fill_random(&r.qkv, 2 * r.dout.columns, c->size > 0 ? c->size : 1.5);
    fill_random(&r.dout, 0, 1);
    struct array qkv = sent(device, &r.qkv, c->shift), dout = sent(device, &r.dout, c->shift);
    compute_reference(&r);
    if (on_cuda(device)) {
        if (c->pairs)
            leave_room(device, s, c->pairs);
        spoil_scratch(device);
    }
    struct array out = unwritten(device, device->element, &r.out, c->shift);
    struct array dqkv = unwritten(device, device->element, &r.dqkv, c->shift);
    struct array logsumexp = unwritten(device, MP_FLOAT32, &r.logsumexp, 0);
    const int64_t products = double_counts().products;
    perform(device, attention_forward, s, qkv.at, out.at, logsumexp.at);
    perform(device, attention_backward, s, qkv.at, out.at, logsumexp.at, dout.at, dqkv.at);
    if (on_cuda(device) && on_double())
        assert_true((double_counts().products == products) == fused);

    /* A GPU's exponential is off by two units.  Roundings: of scores, if they are in memory
     * (largest score / 256), probabilities, their gradients, the result. */
    const double score = fused ? 0 : *r.largest;
    const double unit = device->element == MP_FLOAT32 ? 0x1p-22 : 0x1p-9;
    const double tolerance = unit * (6 + score);
    check_matrix("logsumexp", &logsumexp, &r.logsumexp,
                 device->element == MP_FLOAT32 ? 0x1p-20
                 : fused                       ? 0x1p-18
                                               : 0x1.1p-8);
    check_matrix("out", &out, &r.out, tolerance);
    check_matrix("dqkv", &dqkv, &r.dqkv, tolerance);
}

/* In two steps as in one; what lies behind the tokens in each half of a head's cache stays. */
DEVICE_TEST(cached_tokens_are_as_good_as_new) {
    for (int turn = 0; turn < 8 && device->operations->attention_cached; turn++) {
        const int first = test_random_int(&random_state, 0, 40);
        const int few = turn % 2, all = first + test_random_int(&random_state, 1, few ? 8 : 40);
        const int places = all + test_random_int(&random_state, 1, 2);
        struct mp_attention_shape shape = {1, all, 3, 8};
        const size_t width = 8, row = 3 * width, count = (size_t)all * row;
        float *qkv = random_floats(3 * count, 1.5), *out = new_floats(count);
        float *whole = new_floats(count), *logsumexp = new_floats(count);
        float *cache = random_floats(2 * row * (size_t)places, 1);
        const float *before = copy_floats(cache, 2 * row * (size_t)places);
        perform(device, attention_forward, &shape, qkv, whole, logsumexp);
        shape.sequence = first;
        perform(device, attention_cached, &shape, 0, places, qkv, cache, out);
        shape.sequence = all - first;
        perform(device, attention_cached, &shape, first, places, qkv + (size_t)first * 3 * row,
                cache, out + (size_t)first * row);
        assert_floats_close(out, to_doubles(whole, count), count, 1e-6);
        for (size_t part = 0; part < 6; part++) {
            size_t end = (part * (size_t)places + (size_t)all) * width;
            assert_memory_equal(cache + end, before + end,
                                (size_t)(places - all) * width * sizeof *cache);
        }
    }
}

/* Whatever order blocks and threads run in. */
DEVICE_TEST(results_are_the_same_each_time) {
    const struct mp_attention_shape shapes[] = {
        {1, 130, 2, 64}, {1, 260, 2, 64}, {1, 70, 2, 128}, {2, 90, 2, 16}};
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
        struct reference r = new_reference(&shapes[i]);
        fill_random(&r.qkv, r.qkv.columns, 1.5);
        fill_random(&r.dout, 0, 1);
        struct array qkv = sent(device, &r.qkv, 0), dout = sent(device, &r.dout, 0);
        struct array results[] = {unwritten(device, device->element, &r.out, 0),
                                  unwritten(device, MP_FLOAT32, &r.logsumexp, 0),
                                  unwritten(device, device->element, &r.dqkv, 0)};
        for (int time = 0; time < 2; time++) {
            reorder_blocks(test_random(&random_state));
            device->operations->attention_forward(device, NULL, &shapes[i], qkv.at, results[0].at,
                                                  results[1].at);
            device->operations->attention_backward(device, NULL, &shapes[i], qkv.at, results[0].at,
                                                   results[1].at, dout.at, results[2].at);
            for (int j = 0; j < 3; j++) {
                double *once = received(&results[j]);
                if (time == 0)
                    memcpy(results[j].value, once, results[j].count * sizeof *once);
                check_exactly(&results[j], results[j].value, "a result");
            }
        }
    }
}

/* The reference's own gradients, which all of the above relies on. */
DEVICE_TEST(reference_matches_differences) {
    const struct mp_attention_shape shape = {2, 5, 2, 3};
    const double step = 1e-5;
    struct reference r = new_reference(&shape), moved = new_reference(&shape);
    size_t inputs = r.qkv.rows * r.qkv.columns, outputs = r.out.rows * r.out.columns;
    fill_random(&r.qkv, r.qkv.columns, 1.5);
    fill_random(&r.dout, 0, 1);
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
}

static const struct attention_case longest[] = {{"2056", {1, 2056, 1, 8}, 0, 0, 0, false}};

/* Nothing is queued and nothing written; the device says what it was asked for. */
DEVICE_EACH(longer_sequences_are_refused, longest) {
    struct mp_attention_shape shape = c->shape;
    struct array memory = random_array(device, MP_FLOAT32, 1, 0, 1, 0);
    shape.sequence++;
    perform(device, attention_forward, &shape, memory.at, memory.at, memory.at);
    check_exactly(&memory, memory.value, "what is there");
    assert_fails(mp_device_check(device, &error), MP_ELIMIT, "2057", "2056");
    device->error = (struct mp_error){0};
}

DEVICE_TEST(no_tokens_do_nothing) {
    const struct mp_attention_shape shapes[] = {{0, 16, 2, 8},  {2, 0, 2, 8},  {2, 16, 0, 8},
                                                {0, 16, 2, 64}, {2, 0, 2, 64}, {2, 16, 0, 64}};
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
        perform(device, attention_forward, &shapes[i], NULL, NULL, NULL);
        perform(device, attention_backward, &shapes[i], NULL, NULL, NULL, NULL, NULL);
    }
}

/* With as much scratch as a model of this shape gets. */
static bool prepare(const void *argument, enum mp_element element,
                    struct mp_device_limits *limits) {
    const struct attention_case *c = argument;
    limits->attention = c ? c->shape : (struct mp_attention_shape){1, 260, 1, 64};
    if (!c)
        return true;
    if (!tests_want_cuda())
        return c->shape.sequence < 1000;
    return element == MP_BFLOAT16 || !c->fused;
}

static const struct mp_device_limits limits = {.experts = 4, .width = 64, .tokens = 64};

DEVICE_PROGRAM(.limits = &limits, .has_elements = true, .prepare = prepare);
