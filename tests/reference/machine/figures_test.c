/* What a measurement makes of seconds: a device and links whose pace is known, in place of a clock
 * (bench_time) and of messages, so that every figure can be worked out by hand. */
#include "reference/machine/bench.h"
#include "tests/errors.h"

/* Powers of two where sums have to be exact. */
static const double GEMM_START = 1e-6, GEMM = 1e11, GEMM_TRANSPOSED = 0.5e11, GEMM_GROUPED = 0.8e11,
                    ELEMENTS = 2e10, UPDATE = 3e10, COPY_START = 0x1p-20;

static struct {
    double now, attention, copy_pace; /* s; FLOP/s; s/B */
    double (*exchange)(double bytes); /* s */
    double overlap;                   /* share of an exchange that passes beside products */
    double left;                      /* s of the one in flight */
    int turn, exchanges, products, progress, steps; /* of one figure; of all */
    int figures, exchanges_of[64], products_of[64]; /* in both turns */
    bool together;                                  /* in all of them */
    int round, chosen;                              /* products of the first one, in later ones */
    const struct bench *bench;
} fake;

/* ---- in place of measure.c ---- */

int bench_time(UNUSED struct bench *bench, bool together, bench_work *work, void *context,
               double *seconds, struct mp_error *error) {
    fake.together = fake.together && together;
    fake.now = 0;
    fake.exchanges = fake.products = fake.progress = 0;
    for (fake.turn = 0; fake.turn < 2; fake.turn++)
        assert_int_equal(work(context, fake.turn, error), MP_OK);
    *seconds = fake.now / 2;
    fake.exchanges_of[fake.figures % 64] = fake.exchanges;
    fake.products_of[fake.figures++ % 64] = fake.products;
    assert_true(fake.progress == 0 || fake.progress == fake.products);
    return MP_OK;
}

float *bench_part(const struct bench *bench, int pool, int turn, size_t floats) {
    assert_true(turn >= 0 && floats <= bench->pool_floats);
    size_t parts = bench->pool_floats / (floats ? floats : 1);
    return bench->pool[pool] + (size_t)turn % parts * floats;
}

void bench_step(struct bench *bench) {
    assert_ptr_equal(bench, fake.bench);
    fake.steps++;
}

/* ---- the device ---- */

/* One of the device's, whatever device and stream it is given. */
#define KERNEL(name, ...)                                                                          \
    static void name(UNUSED struct mp_device *device, UNUSED mp_stream stream, __VA_ARGS__)

/* Nothing that is written is anything else that is used. */
static void assert_apart(int count, const void *const at[], const size_t floats[]) {
    for (int i = 0; i < count; i++) {
        bool inside = false;
        for (int p = 0; p < 4; p++) {
            const float *pool = fake.bench->pool[p], *begin = at[i];
            inside |= begin >= pool && begin + floats[i] <= pool + fake.bench->pool_floats;
        }
        assert_true(inside);
        for (int j = 0; j < i; j++)
            assert_true((const float *)at[i] + floats[i] <= (const float *)at[j] ||
                        (const float *)at[j] + floats[j] <= (const float *)at[i]);
    }
}

KERNEL(gemm, bool transpose_a, bool transpose_b, int m, int n, int k, float alpha, const void *a,
       int lda, const void *b, int ldb, float beta, void *c, int ldc) {
    assert_false(transpose_b);
    assert_true(alpha == 1 && beta == 0);
    assert_int_equal(lda, transpose_a ? m : k);
    assert_int_equal(ldb, n);
    assert_int_equal(ldc, n);
    if (m > 1 || n > 1)
        assert_apart(
            3, (const void *[]){a, b, c},
            (const size_t[]){(size_t)m * (size_t)k, (size_t)k * (size_t)n, (size_t)m * (size_t)n});
    fake.now += GEMM_START + 2.0 * m * n * k / (transpose_a ? GEMM_TRANSPOSED : GEMM);
    fake.products++;
}

