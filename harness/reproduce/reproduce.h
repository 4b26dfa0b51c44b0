/* Reproduction: a paper's published figures beside what is predicted on the paper's machines.
 *
 * A paper's file (harness/suites/paper) has one cluster per test bed and one set of assumptions,
 * whatever the row: machines, models and jobs in every combination that rows need.
 *
 *   common: {...}                   options of every predicted job (harness/predict/job.h)
 *   unknowns:                       what the paper does not say and moeperf infers (infer.h)
 *     - {key: loads.spread, from: 0.1, to: 1, why: "loads are not published"}
 *   windows:                        iterations that are looked at; times are means over each and of
 *                                   these; routes that are dropped are those of all
 *     - {loads: "dynamics first-iteration=990", planners-from: 90, warm-up: 15, iterations: 10}
 *   machines: [{name, ...}]         options on top of common, and then models', machines', jobs'
 *   rows:                           how a published row is computed, one or more entries each
 *     - {row: id, figure: seconds, of: [jobs], over: [jobs], machines: [...], models: [...]}
 *
 * mp_reproduction_rows has every key (`moeperf show paper`).
 *
 * A row's number is its figure for `of` over that for `over` (or alone); changes are less 1, times
 * in the row's unit.  `combine` puts the combinations of machines, models and jobs together: each
 * (a line for every one), mean, geometric-mean, least, most.  `single: iteration` compares the
 * counted iterations one by one, `single: layer` the layers, and combines those, too.
 *
 * `use` says what inferring does with a row: fit (the unknowns are chosen by it), score (held out),
 * or input (something in the file was taken from it, so that it is neither).  Rows that are no
 * inputs alternate by name between fit and score.
 *
 * An unknown's key is one of
 *   loads.NAME        an option of the windows' generator
 *   tokens-per-rank   the batch
 *   times.NAME        a factor to the clusters' numbers (mp_cluster_scale)
 *   others            a key of jobs (predict.attention, options.slots); a job's own option stays */
#pragma once

#include "harness/suite/suite.h"
#include "reference/base/arena.h"
#include "results/paper/paper.h"

enum {
    MP_REPRODUCE_PARTS = 32, /* most machines, models and jobs each */
    MP_REPRODUCE_WINDOWS = 8,
    MP_REPRODUCE_ROWS = 128,
    MP_REPRODUCE_INSIDE = 512, /* most lines that the file says are inside */
    MP_REPRODUCE_BATCH = 64,   /* most sequences per rank that largest-batch tries */
    MP_REPRODUCE_LABEL = 128,
    MP_REPRODUCE_REASON = 512,
    MP_REPRODUCE_UNKNOWNS = 16,
    MP_REPRODUCE_CHOICES = 8,
    MP_REPRODUCE_VALUE = 24 /* of an unknown, as text */
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
    MP_FIGURE_MEMORY_EXPERTS,    /* parameters, gradients, optimizer state of experts and copies */
    MP_FIGURE_MEMORY_PARAMETERS, /* of experts and copies */
    MP_FIGURE_MEMORY_COPIES,
    MP_FIGURE_SLOWEST,    /* the slowest iteration over the median one */
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
    struct mp_reproduce_part part[MP_REPRODUCE_PARTS];
    int count;
};

/* What the paper does not say, or a row that is left out, and why. */
struct mp_reproduce_reason {
    const char *what, *because;
    int line;
};

struct mp_reproduce_window {
    char loads[MP_TEXT_SIZE];
    int planners_from;       /* number of the first iteration as planners count, so that one that
                                looks every hundredth need not be watched for a hundred */
    int warm_up, iterations; /* not counted, counted */
};

/* An unknown: a range, in steps that are even in the logarithm where it spans more than a factor of
 * 3; or words. */
struct mp_reproduce_unknown {
    const char *key, *why;
    double from, to;
    const char *choice[MP_REPRODUCE_CHOICES];
    int choices;                    /* 0: a range */
    uint32_t jobs;                  /* whose it is */
    char value[MP_REPRODUCE_VALUE]; /* inferred; where nothing is, the middle */
    const struct mp_yaml *of;       /* names of the jobs */
    int line;
};
/* What is inferred of one, as the file has it. */
struct mp_reproduce_value {
    const char *key, *text;
    int line;
};

enum mp_reproduce_combine {
    MP_COMBINE_EACH,
    MP_COMBINE_MEAN,
    MP_COMBINE_GEOMETRIC_MEAN,
    MP_COMBINE_LEAST,
    MP_COMBINE_MOST
};

enum mp_reproduce_single { MP_SINGLE_NONE, MP_SINGLE_ITERATION, MP_SINGLE_LAYER };
enum mp_reproduce_use { MP_USE_FIT, MP_USE_SCORE, MP_USE_INPUT };

struct mp_reproduce_row {
    struct mp_paper_row published;
    const char *id;
    int single, use, figure, combine;    /* the enums above */
    uint32_t machines, models, of, over; /* sets of parts; over 0: none */
    const struct mp_yaml *names[4];      /* of them */
    int line;
};

/* One job of one model on one machine. */
struct mp_reproduce_cell {
    bool is_needed, is_done;
    char *refusal; /* why its system can't do the job, owned; NULL: it can */
    bool out_of_memory;
    double figure[MP_FIGURES];
    struct mp_memory memory;
    double of_bound; /* the bound over the time of the counted iterations; NAN: not known */
    double *iteration,
        *layer; /* seconds of each counted iteration, and MoE seconds of each layer */
    int iterations, layers;
};

