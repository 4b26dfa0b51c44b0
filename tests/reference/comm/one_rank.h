/* What every comm of one rank does, whatever its back end. */
#ifndef MOEPERF_TESTS_REFERENCE_COMM_ONE_RANK_H
#define MOEPERF_TESTS_REFERENCE_COMM_ONE_RANK_H

#include "reference/comm/comm.h"
#include "tests/support.h"

static inline void check_one_rank(struct mp_comm *one) {
    struct mp_request *request = NULL;
    struct mp_error failure = {0};
    assert_int_equal(one->rank, 0);
    assert_int_equal(one->ranks, 1);
    assert_int_equal(mp_request_create(one, 4, 64, &request, &failure), MP_OK);
    assert_int_equal(mp_request_wait(request, &failure), MP_OK);

    double value[2] = {1.5, -2};
    assert_int_equal(mp_comm_barrier(one, &failure), MP_OK);
    assert_int_equal(mp_comm_broadcast(one, value, sizeof value, 0, &failure), MP_OK);
    assert_int_equal(mp_comm_sum(one, value, 2, &failure), MP_OK);
    assert_int_equal(mp_comm_maximum(one, value, 2, &failure), MP_OK);
    assert_true(value[0] == 1.5 && value[1] == -2);

    const uint32_t mine[3] = {7, 8, 9};
    uint32_t all[3] = {0};
    assert_int_equal(mp_gather_counts_start(one, mine, 3, all, request, &failure), MP_OK);
    assert_int_equal(mp_request_wait(request, &failure), MP_OK);
    assert_memory_equal(all, mine, sizeof mine);

    const int rows = 2;
    const float send[6] = {1, 2, 3, 4, 5, 6};
    float receive[6] = {0};
    assert_int_equal(mp_exchange_start(one, &rows, &rows, 3 * sizeof(float), send, receive, NULL,
                                       request, &failure),
                     MP_OK);
    assert_int_equal(mp_comm_progress(one, &failure), MP_OK);
    assert_int_equal(mp_request_wait(request, &failure), MP_OK);
    assert_memory_equal(receive, send, sizeof send);

    assert_int_equal(mp_all_reduce_start(one, receive, 6, NULL, request, &failure), MP_OK);
    assert_int_equal(mp_request_wait(request, &failure), MP_OK);
    assert_memory_equal(receive, send, sizeof send);

    const struct mp_transfer move = {.bytes = sizeof send};
    void *from[1] = {value}, *to[1] = {receive};
    assert_int_equal(mp_move_start(one, &move, 1, from, to, sizeof value, NULL, request, &failure),
                     MP_OK);
    assert_int_equal(mp_request_wait(request, &failure), MP_OK);
    assert_memory_equal(receive, value, sizeof value);

    const struct mp_transfers none = {0};
    float *chunk[2] = {receive, receive + 3};
    assert_int_equal(mp_sparse_all_gather_start(one, &none, MP_STAGE_BEFORE_GATE, 2,
                                                (void *const *)chunk, 12, NULL, request, &failure),
                     MP_OK);
    assert_int_equal(mp_request_wait(request, &failure), MP_OK);
    assert_int_equal(
        mp_sparse_reduce_scatter_start(one, &none, 2, chunk, 12, NULL, request, &failure), MP_OK);
    assert_int_equal(mp_request_wait(request, &failure), MP_OK);
    assert_memory_equal(receive, value, sizeof value);

    int64_t offset = 1, off_by = 1;
    assert_int_equal(mp_comm_clock_offset(one, 10, &offset, &off_by, &failure), MP_OK);
    assert_int_equal(offset, 0);
    assert_int_equal(off_by, 0);

    char text[256] = "";
    bool share = true;
    assert_int_equal(mp_comm_describe(one, text, sizeof text, &share, &failure), MP_OK);
    assert_non_null(strstr(text, ", host "));
    assert_false(share);
    assert_int_equal(one->sent_bytes, 0);
    assert_int_equal(one->waited_ns, 0);
    mp_request_destroy(request);
}

#endif
