/* One rank without a library. */
#include "reference/comm/comm.h"
#include "tests/errors.h"

/* What it carries is looked at with the other transports. */
TEST(one_rank_is_alone) {
    struct mp_comm *comm = NULL;
    char text[256] = "";
    bool share = true;
    double value = 1.5;
    assert_works(mp_comm_self_create(&comm, &error));
    assert_numbers(comm->rank, 0, comm->ranks, 1);
    assert_works(mp_comm_sum(comm, &value, 1, &error));
    mp_comm_describe(comm, text, sizeof text, &share);
    assert_false(share);
    assert_int_equal(comm->sent_bytes + comm->waited_ns, 0);
    mp_comm_abort(comm, 1); /* there is nobody to end */
    mp_comm_destroy(comm);
    mp_comm_destroy(NULL);
    mp_request_destroy(NULL);
}

TEST(rows_for_oneself_must_agree) {
    struct mp_comm *comm = NULL;
    struct mp_request *request = NULL;
    const int send = 2, receive = 3, negative = -1;
    char memory[16];
    assert_works(mp_comm_self_create(&comm, &error));
    assert_works(mp_request_create(comm, 0, 0, &request, &error));
    assert_sentence(
        mp_exchange_start(comm, &send, &receive, 4, memory, memory, NULL, request, &error),
        MP_EINVAL, "rank 0: it sends itself 2 rows and expects 3");
    assert_fails(
        mp_exchange_start(comm, &negative, &receive, 4, memory, memory, NULL, request, &error),
        MP_EINVAL, "-1 rows to");
    assert_fails(mp_comm_broadcast(comm, memory, 1, 1, &error), MP_EINVAL, "");
    assert_fails(mp_request_create(comm, -1, 0, &request, &error), MP_EINVAL, "");
    mp_request_destroy(request);
    mp_comm_destroy(comm);
}
