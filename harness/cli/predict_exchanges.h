/* moeperf predict --exchanges: where which exchange wins, by size of messages and nodes. */
#ifndef MOEPERF_HARNESS_CLI_PREDICT_EXCHANGES_H
#define MOEPERF_HARNESS_CLI_PREDICT_EXCHANGES_H

#include <stdbool.h>

#include "reference/base/error.h"

/* Whether the arguments of moeperf predict ask for it. */
bool cli_is_exchanges(int argc, char *const argv[]);

/* CLI_SUCCESS, or a negative code. */
int cli_exchanges(int argc, char *argv[], struct mp_error *error);

#endif
