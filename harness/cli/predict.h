/* Results of moeperf predict: a table for people, one JSON object for programs. */
#ifndef MOEPERF_HARNESS_CLI_PREDICT_H
#define MOEPERF_HARNESS_CLI_PREDICT_H

#include <jansson.h>

#include "harness/cli/predict_axes.h"
#include "harness/suite/suite.h"

/* A job that was predicted, or refused with the reason. */
struct cli_prediction {
    const struct mp_predict_job *job; /* borrowed */
    const struct mp_cluster *cluster; /* borrowed */
    const char *refusal;              /* borrowed; NULL: it was predicted, and has a summary */
    struct mp_prediction_summary summary;
    struct mp_predict_bound bound; /* on its conditions; iterations 0: not worked out */
};

/* The jobs of a command without a suite, in its order. */
struct cli_points {
    const struct cli_axes *axes; /* borrowed */
    struct cli_point *item;      /* [count], owned; NULL of a suite */
    int count;
    char left_out[2048]; /* sentences on values of axes that no job can have, "" for none */
};

/* Whether a bound on one is a bound on the other: the same model, loads and cluster. */
bool cli_predictions_comparable(const struct cli_prediction *a, const struct cli_prediction *b);

/* Everything that is printed. */
struct cli_predictions {
    const struct mp_suite *suite; /* borrowed */
    struct cli_prediction *item;  /* [count], in the suite's order */
    int count;                    /* predicted before the user stopped */
    const struct cli_points *points;
    const char *html;      /* where to draw what is varied; NULL: nowhere */
    const char *database;  /* NULL: nothing was kept */
    const char *suite_run; /* there */
    bool all_assumptions;  /* listed, not only the first few */
};

/* What was predicted, paragraph by paragraph. */
void cli_print_prediction_heading(const struct cli_predictions *predictions, FILE *out);
/* How many times as fast as ep each system is at each point, on standard output and as the page
 * `html`; a refused point is a gap, and why follows the grids.  Errors: mp_grid_html's; MP_EINVAL,
 * MP_ENOMEM. */
int cli_print_grids(const struct cli_predictions *predictions, struct mp_error *error);

/* Both print on standard output and return a code. */
int cli_print_predictions(const struct cli_predictions *predictions, struct mp_error *error);
int cli_print_predictions_json(const struct cli_predictions *predictions, struct mp_error *error);

#endif
