/* Runner: every job of a suite, one after another, into the database.
 *
 * Jobs are interleaved: a round runs the whole list once, so that what changes slowly on a machine
 * meets all systems alike.  Each job has a folder
 *
 *   <work>/<suite run>/<number>-<job>/   job.yaml   what the ranks read
 *                                        loads      what they replay, with routing trace
 *                                        log        their standard error
 *                                        run.yaml   what else the database is told (keep.h), there
 *                                                   until it has the job: keep.h adds what a
 *                                                   killed moeperf left, or a full disk
 *                                        spools/    one file per rank, removed once ingested
 *
 * Where hosts have disks of their own, a job's folder is copied to them before it starts, and their
 * ranks' spools to here when it has ended.
 *
 * With `against` the trainers of two builds are measured in turns: every round runs each job with
 * both, base first in even rounds and head first in odd ones.  With `slice` both run at once, in
 * time slices (launch.h): a machine whose speed changes within seconds meets them alike, and only
 * iterations count that were not interrupted.  Without, and where ranks are on other hosts or the
 * system is a yardstick (whose clocks stand still at times), the second runs after the first.  The
 * sides become suite runs of their own, marked by the facts of results/compare/gate.h.
 *
 * A job that fails, hangs or is killed becomes a run with its status and reason and everything its
 * ranks had recorded; then the next job starts.  One that its system refuses becomes a run of the
 * first round, with its reason, and is never started. */
#pragma once

#include <signal.h>

#include "harness/suite/command.h"
#include "harness/suite/progress.h"
#include "harness/suite/suite.h"
#include "results/store/store.h"

struct mp_runner {
    const struct mp_suite *suite;
    struct mp_store *store;
    const char *work;             /* folder for job folders, created */
    const char *launcher;         /* template (command.h), or NULL */
    const struct mp_hosts *hosts; /* whose disks hold `work`, each its own; NULL: it is shared */
    const char *trainer;          /* path of moeperf-train */
    const char *against;          /* trainer of base, `trainer` is head's; NULL: no pairs */
    double slice;                 /* s, of pairs; 0: one run after the other */
    bool keep_spools;             /* also after they are in the database */
    struct mp_progress *progress;
    const volatile sig_atomic_t *signals; /* counts the user's signals to end; NULL: none */
};

struct mp_runner_result {
    char suite_run[128];  /* this invocation's id in the database; with pairs head's */
    char base_run[128];   /* base's; "" without pairs */
    int complete, failed; /* jobs; failed counts time-outs */
    int refused;          /* jobs, of each side of pairs one */
    int interrupted;      /* jobs that the user stopped: 0 or 1 */
    int left_out;         /* jobs that were not started after that */
    int lost;             /* of those that ended or were refused: not put into the database */
};

/* Whether the jobs can be started, of all but the store; makes the work folder.  Errors:
 * MP_ENOTFOUND (a trainer or mpirun), MP_EINVAL (launcher template; a predicted job in pairs),
 * MP_EIO (mpirun's temporary folder, the work folder), MP_ENOSPACE. */
int mp_runner_check(const struct mp_runner *runner, struct mp_error *error);

/* Runs all jobs.  A failed job is no error.  Errors, before anything is started: those of
 * mp_runner_check; MP_EIO (copies for hosts). */
int mp_runner_run(const struct mp_runner *runner, struct mp_runner_result *result,
                  struct mp_error *error);
