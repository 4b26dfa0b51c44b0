/* Device spools beside the runs of runs.h, written by hand as the collectors write them. */
#pragma once

#include "profiler/device/companion.h"
#include "profiler/record/format.h"
#include "tests/records.h"
#include "tests/results/runs.h"

enum { MAIN_THREAD = 100 };

/* Those that were closed, in order. */
static char devices_paths[8][160];
static const char *devices[8];
static int devices_files;

/* Adds the run that they are beside. */
static inline int64_t devices_run(struct runs_folder *folder) {
    static const struct runs_standard run = {.count = 2, .ms = {20, 30}, .loss = {3, 2}};
    const struct mp_store_run description = runs_description("ep", "skewed");
    devices_files = 0;
    return runs_add(folder, &description, &run);
}

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
    put_activity(companion->thread, activity);
}

/* Times in microseconds of the run. */
static inline int64_t devices_at(int rank, int64_t us) {
    return runs_clock(rank, us * 1000);
}

static inline void devices_kernel(struct mp_companion *companion, int rank, uint32_t correlation,
                                  uint32_t stream, int64_t start_us, int64_t end_us) {
    devices_record(companion,
                   (struct mp_activity){.start_ns = start_us ? devices_at(rank, start_us) : 0,
                                        .end_ns = start_us ? devices_at(rank, end_us) : 0,
                                        .correlation = correlation,
                                        .stream = stream,
                                        .context = 1,
                                        .name = mp_companion_name(companion, "gemm"),
                                        .kind = MP_ACTIVITY_KERNEL,
                                        .registers = 40,
                                        .grid = {2, 3, 4},
                                        .block = {32, 1, 1}});
}

static inline void devices_copy(struct mp_companion *companion, int rank, uint32_t correlation,
                                int64_t start_us, int64_t end_us) {
    devices_record(companion, (struct mp_activity){.start_ns = devices_at(rank, start_us),
                                                   .end_ns = devices_at(rank, end_us),
                                                   .correlation = correlation,
                                                   .context = 1,
                                                   .stream = 7,
                                                   .value = 4096,
                                                   .detail = 1,
                                                   .result = 1,
                                                   .kind = MP_ACTIVITY_COPY});
}

static inline void devices_collective(struct mp_companion *companion, int rank, bool is_pair,
                                      uint64_t ordinal, int64_t queued_us, int64_t start_us,
                                      int64_t end_us) {
    const struct mp_collective is = {
        .start_ns = devices_at(rank, queued_us),
        .queued_ns = devices_at(rank, queued_us + 10),
        .timer_start = (uint64_t)start_us * 1000,
        .timer_end = (uint64_t)end_us * 1000,
        .communicator = UINT64_MAX - 4,
        .sequence = is_pair ? 0 : ordinal,
        .group = is_pair ? ordinal : 9,
        .count = 1000,
        .function = mp_companion_name(companion, is_pair ? "Send" : "AllReduce"),
        .datatype = mp_companion_name(companion, "ncclBfloat16"),
        .rank = rank,
        .ranks = 2,
        .channels = 1,
        .timed_channels = end_us > 0,
        .is_pair = is_pair};
    put_collective(companion->thread, is);
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

/* Rank 0's collector with a launch from the span in which experts are computed, and the beginning
 * of that span as the external id of another one.  Records come in any order, GPU work first. */
static inline void devices_open_experts(struct runs_folder *folder,
                                        struct mp_companion *companion) {
    devices_open(folder, "cupti", 0, companion);
    devices_kernel(companion, 0, 1, 7, 3100, 3600);
    devices_call(companion, 0, 1, 3000);
    devices_kernel(companion, 0, 1, 8, 3400, 4000); /* the same launch, as of a graph */
    devices_kernel(companion, 0, 1, 8, 0, 0);
    devices_record(companion, (struct mp_activity){.value = (uint64_t)devices_at(0, 2500),
                                                   .correlation = 2,
                                                   .kind = MP_ACTIVITY_LINK});
}
