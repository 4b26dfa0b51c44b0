/* Where systems stand over all points of what is varied: how near to the bound, how often the
 * fastest, how many times as fast as others. */
#ifndef MOEPERF_HARNESS_CLI_PREDICT_STANDING_H
#define MOEPERF_HARNESS_CLI_PREDICT_STANDING_H

#include "harness/cli/predict.h"
#include "results/report/table.h"

/* Of one system; NAN where there is nothing to tell. */
struct cli_standing {
    const char *system; /* borrowed of the points */
    bool unattainable;
    int points, ran;      /* ran: neither refused nor out of memory; of these */
    int bounded;          /* the bound covers it and is known: its share of the time there, */
    double median, worst; /* 0 .. 1 */
    int fastest, near;    /* the fastest of all systems that the bound covers; within 1 % of that */
    double ep, fssdp;     /* how many times as fast, geometric means of points where both ran */
};

/* The standing of every system, in their order; free it.  NULL: no memory. */
struct cli_standing *cli_standings(const struct cli_predictions *predictions, int *count);

/* The same as a table, owned by the caller: table_free. */
int cli_standing_table(const struct cli_standing standing[], int count, struct table *table,
                       struct mp_error *error);
json_t *cli_standing_json(const struct cli_predictions *predictions);

#endif
