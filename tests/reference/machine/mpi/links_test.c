/* What calibration says of the memory and of the link between two ranks, against second ways of
 * measuring them: memcpy, and MPI's own exchange of one message each way. */
#include <mpi.h>

#include "reference/machine/machine.h"
#include "tests/reference/comm/mpi/mpi_case.h"

enum { COPIES = 15, EXCHANGES = 200, COPIED = 64 << 20 };

static double now(clockid_t clock) {
    struct timespec time;
    clock_gettime(clock, &time);
    return (double)time.tv_sec + 1e-9 * (double)time.tv_nsec;
}

/* Bytes read and written per second of this thread's, the best of several. */
static double memory_bandwidth(char *memory) {
    double least = INFINITY;
    memset(memory, 1, COPIED);
    for (int i = 0; i < COPIES; i++) {
        double start = now(CLOCK_THREAD_CPUTIME_ID);
        memcpy(memory, memory + COPIED / 2, COPIED / 2);
        least = fmin(least, now(CLOCK_THREAD_CPUTIME_ID) - start);
    }
    return COPIED / least;
}

/* Seconds for as many bytes each way. */
static double exchange_seconds(char *memory, int bytes) {
    double least = INFINITY;
    for (int i = 0; i < EXCHANGES; i++) {
        MPI_Barrier(MPI_COMM_WORLD);
        double start = now(CLOCK_MONOTONIC);
        MPI_Sendrecv(memory, bytes, MPI_BYTE, 1 - comm->rank, 1, memory + COPIED / 2, bytes,
                     MPI_BYTE, 1 - comm->rank, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        least = fmin(least, now(CLOCK_MONOTONIC) - start);
    }
    return least;
}

TEST(figures_are_those_of_a_second_way) {
    const struct mp_machine_settings settings = {.threads = 1, .quick = true};
    struct mp_machine machine;
    AUTO(allocated) char *memory = malloc(COPIED);
    assert_non_null(memory);
    assert_ok(mp_machine_measure(comm, &settings, &machine, &error));
    double copied = memory_bandwidth(memory);
    double told = machine.latency + 1e6 / machine.bandwidth, seen = exchange_seconds(memory, 1e6);
    if (comm->rank == 0) {
        print_message("  memory %.3g GB/s, memcpy %.3g GB/s\n", machine.memory_bandwidth / 1e9,
                      copied / 1e9);
        print_message("  1 MB each way %.3g us, MPI %.3g us\n", 1e6 * told, 1e6 * seen);
    }
    assert_true(machine.memory_bandwidth < 4 * copied && copied < 4 * machine.memory_bandwidth);
    assert_true(seen < 4 * told); /* other programs make what is told larger, never smaller */
}
