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
