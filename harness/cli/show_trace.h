/* moeperf show FILE.mptrace: what a trace holds, as a table and as a page of heat maps. */
#ifndef MOEPERF_HARNESS_CLI_SHOW_TRACE_H
#define MOEPERF_HARNESS_CLI_SHOW_TRACE_H

#include <stdbool.h>

#include "reference/base/error.h"

/* Whether what was named is to be taken for a trace, by its ending. */
bool cli_is_trace(const char *name);

/* Prints its statistics (harness/workload/statistics.h), as JSON if wanted, or writes a page to
 * `html` if that is not NULL.  Errors: the trace's, and those of page_file. */
int cli_show_trace(const char *path, bool json, const char *html, struct mp_error *error);

#endif
