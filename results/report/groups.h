/* The selected runs, and which of them are rounds of the same thing. */
#pragma once

#include <stdbool.h>

#include "results/report/report.h"

#define REPORT_UNATTAINABLE " (unattainable)" /* behind a yardstick's name, in every table */

#define REPORT_PREDICTED " (predicted)" /* behind what stands for a run that nobody measured */

/* Shares of the time for which other programs have the processors: below this they are the usual
 * noise of a machine, beyond that times tell nothing of systems. */
#define REPORT_TAKEN 0.05
#define REPORT_TAKEN_MOST 0.25

/* A run as v_run and v_speedup show it; NAN for NULL, "" for texts that are NULL. */
struct report_run {
    int64_t run_id;
    char *suite, *suite_run, *job, *system, *executor, *workload, *gate, *model, *status, *reason,
        *started_at; /* owned */
    char *label;     /* owned: what tables call it, see report_group_label */
    int round, ranks;
    int64_t iterations, iterations_wanted;
    bool complete, ranks_share_cores;
    bool refused;      /* its system can't do such a job: never started, `reason` says why */
    bool unattainable; /* a yardstick, no system */
    bool predicted;    /* its times are the predictor's */
    bool foreign;      /* a recorded program, which no suite ran */
    double ms_per_iteration, tokens_per_s, speedup_vs_ep, speed_vs_balanced, loss_final,
        max_loss_difference, iterations_agreed, dropped, ms_p99, bound_ms, of_bound;
    double at_once; /* steady iterations under way, in the mean over their time */
    double target, window, to_target, s_to_target; /* as v_convergence has them; NAN: no target */
    bool serves;     /* its iterations are steps of serving, forward only */
    double taken;    /* processor_taken of v_run */
    int group;       /* rounds of one job on one setting have the same, from 0 by first run */
    int table;       /* groups to be shown beside each other have the same, from 0 by first run */
    bool is_example; /* of its group: see report_group_example */
};

struct report_runs {
    int count, groups, tables;
    struct report_run *run; /* by run_id */
};

/* To be freed also after an error.  MP_ENOTFOUND when nothing is selected. */
int report_runs_load(struct mp_store *store, const struct mp_report_selection *selection,
                     struct report_runs *runs, struct mp_error *error);
void report_runs_free(struct report_runs *runs); /* accepts a zeroed one */
MP_END(runs, struct report_runs, report_runs_free(it))

/* The group's first run, whose names stand for all. */
const struct report_run *report_group_first(const struct report_runs *runs, int group);
/* The complete run of median time, or the last one if none is complete: the group's example. */
const struct report_run *report_group_example(const struct report_runs *runs, int group);
/* What to call the group inside its table: the system, or the job where systems repeat; a yardstick
 * that no system attains with that word behind it. */
const char *report_group_label(const struct report_runs *runs, int group);

/* The most that other programs had the processors, over the runs of a table (-1: of all) whose
 * ranks did not share cores on purpose; NAN: not recorded. */
double report_taken(const struct report_runs *runs, int table);

enum { REPORT_BUSY_TEXT = 512 };
/* What to know first if that is more than usual: "for up to 62 % of the time ..."; "" if not. */
const char *report_busy(const struct report_runs *runs, char text[REPORT_BUSY_TEXT]);
/* Prints it before anything else that is said of the runs. */
void report_print_busy(const struct report_runs *runs, FILE *out);

/* Says under a table which of its rows are yardsticks. */
void report_print_yardsticks(const struct report_runs *runs, int table, FILE *out);

enum { REPORT_HEADING = 1024 };
/* "skewed 0.70 on 4, gate gshard, 2 ranks, measured": what a table's runs have in common. */
const char *report_table_heading(const struct report_runs *runs, int table,
                                 char text[REPORT_HEADING]);
