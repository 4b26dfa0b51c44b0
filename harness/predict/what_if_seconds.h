/* Seconds that another system's demands take the place of a run's own with. */
#ifndef MOEPERF_HARNESS_PREDICT_WHAT_IF_SECONDS_H
#define MOEPERF_HARNESS_PREDICT_WHAT_IF_SECONDS_H

#include "harness/predict/what_if_demand.h"

/* What the run took, and what its rates add for asking for something else, so that what rates don't
 * explain stays as it was; with rates_alone by the rates only, which says what they are worth.
 * seconds is [iterations][layers][ranks], after_step [iterations]. */
void mp_what_if_seconds(const struct mp_demands *now, const struct mp_demands *own,
                        const struct mp_what_if_measured *measured,
                        const struct mp_other_rates *rates, bool rates_alone,
                        struct mp_what_if_layer seconds[], double after_step[]);

#endif
