/* The recordings of one run: which spool is which rank's, and all that is in them but spans. */
#pragma once

#include <stdbool.h>

#include "profiler/record/spool.h"
#include "reference/base/arena.h"
#include "results/store/clock_fit.h"
#include "results/store/internal.h"
#include "results/store/keyed.h"
#include "results/store/store.h"

/* The *_summary tables of one run, computed while its recordings pass by.
 *
 * What each column means is defined at the views in schema.sql.  Memory: about 50 bytes per (rank,
 * iteration, layer, phase) that occurs, less than what the spans take in the database. */

struct summary {
    struct mp_arena memory; /* of the tables below but for the keyed ones' */
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

enum { RECORDING_STREAMS = 64 }; /* that a span's 6 bits can name */

struct recording {
    const char *path; /* borrowed; NULL: none */
    bool usable;
    struct mp_spool_header header;
    bool ended; /* it has an end record */
    int status; /* of the end record */
    char reason[sizeof((struct mp_error *)0)->text];
    int64_t unread_bytes;
    uint64_t digest;               /* of all its records */
    int64_t spans, first_start_ns; /* on its own clock */
    int64_t last_end_ns;           /* likewise */
    int64_t backward_spans;        /* that end before they start */
    int64_t ranges, first_range_ns;
    int64_t first_span, last_span; /* ids in table span; 0: none */
    struct clock_sample *samples;  /* owned */
    int sample_count;
    struct clock_fit fit;
    const char *clock;                     /* as in rank.clock */
    int64_t stream_ids[RECORDING_STREAMS]; /* 0: not named yet */
    bool in_flight[RECORDING_STREAMS];     /* stream "comm" */
};

struct recordings {
    struct mp_store *store;
    int64_t run_id;
    int ranks;
    struct recording *rank; /* [ranks] */
    struct strings *strings;
    struct summary *summary;
    char *json[2]; /* routes and dropped of one load */
    size_t json_size;
};

/* Finds out whose recording each path is.  Files that can't be used leave a reason at their rank,
 * which for a file that does not say is the one of its place in the list. */
int recordings_init(struct recordings *recordings, struct mp_store *store, int64_t run_id,
                    int ranks, const char *const paths[], int count, struct mp_error *error);
void recordings_free(struct recordings *recordings); /* accepts a zeroed one */

/* Reads all of them once: stores loads, numbers, texts and clock samples, counts spans. */
int recordings_collect(struct recordings *recordings, struct mp_error *error);

/* Chooses how each rank's times get onto rank 0's clock; false in *comparable when one could only
 * go by its wall clock.  Returns the first span's start on that clock; 0 without spans. */
int64_t recordings_align(struct recordings *recordings, bool *comparable);

/* Writes the rows of table rank. */
int recordings_write(struct recordings *recordings, struct mp_error *error);

/* Stores the ranges of one rank's spool with the names that they refer to; does nothing if it has
 * none.  Times count from origin_ns on rank 0's clock. */
int ranges_ingest(struct recordings *recordings, int rank, int64_t origin_ns,
                  struct mp_error *error);
