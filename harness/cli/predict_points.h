/* The jobs of moeperf predict that stand in no suite: every system at every value of what is
 * varied. */
#ifndef MOEPERF_HARNESS_CLI_PREDICT_POINTS_H
#define MOEPERF_HARNESS_CLI_PREDICT_POINTS_H

#include "harness/cli/predict_axes.h"
#include "harness/cli/predict_job.h"
#include "harness/suite/suite.h"

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
