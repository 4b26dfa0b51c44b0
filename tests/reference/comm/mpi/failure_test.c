/* Failures: the sentence names the rank, the peer and what was being done. */
#include "tests/reference/comm/mpi/mpi_case.h"

enum { MOST_RANKS = 16 };

static struct mp_request *request;

static void assert_says(int code, int expected, const char *text) {
    assert_int_equal(code, expected);
    if (!strstr(error.text, text))
        fail_msg("\"%s\" does not say \"%s\"", error.text, text);
    error = (struct mp_error){0};
}

/* Rank 0 sends rank 1 more than rank 1 expects. */
TEST(truncated_message_names_both_ranks) {
    int to[MOST_RANKS] = {0}, from[MOST_RANKS] = {0};
    char memory[64] = {1};
    if (comm->rank == 0)
        to[1] = 16;
    if (comm->rank == 1)
        from[0] = 8;
    int code = mp_exchange_start(comm, to, from, 4, memory, memory, NULL, request, &error);
    if (code == MP_OK)
        code = mp_request_wait(request, &error);
    if (comm->rank == 1)
        assert_says(code, MP_ECOMM, "rank 1: receiving from rank 0: MPI_ERR_TRUNCATE");
    else
        assert_ok(code);
    mp_request_destroy(request);
    assert_ok(mp_request_create(comm, 4, 1024, &request, &error));
}

TEST(limits_of_a_request_are_kept) {
    float memory[512];
    float *chunk[8] = {memory, memory, memory, memory, memory, memory, memory, NULL};
    struct mp_transfers list = {0};
    for (int e = 0; e < 5; e++)
        assert_ok(mp_transfers_add(
            &list,
            (struct mp_transfer){
                .expert = e, .from = 0, .to = 1, .stage = MP_STAGE_BACKWARD_REDUCE},
            &error));
    assert_says(mp_sparse_reduce_scatter_start(comm, &list, 8, chunk, 8, NULL, request, &error),
                MP_ELIMIT, "made for 4 transfers");
    list.count = 1;
    assert_says(mp_sparse_reduce_scatter_start(comm, &list, 8, chunk, 2048, NULL, request, &error),
                MP_ELIMIT, "at most 1024");
    assert_says(mp_sparse_reduce_scatter_start(comm, &list, 8, chunk, 6, NULL, request, &error),
                MP_EINVAL, "no whole floats");
    list.item[0].expert = 7;
    int code = mp_sparse_reduce_scatter_start(comm, &list, 8, chunk, 8, NULL, request, &error);
    if (comm->rank <= 1)
        assert_says(code, MP_EINVAL, "expert 7 travels over it and has no memory there");
    else
        assert_ok(code);
    assert_ok(mp_request_wait(request, &error));
    mp_transfers_destroy(&list);
}

TEST_STEP(create_request) {
    return mp_request_create(comm, 4, 1024, &request, &error);
}

TEST_STEP(destroy_request) {
    mp_request_destroy(request);
    return 0;
}

TEST_GROUP(create_request, destroy_request);
