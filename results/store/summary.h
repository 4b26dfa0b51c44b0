/* The *_summary tables of one run, computed while its recordings pass by.
 *
 * What each column means is defined at the views in schema.sql.  Memory: about 50 bytes per (rank,
 * iteration, layer, phase) that occurs, less than what the spans take in the database. */
#ifndef MOEPERF_RESULTS_STORE_SUMMARY_H
#define MOEPERF_RESULTS_STORE_SUMMARY_H

#include <stdbool.h>

#include "profiler/record/spool.h"
#include "results/store/keyed.h"
#include "results/store/store.h"

struct summary {
    int ranks;
    bool *recorded;          /* [ranks] has a usable recording */
    bool clocks_comparable;  /* all recorded ranks' */
    int64_t origin_ns;       /* times are stored from here */
    struct keyed iterations; /* struct iteration_entry by (iteration, -1, 0) */
    struct keyed cells;      /* struct cell[ranks] by (iteration, layer, phase) */
    struct keyed layers;     /* struct layer_entry by (iteration, layer, 0) */
    double phase_flops[MP_PHASES];
    int ranks_share_cores;              /* -1: not recorded */
    const struct mp_store_slice *slice; /* [slices], borrowed; NULL: iterations count wherever */
    int slices;
};

int summary_init(struct summary *summary, int ranks, struct mp_error *error);
void summary_free(struct summary *summary); /* accepts a zeroed one */

/* Each takes one record of one rank.  Records outside any iteration count nowhere, except the
 * number ranks-share-cores.  `start_ns` and `end_ns` of the span are on rank 0's clock,
 * and |start_ns| <= 2^61.
 * Errors: MP_ENOMEM. */
int summary_add_span(struct summary *summary, int rank, const struct mp_span *span, bool in_flight,
                     struct mp_error *error);
int summary_add_load(struct summary *summary, const struct mp_spool_record *load,
                     struct mp_error *error);
int summary_add_number(struct summary *summary, const struct mp_spool_record *number,
                       struct mp_error *error);

/* Writes the rows.  phase_ids: StringIds of the phases' names. */
int summary_write(struct summary *summary, struct mp_store *store, int64_t run_id,
                  const int64_t phase_ids[MP_PHASES], struct mp_error *error);

#endif
