/* Set-up of tests that run once per rank under mpirun. */
#pragma once

#include "reference/comm/comm.h"
#include "tests/support.h"

static struct mp_comm *comm;
static struct mp_error error;

static inline void assert_ok(int code) {
    if (code != MP_OK)
        fail_msg("%s", error.text);
}

/* The program.  A rank that fails ends the others, which would wait for it. */
int main(void) {
    if (mp_comm_mpi_create(NULL, &comm, &error)) {
        fprintf(stderr, "%s\n", error.text);
        return 2;
    }
    if (test_run()) {
        fprintf(stderr, "rank %d failed. %s\n", comm->rank, error.text);
        mp_comm_abort(comm, 1);
    }
    mp_comm_destroy(comm);
    return 0;
}
