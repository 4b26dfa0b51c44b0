/* Rates of a recorded run: what its work and transfers took, fitted to what its plans asked for. */
#ifndef MOEPERF_HARNESS_PREDICT_WHAT_IF_RATES_H
#define MOEPERF_HARNESS_PREDICT_WHAT_IF_RATES_H

#include "harness/predict/what_if.h"
#include "reference/plan/system.h"

struct mp_fitted_line {
    double fixed, slope;
    /* Behind the largest x that the run had, the slope is this one: not above that of the mean
     * expert, or of the bandwidth, so that what was small in the run is not blown up. */
    double largest, beyond;
};
double mp_fitted_at(const struct mp_fitted_line *line, double x);

/* [direction] */
struct mp_other_rates {
    struct mp_fitted_line expert[2];   /* s, s per route; a call of its own for each step */
    double each_expert[2];             /* s of every expert with routes, as the run measured it */
    struct mp_fitted_line dispatch[2]; /* s, s per row */
    struct mp_fitted_line combine[2];
    struct mp_fitted_line copies[2]; /* s, s per byte: with gradients in backward */
    double move;                     /* s per byte, after the step */
    bool rows_counted;   /* whole exchanges are seen: else the bandwidth is behind slopes */
    bool copies_counted; /* the run had copies or moves to take it from */
    bool hides;          /* what travels does so beside what is computed */
};

/* Whether copies pass beside work: a run that had some shows instead how long ranks stood still. */
static inline bool mp_what_if_copies_pass(const struct mp_other_rates *rates) {
    return rates->hides && !rates->copies_counted;
}

/* What a run took, [iterations][layers][ranks]. */
struct mp_what_if_measured {
    struct mp_what_if_layer *layer;
    double (*attention)[2]; /* s, by direction */
    double moving;          /* s, all ranks and iterations */
};
/* `layers` as the run's loads have them.  MP_ENOMEM. */
int mp_what_if_measure(const struct mp_what_if *what_if, const struct mp_recorded *recorded,
                       int layers, struct mp_what_if_measured *measured, struct mp_error *error);
void mp_what_if_measured_destroy(struct mp_what_if_measured *measured); /* accepts a zeroed one */

/* Of one call with so many routes, and experts that may have them. */
static inline double mp_experts_seconds(const struct mp_other_rates *rates, int way, double routes,
                                        double experts) {
    double busy = experts < routes ? experts : routes;
    return routes > 0 ? mp_fitted_at(&rates->expert[way], routes) + rates->each_expert[way] * busy
                      : 0;
}

struct mp_demands; /* what_if_demand.h */

/* Fits all but `hides`, by least squares, from what the run's own system planned and what it took.
 * MP_ENOMEM. */
int mp_what_if_fit(const struct mp_demands *own, const struct mp_what_if_measured *measured,
                   const struct mp_setting *setting, struct mp_other_rates *rates,
                   struct mp_error *error);

#endif
