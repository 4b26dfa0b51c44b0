/* Messages: one way between two ranks, exchanges of all, and how far they pass beside products. */
#include "profiler/record/record.h"
#include "reference/base/arena.h"
#include "reference/machine/bench.h"

enum { SIZES = 9, SIZES_QUICK = 4, SMALLEST = 256, BATCH_BYTES = 256 << 10, BATCH_MOST = 32 };
enum { PIECES = 32, OVERLAP_BYTES = 4 << 20, OVERLAP_BYTES_QUICK = 1 << 20 };
enum { PRODUCT_ROWS = 64, PRODUCT_WIDTH = 256, PRODUCT_COLUMNS = 1024 };

enum pattern { THERE, BACK, ALL };

struct traffic {
    struct bench *bench;
    struct mp_request *request;
    size_t bytes;        /* from a rank to each other one */
    int *send, *receive; /* [ranks]: rows of a float */
    bool one_way;
    int times, products; /* exchanges after another; products meanwhile */
};

/* Rows of this rank's exchange: between ranks 0 and 1 one way, or between all. */
static void fill_rows(const struct traffic *t, enum pattern pattern) {
    int rank = t->bench->comm->rank, from = pattern == BACK;
    for (int r = 0; r < t->bench->comm->ranks; r++) {
        bool sends = pattern == ALL ? r != rank : rank == from && r == 1 - from;
        bool receives = pattern == ALL ? r != rank : rank == 1 - from && r == from;
        t->send[r] = sends ? (int)(t->bytes / sizeof(float)) : 0;
        t->receive[r] = receives ? (int)(t->bytes / sizeof(float)) : 0;
    }
}

static int exchange(const struct traffic *t, enum pattern pattern, int turn,
                    struct mp_error *error) {
    size_t floats = (size_t)(t->bench->comm->ranks - 1) * t->bytes / sizeof(float);
    fill_rows(t, pattern);
    return mp_exchange_start(t->bench->comm, t->send, t->receive, sizeof(float),
                             bench_part(t->bench, 0, turn, floats),
                             bench_part(t->bench, 1, turn, floats), NULL, t->request, error);
}

static int carry(void *context, int turn, struct mp_error *error) {
    const struct traffic *t = context;
    for (int i = 0; i < t->times; i++) {
        int at = turn * t->times + i;
        MP_TRY(exchange(t, t->one_way ? THERE : ALL, at, error));
        MP_TRY(mp_request_wait(t->request, error));
        if (t->one_way)
            MP_TRY(exchange(t, BACK, at, error));
        if (t->one_way)
            MP_TRY(mp_request_wait(t->request, error));
    }
    return MP_OK;
}

/* Products in whose pauses what is in flight moves on, as between those of a grouped product. */
static int compute(void *context, int turn, struct mp_error *error) {
    const struct traffic *t = context;
    const struct bench *bench = t->bench;
    for (int i = 0; i < t->products; i++) {
        size_t rows = (size_t)PRODUCT_ROWS * PRODUCT_COLUMNS;
        float *in = bench_part(bench, 2, 2 * i, rows), *out = bench_part(bench, 2, 2 * i + 1, rows);
        float *matrix = bench_part(bench, 3, turn + i, (size_t)PRODUCT_WIDTH * PRODUCT_COLUMNS);
        bench->device->operations->gemm(bench->device, NULL, false, false, PRODUCT_ROWS,
                                        PRODUCT_WIDTH, PRODUCT_COLUMNS, 1, in, PRODUCT_COLUMNS,
                                        matrix, PRODUCT_WIDTH, 0, out, PRODUCT_WIDTH);
        MP_TRY(mp_comm_progress(bench->comm, error));
    }
    return MP_OK;
}

static int carry_and_compute(void *context, int turn, struct mp_error *error) {
    const struct traffic *t = context;
    MP_TRY(exchange(t, ALL, turn, error));
    MP_TRY(compute(context, turn, error));
    return mp_request_wait(t->request, error);
}

static int growth(const struct bench *bench) {
    return bench->settings->quick ? 16 : 4;
}

