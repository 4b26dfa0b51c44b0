/* What operations ask of a back end, worked out by hand: which messages, of which memory, in which
 * order, with which tags; what they count; and that nothing follows a call that fails. */
#include "profiler/record/record.h"
#include "reference/comm/transport.h"
#include "tests/errors.h"

enum { MOST = 4096, TAGS = 1000, MINUTE = 60 };

struct mp_messages {
    int unused;
};

enum kind { SEND, RECEIVE, BARRIER, BROADCAST, ALL_REDUCE, ALL_GATHER, TEST, SETTLE };

struct call {
    enum kind kind;
    const void *memory;
    size_t bytes; /* or values */
    int rank;     /* or enum mp_reduction */
    int tag;
    int64_t content[2]; /* of small sends */
};

/* A back end on which everything that was started has ended at the next test. */
static struct {
    struct mp_transport transport;
    struct call call[MOST];
    int calls, fail_at; /* -1: nothing fails */
    int messages;       /* arrays of slots that there are */
    int64_t reply[16][2];
    int replies; /* received so far, of those that are given */
} fake;

static int note(struct call call, struct mp_error *error) {
    assert_true(fake.calls < MOST);
    fake.call[fake.calls] = call;
    return fake.calls++ == fake.fail_at ? mp_fail(error, MP_ECOMM, "the cable is cut") : MP_OK;
}

static int fake_create(UNUSED struct mp_comm *comm, int capacity, struct mp_messages **messages,
                       UNUSED struct mp_error *error) {
    assert_true(capacity > 0);
    *messages = malloc(sizeof **messages);
    fake.messages++;
    return MP_OK;
}

static void fake_destroy(struct mp_messages *messages) {
    fake.messages--;
    free(messages);
}

static void fake_move(UNUSED struct mp_messages *messages, int from, int to) {
    fail_msg("slot %d to %d: nothing is left behind", from, to);
}

/* An operation, which needs to know of no comm. */
#define FAKE(name, ...)                                                                            \
    static int name(UNUSED struct mp_comm *comm, UNUSED struct mp_messages *messages, __VA_ARGS__)

FAKE(fake_test, int active, int finished[], int *count, struct mp_error *error) {
    for (int i = 0; i < active; i++)
        finished[i] = i;
    *count = active;
    return note((struct call){.kind = TEST, .rank = active}, error);
}

FAKE(fake_send, UNUSED int slot, const void *memory, size_t bytes, int rank, int tag,
     struct mp_error *error) {
    struct call call = {SEND, memory, bytes, rank, tag, {0}};
    if (bytes <= sizeof call.content)
        memcpy(call.content, memory, bytes);
    return note(call, error);
}

FAKE(fake_receive, UNUSED int slot, void *memory, size_t bytes, int rank, int tag,
     struct mp_error *error) {
    if (bytes <= sizeof fake.reply[0] && fake.reply[fake.replies][0])
        memcpy(memory, fake.reply[fake.replies++], bytes);
    return note((struct call){RECEIVE, memory, bytes, rank, tag, {0}}, error);
}

FAKE(fake_barrier, int slot, struct mp_error *error) {
    assert_int_equal(slot, 0);
    return note((struct call){.kind = BARRIER}, error);
}

FAKE(fake_broadcast, int slot, void *memory, size_t bytes, int root, struct mp_error *error) {
    assert_int_equal(slot, 0);
    return note((struct call){BROADCAST, memory, bytes, root, 0, {0}}, error);
}

FAKE(fake_all_reduce, int slot, enum mp_reduction reduction, void *values, size_t count,
     struct mp_error *error) {
    assert_int_equal(slot, 0);
    return note((struct call){ALL_REDUCE, values, count, (int)reduction, 0, {0}}, error);
}

