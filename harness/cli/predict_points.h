/* The jobs of moeperf predict that stand in no suite: every system at every value of what is
 * varied. */
#ifndef MOEPERF_HARNESS_CLI_PREDICT_POINTS_H
#define MOEPERF_HARNESS_CLI_PREDICT_POINTS_H

#include "harness/cli/predict_job.h"
#include "harness/predict/job.h"
#include "harness/suite/suite.h"

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

/* The jobs of a command without a suite, in its order. */
struct cli_points {
    const struct cli_axes *axes; /* borrowed */
    struct cli_point *item;      /* [count], owned; NULL of a suite */
    int count;
    char left_out[2048]; /* sentences on values of axes that no job can have, "" for none */
};

/* Makes the suite of all points; `wanted`: the systems of the command line, of which there may be
 * none, for the usual ones.  What is varied replaces what `settings` say of the same key, and the
 * job's other sizes follow from it as from the command line: the batch from the ranks, sizes from
 * a trace.  Errors: where nothing can be predicted, why the first point can't; that of a system
 * that was asked for where its words are wrong.  Free points->item in any case. */
int cli_points_read(const struct mp_systems *systems, const struct cli_words *wanted,
                    const struct cli_settings *settings, struct cli_points *points,
                    struct mp_suite *suite, struct mp_error *error);

#endif
