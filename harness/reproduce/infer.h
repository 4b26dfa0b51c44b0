/* Inference: under which assumptions a paper's figures hold.
 *
 * What a paper does not say is an unknown of its file, with a range (reproduce.h).  A *set* has a
 * value for each, and a paper's rows are predicted under many: first a Latin hypercube (McKay,
 * Beckman, Conover, Technometrics 1979: each of n equal parts of every range is met once), in
 * three fifths of the budget, then steps along single unknowns from the best three so far, half as
 * wide after every two rounds.  Everything is drawn from the seed and a round does not depend on
 * how many processes share it: the same file, budget and seed give the same sets and numbers.
 *
 * Rows are fitted or held out (`use` in the file).  A number counts as far as it is from what is
 * inside (mp_paper_range): d = |log(number / nearer end)|, of changes 1 more, as d / (d + 0.1), so
 * that a row far out weighs hardly more than one just outside.  A row with several numbers counts
 * as their mean, and a set's loss is the mean over the rows that are fitted: 0 all inside, 1 none
 * anywhere near.  The held-out rows are only counted.
 *
 * One set is better than another if more fitted numbers are inside under it, and of equals if its
 * loss is smaller: what is inside is what a paper is found to be explained by, and is what is
 * counted of the held-out rows; the loss says in which direction more may come in.
 *
 * Nothing here says that the best set is what the paper had; it says what there is of sets that
 * would explain its figures, and which of them no set explains together. */
#pragma once

#include <jansson.h>

#include "harness/reproduce/reproduce.h"

enum { MP_INFER_LINES = 256, MP_INFER_SENTENCE = 512 };

/* What is recorded of every job under a set, means over its cells. */
enum mp_infer_quantity {
    MP_INFER_MOE,       /* share of the iteration in layers with experts */
    MP_INFER_EXCHANGE,  /* share of it in dispatch and combine */
    MP_INFER_IMBALANCE, /* largest over mean routes of a rank */
    MP_INFER_QUANTITIES
};

struct mp_infer_set {
    double place[MP_REPRODUCE_UNKNOWNS]; /* 0 .. 1 in its range */
    char value[MP_REPRODUCE_UNKNOWNS][MP_REPRODUCE_VALUE];
    double number[MP_INFER_LINES];
    bool out_of_memory[MP_INFER_LINES];
    double quantity[MP_REPRODUCE_PARTS][MP_INFER_QUANTITIES];
    double share[MP_INFER_LINES]; /* MP_INFER_MOE of the row's first job, in the row's cells */
    int fitted;                   /* numbers inside */
    double loss;                  /* INFINITY: it could not be predicted, */
    char refused[256];            /* and why */
};

static inline bool mp_infer_better(const struct mp_infer_set *one,
                                   const struct mp_infer_set *other) {
    return one->fitted > other->fitted || (one->fitted == other->fitted && one->loss < other->loss);
}

struct mp_inference {
    const struct mp_reproduction *reproduction; /* borrowed */
    struct mp_infer_set *set;                   /* [sets] */
    int sets, sampled;                          /* of them by the hypercube, the first */
    int best;
    struct mp_reproduced line[MP_INFER_LINES]; /* rows and labels; numbers of the best set */
    int lines;
    int64_t predictions; /* that all sets took */
    size_t size;         /* of the memory of `set` */
};

struct mp_infer_settings {
    struct mp_reproduce_settings
        reproduce;  /* systems, clusters, set, measured; the rest is unused */
    int64_t budget; /* predictions; 0: the file's */
    uint64_t seed;
    int processes;
    void *context;
    /* Told while sets are predicted; false stops.  `done` of `all` sets are predicted. */
    bool (*progress)(void *context, int done, int all);
};

/* Predicts sets in as many processes.  Errors: MP_EINVAL (no unknowns, nothing to fit, a budget for
 * fewer than four sets, more than MP_INFER_LINES lines, no set that can be predicted, with the
 * first one's reason); MP_EINTERRUPTED; MP_ENOMEM; MP_EIO where no process can be started or one
 * dies. */
int mp_infer(struct mp_reproduction *reproduction, const struct mp_infer_settings *settings,
             struct mp_inference **inference, struct mp_error *error);
void mp_inference_destroy(struct mp_inference *inference); /* accepts NULL */
MP_END(inference, struct mp_inference *, mp_inference_destroy(*it))

/* A number over the nearer end of what is inside, of changes 1 more; 1 if it is inside. */
double mp_infer_ratio(const struct mp_paper_row *row, double number);
/* A line's number under a set, inside or not. */
bool mp_infer_inside(const struct mp_inference *inference, int set, int line);
/* Lines of a use that have a number under a set, and of them those inside. */
struct mp_infer_counts {
    int inside, all;
};
struct mp_infer_counts mp_infer_count(const struct mp_inference *inference, int set,
                                      enum mp_reproduce_use use);

/* Whether a set is nearly as good as the best: at most MP_INFER_FEWER fitted numbers fewer are
 * inside, and its loss is larger by MP_INFER_TOLERANCE at most. */
#define MP_INFER_TOLERANCE 0.05
enum { MP_INFER_FEWER = 1 };
bool mp_infer_near(const struct mp_inference *inference, int set);
/* The least and the most of a line, or of an unknown's places, over the sampled sets or over those
 * near the best; NAN without a number. */
struct mp_infer_interval {
    double low, high;
};
void mp_infer_widen(struct mp_infer_interval *interval, double value); /* NAN does not */
struct mp_infer_interval mp_infer_prior(const struct mp_inference *inference, int line);
struct mp_infer_interval mp_infer_line(const struct mp_inference *inference, int line);
struct mp_infer_interval mp_infer_unknown(const struct mp_inference *inference, int unknown);

/* Sentences, an array to be given up, on what holds under no set: layers and iterations whose
 * speed-ups bound the share of layers in the iteration (Amdahl), with that share under the sets;
 * and pairs of lines that are each inside under some sets and together under none, though three
 * such sets would be expected if the two had nothing to do with each other; with the quantity or
 * unknown that keeps them apart, if one does. */
json_t *mp_infer_contradictions(const struct mp_inference *inference);

/* Likewise, one sentence for every line that is outside with the best set, in the order of lines,
 * so that none is left unexplained.  Inside under no set: the nearest number and the set it is of.
 * Otherwise what it costs to have it inside: of the sets where it is, the best, and which lines are
 * inside with the best set and outside with that one; or that fitted rows leave it open, where such
 * a set is nearly as good. */
json_t *mp_infer_outside(const struct mp_inference *inference);

/* Puts the best set and `command` into the paper's file in the place of the one there; all else of
 * the file stays as it is.  Errors: those of mp_yaml_read_file and mp_whole_file_open. */
int mp_infer_write(const struct mp_inference *inference, const char *command,
                   struct mp_error *error);