FAKE(fake_all_gather, int slot, const void *mine, size_t bytes, UNUSED void *all,
     struct mp_error *error) {
    assert_int_equal(slot, 0);
    return note((struct call){ALL_GATHER, mine, bytes, 0, 0, {0}}, error);
}

static void fake_settle(UNUSED struct mp_comm *comm, UNUSED mp_stream stream) {
    note((struct call){.kind = SETTLE}, NULL);
}

static void fake_add(UNUSED struct mp_comm *comm, UNUSED mp_stream stream, size_t count,
                     const float *from, float *to) {
    for (size_t i = 0; i < count; i++)
        to[i] += from[i];
}

/* ---- worlds ---- */

static struct mp_comm *begin(int rank, int ranks) {
    static const struct mp_comm_operations operations = {.name = "fake",
                                                         .messages_create = fake_create,
                                                         .messages_destroy = fake_destroy,
                                                         .messages_move = fake_move,
                                                         .messages_test = fake_test,
                                                         .send = fake_send,
                                                         .receive = fake_receive,
                                                         .barrier = fake_barrier,
                                                         .broadcast = fake_broadcast,
                                                         .all_reduce = fake_all_reduce,
                                                         .all_gather = fake_all_gather,
                                                         .settle = fake_settle,
                                                         .add = fake_add};
    memset(&fake, 0, sizeof fake);
    fake.fail_at = -1;
    fake.transport.tag_limit = TAGS;
    fake.transport.comm = (struct mp_comm){.operations = &operations, .rank = rank, .ranks = ranks};
    assert_int_equal(mp_transport_open(&fake.transport, NULL), MP_OK);
    return &fake.transport.comm;
}

static void end(void) {
    mp_transport_close(&fake.transport);
    assert_int_equal(fake.messages, 0);
}

static struct mp_request *request_of(struct mp_comm *comm, int transfers, size_t bytes) {
    struct mp_request *request = NULL;
    assert_int_equal(mp_request_create(comm, transfers, bytes, &request, NULL), MP_OK);
    return request;
}

static void assert_call(int i, enum kind kind, const void *memory, size_t bytes, int rank,
                        int tag) {
    const struct call *call = &fake.call[i];
    assert_true(i < fake.calls);
    assert_int_equal(call->kind, kind);
    assert_ptr_equal(call->memory, memory);
    assert_numbers(call->bytes, bytes, call->rank, rank, call->tag, tag);
}

/* Where memory would go on that nobody reads. */
static const void *behind(const void *memory, size_t bytes) {
    return (const void *)((uintptr_t)memory + bytes);
}

static int calls_of(enum kind kind) {
    int count = 0;
    for (int i = 0; i < fake.calls; i++)
        count += fake.call[i].kind == kind;
    return count;
}

/* ---- rows ---- */

enum { ROW = 10, RANKS = 4 };

/* Rank 1 of 4: rows 0 | 1 2 | 3 4 5 | 6 .. 9 go out, 5, 2, 7 and 8 come. */
static const int out_rows[RANKS] = {1, 2, 3, 4}, in_rows[RANKS] = {5, 2, 7, 8};
static char out[10 * ROW], in[22 * ROW];

