/* Keep: a job that has ended, with what its ranks recorded, put into the database. */
#pragma once

#include <stdio.h>

#include "harness/suite/command.h"
#include "harness/suite/launch.h"
#include "harness/suite/suite.h"
#include "reference/base/yaml.h"
#include "results/store/store.h"

/* What the database is told beside the suite's words.  Texts are borrowed; NULL where unknown. */
struct mp_ended_job {
    const struct mp_suite *suite;
    int index, round;       /* which of its jobs, and when */
    const char *suite_run;  /* id of the invocation */
    const char *started_at; /* ISO 8601, UTC */
    const char *command;    /* that started the ranks */
    const char *job_text;   /* as the ranks read it */
    const char *spools;     /* folder with the ranks' recordings; NULL: none */
    const char *slices;     /* file (launch.h); NULL: it had the machine for itself */
    bool keep_spools;       /* also once they are in the database */
    const struct mp_launch_result *result; /* NULL: it has not ended */
    const struct mp_store_fact *fact;      /* [facts], stored with the run */
    int facts;
};

/* Adds the run with all its spools, then removes those, unless one of them could not be used.
 * Errors: mp_store_ingest's, mp_slices_read's; the spools stay then. */
int mp_suite_keep(struct mp_store *store, const struct mp_ended_job *ended, struct mp_error *error);

/* Writes a note (below) of a job that is about to begin (`result` is NULL), or that has ended and
 * could not be kept. */
int mp_suite_note(const struct mp_ended_job *job, const char *path, struct mp_error *error);

/* The time now in UTC, as strftime has it: "%Y-%m-%dT%H:%M:%SZ". */
void mp_suite_format_utc(const char *format, char *text, size_t size);

/* Killed: jobs whose moeperf was killed before it could put them into a database, or could not
 * because that was locked or its disk full. */

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

/* Note: what a job's folder says of the job until it is in a database, so that its recordings can
 * still be put into one when moeperf is killed, or when the disk is full at its end.
 *
 * A YAML mapping of the fields of struct mp_store_run that are known before the job ends: texts,
 * numbers, and "facts" with the facts' names and values.  Where moeperf saw the job's end and could
 * not put it into the database, "status" and "reason" are among them. */

#define MP_NOTE_NAME "run.yaml" /* in the job's folder */
enum { MP_NOTE_FACTS = 1024 };  /* most of a run */

struct mp_note {
    struct mp_store_run run; /* texts are borrowed from `document` */
    struct mp_store_fact fact[MP_NOTE_FACTS];
    int facts;
    struct mp_yaml *document; /* owned */
};

/* Writes the note, whole or not at all; bytes of texts that are no UTF-8 become '?'.  MP_EIO,
 * MP_ENOSPACE, MP_ENOMEM. */
int mp_note_write(const struct mp_store_run *run, const char *path, struct mp_error *error);

/* MP_EINVAL and MP_EFORMAT name path, line and field; MP_EIO; MP_ENOMEM.  mp_note_destroy in any
 * case. */
int mp_note_read(const char *path, struct mp_note *note, struct mp_error *error);
void mp_note_destroy(struct mp_note *note); /* accepts a zeroed one */
MP_END(note, struct mp_note, mp_note_destroy(it))

/* Marks a job's folder as in use, by this process and those that it starts, until the returned
 * descriptor is closed and they have ended; -1 where that can't be marked. */
int mp_note_hold(const char *folder);

/* Whether somebody still holds it. */
bool mp_note_is_held(const char *folder);
