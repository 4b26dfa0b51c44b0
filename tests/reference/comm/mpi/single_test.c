/* One process under MPI does what the transport `self` does.  Run with one rank only. */
#include "tests/reference/comm/mpi/mpi_case.h"
#include "tests/reference/comm/one_rank.h"

static void one_rank_does_as_self(void **state) {
    (void)state;
    int64_t sent = comm->sent_bytes, waited = comm->waited_ns;
    comm->sent_bytes = comm->waited_ns = 0;
    check_one_rank(comm);
    comm->sent_bytes = sent;
    comm->waited_ns = waited;
}

int main(void) {
    const struct CMUnitTest single[] = {cmocka_unit_test(one_rank_does_as_self)};
    return RUN_MPI_TESTS(single, NULL, NULL);
}
