/* Arrows between ranks.  Exchanges are kept in a temporary table while the ranks' spans pass by,
 * one rank after another, and then read in the order of the run, all ranks of an exchange
 * together. */
#include <stdlib.h>

#include "reference/base/arena.h"
#include "results/export/timeline.h"

int flows_prepare(struct timeline *timeline, struct mp_error *error) {
    struct mp_store *store = timeline->output.store;
    if (sqlite3_exec(mp_store_connection(store),
                     "CREATE TEMP TABLE moeperf_exchange (iteration, layer, phase_id, direction, "
                     "rank, start_ns, end_ns, tid)",
                     NULL, NULL, NULL) != SQLITE_OK ||
        sqlite3_prepare_v2(mp_store_connection(store),
                           "INSERT INTO temp.moeperf_exchange VALUES (?, ?, ?, ?, ?, ?, ?, ?)", -1,
                           &timeline->keep_exchange, NULL) != SQLITE_OK)
        return mp_store_fail(store, "cannot keep the exchanges", error);
    return MP_OK;
}

int flows_keep(struct timeline *timeline, sqlite3_stmt *span, int tid, int64_t end_ns,
               struct mp_error *error) {
    sqlite3_stmt *insert = timeline->keep_exchange;
    const int64_t values[] = {sqlite3_column_int64(span, TIMELINE_ITERATION),
                              sqlite3_column_int64(span, TIMELINE_LAYER),
                              sqlite3_column_int64(span, TIMELINE_PHASE),
                              sqlite3_column_type(span, TIMELINE_DIRECTION) == SQLITE_NULL
                                  ? -1
                                  : sqlite3_column_int64(span, TIMELINE_DIRECTION),
                              timeline->rank,
                              sqlite3_column_int64(span, TIMELINE_START),
                              end_ns,
                              tid};
    for (int i = 0; i < (int)(sizeof values / sizeof *values); i++)
        sqlite3_bind_int64(insert, i + 1, values[i]);
    int step = sqlite3_step(insert);
    sqlite3_reset(insert);
    return step == SQLITE_DONE
               ? MP_OK
               : mp_store_fail(timeline->output.store, "cannot keep the exchanges", error);
}

/* One rank in one exchange. */
struct part {
    int rank, tid;
    int64_t start_ns, end_ns;
};

struct exchange {
    int64_t key[5]; /* iteration, layer, phase, direction, which of several such of the rank */
    struct part *part;
    int parts;
};

/* From the part that started last to all others, into their last nanosecond. */
static int write_exchange(struct timeline *timeline, const struct exchange *exchange,
                          struct mp_error *error) {
    if (exchange->parts < 2)
        return MP_OK;
    const struct timeline_name *name = timeline_name(timeline, exchange->key[2], error);
    if (!name)
        return error->code;
    const struct part *last = &exchange->part[0];
    for (int i = 1; i < exchange->parts; i++)
        if (exchange->part[i].start_ns > last->start_ns)
            last = &exchange->part[i];
    for (int i = 0; i < exchange->parts; i++) {
        const struct part *part = &exchange->part[i];
        if (part == last)
            continue;
        if (part->end_ns <= last->start_ns) {
            timeline->exported->flows_left_out++;
            continue;
        }
        timeline->exported->flows++;
        timeline_arrow(timeline, name->json, "\"exchange\"",
                       &(struct timeline_point){last->rank, last->tid, last->start_ns},
                       &(struct timeline_point){part->rank, part->tid, part->end_ns - 1});
    }
    return MP_OK;
}

static int add_part(struct exchange *exchange, sqlite3_stmt *row, struct mp_error *error) {
    if (!MP_ROOM(exchange->part, exchange->parts))
        return mp_no_memory(error);
    exchange->part[exchange->parts++] = (struct part){.rank = sqlite3_column_int(row, 5),
                                                      .tid = sqlite3_column_int(row, 8),
                                                      .start_ns = sqlite3_column_int64(row, 6),
                                                      .end_ns = sqlite3_column_int64(row, 7)};
    return MP_OK;
}

static bool is_same(const struct exchange *exchange, sqlite3_stmt *row) {
    for (int i = 0; i < 5; i++)
        if (exchange->key[i] != sqlite3_column_int64(row, i))
            return false;
    return true;
}

static const char exchanges_sql[] =
    "SELECT iteration, layer, phase_id, direction, row_number() OVER "
    "(PARTITION BY rank, iteration, layer, phase_id, direction ORDER BY start_ns, end_ns) AS turn, "
    "rank, start_ns, end_ns, tid FROM temp.moeperf_exchange "
    "ORDER BY iteration, layer, phase_id, direction, turn, rank";

int flows_write(struct timeline *timeline, struct mp_error *error) {
    sqlite3_stmt *row = NULL;
    struct exchange exchange = {0};
    int got = 0;
    int code =
        output_query(timeline->output.store, exchanges_sql, &timeline->selection, &row, error);
    while (!code && (got = mp_store_next(timeline->output.store, row, error)) == 1) {
        if (exchange.parts > 0 && !is_same(&exchange, row)) {
            code = write_exchange(timeline, &exchange, error);
            exchange.parts = 0;
        }
        for (int i = 0; i < 5; i++)
            exchange.key[i] = sqlite3_column_int64(row, i);
        if (!code)
            code = add_part(&exchange, row, error);
    }
    code = code ? code : got;
    if (!code)
        code = write_exchange(timeline, &exchange, error);
    sqlite3_finalize(row);
    free(exchange.part);
    return code;
}
