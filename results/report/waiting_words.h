/* What the straggler analysis found, in words: one place for text reports and pages. */
#ifndef MOEPERF_RESULTS_REPORT_WAITING_WORDS_H
#define MOEPERF_RESULTS_REPORT_WAITING_WORDS_H

#include <stddef.h>

#include "profiler/straggler/straggler.h"

enum { WAITING_TEXT = 1024 };

/* "layer 1 expert", or the phase alone. */
const char *waiting_place(int phase, int layer, char *text, size_t size);

/* "rank 1 waits for rank 0", "slow rank 3" ...: a few words. */
const char *waiting_title(const struct mp_straggler *found,
                          const struct mp_straggler_finding *finding, char *text, size_t size);

/* Who waits for whom, how much, why, how often; sentences without the run's name. */
const char *waiting_text(const struct mp_straggler *found,
                         const struct mp_straggler_finding *finding, char *text, size_t size);

/* What to do about it. */
const char *waiting_advice(const struct mp_straggler_finding *finding, long long run_id, char *text,
                           size_t size);

/* A sentence for a run without findings, or why there is no analysis. */
const char *waiting_nothing(const struct mp_straggler *found, char *text, size_t size);

/* How good the clocks are. */
const char *waiting_clocks(const struct mp_straggler *found, char *text, size_t size);

#endif
