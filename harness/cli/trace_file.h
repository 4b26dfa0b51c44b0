/* Saying what a trace holds, and writing one: generate, import, export, reshape
 * and show. */
#ifndef MOEPERF_HARNESS_CLI_TRACE_FILE_H
#define MOEPERF_HARNESS_CLI_TRACE_FILE_H

#include <stdio.h>

#include "harness/workload/statistics.h"

/* Writes all blocks of the stream to `path` and prints a short table of them; MP_EFORMAT for a
 * stream without blocks.  Where it fails nothing of that name is written.  Destroys the stream. */
int cli_write_trace(struct mp_trace_stream *stream, const char *path, struct mp_error *error);

/* The same without a word, counting blocks; the stream stays.  `statistics`: what each is added to,
 * NULL: nothing. */
int cli_copy_trace(struct mp_trace_stream *stream, const char *path,
                   struct mp_trace_statistics *statistics, int64_t *blocks, struct mp_error *error);

/* Reads all of the stream.  MP_EFORMAT for one without blocks. */
int cli_measure_trace(struct mp_trace_stream *stream, struct mp_trace_statistics **statistics,
                      struct mp_error *error);
/* That table: where the trace is from, its shape, how many routes, how uneven.  `summary`: of all
 * layers. */
void cli_print_trace(FILE *out, const struct mp_trace_info *info,
                     const struct mp_trace_summary *summary);

#endif
