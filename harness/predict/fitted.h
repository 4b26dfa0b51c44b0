/* What a recorded run took, in the place of a cluster's formulas (cost.h): fitted by least squares
 * to the run's own spans, against what its own system planned.
 *
 *   own work   outside the experts (attention, gate, planning, rows' order, ...): what every rank
 *              did in every iteration
 *   experts    of each with rows f(rows), which grows less and less steeply; times what the rank is
 *              slower than others
 *   links      seconds of an exchange, and per row that the busiest rank sends or gets: inside a
 *              node, and between nodes, where a node's ranks share a link if that explains the run
 *              better.  What leaves nodes hides what passes inside, whose rows are taken to be as
 *              slow.  Where few rows travel, the run's bandwidth says; also where they make no
 *              difference, but no more than the exchanges took that they were in
 *   copies     experts that travel, and gradients: on the same links, and faster or slower per byte
 *              as ranks stood still for them; without any, the run's bandwidth says
 *   sums       of other gradients, as ranks stood still for them
 *   optimizer  seconds per byte of parameters
 *
 * How many rows there are of each is what the predictor takes with unit costs for the run's own
 * plans: probes.
 *
 * On a run of processors nothing passes beside work, since what computes also copies.  On one of
 * GPUs, or a predicted one, everything does: what it hides has the links' speed. */
#pragma once

#include "harness/cluster/cluster.h"
#include "harness/predict/what_if.h"
#include "reference/base/arena.h"
#include "reference/plan/system.h"

/* f: seconds per row, per row more as far as 16, 64, 256 and 1024 of them, and of having some. */
enum { MP_EXPERT_ROW, MP_EXPERT_BEND, MP_EXPERT_EACH = MP_EXPERT_BEND + 4, MP_EXPERT_COLUMNS };
struct mp_fitted_experts {
    double weight[MP_EXPERT_COLUMNS];
};
double mp_fitted_expert(const struct mp_fitted_experts *experts, double rows);

struct mp_fitted_link {
    double exchange; /* s, also of any other message */
    double row;      /* s per row */
};

enum { MP_LINK_NODE, MP_LINK_FAR, MP_LINK_SHARED, MP_LINKS }; /* shared: by a node's ranks */

struct mp_fitted {
    const struct mp_setting *setting; /* borrowed: what planners are told, as the run measured it */
    int iterations, layers, ranks, ranks_per_node, micro_batches;
    bool hides;                          /* what travels does so beside what is computed */
    struct mp_fitted_experts experts[2]; /* by direction */
    double *speed;                       /* [2][ranks] a rank's experts, times others' */
    struct mp_fitted_link link[MP_LINKS];
    int far;             /* which of them leaves nodes */
    bool rows_counted;   /* enough rows are seen: else the bandwidth is behind links */
    bool copies_counted; /* the run had copies or moves to take it from */
    double copies;       /* how often a copy's bytes travel in the time of a row's */
    double sums;         /* what sums of other gradients take, times what the links say */
    double update;       /* s per byte of parameters */
    /* Means over ranks and iterations, s: stood still for experts that travel, for other sums, for
     * the loss; and in the optimizer. */
    double stalled, summing, agreeing, updating;
    double *own, *none;          /* [iterations][1 + layers][phases][2][ranks] s; [ranks] zeros */
    struct mp_fitted_cell *cell; /* [iterations][layers][ranks] what is fitted to */
    int probe;                   /* at hand; -1: none */
    struct mp_arena memory;      /* of the tables */
};

/* Reads what the run took; nothing takes time yet but 1 s per byte that is updated.
 * `micro_batches` of its iterations.  MP_ENOMEM. */
int mp_fitted_create(const struct mp_what_if *what_if, const struct mp_recorded *recorded,
                     const struct mp_setting *setting, int micro_batches, bool hides,
                     struct mp_fitted **fitted, struct mp_error *error);
void mp_fitted_destroy(struct mp_fitted *fitted); /* accepts NULL */

/* Makes costs those of a probe, whose spans of the stream "compute" are then taken in, each with
 * the index of its iteration. */
enum { MP_FITTED_PROBES = MP_EXPERT_COLUMNS / 2 };
void mp_fitted_probe(struct mp_fitted *fitted, int probe);
void mp_fitted_take(struct mp_fitted *fitted, int iteration, int rank, const struct mp_span *span);
/* After all probes: experts and links.  MP_ENOMEM. */
int mp_fitted_fit(struct mp_fitted *fitted, struct mp_error *error);

/* The links as a cluster that has nothing else, with the bandwidth that copies have: the bytes of
 * rows count `copies` times. */
void mp_fitted_cluster(const struct mp_fitted *fitted, struct mp_cluster *cluster);

/* Between nodes, if there are some; and seconds of a copy's byte on it. */
const struct mp_fitted_link *mp_fitted_farthest(const struct mp_fitted *fitted);
double mp_fitted_byte(const struct mp_fitted *fitted);

/* [ranks] own work of a phase in an iteration (index), s of a micro-batch. */
const double *mp_fitted_own(const struct mp_fitted *fitted, int iteration, enum mp_phase phase,
                            int direction, int layer);
