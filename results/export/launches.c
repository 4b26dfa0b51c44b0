/* Arrows from the host to GPU work.  What may have launched any is kept in a temporary table while
 * it passes by, a rank's at a time, and looked up as the work comes. */
#include "results/export/timeline.h"

int launches_prepare(struct timeline *timeline, struct mp_error *error) {
    struct mp_store *store = timeline->output.store;
    if (sqlite3_exec(mp_store_connection(store),
                     "CREATE TEMP TABLE moeperf_launch (process INTEGER, number INTEGER, "
                     "tid INTEGER, at_ns INTEGER, PRIMARY KEY (process, number)) WITHOUT ROWID",
                     NULL, NULL, NULL) != SQLITE_OK ||
        sqlite3_prepare_v2(mp_store_connection(store),
                           "INSERT OR IGNORE INTO temp.moeperf_launch VALUES (?, ?, ?, ?)", -1,
                           &timeline->keep_launch, NULL) != SQLITE_OK)
        return mp_store_fail(store, "cannot keep what launched GPU work", error);
    return MP_OK;
}

static const char any_sql[] =
    "SELECT EXISTS (SELECT 1 FROM CUPTI_ACTIVITY_KIND_KERNEL WHERE run_id = ?1 AND rank = ?4) OR "
    "EXISTS (SELECT 1 FROM CUPTI_ACTIVITY_KIND_MEMCPY WHERE run_id = ?1 AND rank = ?4) OR "
    "EXISTS (SELECT 1 FROM CUPTI_ACTIVITY_KIND_MEMSET WHERE run_id = ?1 AND rank = ?4) OR "
    "EXISTS (SELECT 1 FROM collective WHERE run_id = ?1 AND rank = ?4)";

int launches_begin_rank(struct timeline *timeline, struct mp_error *error) {
    struct mp_store *store = timeline->output.store;
    sqlite3_stmt *row = NULL;
    if (sqlite3_exec(mp_store_connection(store), "DELETE FROM temp.moeperf_launch", NULL, NULL,
                     NULL) != SQLITE_OK)
        return mp_store_fail(store, "cannot keep what launched GPU work", error);
    int code = output_query(store, any_sql, &timeline->selection, &row, error);
    if (code)
        return code;
    sqlite3_bind_int(row, 4, timeline->rank);
    int got = mp_store_next(store, row, error);
    timeline->keeps_launches = got == 1 && sqlite3_column_int(row, 0);
    sqlite3_finalize(row);
    return got < 0 ? got : MP_OK;
}

int launches_keep(struct timeline *timeline, int64_t process, int64_t number,
                  const struct timeline_slice *slice, struct mp_error *error) {
    sqlite3_stmt *insert = timeline->keep_launch;
    if (!timeline->keeps_launches || !slice->tid)
        return MP_OK;
    const int64_t values[] = {process, number, slice->tid, slice->start_ns};
    for (int i = 0; i < (int)(sizeof values / sizeof *values); i++)
        sqlite3_bind_int64(insert, i + 1, values[i]);
    int step = sqlite3_step(insert);
    sqlite3_reset(insert);
    return step == SQLITE_DONE
               ? MP_OK
               : mp_store_fail(timeline->output.store, "cannot keep what launched GPU work", error);
}

void launches_arrow(struct timeline *timeline, sqlite3_stmt *row, int tid, const char *category,
                    const struct timeline_slice *slice) {
    if (!slice->tid || sqlite3_column_type(row, tid) == SQLITE_NULL)
        return;
    const struct timeline_point from = {timeline->rank, sqlite3_column_int(row, tid),
                                        sqlite3_column_int64(row, tid + 1)};
    const struct timeline_point to = {timeline->rank, slice->tid, slice->start_ns};
    if (from.at_ns > to.at_ns)
        return; /* the clocks differ by more than the launch took; readers drop such arrows */
    timeline->exported->launches++;
    timeline_arrow(timeline, slice->name, category, &from, &to);
}
