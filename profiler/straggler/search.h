/* The search for findings while it goes on: what was waited, by cause.  Shared by charges.c, which
 * gives causes to charges, and findings.c, which makes findings of them. */
#ifndef MOEPERF_PROFILER_STRAGGLER_SEARCH_H
#define MOEPERF_PROFILER_STRAGGLER_SEARCH_H

#include "profiler/straggler/analysis.h"

struct search {
    struct analysis *analysis;
    int ranks, iterations, kinds;
    double *caused;   /* [iterations][ranks][causes] s of waiting */
    double *promoted; /* [iterations][ranks][causes] part of the waiting that is a slow rank's */
    double *off_core; /* [iterations][ranks] s without a core, beyond the others'; 0: not known */
    int *late;        /* [ranks] causes of `late` that are no core; 0: it has one, or not known */
    double *usual;    /* [ranks] */
    double *where;    /* [ranks][causes][kinds] s of waiting */
    double *victim;   /* [ranks at fault][ranks that wait] s */
    double *value;    /* [iterations * ranks] */
    double *by_kind;  /* [kinds] */
    struct mp_graph_seconds *now; /* [spans] */
    double replayed;
};

static inline double *caused_at(const struct search *search, int iteration, int rank, int cause) {
    return &search->caused[((size_t)iteration * (size_t)search->ranks + (size_t)rank) * MP_CAUSES +
                           (size_t)cause];
}

static inline double *promoted_at(const struct search *search, int iteration, int rank) {
    return &search
                ->promoted[((size_t)iteration * (size_t)search->ranks + (size_t)rank) * MP_CAUSES];
}

static inline double *off_core_at(const struct search *search, int iteration, int rank) {
    return &search->off_core[(size_t)iteration * (size_t)search->ranks + (size_t)rank];
}

/* Fills caused, and of each rank direct, propagated and suffered. */
void search_add_charges(struct search *search);

/* Moves what is always there though no operation always has it: to a slow rank, or to one whose
 * processor others have.  Fills promoted, off_core and late; needs caused. */
void search_promote(struct search *search);

/* Fills where and victim; needs promoted. */
void search_add_places(struct search *search);

/* What is moved of this rank's goes to. */
enum mp_cause search_promoted_to(const struct search *search, int rank);
/* Moves of part[MP_CAUSES] what is moved in that iteration. */
void search_apply_promotion(const struct search *search, int iteration, int rank,
                            double part[MP_CAUSES]);

/* How much longer a node works as its stage of a pipeline has more to do than the others; negative:
 * less. */
double search_stage_surplus(const struct analysis *analysis, int node,
                            const struct mp_reference *reference);

/* part[MP_CAUSES] of `seconds` of longer work: what an interpreter collected meanwhile, what its
 * stage has to do (if `staged`), and the rest. */
void search_split_work(const struct analysis *analysis, int node,
                       const struct mp_reference *reference, double seconds, bool staged,
                       double part[MP_CAUSES]);

/* How many of the causes that a rank without a core seems to be late by: what is not usual of its
 * work, its work, and all, with its transfers and beginnings. */
enum { LATE_ONCE = 1, LATE_WORK = 2, LATE = 4 };

#endif
