/* What a range costs the program that makes it: without a tool, with one that does nothing, with
 * the collector; beside two clock reads, which no collector can do without. */
#include "tests/support.h"

enum { ROUNDS = 7 };

/* The median of one run, in ns. */
static double cost(const char *tool, const char *argument) {
    char command[4096], folder[] = "/tmp/nvtx_cost_XXXXXX";
    double ns = 0;
    assert_non_null(mkdtemp(folder));
    snprintf(command, sizeof command,
             "NVTX_INJECTION64_PATH=%s MOEPERF_NVTX_SPOOLS=%s %s %s; rm -r %s", tool, folder,
             PAIRS_COST, argument, folder);
    FILE *stream = popen(command, "r");
    assert_non_null(stream);
    assert_int_equal(fscanf(stream, "ns_per_pair %lf", &ns), 1);
    pclose(stream);
    return ns;
}

TEST(a_range_costs_little_more_than_two_clock_reads) {
    double none = INFINITY, empty = INFINITY, collector = INFINITY;
    for (int round = 0; round < ROUNDS; round++) {
        double clock = cost("", "clock"), plain = cost("", ""), nothing = cost(EMPTY_TOOL, ""),
               all = cost(COLLECTOR, "");
        /* 42 ns where the limits come from.  Another machine, or this one while others use it,
         * is as much slower as its clock is then; what disturbs one measurement alone and not its
         * neighbours does not do so in every round. */
        double slower = fmax(1, clock / 42);
        print_message("ns for a push and pop: no tool %.1f, empty tool %.1f, two clock reads %.1f, "
                      "collector %.1f\n",
                      plain, nothing, clock, all);
        none = fmin(none, plain / slower);
        empty = fmin(empty, nothing / slower);
        collector = fmin(collector, all / slower);
    }
    if (TEST_SANITIZED)
        skip("sanitizers are slower");
    assert_true(none < 5);
    assert_true(empty < 15);
    assert_true(collector <= 100);
}
