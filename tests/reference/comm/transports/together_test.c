/* Operations of all kinds in flight together, on two streams, as a training step has them. */
#include "tests/reference/comm/transports/transport_case.h"

enum { REQUESTS = 6, OPERATIONS = 60, VALUES = 5000, ROWS = 8 };
enum kind { GATHER, REDUCE, ALL_REDUCE, COUNTS, EXCHANGE, KINDS };

struct operation {
    enum kind kind;
    uint64_t seed;
    mp_stream stream;
    struct sparse_case c;
    struct sparse_memory sparse;
    struct mirror memory, received; /* floats of an all-reduce; rows */
    uint32_t mine[CASE_RANKS], all[CASE_RANKS * CASE_RANKS];
    int to[CASE_RANKS], from[CASE_RANKS];
};

static struct operation operation[REQUESTS];
static struct mp_request *request[REQUESTS];

static int rows_between(uint64_t seed, int source, int to) {
    uint64_t number = seed ^ (uint64_t)(source * 64 + to) << 32;
    return test_random_int(&number, 0, ROWS);
}

static void start_sparse(struct operation *o, struct mp_request *free_request) {
    static const size_t sizes[] = {4, 2000, 300004, 1200000};
    case_create(&o->c, o->seed, comm->ranks, CASE_SOME, sizes[o->seed % 4]);
    o->sparse = sparse_memory_create(&o->c);
    mirror_push(&o->sparse.mirror, o->stream);
    if (o->kind == GATHER)
        assert_ok(mp_sparse_all_gather_start(comm, &o->c.fetch, MP_STAGE_BEFORE_GATE, o->c.experts,
                                             (void *const *)o->sparse.chunk, o->c.bytes, o->stream,
                                             free_request, &error));
    else
        assert_ok(mp_sparse_reduce_scatter_start(comm, &o->c.reduce, o->c.experts, o->sparse.chunk,
                                                 o->c.bytes, o->stream, free_request, &error));
}

static void start_exchange(struct operation *o, struct mp_request *free_request) {
    int row = 0;
    o->memory = mirror_create(CASE_RANKS * ROWS * sizeof(uint32_t));
    o->received = mirror_create(CASE_RANKS * ROWS * sizeof(uint32_t));
    for (int r = 0; r < comm->ranks; r++) {
        o->to[r] = rows_between(o->seed, comm->rank, r);
        o->from[r] = rows_between(o->seed, r, comm->rank);
        for (int i = 0; i < o->to[r]; i++)
            ((uint32_t *)o->memory.host)[row++] =
                (uint32_t)o->seed + (uint32_t)(comm->rank * 10000 + r * 100 + i);
    }
    mirror_push(&o->memory, o->stream);
    assert_ok(mp_exchange_start(comm, o->to, o->from, sizeof(uint32_t), o->memory.device,
                                o->received.device, o->stream, free_request, &error));
}

static void start(struct operation *o, struct mp_request *free_request) {
    o->kind = test_random_int(&shared, 0, KINDS - 1);
    o->seed = test_random(&shared);
    o->stream = o->seed & 1024 ? own_stream : NULL;
    if (o->kind == GATHER || o->kind == REDUCE)
        start_sparse(o, free_request);
    else if (o->kind == EXCHANGE)
        start_exchange(o, free_request);
    else if (o->kind == ALL_REDUCE) {
        o->memory = mirror_create(VALUES * sizeof(float));
        for (int i = 0; i < VALUES; i++) /* whole numbers: the sum is exact */
            ((float *)o->memory.host)[i] = (float)((int)(o->seed % 1000) + i + comm->rank);
        mirror_push(&o->memory, o->stream);
        assert_ok(mp_all_reduce_start(comm, (float *)o->memory.device, VALUES, o->stream,
                                      free_request, &error));
    } else {
        for (int i = 0; i < CASE_RANKS; i++)
            o->mine[i] = (uint32_t)(o->seed + (uint64_t)(comm->rank * 100 + i));
        assert_ok(mp_gather_counts_start(comm, o->mine, comm->ranks, o->all, free_request, &error));
    }
}

static void check_rows(const struct operation *o) {
    const uint32_t *row = (const uint32_t *)o->received.host;
    for (int r = 0; r < comm->ranks; r++)
        for (int i = 0; i < o->from[r]; i++)
            assert_int_equal(*row++,
                             (uint32_t)o->seed + (uint32_t)(r * 10000 + comm->rank * 100 + i));
}

static void finish(struct operation *o) {
    const int n = comm->ranks;
    struct mirror *result = o->kind == GATHER || o->kind == REDUCE ? &o->sparse.mirror
                            : o->kind == EXCHANGE                  ? &o->received
                                                                   : &o->memory;
    if (o->kind != COUNTS)
        mirror_pull(result, o->stream);
    settle(o->stream);
    if (o->kind == GATHER)
        case_check_gathered(&o->c, comm->rank, o->sparse.host);
    if (o->kind == REDUCE)
        check_reduced(&o->c, o->sparse.host);
    if (o->kind == EXCHANGE)
        check_rows(o);
    for (int i = 0; o->kind == ALL_REDUCE && i < VALUES; i++)
        assert_true(((float *)o->memory.host)[i] ==
                    (float)(n * ((int)(o->seed % 1000) + i) + n * (n - 1) / 2));
    for (int i = 0; o->kind == COUNTS && i < n * n; i++)
        assert_int_equal(o->all[i], (uint32_t)(o->seed + (uint64_t)(i / n * 100 + i % n)));
    mirror_destroy(&o->sparse.mirror);
    mirror_destroy(&o->memory);
    mirror_destroy(&o->received);
    case_destroy(&o->c);
    *o = (struct operation){0};
}

/* All ranks start the same operations in the same order; when each of them waits, for which of
 * those in flight, and how often it looks in between is up to the rank. */
TEST(nobody_disturbs_another) {
    uint64_t own = shared + (uint64_t)comm->rank;
    bool busy[REQUESTS] = {false};
    for (int i = 0; i < REQUESTS; i++)
        assert_ok(mp_request_create(comm, CASE_EXPERTS * CASE_RANKS, 2 << 20, &request[i], &error));
    for (int next = 0; next < OPERATIONS; next++) {
        int i = next % REQUESTS;
        for (int looks = test_random_int(&own, 0, 5); looks > 0; looks--)
            assert_ok(mp_comm_progress(comm, &error));
        int other = test_random_int(&own, 0, REQUESTS - 1);
        for (int pick = 0; pick < 2; pick++, other = i)
            if (busy[other] && (pick || test_random_int(&own, 0, 3) == 0)) {
                assert_ok(mp_request_wait(request[other], &error));
                finish(&operation[other]);
                busy[other] = false;
            }
        start(&operation[i], request[i]);
        busy[i] = true;
    }
    for (int i = 0; i < REQUESTS; i++) {
        assert_ok(mp_request_wait(request[i], &error));
        if (busy[i])
            finish(&operation[i]);
        mp_request_destroy(request[i]);
    }
}
