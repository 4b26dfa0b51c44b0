/* Whether ranks share cores: by the cores that all of them together may use. */
#include <sched.h>

#include "tests/reference/comm/mpi/mpi_case.h"

/* Ties this process to the nth core that it may be tied to; -1 to all of them.  False if there are
 * not so many. */
static bool tie(int nth) {
    cpu_set_t one, all;
    CPU_ZERO(&all);
    for (int core = 0; core < CPU_SETSIZE; core++) {
        CPU_ZERO(&one);
        CPU_SET(core, &one);
        if (sched_setaffinity(0, sizeof one, &one))
            continue;
        CPU_SET(core, &all);
        if (nth >= 0 && CPU_COUNT(&all) == nth + 1)
            return true;
    }
    return nth < 0 && !sched_setaffinity(0, sizeof all, &all);
}

static bool shares(void) {
    char text[256];
    bool shared_cores;
    struct mp_comm *other;
    assert_ok(mp_comm_mpi_create(NULL, &other, &error));
    mp_comm_describe(other, text, sizeof text, &shared_cores);
    mp_comm_destroy(other);
    return shared_cores;
}

TEST(ranks_on_one_core_share_it) {
    assert_true(tie(0));
    assert_int_equal(shares(), comm->ranks > 1);
}

TEST(ranks_with_a_core_each_share_none) {
    if (!tie(comm->ranks - 1))
        skip("there are not %d cores", comm->ranks);
    assert_true(tie(comm->rank));
    assert_false(shares());
}

/* The first may use one core, all others each one. */
TEST(a_tied_rank_takes_nothing_from_others) {
    if (!tie(comm->ranks - 1))
        skip("there are not %d cores", comm->ranks);
    assert_true(tie(comm->rank == 0 ? 0 : -1));
    assert_false(shares());
}
