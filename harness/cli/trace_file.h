/* Saying what a trace holds, and writing one: generate, import, export, reshape and show. */
#pragma once

#include <stdio.h>

#include "harness/workload/statistics.h"
#include "harness/workload/tokens.h"
#include "results/report/html.h"

/* Writes all blocks of the stream to `path` and prints a short table of them; MP_EFORMAT for a
 * stream without blocks.  Where it fails nothing of that name is written.  Destroys the stream. */
int cli_write_trace(struct mp_trace_stream *stream, const char *path, struct mp_error *error);

/* The same without a word, counting blocks; the stream stays.  `statistics`: what each is added to,
 * NULL: nothing. */
int cli_copy_trace(struct mp_trace_stream *stream, const char *path,
                   struct mp_trace_statistics *statistics, int64_t *blocks, struct mp_error *error);

/* Reads all of the stream; `tokens` becomes NULL if it has no experts of tokens.  MP_EFORMAT for
 * one without blocks; both are to be destroyed in any case. */
int cli_measure_trace(struct mp_trace_stream *stream, struct mp_trace_statistics **statistics,
                      struct mp_token_statistics **tokens, struct mp_error *error);
/* That table: where the trace is from, its shape, how many routes, how uneven.  `summary`: of all
 * layers. */
void cli_print_trace(FILE *out, const struct mp_trace_info *info,
                     const struct mp_trace_summary *summary);

/* ---- moeperf show FILE.mptrace (show_trace.c) ---- */

/* Whether what was named is to be taken for a trace, by its ending. */
bool cli_is_trace(const char *name);
/* Prints its statistics (harness/workload/statistics.h), as JSON if wanted, or writes a page of
 * heat maps if that has a place.  Errors: the trace's, and those of page_write. */
int cli_show_trace(const char *path, bool json, const struct mp_page_output *page,
                   struct mp_error *error);
