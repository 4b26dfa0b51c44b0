/* NCCL that fails, ranks that go: everybody says so, nobody hangs, nothing is left. */
#include "tests/reference/comm/nccl/processes.h"

static char folder[] = "/tmp/nccl-failure-XXXXXX";

static struct mp_request *make_request(struct rank *me) {
    struct mp_request *request = NULL;
    mp_request_create(me->comm, 8, 1 << 16, &request, &me->error);
    return request;
}

/* Of this process; lanes may still use it after a failure. */
static char *rows_memory;

static void leave_for_good(struct rank *me) {
    leave(me);
    me->device->operations->release(me->device, rows_memory);
}

/* Rows to every rank from every rank, waited for; then something that the host reads. */
static int exchange(struct rank *me, struct mp_request *request, int rows, struct mp_error *error) {
    int to[MOST_RANKS], from[MOST_RANKS];
    for (int r = 0; r < me->ranks; r++)
        to[r] = from[r] = rows;
    if (me->rank == 0 && rows == 16)
        to[1] = 24; /* more than rank 1 expects */
    if (!rows_memory)
        rows_memory = me->device->operations->allocate(me->device, 2 * 65536);
    int code = mp_exchange_start(me->comm, to, from, 64, rows_memory, rows_memory + 65536, NULL,
                                 request, error);
    if (!code)
        code = mp_request_wait(request, error);
    double one = 1;
    if (!code)
        code = mp_comm_sum(me->comm, &one, 1, error);
    me->device->operations->stream_synchronize(me->device, NULL); /* nothing stands still */
    return code;
}

/* Joins, exchanges until something fails, and expects all to fail alike from then on. */
static void go_on_until_it_fails(struct rank *me, int rows) {
    struct mp_error second = {0};
    if (join(me))
        return;
    struct mp_request *request = make_request(me);
    for (int i = 0; !me->error.code && i < 20; i++)
        exchange(me, request, rows, &me->error);
    double one = 1;
    mp_request_destroy(request);
    request = make_request(me);
    if (mp_comm_sum(me->comm, &one, 1, &second) != MP_ECOMM ||
        strcmp(second.text, me->error.text) != 0)
        mp_fail(&me->error, MP_EINVAL, "what followed was \"%s\"", second.text);
    second = (struct mp_error){0};
    if (mp_all_reduce_start(me->comm, (float *)me, 1, NULL, request, &second) != MP_ECOMM ||
        mp_comm_progress(me->comm, NULL) != MP_ECOMM || mp_comm_barrier(me->comm, NULL) != MP_ECOMM)
        mp_fail(&me->error, MP_EINVAL, "something went on");
    mp_request_destroy(request);
    leave_for_good(me);
    if (double_settings()->aborts != 2) /* both lanes */
        me->answer.code = MP_EINVAL;
    me->device->operations->destroy(me->device);
    if (queue_device_live())
        snprintf(me->error.text, sizeof me->error.text, "%d are left", queue_device_live());
}

static void have_a_failing_call(struct rank *me) {
    if (me->rank == 1)
        setenv("MOEPERF_DOUBLE_NCCL_FAIL", "9", 1);
    go_on_until_it_fails(me, 8);
}

static void fail_on_the_stream(struct rank *me) {
    if (me->rank == 1)
        setenv("MOEPERF_DOUBLE_NCCL_ASYNC", "5", 1); /* exchange, sum, exchange, sum, exchange */
    go_on_until_it_fails(me, 8);
}

static void expect_less(struct rank *me) {
    go_on_until_it_fails(me, 16);
}

/* Rows on the exchange lane and sums of gradients on the other, in this order on all ranks but one.
 */
static void start_in_another_order(struct rank *me) {
    const int rows[2] = {8, 8};
    const struct mp_transfer list[1] = {{.from = 0, .to = 1}};
    if (join(me))
        return;
    struct mp_request *moves = make_request(me), *exchanges = make_request(me);
    char *memory = me->device->operations->allocate(me->device, 4096);
    void *from[1] = {me->rank == 0 ? memory : NULL}, *to[1] = {me->rank == 1 ? memory : NULL};
    for (int turn = 0; !me->error.code && turn < 2; turn++)
        if (turn == me->rank)
            mp_exchange_start(me->comm, rows, rows, 64, memory, memory + 1024, NULL, exchanges,
                              &me->error);
        else
            mp_move_start(me->comm, list, 1, from, to, 512, NULL, moves, &me->error);
    double one = 1;
    if (!me->error.code)
        mp_comm_sum(me->comm, &one, 1, &me->error);
    mp_request_destroy(moves);
    mp_request_destroy(exchanges);
    leave(me); /* lanes are done with the memory */
    me->device->operations->release(me->device, memory);
}

