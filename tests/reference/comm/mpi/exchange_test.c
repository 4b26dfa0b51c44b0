/* Exchange of rows between processes. */
#include "tests/reference/comm/mpi/mpi_case.h"

enum { LARGEST_ROWS = 400 };

/* Byte i of row n from `source` for `to`. */
static unsigned char row_byte(uint64_t seed, int source, int to, int n, size_t i) {
    uint64_t state = seed ^ (uint64_t)(source * 64 + to) << 48 ^ (uint64_t)n << 24 ^ (uint64_t)i;
    return (unsigned char)test_random(&state);
}

enum pattern { FULL, SPARSE, ZERO_ROW, ZERO_COLUMN, ONLY_SELF, NOTHING, PATTERNS };

static void make_counts(int counts[CASE_RANKS][CASE_RANKS], enum pattern pattern) {
    int special = test_random_int(&shared, 0, comm->ranks - 1);
    for (int s = 0; s < comm->ranks; s++)
        for (int r = 0; r < comm->ranks; r++) {
            int rows = test_random_int(&shared, 0, LARGEST_ROWS);
            bool empty = pattern == NOTHING || (pattern == SPARSE && rows % 3) ||
                         (pattern == ZERO_ROW && s == special) ||
                         (pattern == ZERO_COLUMN && r == special) ||
                         (pattern == ONLY_SELF && s != r);
            counts[s][r] = empty ? 0 : rows;
        }
}

static void check_received(const unsigned char *receive, const int rows[], size_t row_bytes,
                           uint64_t seed) {
    for (int s = 0; s < comm->ranks; s++)
        for (int n = 0; n < rows[s]; n++)
            for (size_t i = 0; i < row_bytes; i++)
                if (*receive++ != row_byte(seed, s, comm->rank, n, i))
                    fail_msg("rank %d: byte %zu of row %d from rank %d is wrong", comm->rank, i, n,
                             s);
}

/* Of this rank's rows, in nodes at random; and how many rows it sends to others. */
static struct mp_exchange_path find_path(const struct mp_exchange *exchange,
                                         int counts[CASE_RANKS][CASE_RANKS], int64_t *outwards) {
    const struct mp_topology topology = {comm->ranks, test_random_int(&shared, 1, comm->ranks)};
    int rows[CASE_RANKS * CASE_RANKS], ranks = comm->ranks;
    struct mp_exchange_path path;
    for (int i = 0; i < ranks * ranks; i++)
        rows[i] = counts[i / ranks][i % ranks];
    assert_ok(mp_exchange_path_create(exchange, &topology, comm->rank, &path, &error));
    assert_ok(mp_exchange_path_build(exchange, &topology, comm->rank, rows, &path, &error));
    *outwards = 0;
    for (int i = 0; i < path.rounds; i++)
        for (int r = 0; r < ranks; r++)
            *outwards += r == comm->rank ? 0 : path.round[i].send_rows[r];
    return path;
}

/* Memory that says if somebody has written behind its end. */
static unsigned char *guarded(size_t bytes) {
    unsigned char *memory = malloc(bytes + 1);
    memory[bytes] = 0xA5;
    return memory;
}

static void release(unsigned char *memory, size_t bytes) {
    assert_int_equal(memory[bytes], 0xA5);
    free(memory);
}