TEST(rows_go_to_the_next_first) {
    struct mp_comm *comm = begin(1, RANKS);
    struct mp_request *request = request_of(comm, 0, 0);
    for (int i = 0; i < 10 * ROW; i++)
        out[i] = (char)(i + 1);
    for (int again = 0; again < 2; again++) {
        memset(in, 0, sizeof in);
        fake.calls = 0;
        assert_int_equal(
            mp_exchange_start(comm, out_rows, in_rows, ROW, out, in, NULL, request, NULL), MP_OK);
        assert_call(0, SETTLE, NULL, 0, 0, 0);
        assert_call(1, RECEIVE, in, 5 * ROW, 0, again);
        assert_call(2, RECEIVE, in + 14 * ROW, 8 * ROW, 3, again);
        assert_call(3, RECEIVE, in + 7 * ROW, 7 * ROW, 2, again);
        assert_call(4, SEND, out + 3 * ROW, 3 * ROW, 2, again);
        assert_call(5, SEND, out + 6 * ROW, 4 * ROW, 3, again);
        assert_call(6, SEND, out, 1 * ROW, 0, again);
        assert_int_equal(fake.calls, 7);
        assert_memory_equal(in + 5 * ROW, out + 1 * ROW, 2 * ROW);
        assert_int_equal(comm->sent_bytes, (again + 1) * 8 * ROW);
        assert_fails(
            mp_exchange_start(comm, out_rows, in_rows, ROW, out, in, NULL, request, &error),
            MP_EINVAL, "rank 1: the request still carries an operation");
        assert_int_equal(mp_request_wait(request, NULL), MP_OK);
        assert_call(7, TEST, NULL, 0, 6, 0);
        assert_int_equal(mp_request_wait(request, NULL), MP_OK); /* it is free */
    }
    const int nothing[RANKS] = {0, 2, 0, 0};
    fake.calls = 0;
    assert_int_equal(mp_exchange_start(comm, nothing, nothing, ROW, out, in, NULL, request, NULL),
                     MP_OK);
    assert_int_equal(fake.calls, 1);
    assert_int_equal(mp_request_wait(request, NULL), MP_OK);
    assert_int_equal(fake.calls, 1);
    assert_memory_equal(in, out, 2 * ROW);
    mp_request_destroy(request);
    end();
}

TEST(impossible_rows_are_refused) {
    struct mp_comm *comm = begin(1, RANKS);
    struct mp_request *request = request_of(comm, 0, 0);
    const int less[RANKS] = {1, 2, -3, 4}, own[RANKS] = {5, 3, 7, 8}, most[RANKS] = {0, 0, 1, 0};
    assert_fails(mp_exchange_start(comm, less, in_rows, ROW, out, in, NULL, request, &error),
                 MP_EINVAL, "rank 1: an exchange of -3 rows to and 7 rows from rank 2");
    assert_fails(mp_exchange_start(comm, in_rows, less, ROW, out, in, NULL, request, &error),
                 MP_EINVAL, "rank 1: an exchange of 7 rows to and -3 rows from rank 2");
    assert_fails(mp_exchange_start(comm, out_rows, own, ROW, out, in, NULL, request, &error),
                 MP_EINVAL, "rank 1: it sends itself 2 rows and expects 3");
    assert_int_equal(fake.calls, 0);
    assert_fails(
        mp_exchange_start(comm, most, most, MP_MESSAGE_LIMIT + 1, out, in, NULL, request, &error),
        MP_ELIMIT, "a message of 1073741825 bytes between it and rank 2; at most 1073741824");
    assert_int_equal(calls_of(SEND) + calls_of(RECEIVE), 0);
    assert_int_equal(
        mp_exchange_start(comm, most, most, MP_MESSAGE_LIMIT, out, in, NULL, request, NULL), MP_OK);
    assert_int_equal(mp_request_wait(request, NULL), MP_OK);
    struct mp_transport other = fake.transport;
    assert_fails(mp_exchange_start(&other.comm, most, most, 1, out, in, NULL, request, &error),
                 MP_EINVAL, "rank 1: the request belongs to another comm");
    mp_request_destroy(request);
    assert_fails(mp_request_create(comm, -1, 0, &request, &error), MP_EINVAL,
                 "a request for -1 transfers; 0 .. 16777216");
    assert_fails(mp_request_create(comm, (1 << 24) + 1, 0, &request, &error), MP_EINVAL,
                 "a request for 16777217 transfers");
    end();
}

/* ---- dense collectives ---- */

