/* Ids of names in StringIds, with a memory of those already asked for, and numbers by name. */
#ifndef MOEPERF_RESULTS_STORE_STRINGS_H
#define MOEPERF_RESULTS_STORE_STRINGS_H

#include <stdint.h>

#include "profiler/record/name_table.h"
#include "profiler/record/spool.h"
#include "results/store/internal.h"

/* Starts with its store alone. */
struct strings {
    struct mp_store *store;
    struct name_table names;
    int64_t *ids; /* by number - 1 */
};

void strings_free(struct strings *strings); /* accepts a zeroed one */

/* The id of a name, added when it is new.  The memory is for a few names that come again; where
 * each comes once, strings_store does without. */
int strings_id(struct strings *strings, const char *name, int64_t *id, struct mp_error *error);
int strings_store(const struct strings *strings, const char *name, int64_t *id,
                  struct mp_error *error);

/* Stores a rank's number (table number). */
int strings_number(struct strings *strings, int64_t run_id, int rank,
                   const struct mp_spool_record *number, struct mp_error *error);

#endif
