/* The manual: the folders' pages (README.md), by topic, on a terminal. */
#ifndef MOEPERF_HARNESS_CLI_MANUAL_H
#define MOEPERF_HARNESS_CLI_MANUAL_H

#include "reference/base/error.h"

/* Prints the topics, each with its page's title.  Returns 0 or a code. */
int cli_manual_list(struct mp_error *error);

/* Prints a topic's page: text filled to the page's width, commands as they stand, a table's rows
 * below each other.  MP_ENOTFOUND with the nearest topic. */
int cli_manual_print(const char *topic, struct mp_error *error);

#endif