KERNEL(grouped_gemm, enum mp_grouped_gemm kind, int groups, const int rows[], int columns_in,
       int columns_out, void *in, void *const weight[], void *out, bool accumulate) {
    assert_int_not_equal(kind, MP_GROUPED_WEIGHT_GRADIENT);
    assert_int_equal(groups, 1);
    assert_false(accumulate);
    size_t t = (size_t)rows[0], wide = (size_t)columns_in, other = (size_t)columns_out;
    assert_apart(3, (const void *[]){in, weight[0], out},
                 (const size_t[]){t * wide, wide * other, t * other});
    /* The narrower side lies where narrow rows do. */
    assert_int_equal(columns_in < columns_out, (const float *)in < fake.bench->pool[1]);
    fake.now += GEMM_START + 2.0 * rows[0] * columns_in * columns_out /
                                 (kind == MP_GROUPED_FORWARD ? GEMM : GEMM_GROUPED);
}

KERNEL(copy, void *to, const void *from, size_t bytes) {
    assert_apart(2, (const void *[]){to, from}, (const size_t[]){bytes / 4, bytes / 4});
    fake.now += COPY_START + (double)bytes * fake.copy_pace;
}

KERNEL(zero, void *memory, size_t bytes) {
    assert_ptr_equal(memory, fake.bench->pool[3]);
    assert_int_equal(bytes, fake.bench->pool_floats * sizeof(float));
}

static void add_elements(size_t count, int times) {
    fake.now += 4.0 * (double)count * times / ELEMENTS;
}

static size_t tokens(void) {
    return fake.bench->settings->quick ? 256 : 1024;
}

KERNEL(gelu_forward, size_t count, const void *x, void *y) {
    assert_int_equal(count, tokens() * 1024);
    assert_apart(2, (const void *[]){x, y}, (const size_t[]){count, count});
    add_elements(count, 2);
}

KERNEL(gelu_backward, size_t count, const void *x, const void *dy, void *dx, void *y) {
    assert_int_equal(count, tokens() * 1024);
    assert_ptr_equal(dy, dx);
    assert_apart(3, (const void *[]){x, dx, y}, (const size_t[]){count, count, count});
    add_elements(count, 3);
}

KERNEL(layer_norm_forward, int rows, int width, const void *x, const float *gain,
       UNUSED const float *bias, void *y, float *mean, float *rstd) {
    size_t n = (size_t)rows, count = n * (size_t)width;
    assert_int_equal(count, tokens() * 256);
    assert_apart(5, (const void *[]){x, gain, y, mean, rstd},
                 (const size_t[]){count, (size_t)width, count, n, n});
    add_elements(count, 2);
}

KERNEL(layer_norm_backward, int rows, int width, const void *x, const float *gain,
       const float *mean, const float *rstd, const void *dy, void *dx, float *dgain, float *dbias) {
    size_t n = (size_t)rows, wide = (size_t)width, count = n * wide;
    assert_int_equal(count, tokens() * 256);
    assert_apart(8, (const void *[]){x, gain, mean, rstd, dy, dx, dgain, dbias},
                 (const size_t[]){count, wide, n, n, count, count, wide, wide});
    add_elements(count, 4);
}

KERNEL(add, size_t count, const float *a, const float *b, float *out) {
    assert_int_equal(count, tokens() * 256);
    assert_apart(3, (const void *[]){a, b, out}, (const size_t[]){count, count, count});
    add_elements(count, 3);
}

KERNEL(adamw, size_t count, const struct mp_adamw *settings, float *parameter,
       const float *gradient, float *first, float *second, void *working) {
    assert_null(working);
    assert_true(settings->step >= 1 && settings->step <= 2);
    assert_apart(4, (const void *[]){parameter, gradient, first, second},
                 (const size_t[]){count, count, count, count});
    assert_true(second >= fake.bench->pool[3]); /* where zeros are */
    assert_int_equal(count, fake.bench->pool_floats / 4);
    fake.now += 28.0 * (double)count / UPDATE;
}

/* A product of queries, keys or values: 2 S S D a sequence, of which half is masked. */
static void add_attention(const struct mp_attention_shape *shape, int products) {
    assert_int_equal(shape->batch, fake.bench->settings->quick ? 1 : 8);
    assert_int_equal(shape->sequence, 128);
    fake.now += products * (double)shape->batch * shape->sequence * shape->sequence * shape->heads *
                shape->head_width / fake.attention;
}

