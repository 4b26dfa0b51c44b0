/* Where one run's time went, and its routes. */
#pragma once

#include "results/report/table.h"

/* Phases in ms per iteration and rank; how uneven routes were, by layer, mean over iterations. Both
 * to be freed, also after an error. */
int phases_table(struct mp_store *store, int64_t run_id, struct table *table,
                 struct mp_error *error);
int imbalance_table(struct mp_store *store, int64_t run_id, struct table *table,
                    struct mp_error *error);

/* A table of phases in ms per iteration and rank, and the finding in words. */
int phases_print(struct mp_store *store, int64_t run_id, const char *label, FILE *out,
                 struct mp_error *error);
