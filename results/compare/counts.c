/* Counts: see counts.h. */
#include "results/compare/counts.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "reference/base/arena.h"
#include "results/report/query.h"

/* FNV-1a */
static uint64_t add_text(uint64_t hash, const char *text) {
    for (; *text; text++)
        hash = (hash ^ (unsigned char)*text) * 1099511628211u;
    return hash;
}

static uint64_t add_word(uint64_t hash, uint64_t word) {
    for (int shift = 0; shift < 64; shift += 8)
        hash = (hash ^ (word >> shift & 0xff)) * 1099511628211u;
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
    for (int i = 0; i < counts->count; i++)
        if (strcmp(counts->item[i].name, name) == 0)
            return &counts->item[i];
    return NULL;
}

/* The measure of that name, made if there is none; NULL without memory. */
static struct count *find_or_add(struct counts *counts, const char *name) {
    struct count *found = (struct count *)counts_find(counts, name);
    if (found)
        return found;
    if (!MP_ROOM(counts->item, counts->count))
        return NULL;
    found = &counts->item[counts->count++];
    *found = (struct count){.hash = 14695981039346656037u, .is_loss = is_loss(name)};
    snprintf(found->name, sizeof found->name, "%s", name);
    return found;
}

static int keep_row(struct counts *counts, const struct count_row *row, struct mp_error *error) {
    if (!MP_ROOM(counts->row, counts->rows))
        return mp_no_memory(error);
    counts->row[counts->rows++] = *row;
    return MP_OK;
}

static int add(struct counts *counts, const char *name, const struct count_row *row,
               struct mp_error *error) {
    struct count *count = find_or_add(counts, name);
    if (!count)
        return mp_no_memory(error);
    count->hash = add_row(count->hash, row);
    count->total = count->is_loss ? row->value : count->total + row->value;
    count->rows++;
    return counts->wanted && strcmp(counts->wanted, name) == 0 ? keep_row(counts, row, error)
                                                               : MP_OK;
}

/* ---- sources ---- */

struct source {
    struct mp_store *store;
    int64_t run_id;
    bool predicted;
    struct counts *counts;
};

typedef int read_row(const struct source *source, sqlite3_stmt *row, struct mp_error *error);

static int read_all(const struct source *source, const char *sql, read_row *read,
                    struct mp_error *error) {
    struct query query = query_begin(source->store, sql, source->run_id, error);
    while (query_next(&query))
        query.code = read(source, query.row, error);
    return query_end(&query);
}

static int read_number(const struct source *source, sqlite3_stmt *row, struct mp_error *error) {
    const char *name = query_text(row, 0);
    const struct count_row own = {.iteration = sqlite3_column_int64(row, 1),
                                  .layer = sqlite3_column_int(row, 2),
                                  .rank = sqlite3_column_int(row, 3),
                                  .value = query_double(row, 4)};
    if (is_planner_input(name)) {
        source->counts->inputs = add_text(source->counts->inputs, name);
        source->counts->inputs = add_row(source->counts->inputs, &own);
    }
    return is_exact(name, source->predicted) ? add(source->counts, name, &own, error) : MP_OK;
}

/* The sum of a JSON array of whole numbers. */
static double sum_of_list(const char *list) {
    double sum = 0;
    while (*list) {
        char *end;
        long value = strtol(list, &end, 10);
        sum += end > list ? (double)value : 0;
        list = end > list ? end : list + 1;
    }
    return sum;
}

/* Routes, and drops where there is a list of them. */
static int read_load(const struct source *source, sqlite3_stmt *row, struct mp_error *error) {
    static const char *const names[] = {"routes", "drops"};
    for (int i = 0; i < 2; i++) {
        const char *list = query_text(row, 3 + i);
        const struct count_row own = {.iteration = sqlite3_column_int64(row, 0),
                                      .layer = sqlite3_column_int(row, 1),
                                      .rank = sqlite3_column_int(row, 2),
                                      .value = sum_of_list(list),
                                      .hash = add_text(1, list)};
        if (*list)
            MP_TRY(add(source->counts, names[i], &own, error));
    }
    return MP_OK;
}

/* Operations of a phase, and what they moved and computed, by layer and rank. */
static int read_phase(const struct source *source, sqlite3_stmt *row, struct mp_error *error) {
    static const char *const names[] = {"operations", "bytes", "tokens", "flops"};
    bool in_flight = strcmp(query_text(row, 1), "comm") == 0;
    for (int i = 0; i < 4; i++) {
        char name[COUNT_NAME];
        const struct count_row own = {.iteration = -1,
                                      .layer = sqlite3_column_int(row, 3),
                                      .rank = sqlite3_column_int(row, 4),
                                      .part = sqlite3_column_int(row, 2) + 4 * in_flight,
                                      .value = query_double(row, 5 + i)};
        snprintf(name, sizeof name, "%.48s %s%s", query_text(row, 0), names[i],
                 in_flight ? " in flight" : "");
        if (!isnan(own.value))
            MP_TRY(add(source->counts, name, &own, error));
    }
    return MP_OK;
}

static int read_time(const struct source *source, sqlite3_stmt *row, struct mp_error *error) {
    const struct count_row own = {.iteration = sqlite3_column_int64(row, 0),
                                  .layer = -1,
                                  .rank = -1,
                                  .value = query_double(row, 1)};
    return add(source->counts, "predicted ms", &own, error);
}

int counts_load(struct mp_store *store, int64_t run_id, bool predicted, struct counts *counts,
                struct mp_error *error) {
    const struct source source = {store, run_id, predicted, counts};
    MP_TRY(read_all(&source,
                    "SELECT name, iteration, layer, rank, value FROM v_number "
                    "WHERE run_id = ?1 ORDER BY name, iteration, layer, rank",
                    read_number, error));
    MP_TRY(read_all(&source,
                    "SELECT iteration, layer, rank, routes, dropped FROM load "
                    "WHERE run_id = ?1 ORDER BY iteration, layer, rank",
                    read_load, error));
    MP_TRY(read_all(&source,
                    "SELECT phase, stream, CASE direction WHEN 'forward' THEN 1 WHEN "
                    "'backward' THEN 2 ELSE 0 END AS way, layer, rank, count(*), sum(bytes), "
                    "sum(tokens), sum(flops) FROM v_span WHERE run_id = ?1 "
                    "GROUP BY 1, 2, 3, 4, 5 ORDER BY 1, 2, 3, 4, 5",
                    read_phase, error));
    if (predicted)
        MP_TRY(read_all(&source,
                        "SELECT iteration, ms FROM v_iteration WHERE run_id = ?1 "
                        "ORDER BY iteration",
                        read_time, error));
    return MP_OK;
}

void counts_free(struct counts *counts) {
    free(counts->item);
    free(counts->row);
    *counts = (struct counts){0};
}
