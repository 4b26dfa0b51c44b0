/* Sparse collectives and moves of up to 16 ranks in one process, in random orders of events. */
#include "tests/reference/comm/loopback.h"
#include "tests/reference/comm/sparse_case.h"

enum { OPERATIONS = TEST_SANITIZED ? 6 : 12, REQUESTS = 3, LARGEST_CHUNK = 3 << 20 };

/* One operation of all ranks: a gather or a reduce of a case. */
struct operation {
    struct sparse_case c;
    bool reduces;
    float *chunk[CASE_RANKS][CASE_EXPERTS];
    float *memory[CASE_RANKS];
};

struct run {
    int ranks;
    struct loopback_world world;
    struct mp_comm *comm[CASE_RANKS];
    struct mp_request *request[CASE_RANKS][REQUESTS];
    struct operation *operation; /* [OPERATIONS] */
    int started[CASE_RANKS];     /* operations, in the same order on every rank */
};

static const size_t sizes[] = {
    4,
    1000,
    MP_REDUCE_PIECE - 4,
    MP_REDUCE_PIECE,
    MP_REDUCE_PIECE + 4,
    MP_GATHER_PIECE + 12,
    11 * MP_GATHER_PIECE + 8, /* more pieces than the window of an edge */
};

static void create_operation(struct operation *operation, uint64_t *random, int ranks) {
    int kind = test_random_int(random, 0, CASE_KINDS - 1);
    /* Large chunks are for few ranks: the checks look at every element. */
    int most = (int)(sizeof sizes / sizeof *sizes) - (ranks > 4 ? 2 : 1);
    size_t bytes = sizes[test_random_int(random, 0, most)];
    if (test_random_int(random, 0, 2) == 0)
        bytes = 4 * (size_t)test_random_int(random, 0, 3000);
    case_create(&operation->c, test_random(random), ranks, kind, bytes);
    operation->reduces = test_random_int(random, 0, 1);
    for (int r = 0; r < ranks; r++)
        operation->memory[r] = case_memory(&operation->c, r, operation->chunk[r]);
}

static void start_operation(struct run *run, int rank) {
    int number = run->started[rank]++;
    struct operation *operation = &run->operation[number];
    struct mp_request *request = run->request[rank][number % REQUESTS];
    struct mp_error error = {0};
    int code;
    mp_comm_set_nodes(run->comm[rank], operation->c.ranks_per_node);
    if (operation->reduces)
        code = mp_sparse_reduce_scatter_start(run->comm[rank], &operation->c.reduce,
                                              operation->c.experts, operation->chunk[rank],
                                              operation->c.bytes, NULL, request, &error);
    else
        code = mp_sparse_all_gather_start(
            run->comm[rank], &operation->c.fetch, MP_STAGE_BEFORE_GATE, operation->c.experts,
            (void *const *)operation->chunk[rank], operation->c.bytes, NULL, request, &error);
    if (code)
        fail_msg("%s", error.text);
}

/* One event: a rank starts its next operation, if its request is free, or lets things move on. */
static void step(struct run *run) {
    int rank = test_random_int(&run->world.random, 0, run->ranks - 1);
    int next = run->started[rank];
    bool free_request = next < OPERATIONS && !run->request[rank][next % REQUESTS]->in_flight;
    if (free_request && test_random_int(&run->world.random, 0, 3) == 0)
        start_operation(run, rank);
    else
        assert_int_equal(mp_comm_progress(run->comm[rank], NULL), MP_OK);
}

static bool finished(const struct run *run) {
    for (int r = 0; r < run->ranks; r++) {
        if (run->started[r] < OPERATIONS)
            return false;
        for (int i = 0; i < REQUESTS; i++)
            if (run->request[r][i]->in_flight)
                return false;
    }
    return true;
}

static void check_and_free(struct run *run) {
    int64_t expected[CASE_RANKS] = {0}, sent = 0, all = 0;
    for (int i = 0; i < OPERATIONS; i++) {
        struct operation *operation = &run->operation[i];
        for (int r = 0; r < run->ranks; r++) {
            if (operation->reduces)
                case_check_reduced(&operation->c, r, operation->chunk[r]);
            else
                case_check_gathered(&operation->c, r, operation->chunk[r]);
            expected[r] += (int64_t)operation->c.bytes * case_copies(&operation->c, r);
            free(operation->memory[r]);
        }
        case_destroy(&operation->c);
    }
    for (int r = 0; r < run->ranks; r++) {
        sent += run->comm[r]->sent_bytes;
        all += expected[r];
        for (int i = 0; i < REQUESTS; i++)
            mp_request_destroy(run->request[r][i]);
        mp_comm_destroy(run->comm[r]);
    }
    assert_int_equal(sent, all);
    assert_int_equal(run->world.in_flight, 0);
    assert_null(run->world.unmatched);
    free(run->operation);
}

static void check_any_order(int ranks, uint64_t *random) {
    struct run run = {.ranks = ranks, .world = {.random = test_random(random)}};
    run.operation = calloc(OPERATIONS, sizeof *run.operation);
    for (int i = 0; i < OPERATIONS; i++)
        create_operation(&run.operation[i], random, run.ranks);
    for (int r = 0; r < run.ranks; r++) {
        /* So few tags that they are used again within the run. */
        run.comm[r] = loopback_create(&run.world, r, run.ranks, 5 * CASE_EXPERTS);
        for (int i = 0; i < REQUESTS; i++)
            assert_int_equal(mp_request_create(run.comm[r], CASE_EXPERTS * CASE_RANKS,
                                               LARGEST_CHUNK, &run.request[r][i], NULL),
                             MP_OK);
    }
    long events = 0;
    for (; !finished(&run); events++) {
        assert_true(events < 50000000); /* else they wait for each other */
        step(&run);
    }
    check_and_free(&run);
}

TEST_RANDOM(any_order_of_events_gives_the_same) {
    static const int ranks[] = {1, 2, 3, 4, 7, 8, 16};
    for (size_t i = 0; i < sizeof ranks / sizeof *ranks; i++)
        check_any_order(ranks[i], random);
}
