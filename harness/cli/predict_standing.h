/* Where systems stand over all points of what is varied: how near to the bound, how often the
 * fastest, how many times as fast as others. */
#ifndef MOEPERF_HARNESS_CLI_PREDICT_STANDING_H
#define MOEPERF_HARNESS_CLI_PREDICT_STANDING_H

#include "harness/cli/predict.h"
#include "results/report/table.h"

/* The standing of every system, in their order, as a table to be freed also after an error. Errors:
 * MP_ENOMEM. */
int cli_standing_table(const struct cli_predictions *predictions, struct table *table,
                       struct mp_error *error);

#endif
