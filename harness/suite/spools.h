/* Spools: the files in a folder that ranks recorded into. */
#ifndef MOEPERF_HARNESS_SUITE_SPOOLS_H
#define MOEPERF_HARNESS_SUITE_SPOOLS_H

#include <stdbool.h>

#include "reference/base/error.h"

struct mp_spools {
    char **path; /* [count], owned */
    int count;
};

/* Lists the folder's files; one that is not there has none.  MP_ENOMEM; mp_spools_destroy in any
 * case. */
int mp_spools_list(const char *folder, struct mp_spools *spools, struct mp_error *error);
void mp_spools_destroy(struct mp_spools *spools); /* accepts a zeroed one */

/* Whether any of them has a byte. */
bool mp_spools_hold_anything(const struct mp_spools *spools);

/* Deletes the files and their folder. */
void mp_spools_remove(const struct mp_spools *spools, const char *folder);

#endif
