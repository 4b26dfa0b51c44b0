/* The host's spans that GPU work may belong to.
 *
 * A long run has many times more spans than GPU work that anyone recorded beside it, so what counts
 * is to be quick about those that nothing refers to: SQLite reads each once and asks a function for
 * whether it is wanted, before it makes a row of it. */

#include "reference/base/arena.h"
#include "reference/base/median.h"
#include "results/store/device.h"

/* ---- times at which a span is asked for ---- */

int device_want(struct device_spool *spool, int64_t at_ns, struct mp_error *error) {
    if (spool->wanted_count > 0 && spool->wanted[spool->wanted_count - 1] == at_ns)
        return MP_OK; /* as of calls of the driver within those of the runtime */
    return MP_APPEND(spool->wanted, spool->wanted_count, error, at_ns);
}

/* The first of the times that is not before `from_ns`; their count: none.  One span after the other
 * mostly asks for the same, or for one soon after it. */
static int first_wanted(struct device_spool *spool, int64_t from_ns) {
    const int64_t *wanted = spool->wanted;
    int low = 0, high = spool->latest_wanted;
    if (high == 0 || wanted[high - 1] < from_ns) {
        low = high;
        for (int step = 1; high < spool->wanted_count && wanted[high] < from_ns; step *= 2) {
            low = high + 1;
            high = step < spool->wanted_count - high ? high + step : spool->wanted_count;
        }
    }
    return spool->latest_wanted = low + MP_BISECT(i, high - low, wanted[low + i] < from_ns);
}

/* is_wanted(start, end): whether one of the times lies in the span, or where it starts. */
static void is_wanted(sqlite3_context *context, int count, sqlite3_value *argument[]) {
    struct device_spool *spool = sqlite3_user_data(context);
    int64_t start_ns = sqlite3_value_int64(argument[0]), end_ns = sqlite3_value_int64(argument[1]);
    int i = first_wanted(spool, start_ns);
    (void)count;
    sqlite3_result_int(context, i < spool->wanted_count &&
                                    (spool->wanted[i] == start_ns || spool->wanted[i] < end_ns));
}

/* ---- reading ---- */

/* Spans of the stream that launches; what is in flight launches nothing.  Table span itself, as
 * v_span would look up two names for each. */
static int read_wanted(struct device_spool *spool, struct mp_error *error) {
    const int64_t values[] = {spool->run_id, spool->rank};
    MP_AUTO(statement) sqlite3_stmt *row = NULL;
    int got;
    MP_TRY(mp_store_query(spool->store,
                          "SELECT start_ns, end_ns, span_id FROM rank CROSS JOIN span ON "
                          "span_id BETWEEN first_span AND last_span WHERE rank.run_id = ?1 AND "
                          "rank.rank = ?2 AND moeperf_is_wanted(start_ns, end_ns) AND "
                          "stream_id IS NOT (SELECT id FROM StringIds WHERE value = 'comm')",
                          values, 2, &row, error));
    while ((got = mp_store_next(spool->store, row, error)) == 1) {
        MP_TRY(MP_APPEND(spool->spans, spool->span_count, error,
                         (struct device_span){sqlite3_column_int64(row, 0),
                                              sqlite3_column_int64(row, 1),
                                              sqlite3_column_int64(row, 2), -1}));
    }
    return got;
}

/* ---- order, and what follows from it ---- */

static int outer_first(const void *left, const void *right) {
    const struct device_span *a = left, *b = right;
    return MP_ORDER(a->start_ns, b->start_ns) ?: MP_ORDER(b->end_ns, a->end_ns)
           ?: MP_ORDER(a->span_id, b->span_id);
}

/* The last span that starts at or before `at_ns`; -1: none. */
static int last_before(const struct device_spool *spool, int64_t at_ns) {
    return MP_BISECT(i, spool->span_count, spool->spans[i].start_ns <= at_ns) - 1;
}

int64_t device_span_at(const struct device_spool *spool, int64_t at_ns) {
    int i = last_before(spool, at_ns);
    while (i >= 0 && spool->spans[i].end_ns <= at_ns)
        i = spool->spans[i].parent;
    return i >= 0 ? spool->spans[i].span_id : 0;
}

/* An external id is its span's start.  Of several spans with one start the innermost was meant: it
 * was pushed last.  0: there is no such span, e.g. because its record was lost. */
static int64_t span_that_starts(const struct device_spool *spool, int64_t start_ns) {
    int i = last_before(spool, start_ns);
    return i >= 0 && spool->spans[i].start_ns == start_ns ? spool->spans[i].span_id : 0;
}

int device_read_spans(struct device_spool *spool, struct mp_error *error) {
    sqlite3 *connection = spool->store->connection;
    static const char name[] = "moeperf_is_wanted";
    if (spool->wanted_count == 0)
        return MP_OK;
    mp_sort_integers(spool->wanted, spool->wanted_count);
    if (sqlite3_create_function(connection, name, 2, SQLITE_UTF8 | SQLITE_DIRECTONLY, spool,
                                is_wanted, NULL, NULL) != SQLITE_OK)
        return mp_store_fail(spool->store, "cannot read the run", error);
    int code = read_wanted(spool, error);
    sqlite3_create_function(connection, name, 2, SQLITE_UTF8, NULL, NULL, NULL, NULL);
    if (code)
        return code;
    MP_SORT(spool->spans, spool->span_count, outer_first);
    /* The span around each: the nearest before it that has not ended when it begins. */
    int open = -1;
    for (int i = 0; i < spool->span_count; i++) {
        while (open >= 0 && spool->spans[open].end_ns <= spool->spans[i].start_ns)
            open = spool->spans[open].parent;
        spool->spans[i].parent = open;
        open = i;
    }
    for (int i = 0; i < spool->call_count; i++) {
        struct device_call *call = &spool->calls[i];
        if (call->has_external)
            call->span_id = span_that_starts(spool, call->external_ns);
        if (!call->span_id && call->start_ns != INT64_MAX)
            call->span_id = device_span_at(spool, call->start_ns);
    }
    return MP_OK;
}
