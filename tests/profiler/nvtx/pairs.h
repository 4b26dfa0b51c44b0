/* Annotations of two shared objects and an executable: each holds its own copy of NVTX. */
#ifndef MOEPERF_TESTS_PROFILER_NVTX_PAIRS_H
#define MOEPERF_TESTS_PROFILER_NVTX_PAIRS_H

void first_object_ranges(int count);
void second_object_ranges(int count);

#endif
