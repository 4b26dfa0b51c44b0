/* Sparse collectives beside the MPI library's own of the same bytes: every expert on every rank,
 * spAG beside a broadcast per expert, spRS beside a reduce per expert.
 *
 * The four take turns in every round and each lies between two barriers, so that a busy machine
 * disturbs all alike; figures are medians over rounds.  Whoever follows somebody that has just
 * touched the same memory finds it in the cache, so in four rounds each follows each other once
 * (Williams, 1949: designs balanced for the effects of preceding treatments).  Two ways to own: the
 * experts dealt out over the ranks, as a sharded model has them, and all on rank 0, where all bytes
 * run one way. Bandwidth is that of the copies: experts * bytes * (ranks - 1) / time. */
#include "tests/bench/comm_bench.h"

#include <mpi.h>
#include <stdlib.h>

#include "reference/base/median.h"

enum { GATHER, BROADCAST, SPREAD, REDUCE, METHODS };

struct measurement {
    struct bench_chunks chunks;
    int rounds;
    double *seconds[METHODS]; /* [rounds] */
};

/* ---- chunks ---- */

int bench_chunks_create(struct bench_chunks *chunks, const char *bench, struct mp_device *device,
                        struct mp_error *error) {
    MP_TRY(mp_comm_mpi_create(device, &chunks->comm, error));
    if (chunks->comm->ranks < 2)
        return mp_fail(error, MP_EINVAL, "%s needs two ranks or more: mpirun -n 2 moeperf-bench %s",
                       bench, bench);
    MP_TAKE(&chunks->arena, chunks->chunk, chunks->experts);
    MP_TRY(mp_arena_check(&chunks->arena, error));
    for (int e = 0; e < chunks->experts; e++) {
        float *chunk = aligned_alloc(4096, (chunks->bytes + 4095) / 4096 * 4096);
        if (!chunk)
            return mp_fail(error, MP_ENOMEM, "%s: no memory for %d chunks of %zu bytes", bench,
                           chunks->experts, chunks->bytes);
        chunks->chunk[e] = chunk;
        for (size_t i = 0; i < chunks->bytes / sizeof *chunk; i++)
            chunk[i] = (float)(i % 1000 + 1) * (float)(chunks->comm->rank + 1);
    }
    return mp_request_create(chunks->comm, chunks->experts * chunks->comm->ranks, chunks->bytes,
                             &chunks->request, error);
}

void bench_chunks_destroy(struct bench_chunks *chunks) {
    mp_request_destroy(chunks->request);
    mp_transfers_destroy(&chunks->fetch);
    mp_transfers_destroy(&chunks->reduce);
    for (int e = 0; chunks->chunk && e < chunks->experts; e++)
        free(chunks->chunk[e]);
    mp_arena_release(&chunks->arena);
    mp_comm_destroy(chunks->comm);
}

int bench_chunks_owner(const struct bench_chunks *chunks, bool dealt_out, int expert) {
    return dealt_out ? expert % chunks->comm->ranks : 0;
}

int bench_chunks_list(struct bench_chunks *chunks, bool dealt_out, struct mp_error *error) {
    chunks->fetch.count = chunks->reduce.count = 0;
    for (int e = 0; e < chunks->experts; e++) {
        int owner = bench_chunks_owner(chunks, dealt_out, e);
        for (int r = 0; r < chunks->comm->ranks; r++) {
            const struct mp_transfer fetch = {.expert = e,
                                              .from = owner,
                                              .to = r,
                                              .bytes = (int64_t)chunks->bytes,
                                              .stage = MP_STAGE_BEFORE_GATE};
            struct mp_transfer reduce = fetch;
            reduce.from = r;
            reduce.to = owner;
            reduce.stage = MP_STAGE_BACKWARD_REDUCE;
            if (r == owner)
                continue;
            MP_TRY(mp_transfers_add(&chunks->fetch, fetch, error));
            MP_TRY(mp_transfers_add(&chunks->reduce, reduce, error));
        }
    }
    return MP_OK;
}

int bench_chunks_start(struct bench_chunks *chunks, bool reduces, struct mp_error *error) {
    if (reduces)
        return mp_sparse_reduce_scatter_start(chunks->comm, &chunks->reduce, chunks->experts,
                                              chunks->chunk, chunks->bytes, NULL, chunks->request,
                                              error);
    return mp_sparse_all_gather_start(chunks->comm, &chunks->fetch, MP_STAGE_BEFORE_GATE,
                                      chunks->experts, (void *const *)chunks->chunk, chunks->bytes,
                                      NULL, chunks->request, error);
}

int bench_chunks_report(const struct bench_chunks *chunks, const char *name, json_t *table,
                        json_t *result, struct mp_error *error) {
    char text[256];
    bool shared = false;
    mp_comm_describe(chunks->comm, text, sizeof text, &shared);
    if (chunks->comm->rank != 0)
        return MP_OK;
    return mp_bench_add(result,
                        json_pack("{s:s, s:i, s:b, s:i, s:I, s:O}", "library", text, "ranks",
                                  chunks->comm->ranks, "ranks_share_cores", shared, "experts",
                                  chunks->experts, "bytes_per_expert", (json_int_t)chunks->bytes,
                                  name, table),
                        error);
}

