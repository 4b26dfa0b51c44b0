/* Counts: see counts.h. */
#include "results/compare/counts.h"

#include <limits.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "reference/base/arena.h"
#include "reference/base/digest.h"
#include "results/report/query.h"

static uint64_t add_word(uint64_t hash, uint64_t word) {
    for (int shift = 0; shift < 64; shift += 8)
        hash = mp_digest_byte(hash, (unsigned char)(word >> shift));
    return hash;
}

static uint64_t add_row(uint64_t hash, const struct count_row *row) {
    const int64_t place[] = {row->iteration, row->layer, row->rank, row->part};
    double value = isnan(row->value) ? NAN : row->value + 0.; /* one NaN, one zero */
    uint64_t bits;
    memcpy(&bits, &value, sizeof bits);
    for (int i = 0; i < 4; i++)
        hash = add_word(hash, (uint64_t)place[i]);
    return add_word(add_word(hash, bits), row->hash);
}

/* ---- which numbers count ---- */

static bool is_planner_input(const char *name) {
    return strcmp(name, "bandwidth") == 0 || strcmp(name, "seconds-per-route") == 0 ||
           strcmp(name, "seconds-per-expert") == 0 || strcmp(name, "non-moe-seconds") == 0;
}

/* What a run says of time, memory and its own recording is different each time. */
static bool is_exact(const char *name, bool predicted) {
    if (strncmp(name, "record-", 7) == 0 || strncmp(name, "memory-", 7) == 0)
        return false;
    return predicted || !(is_planner_input(name) || strstr(name, "seconds") ||
                          strstr(name, "-ns") || strstr(name, "-ms"));
}

static bool is_loss(const char *name) {
    size_t length = strlen(name);
    return length >= 4 && strcmp(name + length - 4, "loss") == 0 &&
           strcmp(name, "target-loss") != 0;
}

const struct count *counts_find(const struct counts *counts, const char *name) {
    return MP_FIND(counts->item, i, counts->count, strcmp(counts->item[i].name, name) == 0);
}

/* The measure of that name, made if there is none; NULL without memory. */
static struct count *find_or_add(struct counts *counts, const char *name) {
    struct count *found = (struct count *)counts_find(counts, name);
    if (found)
        return found;
    if (!MP_ROOM(counts->item, counts->count))
        return NULL;
    found = &counts->item[counts->count++];
    *found = (struct count){.hash = MP_DIGEST, .is_loss = is_loss(name)};
    snprintf(found->name, sizeof found->name, "%s", name);
    return found;
}

static int add(struct counts *counts, const char *name, const struct count_row *row,
               struct mp_error *error) {
    struct count *count = find_or_add(counts, name);
    if (!count)
        return mp_no_memory(error);
    count->hash = add_row(count->hash, row);
    count->total = count->is_loss ? row->value : count->total + row->value;
    count->rows++;
    return counts->wanted && strcmp(counts->wanted, name) == 0
               ? MP_APPEND(counts->row, counts->rows, error, *row)
               : MP_OK;
}

/* ---- sources ---- */

/* Columns of all queries; ?1 is the run. */
enum { NAME, ITERATION, LAYER, RANK, PART, VALUE, LIST };

static const char numbers_sql[] =
    "SELECT name, iteration, layer, rank, 0, value, NULL FROM v_number WHERE run_id = ?1 "
    "ORDER BY name, iteration, layer, rank";

/* Routes, and drops where there is a list of them. */
static const char loads_sql[] =
    "SELECT kind, iteration, layer, rank, 0, 0, CASE kind WHEN 'routes' THEN routes ELSE dropped "
    "END AS list FROM load, (SELECT 'routes' AS kind UNION ALL SELECT 'drops') "
    "WHERE run_id = ?1 AND list <> '' ORDER BY iteration, layer, rank, kind DESC";

/* Operations of a phase, and what they moved and computed, by layer and rank. */
static const char phases_sql[] =
    "WITH work AS (SELECT phase, stream = 'comm' AS in_flight, CASE direction WHEN 'forward' THEN "
    "1 WHEN 'backward' THEN 2 ELSE 0 END AS way, layer, rank, count(*) AS operations, sum(bytes) "
    "AS bytes, sum(tokens) AS tokens, sum(flops) AS flops, stream FROM v_span WHERE run_id = ?1 "
    "GROUP BY phase, stream, way, layer, rank) SELECT phase || ' ' || kind || iif(in_flight, ' in "
    "flight', ''), -1, layer, rank, way + 4 * in_flight, CASE place WHEN 0 THEN operations WHEN 1 "
    "THEN bytes WHEN 2 THEN tokens ELSE flops END AS value, NULL FROM work, (SELECT 0 AS place, "
    "'operations' AS kind UNION ALL SELECT 1, 'bytes' UNION ALL SELECT 2, 'tokens' UNION ALL "
    "SELECT 3, 'flops') WHERE value IS NOT NULL ORDER BY phase, stream, way, layer, rank, place";

static const char times_sql[] =
    "SELECT 'predicted ms', iteration, -1, -1, 0, ms, NULL FROM v_iteration WHERE run_id = ?1 "
    "AND executor = 'predicted' ORDER BY iteration";

static int read_row(struct counts *counts, sqlite3_stmt *row, bool is_exact_measure,
                    struct mp_error *error) {
    const char *name = query_text(row, NAME), *list = query_text(row, LIST);
    const struct count_row own = {.iteration = sqlite3_column_int64(row, ITERATION),
                                  .layer = sqlite3_column_int(row, LAYER),
                                  .rank = sqlite3_column_int(row, RANK),
                                  .part = sqlite3_column_int(row, PART),
                                  .value = *list ? (double)query_add_list(list, NULL, INT_MAX)
                                                 : query_double(row, VALUE),
                                  .hash = *list ? mp_digest_text(1, list) : 0};
    if (is_planner_input(name)) {
        counts->inputs = mp_digest_text(counts->inputs, name);
        counts->inputs = add_row(counts->inputs, &own);
    }
    return is_exact_measure ? add(counts, name, &own, error) : MP_OK;
}

int counts_load(struct mp_store *store, int64_t run_id, bool predicted, struct counts *counts,
                struct mp_error *error) {
    struct query query = query_begin(store, numbers_sql, run_id, error);
    while (query_next(&query))
        query.code =
            read_row(counts, query.row, is_exact(query_text(query.row, NAME), predicted), error);
    MP_TRY(query_end(&query));
    static const char *const others[] = {loads_sql, phases_sql, times_sql};
    for (size_t i = 0; i < MP_LENGTH(others); i++) {
        query = query_begin(store, others[i], run_id, error);
        while (query_next(&query))
            query.code = read_row(counts, query.row, true, error);
        MP_TRY(query_end(&query));
    }
    return MP_OK;
}

void counts_free(struct counts *counts) {
    free(counts->item);
    free(counts->row);
    *counts = (struct counts){0};
}
