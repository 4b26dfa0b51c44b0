/* Results of moeperf reproduce: tables for people, one JSON object for programs. */
#ifndef MOEPERF_HARNESS_CLI_REPRODUCE_H
#define MOEPERF_HARNESS_CLI_REPRODUCE_H

#include "harness/reproduce/reproduce.h"

/* All print on standard output and return a code. */
int cli_print_reproduction(const struct mp_reproduction *reproduction,
                           const struct mp_reproduce_settings *settings, bool details,
                           struct mp_error *error);
int cli_print_reproduction_json(const struct mp_reproduction *reproduction,
                                const struct mp_reproduce_settings *settings,
                                struct mp_error *error);
/* The rows without predicting anything. */
int cli_print_published(const struct mp_reproduction *reproduction, struct mp_error *error);

#endif
