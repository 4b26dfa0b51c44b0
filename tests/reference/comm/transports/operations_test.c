/* Every operation of every transport, one at a time. */
#include <sched.h>

#include "profiler/record/record.h"
#include "tests/double/gate.h"
#include "tests/reference/comm/transports/transport_case.h"

static struct mp_request *request;

TEST_STEP(create_request) {
    return mp_request_create(comm, CASE_EXPERTS * CASE_RANKS, 8 << 20, &request, &error);
}

TEST_STEP(destroy_request) {
    mp_request_destroy(request);
    return 0;
}

TEST_GROUP(create_request, destroy_request);

/* What has been started on the request. */
static void carry_out(int started) {
    assert_ok(started);
    assert_ok(mp_request_wait(request, &error));
}

static const size_t sizes[] = {
    0,         4,      8,          60,        4096,          300 << 10,
    131068,    131076, 128 << 10,  1 << 20,   (1 << 20) - 4, (2 << 20) + 20,
    PIECE - 4, PIECE,  PIECE + 64, 3 * PIECE, 5 * PIECE + 4};

static size_t any_size(void) {
    const int known = sizeof sizes / sizeof *sizes;
    int pick = test_random_int(&shared, 0, 2 * known - 1);
    return pick < known ? sizes[pick] : 4 * (size_t)test_random_int(&shared, 1, 60000);
}

