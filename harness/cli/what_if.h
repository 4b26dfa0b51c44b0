/* moeperf predict --run: what a recorded run would have taken, had something been otherwise. */
#ifndef MOEPERF_HARNESS_CLI_WHAT_IF_H
#define MOEPERF_HARNESS_CLI_WHAT_IF_H

#include <stdbool.h>

#include "reference/plan/system.h"

/* Whether the arguments of moeperf predict ask about a run: --run is among them. */
bool cli_is_what_if(int argc, char *const argv[]);

/* Like a command's run (cli.h). */
int cli_what_if(const struct mp_systems *systems, int argc, char *argv[], struct mp_error *error);

#endif