KERNEL(attention_forward, const struct mp_attention_shape *shape, const void *qkv, void *out,
       float *logsumexp) {
    size_t n = (size_t)(shape->batch * shape->sequence),
           width = (size_t)(shape->heads * shape->head_width);
    assert_apart(3, (const void *[]){qkv, out, logsumexp},
                 (const size_t[]){3 * n * width, n * width, n * (size_t)shape->heads});
    assert_ptr_equal(out, bench_part(fake.bench, 2, fake.turn, 3 * n * width));
    add_attention(shape, 2);
}

KERNEL(attention_backward, const struct mp_attention_shape *shape, const void *qkv, const void *out,
       const float *logsumexp, const void *dout, void *dqkv) {
    size_t n = (size_t)(shape->batch * shape->sequence),
           width = (size_t)(shape->heads * shape->head_width);
    assert_apart(5, (const void *[]){qkv, out, logsumexp, dout, dqkv},
                 (const size_t[]){3 * n * width, n * width, n * (size_t)shape->heads, n * width,
                                  3 * n * width});
    add_attention(shape, 5);
}

static const struct mp_device_operations operations = {.gemm = gemm,
                                                       .grouped_gemm = grouped_gemm,
                                                       .copy = copy,
                                                       .zero = zero,
                                                       .gelu_forward = gelu_forward,
                                                       .gelu_backward = gelu_backward,
                                                       .layer_norm_forward = layer_norm_forward,
                                                       .layer_norm_backward = layer_norm_backward,
                                                       .add = add,
                                                       .adamw = adamw,
                                                       .attention_forward = attention_forward,
                                                       .attention_backward = attention_backward};

/* ---- in place of comm ---- */

int mp_request_create(UNUSED struct mp_comm *comm, UNUSED int transfers, UNUSED size_t chunk_bytes,
                      struct mp_request **request, UNUSED struct mp_error *error) {
    *request = NULL;
    return MP_OK;
}

void mp_request_destroy(UNUSED struct mp_request *request) {}

/* One way: ranks 0 and 1 alone, there and back.  Else every rank and each other one. */
int mp_exchange_start(struct mp_comm *comm, const int *send_rows, const int *receive_rows,
                      size_t row_bytes, const void *send, void *receive, UNUSED mp_stream stream,
                      UNUSED struct mp_request *request, UNUSED struct mp_error *error) {
    double sent = 0, received = 0;
    assert_true(fake.left == 0);
    for (int r = 0; r < comm->ranks; r++) {
        assert_true(r != comm->rank || (send_rows[r] == 0 && receive_rows[r] == 0));
        sent += (double)row_bytes * send_rows[r];
        received += (double)row_bytes * receive_rows[r];
    }
    if (sent != received) { /* one way */
        bool back = fake.exchanges % 2;
        assert_int_equal(sent > 0, comm->rank == (back ? 1 : 0));
        assert_int_equal(received > 0, comm->rank == (back ? 0 : 1));
        assert_true(sent + received ==
                    (double)row_bytes * (send_rows[1 - comm->rank] + receive_rows[1 - comm->rank]));
    } else
        for (int r = 1; r < comm->ranks; r++)
            assert_true(send_rows[(comm->rank + r) % comm->ranks] * (comm->ranks - 1.0) *
                            (double)row_bytes ==
                        sent);
    if (sent + received > 0)
        assert_apart(2, (const void *[]){send, receive},
                     (const size_t[]){(size_t)sent / 4, (size_t)received / 4});
    fake.left = fake.exchange(fmax(sent, received));
    fake.exchanges++;
    return MP_OK;
}

int mp_comm_progress(UNUSED struct mp_comm *comm, UNUSED struct mp_error *error) {
    fake.progress++;
    return MP_OK;
}

int mp_request_wait(UNUSED struct mp_request *request, UNUSED struct mp_error *error) {
    fake.now += fake.left * (fake.progress ? 1 - fake.overlap : 1);
    fake.left = 0;
    return MP_OK;
}

