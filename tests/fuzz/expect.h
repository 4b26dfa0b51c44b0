/* How a fuzzer finds something: the process ends, and says which expectation of which fuzzer did
 * not hold. */
#ifndef MOEPERF_TESTS_FUZZ_EXPECT_H
#define MOEPERF_TESTS_FUZZ_EXPECT_H

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

static inline void expect(int holds, const char *what) {
    if (!holds) {
        fprintf(stderr, "%s: %s\n", program_invocation_short_name, what);
        abort();
    }
}

#endif