/* One line of the result. */
struct mp_reproduced {
    const struct mp_reproduce_row *row;
    char label[MP_REPRODUCE_LABEL]; /* which combination; "" if all are put together */
    double value;                   /* NAN: `missing` says why */
    char missing[MP_REPRODUCE_REASON];
    bool is_inside;
    bool is_refused;    /* there is no value because a system refuses one of its jobs */
    bool out_of_memory; /* one of its jobs does not fit */
};

struct mp_reproduction {
    const char *path, *name, *description;
    struct mp_yaml *document;
    struct mp_published *published;
    const struct mp_yaml *common, *largest; /* NULL: it has none */
    struct mp_reproduce_reason assumption[MP_REPRODUCE_ROWS];
    int assumptions;
    struct mp_reproduce_reason left_out[MP_REPRODUCE_ROWS];
    int left_outs;
    struct mp_reproduce_unknown unknown[MP_REPRODUCE_UNKNOWNS];
    int unknowns;
    int64_t budget;          /* predictions to infer them with */
    const char *inferred_by; /* the command; NULL: nothing is inferred */
    struct mp_reproduce_value inferred[MP_REPRODUCE_UNKNOWNS];
    int inferreds;
    const char *inside[MP_REPRODUCE_INSIDE];
    int insides; /* -1: not said */
    struct mp_reproduce_window window[MP_REPRODUCE_WINDOWS];
    int windows;
    struct mp_reproduce_parts machines, models, jobs;
    uint32_t largest_batch; /* jobs compared; 0: batches are given */
    struct mp_reproduce_row row[MP_REPRODUCE_ROWS];
    int rows;
    struct mp_reproduce_cell *cell; /* [machines][models][jobs] */
    int *batch;                     /* [machines][models] sequences per rank; 0: not known yet */
    struct mp_arena arena;          /* of the tables */
    struct mp_reproduced *line;     /* [lines] of the result, row by row */
    int lines;
};

extern const struct mp_option mp_reproduction_rows[]; /* what a paper's file may say */

/* Reads a paper's file and checks it against the published rows.  Errors: those of mp_yaml_load;
 * MP_EINVAL with "path:line: ..." for unknown keys, names and rows, rows that are neither
 * reproduced nor left out, and jobs whose options are refused.  mp_reproduction_destroy. */
int mp_reproduction_load(const char *path, const struct mp_systems *systems,
                         struct mp_reproduction **reproduction, struct mp_error *error);
void mp_reproduction_destroy(struct mp_reproduction *reproduction); /* accepts NULL */
MP_END(reproduction, struct mp_reproduction *, mp_reproduction_destroy(*it))

/* Iterations that training needed to a loss, by a job's name. */
struct mp_reproduce_measured {
    char job[MP_REPRODUCE_LABEL];
    double iterations;
};

struct mp_reproduce_settings {
    const struct mp_systems *systems;
    const char *const *set; /* [sets] "key=value" over every job */
    int sets;
    const char *loads;                            /* instead of the windows'; NULL: theirs */
    const char (*value)[MP_REPRODUCE_VALUE];      /* [unknowns]; NULL: the inferred ones */
    const struct mp_reproduce_measured *measured; /* [measurements] */
    int measurements;
    struct mp_known_bounds *bounds; /* cells have of_bound, which takes about a second for those
                                       alike; borrowed; NULL: they don't */
    void *context;
    /* Told before each prediction; false stops.  `done` of `all` are finished. */
    bool (*progress)(void *context, int done, int all, const char *label);
};

/* Predicts every cell that rows need, and makes the lines.  One that its system refuses stays
 * without figures, and says why.  Errors: those of mp_job_check_model and mp_predict_job_run, with
 * the cell's name in front; MP_EREFUSED only if every cell is refused.  MP_EINTERRUPTED is not one
 * of them: a stop leaves cells that are not done. */
int mp_reproduction_run(struct mp_reproduction *reproduction,
                        const struct mp_reproduce_settings *settings, struct mp_error *error);

/* The value at a place 0 .. 1 of an unknown's range. */
void mp_reproduction_value(const struct mp_reproduce_unknown *unknown, double place,
                           char value[MP_REPRODUCE_VALUE]);

/* Forgets all predictions, and batches that were found. */
void mp_reproduction_forget(struct mp_reproduction *reproduction);
/* How many cells rows need. */
int mp_reproduction_needed(struct mp_reproduction *reproduction);
/* "row", or "row, label" where there is one. */
void mp_reproduced_name(const struct mp_reproduced *line, char name[2 * MP_REPRODUCE_LABEL]);
/* Whether it is outside or refused, though the paper's file says that it is inside; of files that
 * say nothing of it, whether it is outside or refused. */
bool mp_reproduced_is_lost(const struct mp_reproduction *reproduction,
                           const struct mp_reproduced *line);
/* Makes the lines of what is predicted by now.  MP_ENOMEM. */
int mp_reproduction_lines(struct mp_reproduction *reproduction, struct mp_error *error);

struct mp_reproduce_cell *mp_reproduction_cell(const struct mp_reproduction *reproduction,
                                               int machine, int model, int job);

/* A cell's job with every option applied and the loads of the first window, on its cluster;
 * mp_predict_job_destroy, mp_cluster_destroy.  cluster NULL: options alone, without what needs one.
 * The errors are mp_predict_job_apply's, mp_suite_job_cluster's and mp_cluster_scale's. */
int mp_reproduction_job(const struct mp_reproduction *reproduction,
                        const struct mp_reproduce_settings *settings, const int place[3],
                        struct mp_predict_job *predict, struct mp_cluster **cluster,
                        struct mp_error *error);
