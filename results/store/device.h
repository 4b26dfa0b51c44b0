/* Spools of collectors of GPU work on their way into the database. */
#pragma once

#include "profiler/record/spool.h"
#include "results/store/clock_fit.h"
#include "results/store/internal.h"

/* A span of the host that may have launched GPU work. */
struct device_span {
    int64_t start_ns, end_ns, span_id;
    int parent; /* the span around it; -1: none */
};

/* What a correlation id stands for on the host. */
struct device_call {
    uint32_t correlation;
    bool has_external;
    int64_t start_ns;    /* of the earliest call, on the run's clock; INT64_MAX: none */
    int64_t external_ns; /* the start of the span that an external id names, likewise */
    int64_t span_id;     /* 0: none */
};

struct device_name {
    int64_t string_id; /* StringIds' */
    int size;          /* of an element, if it is a datatype's; else 0 */
};

/* One spool, and what it takes to place its records. */
struct device_spool {
    struct mp_store *store;
    struct strings *strings;
    const char *path;
    struct mp_spool_header header;
    int64_t run_id, origin_ns;
    int rank;
    struct clock_fit fit;
    const char *clock;
    char collector[48], status[512];
    char note[256]; /* why something is missing */
    bool complete;
    int64_t unread_bytes;
    int64_t *wanted; /* when calls and collectives began, and starts that external ids name */
    int wanted_count;
    int latest_wanted;         /* the one found last: the next is the same or near, mostly */
    struct device_span *spans; /* those that contain such a time; by start, the outer first */
    int span_count;
    struct device_call *calls; /* by correlation */
    int call_count;
    int latest_call;         /* the one found last: the next is the same or follows it, mostly */
    struct mp_timer *timers; /* by at_ns */
    int timer_count;
    struct device_name *names; /* by the spool's ids */
    uint32_t name_count;
};

/* A time of the spool's process on the run's clock. */
int64_t device_time(const struct device_spool *spool, int64_t own_ns);

/* Reads the spool for all that records refer to: names, calls, timer; and what it says of itself.
 */
int device_collect(struct device_spool *spool, struct mp_error *error);

/* A time of the run's clock at which device_span_at will be asked, or at which a span starts. */
int device_want(struct device_spool *spool, int64_t at_ns, struct mp_error *error);
/* Reads the rank's spans that contain such times, and finds each call's among them.  Once, after
 * device_collect. */
int device_read_spans(struct device_spool *spool, struct mp_error *error);

/* The innermost span that contains `at_ns`, a time that was wanted; 0: none. */
int64_t device_span_at(const struct device_spool *spool, int64_t at_ns);
/* The span that launched what has this correlation id; 0: not known. */
int64_t device_span_of(struct device_spool *spool, uint32_t correlation);

/* Reads it again and stores its records. */
int device_insert(struct device_spool *spool, struct mp_error *error);

/* Frees what the functions above have allocated, spans included. */
void device_free(struct device_spool *spool);