/* ---- tests ---- */

static float *memory;

static struct bench make_bench(struct mp_comm *comm, struct mp_device *device,
                               const struct mp_machine_settings *settings) {
    size_t floats = settings->quick ? 1 << 23 : 1 << 24;
    return (struct bench){
        .comm = comm,
        .device = device,
        .settings = settings,
        .round = fake.round,
        .products = fake.chosen,
        .pool_floats = floats,
        .pool = {memory, memory + floats, memory + 2 * floats, memory + 3 * floats}};
}

/* Seconds of a product beside its launch; a shorter one than that is said to take half of all. */
static double beside(double seconds) {
    double launch = GEMM_START + 2 / GEMM;
    return GEMM_START + seconds - launch > launch ? GEMM_START + seconds - launch
                                                  : (GEMM_START + seconds) / 2;
}

static const struct {
    const char *name;
    bool quick;
} speeds[] = {{"thorough", false}, {"quick", true}};

TEST_EACH(products_by_tokens_and_width, speeds, speed) {
    const struct mp_machine_settings settings = {.quick = speed->quick};
    static const int tokens_of[] = {1, 4, 16, 64, 256, 1024, 4096},
                     widths[] = {16, 32, 64, 128, 256, 512, 1024};
    int points = settings.quick ? 3 : 7, step = settings.quick ? 2 : 1;
    double pace[2][7][7], peak = 0;
    struct mp_comm comm = {.ranks = 1};
    struct mp_device device = {.operations = &operations};
    struct bench bench = make_bench(&comm, &device, &settings);
    struct mp_machine machine = {.ranks = 1};
    fake.bench = &bench;
    fake.steps = 0;
    machine_choose_sizes(&bench, &machine);
    assert_numbers(machine.rows, points, machine.columns, points);
    assert_int_equal(machine_product_steps(&machine), points * points);
    assert_works(machine_products(&bench, &machine, &error));
    assert_int_equal(fake.steps, points * points);
    assert_close(machine.launch, GEMM_START + 2 / GEMM, 1e-12);
    for (int i = 0; i < points; i++)
        for (int j = 0; j < points; j++) {
            int t = tokens_of[i * step], w = widths[j * step], c = w < 512 ? 1024 : 2 * w;
            double work = 2.0 * t * w * c, sum[2] = {0};
            int kinds[2] = {0};
            assert_true(machine.tokens[i] == t && machine.width[j] == w);
            if (w >= 64 || t < 64) { /* no model is narrower; of few tokens there is nothing else */
                double forward = beside(work / GEMM), gradient = beside(work / GEMM_GROUPED);
                sum[0] += 2 * forward;
                sum[1] += 2 * gradient;
                kinds[0] += 2;
                kinds[1] += 2;
                peak = fmax(peak, work / fmin(forward, gradient));
            }
            if (t >= 64) { /* as a weight gradient of a model so wide */
                double weights = beside(work / GEMM_TRANSPOSED);
                sum[1] += weights;
                kinds[1]++;
                peak = fmax(peak, work / weights);
            }
            for (int way = 0; way < 2; way++) { /* the other's where it has none */
                int from = kinds[way] ? way : 1 - way;
                pace[way][i][j] = sum[from] / kinds[from] / work;
            }
        }
    assert_close(machine.peak, peak, 1e-9);
    for (int way = 0; way < 2; way++)
        for (int i = 0; i < points; i++)
            for (int j = 0; j < points; j++)
                assert_close(machine.share[way][i][j], 1 / (pace[way][i][j] * peak), 1e-9);
}

static void measure_kernels(const struct mp_machine_settings *settings,
                            struct mp_machine *machine) {
    struct mp_comm comm = {.ranks = 1};
    struct mp_device device = {.operations = &operations};
    struct bench bench = make_bench(&comm, &device, settings);
    fake.bench = &bench;
    fake.steps = 0;
    *machine = (struct mp_machine){.peak = 1e11};
    assert_works(machine_kernels(&bench, machine, &error));
    assert_int_equal(fake.steps, MACHINE_KERNEL_STEPS);
}

