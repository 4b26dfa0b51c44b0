/* Launched: what a launcher told its process: Open MPI, PMIx, PMI, MVAPICH, torchrun, Slurm. */
#pragma once

enum { MP_LAUNCHED_RUN_SIZE = 64 };

/* The name of the text in a spool that has `run`. */
#define MP_LAUNCHED_RUN "launch.run"

struct mp_launched {
    int rank;                       /* -1: not told */
    int ranks;                      /* of the job; 0: not told */
    char run[MP_LAUNCHED_RUN_SIZE]; /* the same on all hosts of a job, another one in another job;
                                       "": not told */
};

/* From the environment: the most specific launcher that tells a rank, or the variable with the rank
 * that MOEPERF_NVTX_RANK names, and nothing else then. */
struct mp_launched mp_launched_read(void);
