#include "results/store/clock_fit.h"

#include <math.h>

static double difference(int64_t a, int64_t b) {
    int64_t exact;
    return __builtin_sub_overflow(a, b, &exact) ? (double)a - (double)b : (double)exact;
}

struct clock_fit clock_fit_samples(const struct clock_sample samples[], int count) {
    struct clock_fit fit = {0};
    if (count == 0)
        return fit;
    fit.base_ns = samples[0].offset_ns;
    double mean_at = 0, mean_offset = 0;
    for (int i = 0; i < count; i++) {
        mean_at += difference(samples[i].at_ns, samples[0].at_ns) / count;
        mean_offset += difference(samples[i].offset_ns, fit.base_ns) / count;
    }
    double square = 0, product = 0;
    for (int i = 0; i < count; i++) {
        double at = difference(samples[i].at_ns, samples[0].at_ns) - mean_at;
        square += at * at;
        product += at * (difference(samples[i].offset_ns, fit.base_ns) - mean_offset);
    }
    fit.slope = square > 0 ? product / square : 0;
    fit.constant = mean_offset;
    fit.center = (double)samples[0].at_ns + mean_at;
    return fit;
}

int64_t clock_fit_apply(const struct clock_fit *fit, int64_t own_ns) {
    double correction = fit->constant + fit->slope * ((double)own_ns - fit->center);
    int64_t result;
    /* Samples and times that don't belong together (a damaged recording) stay as they are. */
    if (!(fabs(correction) < 9e18) || __builtin_sub_overflow(own_ns, fit->base_ns, &result) ||
        __builtin_sub_overflow(result, (int64_t)llround(correction), &result))
        return own_ns;
    return result;
}

MP_COMPARE(compare_timers, struct mp_timer, MP_ORDER(a->at_ns, b->at_ns))

void clock_timers_sort(struct mp_timer timers[], int count) {
    MP_SORT(timers, count, compare_timers);
}

bool clock_timer_offset(const struct mp_timer timers[], int count, int64_t about_ns,
                        int64_t *offset_ns) {
    uint64_t nearest = UINT64_MAX;
    for (int low = 0, high = count; low < high;) {
        int middle = low + (high - low) / 2;
        int64_t at_ns = timers[middle].at_ns;
        uint64_t apart = at_ns < about_ns ? (uint64_t)about_ns - (uint64_t)at_ns
                                          : (uint64_t)at_ns - (uint64_t)about_ns;
        if (apart < nearest) {
            nearest = apart;
            *offset_ns = timers[middle].offset_ns;
        }
        if (at_ns < about_ns)
            low = middle + 1;
        else
            high = middle;
    }
    return nearest != UINT64_MAX;
}
