/* Device spools beside the runs of runs.h, written by hand as the collectors write them. */
#ifndef MOEPERF_TESTS_RESULTS_DEVICES_H
#define MOEPERF_TESTS_RESULTS_DEVICES_H

#include "profiler/device/companion.h"
#include "profiler/record/format.h"
#include "tests/results/runs.h"

enum { MAIN_THREAD = 100 };

/* Those that were closed, in order. */
static char devices_paths[8][160];
static const char *devices[8];
static int devices_files;

static const struct runs_standard devices_run = {.count = 2, .ms = {20, 30}, .loss = {3, 2}};

/* A collector of rank `rank` of the standard run, in this process as are the recordings. */
static inline void devices_open(struct runs_folder *folder, const char *collector, int rank,
                                struct mp_companion *companion) {
    char number[16];
    snprintf(number, sizeof number, "%d", rank);
    setenv("MOEPERF_DEVICE_SPOOLS", folder->path, 1);
    setenv("RANK", number, 1);
    setenv("WORLD_SIZE", "2", 1);
    assert_works(mp_companion_open(companion, collector, &error));
    mp_companion_status(companion, collector, "on");
    unsetenv("RANK");
    unsetenv("WORLD_SIZE");
}

static inline void devices_close(struct runs_folder *folder, const char *collector,
                                 struct mp_companion *companion, int number) {
    char host[64] = "";
    gethostname(host, sizeof host - 1);
    mp_companion_close(companion);
    snprintf(devices_paths[devices_files], sizeof devices_paths[0], "%s/%s-%s-%d-%d.device",
             folder->path, host, collector, (int)getpid(), number);
    devices[devices_files] = devices_paths[devices_files];
    devices_files++;
}

static inline void devices_record(struct mp_companion *companion, struct mp_activity activity) {
    mp_record_fixed(companion->thread, MP_SPOOL_ACTIVITY, &activity, sizeof activity, NULL);
}

/* A launch on the main thread, in microseconds of the run. */
static inline void devices_call(struct mp_companion *companion, int rank, uint32_t correlation,
                                int64_t us) {
    devices_record(companion,
                   (struct mp_activity){.start_ns = runs_clock(rank, us * 1000),
                                        .end_ns = runs_clock(rank, (us + 5) * 1000),
                                        .correlation = correlation,
                                        .thread = MAIN_THREAD,
                                        .name = mp_companion_name(companion, "cudaLaunchKernel"),
                                        .kind = MP_ACTIVITY_CALL});
}

#endif
