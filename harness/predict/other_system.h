/* Another system on a recorded run: its planner meets the loads that the run recorded, and what its
 * plans ask for takes the time that the run took for such things.
 *
 * Everything outside the experts (attention, gate, planning, gradients of the rest, the optimizer)
 * stays as every rank did it.  The rest comes from rates fitted to the run's own spans by least
 * squares, against what the run's own system planned:
 *
 *   experts    of a layer and rank: fixed seconds, and seconds per route
 *   exchanges  transfers of dispatch and combine: fixed seconds, and seconds per row that the rank
 *              sends or gets, whichever are more; without any, the run's bandwidth says
 *   copies     experts' parameters and gradients: fixed seconds, and seconds per byte that the rank
 *              sends or gets, as far as it stood still for them; without any, the bandwidth says,
 *              and on a measured run nothing is hidden, since the processor that computes also
 *              copies, on a predicted one what does not hide behind the layer's attention is left
 *   moves      of experts after a step: seconds per byte; without any, the bandwidth says
 *
 * Points far from their line (beyond 4 median distances and the median itself) are left out: ranks
 * of a busy machine lose their processor now and then.  Exchanges in steps (pipelined) are taken to
 * be flat. */
#ifndef MOEPERF_HARNESS_PREDICT_OTHER_SYSTEM_H
#define MOEPERF_HARNESS_PREDICT_OTHER_SYSTEM_H

#include "harness/predict/what_if.h"
#include "reference/plan/system.h"

struct mp_fitted_line {
    double fixed, slope;
    /* Behind the largest x that the run had, the slope is this one: not above that of the mean
     * expert, or of the bandwidth, so that what was small in the run is not blown up. */
    double largest, beyond;
};
/* [direction] */
struct mp_other_rates {
    struct mp_fitted_line expert[2];   /* s, s per route */
    struct mp_fitted_line dispatch[2]; /* s, s per row */
    struct mp_fitted_line combine[2];
    struct mp_fitted_line copies[2]; /* s, s per byte: with gradients in backward */
    double move;                     /* s per byte, after the step */
    bool rows_counted;   /* rows crossed ranks' borders: else the bandwidth is behind slopes */
    bool copies_counted; /* the run had copies or moves to take it from */
};

struct mp_other_system;

/* Reads the run's job and loads from the database and fits the rates.  All but error is borrowed
 * until destroy.  MP_ENOTFOUND for a run without its job file, loads, or expert spans; errors of
 * the planner; MP_ENOMEM. */
int mp_other_system_create(struct mp_what_if *what_if, const struct mp_recorded *recorded,
                           struct mp_store *store, const char *database,
                           const struct mp_systems *systems, struct mp_other_system **other,
                           struct mp_error *error);
void mp_other_system_destroy(struct mp_other_system *other); /* accepts NULL */
const struct mp_other_rates *mp_other_system_rates(const struct mp_other_system *other);

/* Median seconds of an iteration under a system with its default options: what every rank took, and
 * what its rates add for asking for more or less.  By the name of the run's own: with the run's
 * options and from the rates alone, which says what they are worth.  MP_ENOTFOUND, and what the
 * system refuses. */
int mp_other_system_median(struct mp_other_system *other, const char *name, double *seconds,
                           struct mp_error *error);

#endif