TEST(collectives_ask_for_what_they_are) {
    struct mp_comm *comm = begin(1, RANKS);
    struct mp_request *request = request_of(comm, 0, 0);
    double values[3] = {1, 2, 3};
    uint32_t mine[5] = {0}, all[5 * RANKS] = {0};
    float gradient[8] = {0};
    assert_int_equal(mp_comm_barrier(comm, NULL), MP_OK);
    assert_call(0, BARRIER, NULL, 0, 0, 0);
    assert_call(1, TEST, NULL, 0, 1, 0);
    assert_int_equal(mp_comm_sum(comm, values, 3, NULL), MP_OK);
    assert_call(2, ALL_REDUCE, values, 3, MP_REDUCTION_DOUBLE_SUM, 0);
    assert_int_equal(mp_comm_maximum(comm, values, 2, NULL), MP_OK);
    assert_call(4, ALL_REDUCE, values, 2, MP_REDUCTION_DOUBLE_MAXIMUM, 0);
    assert_int_equal(mp_comm_sum(comm, values, 0, NULL), MP_OK);
    assert_int_equal(fake.calls, 6);
    assert_fails(mp_comm_maximum(comm, values, -1, &error), MP_EINVAL,
                 "rank 1: a reduction of -1 values");
    assert_int_equal(comm->sent_bytes, 0);

    assert_int_equal(mp_gather_counts_start(comm, mine, 5, all, request, NULL), MP_OK);
    assert_call(6, ALL_GATHER, mine, 20, 0, 0);
    assert_true(request->in_flight);
    assert_int_equal(mp_request_wait(request, NULL), MP_OK);
    assert_int_equal(comm->sent_bytes, 20 * 3);
    assert_fails(mp_gather_counts_start(comm, mine, -1, all, request, &error), MP_EINVAL,
                 "rank 1: a gather of -1 counts");
    assert_int_equal(mp_gather_counts_start(comm, mine, 0, all, request, NULL), MP_OK);
    assert_false(request->in_flight);
    assert_int_equal(fake.calls, 8);

    assert_int_equal(mp_all_reduce_start(comm, gradient, 8, NULL, request, NULL), MP_OK);
    assert_call(8, SETTLE, NULL, 0, 0, 0);
    assert_call(9, ALL_REDUCE, gradient, 8, MP_REDUCTION_FLOAT_SUM, 0);
    assert_int_equal(mp_request_wait(request, NULL), MP_OK);
    assert_int_equal(comm->sent_bytes, 20 * 3 + 2 * 8 * 4 / 4 * 3); /* a ring's */
    assert_int_equal(mp_all_reduce_start(comm, gradient, 0, NULL, request, NULL), MP_OK);
    assert_int_equal(fake.calls, 11);
    mp_request_destroy(request);
    end();
}

TEST(broadcasts_are_cut_into_messages) {
    const size_t bytes = 2 * (size_t)MP_MESSAGE_LIMIT + 5;
    char memory[1];
    for (int root = 0; root < 2; root++) {
        struct mp_comm *comm = begin(1, RANKS);
        assert_int_equal(mp_comm_broadcast(comm, memory, bytes, root, NULL), MP_OK);
        assert_int_equal(fake.calls, 6);
        for (size_t i = 0; i < 3; i++)
            assert_call((int)(2 * i), BROADCAST, behind(memory, i * MP_MESSAGE_LIMIT),
                        i == 2 ? 5 : MP_MESSAGE_LIMIT, root, 0);
        assert_int_equal(comm->sent_bytes, root == 1 ? (int64_t)bytes : 0);
        assert_int_equal(mp_comm_broadcast(comm, memory, MP_MESSAGE_LIMIT, root, NULL), MP_OK);
        assert_int_equal(fake.calls, 8);
        assert_int_equal(mp_comm_broadcast(comm, memory, 0, root, NULL), MP_OK);
        assert_int_equal(fake.calls, 8);
        assert_fails(mp_comm_broadcast(comm, memory, 1, RANKS, &error), MP_EINVAL,
                     "rank 1: a broadcast from rank 4; ranks are 0 .. 3");
        assert_fails(mp_comm_broadcast(comm, memory, 1, -1, &error), MP_EINVAL,
                     "a broadcast from rank -1");
        end();
    }
}

