/* The spool of a collector of GPU work, beside its process's own: HOST-COLLECTOR-PID-N.device in
 * the folder that MOEPERF_DEVICE_SPOOLS names.  A file of its own, so that no collector needs to
 * know about another, and none can damage another's records.
 *
 * It starts with the text "COLLECTOR.status": "on", or one sentence that says why the collector is
 * off.  mp_store_add_device puts these files beside the run of their processes. */
#pragma once

#include <pthread.h>

#include "profiler/record/record.h"

struct mp_companion {
    struct mp_recorder *recorder;
    struct mp_record_thread *thread; /* for one thread at a time */
    int pid; /* of the process that opened it: a fork's child may not write */
    struct name_table *names;
};

/* Rank and number of ranks from the variables that launchers set (Open MPI, PMI, MVAPICH, torchrun,
 * Slurm), or the rank alone from the one that MOEPERF_NVTX_RANK names (profiler/nvtx/session.h);
 * 0 of 1 where there are none. */
void mp_companion_rank(int *rank, int *ranks);

/* Opens the spool.  MP_ENOTFOUND: MOEPERF_DEVICE_SPOOLS is not set, which
 * is how a collector is turned off; MP_EIO, MP_ENOSPACE, MP_ENOMEM. */
int mp_companion_open(struct mp_companion *companion, const char *collector,
                      struct mp_error *error);

/* Records the status and writes it to the file at once. */
void mp_companion_status(struct mp_companion *companion, const char *collector, const char *status);

/* The id of a name, recorded when it is new; 0 for NULL, or when there is no memory.  Allocates for
 * new names only.  One thread at a time. */
uint32_t mp_companion_name(struct mp_companion *companion, const char *name);

/* Starts a thread of the collector, which waits on `wakes` (made here) by CLOCK_MONOTONIC; the
 * program's signals are for its own threads.  What pthread_create returns. */
int mp_companion_thread(pthread_t *thread, pthread_cond_t *wakes, void *run(void *));

/* Writes the end and closes.  In a fork's child: forgets the file and writes nothing.  Accepts a
 * zeroed one. */
void mp_companion_close(struct mp_companion *companion);
