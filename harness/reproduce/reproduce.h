/* Reproduction: a paper's published figures beside what is predicted on the paper's machines.
 *
 * A paper's file (harness/suites/paper) has one cluster per test bed and one set of assumptions,
 * whatever the row: machines, models and jobs in every combination that rows need.
 *
 *   paper: hecate                   its rows are those of results/paper
 *   description: one line
 *   assumptions:                    what the paper does not say: {what, because}
 *   common: {...}                   options of every predicted job (harness/predict/job.h)
 *   windows:                        iterations that are looked at; times are means over all of
 *     - {loads: "dynamics first-iteration=900", warm-up: 100, iterations: 40}      them
 *   largest-batch: [ep, ...]        optional: sequences per rank are the most that none of these
 *                                   jobs runs out of memory with; otherwise `batch` is a job's
 *   machines: [{name, ...}]         options on top of common, and then models', machines', jobs'
 *   models: [{name, ...}]
 *   jobs: [{name, ...}]
 *   rows:                           how a published row is computed, one or more entries each
 *     - {row: id, figure: seconds, of: [jobs], over: [jobs], machines: [...], models: [...],
 *        combine: each}
 *   left-out: [{row: id, because}]  every published row is here or in rows
 *   findings: [{row: id, because}]  optional: what stands behind numbers that are outside
 *
 * A row's number is its figure for `of` over that for `over` (or alone); changes are less 1, times
 * in the row's unit.  `combine` puts the combinations of machines, models and jobs together: each
 * (a line for every one), mean, geometric-mean, least, most. */
#ifndef MOEPERF_HARNESS_REPRODUCE_REPRODUCE_H
#define MOEPERF_HARNESS_REPRODUCE_REPRODUCE_H

#include "harness/predict/job.h"
#include "results/paper/paper.h"

enum {
    MP_REPRODUCE_PARTS = 32, /* most machines, models and jobs each */
    MP_REPRODUCE_WINDOWS = 8,
    MP_REPRODUCE_ROWS = 128,
    MP_REPRODUCE_BATCH = 64, /* most sequences per rank that largest-batch tries */
    MP_REPRODUCE_LABEL = 128
};

/* What a row can be about: of an iteration, means over the counted ones. */
enum mp_reproduce_figure {
    MP_FIGURE_SECONDS,
    MP_FIGURE_MOE,      /* seconds in MoE layers */
    MP_FIGURE_EXCHANGE, /* seconds in dispatch and combine, waiting included */
    MP_FIGURE_EXPERT,   /* seconds in experts, mean over ranks; of the busiest: */
    MP_FIGURE_EXPERT_MAX,
    MP_FIGURE_ATTENTION,
    MP_FIGURE_EXPOSED,  /* seconds that ranks wait */
    MP_FIGURE_LATE,     /* of them for ranks that come late */
    MP_FIGURE_TRANSFER, /* seconds of copies and gradients of experts; waited for: */
    MP_FIGURE_TRANSFER_EXPOSED,
    MP_FIGURE_MOVE,              /* seconds of moving experts after the step */
    MP_FIGURE_IMBALANCE,         /* largest over mean computed routes */
    MP_FIGURE_COPIED,            /* share of the experts that a rank has beside its own */
    MP_FIGURE_DROPPED,           /* share of the routes */
    MP_FIGURE_SURVIVAL,          /* 1 - that */
    MP_FIGURE_MEMORY,            /* bytes of the fullest rank: all */
    MP_FIGURE_MEMORY_STATE,      /* parameters, gradients and optimizer state */
    MP_FIGURE_MEMORY_PARAMETERS, /* of experts and copies */
    MP_FIGURE_MEMORY_COPIES,
    MP_FIGURE_BATCH,      /* sequences per rank */
    MP_FIGURE_ITERATIONS, /* to a loss, measured by training: not predicted */
    MP_FIGURE_TO_LOSS,    /* seconds to it: those iterations, each as long as predicted */
    MP_FIGURES
};
const char *mp_reproduce_figure_name(enum mp_reproduce_figure figure); /* as in files */

/* A machine, model or job. */
struct mp_reproduce_part {
    const char *name;
    const struct mp_yaml *mapping;
};
struct mp_reproduce_parts {
    int count;
    struct mp_reproduce_part part[MP_REPRODUCE_PARTS];
};

