/* What writes one timeline (perfetto.c, flows.c). */
#ifndef MOEPERF_RESULTS_EXPORT_TIMELINE_H
#define MOEPERF_RESULTS_EXPORT_TIMELINE_H

#include "results/export/lanes.h"
#include "results/export/output.h"

/* A name of table StringIds as JSON. */
struct timeline_name {
    int64_t id;
    char *text; /* as it is */
    char *json; /* quoted and escaped; both owned */
};
enum { TIMELINE_NAMES = 256 }; /* remembered at a time */

struct timeline {
    struct output output;
    struct mp_results_selection selection;
    struct mp_results_exported *exported;
    bool has_events;
    struct timeline_name name[TIMELINE_NAMES];
    int names;
    sqlite3_stmt *select_name, *keep_exchange;
    /* The stream whose spans come now. */
    int rank;
    int64_t stream_id; /* -1: none yet */
    int stream;        /* its number among the rank's */
    int other_streams; /* of the rank, beside compute and comm */
    bool draws_flows;
    struct lanes lanes;
};

/* Begins an event: what separates it from the one before. */
void timeline_begin(struct timeline *timeline);
/* Nanoseconds as microseconds. */
void timeline_time(FILE *file, int64_t ns);
/* NULL: no memory, or an error of the database. */
const struct timeline_name *timeline_name(struct timeline *timeline, int64_t id,
                                          struct mp_error *error);

/* Keeps an exchange of a rank, in a table beside the database. */
int flows_prepare(struct timeline *timeline, struct mp_error *error);
int flows_keep(struct timeline *timeline, sqlite3_stmt *span, int tid, int64_t end_ns,
               struct mp_error *error);
/* Draws the arrows between those that were kept. */
int flows_write(struct timeline *timeline, struct mp_error *error);

/* Columns of the query for spans. */
enum timeline_column {
    TIMELINE_STREAM,
    TIMELINE_PHASE,
    TIMELINE_ITERATION,
    TIMELINE_LAYER,
    TIMELINE_DIRECTION,
    TIMELINE_START,
    TIMELINE_END,
    TIMELINE_ID,
    TIMELINE_WAIT,
    TIMELINE_CPU,
    TIMELINE_TOKENS,
    TIMELINE_BYTES,
    TIMELINE_FLOPS
};

#endif