static void die_on_the_way(struct rank *me) {
    if (me->rank != 2) {
        go_on_until_it_fails(me, 8);
        return;
    }
    if (!join(me))
        exchange(me, make_request(me), 8, &me->error);
    _exit(3);
}

/* Rank 1 does, until it is killed. */
static void stay_away(struct rank *me) {
    if (join(me))
        return;
    if (me->rank == 1)
        pause();
    mp_comm_abort(me->comm, 1);
    me->error = (struct mp_error){0};
    mp_comm_barrier(me->comm, &me->error);
    leave(me);
}

static void lose_patience(struct rank *me) {
    me->settings.patience_s = 1;
    if (join(me))
        return;
    if (me->rank == 1)
        pause();
    exchange(me, make_request(me), 8, &me->error);
    leave_for_good(me);
}

/* The rank that failed says why in NCCL's words, on one line; the others that somebody is gone. */
TEST(failing_calls_are_told) {
    struct answer answer[3];
    run_ranks(3, have_a_failing_call, answer);
    assert_says(&answer[1], MP_ECOMM,
                "rank 1: exchanging rows: NCCL: unhandled system error (a failure that was asked "
                "for)");
    for (int r = 0; r < 3; r += 2)
        assert_says(&answer[r], MP_ECOMM, "NCCL: remote process exited");
}

/* One operation of each kind, at least one message of which concerns either rank; rank 1's call of
 * this number fails. */
static int failing_call;

static void do_everything(struct rank *me) {
    enum { FLOATS = 4096, BYTES = FLOATS * sizeof(float) }; /* four pieces */
    const struct mp_transfer copies[2] = {
        {.expert = 0, .from = 0, .to = 1, .stage = MP_STAGE_BEFORE_GATE},
        {.expert = 1, .from = 1, .to = 0, .stage = MP_STAGE_BEFORE_GATE}};
    struct mp_transfer sums[2] = {copies[0], copies[1]};
    const struct mp_transfers fetch = {(struct mp_transfer *)copies, 2, 2}, reduce = {sums, 2, 2};
    const int rows[2] = {2, 2};
    uint32_t counts[4] = {1, 2};
    sums[0].stage = sums[1].stage = MP_STAGE_BACKWARD_REDUCE;
    if (me->rank == 1)
        set_number("MOEPERF_DOUBLE_NCCL_FAIL", failing_call);
    me->settings.counts_over_nccl = true;
    if (me->answer.code || join(me))
        return;
    struct mp_request *request = make_request(me);
    rows_memory = me->device->operations->allocate(me->device, 4 * BYTES);
    float *chunk[2] = {(float *)rows_memory, (float *)rows_memory + FLOATS};
    char *other = rows_memory + 2 * (size_t)BYTES;
    void *from[2] = {me->rank ? NULL : other, me->rank ? other : NULL};
    void *to[2] = {me->rank ? other + BYTES : NULL, me->rank ? NULL : other + BYTES};
    struct mp_error *error = &me->error;
    int code = MP_OK;
    for (int which = 0; !code && which < 6; which++) {
        if (which == 0)
            code = mp_exchange_start(me->comm, rows, rows, 64, other, other + BYTES, NULL, request,
                                     error);
        else if (which == 1)
            code =
                mp_all_reduce_start(me->comm, chunk[0], 2 * (size_t)FLOATS, NULL, request, error);
        else if (which == 2)
            code = mp_sparse_all_gather_start(me->comm, &fetch, MP_STAGE_BEFORE_GATE, 2,
                                              (void *const *)chunk, BYTES, NULL, request, error);
        else if (which == 3)
            code = mp_sparse_reduce_scatter_start(me->comm, &reduce, 2, chunk, BYTES, NULL, request,
                                                  error);
        else if (which == 4)
            code = mp_move_start(me->comm, copies, 2, from, to, BYTES, NULL, request, error);
        else
            code = mp_gather_counts_start(me->comm, counts, 2, counts, request, error);
        if (!code)
            code = mp_request_wait(request, error);
    }
    double sum[3] = {1, 2, 3};
    if (!code)
        code = mp_comm_sum(me->comm, sum, 3, error);
    if (!code)
        code = mp_comm_broadcast(me->comm, sum, sizeof sum, 1, error);
    if (!code)
        mp_comm_barrier(me->comm, error);
    mp_request_destroy(request);
    leave_for_good(me);
    me->device->operations->destroy(me->device);
    if (queue_device_live())
        snprintf(me->error.text, sizeof me->error.text, "%d are left", queue_device_live());
}

/* Whichever call of NCCL's fails, its rank says which operation that was, and the other one hears
 * of it. */
