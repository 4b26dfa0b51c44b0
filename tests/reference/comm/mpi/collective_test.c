/* Dense collectives, clocks and the description, between processes. */
#include "tests/reference/comm/mpi/mpi_case.h"

TEST(broadcast_comes_from_any_root) {
    for (int root = 0; root < comm->ranks; root++) {
        uint64_t value[100];
        uint64_t random = shared + (uint64_t)comm->rank, expected = shared + (uint64_t)root;
        for (int i = 0; i < 100; i++)
            value[i] = test_random(&random);
        assert_ok(mp_comm_broadcast(comm, value, sizeof value, root, &error));
        for (int i = 0; i < 100; i++)
            assert_true(value[i] == test_random(&expected));
        test_random(&shared);
    }
}

TEST(sums_and_maxima_are_over_all_ranks) {
    double sum[3] = {comm->rank + 1, -0.5, comm->rank * 0.25};
    double largest[2] = {comm->rank, -comm->rank - 3.5};
    int n = comm->ranks;
    assert_ok(mp_comm_sum(comm, sum, 3, &error));
    assert_ok(mp_comm_maximum(comm, largest, 2, &error));
    assert_true(sum[0] == n * (n + 1) / 2.0); /* all exact in binary */
    assert_true(sum[1] == -0.5 * n);
    assert_true(sum[2] == n * (n - 1) / 8.0);
    assert_true(largest[0] == n - 1);
    assert_true(largest[1] == -3.5);
}

TEST(barrier_holds_until_the_last) {
    for (int last = 0; last < comm->ranks; last++) {
        double entered = 0;
        assert_ok(mp_comm_barrier(comm, &error));
        struct timespec pause = {.tv_nsec = 2000000};
        if (last == comm->rank)
            nanosleep(&pause, NULL);
        struct timespec now; /* one host, one clock */
        clock_gettime(CLOCK_MONOTONIC, &now);
        entered = (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
        assert_ok(mp_comm_barrier(comm, &error));
        clock_gettime(CLOCK_MONOTONIC, &now);
        double left = (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
        assert_ok(mp_comm_maximum(comm, &entered, 1, &error));
        assert_true(left >= entered);
    }
}

TEST(counts_of_all_ranks_arrive) {
    struct mp_request *request = NULL;
    assert_ok(mp_request_create(comm, 0, 0, &request, &error));
    for (int count = 0; count < 200; count += 33) {
        uint32_t mine[200], *all = malloc((size_t)(comm->ranks * count + 1) * sizeof *all);
        for (int i = 0; i < count; i++)
            mine[i] = (uint32_t)(comm->rank * 1000003 + i * 17 + 1);
        assert_ok(mp_gather_counts_start(comm, mine, count, all, request, &error));
        assert_ok(mp_request_wait(request, &error));
        for (int r = 0; r < comm->ranks; r++)
            for (int i = 0; i < count; i++)
                assert_int_equal(all[r * count + i], r * 1000003 + i * 17 + 1);
        free(all);
    }
    mp_request_destroy(request);
}

/* Equal bits everywhere, so that replicated parameters stay replicated, and close to the sum. */
TEST(all_reduce_is_equal_everywhere) {
    static const int counts[] = {0, 1, 3, 1000, 65537, 300000};
    struct mp_request *request = NULL;
    assert_ok(mp_request_create(comm, 0, 0, &request, &error));
    for (size_t c = 0; c < sizeof counts / sizeof *counts; c++) {
        int count = counts[c];
        uint64_t seed = test_random(&shared);
        float *values = malloc((size_t)(count + 1) * sizeof *values);
        float *first = malloc((size_t)(count + 1) * sizeof *first);
        double *sum = calloc((size_t)(count + 1), sizeof *sum);
        for (int r = 0; r < comm->ranks; r++) {
            uint64_t random = seed + (uint64_t)r;
            for (int i = 0; i < count; i++) {
                float value = (float)test_random_double(&random) - 0.5f;
                sum[i] += value;
                if (r == comm->rank)
                    values[i] = value;
            }
        }
        assert_ok(mp_all_reduce_start(comm, values, (size_t)count, NULL, request, &error));
        assert_ok(mp_request_wait(request, &error));
        for (int i = 0; i < count; i++)
            assert_within(values[i], sum[i], 1e-7 * comm->ranks);
        memcpy(first, values, (size_t)count * sizeof *first);
        assert_ok(mp_comm_broadcast(comm, first, (size_t)count * sizeof *first, 0, &error));
        assert_int_equal(memcmp(first, values, (size_t)count * sizeof *first), 0);
        free(values);
        free(first);
        free(sum);
    }
    mp_request_destroy(request);
}

/* All ranks read one clock here: the true offset is 0. */
TEST(offset_lies_within_its_error) {
    enum { ROUNDS = 100 };
    int64_t offset = 1, off_by = -1;
    struct timespec begin, end;
    clock_gettime(CLOCK_MONOTONIC, &begin);
    assert_ok(mp_comm_clock_offset(comm, ROUNDS, &offset, &off_by, &error));
    clock_gettime(CLOCK_MONOTONIC, &end);
    assert_true(comm->rank ? off_by > 0 : off_by == 0 && offset == 0);
    /* The error is half the shortest of so many round trips, one after another, however long
     * ranks that share a core keep each other waiting; rounded up. */
    int64_t took = (int64_t)(end.tv_sec - begin.tv_sec) * 1000000000 + end.tv_nsec - begin.tv_nsec;
    assert_in_range(off_by, 0, took / ROUNDS / 2 + 1);
    if (llabs(offset) > off_by)
        fail_msg("rank %d: offset %lld ns, error %lld ns", comm->rank, (long long)offset,
                 (long long)off_by);
    assert_int_equal(mp_comm_clock_offset(comm, 0, &offset, &off_by, NULL), MP_EINVAL);
}

TEST(description_names_the_library) {
    char text[256] = "";
    bool shared_cores = false;
    assert_ok(mp_comm_describe(comm, text, sizeof text, &shared_cores, &error));
    assert_non_null(strstr(text, ", host "));
    assert_null(strpbrk(text, "\n\t"));
    assert_true(strlen(text) > strlen(", host "));
    long cores = sysconf(_SC_NPROCESSORS_ONLN);
    if (comm->ranks > cores) /* fewer may be usable, so the other direction is not certain */
        assert_true(shared_cores);
}

int main(void) {
    return run_mpi_tests();
}
