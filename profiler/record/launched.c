#include "profiler/record/launched.h"

#include <errno.h>
#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The most specific first: one torchrun a host may be a process of mpirun's or srun's, whose
 * variables its own processes inherit. */
static const struct {
    const char *rank, *ranks, *run;
    bool needs_run; /* without that variable, `rank` may be somebody else's */
} launchers[] = {
    {"RANK", "WORLD_SIZE", "TORCHELASTIC_RUN_ID", true},
    {"OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "PMIX_NAMESPACE", false},
    {"PMIX_RANK", "SLURM_NTASKS", "PMIX_NAMESPACE", false},
    {"PMI_RANK", "PMI_SIZE", "SLURM_JOB_ID", false},
    {"MV2_COMM_WORLD_RANK", "MV2_COMM_WORLD_SIZE", "SLURM_JOB_ID", false},
    {"RANK", "WORLD_SIZE", "SLURM_JOB_ID", false},
    {"SLURM_PROCID", "SLURM_NTASKS", "SLURM_JOB_ID", false},
};

/* -1: not a number from 0 on. */
static int parse(const char *text) {
    char *end;
    errno = 0;
    long number = text ? strtol(text, &end, 10) : -1;
    return !text || end == text || *end || errno || number < 0 || number >= INT_MAX ? -1
                                                                                    : (int)number;
}

struct mp_launched mp_launched_read(void) {
    struct mp_launched launched = {.rank = -1};
    const char *named = getenv("MOEPERF_NVTX_RANK");
    if (named && *named) {
        launched.rank = parse(getenv(named));
        return launched;
    }
    for (size_t i = 0; i < sizeof launchers / sizeof *launchers; i++) {
        const char *run = getenv(launchers[i].run);
        launched.rank = launchers[i].needs_run && !run ? -1 : parse(getenv(launchers[i].rank));
        if (launched.rank < 0)
            continue;
        const int ranks = parse(getenv(launchers[i].ranks));
        launched.ranks = ranks > launched.rank ? ranks : 0;
        if (run && strcmp(run, "none") != 0) /* torchrun's where nobody named one */
            snprintf(launched.run, sizeof launched.run, "%s", run);
        break;
    }
    return launched;
}