TEST(any_call_may_fail) {
    enum { AT_ONCE = 8 };
    const char *place = getenv("MOEPERF_RENDEZVOUS");
    char before[128], other[AT_ONCE][160];
    bool failed = true;
    snprintf(before, sizeof before, "%s", place);
    for (int first = 1; failed; first += AT_ONCE) {
        struct process process[AT_ONCE][2];
        for (int i = 0; i < AT_ONCE; i++) {
            failing_call = first + i;
            snprintf(other[i], sizeof other[i], "%s/%d", before, i);
            setenv("MOEPERF_RENDEZVOUS", other[i], 1);
            for (int r = 0; r < 2; r++)
                process[i][r] = start_rank(r, 2, do_everything);
        }
        for (int i = 0; i < AT_ONCE; i++) {
            struct answer zero = hear(process[i][0]), one = hear(process[i][1]);
            assert_true(failed || one.code == MP_OK); /* there are no more calls */
            failed = one.code != MP_OK;
            if (failed)
                assert_says(&one, MP_ECOMM, "a failure that was asked for");
            assert_int_equal(zero.code, one.code);
            assert_int_equal(rmdir(other[i] + strlen("file:")), 0);
        }
    }
    setenv("MOEPERF_RENDEZVOUS", before, 1);
    assert_true(failing_call > 20);
}

TEST(failures_on_the_stream_are_told) {
    struct answer answer[3];
    run_ranks(3, fail_on_the_stream, answer);
    for (int r = 0; r < 3; r++)
        assert_says(&answer[r], MP_ECOMM, "NCCL: remote process exited");
    assert_says(&answer[1], MP_ECOMM, "rank 1: ");
}

TEST(unequal_sizes_are_told) {
    struct answer answer[2];
    run_ranks(2, expect_less, answer);
    assert_says(&answer[1], MP_ECOMM, "NCCL: invalid usage (rank 1 expects kind 0, 1024 bytes");
    assert_int_equal(answer[0].code, MP_ECOMM);
}

/* What NCCL leaves to chance: on one GPU a kernel waits for room that the other lane's takes. */
TEST(unequal_orders_are_noticed) {
    struct answer answer[2];
    run_ranks(2, start_in_another_order, answer);
    assert_says(&answer[1], MP_ECOMM, "NCCL: invalid usage (rank 1 expects kind 0, 512 bytes");
    assert_int_equal(answer[0].code, MP_ECOMM);
}

TEST(ranks_that_die_are_told) {
    struct answer answer[3];
    run_ranks(3, die_on_the_way, answer);
    for (int r = 0; r < 2; r++)
        assert_says(&answer[r], MP_ECOMM, "NCCL: remote process exited");
    assert_int_equal(answer[2].code, MP_EIO);
}

/* What rank 0 says while rank 1 stays away. */
static struct answer hear_of_the_first(void (*body)(struct rank *me)) {
    struct process zero = start_rank(0, 2, body), one = start_rank(1, 2, body);
    struct answer answer = hear(zero);
    kill(one.pid, SIGKILL);
    hear(one);
    return answer;
}

TEST(waiting_may_have_an_end) {
    struct answer answer = hear_of_the_first(lose_patience);
    assert_says(&answer, MP_ECOMM, "nothing has come for 1 s; is another rank stuck");
}

TEST(giving_up_does_not_wait) {
    struct answer answer = hear_of_the_first(stay_away);
    assert_says(&answer, MP_ECOMM, "rank 0: it was told to give up");
}

/* Memory runs out at every place of create and of a request. */
static void run_out_of_memory(struct rank *me) {
    me->device = queue_device_create(1, 0);
    const int before = queue_device_live();
    int failures = 0;
    for (int n = 1; n < 100; n++) {
        struct mp_error error = {0};
        queue_device_fail(n);
        me->error = (struct mp_error){0};
        int code = join(me);
        queue_device_fail(0);
        if (!code)
            break;
        failures++;
        if (code != MP_ENOMEM || !strstr(me->error.text, "rank 0: no memory"))
            mp_fail(&error, MP_EINVAL, "%s", me->error.text);
        if (queue_device_live() != before)
            mp_fail(&error, MP_EINVAL, "%d are left after %d", queue_device_live() - before, n);
        if (error.code) {
            me->error = error;
            return;
        }
    }
    leave(me);
    if (failures < 5 || queue_device_live() != before)
        mp_fail(&me->error, MP_EINVAL, "%d failures, %d left", failures,
                queue_device_live() - before);
}

TEST(memory_may_run_out) {
    struct answer answer = hear(start_rank(0, 1, run_out_of_memory));
    assert_fine(&answer);
}

TEST_STEP(make_folder) {
    if (!mkdtemp(folder))
        return -1;
    return setenv("MOEPERF_RENDEZVOUS", formatted("file:%s", folder), 1);
}

TEST_STEP(remove_folder) {
    return rmdir(folder);
}

TEST_GROUP(make_folder, remove_folder);
