/* What attention hides of a transfer on processors: spAG under its forward, spRS under its
 * backward.
 *
 * Transfers move on when their rank lets them, so with pauses inside attention or without makes the
 * difference.  Four ways take turns in every round, each between two barriers, so that a busy
 * machine disturbs all alike: attention alone, the transfer alone, one under the other with
 * progress only after attention, and with progress in its pauses.  Times are the slowest rank's,
 * figures medians over rounds.  The work of moving bytes is the ranks' own: what is hidden is
 * waiting. */
#include <stdlib.h>

#include "profiler/record/record.h"
#include "reference/base/random.h"
#include "reference/comm/comm.h"
#include "tests/bench/bench.h"

enum way { ATTENTION, TRANSFER, AFTER, PAUSES, WAYS };

struct overlap {
    struct mp_comm *comm;
    struct mp_device *device;
    struct mp_attention_shape shape;
    int experts, rounds;
    size_t bytes;
    float **chunk; /* [experts] */
    float *qkv, *out, *logsumexp, *dqkv;
    struct mp_transfers fetch, reduce;
    struct mp_request *request;
    double *total[WAYS], *wait[WAYS], *ratio; /* [rounds], s */
    struct mp_error progress;                 /* first failure in a pause */
};

/* Experts dealt out over the ranks, every one copied to all. */
static int make_lists(struct overlap *o, struct mp_error *error) {
    int code = MP_OK;
    for (int e = 0; e < o->experts; e++)
        for (int r = 0; code == MP_OK && r < o->comm->ranks; r++) {
            struct mp_transfer fetch = {.expert = e,
                                        .from = e % o->comm->ranks,
                                        .to = r,
                                        .bytes = (int64_t)o->bytes,
                                        .stage = MP_STAGE_BEFORE_GATE};
            struct mp_transfer reduce = fetch;
            reduce.from = r;
            reduce.to = fetch.from;
            reduce.stage = MP_STAGE_BACKWARD_REDUCE;
            if (r != fetch.from)
                code = mp_transfers_add(&o->fetch, fetch, error);
            if (r != fetch.from && code == MP_OK)
                code = mp_transfers_add(&o->reduce, reduce, error);
        }
    return code;
}

static int start(struct overlap *o, bool backward, struct mp_error *error) {
    if (backward)
        return mp_sparse_reduce_scatter_start(o->comm, &o->reduce, o->experts, o->chunk, o->bytes,
                                              NULL, o->request, error);
    return mp_sparse_all_gather_start(o->comm, &o->fetch, MP_STAGE_BEFORE_GATE, o->experts,
                                      (void *const *)o->chunk, o->bytes, NULL, o->request, error);
}

static void attend(struct overlap *o, bool backward) {
    if (backward)
        o->device->operations->attention_backward(o->device, NULL, &o->shape, o->qkv, o->out,
                                                  o->logsumexp, o->out, o->dqkv);
    else
        o->device->operations->attention_forward(o->device, NULL, &o->shape, o->qkv, o->out,
                                                 o->logsumexp);
}

static void move_on(void *context) {
    struct overlap *o = context;
    if (!o->progress.code)
        mp_comm_progress(o->comm, &o->progress);
}

/* seconds[0]: all of it; [1]: the wait for the transfer.  Of the slowest rank. */
static int run_way(struct overlap *o, enum way way, bool backward, double seconds[2],
                   struct mp_error *error) {
    int code = mp_comm_barrier(o->comm, error);
    int64_t begin_ns = mp_clock_ns();
    if (!code && way != ATTENTION)
        code = start(o, backward, error);
    o->device->between = way == PAUSES ? move_on : NULL;
    o->device->between_context = o;
    if (!code && way != TRANSFER)
        attend(o, backward);
    o->device->between = NULL;
    int64_t wait_ns = mp_clock_ns();
    if (!code)
        code = mp_request_wait(o->request, error);
    seconds[0] = 1e-9 * (double)(mp_clock_ns() - begin_ns);
    seconds[1] = 1e-9 * (double)(mp_clock_ns() - wait_ns);
    if (!code && o->progress.code)
        code = mp_fail(error, o->progress.code, "%s", o->progress.text);
    return code ? code : mp_comm_maximum(o->comm, seconds, 2, error);
}

static int measure(struct overlap *o, bool backward, json_t *table, struct mp_error *error) {
    int code = MP_OK;
    for (int round = -1; !code && round < o->rounds; round++) /* the first to warm up */
        for (int turn = 0; !code && turn < WAYS; turn++) {
            const enum way way = (round + 1 + turn) % WAYS;
            double seconds[2];
            code = run_way(o, way, backward, seconds, error);
            if (round < 0)
                continue;
            o->total[way][round] = seconds[0];
            o->wait[way][round] = seconds[1];
        }
    for (int round = 0; !code && round < o->rounds; round++)
        o->ratio[round] = o->wait[PAUSES][round] / o->wait[AFTER][round];
    if (code)
        return code;
    double total[WAYS], wait[WAYS];
    const double ratio = mp_bench_median(o->ratio, o->rounds);
    for (int way = 0; way < WAYS; way++) {
        total[way] = 1e3 * mp_bench_median(o->total[way], o->rounds);
        wait[way] = 1e3 * mp_bench_median(o->wait[way], o->rounds);
    }
    json_t *row = json_pack("{s:s, s:f, s:f, s:f, s:f, s:f, s:f, s:f}", "transfer",
                            backward ? "spRS" : "spAG", "attention_ms", total[ATTENTION],
                            "transfer_ms", total[TRANSFER], "wait_after_ms", wait[AFTER],
                            "wait_pauses_ms", wait[PAUSES], "wait_ratio", ratio, "both_after_ms",
                            total[AFTER], "both_pauses_ms", total[PAUSES]);
    return json_array_append_new(table, row) ? mp_fail(error, MP_ENOMEM, "overlap: no memory")
                                             : MP_OK;
}

