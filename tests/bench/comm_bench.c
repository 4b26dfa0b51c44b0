/* Sparse collectives beside the MPI library's own of the same bytes: every expert on every rank,
 * spAG beside a broadcast per expert, spRS beside a reduce per expert.
 *
 * The four take turns in every round and each lies between two barriers, so that a busy machine
 * disturbs all alike; figures are medians over rounds.  Whoever follows somebody that has just
 * touched the same memory finds it in the cache, so in four rounds each follows each other once
 * (Williams, 1949: designs balanced for the effects of preceding treatments).  Two ways to own: the
 * experts dealt out over the ranks, as a sharded model has them, and all on rank 0, where all bytes
 * run one way. Bandwidth is that of the copies: experts * bytes * (ranks - 1) / time. */
#include <mpi.h>
#include <stdlib.h>

#include "reference/comm/comm.h"
#include "tests/bench/bench.h"

enum { GATHER, BROADCAST, SPREAD, REDUCE, METHODS };

struct measurement {
    struct mp_comm *comm;
    int experts, rounds;
    size_t bytes;
    float **chunk; /* [experts] */
    struct mp_transfers fetch, reduce;
    struct mp_request *request;
    double *seconds[METHODS]; /* [rounds] */
};

static int make_lists(struct measurement *m, bool dealt_out, struct mp_error *error) {
    int code = MP_OK;
    m->fetch.count = m->reduce.count = 0;
    for (int e = 0; e < m->experts; e++) {
        int owner = dealt_out ? e % m->comm->ranks : 0;
        for (int r = 0; code == MP_OK && r < m->comm->ranks; r++) {
            if (r == owner)
                continue;
            struct mp_transfer transfer = {.expert = e,
                                           .from = owner,
                                           .to = r,
                                           .bytes = (int64_t)m->bytes,
                                           .stage = MP_STAGE_BEFORE_GATE};
            code = mp_transfers_add(&m->fetch, transfer, error);
            transfer.from = r;
            transfer.to = owner;
            transfer.stage = MP_STAGE_BACKWARD_REDUCE;
            if (code == MP_OK)
                code = mp_transfers_add(&m->reduce, transfer, error);
        }
    }
    return code;
}

