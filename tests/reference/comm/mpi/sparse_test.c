/* Sparse all-gather and reduce-scatter between processes. */
#include "tests/reference/comm/mpi/mpi_case.h"

static struct mp_request *request;

static const size_t sizes[] = {0,
                               4,
                               8,
                               60,
                               4096,
                               128 << 10,
                               131068,
                               131076,
                               (256 << 10) + 12,
                               1 << 20,
                               (1 << 20) - 4,
                               (2 << 20) + 20};

static size_t any_size(void) {
    const int known = sizeof sizes / sizeof *sizes;
    int pick = test_random_int(&shared, 0, 2 * known - 1);
    return pick < known ? sizes[pick] : 4 * (size_t)test_random_int(&shared, 1, 100000);
}

/* Borders of nodes that experts cross, each once to every node with copies but its owner's. */
static int crossings(const struct sparse_case *c) {
    int count = 0;
    for (int e = 0; e < c->experts; e++)
        for (int begin = 0; begin < c->ranks; begin += c->ranks_per_node) {
            int holders = 0;
            for (int r = begin; r < c->ranks && r < begin + c->ranks_per_node; r++)
                holders += c->holds[e][r];
            count += holders > 0 && c->owner[e] / c->ranks_per_node != begin / c->ranks_per_node;
        }
    return count;
}

TEST(copies_are_the_owners) {
    for (int round = 0; round < 12; round++) {
        struct sparse_case c;
        float *chunk[CASE_EXPERTS];
        int kind = round % CASE_KINDS;
        case_create(&c, test_random(&shared), comm->ranks, kind, any_size());
        mp_comm_set_nodes(comm, c.ranks_per_node);
        float *memory = case_memory(&c, comm->rank, chunk);
        double bytes[3] = {(double)-comm->sent_bytes, case_copies(&c, comm->rank),
                           (double)-comm->between_bytes};
        assert_ok(mp_sparse_all_gather_start(comm, &c.fetch, MP_STAGE_BEFORE_GATE, c.experts,
                                             (void *const *)chunk, c.bytes, NULL, request, &error));
        assert_ok(mp_request_wait(request, &error));
        bytes[0] += (double)comm->sent_bytes;
        bytes[2] += (double)comm->between_bytes;
        case_check_gathered(&c, comm->rank, chunk);
        assert_ok(mp_comm_sum(comm, bytes, 3, &error));
        assert_true(bytes[0] == bytes[1] * (double)c.bytes);
        assert_true(bytes[2] == crossings(&c) * (double)c.bytes);
        free(memory);
        case_destroy(&c);
    }
}

TEST(copies_are_made_of_copies) {
    static const enum mp_stage stages[] = {MP_STAGE_BEFORE_GATE, MP_STAGE_AFTER_GATE};
    for (int round = 0; round < 12; round++) {
        struct sparse_case c;
        float *chunk[CASE_EXPERTS];
        case_create(&c, test_random(&shared), comm->ranks, round % CASE_KINDS, any_size());
        case_pass_on(&c);
        mp_comm_set_nodes(comm, c.ranks_per_node);
        float *memory = case_memory(&c, comm->rank, chunk);
        double bytes[2] = {(double)-comm->sent_bytes, case_copies(&c, comm->rank)};
        for (int i = 0; i < 2; i++) {
            assert_ok(mp_sparse_all_gather_start(comm, &c.fetch, stages[i], c.experts,
                                                 (void *const *)chunk, c.bytes, NULL, request,
                                                 &error));
            assert_ok(mp_request_wait(request, &error));
        }
        bytes[0] += (double)comm->sent_bytes;
        case_check_gathered(&c, comm->rank, chunk);
        assert_ok(mp_comm_sum(comm, bytes, 2, &error));
        assert_true(bytes[0] == bytes[1] * (double)c.bytes);
        free(memory);
        case_destroy(&c);
    }
}

TEST(sums_follow_the_hops) {
    for (int round = 0; round < 12; round++) {
        struct sparse_case c;
        float *chunk[CASE_EXPERTS];
        int kind = round % CASE_KINDS;
        case_create(&c, test_random(&shared), comm->ranks, kind, any_size());
        mp_comm_set_nodes(comm, c.ranks_per_node);
        float *memory = case_memory(&c, comm->rank, chunk);
        int64_t sent = comm->sent_bytes;
        assert_ok(mp_sparse_reduce_scatter_start(comm, &c.reduce, c.experts, chunk, c.bytes, NULL,
                                                 request, &error));
        assert_ok(mp_request_wait(request, &error));
        case_check_reduced(&c, comm->rank, chunk);
        assert_int_equal(comm->sent_bytes - sent, (int64_t)c.bytes * case_copies(&c, comm->rank));
        free(memory);
        case_destroy(&c);
    }
}

/* Moves in any pattern: item i goes from one random rank to another, perhaps the same. */
TEST(moves_arrive) {
    enum { MOVES = 30 };
    for (int round = 0; round < 4; round++) {
        struct mp_transfer list[MOVES];
        void *from[MOVES] = {NULL}, *to[MOVES] = {NULL};
        size_t bytes = any_size();
        struct sparse_case c = {.seed = test_random(&shared), .ranks = comm->ranks};
        char *memory = malloc((size_t)2 * MOVES * bytes + 1);
        int64_t outwards = -comm->sent_bytes;
        for (int i = 0; i < MOVES; i++) {
            list[i] = (struct mp_transfer){.expert = i,
                                           .from = test_random_int(&shared, 0, comm->ranks - 1),
                                           .to = test_random_int(&shared, 0, comm->ranks - 1)};
            from[i] = list[i].from == comm->rank ? memory + (size_t)(2 * i) * bytes : NULL;
            to[i] = list[i].to == comm->rank ? memory + (size_t)(2 * i + 1) * bytes : NULL;
            for (size_t k = 0; from[i] && k < bytes / sizeof(float); k++)
                ((float *)from[i])[k] = case_value(&c, i, 0, k);
            outwards += from[i] && !to[i] ? -(int64_t)bytes : 0;
        }
        assert_ok(mp_move_start(comm, list, MOVES, from, to, bytes, NULL, request, &error));
        assert_ok(mp_request_wait(request, &error));
        assert_int_equal(outwards + comm->sent_bytes, 0);
        for (int i = 0; i < MOVES; i++)
            for (size_t k = 0; to[i] && k < bytes / sizeof(float); k++)
                assert_true(((float *)to[i])[k] == case_value(&c, i, 0, k));
        free(memory);
    }
}

static int create_request(void **state) {
    (void)state;
    return mp_request_create(comm, CASE_EXPERTS * CASE_RANKS, 8 << 20, &request, &error);
}

static int destroy_request(void **state) {
    (void)state;
    mp_request_destroy(request);
    return 0;
}

TEST_GROUP(create_request, destroy_request);

int main(void) {
    return run_mpi_tests();
}
