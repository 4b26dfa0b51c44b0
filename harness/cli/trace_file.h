/* Writing a stream into a trace file and saying what it held: import, export and reshape. */
#ifndef MOEPERF_HARNESS_CLI_TRACE_FILE_H
#define MOEPERF_HARNESS_CLI_TRACE_FILE_H

#include "harness/workload/trace.h"

/* Writes all blocks of the stream to `path` and prints a short table of them; MP_EFORMAT for a
 * stream without blocks.  Where it fails nothing of that name is written.  Destroys the stream. */
int cli_write_trace(struct mp_trace_stream *stream, const char *path, struct mp_error *error);

/* A flag's value as a whole number of least .. most; MP_EINVAL names the flag. */
int cli_whole(const char *flag, const char *text, int64_t least, int64_t most, int64_t *value,
              struct mp_error *error);

#endif