/* latency + bytes / bandwidth nearest to the exchanges: least squares of relative errors. */
static void fit_line(struct mp_machine *machine) {
    double ww = 0, wx = 0, xx = 0, w1 = 0, x1 = 0;
    for (int i = 0; i < machine->transfers; i++) {
        const struct mp_machine_transfer *at = &machine->transfer[i];
        double w = 1 / at->exchange, x = at->bytes / at->exchange;
        ww += w * w;
        wx += w * x;
        xx += x * x;
        w1 += w;
        x1 += x;
    }
    double latency = (w1 * xx - x1 * wx) / (ww * xx - wx * wx);
    double pace = (x1 * ww - w1 * wx) / (ww * xx - wx * wx);
    if (!(latency > 0)) { /* no line has it negative */
        latency = 0;
        pace = x1 / xx;
    }
    if (!(pace > 0)) {
        const struct mp_machine_transfer *last = &machine->transfer[machine->transfers - 1];
        pace = last->exchange / last->bytes;
        latency = 0;
    }
    machine->latency = latency < 1 ? latency : 1;
    machine->bandwidth = 1 / pace;
}

/* As many sizes as the memory has room for, several parts of it each. */
static int count_sizes(const struct bench *bench) {
    int count = 0, most = bench->settings->quick ? SIZES_QUICK : SIZES;
    double bytes = (double)SMALLEST * (bench->comm->ranks - 1);
    for (; count < most && bytes <= 0.5 * sizeof(float) * (double)bench->pool_floats; count++)
        bytes *= growth(bench);
    return count;
}

static int measure_sizes(struct traffic *t, struct mp_machine *machine, struct mp_error *error) {
    int count = count_sizes(t->bench);
    t->bytes = SMALLEST;
    for (int i = 0; i < count; i++) {
        struct mp_machine_transfer *at = &machine->transfer[machine->transfers++];
        at->bytes = (double)t->bytes * (machine->ranks - 1);
        t->times = (int)(BATCH_BYTES / t->bytes);
        t->times = t->times < 1 ? 1 : t->times > BATCH_MOST ? BATCH_MOST : t->times;
        t->one_way = true;
        MP_TRY(bench_time(t->bench, true, carry, t, &at->one_way, error));
        t->one_way = false;
        MP_TRY(bench_time(t->bench, true, carry, t, &at->exchange, error));
        at->one_way /= 2 * t->times;
        at->exchange /= t->times;
        t->bytes *= (size_t)growth(t->bench);
        bench_step(t->bench);
    }
    return MP_OK;
}

/* What both take together beyond the products alone is what the transfer took from them. */
static int measure_overlap(struct traffic *t, struct mp_machine *machine, struct mp_error *error) {
    double transfer, products, both, piece;
    int ranks = machine->ranks;
    t->bytes = (t->bench->settings->quick ? OVERLAP_BYTES_QUICK : OVERLAP_BYTES) /
               (size_t)(ranks - 1) / sizeof(float) * sizeof(float);
    t->times = 1;
    t->products = PIECES;
    MP_TRY(bench_time(t->bench, true, carry, t, &transfer, error));
    MP_TRY(bench_time(t->bench, true, compute, t, &piece, error));
    double wanted = 3 * transfer / (piece / PIECES); /* products for three times as long */
    if (t->bench->round == 0)                        /* all rounds time the same */
        t->bench->products = wanted < PIECES         ? PIECES
                             : wanted > 100 * PIECES ? 100 * PIECES
                                                     : (int)wanted;
    t->products = t->bench->products;
    MP_TRY(bench_time(t->bench, true, compute, t, &products, error));
    MP_TRY(bench_time(t->bench, true, carry_and_compute, t, &both, error));
    double share = (transfer + products - both) / transfer;
    machine->overlap = share < 0 ? 0 : share > 1 ? 1 : share;
    bench_step(t->bench);
    return MP_OK;
}

int machine_link_steps(const struct bench *bench) {
    return bench->comm->ranks > 1 ? count_sizes(bench) + 1 : 0;
}

int machine_links(struct bench *bench, struct mp_machine *machine, struct mp_error *error) {
    MP_AUTO(arena) struct mp_arena memory = {0};
    MP_AUTO(request) struct mp_request *request = NULL;
    MP_TRY(mp_request_create(bench->comm, 0, 0, &request, error));
    struct traffic traffic = {.bench = bench, .request = request};
    MP_TAKE_EACH(&memory, machine->ranks, traffic.send, traffic.receive);
    MP_TRY(mp_arena_check(&memory, error));
    MP_TRY(measure_sizes(&traffic, machine, error));
    fit_line(machine);
    return measure_overlap(&traffic, machine, error);
}
