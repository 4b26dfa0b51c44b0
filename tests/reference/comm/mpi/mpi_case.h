/* Set-up of tests that run once per rank under mpirun. */
#ifndef MOEPERF_TESTS_REFERENCE_COMM_MPI_MPI_CASE_H
#define MOEPERF_TESTS_REFERENCE_COMM_MPI_MPI_CASE_H

#include "tests/reference/comm/sparse_case.h"

static struct mp_comm *comm;
static uint64_t shared; /* state of random numbers that are the same on all ranks */
static struct mp_error error;

static inline void assert_ok(int code) {
    if (code != MP_OK)
        fail_msg("%s", error.text);
}

/* The program: creates the comm, gives all ranks one seed and runs the tests.  A rank that fails
 * ends the others, which would wait for it. */
int main(void) {
    if (mp_comm_mpi_create(NULL, &comm, &error)) {
        fprintf(stderr, "%s\n", error.text);
        return 2;
    }
    shared = comm->rank == 0 ? test_seed() : 0;
    int failed = mp_comm_broadcast(comm, &shared, sizeof shared, 0, &error);
    if (!failed)
        failed = test_run();
    if (failed) {
        fprintf(stderr, "rank %d failed. %s\n", comm->rank, error.text);
        mp_comm_abort(comm, 1);
    }
    mp_comm_destroy(comm);
    return 0;
}

#endif
