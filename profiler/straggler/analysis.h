/* The analysis while it goes on, shared by the files of this folder. */
#pragma once

#include "profiler/straggler/graph.h"
#include "profiler/straggler/straggler.h"

/* Who made whom wait, and where that began (wait states as in Scalasca).
 *
 * A rank waits at a meeting until the last one comes.  That wait is charged to where the last one
 * fell behind: both ranks' times are walked back to the last meeting that they left together, in
 * the iteration or the one just before it (or the iteration's beginning), and what the late one did
 * longer since then is charged, in proportion where it was several things and made up for some.
 * Where it was late because it had waited itself, what that wait was charged to is charged again:
 * propagated, and that may come back to the one that waits.  So the charges of a wait add up to it.
 *
 * Stages of a pipeline do different things and wait while it fills and drains.  Between them only
 * what is waited beyond that counts, and is charged to what the late one did longer than it ideally
 * would have (graph.h). */

/* What a rank spent more than the one that waits for it. */
enum mp_charge_kind {
    MP_CHARGE_WORK,     /* own work in the span `node` */
    MP_CHARGE_GAP,      /* between the spans before it */
    MP_CHARGE_TRANSFER, /* its transfer took longer than the other's */
    MP_CHARGE_START     /* it began its iteration later; `node` is its first */
};

struct mp_charge {
    double seconds;
    int node;   /* of the rank at fault; graph.h */
    int victim; /* node of the rank that waits */
    uint8_t kind;
    bool propagated;
    bool staged; /* between stages: `node` is held against its ideal, not against the victim's */
};

struct mp_waits {
    struct mp_arena memory;   /* of all but the charges */
    double *wait;             /* [spans] s; 0 where a node waits for nobody */
    double bubble;            /* s, all that is waited while a pipeline fills and drains */
    size_t *first;            /* [spans] in charge */
    int *count;               /* [spans] */
    struct mp_charge *charge; /* [charges] */
    size_t charges;
};

/* `number` [iterations] as the run counts them; NULL: 0, 1, ...  Errors: MP_ENOMEM. */
int mp_waits_find(const struct mp_graph *graph, const int64_t number[], struct mp_waits *waits,
                  struct mp_error *error);
void mp_waits_destroy(struct mp_waits *waits); /* accepts a zeroed one */

struct analysis {
    const struct mp_straggler_input *input;
    struct mp_recorded_times times; /* the input's, or those below */
    struct mp_arena memory;         /* of times that were put together where ranks leave meetings */
    struct mp_graph *graph;
    struct mp_waits waits;
    struct mp_causes causes;
    struct mp_straggler *out;
};

static inline double analysis_tokens(const struct analysis *analysis, int iteration, int layer,
                                     int rank) {
    const struct mp_graph *graph = analysis->graph;
    return analysis->causes
        .layer_tokens[((size_t)iteration * (size_t)graph->layers + (size_t)layer) *
                          (size_t)graph->times.ranks +
                      (size_t)rank];
}

/* clocks.c: makes the graph, on times that can be compared; fills what `out` says of clocks. */
int analysis_make_graph(struct analysis *analysis, struct mp_error *error);

/* findings.c: fills finding, rank, waiting, culprit_changes and most_waited_for. */
int analysis_find(struct analysis *analysis, struct mp_error *error);

/* places.c */
int analysis_find_places(struct analysis *analysis, struct mp_error *error);
/* Balance of routes; `analysis->graph` may be NULL. */
int analysis_find_balance(struct analysis *analysis, struct mp_error *error);

/* The search for findings while it goes on: what was waited, by cause.  Shared by charges.c, which
 * gives causes to charges, and findings.c, which makes findings of them. */

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