/* ---- measuring ---- */

static int run_method(struct bench_chunks *chunks, int method, bool dealt_out,
                      struct mp_error *error) {
    if (method == GATHER || method == SPREAD) {
        MP_TRY(bench_chunks_start(chunks, method == SPREAD, error));
        return mp_request_wait(chunks->request, error);
    }
    for (int e = 0; e < chunks->experts; e++) {
        int owner = bench_chunks_owner(chunks, dealt_out, e);
        bool own = owner == chunks->comm->rank;
        int count = (int)(chunks->bytes / sizeof(float));
        float *chunk = chunks->chunk[e];
        if (method == BROADCAST)
            MPI_Bcast(chunk, count, MPI_FLOAT, owner, MPI_COMM_WORLD);
        else
            MPI_Reduce(own ? MPI_IN_PLACE : chunk, own ? chunk : NULL, count, MPI_FLOAT, MPI_SUM,
                       owner, MPI_COMM_WORLD);
    }
    return MP_OK;
}

static const int orders[METHODS][METHODS] = {
    {GATHER, BROADCAST, REDUCE, SPREAD},
    {BROADCAST, SPREAD, GATHER, REDUCE},
    {SPREAD, REDUCE, BROADCAST, GATHER},
    {REDUCE, GATHER, SPREAD, BROADCAST},
};

static int measure(struct measurement *m, bool dealt_out, struct mp_error *error) {
    MP_TRY(bench_chunks_list(&m->chunks, dealt_out, error));
    for (int round = -METHODS; round < m->rounds; round++) /* first to warm up */
        for (int turn = 0; turn < METHODS; turn++) {
            int method = orders[(round + METHODS) % METHODS][turn];
            MPI_Barrier(MPI_COMM_WORLD);
            double start = MPI_Wtime();
            MP_TRY(run_method(&m->chunks, method, dealt_out, error));
            MPI_Barrier(MPI_COMM_WORLD);
            if (round >= 0)
                m->seconds[method][round] = MPI_Wtime() - start;
        }
    return MP_OK;
}

static int add_rows(struct measurement *m, const char *owners, json_t *table,
                    struct mp_error *error) {
    static const char *const names[METHODS] = {"spAG", "MPI_Bcast", "spRS", "MPI_Reduce"};
    const struct bench_chunks *chunks = &m->chunks;
    double bytes = (double)chunks->bytes * chunks->experts * (chunks->comm->ranks - 1);
    double seconds[METHODS];
    for (int method = 0; method < METHODS; method++)
        seconds[method] = mp_median_of(m->seconds[method], m->rounds);
    for (int method = 0; method < METHODS; method++)
        MP_TRY(mp_bench_add_row(table,
                                json_pack("{s:s, s:s, s:f, s:f, s:f}", "owners", owners,
                                          "operation", names[method], "ms", seconds[method] * 1e3,
                                          "gigabytes_per_second", bytes / seconds[method] * 1e-9,
                                          "share_of_mpi", seconds[method | 1] / seconds[method]),
                                error));
    return MP_OK;
}

static int run_both(struct measurement *m, json_t *table, json_t *result, struct mp_error *error) {
    MP_TRY(bench_chunks_create(&m->chunks, "comm", NULL, error));
    MP_TAKE_EACH(&m->chunks.arena, m->rounds, m->seconds[GATHER], m->seconds[BROADCAST],
                 m->seconds[SPREAD], m->seconds[REDUCE]);
    MP_TRY(mp_arena_check(&m->chunks.arena, error));
    for (int dealt_out = 1; dealt_out >= 0; dealt_out--) {
        MP_TRY(measure(m, dealt_out, error));
        MP_TRY(add_rows(m, dealt_out ? "dealt out" : "rank 0", table, error));
    }
    return bench_chunks_report(&m->chunks, "operations", table, result, error);
}

static const struct mp_option comm_options[] = {
    MP_BENCH_NUMBER("experts", experts, "8", 1, 4096, "chunks that travel to all ranks"),
    MP_BENCH_NUMBER("chunk-kib", chunk_kib, "4096", 1, 1 << 20, "size of each"),
    MP_BENCH_NUMBER("rounds", rounds, "32", 1, 100000, "measurements of each"),
    {0},
};

static int run(const struct mp_bench_options *options, json_t *result, struct mp_error *error) {
    struct measurement m = {
        .chunks = {.experts = options->experts, .bytes = (size_t)options->chunk_kib << 10},
        .rounds = options->rounds};
    json_t *table = json_array();
    int code = run_both(&m, table, result, error);
    json_decref(table);
    bench_chunks_destroy(&m.chunks);
    return code;
}

const struct mp_bench mp_bench_comm = {
    .name = "comm",
    .help = "spAG and spRS beside MPI's broadcast and reduce; run it under mpirun",
    .options = comm_options,
    .run = run,
};
