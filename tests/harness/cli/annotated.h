/* What tests of programs that annotate themselves share: the collector, and PyPI's nvtx for those
 * in Python. */
#pragma once

#include "tests/harness/cli/shell.h"

static inline void need_collector(void) {
    if (access(MOEPERF_FOLDER "/libmoeperf-nvtx.so", R_OK))
        skip("built without NVTX's headers, so there is no collector");
}

/* What is said (SQL) of a database's spans of a kind (a condition), in their order. */
static inline void assert_spans(const char *database, const char *what, const char *which,
                                const char *expected) {
    assert_answer(database,
                  formatted("SELECT group_concat(%s, ' ') FROM (SELECT * FROM v_span WHERE %s "
                            "ORDER BY start_ns, end_ns DESC)",
                            what, which),
                  expected);
}

/* python3 with PyPI's nvtx where ci/setup puts it. */
#define PYTHON "PYTHONPATH=" PYTHON_PACKAGES " python3"

static inline void need_python_nvtx(void) {
    if (TEST_SANITIZED)
        skip("python3 can't load what the sanitizers watch");
    if (system(PYTHON " -c 'import nvtx' 2>/dev/null"))
        skip("python3 has no nvtx; ci/setup tests installs it");
}