/* Rows go there, and the same ones come back. */
static void one_path(struct mp_request *request, const struct mp_exchange *exchange,
                     enum pattern pattern) {
    int counts[CASE_RANKS][CASE_RANKS], from[CASE_RANKS];
    int64_t outwards, sent = comm->sent_bytes;
    make_counts(counts, pattern);
    uint64_t seed = test_random(&shared);
    size_t row_bytes = (size_t)test_random_int(&shared, 1, 200), out = 0, in = 0;
    struct mp_exchange_path path = find_path(exchange, counts, &outwards);
    for (int r = 0; r < comm->ranks; r++) {
        from[r] = counts[r][comm->rank];
        out += (size_t)counts[comm->rank][r] * row_bytes;
        in += (size_t)from[r] * row_bytes;
    }
    size_t room = (size_t)path.transit_rows * row_bytes;
    unsigned char *send = guarded(out), *fill = send, *receive = guarded(in), *back = guarded(out);
    void *const transit[2] = {guarded(room), guarded(room)};
    for (int r = 0; r < comm->ranks; r++)
        for (int n = 0; n < counts[comm->rank][r]; n++)
            for (size_t i = 0; i < row_bytes; i++)
                *fill++ = row_byte(seed, comm->rank, r, n, i);
    assert_ok(mp_exchange_path_start(comm, &path, false, row_bytes, send, receive, transit, NULL,
                                     request, &error));
    assert_ok(mp_request_wait(request, &error));
    assert_int_equal(comm->sent_bytes - sent, outwards * (int64_t)row_bytes);
    check_received(receive, from, row_bytes, seed);
    assert_ok(mp_exchange_path_start(comm, &path, true, row_bytes, receive, back, transit, NULL,
                                     request, &error));
    assert_ok(mp_request_wait(request, &error));
    assert_memory_equal(back, send, out);
    for (int i = 0; i < 2; i++)
        release(transit[i], room);
    release(send, out);
    release(receive, in);
    release(back, out);
    mp_exchange_path_destroy(&path);
}

TEST(rows_are_passed_on) {
    struct mp_request *request = NULL;
    assert_ok(mp_request_create(comm, 0, 0, &request, &error));
    for (int kind = 0; kind < MP_EXCHANGE_DEDUPLICATED; kind++) /* whose rows are blocks */
        for (enum pattern pattern = FULL; pattern < PATTERNS; pattern++)
            one_path(request, mp_exchange_of((enum mp_exchange_kind)kind), pattern);
    mp_request_destroy(request);
}

static void one_exchange(struct mp_request *request, enum pattern pattern) {
    int counts[CASE_RANKS][CASE_RANKS], to[CASE_RANKS], from[CASE_RANKS];
    int64_t outwards = 0, rows_out = 0, rows_in = 0;
    make_counts(counts, pattern);
    uint64_t seed = test_random(&shared);
    size_t row_bytes = (size_t)test_random_int(&shared, 1, 1000);
    for (int r = 0; r < comm->ranks; r++) {
        to[r] = counts[comm->rank][r];
        from[r] = counts[r][comm->rank];
        rows_out += to[r];
        rows_in += from[r];
        outwards += r == comm->rank ? 0 : to[r] * (int64_t)row_bytes;
    }
    unsigned char *send = malloc((size_t)rows_out * row_bytes + 1), *fill = send;
    unsigned char *receive = malloc((size_t)rows_in * row_bytes + 1);
    for (int r = 0; r < comm->ranks; r++)
        for (int n = 0; n < to[r]; n++)
            for (size_t i = 0; i < row_bytes; i++)
                *fill++ = row_byte(seed, comm->rank, r, n, i);
    receive[(size_t)rows_in * row_bytes] = 0xA5;
    int64_t sent = comm->sent_bytes;
    assert_ok(mp_exchange_start(comm, to, from, row_bytes, send, receive, NULL, request, &error));
    assert_ok(mp_request_wait(request, &error));
    check_received(receive, from, row_bytes, seed);
    assert_int_equal(receive[(size_t)rows_in * row_bytes], 0xA5);
    assert_int_equal(comm->sent_bytes - sent, outwards);
    free(send);
    free(receive);
}

TEST(rows_arrive_by_source) {
    struct mp_request *request = NULL;
    assert_ok(mp_request_create(comm, 0, 0, &request, &error));
    for (int round = 0; round < 3 * PATTERNS; round++)
        one_exchange(request, round % PATTERNS);
    mp_request_destroy(request);
}

int main(void) {
    return run_mpi_tests();
}
