/* What tells one run from every other, so that adding it twice adds it once. */
#ifndef MOEPERF_RESULTS_STORE_IDENTITY_H
#define MOEPERF_RESULTS_STORE_IDENTITY_H

#include "results/store/recording.h"

/* The name of the fact (rank -1) that keeps it. */
#define IDENTITY_FACT "run.identity"

enum { IDENTITY_SIZE = 17 };

/* 16 hexadecimal digits: a digest of all that the ranks' recordings have, whose first records name
 * process, host and the nanosecond they began in, and of the job's file, which may be given later;
 * of a run without any recording, a digest of which job of which suite run it was and how it went.
 */
void identity_of(const struct mp_store_run *run, const struct recordings *recordings,
                 char identity[IDENTITY_SIZE]);

/* The run with this identity; 0: none.  Runs of databases from before there were identities have
 * none. */
int identity_find(struct mp_store *store, const char *identity, int64_t *run_id,
                  struct mp_error *error);

#endif
