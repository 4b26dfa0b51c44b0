/* Ids of names in StringIds, with a memory of those already asked for. */
#ifndef MOEPERF_RESULTS_STORE_STRINGS_H
#define MOEPERF_RESULTS_STORE_STRINGS_H

#include <stdint.h>

#include "results/store/internal.h"

struct strings {
    struct mp_store *store;
    sqlite3_stmt *insert, *select;
    char **names;
    int64_t *ids;
    int count;
};

int strings_init(struct strings *strings, struct mp_store *store, struct mp_error *error);
void strings_free(struct strings *strings); /* accepts a zeroed one */

/* The id of a name, added when it is new.  The memory is for a few names that come again; where
 * each comes once, strings_store does without. */
int strings_id(struct strings *strings, const char *name, int64_t *id, struct mp_error *error);
int strings_store(struct strings *strings, const char *name, int64_t *id, struct mp_error *error);

#endif
