#include "profiler/nvtx/session.h"

#include <limits.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "profiler/nvtx/threads.h"
#include "profiler/record/format.h"
#include "profiler/record/launched.h"

static struct {
    const char *folder; /* NULL: off */
    struct mp_launched launched;
    bool known;
} settings;
static pthread_mutex_t settings_lock = PTHREAD_MUTEX_INITIALIZER;

bool mp_nvtx_session_start(void) {
    pthread_mutex_lock(&settings_lock);
    if (!settings.known) {
        settings.known = true;
        const char *folder = getenv("MOEPERF_NVTX_SPOOLS"),
                   *pause = getenv("MOEPERF_NVTX_FLUSH_MS");
        if (folder && *folder)
            settings.folder = strdup(folder); /* the program may change its environment */
        settings.launched = mp_launched_read();
        threads_start(pause ? atoi(pause) : 100);
    }
    pthread_mutex_unlock(&settings_lock);
    return settings.folder != NULL;
}

/* What its launcher calls the run. */
static bool write_run(struct spool_file *file) {
    _Alignas(SPOOL_UNIT) uint8_t bytes[sizeof MP_LAUNCHED_RUN + MP_LAUNCHED_RUN_SIZE + 32];
    const struct mp_spool_record record = {.type = MP_SPOOL_TEXT,
                                           .as.text = {MP_LAUNCHED_RUN, settings.launched.run}};
    return !*settings.launched.run ||
           !spool_file_append(file, bytes, spool_encode(&record, bytes), NULL);
}

bool session_open_spool(struct spool_file *file) {
    char host[64] = "", path[PATH_MAX];
    struct stat status;
    gethostname(host, sizeof host - 1);
    for (int attempt = 0; attempt < 100; attempt++) {
        int length = snprintf(path, sizeof path, "%s/%s-%d-%d.spool", settings.folder, host,
                              (int)getpid(), attempt);
        if (length >= (int)sizeof path)
            return false;
        if (!stat(path, &status))
            continue; /* of a process that had the same number before */
        if (spool_file_create(file, path, NULL))
            return false;
        const struct mp_launched *own = &settings.launched;
        const int ranks = own->ranks > 0 ? own->ranks : own->rank + 1;
        return !spool_file_write_header(file, own->rank, ranks, 0, NULL) && write_run(file);
    }
    return false;
}
