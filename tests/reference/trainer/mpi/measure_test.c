/* The bandwidth that planners are told against a second way of measuring it: MPI's own broadcast of
 * as many bytes. */
#include <mpi.h>

#include "tests/reference/trainer/mpi/trainers.h"

enum { TIMES = 40 };

static double now(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec + 1e-9 * (double)time.tv_nsec;
}

static double broadcast_bandwidth(void *memory, size_t bytes) {
    MPI_Barrier(MPI_COMM_WORLD);
    double start = now();
    MPI_Bcast(memory, (int)bytes, MPI_BYTE, 0, MPI_COMM_WORLD);
    MPI_Barrier(MPI_COMM_WORLD);
    return (double)bytes / (now() - start);
}

/* The best of both, taken in turn: what other programs take only ever makes them worse. */
TEST(bandwidth_is_that_of_mpi) {
    AUTO(trainer)
    struct mp_trainer *trainer =
        create_trainer(world, NULL, "system=ep width=128 expert-width=512 experts=8 bandwidth=0");
    size_t bytes = (size_t)trainer->setting.expert_bytes;
    AUTO(allocated) char *memory = calloc(1, bytes);
    double told = 0, mpi = 0;
    assert_non_null(memory);
    assert_int_equal(bytes, 2 * 128 * 512 * sizeof(float));
    for (int i = 0; i < TIMES; i++) {
        must(mp_trainer_measure(trainer, &error));
        told = fmax(told, trainer->setting.bandwidth);
        mpi = fmax(mpi, broadcast_bandwidth(memory, bytes));
    }
    must(mp_comm_broadcast(world, &mpi, sizeof mpi, 0, &error));
    if (world->rank == 0)
        print_message("  measured %.3g GB/s, MPI %.3g GB/s\n", told / 1e9, mpi / 1e9);
    assert_true(told < 4 * mpi && mpi < 4 * told);
}
