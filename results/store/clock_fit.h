/* Putting a rank's times on rank 0's clock. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "profiler/record/activity.h"
#include "reference/base/error.h"

struct clock_sample {
    int64_t at_ns;     /* the rank's own clock */
    int64_t offset_ns; /* the rank's clock minus rank 0's */
    int64_t error_ns;
};
MP_END(clock_samples, struct clock_sample *, free(*it))

/* offset(t) = base_ns + constant + slope * (t - center), by least squares: a line through two
 * samples, a constant for one.  The integer base keeps full precision for large offsets. */
struct clock_fit {
    int64_t base_ns;
    double constant, slope, center;
};

/* `count` 0: no offset. */
struct clock_fit clock_fit_samples(const struct clock_sample samples[], int count);

/* A time of the rank as rank 0's clock would show it. */
int64_t clock_fit_apply(const struct clock_fit *fit, int64_t own_ns);

/* Puts them in the order of at_ns. */
void clock_timers_sort(struct mp_timer timers[], int count);

/* The span clock minus the GPU's timer about this time: of the pair of readings that lies nearest.
 * `timers` are sorted.  false: there are none. */
bool clock_timer_offset(const struct mp_timer timers[], int count, int64_t about_ns,
                        int64_t *offset_ns);

/* Within 2^61 ns: differences of such times stay inside 64 bits, whatever a damaged recording says.
 */
static inline int64_t clock_bounded(int64_t time_ns) {
    const int64_t limit = (int64_t)1 << 61;
    return time_ns < -limit ? -limit : time_ns > limit ? limit : time_ns;
}
