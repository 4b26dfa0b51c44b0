/* Writing a stream into a trace file and saying what it held: import and export. */
#ifndef MOEPERF_HARNESS_CLI_TRACE_FILE_H
#define MOEPERF_HARNESS_CLI_TRACE_FILE_H

#include "harness/workload/trace.h"

/* Writes all blocks of the stream to `path` and prints a short table of them; MP_EFORMAT for a
 * stream without blocks.  Where it fails nothing of that name is written.  Destroys the stream. */
int cli_write_trace(struct mp_trace_stream *stream, const char *path, struct mp_error *error);

#endif