static int run_method(struct measurement *m, int method, bool dealt_out, struct mp_error *error) {
    int code = MP_OK;
    if (method == GATHER)
        code =
            mp_sparse_all_gather_start(m->comm, &m->fetch, MP_STAGE_BEFORE_GATE, m->experts,
                                       (void *const *)m->chunk, m->bytes, NULL, m->request, error);
    if (method == SPREAD)
        code = mp_sparse_reduce_scatter_start(m->comm, &m->reduce, m->experts, m->chunk, m->bytes,
                                              NULL, m->request, error);
    if (method == GATHER || method == SPREAD)
        return code ? code : mp_request_wait(m->request, error);
    for (int e = 0; e < m->experts; e++) {
        int owner = dealt_out ? e % m->comm->ranks : 0;
        bool own = owner == m->comm->rank;
        int count = (int)(m->bytes / sizeof(float));
        if (method == BROADCAST)
            MPI_Bcast(m->chunk[e], count, MPI_FLOAT, owner, MPI_COMM_WORLD);
        else
            MPI_Reduce(own ? MPI_IN_PLACE : m->chunk[e], own ? m->chunk[e] : NULL, count, MPI_FLOAT,
                       MPI_SUM, owner, MPI_COMM_WORLD);
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
    int code = make_lists(m, dealt_out, error);
    for (int round = -METHODS; code == MP_OK && round < m->rounds; round++) /* first to warm up */
        for (int turn = 0; code == MP_OK && turn < METHODS; turn++) {
            int method = orders[(round + METHODS) % METHODS][turn];
            MPI_Barrier(MPI_COMM_WORLD);
            double start = MPI_Wtime();
            code = run_method(m, method, dealt_out, error);
            MPI_Barrier(MPI_COMM_WORLD);
            if (round >= 0)
                m->seconds[method][round] = MPI_Wtime() - start;
        }
    return code;
}

static int report(struct measurement *m, const char *owners, json_t *table,
                  struct mp_error *error) {
    static const char *const names[METHODS] = {"spAG", "MPI_Bcast", "spRS", "MPI_Reduce"};
    double bytes = (double)m->bytes * m->experts * (m->comm->ranks - 1), seconds[METHODS];
    int failed = 0;
    for (int method = 0; method < METHODS; method++)
        seconds[method] = mp_bench_median(m->seconds[method], m->rounds);
    for (int method = 0; method < METHODS; method++)
        failed |= json_array_append_new(
            table, json_pack("{s:s, s:s, s:f, s:f, s:f}", "owners", owners, "operation",
                             names[method], "ms", seconds[method] * 1e3, "gigabytes_per_second",
                             bytes / seconds[method] * 1e-9, "share_of_mpi",
                             seconds[method | 1] / seconds[method]));
    return failed ? mp_fail(error, MP_ENOMEM, "comm: no memory for the result") : MP_OK;
}

static int report_setting(const struct measurement *m, json_t *result, struct mp_error *error) {
    char text[256];
    bool shared = false;
    int code = mp_comm_describe(m->comm, text, sizeof text, &shared, error);
    int failed = 0;
    failed |= json_object_set_new(result, "library", json_string(text));
    failed |= json_object_set_new(result, "ranks", json_integer(m->comm->ranks));
    failed |= json_object_set_new(result, "ranks_share_cores", json_boolean(shared));
    failed |= json_object_set_new(result, "experts", json_integer(m->experts));
    failed |= json_object_set_new(result, "bytes_per_expert", json_integer((json_int_t)m->bytes));
    return code || !failed ? code : mp_fail(error, MP_ENOMEM, "comm: no memory for the result");
}

/* Memory of everything, all pages touched with values of this rank. */
static int allocate(struct measurement *m, struct mp_error *error) {
    size_t count = m->bytes / sizeof(float);
    bool complete = (m->chunk = calloc((size_t)m->experts, sizeof *m->chunk)) != NULL;
    for (int e = 0; complete && e < m->experts; e++) {
        complete = (m->chunk[e] = aligned_alloc(4096, (m->bytes + 4095) / 4096 * 4096)) != NULL;
        for (size_t i = 0; complete && i < count; i++)
            m->chunk[e][i] = (float)(i % 1000 + 1) * (float)(m->comm->rank + 1);
    }
    for (int method = 0; complete && method < METHODS; method++)
        complete = (m->seconds[method] = malloc((size_t)m->rounds * sizeof(double))) != NULL;
    if (!complete)
        return mp_fail(error, MP_ENOMEM, "comm: no memory for %d chunks of %zu bytes", m->experts,
                       m->bytes);
    return mp_request_create(m->comm, m->experts * m->comm->ranks, m->bytes, &m->request, error);
}

static void release(struct measurement *m) {
    mp_request_destroy(m->request);
    mp_transfers_destroy(&m->fetch);
    mp_transfers_destroy(&m->reduce);
    for (int e = 0; m->chunk && e < m->experts; e++)
        free(m->chunk[e]);
    free(m->chunk);
    for (int method = 0; method < METHODS; method++)
        free(m->seconds[method]);
}

static int run_both(struct measurement *m, json_t *result, struct mp_error *error) {
    if (m->comm->ranks < 2)
        return mp_fail(error, MP_EINVAL,
                       "comm needs two ranks or more: mpirun -n 2 moeperf-bench comm");
    json_t *table = json_array();
    int code = table ? allocate(m, error) : mp_fail(error, MP_ENOMEM, "comm: no memory");
    for (int dealt_out = 1; code == MP_OK && dealt_out >= 0; dealt_out--) {
        code = measure(m, dealt_out, error);
        if (code == MP_OK)
            code = report(m, dealt_out ? "dealt out" : "rank 0", table, error);
    }
    if (code == MP_OK && m->comm->rank == 0) {
        code = report_setting(m, result, error);
        json_object_set(result, "operations", table);
    }
    json_decref(table);
    return code;
}

static int run(int argc, char **argv, json_t *result, struct mp_error *error) {
    long experts = 8, kibibytes = 4096, rounds = 32;
    const struct mp_bench_option options[] = {
        {"experts", &experts, 1, 4096},
        {"chunk-kib", &kibibytes, 1, 1 << 20},
        {"rounds", &rounds, 1, 100000},
        {0},
    };
    int code = mp_bench_options(argc, argv, options, error);
    if (code)
        return code;
    struct measurement m = {
        .experts = (int)experts, .rounds = (int)rounds, .bytes = (size_t)kibibytes << 10};
    code = mp_comm_mpi_create(NULL, &m.comm, error);
    if (code)
        return code;
    code = run_both(&m, result, error);
    release(&m);
    mp_comm_destroy(m.comm);
    return code;
}

const struct mp_bench mp_bench_comm = {
    .name = "comm",
    .help = "spAG and spRS beside MPI's broadcast and reduce; run it under mpirun\n"
            "  --experts N    chunks that travel to all ranks, 8 unless given\n"
            "  --chunk-kib N  size of each, 4096 unless given\n"
            "  --rounds N     measurements of each, 32 unless given\n",
    .run = run,
};