/* ---- tags ---- */

TEST(tags_come_round) {
    begin(1, RANKS);
    struct mp_transport *transport = &fake.transport;
    int first;
    transport->tag_limit = 8;
    for (int i = 0; i < 20; i++) {
        assert_int_equal(mp_transport_take_tags(transport, 1, &first, NULL), MP_OK);
        assert_int_equal(first, i % 8);
    }
    static const int firsts[] = {4, 6, 0, 2, 4, 6};
    for (int i = 0; i < 6; i++) {
        assert_int_equal(mp_transport_take_tags(transport, 2, &first, NULL), MP_OK);
        assert_int_equal(first, firsts[i]);
    }
    assert_fails(
        mp_transport_take_tags(transport, 3, &first, &error), MP_ELIMIT,
        "rank 1: one operation of 3 trees needs more message tags than a quarter of the 8");
    end();
}

/* ---- moves ---- */

TEST(moves_are_of_their_two_ranks) {
    struct mp_comm *comm = begin(1, RANKS);
    struct mp_request *request = request_of(comm, 3, 2 * (size_t)MP_MESSAGE_LIMIT);
    static char memory[6][8] = {"first", "second", "third", "fourth", "fifth", "sixth"};
    const struct mp_transfer list[] = {{.expert = 7, .from = 1, .to = 2},
                                       {.expert = 8, .from = 0, .to = 1},
                                       {.expert = 9, .from = 1, .to = 1},
                                       {.expert = 5, .from = 2, .to = 3},
                                       {.expert = 6, .from = 3, .to = 1}};
    void *from[] = {memory[0], NULL, memory[1], NULL, NULL};
    void *to[] = {NULL, memory[2], memory[3], NULL, memory[4]};
    assert_int_equal(mp_move_start(comm, list, 5, from, to, 8, NULL, request, NULL), MP_OK);
    assert_call(0, SETTLE, NULL, 0, 0, 0);
    assert_call(1, SEND, memory[0], 8, 2, 0);
    assert_call(2, RECEIVE, memory[2], 8, 0, 1);
    assert_call(3, RECEIVE, memory[4], 8, 3, 4);
    assert_int_equal(fake.calls, 4);
    assert_string_equal(memory[3], "second");
    assert_int_equal(mp_request_wait(request, NULL), MP_OK);
    assert_int_equal(comm->sent_bytes, 8);

    fake.calls = 0; /* two messages of each, behind the tags of the five */
    assert_int_equal(
        mp_move_start(comm, list, 2, from, to, 2 * (size_t)MP_MESSAGE_LIMIT, NULL, request, NULL),
        MP_OK);
    assert_call(1, SEND, memory[0], MP_MESSAGE_LIMIT, 2, 5);
    assert_call(2, SEND, behind(memory[0], MP_MESSAGE_LIMIT), MP_MESSAGE_LIMIT, 2, 5);
    assert_call(3, RECEIVE, memory[2], MP_MESSAGE_LIMIT, 0, 6);
    assert_call(4, RECEIVE, behind(memory[2], MP_MESSAGE_LIMIT), MP_MESSAGE_LIMIT, 0, 6);
    assert_int_equal(mp_request_wait(request, NULL), MP_OK);

    const struct mp_transfer bad[] = {{.from = -1, .to = 1}, {.from = 1, .to = RANKS}};
    for (int i = 0; i < 2; i++)
        assert_fails(mp_move_start(comm, &bad[i], 1, from, from, 8, NULL, request, &error),
                     MP_EINVAL, "ranks are 0 .. 3");
    assert_fails(mp_move_start(comm, list, 1, to, to, 8, NULL, request, &error), MP_EINVAL,
                 "expert 7 moves from rank 1 to rank 2 and has no memory here");
    assert_fails(mp_move_start(comm, list + 1, 1, from + 1, from + 1, 8, NULL, request, &error),
                 MP_EINVAL, "expert 8 moves from rank 0 to rank 1 and has no memory here");
    assert_fails(
        mp_move_start(comm, list, 5, from, to, 3 * (size_t)MP_MESSAGE_LIMIT, NULL, request, &error),
        MP_ELIMIT, "chunks of 3221225472 bytes; the request was made for at most 2147483648");
    mp_request_destroy(request);
    request = request_of(comm, 2, 8);
    assert_fails(mp_move_start(comm, list, 5, from, to, 8, NULL, request, &error), MP_ELIMIT,
                 "made for 2 transfers and the list has more");
    mp_request_destroy(request);
    end();
}

