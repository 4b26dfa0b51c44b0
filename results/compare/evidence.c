/* Evidence: see gate.h. */
#include "results/compare/gate.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "reference/base/arena.h"
#include "reference/base/elementary.h"
#include "reference/base/median.h"
#include "results/compare/statistics.h"

/* Pairs: more are no advice; with fewer there is no interval. */
enum { MOST_PAIRS_ADVISED = 200, LEAST_PAIRS = 6 };

const char *mp_outcome_name(enum mp_outcome outcome) {
    static const char *const names[] = {"pass", "improved", "accepted", "inconclusive", "fail"};
    return names[outcome];
}

static double fraction_of(double logarithm) {
    return isinf(logarithm) ? (logarithm < 0 ? -1 : INFINITY) : mp_elementary_exp(logarithm) - 1;
}

static int check(const char *side, const double values[], int count, struct mp_error *error) {
    if (count < 1)
        return mp_fail(error, MP_EINVAL, "%s: no sample", side);
    for (int i = 0; i < count; i++)
        if (!(values[i] > 0 && isfinite(values[i])))
            return mp_fail(error, MP_EINVAL, "%s: sample %d is %g, should be a positive number",
                           side, i + 1, values[i]);
    return MP_OK;
}

struct moments {
    double mean, deviation; /* of logarithms that is the coefficient of variation to first order */
};

/* The deviation is NAN of fewer than 2 values. */
static struct moments moments_of(const double values[], int count) {
    double sum = 0, squares = 0;
    for (int i = 0; i < count; i++)
        sum += values[i];
    for (int i = 0; i < count; i++)
        squares += (values[i] - sum / count) * (values[i] - sum / count);
    return (struct moments){sum / count, count < 2 ? NAN : sqrt(squares / (count - 1))};
}

/* base, head: logarithms. */
static int weigh_pairs(double base[], const double head[], int count, struct mp_evidence *evidence,
                       struct mp_shift *shift, struct mp_error *error) {
    struct mp_rank_test test;
    for (int i = 0; i < count; i++)
        base[i] = head[i] - base[i];
    MP_TRY(mp_signed_rank(base, count, &test, error));
    MP_TRY(mp_shift_of_pairs(base, count, shift, error));
    struct moments ratio = moments_of(base, count);
    evidence->w = test.statistic;
    evidence->p = test.p;
    evidence->spread = ratio.deviation / sqrt(2); /* of one side */
    evidence->mean = ratio.mean;
    evidence->mean_error = ratio.deviation / sqrt(count);
    evidence->freedom = count - 1;
    return MP_OK;
}

/* base, head: logarithms.  The smaller group alone gives the degrees of freedom, which errs towards
 * caution where the groups vary alike. */
static int weigh_groups(const double base[], const double head[], struct mp_evidence *evidence,
                        struct mp_shift *shift, struct mp_error *error) {
    const int bases = evidence->samples.bases, heads = evidence->samples.heads;
    struct moments of_base = moments_of(base, bases), of_head = moments_of(head, heads);
    evidence->spread = of_base.deviation;
    evidence->mean = of_head.mean - of_base.mean;
    evidence->mean_error = hypot(of_base.deviation / sqrt(bases), of_head.deviation / sqrt(heads));
    evidence->freedom = (bases < heads ? bases : heads) - 1;
    return mp_shift_of_groups(base, bases, head, heads, shift, error);
}

int mp_evidence_weigh(const struct mp_samples *samples, struct mp_evidence *evidence,
                      struct mp_error *error) {
    *evidence = (struct mp_evidence){.samples = *samples, .w = NAN, .spread = NAN};
    MP_TRY(check("base", samples->base, samples->bases, error));
    MP_TRY(check("head", samples->head, samples->heads, error));
    if (samples->paired && samples->bases != samples->heads)
        return mp_fail(error, MP_EINVAL, "pairs of %d and %d samples", samples->bases,
                       samples->heads);
    MP_AUTO(arena) struct mp_arena arena = {0};
    struct mp_shift shift = {0};
    struct mp_rank_test test = {0};
    double *base, *head;
    MP_TAKE(&arena, base, samples->bases);
    MP_TAKE(&arena, head, samples->heads);
    MP_TRY(mp_arena_check(&arena, error));
    memcpy(base, samples->base, (size_t)samples->bases * sizeof *base);
    memcpy(head, samples->head, (size_t)samples->heads * sizeof *head);
    evidence->base = mp_median_of(base, samples->bases);
    evidence->head = mp_median_of(head, samples->heads);
    for (int i = 0; i < samples->bases; i++)
        base[i] = mp_elementary_log(samples->base[i]);
    for (int i = 0; i < samples->heads; i++)
        head[i] = mp_elementary_log(samples->head[i]);
    MP_TRY(mp_mann_whitney(samples->base, samples->bases, samples->head, samples->heads, &test,
                           error));
    evidence->u = test.statistic;
    evidence->u_p = evidence->p = test.p;
    MP_TRY(samples->paired ? weigh_pairs(base, head, samples->bases, evidence, &shift, error)
                           : weigh_groups(base, head, evidence, &shift, error));
    evidence->effect = fraction_of(shift.estimate);
    evidence->low = fraction_of(shift.low);
    evidence->high = fraction_of(shift.high);
    return MP_OK;
}

/* The effect that is to be exceeded, as a fraction. */
static double margin_of(double minimum_effect, double floor) {
    return fmax(minimum_effect, floor); /* of a number and NAN the number */
}

