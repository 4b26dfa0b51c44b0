#include "profiler/device/companion.h"

#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "profiler/record/launched.h"
#include "profiler/record/name_table.h"
#include "profiler/record/spool.h"

enum { ATTEMPTS = 1000 };

uint32_t mp_companion_name(struct mp_companion *companion, const char *name) {
    bool is_new = false;
    if (!name || !companion->names)
        return 0;
    uint32_t id = name_table_number(companion->names, name, &is_new);
    if (is_new)
        mp_record_add(
            companion->thread,
            &(struct mp_spool_record){.type = MP_SPOOL_NAME, .as.name = {.id = id, .text = name}});
    return id;
}

/* ---- whose ---- */

void mp_companion_rank(int *rank, int *ranks) {
    const struct mp_launched launched = mp_launched_read();
    *rank = launched.rank < 0 ? 0 : launched.rank;
    *ranks = launched.ranks > *rank ? launched.ranks : *rank + 1;
}

/* ---- opening, closing ---- */

int mp_companion_open(struct mp_companion *companion, const char *collector,
                      struct mp_error *error) {
    char path[PATH_MAX], host[64] = "";
    struct mp_recorder_config config = {.path = path, .node = 0};
    const char *folder = getenv("MOEPERF_DEVICE_SPOOLS");
    *companion = (struct mp_companion){.pid = (int)getpid()};
    if (!folder || !*folder)
        return mp_fail(error, MP_ENOTFOUND,
                       "MOEPERF_DEVICE_SPOOLS does not name a folder for the records");
    gethostname(host, sizeof host - 1);
    int number = 0, length;
    do /* a collector may end and begin again in one process */
        length = snprintf(path, sizeof path, "%s/%s-%s-%d-%d.device", folder, host, collector,
                          companion->pid, number);
    while (length < (int)sizeof path && access(path, F_OK) == 0 && ++number < ATTEMPTS);
    if (length >= (int)sizeof path)
        return mp_fail(error, MP_EIO, "MOEPERF_DEVICE_SPOOLS: %.60s...: the path is too long",
                       folder);
    mp_companion_rank(&config.rank, &config.ranks);
    MP_TRY(MP_NEW(companion->names, 1, error));
    int code = mp_recorder_create(&config, &companion->recorder, error);
    if (!code)
        code = mp_recorder_thread(companion->recorder, collector, &companion->thread, error);
    if (code)
        mp_companion_close(companion);
    return code;
}

void mp_companion_status(struct mp_companion *companion, const char *collector,
                         const char *status) {
    char name[48];
    snprintf(name, sizeof name, "%s.status", collector);
    mp_record_text(companion->thread, name, status);
    mp_recorder_flush(companion->recorder, NULL);
}

int mp_companion_thread(pthread_t *thread, pthread_cond_t *wakes, void *run(void *)) {
    sigset_t all, before;
    pthread_condattr_t monotonic;
    pthread_condattr_init(&monotonic);
    pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    pthread_cond_init(wakes, &monotonic);
    pthread_condattr_destroy(&monotonic);
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    int failed = pthread_create(thread, NULL, run, NULL);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return failed;
}

void mp_companion_close(struct mp_companion *companion) {
    if (companion->pid == (int)getpid()) {
        mp_recorder_finish(&companion->recorder, MP_OK, NULL, NULL);
        if (companion->names)
            name_table_free(companion->names);
        free(companion->names);
    }
    *companion = (struct mp_companion){0};
}
