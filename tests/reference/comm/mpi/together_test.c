/* Operations of all kinds in flight together, as a training step has them. */
#include "tests/reference/comm/mpi/mpi_case.h"

enum { REQUESTS = 5, OPERATIONS = 40, VALUES = 5000 };
enum kind { GATHER, REDUCE, ALL_REDUCE, COUNTS, EXCHANGE, KINDS };

struct operation {
    enum kind kind;
    uint64_t seed;
    struct sparse_case c;
    float *chunk[CASE_EXPERTS];
    float *memory;                                          /* of the case, or VALUES floats */
    uint32_t mine[CASE_RANKS], all[CASE_RANKS][CASE_RANKS]; /* rows too */
    int to[CASE_RANKS], from[CASE_RANKS];
    uint32_t rows_out[CASE_RANKS * 8], rows_in[CASE_RANKS * 8];
};

static struct operation operation[REQUESTS];
static struct mp_request *request[REQUESTS];

static int rows_between(uint64_t seed, int source, int to) {
    uint64_t state = seed ^ (uint64_t)(source * 64 + to) << 32;
    return test_random_int(&state, 0, 8);
}

static void start_sparse(struct operation *o, struct mp_request *free_request) {
    static const size_t sizes[] = {4, 2000, 300004, 1200000};
    case_create(&o->c, o->seed, comm->ranks, CASE_SOME, sizes[o->seed % 4]);
    mp_comm_set_nodes(comm, o->c.ranks_per_node);
    o->memory = case_memory(&o->c, comm->rank, o->chunk);
    if (o->kind == GATHER)
        assert_ok(mp_sparse_all_gather_start(comm, &o->c.fetch, MP_STAGE_BEFORE_GATE, o->c.experts,
                                             (void *const *)o->chunk, o->c.bytes, NULL,
                                             free_request, &error));
    else
        assert_ok(mp_sparse_reduce_scatter_start(comm, &o->c.reduce, o->c.experts, o->chunk,
                                                 o->c.bytes, NULL, free_request, &error));
}

static void start_exchange(struct operation *o, struct mp_request *free_request) {
    int row = 0;
    for (int r = 0; r < comm->ranks; r++) {
        o->to[r] = rows_between(o->seed, comm->rank, r);
        o->from[r] = rows_between(o->seed, r, comm->rank);
        for (int i = 0; i < o->to[r]; i++)
            o->rows_out[row++] = (uint32_t)o->seed + (uint32_t)(comm->rank * 10000 + r * 100 + i);
    }
    assert_ok(mp_exchange_start(comm, o->to, o->from, sizeof(uint32_t), o->rows_out, o->rows_in,
                                NULL, free_request, &error));
}

static void start(struct operation *o, struct mp_request *free_request) {
    o->kind = test_random_int(&shared, 0, KINDS - 1);
    o->seed = test_random(&shared);
    if (o->kind == GATHER || o->kind == REDUCE)
        start_sparse(o, free_request);
    else if (o->kind == EXCHANGE)
        start_exchange(o, free_request);
    else if (o->kind == ALL_REDUCE) {
        o->memory = malloc(VALUES * sizeof *o->memory);
        for (int i = 0; i < VALUES; i++) /* whole numbers: the sum is exact */
            o->memory[i] = (float)((int)(o->seed % 1000) + i + comm->rank);
        assert_ok(mp_all_reduce_start(comm, o->memory, VALUES, NULL, free_request, &error));
    } else {
        for (int i = 0; i < CASE_RANKS; i++)
            o->mine[i] = (uint32_t)(o->seed + (uint64_t)(comm->rank * 100 + i));
        assert_ok(
            mp_gather_counts_start(comm, o->mine, comm->ranks, o->all[0], free_request, &error));
    }
}

static void check_rest(struct operation *o) {
    int n = comm->ranks, row = 0;
    if (o->kind == ALL_REDUCE)
        for (int i = 0; i < VALUES; i++)
            assert_true(o->memory[i] == (float)(n * ((int)(o->seed % 1000) + i) + n * (n - 1) / 2));
    if (o->kind == COUNTS)
        for (int r = 0; r < n; r++)
            for (int i = 0; i < n; i++)
                assert_int_equal(o->all[0][r * n + i],
                                 (uint32_t)(o->seed + (uint64_t)(r * 100 + i)));
    if (o->kind == EXCHANGE)
        for (int r = 0; r < n; r++)
            for (int i = 0; i < o->from[r]; i++)
                assert_int_equal(o->rows_in[row++],
                                 (uint32_t)o->seed + (uint32_t)(r * 10000 + comm->rank * 100 + i));
}

static void finish(struct operation *o) {
    if (o->kind == GATHER)
        case_check_gathered(&o->c, comm->rank, o->chunk);
    if (o->kind == REDUCE)
        case_check_reduced(&o->c, comm->rank, o->chunk);
    check_rest(o);
    if (o->kind == GATHER || o->kind == REDUCE)
        case_destroy(&o->c);
    free(o->memory);
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

int main(void) {
    return run_mpi_tests();
}