static mp_stream any_stream(void) {
    return test_random_int(&shared, 0, 1) ? own_stream : NULL;
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

/* Made of the owner's, or after the gate of copies that are there by then. */
TEST(copies_are_the_owners) {
    static const enum mp_stage stages[] = {MP_STAGE_BEFORE_GATE, MP_STAGE_AFTER_GATE};
    for (int round = 0; round < 24; round++) {
        AUTO(case) struct sparse_case c;
        mp_stream stream = any_stream();
        const bool passes_on = round % 2;
        case_create(&c, test_random(&shared), comm->ranks, round / 2 % CASE_KINDS, any_size());
        if (passes_on)
            case_pass_on(&c);
        AUTO(sparse_memory) struct sparse_memory memory = sparse_memory_create(&c);
        double bytes[3] = {(double)-comm->sent_bytes, case_copies(&c, comm->rank),
                           (double)-comm->between_bytes};
        mirror_push(&memory.mirror, stream);
        for (int i = 0; i <= passes_on; i++) {
            carry_out(mp_sparse_all_gather_start(comm, &c.fetch, stages[i], c.experts,
                                                 (void *const *)memory.chunk, c.bytes, stream,
                                                 request, &error));
        }
        bytes[0] += (double)comm->sent_bytes;
        bytes[2] += (double)comm->between_bytes;
        mirror_pull(&memory.mirror, stream);
        settle(stream);
        case_check_gathered(&c, comm->rank, memory.host);
        assert_ok(mp_comm_sum(comm, bytes, 3, &error));
        assert_true(bytes[0] == bytes[1] * (double)c.bytes);
        assert_true(passes_on || by_broadcasts || bytes[2] == crossings(&c) * (double)c.bytes);
    }
}

TEST(sums_follow_the_hops) {
    for (int round = 0; round < 12; round++) {
        AUTO(case) struct sparse_case c;
        mp_stream stream = any_stream();
        case_create(&c, test_random(&shared), comm->ranks, round % CASE_KINDS, any_size());
        AUTO(sparse_memory) struct sparse_memory memory = sparse_memory_create(&c);
        int64_t sent = comm->sent_bytes;
        mirror_push(&memory.mirror, stream);
        carry_out(mp_sparse_reduce_scatter_start(comm, &c.reduce, c.experts, memory.chunk, c.bytes,
                                                 stream, request, &error));
        mirror_pull(&memory.mirror, stream);
        settle(stream);
        check_reduced(&c, memory.host);
        assert_int_equal(comm->sent_bytes - sent, (int64_t)c.bytes * case_copies(&c, comm->rank));
    }
}

/* Moves in any pattern: item i goes from one random rank to another, perhaps the same. */
TEST(moves_arrive) {
    enum { MOVES = 30 };
    for (int round = 0; round < 4; round++) {
        struct mp_transfer list[MOVES];
        void *from[MOVES] = {NULL}, *to[MOVES] = {NULL};
        mp_stream stream = any_stream();
        size_t bytes = any_size();
        struct sparse_case c = {.seed = test_random(&shared), .ranks = comm->ranks};
        AUTO(mirror) struct mirror memory = mirror_create(2 * MOVES * bytes);
        int64_t outwards = -comm->sent_bytes;
        for (int i = 0; i < MOVES; i++) {
            list[i] = (struct mp_transfer){.expert = i,
                                           .from = test_random_int(&shared, 0, comm->ranks - 1),
                                           .to = test_random_int(&shared, 0, comm->ranks - 1)};
            size_t at = (size_t)(2 * i) * bytes;
            from[i] = list[i].from == comm->rank ? memory.device + at : NULL;
            to[i] = list[i].to == comm->rank ? memory.device + at + bytes : NULL;
            for (size_t k = 0; from[i] && k < bytes / sizeof(float); k++)
                ((float *)(memory.host + at))[k] = case_value(&c, i, 0, k);
            outwards += from[i] && !to[i] ? -(int64_t)bytes : 0;
        }
        mirror_push(&memory, stream);
        carry_out(mp_move_start(comm, list, MOVES, from, to, bytes, stream, request, &error));
        assert_int_equal(outwards + comm->sent_bytes, 0);
        mirror_pull(&memory, stream);
        settle(stream);
        for (int i = 0; i < MOVES; i++)
            for (size_t k = 0; to[i] && k < bytes / sizeof(float); k++)
                assert_true(((float *)(memory.host + (size_t)(2 * i + 1) * bytes))[k] ==
                            case_value(&c, i, 0, k));
    }
}

/* ---- exchange ---- */

static unsigned char row_byte(uint64_t seed, int source, int to, size_t i) {
    uint64_t number = seed ^ (uint64_t)(source * 64 + to) << 40 ^ (uint64_t)i;
    return (unsigned char)test_random(&number);
}

enum pattern { FULL, SPARSE, ZERO_ROW, ZERO_COLUMN, ONLY_SELF, NOTHING, PATTERNS };

static uint64_t seed_of(enum pattern pattern) {
    return test_random(&shared) / PATTERNS * PATTERNS - PATTERNS + pattern;
}

/* Rows from `source` to `to`, in the pattern of the seed. */
static int rows_between(uint64_t seed, int source, int to) {
    const enum pattern pattern = (enum pattern)(seed % PATTERNS);
    const int special = (int)(seed / PATTERNS % (uint64_t)comm->ranks);
    uint64_t number = seed ^ (uint64_t)(source * 64 + to) << 32;
    int rows = test_random_int(&number, 0, 300);
    bool empty = pattern == NOTHING || (pattern == SPARSE && rows % 3) ||
                 (pattern == ZERO_ROW && source == special) ||
                 (pattern == ZERO_COLUMN && to == special) ||
                 (pattern == ONLY_SELF && source != to);
    return empty ? 0 : rows;
}

/* All bytes that this rank has for others, or has got: made, or looked at. */
static void each_byte(const struct mirror *rows, uint64_t seed, size_t row_bytes, bool got,
                      bool make) {
    size_t at = 0;
    for (int r = 0; r < comm->ranks; r++) {
        int from = got ? r : comm->rank, to = got ? comm->rank : r;
        size_t bytes = (size_t)rows_between(seed, from, to) * row_bytes;
        for (size_t i = 0; i < bytes; i++, at++) {
            char byte = (char)row_byte(seed, from, to, i);
            if (make)
                rows->host[at] = byte;
            else if (rows->host[at] != byte)
                fail_msg("rank %d: byte %zu from rank %d to rank %d is wrong", comm->rank, i, from,
                         to);
        }
    }
}

static void one_exchange(enum pattern pattern) {
    uint64_t seed = seed_of(pattern);
    size_t row_bytes = (size_t)test_random_int(&shared, 1, 700), out = 0, in = 0;
    mp_stream stream = any_stream();
    int to[CASE_RANKS], from[CASE_RANKS];
    int64_t outwards = -comm->sent_bytes;
    for (int r = 0; r < comm->ranks; r++) {
        to[r] = rows_between(seed, comm->rank, r);
        from[r] = rows_between(seed, r, comm->rank);
        out += (size_t)to[r] * row_bytes;
        in += (size_t)from[r] * row_bytes;
        outwards -= r == comm->rank ? 0 : to[r] * (int64_t)row_bytes;
    }
    AUTO(mirror) struct mirror send = mirror_create(out), receive = mirror_create(in + 1);
    each_byte(&send, seed, row_bytes, false, true);
    memset(receive.host, 0xA5, in + 1);
    mirror_push(&send, stream);
    mirror_push(&receive, stream);
    carry_out(mp_exchange_start(comm, to, from, row_bytes, send.device, receive.device, stream,
                                request, &error));
    mirror_zero(&send, stream);
    mirror_pull(&receive, stream);
    settle(stream);
    each_byte(&receive, seed, row_bytes, true, false);
    assert_int_equal((unsigned char)receive.host[in], 0xA5);
    assert_int_equal(outwards + comm->sent_bytes, 0);
}

TEST(rows_arrive_by_source) {
    for (int round = 0; round < 3 * PATTERNS; round++)
        one_exchange((enum pattern)(round % PATTERNS));
}

/* The way of this rank's rows in an exchange; and how many it sends to others in all rounds. */
static struct mp_exchange_path find_path(uint64_t seed, const struct mp_exchange *exchange,
                                         int64_t *outwards) {
    const struct mp_topology topology = {comm->ranks, test_random_int(&shared, 1, comm->ranks)};
    int rows[CASE_RANKS * CASE_RANKS], ranks = comm->ranks;
    struct mp_exchange_path path;
    for (int i = 0; i < ranks * ranks; i++)
        rows[i] = rows_between(seed, i / ranks, i % ranks);
    assert_ok(mp_exchange_path_create(exchange, &topology, comm->rank, &path, &error));
    assert_ok(mp_exchange_path_build(exchange, &topology, comm->rank, rows, &path, &error));
    *outwards = 0;
    for (int i = 0; i < path.rounds; i++)
        for (int r = 0; r < ranks; r++)
            *outwards += r == comm->rank ? 0 : path.round[i].send_rows[r];
    return path;
}

/* Rows go there, and the same ones come back. */
static void one_path(const struct mp_exchange *exchange, enum pattern pattern) {
    uint64_t seed = seed_of(pattern);
    size_t row_bytes = (size_t)test_random_int(&shared, 1, 300), out = 0, in = 0;
    mp_stream stream = any_stream();
    int64_t outwards, sent = comm->sent_bytes;
    struct mp_exchange_path path = find_path(seed, exchange, &outwards);
    size_t room = (size_t)path.transit_rows * row_bytes;
    for (int r = 0; r < comm->ranks; r++) {
        out += (size_t)rows_between(seed, comm->rank, r) * row_bytes;
        in += (size_t)rows_between(seed, r, comm->rank) * row_bytes;
    }
    AUTO(mirror) struct mirror send = mirror_create(out), receive = mirror_create(in + 1);
    struct mirror transit[2] = {mirror_create(room), mirror_create(room)};
    void *const memory[2] = {transit[0].device, transit[1].device};
    each_byte(&send, seed, row_bytes, false, true);
    memset(receive.host, 0xA5, in + 1);
    mirror_push(&send, stream);
    mirror_push(&receive, stream);
    carry_out(mp_exchange_path_start(comm, &path, false, row_bytes, send.device, receive.device,
                                     memory, stream, request, &error));
    assert_int_equal(comm->sent_bytes - sent, outwards * (int64_t)row_bytes);
    mirror_zero(&send, stream);
    mirror_pull(&receive, stream);
    carry_out(mp_exchange_path_start(comm, &path, true, row_bytes, receive.device, send.device,
                                     memory, stream, request, &error));
    mirror_pull(&send, stream);
    settle(stream);
    each_byte(&receive, seed, row_bytes, true, false);
    assert_int_equal((unsigned char)receive.host[in], 0xA5);
    each_byte(&send, seed, row_bytes, false, false);
    for (int i = 0; i < 2; i++)
        mirror_destroy(&transit[i]);
    mp_exchange_path_destroy(&path);
}

TEST(rows_are_passed_on) {
    enum { KINDS = MP_EXCHANGE_DEDUPLICATED }; /* whose rows are blocks */
    for (int kind = 0; kind < KINDS; kind++)
        for (enum pattern pattern = FULL; pattern < PATTERNS; pattern++)
            one_path(mp_exchange_of((enum mp_exchange_kind)kind), pattern);
}

/* ---- dense ---- */

TEST(all_reduce_is_equal_everywhere) {
    static const int counts[] = {0, 1, 3, 1000, 65537, 300000};
    for (size_t n = 0; n < sizeof counts / sizeof *counts; n++) {
        const size_t count = (size_t)counts[n], bytes = count * sizeof(float);
        AUTO(mirror) struct mirror values = mirror_create(bytes);
        float *host = (float *)values.host, *first = malloc(bytes + 1);
        AUTO(allocated) double *sum = calloc(count + 1, sizeof *sum);
        uint64_t seed = test_random(&shared);
        for (int r = 0; r < comm->ranks; r++) {
            uint64_t random = seed + (uint64_t)r;
            for (size_t i = 0; i < count; i++) {
                float value = (float)test_random_double(&random) - 0.5f;
                sum[i] += value;
                if (r == comm->rank)
                    host[i] = value;
            }
        }
        mirror_push(&values, own_stream);
        carry_out(
            mp_all_reduce_start(comm, (float *)values.device, count, own_stream, request, &error));
        mirror_pull(&values, own_stream);
        settle(own_stream);
        for (size_t i = 0; i < count; i++)
            assert_within(host[i], sum[i], 1e-7 * comm->ranks);
        memcpy(first, host, bytes);
        assert_ok(mp_comm_broadcast(world, first, bytes, 0, &error));
        assert_memory_equal(first, host, bytes);
        free(first);
    }
}

TEST(counts_of_all_ranks_arrive) {
    static const int counts[] = {0, 1, 33, 4096, 4097, 10000};
    for (size_t c = 0; c < sizeof counts / sizeof *counts; c++) {
        const int count = counts[c];
        AUTO(allocated) uint32_t *mine = malloc((size_t)(count + 1) * sizeof *mine);
        AUTO(allocated) uint32_t *all = malloc((size_t)(comm->ranks * count + 1) * sizeof *all);
        for (int i = 0; i < count; i++)
            mine[i] = (uint32_t)(comm->rank * 1000003 + i * 17 + 1);
        carry_out(mp_gather_counts_start(comm, mine, count, all, request, &error));
        for (int r = 0; r < comm->ranks; r++)
            for (int i = 0; i < count; i++)
                assert_int_equal(all[r * count + i], r * 1000003 + i * 17 + 1);
    }
}

/* What the host reads: larger than what is staged at a time. */
TEST(host_memory_travels) {
    enum { BYTES = (2 << 20) + 12345, VALUES = 200001 };
    AUTO(allocated) unsigned char *memory = malloc(BYTES);
    AUTO(allocated) double *values = malloc(VALUES * sizeof *values);
    const int n = comm->ranks;
    for (int root = 0; root < n; root++) {
        const int bytes = root == n - 1 ? BYTES : 800;
        for (int i = 0; i < bytes; i++)
            memory[i] = (unsigned char)(i * 7 + comm->rank);
        assert_ok(mp_comm_broadcast(comm, memory, (size_t)bytes, root, &error));
        for (int i = 0; i < bytes; i++)
            assert_true(memory[i] == (unsigned char)(i * 7 + root));
    }
    for (int i = 0; i < VALUES; i++)
        values[i] = i + 0.25 * comm->rank;
    assert_ok(mp_comm_sum(comm, values, VALUES, &error));
    for (int i = 0; i < VALUES; i++) /* exact in binary */
        assert_true(values[i] == (double)i * n + 0.25 * n * (n - 1) / 2);
    double largest[2] = {comm->rank, -comm->rank - 3.5};
    assert_ok(mp_comm_maximum(comm, largest, 2, &error));
    assert_true(largest[0] == n - 1 && largest[1] == -3.5);
}

TEST(barrier_holds_until_the_last) {
    for (int last = 0; last < comm->ranks; last++) {
        const struct timespec pause = {.tv_nsec = 2000000};
        assert_ok(mp_comm_barrier(comm, &error));
        if (last == comm->rank)
            nanosleep(&pause, NULL);
        double entered = (double)mp_clock_ns(); /* one host, one clock */
        assert_ok(mp_comm_barrier(comm, &error));
        double left = (double)mp_clock_ns();
        assert_ok(mp_comm_maximum(comm, &entered, 1, &error));
        assert_true(left >= entered);
    }
}

/* All ranks read one clock here: the true offset is 0.  The error is half the shortest of so many
 * round trips, one after another, however long ranks that share a core keep each other waiting;
 * rounded up. */
TEST(offset_lies_within_its_error) {
    enum { ROUNDS = 20 };
    int64_t offset = 1, off_by = -1, begin = mp_clock_ns();
    assert_ok(mp_comm_clock_offset(comm, ROUNDS, &offset, &off_by, &error));
    assert_true(comm->rank ? off_by > 0 : off_by == 0 && offset == 0);
    assert_in_range(off_by, 0, (mp_clock_ns() - begin) / ROUNDS / 2 + 1);
    if (llabs(offset) > off_by)
        fail_msg("rank %d: offset %lld ns, error %lld ns", comm->rank, (long long)offset,
                 (long long)off_by);
}

TEST(description_names_the_library) {
    char text[256] = "";
    bool share = false;
    mp_comm_describe(comm, text, sizeof text, &share);
    assert_contains(text, ", host ");
    assert_null(strpbrk(text, "\n\t"));
    assert_true(strstr(text, "MPI") || strstr(text, "NCCL 2.28.9") ||
                !strcmp(transport_name, "self"));
    assert_string_equal(mp_comm_nccl_remark(comm), "");
    if (comm->ranks > sysconf(_SC_NPROCESSORS_ONLN)) /* fewer may be usable: not certain below */
        assert_true(share);
}

/* ---- what holds of all ---- */

/* A rank has its number so many times; all have the sum afterwards. */
enum { NUMBERS = 16 };

static void put_number(const struct mirror *numbers) {
    for (int i = 0; i < NUMBERS; i++)
        ((float *)numbers->host)[i] = (float)comm->rank;
}

static void check_sum(const struct mirror *numbers) {
    for (int i = 0; i < NUMBERS; i++)
        assert_true(((float *)numbers->host)[i] == (float)(comm->ranks * (comm->ranks - 1) / 2));
}

struct observed {
    int begins, ends;
    mp_stream stream;
};

static void observe(void *context, mp_stream stream, bool begins) {
    struct observed *observed = context;
    *(begins ? &observed->begins : &observed->ends) += 1;
    observed->stream = stream;
}

/* A stream that cannot go on before start and wait have returned: whoever waited for it would wait
 * for ever.  A transport that needs the host (mpi) gets a stream that can. */
TEST(the_host_does_not_wait) {
    if (!device)
        return;
    struct gate gate = CLOSED_GATE;
    struct observed observed = {0};
    AUTO(mirror) struct mirror out = mirror_create(NUMBERS * sizeof(float));
    bool queues = comm->ranks > 1 && !strcmp(transport_name, "nccl");
    put_number(&out);
    if (queues)
        queue_device_enqueue(device, own_stream, pass_gate, &gate);
    mirror_push(&out, own_stream);
    mp_event reached;
    assert_ok(device->operations->event_create(device, &reached, &error));
    device->operations->event_record(device, reached, own_stream);
    mp_comm_on_wait(comm, observe, &observed);
    int64_t allocations = queue_device_allocations(), waited = comm->waited_ns;
    assert_ok(mp_all_reduce_start(comm, (float *)out.device, NUMBERS, own_stream, request, &error));
    assert_ok(mp_comm_progress(comm, &error));
    assert_ok(mp_request_wait(request, &error));
    mp_comm_on_wait(comm, NULL, NULL);
    assert_int_equal(queue_device_allocations(), allocations);
    if (queues) {
        assert_false(device->operations->event_done(device, reached));
        assert_numbers(observed.begins, 1, observed.ends, 1);
        assert_ptr_equal(observed.stream, own_stream);
        assert_int_equal(comm->waited_ns, waited);
        open_gate(&gate);
    }
    mirror_pull(&out, own_stream);
    settle(own_stream);
    check_sum(&out);
    device->operations->event_destroy(device, reached);
}

/* Counts that travel over the host arrive while the communication stream waits for a computation
 * that does not end before they do. */
TEST(counts_do_not_queue) {
    struct gate gate = CLOSED_GATE;
    struct mp_request *others = NULL;
    AUTO(mirror) struct mirror out = mirror_create(NUMBERS * sizeof(float));
    uint32_t mine = (uint32_t)comm->rank * 5 + 2, all[CASE_RANKS];
    if (!strcmp(transport_name, "nccl") && comm->ranks > 1 && !by_broadcasts)
        queue_device_enqueue(device, own_stream, pass_gate, &gate);
    put_number(&out);
    mirror_push(&out, own_stream);
    assert_ok(mp_request_create(comm, 0, 0, &others, &error));
    assert_ok(mp_all_reduce_start(comm, (float *)out.device, NUMBERS, own_stream, request, &error));
    assert_ok(mp_gather_counts_start(comm, &mine, 1, all, others, &error));
    assert_ok(mp_request_wait(others, &error));
    open_gate(&gate);
    for (int r = 0; r < comm->ranks; r++)
        assert_int_equal(all[r], r * 5 + 2);
    assert_ok(mp_request_wait(request, &error));
    mirror_pull(&out, own_stream);
    settle(own_stream);
    check_sum(&out);
    mp_request_destroy(others);
}

/* ---- lanes ---- */

/* Rows of one float each: row i for rank r is sender * 1000 + r * 10 + i. */
enum { LANE_ROWS = 3 };

static void start_lane_rows(const struct mirror *send, const struct mirror *receive,
                            struct mp_request *others) {
    int rows[CASE_RANKS];
    for (int r = 0; r < comm->ranks; r++) {
        rows[r] = LANE_ROWS;
        for (int i = 0; i < LANE_ROWS; i++)
            ((float *)send->host)[r * LANE_ROWS + i] = (float)(comm->rank * 1000 + r * 10 + i);
    }
    mirror_push(send, NULL);
    assert_ok(mp_exchange_start(comm, rows, rows, sizeof(float), send->device, receive->device,
                                NULL, others, &error));
    assert_ok(mp_request_wait(others, &error));
    mirror_pull(receive, NULL);
}

static void check_lane_rows(const struct mirror *receive) {
    for (int r = 0; r < comm->ranks; r++)
        for (int i = 0; i < LANE_ROWS; i++)
            assert_true(((float *)receive->host)[r * LANE_ROWS + i] ==
                        (float)(r * 1000 + comm->rank * 10 + i));
}

/* A failure instead of a test that hangs. */
static void assert_comes(mp_event event) {
    time_t until = time(NULL) + 60;
    while (!device->operations->event_done(device, event) && time(NULL) < until)
        sched_yield();
    if (!device->operations->event_done(device, event))
        fail_msg("rank %d: rows wait for what is held in the background", comm->rank);
}

enum held { HELD_REDUCE, HELD_ALL_REDUCE, HELD_GATHER, HELD_KINDS };

static void start_held(enum held held, const struct sparse_case *c, struct sparse_memory *sparse,
                       struct mirror *dense) {
    mirror_push(held == HELD_ALL_REDUCE ? dense : &sparse->mirror, own_stream);
    if (held == HELD_ALL_REDUCE)
        assert_ok(mp_all_reduce_start(comm, (float *)dense->device, NUMBERS, own_stream, request,
                                      &error));
    if (held == HELD_REDUCE)
        assert_ok(mp_sparse_reduce_scatter_start(comm, &c->reduce, c->experts, sparse->chunk,
                                                 c->bytes, own_stream, request, &error));
    if (held == HELD_GATHER)
        assert_ok(mp_sparse_all_gather_start(comm, &c->fetch, MP_STAGE_BEFORE_GATE, c->experts,
                                             (void *const *)sparse->chunk, c->bytes, own_stream,
                                             request, &error));
    assert_ok(mp_request_wait(request, &error));
    mirror_pull(held == HELD_ALL_REDUCE ? dense : &sparse->mirror, own_stream);
}

static void check_held(enum held held, const struct sparse_case *c,
                       const struct sparse_memory *sparse, const struct mirror *dense) {
    if (held == HELD_REDUCE)
        check_reduced(c, sparse->host);
    if (held == HELD_GATHER)
        case_check_gathered(c, comm->rank, sparse->host);
    if (held == HELD_ALL_REDUCE)
        check_sum(dense);
}

/* The last rank's stream does not come to an operation of the background lane, which nobody can end
 * before.  Rows, counts and sums that are started after it come all the same; then it is let go. */
TEST(rows_pass_what_is_held) {
    struct mp_request *others = NULL;
    AUTO(mirror) struct mirror send = mirror_create(CASE_RANKS * LANE_ROWS * sizeof(float));
    AUTO(mirror) struct mirror receive = mirror_create(CASE_RANKS * LANE_ROWS * sizeof(float));
    AUTO(mirror) struct mirror dense = mirror_create(NUMBERS * sizeof(float));
    mp_event came, held_came;
    if (comm->ranks == 1 || strcmp(transport_name, "nccl") != 0)
        return; /* over mpi, hosts wait for streams */
    assert_ok(mp_request_create(comm, 0, 0, &others, &error));
    assert_ok(device->operations->event_create(device, &came, &error));
    assert_ok(device->operations->event_create(device, &held_came, &error));
    for (enum held held = 0; held < HELD_KINDS; held++) {
        struct gate gate = CLOSED_GATE;
        AUTO(case) struct sparse_case c;
        uint32_t mine = (uint32_t)comm->rank * 5 + 2, all[CASE_RANKS];
        double sum = 1;
        case_create(&c, test_random(&shared), comm->ranks, CASE_ALL, 2 * PIECE + 4);
        AUTO(sparse_memory) struct sparse_memory sparse = sparse_memory_create(&c);
        put_number(&dense);
        int64_t allocations = queue_device_allocations();
        if (comm->rank == comm->ranks - 1)
            queue_device_enqueue(device, own_stream, pass_gate, &gate);
        start_held(held, &c, &sparse, &dense);
        device->operations->event_record(device, held_came, own_stream);
        start_lane_rows(&send, &receive, others);
        device->operations->event_record(device, came, NULL);
        assert_comes(came);
        assert_ok(mp_gather_counts_start(comm, &mine, 1, all, others, &error));
        assert_ok(mp_request_wait(others, &error));
        assert_ok(mp_comm_sum(comm, &sum, 1, &error));
        assert_int_equal(queue_device_allocations(), allocations);
        if (comm->rank == comm->ranks - 1 || held == HELD_ALL_REDUCE)
            assert_false(device->operations->event_done(device, held_came));
        assert_ok(mp_comm_barrier(world, &error));
        open_gate(&gate);
        settle(own_stream);
        check_lane_rows(&receive);
        check_held(held, &c, &sparse, &dense);
        assert_true(sum == comm->ranks && all[comm->ranks - 1] == (uint32_t)comm->ranks * 5 - 3);
    }
    device->operations->event_destroy(device, came);
    device->operations->event_destroy(device, held_came);
    mp_request_destroy(others);
}

/* All ranks are told alike, so that nobody waits for another. */
TEST(mpi_is_told_what_it_takes) {
    struct mp_comm *none = NULL;
    struct mp_error failure = {0};
    const char *before = getenv("MOEPERF_MPI_CUDA");
    char kept[8] = "";
    if (before)
        snprintf(kept, sizeof kept, "%s", before);
    if (comm->ranks == 1 || !device)
        return;
    setenv("MOEPERF_MPI_CUDA", "yes", 1);
    assert_int_equal(mp_comm_mpi_create(device, &none, &failure), MP_EINVAL);
    assert_contains(failure.text, "MOEPERF_MPI_CUDA=yes; 1 says");
    assert_null(none);
    setenv("MOEPERF_MPI_CUDA", kept, 1);
}
