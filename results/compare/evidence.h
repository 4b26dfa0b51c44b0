/* Evidence: what the samples of one timed metric say, and what may be concluded from it.
 *
 * One sample is the median over the steady iterations of one job.  Pairs, measured in turns, are
 * judged by the signed rank of ln(head / base); groups that were not measured in turns by
 * Mann-Whitney's U.  Effects are fractions, 0.02 for 2 % slower; they are compared as logarithms,
 * so that exchanging base and head mirrors every sign. */
#ifndef MOEPERF_RESULTS_COMPARE_EVIDENCE_H
#define MOEPERF_RESULTS_COMPARE_EVIDENCE_H

#include <stdbool.h>
#include <stddef.h>

#include "reference/base/error.h"

enum mp_outcome {
    MP_OUTCOME_PASS,
    MP_OUTCOME_IMPROVED, /* faster by at least the minimum effect */
    MP_OUTCOME_ACCEPTED, /* an exact measure that differs, as the user said it may */
    MP_OUTCOME_INCONCLUSIVE,
    MP_OUTCOME_FAIL
};
/* "pass", "improved", "accepted", "inconclusive", "fail". */
const char *mp_outcome_name(enum mp_outcome outcome);

#define MP_MINIMUM_EFFECT .02
#define MP_SIGNIFICANCE .05

struct mp_samples {
    const double *base, *head; /* > 0, borrowed */
    int bases, heads;          /* equal for pairs */
    bool paired;               /* base[i] and head[i] were measured in turns */
};

struct mp_evidence {
    struct mp_samples samples;
    double base, head;        /* medians */
    double effect, low, high; /* head / base - 1, with its 95 % interval, may be infinite */
    double p;                 /* of the test that decides */
    double u, u_p;            /* Mann-Whitney, whatever decides */
    double w;                 /* signed rank's W+, NAN for groups */
    double spread;            /* coefficient of variation of the ratios (groups: of base), or NAN */
    double mean, mean_error;  /* of the effect's logarithm, with its standard error; NAN: unknown */
    int freedom;              /* degrees of freedom of that error */
};

/* Errors: MP_EINVAL (no sample, unequal pairs, a value that is no positive number: which one). */
int mp_evidence_weigh(const struct mp_samples *samples, struct mp_evidence *evidence,
                      struct mp_error *error);

/* The p with which the noise of either side explains an effect beyond `minimum_effect`, or beyond
 * the noise floor where that is larger: Student's t of the mean logarithm.  1 for an effect that is
 * not beyond it; NAN for fewer than MP_LEAST_OF_NOISE pairs or runs a side, of which nobody knows
 * the noise. */
enum { MP_LEAST_OF_NOISE = 3 };
double mp_evidence_beyond(const struct mp_evidence *evidence, double minimum_effect, double floor);

struct mp_decision {
    double minimum_effect; /* fraction, > 0 */
    double adjusted_p;     /* Holm's, over all timed metrics of the comparison; NAN: in doubt */
    double beyond_p;       /* Holm's, of mp_evidence_beyond; NAN: unknown */
    double floor;          /* noise floor, fraction; NAN: not measured */
    int metrics;           /* timed metrics that share the significance */
    const char *doubt; /* a sentence: why these samples can't be trusted to the percent; or NULL */
};

/* Fails when head is slower by at least the minimum effect and the adjusted p is at most 0.05, or
 * when the whole interval is beyond minimum effect and floor and beyond_p is at most 0.05: an
 * effect that large fails also of few samples, of those that are in doubt, and above the floor of a
 * noisy machine.  Improved is its mirror image; passes when the interval's upper end is below the
 * minimum effect; everything else is inconclusive, and so is everything else where there is a doubt
 * or where the floor is at or above the minimum effect.  `reason` says in a sentence why, for
 * inconclusive ones with what would decide. */
enum mp_outcome mp_evidence_decide(const struct mp_evidence *evidence,
                                   const struct mp_decision *decision, char *reason, size_t size);

#endif
