/* libmoeperf-cupti.so: what a program's GPUs did, into a spool beside its own (device/companion.h).
 *
 * Loaded by CUDA itself: CUDA_INJECTION64_PATH names the library, and the driver calls its
 * InitializeInjection before the program's first CUDA call returns.  Kernels, copies, sets, the
 * calls that launched them, external ids and CUPTI's own overhead become ACTIVITY records; times
 * are on the span clock, because it is registered as CUPTI's.
 *
 *   MOEPERF_DEVICE_SPOOLS    folder for the records; unset: off
 *
 * Where something stands in the way the program runs on as without the library, and the text
 * "cupti.status" of the records says what: no driver, another profiler (by name), an older CUPTI
 * than the one compiled against.
 *
 * The number "cupti.dropped" counts records that CUPTI lost, "cupti.left-bytes" those of kinds that
 * this build does not know, "cupti.untimed" kernels and copies without times. */
#pragma once

#include <stdint.h>

/* Called by CUDA.  Always 1: that the collector is off is no reason to end the program. */
int InitializeInjection(void);

/* What the calling thread launches from here on belongs to the span or range that started at
 * start_ns (mp_clock_ns), which names it in its process; pop ends the innermost.  Collectors of
 * ranges find these by dlsym(RTLD_DEFAULT, ...).  0: done; -1: the collector is off. */
int mp_cupti_push(int64_t start_ns);
int mp_cupti_pop(void);