TEST_EACH(kernels_by_their_bytes, speeds, speed) {
    const struct mp_machine_settings settings = {.quick = speed->quick};
    struct mp_machine machine;
    double large = settings.quick ? 0x1p25 : 0x1p26; /* B of a buffer */
    fake.copy_pace = 0x1p-33;
    fake.attention = 0.25e11;
    measure_kernels(&settings, &machine);
    assert_all_close(1e-12, machine.elementwise, ELEMENTS, machine.update, UPDATE);
    assert_close(machine.attention, 0.25, 1e-12);
    assert_close(machine.memory_bandwidth, 2 * large / (COPY_START + large * 0x1p-33), 1e-12);
    assert_close(machine.copy_latency, COPY_START + 64 * 0x1p-33, 1e-12);
    assert_close(machine.copy_bandwidth, 0x1p21 / ((0x1p21 - 64) * 0x1p-33), 1e-12);
    /* Copies that all take the same, and attention that is faster than any product. */
    fake.copy_pace = 0;
    fake.attention = 1.5e11;
    measure_kernels(&settings, &machine);
    assert_close(machine.copy_latency, COPY_START, 0);
    assert_close(machine.copy_bandwidth, 0x1p21 / COPY_START, 1e-12);
    assert_close(machine.attention, 1, 0);
}

static void measure_links(int ranks, int rank, bool quick, double (*exchange)(double bytes),
                          struct mp_machine *machine) {
    const struct mp_machine_settings settings = {.quick = quick};
    struct mp_comm comm = {.ranks = ranks, .rank = rank};
    struct mp_device device = {.operations = &operations};
    struct bench bench = make_bench(&comm, &device, &settings);
    fake.bench = &bench;
    fake.steps = fake.figures = 0;
    fake.together = true;
    fake.exchange = exchange;
    *machine = (struct mp_machine){.ranks = ranks};
    assert_works(machine_links(&bench, machine, &error));
    assert_numbers(fake.steps, machine_link_steps(&bench), fake.steps, machine->transfers + 1);
    assert_int_equal(fake.figures, 2 * machine->transfers + 4);
    assert_true(fake.together);
}

static double straight(double bytes) {
    return 3e-5 + bytes / 2e9;
}

TEST(links_by_a_line) {
    static const struct {
        int ranks, rank, sizes;
        bool quick;
    } cases[] = {{2, 0, 9, false}, {2, 1, 9, false}, {3, 2, 9, false},
                 {4, 1, 8, false}, {4, 0, 4, true},  {9, 3, 4, true}};
    fake.overlap = 0.75;
    for (size_t c = 0; c < sizeof cases / sizeof *cases; c++) {
        struct mp_machine machine;
        double bytes = 256;
        measure_links(cases[c].ranks, cases[c].rank, cases[c].quick, straight, &machine);
        assert_int_equal(machine.transfers, cases[c].sizes);
        assert_all_close(1e-9, machine.latency, 3e-5, machine.bandwidth, 2e9);
        assert_close(machine.overlap, 0.75, 1e-9);
        for (int i = 0; i < machine.transfers; i++, bytes *= cases[c].quick ? 16 : 4) {
            const struct mp_machine_transfer *at = &machine.transfer[i];
            bool takes_part = cases[c].rank < 2;
            assert_true(at->bytes == bytes * (cases[c].ranks - 1));
            assert_close(at->one_way, straight(takes_part ? bytes : 0), 1e-12);
            assert_close(at->exchange, straight(at->bytes), 1e-12);
        }
    }
}

static double slower(double bytes) {
    return 3e-5 + bytes / 2e8;
}

static double slow(double bytes) {
    return 1.5 + bytes / 1e7;
}

/* Small messages many at once, and products for three times as long as 4 MiB (quick: 1 MiB) take:
 * each begins and computes 64 x 256 x 1024. */
