/* How what the tests of this folder make is ended (AUTO of tests/support.h). */
#ifndef MOEPERF_TESTS_PROFILER_STRAGGLER_ENDS_H
#define MOEPERF_TESTS_PROFILER_STRAGGLER_ENDS_H

#include "profiler/straggler/straggler.h"
#include "profiler/straggler/waits.h"
#include "tests/support.h"

TEST_END(causes, struct mp_causes, mp_causes_destroy(it))
TEST_END(graph, struct mp_graph *, mp_graph_destroy(*it))
TEST_END(straggler, struct mp_straggler, mp_straggler_destroy(it))
TEST_END(waits, struct mp_waits, mp_waits_destroy(it))

#endif
