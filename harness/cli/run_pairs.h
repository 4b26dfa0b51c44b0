/* What moeperf run --pairs says when both builds were measured. */
#ifndef MOEPERF_HARNESS_CLI_RUN_PAIRS_H
#define MOEPERF_HARNESS_CLI_RUN_PAIRS_H

#include <stdbool.h>

#include "harness/suite/runner.h"

/* Compares the two sides on standard output.  If they are the same program, their noise floors are
 * kept in the database for later comparisons.  CLI_SUCCESS, CLI_FINDING or a code. */
int cli_compare_pairs(struct mp_store *store, const struct mp_runner_result *result, bool json,
                      struct mp_error *error);

/* --pairs N into the suite's rounds.  MP_EINVAL. */
int cli_parse_pairs(const char *text, struct mp_suite *suite, struct mp_error *error);

/* Whether every measured job is long enough to be judged: a comparison of shorter ones says nothing
 * of their times, after all the time that it takes.  MP_EINVAL says how many iterations are right.
 */
int cli_check_pairs(const struct mp_suite *suite, struct mp_error *error);

/* --slice SECONDS; text NULL: the usual ones.  MP_EINVAL. */
int cli_parse_slice(const char *text, double *slice, struct mp_error *error);

#endif
