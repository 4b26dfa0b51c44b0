/* Results of moeperf predict: a table for people, one JSON object for programs. */
#ifndef MOEPERF_HARNESS_CLI_PREDICT_H
#define MOEPERF_HARNESS_CLI_PREDICT_H

#include <jansson.h>

#include "harness/cli/cli.h"
#include "harness/cli/predict_points.h"
#include "results/report/html.h"
#include "results/report/report.h"
#include "results/report/table.h"

/* A job that was predicted, or refused with the reason. */
struct cli_prediction {
    const struct mp_predict_job *job; /* borrowed */
    const struct mp_cluster *cluster; /* borrowed */
    const char *refusal;              /* borrowed; NULL: it was predicted, and has a summary */
    struct mp_prediction_summary summary;
    struct mp_predict_bound bound; /* on its conditions; iterations 0: not worked out */
};

/* Whether a bound on one is a bound on the other: the same model, loads and cluster. */
bool cli_predictions_comparable(const struct cli_prediction *a, const struct cli_prediction *b);

/* The bound as a share of the time; NAN where it is not known, or says nothing of the system. */
double cli_prediction_of_bound(const struct cli_prediction *item);

/* Everything that is printed. */
struct cli_predictions {
    struct cli_prediction *item; /* [count], in the suite's order */
    int count;
    const struct cli_points *points;
    struct mp_page_output page; /* where to draw what is varied */
    const char *database;       /* NULL: nothing was kept */
    const char *suite_run;      /* there */
    bool all_assumptions;       /* listed, not only the first few */
};

/* What was predicted, paragraph by paragraph. */
void cli_print_prediction_heading(const struct cli_predictions *predictions, FILE *out);
/* How many times as fast as ep each system is at each point and what share of its time the bound
 * is, and where it stands over all of them (cli_standing_table), on standard output and as the
 * page; why points are refused follows.  Errors: mp_grid_html's; MP_EINVAL, MP_ENOMEM. */
int cli_print_grids(const struct cli_predictions *predictions, struct mp_error *error);

/* On standard output; returns a code. */
int cli_print_predictions(const struct cli_predictions *predictions, enum mp_report_format format,
                          struct mp_error *error);

/* Where every system stands over all points of what is varied, in their order: how near to the
 * bound, how often the fastest, how many times as fast as others.  A table to be freed also after
 * an error.  Errors: MP_ENOMEM. */
int cli_standing_table(const struct cli_predictions *predictions, struct table *table,
                       struct mp_error *error);

/* ---- moeperf predict --run: what a recorded run would have taken ---- */

extern const struct cli_usage cli_what_if_usage;

/* Like a command's run (cli.h). */
int cli_what_if(const struct cli_call *call, struct mp_error *error);

/* ---- moeperf predict --exchanges: where which exchange wins, by size of messages and nodes -- */

extern const struct cli_usage cli_exchanges_usage;

/* CLI_SUCCESS, or a negative code. */
int cli_exchanges(struct mp_error *error);

#endif
