/* moeperf predict --run: what a recorded run would have taken, had something been otherwise. */
#ifndef MOEPERF_HARNESS_CLI_WHAT_IF_H
#define MOEPERF_HARNESS_CLI_WHAT_IF_H

#include "harness/cli/cli.h"

extern const struct cli_usage cli_what_if_usage;

/* Like a command's run (cli.h). */
int cli_what_if(const struct cli_call *call, struct mp_error *error);

#endif
