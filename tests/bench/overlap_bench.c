/* What attention hides of a transfer on processors: spAG under its forward, spRS under its
 * backward.
 *
 * Transfers move on when their rank lets them, so with pauses inside attention or without makes the
 * difference.  Four ways take turns in every round, each between two barriers, so that a busy
 * machine disturbs all alike: attention alone, the transfer alone, one under the other with
 * progress only after attention, and with progress in its pauses.  Times are the slowest rank's,
 * figures medians over rounds.  The work of moving bytes is the ranks' own: what is hidden is
 * waiting. */
#include "profiler/record/record.h"
#include "reference/base/median.h"
#include "reference/base/random.h"
#include "reference/device/memory.h"
#include "tests/bench/comm_bench.h"

enum way { ATTENTION, TRANSFER, AFTER, PAUSES, WAYS };

struct overlap {
    struct bench_chunks chunks; /* dealt out, every one copied to all */
    struct mp_device *device;
    struct mp_device_memory memory;
    struct mp_attention_shape shape;
    int rounds;
    float *qkv, *out, *logsumexp, *dqkv;
    double *total[WAYS], *wait[WAYS], *ratio; /* [rounds], s */
    struct mp_error progress;                 /* first failure in a pause */
};

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
        mp_comm_progress(o->chunks.comm, &o->progress);
}

/* seconds[0]: all of it; [1]: the wait for the transfer.  Of the slowest rank. */
static int run_way(struct overlap *o, enum way way, bool backward, double seconds[2],
                   struct mp_error *error) {
    MP_TRY(mp_comm_barrier(o->chunks.comm, error));
    int64_t begin_ns = mp_clock_ns();
    if (way != ATTENTION)
        MP_TRY(bench_chunks_start(&o->chunks, backward, error));
    o->device->between = way == PAUSES ? move_on : NULL;
    o->device->between_context = o;
    if (way != TRANSFER)
        attend(o, backward);
    o->device->between = NULL;
    int64_t wait_ns = mp_clock_ns();
    MP_TRY(mp_request_wait(o->chunks.request, error));
    seconds[0] = 1e-9 * (double)(mp_clock_ns() - begin_ns);
    seconds[1] = 1e-9 * (double)(mp_clock_ns() - wait_ns);
    if (o->progress.code)
        return mp_fail(error, o->progress.code, "%s", o->progress.text);
    return mp_comm_maximum(o->chunks.comm, seconds, 2, error);
}

static int measure(struct overlap *o, bool backward, struct mp_error *error) {
    for (int round = -1; round < o->rounds; round++) /* the first to warm up */
        for (int turn = 0; turn < WAYS; turn++) {
            const enum way way = (round + 1 + turn) % WAYS;
            double seconds[2];
            MP_TRY(run_way(o, way, backward, seconds, error));
            if (round < 0)
                continue;
            o->total[way][round] = seconds[0];
            o->wait[way][round] = seconds[1];
        }
    for (int round = 0; round < o->rounds; round++)
        o->ratio[round] = o->wait[PAUSES][round] / o->wait[AFTER][round];
    return MP_OK;
}

static int add_row(struct overlap *o, bool backward, json_t *table, struct mp_error *error) {
    double total[WAYS], wait[WAYS];
    const double ratio = mp_median_of(o->ratio, o->rounds);
    for (int way = 0; way < WAYS; way++) {
        total[way] = 1e3 * mp_median_of(o->total[way], o->rounds);
        wait[way] = 1e3 * mp_median_of(o->wait[way], o->rounds);
    }
    return mp_bench_add_row(table,
                            json_pack("{s:s, s:f, s:f, s:f, s:f, s:f, s:f, s:f}", "transfer",
                                      backward ? "spRS" : "spAG", "attention_ms", total[ATTENTION],
                                      "transfer_ms", total[TRANSFER], "wait_after_ms", wait[AFTER],
                                      "wait_pauses_ms", wait[PAUSES], "wait_ratio", ratio,
                                      "both_after_ms", total[AFTER], "both_pauses_ms",
                                      total[PAUSES]),
                            error);
}

static int allocate(struct overlap *o, struct mp_error *error) {
    const int64_t tokens = (int64_t)o->shape.batch * o->shape.sequence;
    const int64_t width = (int64_t)o->shape.heads * o->shape.head_width;
    const struct {
        float **array;
        int64_t count;
    } wanted[] = {{&o->qkv, 3 * tokens * width},
                  {&o->dqkv, 3 * tokens * width},
                  {&o->out, tokens * width},
                  {&o->logsumexp, tokens * o->shape.heads}};
    for (size_t i = 0; i < sizeof wanted / sizeof *wanted; i++) {
        float *made = *wanted[i].array = mp_device_take(&o->memory, wanted[i].count, sizeof *made);
        if (!made)
            return mp_fail(error, MP_ENOMEM, "overlap: no memory for %lld tokens",
                           (long long)tokens);
        mp_random_normal(1, 101 + i, 1, (size_t)wanted[i].count, made);
    }
    for (int way = 0; way < WAYS; way++)
        MP_TAKE_EACH(&o->chunks.arena, o->rounds, o->total[way], o->wait[way]);
    MP_TAKE(&o->chunks.arena, o->ratio, o->rounds);
    return mp_arena_check(&o->chunks.arena, error);
}

static const struct mp_option overlap_options[] = {
    MP_BENCH_NUMBER("experts", experts, "8", 1, 4096, "chunks that travel to all ranks"),
    MP_BENCH_NUMBER("chunk-kib", chunk_kib, "2048", 1, 1 << 20, "size of each"),
    MP_BENCH_NUMBER("sequence", sequence, "1024", 1, 1 << 16, "tokens of each rank"),
    MP_BENCH_NUMBER("heads", heads, "4", 1, 256, "of 64 columns"),
    MP_BENCH_NUMBER("threads", threads, "1", 1, 256, "of each rank"),
    MP_BENCH_NUMBER("rounds", rounds, "24", 1, 100000, "measurements of each way"),
    {0},
};

static int run_both(struct overlap *o, int threads, json_t *table, json_t *result,
                    struct mp_error *error) {
    const struct mp_device_limits limits = {.attention = o->shape, .width = 64};
    MP_TRY(mp_device_cpu_create(threads, &limits, &o->device, error));
    o->memory.device = o->device;
    MP_TRY(bench_chunks_create(&o->chunks, "overlap", o->device, error));
    MP_TRY(allocate(o, error));
    MP_TRY(bench_chunks_list(&o->chunks, true, error));
    for (int backward = 0; backward < 2; backward++) {
        MP_TRY(measure(o, backward, error));
        MP_TRY(add_row(o, backward, table, error));
    }
    return bench_chunks_report(&o->chunks, "transfers", table, result, error);
}

static int run(const struct mp_bench_options *options, json_t *result, struct mp_error *error) {
    struct overlap o = {
        .chunks = {.experts = options->experts, .bytes = (size_t)options->chunk_kib << 10},
        .shape = {1, options->sequence, options->heads, 64},
        .rounds = options->rounds};
    json_t *table = json_array();
    int code = run_both(&o, options->threads, table, result, error);
    json_decref(table);
    mp_device_memory_release(&o.memory);
    bench_chunks_destroy(&o.chunks);
    mp_device_destroy(o.device);
    return code;
}

const struct mp_bench mp_bench_overlap = {
    .name = "overlap",
    .help = "what attention hides of spAG and spRS on processors; run it under mpirun",
    .options = overlap_options,
    .run = run,
};
