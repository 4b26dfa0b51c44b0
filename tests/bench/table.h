/* A readable view of a benchmark's result (bench.h says what is shown how). */
#ifndef MOEPERF_TESTS_BENCH_TABLE_H
#define MOEPERF_TESTS_BENCH_TABLE_H

#include <jansson.h>
#include <stdio.h>

void bench_table_print(FILE *out, const char *title, const json_t *result);

#endif
