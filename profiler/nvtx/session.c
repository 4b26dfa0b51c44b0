#include "profiler/nvtx/session.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "profiler/nvtx/threads.h"

static struct {
    const char *folder; /* NULL: off */
    int rank;
    bool known;
} settings;
static pthread_mutex_t settings_lock = PTHREAD_MUTEX_INITIALIZER;

/* Variables that launchers give their processes, the most specific first. */
static const char *const rank_variables[] = {"OMPI_COMM_WORLD_RANK", "PMIX_RANK", "PMI_RANK",
                                             "MV2_COMM_WORLD_RANK",  "RANK",      "SLURM_PROCID"};

/* -1: not a rank. */
static int parse_rank(const char *text) {
    char *end;
    errno = 0;
    long rank = text ? strtol(text, &end, 10) : -1;
    return !text || end == text || *end || errno || rank < 0 || rank > INT_MAX ? -1 : (int)rank;
}

static int find_rank(void) {
    const char *named = getenv("MOEPERF_NVTX_RANK");
    if (named && *named)
        return parse_rank(getenv(named));
    int rank = -1;
    for (size_t i = 0; rank < 0 && i < sizeof rank_variables / sizeof *rank_variables; i++)
        rank = parse_rank(getenv(rank_variables[i]));
    return rank;
}

bool nvtx_session_start(void) {
    pthread_mutex_lock(&settings_lock);
    if (!settings.known) {
        settings.known = true;
        const char *folder = getenv("MOEPERF_NVTX_SPOOLS"),
                   *pause = getenv("MOEPERF_NVTX_FLUSH_MS");
        if (folder && *folder)
            settings.folder = strdup(folder); /* the program may change its environment */
        settings.rank = find_rank();
        threads_start(pause ? atoi(pause) : 100);
    }
    pthread_mutex_unlock(&settings_lock);
    return settings.folder != NULL;
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
        int rank = settings.rank;
        return !spool_file_write_header(file, rank, rank < 0 ? 0 : rank + 1, 0, NULL);
    }
    return false;
}
