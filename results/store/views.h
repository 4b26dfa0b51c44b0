/* Views: the promised views as this build defines them, in a database that may hold older ones.
 *
 * Views hold no data, so a definition that differs is replaced without a new schema version; what
 * differs is found by comparing text.  Views of other names are the user's own and stay. */
#ifndef MOEPERF_RESULTS_STORE_VIEWS_H
#define MOEPERF_RESULTS_STORE_VIEWS_H

#include "results/store/internal.h"

/* Replaces the views that differ from this build's, in one transaction; writes nothing when none
 * does.  Errors: those of mp_store_open; the database is left as it was. */
int store_renew_views(struct mp_store *store, struct mp_error *error);

/* The same for this connection alone: temporary views hide those that differ, and the file is not
 * written. */
int store_hide_old_views(struct mp_store *store, struct mp_error *error);

#endif
