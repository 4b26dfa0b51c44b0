/* What `moeperf show` says of a trace's tokens. */
#ifndef MOEPERF_HARNESS_CLI_SHOW_TOKENS_H
#define MOEPERF_HARNESS_CLI_SHOW_TOKENS_H

#include <jansson.h>

#include "harness/workload/tokens.h"

/* Reads the trace once more; *statistics is NULL if it has no experts of tokens. */
int cli_measure_tokens(const char *path, struct mp_token_statistics **statistics,
                       struct mp_error *error);
/* A table by layer, and an array for JSON. */
int cli_print_tokens(const struct mp_token_statistics *statistics, int layers,
                     struct mp_error *error);
json_t *cli_pack_tokens(const struct mp_token_statistics *statistics, int layers);

#endif
