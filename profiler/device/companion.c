#include "profiler/device/companion.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "profiler/record/name_table.h"
#include "profiler/record/spool.h"

enum { ATTEMPTS = 1000 };

uint32_t mp_companion_name(struct mp_companion *companion, const char *name) {
    bool is_new = false;
    if (!name || !companion->names)
        return 0;
    uint32_t id = name_table_number(companion->names, name, &is_new);
    const uint32_t payload[4] = {id, MP_NAME_STRING, 0, 0};
    if (is_new)
        mp_record_fixed(companion->thread, MP_SPOOL_NAME, payload, sizeof payload, name);
    return id;
}

/* ---- whose ---- */

/* -1: not a number from 0 on. */
static int parse(const char *text) {
    char *end;
    if (!text || !*text)
        return -1;
    errno = 0;
    long value = strtol(text, &end, 10);
    return *end || errno || value < 0 || value > INT_MAX - 1 ? -1 : (int)value;
}

void mp_companion_rank(int *rank, int *ranks) {
    /* The most specific first: torchrun inside a Slurm job sets both. */
    static const char *const variables[][2] = {
        {"OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"},
        {"PMI_RANK", "PMI_SIZE"},
        {"MV2_COMM_WORLD_RANK", "MV2_COMM_WORLD_SIZE"},
        {"RANK", "WORLD_SIZE"},
        {"SLURM_PROCID", "SLURM_NTASKS"},
    };
    const char *named = getenv("MOEPERF_NVTX_RANK");
    const bool is_named = named && *named;
    *rank = is_named ? parse(getenv(named)) : -1;
    *ranks = 1;
    for (size_t i = 0; !is_named && *rank < 0 && i < sizeof variables / sizeof *variables; i++) {
        *rank = parse(getenv(variables[i][0]));
        *ranks = parse(getenv(variables[i][1]));
    }
    if (*rank < 0)
        *rank = 0;
    if (*ranks <= *rank)
        *ranks = *rank + 1;
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
    companion->names = calloc(1, sizeof *companion->names);
    if (!companion->names)
        return mp_fail(error, MP_ENOMEM, "%s: no memory for names", path);
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

void mp_companion_close(struct mp_companion *companion) {
    if (companion->pid == (int)getpid()) {
        mp_recorder_finish(&companion->recorder, MP_OK, NULL, NULL);
        if (companion->names)
            name_table_free(companion->names);
        free(companion->names);
    }
    *companion = (struct mp_companion){0};
}
