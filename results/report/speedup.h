/* Who is faster: the rows of the speed-up table and the sentences under it. */
#pragma once

#include "results/report/groups.h"
#include "results/report/table.h"

/* The rounds of one job put together; NAN where nothing is known.  Texts are borrowed of the runs.
 */
struct speedup_row {
    struct report_run run; /* the first: its names stand for all */
    const char *refused;   /* why the system can't do the job; NULL where it can */
    int group, rounds, complete;
    int reached; /* rounds that reached the target loss */
    bool ranks_share_cores, unattainable;
    bool serves;
    double ms, ms_min, ms_max, p99, tokens_per_s, speedup, vs_balanced, loss_final, loss_difference,
        agreed, dropped, bound_ms, of_bound;
    double served_p99;               /* NAN for steps of training */
    double speedup_min, speedup_max; /* over the rounds */
    double target, window;           /* the loss to be reached; NAN: none */
    double to_target, to_target_min, to_target_max, s_to_target; /* of those that reached it */
    double taken; /* the most of report_run.taken over the rounds */
};

/* A row per group of a table (-1: of all), by group; to be freed.  Errors: MP_ENOMEM. */
int speedup_rows(const struct report_runs *runs, int table, struct speedup_row **rows, int *count,
                 struct mp_error *error);
MP_END(speedup_rows, struct speedup_row *, free(*it))

/* They as a table, to be freed also after an error.  Errors: MP_ENOMEM. */
int speedup_table(const struct speedup_row rows[], int count, struct table *table,
                  struct mp_error *error);

/* What the rows of one table say: the fastest system, unless other programs had the processors for
 * so long that the times don't tell, who drops routes, where losses part, which rows are
 * yardsticks. `rows`: those of the table. */
void speedup_print_words(const struct report_runs *runs, const struct speedup_row rows[], int count,
                         int table, FILE *out);