double mp_evidence_beyond(const struct mp_evidence *evidence, double minimum_effect, double floor) {
    double distance =
        fabs(evidence->mean) - mp_elementary_log(1 + margin_of(minimum_effect, floor));
    if (evidence->freedom < MP_LEAST_OF_NOISE - 1)
        return NAN;
    return distance > 0 ? mp_student_p(distance / evidence->mean_error, evidence->freedom) : 1;
}

/* Whether the whole interval, as far as there is one, is beyond what noise explains; 1: slower, -1:
 * faster, 0: no. */
static int is_beyond(const struct mp_evidence *evidence, const struct mp_decision *decision) {
    double up = margin_of(decision->minimum_effect, decision->floor), down = -up / (1 + up);
    if (!(decision->beyond_p <= MP_SIGNIFICANCE))
        return 0;
    if (evidence->effect >= up && (isinf(evidence->high) || evidence->low >= up))
        return 1;
    return evidence->effect <= down && (isinf(evidence->high) || evidence->high <= down) ? -1 : 0;
}

/* The smallest adjusted p that so many samples can give: pairs 2^(1 - n), groups 2 / C(n + m, n).
 */
static double smallest_p(const struct mp_samples *samples, int metrics) {
    double p = 2;
    if (samples->paired)
        p = ldexp(2, -samples->bases);
    else
        for (int i = 1; i <= samples->bases; i++)
            p *= (double)i / (samples->heads + i);
    return fmin(1, p * metrics);
}

static void explain_beyond(const struct mp_evidence *evidence, const struct mp_decision *decision,
                           char *reason, size_t size) {
    const struct mp_samples *samples = &evidence->samples;
    const char *word = evidence->effect > 0 ? "slower" : "faster";
    char count[48];
    if (samples->paired)
        snprintf(count, sizeof count, "%d pairs", samples->bases);
    else
        snprintf(count, sizeof count, "%d and %d runs", samples->bases, samples->heads);
    snprintf(reason, size, "%s by more than %.2f %%, which the noise of %s can't explain%s%s", word,
             100 * margin_of(decision->minimum_effect, decision->floor), count,
             decision->doubt ? ", whatever else is to be said of them: " : "",
             decision->doubt ? decision->doubt : "");
}

static void explain_doubt(const struct mp_evidence *evidence, const struct mp_decision *decision,
                          char *reason, size_t size) {
    const struct mp_samples *samples = &evidence->samples;
    const char *unit = samples->paired ? "pairs" : "runs a side";
    int count = samples->bases < samples->heads ? samples->bases : samples->heads;
    double half = (evidence->high - evidence->low) / 2;
    double distance = fabs(decision->minimum_effect - fabs(evidence->effect));
    double wanted = ceil(count * (half / distance) * (half / distance));
    if (isinf(half)) {
        snprintf(reason, size, "an interval takes at least %d %s, not %d", LEAST_PAIRS, unit,
                 count);
    } else if (smallest_p(samples, decision->metrics) > MP_SIGNIFICANCE) {
        snprintf(reason, size,
                 "with %d %s and %d timed metrics p cannot reach %.2f: take more %s, or fewer jobs",
                 count, unit, decision->metrics, MP_SIGNIFICANCE, unit);
    } else if (wanted <= MOST_PAIRS_ADVISED) {
        wanted = fmax(wanted, count + 1); /* it is p that falls short, then */
        snprintf(
            reason, size,
            "the interval is %.1f %% wide on either side: about %.0f %s, or less noise than the "
            "%.1f %% of these jobs, would decide",
            100 * half, wanted, unit, 100 * evidence->spread);
    } else {
        snprintf(reason, size,
                 "the interval is %.1f %% wide on either side: reduce noise first (job medians "
                 "vary by %.1f %%; pin ranks, leave cores free, run longer jobs)",
                 100 * half, 100 * evidence->spread);
    }
}

enum mp_outcome mp_evidence_decide(const struct mp_evidence *evidence,
                                   const struct mp_decision *decision, char *reason, size_t size) {
    double up = decision->minimum_effect, down = -up / (1 + up); /* mirrored as logarithms are */
    bool is_sure = decision->adjusted_p <= MP_SIGNIFICANCE;
    int beyond = is_beyond(evidence, decision);
    if (beyond) {
        explain_beyond(evidence, decision, reason, size);
        return beyond > 0 ? MP_OUTCOME_FAIL : MP_OUTCOME_IMPROVED;
    }
    if (decision->doubt) {
        snprintf(reason, size, "%s", decision->doubt);
        return MP_OUTCOME_INCONCLUSIVE;
    }
    if (decision->floor >= up) {
        snprintf(reason, size,
                 "this machine's noise floor is %.2f %%: it cannot see the minimum effect of "
                 "%.2f %%",
                 100 * decision->floor, 100 * up);
        return MP_OUTCOME_INCONCLUSIVE;
    }
    const bool is_slower = evidence->effect >= up;
    if (is_sure && (is_slower || evidence->effect <= down)) {
        snprintf(reason, size, "%s by at least the minimum effect of %.2f %%, and p says so",
                 is_slower ? "slower" : "faster", 100 * up);
        return is_slower ? MP_OUTCOME_FAIL : MP_OUTCOME_IMPROVED;
    }
    if (evidence->high < up) {
        snprintf(reason, size, "the whole interval is below the minimum effect of %.2f %%",
                 100 * up);
        return MP_OUTCOME_PASS;
    }
    explain_doubt(evidence, decision, reason, size);
    return MP_OUTCOME_INCONCLUSIVE;
}
