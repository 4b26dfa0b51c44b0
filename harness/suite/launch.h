/* Launch: one job as child processes, watched until it ends.
 *
 * The job gets a process group of its own, no input, its standard output on a pipe (lines
 * "progress <iteration> <iterations> <loss> <ms>") and its standard error in a log file.  It ends
 * by itself, or is asked to by SIGTERM (time-out) or SIGINT (the user's), which trainers obey after
 * their iteration; ten seconds after a time-out, or at the user's second signal, everything that is
 * left of it is killed.
 *
 * The asking signal goes to the ranks and not to their launcher: mpirun answers a signal by killing
 * its ranks a second later, in the middle of an iteration. */
#pragma once

#include <signal.h>
#include <stdbool.h>
#include <stdint.h>

#include "harness/suite/command.h"
#include "results/store/store.h"

enum mp_launch_end {
    MP_LAUNCH_COMPLETE,
    MP_LAUNCH_FAILED,
    MP_LAUNCH_INTERRUPTED,
    MP_LAUNCH_TIMEOUT,
    MP_LAUNCH_REFUSED /* never launched: its system can't do such a job (mp_suite.refusal) */
};

/* "complete", "failed", "interrupted", "timeout", "refused": as the database has them. */
const char *mp_launch_end_name(enum mp_launch_end end);

struct mp_launch_progress {
    int64_t iteration, iterations; /* done, to do; 0 before the first line */
    double loss, ms;               /* of the last iteration */
};

struct mp_launch {
    const struct mp_command *command; /* borrowed */
    const char *log;                  /* file for standard error; overwritten; NULL: none */
    const char *slices; /* file for mp_launch_in_slices, overwritten; may be NULL otherwise */
    int threads;        /* OMP_NUM_THREADS of every rank */
    int ranks;          /* for mp_launch_in_slices */
    double timeout;     /* s, being stopped not counted; 0: none */
    double grace;       /* s between SIGTERM after the time-out and SIGKILL; 0: 10 */
    const volatile sig_atomic_t *signals; /* counts the user's signals to end; NULL: none */
    /* Called at every progress line and at least four times a second; may be NULL. */
    void (*watch)(void *context, const struct mp_launch_progress *progress);
    void *context;
};

struct mp_launch_result {
    enum mp_launch_end end;
    char reason[768]; /* one sentence; "" when complete */
    double seconds;   /* from start to end, being stopped not counted */
    struct mp_launch_progress progress;
};

/* Starts the job and waits for it.  A job that fails is a result, not an error.  Errors: the job
 * could not be started at all: MP_ENOTFOUND (the program is not there; for mpirun the package is
 * named), MP_EIO. */
int mp_launch_run(const struct mp_launch *launch, struct mp_launch_result *result,
                  struct mp_error *error);

/* Two jobs at once, each stopped while the other runs, in time slices of `slice` seconds, or of
 * MP_SLICE_ITERATIONS iterations where that is longer (0: one job after the other): what changes
 * slowly on a machine meets both alike.  A slower one has slices that are longer by as much, for as
 * many iterations.  job[0] starts first and the other one only after its first iteration, so that
 * they never run beside each other.  Once one has ended the other has another slice and runs to its
 * end.
 *
 * Every slice is written into its job's file `slices` when it ends.  Only processes
 * on this machine can be stopped: where the launcher has fewer of them below it than there are
 * ranks, the jobs run one after the other, too.  Returns whether they ran in slices; if not, the
 * files are to be ignored.
 *
 * A job that can't be started, or whose file can't be written, is a failed one. */
enum { MP_SLICE_ITERATIONS = 8 };
bool mp_launch_in_slices(const struct mp_launch job[2], double slice,
                         struct mp_launch_result result[2]);

/* A job's slices: a text file, a line "START END" per slice, in ns of CLOCK_MONOTONIC, in order.  A
 * line without its end, from a moeperf that was killed, is none.
 *
 * `slice` is to be freed.  A file that is not there has none.  MP_EFORMAT names path and line;
 * MP_EIO; MP_ENOMEM. */
#define MP_SLICES_NAME "slices" /* in the job's folder */
int mp_slices_read(const char *path, struct mp_store_slice **slice, int *count,
                   struct mp_error *error);
