/* What `moeperf show` says of a trace's tokens. */
#ifndef MOEPERF_HARNESS_CLI_SHOW_TOKENS_H
#define MOEPERF_HARNESS_CLI_SHOW_TOKENS_H

#include "harness/cli/show_layers.h"
#include "harness/workload/tokens.h"
#include "results/report/page.h"

/* Reads the trace once more; *statistics is NULL if it has no experts of tokens. */
int cli_measure_tokens(const char *path, struct mp_token_statistics **statistics,
                       struct mp_error *error);
/* Numbers by layer of borrowed statistics. */
struct cli_layers cli_token_layers(const struct mp_token_statistics *statistics, int layers);

/* Heat maps, from the experts of a layer to those of the next one: how many times as many
 * transitions there are as if neither layer's expert told anything of the other.  Of at most four
 * layers: those whose experts tell most, next most, median and least.  Of many experts a cell is
 * of several neighbours.  MP_ENOMEM. */
int cli_write_transitions(struct page *page, const struct mp_token_statistics *statistics,
                          const struct mp_trace_shape *shape, struct mp_error *error);

#endif
