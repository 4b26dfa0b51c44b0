/* Results of moeperf predict: a table for people, one JSON object for programs. */
#pragma once

#include <jansson.h>
#include <stdlib.h>

#include "harness/cli/cli.h"
#include "harness/cli/predict_job.h"
#include "harness/predict/job.h"
#include "harness/suite/suite.h"
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

/* What a row can't say in a number: whether it is so, and the sentence that says so of `name`. */
enum { CLI_REMARK = 512 };
typedef bool cli_remark(const struct cli_prediction *item, const char *name, char text[CLI_REMARK]);
/* What the system does every so many iterations, by an option of its own, does not come up once in
 * as few as were predicted. */
cli_remark cli_prediction_interval;
/* Iterations take far longer in the mean than in the median. */
cli_remark cli_prediction_mean;

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
/* ep's times, how many times as fast each system is at each point and what share of its time the
 * bound is, and where it stands over all of them (cli_standing_table), on standard output and as
 * the page; why points are refused and what is in no number follow.  Errors: mp_grid_html's;
 * MP_EINVAL, MP_ENOMEM. */
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

/* The jobs of moeperf predict that stand in no suite: every system at every value of what is
 * varied. */

/* ---- what --vary KEY=VALUE,... varies: every value of one key with every value of the others ----
 */

/* Of several keys the last one's values, side by side, are fewer. */
enum { CLI_AXES = 3, CLI_AXIS_VALUES = 16, CLI_AXIS_COLUMNS = 11, CLI_AXIS_TEXT = 1024 };

/* Of "batch=8,16,32".  The key is a job's or a prediction's own (batch, expert-width, loads,
 * cluster), or a word of mp_cluster_set (nodes, levels.node.bandwidth). */
struct cli_axis {
    char text[CLI_AXIS_TEXT]; /* the words, cut into key and values */
    const char *key, *value[CLI_AXIS_VALUES];
    int count;
};
struct cli_axes {
    struct cli_axis axis[CLI_AXES];
    int count; /* 0: nothing is varied */
};

/* One job of a command: a system at one value of each axis. */
struct cli_point {
    const char *system; /* with its options: "fssdp:window=2" */
    int number;         /* 0 .. cli_axes_points - 1: the last axis' values one after the other */
};

/* Adds what one --vary says.  MP_EINVAL, beginning with --vary. */
int cli_axes_add(struct cli_axes *axes, const char *text, struct mp_error *error);
/* All points, for each of them the next system's; 1 without axes. */
int cli_axes_points(const struct cli_axes *axes);
/* Which value of an axis, counted from 0, and what it says, at the point of this number. */
int cli_axes_index(const struct cli_axes *axes, int number, int axis);
const char *cli_axes_value(const struct cli_axes *axes, int number, int axis);
/* All of them, each behind a blank: " batch=8 nodes=2". */
const char *cli_axes_name(const struct cli_axes *axes, int number, char *text, size_t size);

/* The jobs of a command without a suite, in its order. */
struct cli_points {
    const struct cli_axes *axes; /* borrowed */
    struct cli_point *item;      /* [count], owned; NULL of a suite */
    int count;
    char left_out[2048]; /* sentences on values of axes that no job can have, "" for none */
};
MP_END(points, struct cli_points, free(it->item))

/* Makes the suite of all points; `wanted`: the systems of the command line, of which there may be
 * none, for the usual ones.  What is varied replaces what `settings` say of the same key, and the
 * job's other sizes follow from it as from the command line: the batch from the ranks, sizes from
 * a trace.  Errors: where nothing can be predicted, why the first point can't; that of a system
 * that was asked for where its words are wrong. */
int cli_points_read(const struct mp_systems *systems, const struct cli_words *wanted,
                    const struct cli_settings *settings, struct cli_points *points,
                    struct mp_suite *suite, struct mp_error *error);
