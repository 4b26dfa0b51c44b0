/* Messages of two lanes: exchanges have their turn before sums and after every addition. */
#include "tests/reference/comm/loopback.h"

enum { PIECES = 11, FLOATS = PIECES * (MP_REDUCE_PIECE / (int)sizeof(float)) };

static struct {
    struct loopback_world world;
    struct mp_comm_operations operations;
    struct mp_comm *comm[2];
    struct mp_request *sum[2], *rows[2];
    float *chunk[2]; /* [FLOATS], of the owner 0 and of the copy on 1 */
    struct mp_transfers reduce;
    int additions, unseen, most_unseen; /* since rank 0 looked at its rows */
    bool progresses;                    /* from within additions, as devices do in their pauses */
} run;

/* What can end does, at once and in the order of slots. */
static int watched_test(UNUSED struct mp_comm *comm, struct mp_messages *messages, int active,
                        int finished[], int *count, UNUSED struct mp_error *error) {
    *count = 0;
    if (messages == run.rows[0]->messages)
        run.unseen = 0;
    for (int i = 0; i < active; i++) {
        struct loopback_operation *operation = messages->slot[i];
        if (!operation->matched || !loopback_ends(operation))
            continue;
        finished[(*count)++] = i;
        messages->slot[i] = NULL;
        run.world.in_flight--;
        free(operation);
    }
    return MP_OK;
}

static void watched_add(struct mp_comm *comm, mp_stream stream, size_t count, const float *from,
                        float *to) {
    loopback_add(comm, stream, count, from, to);
    run.additions++;
    run.unseen++;
    run.most_unseen = run.unseen > run.most_unseen ? run.unseen : run.most_unseen;
    if (run.progresses)
        assert_int_equal(mp_comm_progress(comm, NULL), MP_OK);
}

TEST_STEP(create) {
    const struct mp_transfer copy = {
        .from = 1, .to = 0, .bytes = FLOATS * sizeof(float), .stage = MP_STAGE_BACKWARD_REDUCE};
    memset(&run, 0, sizeof run);
    assert_int_equal(mp_transfers_add(&run.reduce, copy, NULL), MP_OK);
    for (int r = 0; r < 2; r++) {
        run.comm[r] = loopback_create(&run.world, r, 2, 1000);
        run.operations = *run.comm[r]->operations;
        run.operations.messages_test = watched_test;
        run.operations.add = watched_add;
        run.comm[r]->operations = &run.operations;
        run.chunk[r] = malloc(FLOATS * sizeof(float));
        for (int i = 0; i < FLOATS; i++)
            run.chunk[r][i] = (float)(r ? 3 * i : i); /* whole: the sum is exact */
        assert_int_equal(mp_request_create(run.comm[r], 1, copy.bytes, &run.sum[r], NULL), MP_OK);
        assert_int_equal(mp_request_create(run.comm[r], 0, 0, &run.rows[r], NULL), MP_OK);
    }
    return 0;
}

TEST_STEP(destroy) {
    for (int r = 0; r < 2; r++) {
        mp_request_destroy(run.sum[r]);
        mp_request_destroy(run.rows[r]);
        mp_comm_destroy(run.comm[r]);
        free(run.chunk[r]);
    }
    mp_transfers_destroy(&run.reduce);
    return 0;
}

static void start_sum(int rank) {
    float *chunk[1] = {run.chunk[rank]};
    assert_int_equal(mp_sparse_reduce_scatter_start(run.comm[rank], &run.reduce, 1, chunk,
                                                    FLOATS * sizeof(float), NULL, run.sum[rank],
                                                    NULL),
                     MP_OK);
}

static void start_rows(int rank, const char send[2], char receive[2]) {
    const int rows[2] = {1, 1};
    assert_int_equal(
        mp_exchange_start(run.comm[rank], rows, rows, 1, send, receive, NULL, run.rows[rank], NULL),
        MP_OK);
}

static void finish_sum(void) {
    while (run.sum[0]->in_flight || run.sum[1]->in_flight)
        for (int r = 0; r < 2; r++)
            assert_int_equal(mp_comm_progress(run.comm[r], NULL), MP_OK);
    assert_int_equal(run.additions, PIECES);
    for (int i = 0; i < FLOATS; i++)
        assert_true(run.chunk[0][i] == (float)i + (float)(3 * i));
}

/* Rows that are on their way are looked at after each addition. */
TEST_WITH(additions_let_rows_pass, create, destroy) {
    char send[2][2] = {"ab", "cd"}, receive[2][2];
    for (int r = 0; r < 2; r++)
        start_sum(r);
    start_rows(0, send[0], receive[0]);
    finish_sum();
    assert_int_equal(run.most_unseen, 1);
    assert_true(run.rows[0]->in_flight);
    start_rows(1, send[1], receive[1]);
    for (int r = 0; r < 2; r++)
        while (run.rows[r]->in_flight)
            for (int other = 0; other < 2; other++)
                assert_int_equal(mp_comm_progress(run.comm[other], NULL), MP_OK);
    assert_memory_equal(receive[0], "ac", 2);
    assert_memory_equal(receive[1], "bd", 2);
}

TEST_WITH(additions_may_make_progress, create, destroy) {
    run.progresses = true;
    additions_let_rows_pass(NULL);
}

/* Rows that are there are not waited for any longer, whatever else could be done. */
TEST_WITH(rows_are_had_before_sums, create, destroy) {
    char send[2][2] = {"ab", "cd"}, receive[2][2];
    for (int r = 0; r < 2; r++)
        start_sum(r);
    for (int r = 0; r < 2; r++)
        start_rows(r, send[r], receive[r]);
    assert_int_equal(mp_comm_progress(run.comm[1], NULL), MP_OK); /* received; sent when copied */
    assert_int_equal(mp_request_wait(run.rows[0], NULL), MP_OK);
    assert_memory_equal(receive[0], "ac", 2);
    assert_int_equal(run.additions, 0);
    assert_true(run.sum[0]->in_flight);
    finish_sum();
    assert_int_equal(mp_request_wait(run.rows[1], NULL), MP_OK);
}