struct mp_reproduce_window {
    char loads[MP_TEXT_SIZE];
    int warm_up, iterations; /* not counted, counted */
};

enum mp_reproduce_combine {
    MP_COMBINE_EACH,
    MP_COMBINE_MEAN,
    MP_COMBINE_GEOMETRIC_MEAN,
    MP_COMBINE_LEAST,
    MP_COMBINE_MOST
};

struct mp_reproduce_row {
    struct mp_paper_row published;
    enum mp_reproduce_figure figure;
    enum mp_reproduce_combine combine;
    uint32_t machines, models, of, over; /* sets of parts; over 0: none */
};

/* One job of one model on one machine. */
struct mp_reproduce_cell {
    bool is_needed, is_done;
    bool out_of_memory;
    double figure[MP_FIGURES];
    struct mp_memory memory;
};

struct mp_reproduction {
    const char *path, *name, *description;
    struct mp_yaml *document;
    const struct mp_paper *paper;
    json_t *published;
    const struct mp_yaml *common, *assumptions, *left_out, *findings; /* NULL: it has none */
    struct mp_reproduce_window window[MP_REPRODUCE_WINDOWS];
    int windows;
    struct mp_reproduce_parts machines, models, jobs;
    uint32_t largest_batch; /* jobs compared; 0: batches are given */
    struct mp_reproduce_row row[MP_REPRODUCE_ROWS];
    int rows;
    struct mp_reproduce_cell *cell; /* [machines][models][jobs] */
    int *batch;                     /* [machines][models] sequences per rank; 0: not known yet */
};

/* Reads a paper's file and checks it against the published rows.  Errors: those of mp_yaml_load;
 * MP_EINVAL with "path:line: ..." for unknown keys, names and rows, rows that are neither
 * reproduced nor left out, and jobs whose options are refused.  mp_reproduction_destroy. */
int mp_reproduction_load(const char *path, const struct mp_systems *systems,
                         struct mp_reproduction **reproduction, struct mp_error *error);
void mp_reproduction_destroy(struct mp_reproduction *reproduction); /* accepts NULL */

/* Iterations that training needed to a loss, by a job's name. */
struct mp_reproduce_measured {
    const char *job;
    double iterations;
};

struct mp_reproduce_settings {
    const struct mp_systems *systems;
    const char *clusters;   /* folder of the shipped ones */
    const char *const *set; /* [sets] "key=value" over every job */
    int sets;
    const char *loads;                            /* instead of the windows'; NULL: theirs */
    const struct mp_reproduce_measured *measured; /* [measurements] */
    int measurements;
    void *context;
    /* Told before each prediction; false stops.  `done` of `all` are finished. */
    bool (*progress)(void *context, int done, int all, const char *label);
};

/* Predicts every cell that rows need.  Errors: those of mp_predict_job_run, with the cell's name in
 * front; MP_EINTERRUPTED is not one of them: a stop leaves cells that are not done. */
int mp_reproduction_run(struct mp_reproduction *reproduction,
                        const struct mp_reproduce_settings *settings, struct mp_error *error);

/* One line of the result. */
struct mp_reproduced {
    const struct mp_reproduce_row *row;
    char label[MP_REPRODUCE_LABEL]; /* which combination; "" if all are put together */
    double value;                   /* NAN: `missing` says why */
    char missing[MP_REPRODUCE_LABEL];
    bool is_inside;
    bool out_of_memory; /* one of its jobs does not fit */
};
typedef void mp_reproduce_line(void *context, const struct mp_reproduced *line);
void mp_reproduction_lines(const struct mp_reproduction *reproduction, mp_reproduce_line *each,
                           void *context);

struct mp_reproduce_cell *mp_reproduction_cell(const struct mp_reproduction *reproduction,
                                               int machine, int model, int job);

/* A cell's job with every option applied, `batch` sequences per rank where that is to be found (0:
 * the found one) and no loads yet; mp_predict_job_destroy.  The errors are mp_predict_job_apply's.
 */
int mp_reproduction_job(const struct mp_reproduction *reproduction,
                        const struct mp_reproduce_settings *settings, int machine, int model,
                        int job, struct mp_predict_job *predict, struct mp_error *error);

#endif
