/* moeperf show FILE.mptrace: what a trace holds, as a table and as a page of heat maps. */
#ifndef MOEPERF_HARNESS_CLI_SHOW_TRACE_H
#define MOEPERF_HARNESS_CLI_SHOW_TRACE_H

#include <stdbool.h>

#include "results/report/html.h"

/* Whether what was named is to be taken for a trace, by its ending. */
bool cli_is_trace(const char *name);

/* Prints its statistics (harness/workload/statistics.h), as JSON if wanted, or writes a page
 * if that has a place.  Errors: the trace's, and those of page_write. */
int cli_show_trace(const char *path, bool json, const struct mp_page_output *page,
                   struct mp_error *error);

#endif
