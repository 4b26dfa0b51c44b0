/* Killed: jobs whose moeperf was killed before it could put them into a database, or could not
 * because that was locked or its disk full. */
#ifndef MOEPERF_HARNESS_SUITE_KILLED_H
#define MOEPERF_HARNESS_SUITE_KILLED_H

#include <stdio.h>

#include "harness/suite/hosts.h"
#include "results/store/store.h"

/* Adds the jobs whose folders (runner.h) still have a note and recordings; `folder` is one job's or
 * a suite run's.  Recordings on hosts' own disks are copied to here first; hosts NULL: there are
 * none.  They have the status that the note says.  Where it says none, they are complete
 * if all of their ranks say that they are, else interrupted.  Nothing in it changes.  Says one line
 * for each on `stream`; a job that the database has already stays as it is.
 *
 * Errors: MP_ENOTFOUND (no such folder, or none of a job with a note), MP_EINVAL (a job that still
 * runs), mp_note_read's and mp_store_ingest's; what was added before stays. */
int mp_suite_keep_killed(struct mp_store *store, const char *folder, const struct mp_hosts *hosts,
                         FILE *stream, struct mp_error *error);

/* The command with which a user does that; free it.  NULL without memory. */
char *mp_suite_killed_command(const char *folder, const char *database,
                              const struct mp_hosts *hosts);

/* Whether that could add anything: the same errors for a folder without a job and for a first job
 * that still runs or whose note can't be read.  For callers that would make a database for it. */
int mp_suite_check_killed(const char *folder, struct mp_error *error);

#endif