static float *numbers(struct overlap *o, size_t count, uint64_t seed) {
    float *made = o->device->operations->allocate(o->device, count * sizeof *made);
    if (made)
        mp_random_normal(1, seed, 1, count, made);
    return made;
}

static int allocate(struct overlap *o, struct mp_error *error) {
    const size_t tokens = (size_t)o->shape.batch * (size_t)o->shape.sequence;
    const size_t width = (size_t)o->shape.heads * (size_t)o->shape.head_width;
    bool complete = (o->chunk = calloc((size_t)o->experts, sizeof *o->chunk)) != NULL;
    for (int e = 0; complete && e < o->experts; e++)
        complete = (o->chunk[e] = numbers(o, o->bytes / sizeof(float), (uint64_t)e)) != NULL;
    for (int way = 0; complete && way < WAYS; way++) {
        o->total[way] = malloc((size_t)o->rounds * sizeof(double));
        o->wait[way] = malloc((size_t)o->rounds * sizeof(double));
        complete = o->total[way] && o->wait[way];
    }
    o->ratio = malloc((size_t)o->rounds * sizeof(double));
    o->qkv = numbers(o, 3 * tokens * width, 101);
    o->dqkv = numbers(o, 3 * tokens * width, 102);
    o->out = numbers(o, tokens * width, 103);
    o->logsumexp = numbers(o, tokens * (size_t)o->shape.heads, 104);
    if (!complete || !o->ratio || !o->qkv || !o->dqkv || !o->out || !o->logsumexp)
        return mp_fail(error, MP_ENOMEM, "overlap: no memory for %d chunks of %zu bytes",
                       o->experts, o->bytes);
    return mp_request_create(o->comm, o->experts * o->comm->ranks, o->bytes, &o->request, error);
}

static void release(struct overlap *o) {
    mp_request_destroy(o->request);
    mp_transfers_destroy(&o->fetch);
    mp_transfers_destroy(&o->reduce);
    if (o->device) {
        float *const arrays[] = {o->qkv, o->dqkv, o->out, o->logsumexp};
        for (size_t i = 0; i < sizeof arrays / sizeof *arrays; i++)
            o->device->operations->release(o->device, arrays[i]);
        for (int e = 0; o->chunk && e < o->experts; e++)
            o->device->operations->release(o->device, o->chunk[e]);
    }
    free(o->chunk);
    for (int way = 0; way < WAYS; way++) {
        free(o->total[way]);
        free(o->wait[way]);
    }
    free(o->ratio);
    mp_comm_destroy(o->comm);
    mp_device_destroy(o->device);
}

static int run_both(struct overlap *o, json_t *result, struct mp_error *error) {
    if (o->comm->ranks < 2)
        return mp_fail(error, MP_EINVAL,
                       "overlap needs two ranks or more: mpirun -n 2 moeperf-bench overlap");
    json_t *table = json_array();
    bool shared = false;
    char text[256];
    int code = table ? allocate(o, error) : mp_fail(error, MP_ENOMEM, "overlap: no memory");
    if (code == MP_OK)
        code = make_lists(o, error);
    for (int backward = 0; code == MP_OK && backward < 2; backward++)
        code = measure(o, backward, table, error);
    if (code == MP_OK)
        code = mp_comm_describe(o->comm, text, sizeof text, &shared, error);
    if (code == MP_OK && o->comm->rank == 0 &&
        json_object_update_new(result, json_pack("{s:s, s:i, s:b, s:i, s:I, s:O}", "library", text,
                                                 "ranks", o->comm->ranks, "ranks_share_cores",
                                                 shared, "experts", o->experts, "bytes_per_expert",
                                                 (json_int_t)o->bytes, "transfers", table)))
        code = mp_fail(error, MP_ENOMEM, "overlap: no memory for the result");
    json_decref(table);
    return code;
}

static int run(int argc, char **argv, json_t *result, struct mp_error *error) {
    long experts = 8, kibibytes = 2048, sequence = 1024, heads = 4, threads = 1, rounds = 24;
    const struct mp_bench_option options[] = {
        {"experts", &experts, 1, 4096},
        {"chunk-kib", &kibibytes, 1, 1 << 20},
        {"sequence", &sequence, 1, 1 << 16},
        {"heads", &heads, 1, 256},
        {"threads", &threads, 1, 256},
        {"rounds", &rounds, 1, 100000},
        {0},
    };
    int code = mp_bench_options(argc, argv, options, error);
    if (code)
        return code;
    struct overlap o = {.shape = {1, (int)sequence, (int)heads, 64},
                        .experts = (int)experts,
                        .rounds = (int)rounds,
                        .bytes = (size_t)kibibytes << 10};
    const struct mp_device_limits limits = {.attention = o.shape, .width = 64};
    code = mp_device_cpu_create((int)threads, &limits, &o.device, error);
    if (code == MP_OK)
        code = mp_comm_mpi_create(o.device, &o.comm, error);
    if (code == MP_OK)
        code = run_both(&o, result, error);
    release(&o);
    return code;
}

const struct mp_bench mp_bench_overlap = {
    .name = "overlap",
    .help = "what attention hides of spAG and spRS on processors; run it under mpirun\n"
            "  --experts N    chunks that travel to all ranks, 8 unless given\n"
            "  --chunk-kib N  size of each, 2048 unless given\n"
            "  --sequence N   tokens of each rank, 1024 unless given\n"
            "  --heads N      of 64 columns, 4 unless given\n"
            "  --threads N    of each rank, 1 unless given\n"
            "  --rounds N     measurements of each way, 24 unless given\n",
    .run = run,
};
