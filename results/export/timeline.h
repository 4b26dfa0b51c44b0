/* What writes one timeline: perfetto.c, and what it calls. */
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
enum { TIMELINE_NAMES = 256 }; /* remembered at a time: the last ones that were read */

/* No end: what was still open when its process ended. */
#define TIMELINE_OPEN INT64_MAX

struct timeline {
    struct output output;
    struct mp_results_selection selection;
    struct mp_results_exported *exported;
    bool has_events;
    struct timeline_name name[TIMELINE_NAMES];
    int names, oldest_name;
    sqlite3_stmt *select_name, *keep_exchange, *keep_launch;
    int64_t arrows; /* of all kinds; the last one's id */
    /* The rank whose events come now. */
    int rank;
    bool draws_flows;       /* its clock is known */
    bool keeps_launches;    /* it has GPU work or collectives */
    int64_t from_ns, to_ns; /* what of its events that belong to no iteration is wanted */
    int next_tid;           /* behind those that it has */
    /* The threads that events come on now: lanes of one stream. */
    int first_tid;
    char *threads; /* their name; NULL: none yet */
    struct lanes lanes;
};

/* ---- timeline_pieces.c: pieces of the document ---- */

/* Begins an event: what separates it from the one before. */
void timeline_begin(struct timeline *timeline);
/* Nanoseconds as microseconds. */
void timeline_time(FILE *file, int64_t ns);
/* Valid until another TIMELINE_NAMES - 1 are asked for.  NULL: no memory, or an error of the
 * database. */
const struct timeline_name *timeline_name(struct timeline *timeline, int64_t id,
                                          struct mp_error *error);
void timeline_forget_names(struct timeline *timeline);

/* {"name": KIND, "ph": "M", ..., "args": {KEY: VALUE}}; tid 0: of the process.  Takes `value`. */
int timeline_metadata(struct timeline *timeline, const char *kind, int tid, const char *key,
                      json_t *value, struct mp_error *error);

/* What comes now is on threads of their own, which get their names as they are used.  Takes `name`,
 * a JSON string (NULL: no memory). */
int timeline_enter(struct timeline *timeline, int first_tid, json_t *name, struct mp_error *error);
/* The same behind all that the rank has. */
int timeline_enter_next(struct timeline *timeline, json_t *name, struct mp_error *error);

struct timeline_slice {
    const char *name, *category; /* as JSON */
    int64_t start_ns, end_ns;    /* start_ns <= end_ns; or TIMELINE_OPEN */
    int64_t id;                  /* among those of its category */
    int tid;                     /* set by timeline_slice; 0: it fits on no thread and is a pair */
};
/* Writes it but for its arguments and what ends it.  Slices of one group come by ascending start,
 * of equal ones the longest first. */
int timeline_slice(struct timeline *timeline, struct timeline_slice *slice, struct mp_error *error);
void timeline_slice_end(struct timeline *timeline, const struct timeline_slice *slice);
/* A slice inside the last one, without arguments. */
void timeline_slice_inside(struct timeline *timeline, const struct timeline_slice *slice);

/* An arrow's start or end: ph s or f. */
struct timeline_point {
    int rank, tid;
    int64_t at_ns;
};
void timeline_arrow(struct timeline *timeline, const char *name, const char *category,
                    const struct timeline_point *from, const struct timeline_point *to);

/* ?4 the rank, ?5 and ?6 what times are wanted. */
void timeline_bind(struct timeline *timeline, sqlite3_stmt *query);

/* ,"NAME":NUMBER unless the column is NULL. */
void timeline_number(struct timeline *timeline, const char *name, sqlite3_stmt *row, int column);

/* ---- flows.c: arrows between ranks ---- */

/* Keeps an exchange of a rank, in a table beside the database. */
int flows_prepare(struct timeline *timeline, struct mp_error *error);
int flows_keep(struct timeline *timeline, sqlite3_stmt *span, int tid, int64_t end_ns,
               struct mp_error *error);
/* Draws the arrows between those that were kept. */
int flows_write(struct timeline *timeline, struct mp_error *error);

/* ---- launches.c: arrows from the host to GPU work ---- */

/* Likewise, for what may have launched GPU work. */
int launches_prepare(struct timeline *timeline, struct mp_error *error);
/* Whether the rank has any; forgets the one before. */
int launches_begin_rank(struct timeline *timeline, struct mp_error *error);
enum { LAUNCHES_SPAN = -1 }; /* instead of a process: the number is a span's */
int launches_keep(struct timeline *timeline, int64_t process, int64_t number,
                  const struct timeline_slice *slice, struct mp_error *error);
/* The arrow to `slice`, if where it begins is known: columns `tid` and `tid` + 1. */
void launches_arrow(struct timeline *timeline, sqlite3_stmt *row, int tid, const char *category,
                    const struct timeline_slice *slice);

/* ---- what a rank has beside its spans ---- */

/* ranges.c: annotated ranges and marks, and calls of CUDA, per thread. */
int ranges_write(struct timeline *timeline, struct mp_error *error);
/* gpu.c: kernels, copies and fills per stream. */
int gpu_write(struct timeline *timeline, struct mp_error *error);
/* collectives.c: NCCL's operations per communicator. */
int collectives_prepare(struct timeline *timeline, struct mp_error *error);
int collectives_write(struct timeline *timeline, struct mp_error *error);

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