/* ---- clocks ---- */

/* Rank 0 plays with each of the others in turn, and tells it the tightest of its trips; the second,
 * as the others' clock went back for many minutes between arrival and answer. */
TEST(the_tightest_trip_is_told) {
    const int64_t s = 1000000000, ahead = 100 * MINUTE * s;
    int64_t offset = 1, off_by = 1, now = mp_clock_ns();
    struct mp_comm *comm = begin(0, 3);
    for (int i = 0; i < 6; i++) {
        static const int longer[] = {60, 0, 30};
        fake.reply[i][0] = now + ahead;
        fake.reply[i][1] = now + ahead - longer[i % 3] * MINUTE * s;
    }
    assert_int_equal(mp_comm_clock_offset(comm, 3, &offset, &off_by, NULL), MP_OK);
    assert_int_equal(offset, 0);
    assert_int_equal(off_by, 0);
    assert_int_equal(calls_of(SEND), 2 * 4);
    assert_int_equal(calls_of(RECEIVE), 2 * 3);
    for (int i = 0, sends = 0; i < fake.calls; i++) {
        const struct call *call = &fake.call[i];
        if (call->kind == TEST)
            continue;
        assert_int_equal(call->tag, 0);
        assert_int_equal(call->rank, i < fake.calls / 2 ? 1 : 2);
        assert_int_equal(call->bytes, call->kind == RECEIVE || sends % 4 == 3 ? 16 : 8);
        if (call->kind == SEND && sends++ % 4 == 3) {
            assert_within((double)call->content[0], (double)ahead, MINUTE * 1e9);
            assert_in_range(call->content[1], 0, MINUTE * s);
        }
    }
    assert_fails(mp_comm_clock_offset(comm, 0, &offset, &off_by, &error), MP_EINVAL,
                 "rank 0: clocks measured by 0 trips");
    end();
}

TEST(others_answer_with_their_clock) {
    int64_t offset = 1, off_by = 1;
    struct mp_comm *comm = begin(2, 3);
    fake.reply[0][0] = fake.reply[1][0] = 5; /* what rank 0 sends is not looked at */
    fake.reply[2][0] = -123;
    fake.reply[2][1] = 45;
    int64_t before = mp_clock_ns();
    assert_int_equal(mp_comm_clock_offset(comm, 2, &offset, &off_by, NULL), MP_OK);
    int64_t after = mp_clock_ns(), last = before;
    assert_int_equal(offset, -123);
    assert_int_equal(off_by, 45);
    assert_int_equal(calls_of(SEND), 2);
    assert_int_equal(calls_of(RECEIVE), 3);
    for (int i = 0; i < fake.calls; i++) {
        const struct call *call = &fake.call[i];
        assert_int_equal(call->rank, call->kind == TEST ? 1 : 0);
        for (int j = 0; call->kind == SEND && j < 2; j++) {
            assert_true(call->content[j] >= last);
            last = call->content[j];
        }
    }
    assert_true(last > before && last <= after);
    end();
}

/* ---- failures ---- */