TEST(repetitions_suit_the_size) {
    static const int times[] = {32, 32, 32, 16, 4, 1, 1, 1, 1};
    double product = GEMM_START + 2.0 * 64 * 256 * 1024 / GEMM;
    struct mp_machine machine;
    measure_links(2, 0, false, slower, &machine);
    for (int i = 0; i < 9; i++) {
        assert_int_equal(fake.exchanges_of[2 * i], 2 * 2 * times[i]); /* there and back, twice */
        assert_int_equal(fake.exchanges_of[2 * i + 1], 2 * times[i]);
    }
    int products = (int)(3 * slower(4 << 20) / product);
    const int exchanges[] = {2, 0, 0, 2}, multiplied[] = {0, 64, 2 * products, 2 * products};
    assert_in_range(products, 33, 3199);
    assert_memory_equal(fake.exchanges_of + 18, exchanges, sizeof exchanges);
    assert_memory_equal(fake.products_of + 18, multiplied, sizeof multiplied);
    measure_links(4, 0, true, slower, &machine); /* 1 MiB / 3, down to whole floats */
    products = (int)(3 * slower(349524 * 3) / product);
    assert_in_range(products, 33, 3199);
    assert_int_equal(fake.products_of[10], 2 * products);
    measure_links(2, 0, false, straight, &machine);
    assert_int_equal(fake.products_of[20], 2 * 32);
    measure_links(2, 0, false, slow, &machine);
    assert_int_equal(fake.products_of[20], 2 * 3200);
    /* A later round has as many as the first. */
    fake.round = 1;
    fake.chosen = 77;
    measure_links(2, 0, false, slow, &machine);
    assert_int_equal(fake.products_of[20], 2 * 77);
    fake.round = 0;
}

TEST(overlap_is_a_share) {
    struct mp_machine machine;
    fake.overlap = -0.5;
    measure_links(2, 0, true, straight, &machine);
    assert_close(machine.overlap, 0, 0);
    fake.overlap = 1.5;
    measure_links(2, 0, true, straight, &machine);
    assert_close(machine.overlap, 1, 0);
    fake.overlap = 0;
}

/* Sum of squared relative distances of the exchanges from a line. */
static double distance(const struct mp_machine *machine, double latency, double pace) {
    double sum = 0;
    for (int i = 0; i < machine->transfers; i++) {
        const struct mp_machine_transfer *at = &machine->transfer[i];
        sum += pow((latency + pace * at->bytes) / at->exchange - 1, 2);
    }
    return sum;
}

static double curved(double bytes) {
    return 3e-5 + bytes / 2e9 + 1e-7 * sqrt(bytes);
}

static double steepening(double bytes) {
    return 1e-12 * bytes * sqrt(bytes);
}

static double falling(double bytes) {
    return 1 / (1 + bytes);
}

TEST(the_line_is_the_nearest) {
    struct mp_machine machine;
    measure_links(2, 0, false, curved, &machine);
    double pace = 1 / machine.bandwidth, least = distance(&machine, machine.latency, pace);
    assert_true(least > 1e-6);
    for (int sign = -1; sign <= 1; sign += 2) {
        assert_true(distance(&machine, machine.latency * (1 + 1e-3 * sign), pace) > least);
        assert_true(distance(&machine, machine.latency, pace * (1 + 1e-3 * sign)) > least);
    }
    /* The nearest would begin below 0: the nearest that begins at 0. */
    measure_links(2, 0, false, steepening, &machine);
    pace = 1 / machine.bandwidth;
    least = distance(&machine, 0, pace);
    assert_close(machine.latency, 0, 0);
    assert_true(distance(&machine, 0, 1.001 * pace) > least);
    assert_true(distance(&machine, 0, 0.999 * pace) > least);
    /* More bytes in less time: the largest exchange alone says how fast. */
    measure_links(2, 0, false, falling, &machine);
    assert_close(machine.latency, 0, 0);
    assert_close(machine.bandwidth, 0x1p24 * (1 + 0x1p24), 1e-9);
    /* No cluster file has more than a second. */
    measure_links(2, 0, false, slow, &machine);
    assert_close(machine.latency, 1, 0);
    assert_close(machine.bandwidth, 1e7, 1e-9);
}

TEST_STEP(enter) {
    memory = malloc(sizeof *memory << 26); /* never touched */
    return memory ? 0 : 1;
}

TEST_STEP(leave) {
    free(memory);
    return 0;
}

TEST_GROUP(enter, leave);
