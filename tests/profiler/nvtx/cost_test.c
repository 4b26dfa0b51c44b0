/* What a range costs the program that makes it: without a tool, with one that does nothing, with
 * the collector; beside two clock reads, which no collector can do without. */
#include <string.h>
#include <unistd.h>

#include "tests/support.h"

enum { ROUNDS = 7 };

/* The least of some medians, in ns: what other programs add is not the collector's. */
static double cost(const char *tool, const char *argument) {
    double least = INFINITY;
    for (int round = 0; round < ROUNDS; round++) {
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
        least = ns < least ? ns : least;
    }
    return least;
}

static void a_range_costs_little_more_than_two_clock_reads(void **state) {
    (void)state;
    double none = cost("", ""), empty = cost(EMPTY_TOOL, ""), clock = cost("", "clock"),
           collector = cost(COLLECTOR, "");
    print_message("ns for a push and pop: no tool %.1f, empty tool %.1f, two clock reads %.1f, "
                  "collector %.1f\n",
                  none, empty, clock, collector);
    if (RUNS_SANITIZED) {
        print_message("skipped: sanitizers are slower\n");
        skip();
    }
    assert_true(none < 5);
    assert_true(empty < 15);
    /* 100 ns where two reads are 42; a slower machine's clock says how much slower. */
    assert_true(collector <= 100 * fmax(1, clock / 42));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_range_costs_little_more_than_two_clock_reads)};
    return cmocka_run_group_tests_name("cost", tests, NULL, NULL);
}
