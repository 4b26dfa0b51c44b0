/* Keep: a job that has ended, with what its ranks recorded, put into the database. */
#ifndef MOEPERF_HARNESS_SUITE_KEEP_H
#define MOEPERF_HARNESS_SUITE_KEEP_H

#include "harness/suite/launch.h"
#include "harness/suite/suite.h"
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

/* Writes a note (note.h) of a job that is about to begin (`result` is NULL), or that has ended and
 * could not be kept. */
int mp_suite_note(const struct mp_ended_job *job, const char *path, struct mp_error *error);

/* The time now in UTC, as strftime has it: "%Y-%m-%dT%H:%M:%SZ". */
void mp_suite_format_utc(const char *format, char *text, size_t size);

#endif
