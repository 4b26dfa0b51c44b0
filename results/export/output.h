/* What the exporters share: a file that is whole or not there, queries, and texts of any bytes. */
#pragma once

#include <jansson.h>
#include <stdio.h>

#include "reference/base/whole_file.h"
#include "results/export/export.h"
#include "results/store/sqlite.h"

struct output {
    struct mp_whole_file whole;
    FILE *file; /* of `whole` */
    struct mp_store *store;
};

/* Opens the file and begins a transaction for reading, which is rolled back at the end: what was
 * put into temporary tables meanwhile goes with it. */
int output_open(struct output *output, struct mp_store *store, const char *path,
                struct mp_error *error);
/* mp_whole_file_close of what was written without an error; else the output's end removes it. */
int output_close(struct output *output, struct mp_error *error);
void output_end(struct output *output); /* accepts a zeroed and a closed one */
MP_END(output, struct output, output_end(it))

/* Prepares a query and binds what it has of ?1 run_id, ?2 and ?3 first and last iteration (the
 * smallest and largest numbers if none were chosen). */
int output_query(struct mp_store *store, const char *sql,
                 const struct mp_results_selection *selection, sqlite3_stmt **statement,
                 struct mp_error *error);

int output_check_iterations(const struct mp_results_selection *selection, struct mp_error *error);
/* Fills in the run that is meant (run_id 0: the only one) and checks the iterations. */
int output_choose(struct mp_store *store, const struct mp_results_selection *wanted,
                  struct mp_results_selection *selection, struct mp_error *error);

/* JSON of a row: an object by column name.  Columns whose bit is set in `arrays` hold JSON, which
 * becomes what it says, or null where it is none.  NULL: no memory. */
json_t *output_row(sqlite3_stmt *statement, unsigned arrays);
/* A text of any bytes; null for NULL, U+FFFD for what is no UTF-8.  NULL: no memory. */
json_t *output_text(const char *text, size_t length);
/* "NAME":[rows], a row to a line, so that tools that go by lines get along with it too; `arrays`
 * as output_row has it.  Adds to *rows how many there are. */
int output_rows(struct output *output, const char *name, const char *sql, unsigned arrays,
                const struct mp_results_selection *selection, int64_t *rows,
                struct mp_error *error);
#define OUTPUT_JSON (JSON_COMPACT | JSON_ENCODE_ANY | JSON_REAL_PRECISION(17))
/* Writes a value and releases it.  MP_ENOMEM for NULL; errors of the file show in output_close. */
int output_json(struct output *output, json_t *value, struct mp_error *error);

/* What is drawn on a timeline: one row of a query is one slice or mark. */

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
