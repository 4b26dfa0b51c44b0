/* Results of moeperf predict: a table for people, one JSON object for programs. */
#ifndef MOEPERF_HARNESS_CLI_PREDICT_H
#define MOEPERF_HARNESS_CLI_PREDICT_H

#include <jansson.h>

#include "harness/suite/suite.h"

/* A job that was predicted, or left out with the reason. */
struct cli_prediction {
    const struct mp_predict_job *job; /* borrowed */
    const struct mp_cluster *cluster; /* borrowed */
    struct mp_prediction_summary summary;
};

/* Everything that is printed. */
struct cli_predictions {
    const struct mp_suite *suite; /* borrowed */
    struct cli_prediction *item;  /* [count], in the suite's order */
    int count;                    /* predicted before the user stopped */
    const char *left_out;         /* sentences on systems that can't do such a job, "" for none */
    const char *database;         /* NULL: nothing was kept */
    const char *suite_run;        /* there */
    bool all_assumptions;         /* listed, not only the first few */
};

/* Both print on standard output and return a code. */
int cli_print_predictions(const struct cli_predictions *predictions, struct mp_error *error);
int cli_print_predictions_json(const struct cli_predictions *predictions, struct mp_error *error);

#endif
