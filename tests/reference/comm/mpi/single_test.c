/* One process under MPI does what the transport `self` does.  Run with one rank only. */
#include "tests/reference/comm/mpi/mpi_case.h"
#include "tests/reference/comm/one_rank.h"

TEST(one_rank_does_as_self) {
    int64_t sent = comm->sent_bytes, waited = comm->waited_ns;
    comm->sent_bytes = comm->waited_ns = 0;
    check_one_rank(comm);
    comm->sent_bytes = sent;
    comm->waited_ns = waited;
}

int main(void) {
    return run_mpi_tests();
}
