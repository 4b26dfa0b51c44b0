/* moeperf predict --exchanges: where which exchange wins, by size of messages and nodes. */
#ifndef MOEPERF_HARNESS_CLI_PREDICT_EXCHANGES_H
#define MOEPERF_HARNESS_CLI_PREDICT_EXCHANGES_H

#include "harness/cli/cli.h"

extern const struct cli_usage cli_exchanges_usage;

/* CLI_SUCCESS, or a negative code. */
int cli_exchanges(struct mp_error *error);

#endif