enum { CHUNK = 3000, OPERATIONS = 10 };

static float chunk[3][CHUNK];

/* One of the operations, and waiting for it; rank 1 of 3. */
static int operate(struct mp_comm *comm, int which, struct mp_request *request,
                   struct mp_error *error) {
    static const int rows[3] = {1, 1, 1};
    static struct mp_transfer copies[] = {
        {.expert = 0, .from = 1, .to = 0, .stage = MP_STAGE_BEFORE_GATE},
        {.expert = 0, .from = 1, .to = 2, .stage = MP_STAGE_BEFORE_GATE},
        {.expert = 1, .from = 2, .to = 1, .stage = MP_STAGE_BEFORE_GATE},
    };
    static struct mp_transfer sums[] = {
        {.expert = 0, .from = 0, .to = 1, .stage = MP_STAGE_BACKWARD_REDUCE},
        {.expert = 0, .from = 2, .to = 1, .stage = MP_STAGE_BACKWARD_REDUCE},
        {.expert = 1, .from = 1, .to = 2, .stage = MP_STAGE_BACKWARD_REDUCE},
    };
    const struct mp_transfers fetch = {copies, 3, 3}, reduce = {sums, 3, 3};
    static char send[3], receive[3];
    static uint32_t counts[6];
    float *of_experts[2] = {chunk[0], chunk[1]};
    void *to[3] = {NULL, NULL, chunk[2]}, *from[3] = {chunk[0], chunk[1], NULL};
    int64_t offset, off_by;
    double value = 1;
    int code = MP_OK;
    switch (which) {
    case 0:
        return mp_comm_barrier(comm, error);
    case 1:
        return mp_comm_broadcast(comm, chunk, 2 * (size_t)MP_MESSAGE_LIMIT, 0, error);
    case 2:
        return mp_comm_sum(comm, &value, 1, error);
    case 3:
        return mp_comm_clock_offset(comm, 2, &offset, &off_by, error);
    case 4:
        code = mp_gather_counts_start(comm, counts, 2, counts, request, error);
        break;
    case 5:
        code = mp_exchange_start(comm, rows, rows, 1, send, receive, NULL, request, error);
        break;
    case 6:
        code = mp_all_reduce_start(comm, chunk[0], CHUNK, NULL, request, error);
        break;
    case 7:
        code = mp_sparse_all_gather_start(comm, &fetch, MP_STAGE_BEFORE_GATE, 2,
                                          (void *const *)of_experts, sizeof *chunk, NULL, request,
                                          error);
        break;
    case 8:
        code = mp_sparse_reduce_scatter_start(comm, &reduce, 2, of_experts, sizeof *chunk, NULL,
                                              request, error);
        break;
    default:
        code = mp_move_start(comm, copies, 3, from, to, sizeof *chunk, NULL, request, error);
    }
    return code ? code : mp_request_wait(request, error);
}

/* The n-th call fails: it is the last one, and everything says so. */
TEST(nothing_follows_a_failure) {
    for (int which = 0; which < OPERATIONS; which++)
        for (int rank = 0; rank < 2; rank++) {
            bool failed = true;
            for (int n = 0; failed; n++) {
                struct mp_error error = {0};
                struct mp_comm *comm = begin(which == 3 ? rank : 1, 3);
                struct mp_request *request = request_of(comm, 3, sizeof *chunk);
                fake.fail_at = n;
                int code = operate(comm, which, request, &error);
                failed = n < fake.calls;
                if (failed && fake.call[n].kind != SETTLE) { /* which can't fail */
                    assert_int_equal(code, MP_ECOMM);
                    assert_string_equal(error.text, "the cable is cut");
                    assert_int_equal(fake.calls, n + 1);
                } else {
                    assert_int_equal(code, MP_OK);
                    assert_false(request->in_flight);
                }
                mp_request_destroy(request);
                end();
            }
        }
}
