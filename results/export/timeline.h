/* What is drawn on a timeline: one row of a query is one slice or mark. */
#ifndef MOEPERF_RESULTS_EXPORT_TIMELINE_H
#define MOEPERF_RESULTS_EXPORT_TIMELINE_H

/* Columns of the queries.  ?1 the run, ?2 and ?3 the iterations that are wanted, ?4 the rank, ?5
 * and ?6 the times that are wanted of what belongs to no iteration, ?7 and ?8 the rank's first and
 * last span.  Rows come thread by thread, those of one by ascending start, of equal ones the
 * longest first. */
enum timeline_column {
    TIMELINE_WHAT,      /* enum timeline_what */
    TIMELINE_KEY,       /* where it or the thread's name changes, another thread begins */
    TIMELINE_THREAD,    /* its name */
    TIMELINE_FIRST_TID, /* of its lanes; NULL: behind all that the rank has */
    TIMELINE_NAME,
    TIMELINE_CATEGORY,
    TIMELINE_START, /* ns; NULL: not known, or by a clock that is not: it is left out */
    TIMELINE_END,   /* start <= end; INT64_MAX: still open when its process ended */
    TIMELINE_ID,    /* among those of its category; of a span its span_id */
    /* What may launch GPU work, by process and correlation id; a span as process -1.  NULL: not */
    TIMELINE_PROCESS,
    TIMELINE_NUMBER,
    TIMELINE_FROM_TID, /* the slice that launched it, NULL: not known; and its start */
    TIMELINE_FROM,
    TIMELINE_WAIT,      /* ms of a collective's beginning; NULL: not known */
    TIMELINE_EXCHANGE,  /* the phase of a span of one, on the stream compute; NULL: it is none */
    TIMELINE_COUNTED,   /* tokens that a span's experts work on, NULL: none are counted; in layer */
    TIMELINE_ITERATION, /* of a span, and its layer and direction, -1: none */
    TIMELINE_LAYER,
    TIMELINE_DIRECTION,
    TIMELINE_ARGUMENTS /* from here on by their columns' names; NULL: none, a blob: JSON */
};
enum timeline_what {
    TIMELINE_SPAN,
    TIMELINE_RANGE,
    TIMELINE_CALL,
    TIMELINE_WORK,
    TIMELINE_COLLECTIVE,
    TIMELINE_MARK
};

/* The queries, as timeline/NAME.sql has them.  Those of GPU work and collectives look up what
 * launched them in a table that `prepare` makes.  moeperf_json(text) is a text of others as a blob
 * of JSON: what it says, or where it is none the text itself. */
extern const char timeline_spans_sql[], timeline_ranges_sql[], timeline_gpu_sql[],
    timeline_collectives_sql[];
extern const char timeline_ranks_sql[], timeline_exchanges_sql[], timeline_prepare_sql[];

#endif
