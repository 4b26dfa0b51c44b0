/* Runs of other invocations: several in one database are several samples, if they are named. */
#include <math.h>
#include <string.h>

#include "results/compare/internal.h"
#include "results/compare/statistics.h"
#include "results/report/query.h"

static const char runs_sql[] =
    "SELECT run_id FROM run WHERE suite = ?2 AND status = 'complete' AND executor <> 'predicted' "
    "AND run_id > ?1 ORDER BY run_id";

static bool lacks_runs(const struct mp_gate *gate) {
    for (int i = 0; i < gate->metrics; i++) {
        const struct mp_gate_metric *metric = &gate->metric[i];
        int fewest = metric->bases < metric->heads ? metric->bases : metric->heads;
        if (!metric->exact && metric->outcome == MP_OUTCOME_INCONCLUSIVE && fewest > 0 &&
            isinf(metric->high - metric->low))
            return true;
    }
    return false;
}

static size_t add_range(char *text, size_t length, size_t size, int64_t first, int64_t last) {
    char range[48];
    if (first == last)
        snprintf(range, sizeof range, "%lld", (long long)first);
    else
        snprintf(range, sizeof range, "%lld-%lld", (long long)first, (long long)last);
    if (length + strlen(range) + 2 > size)
        return length;
    return length +
           (size_t)snprintf(text + length, size - length, "%s%s", length ? "," : "", range);
}

/* "1-6,9": all complete runs of the side's suite; `count` of them. */
static int list_runs(const struct side *side, char *text, size_t size, int *count,
                     struct mp_error *error) {
    sqlite3_stmt *rows = NULL;
    const char *suite = json_string_value(json_object_get(side->run[0].key, "suite"));
    int64_t first = 0, last = 0;
    size_t length = 0;
    int got = 0, code = query_open(side->store, runs_sql, 0, &rows, error);
    *count = 0;
    *text = '\0';
    if (!code)
        sqlite3_bind_text(rows, 2, suite, -1, SQLITE_STATIC);
    while (!code && (got = mp_store_next(side->store, rows, error)) == 1) {
        int64_t run_id = sqlite3_column_int64(rows, 0);
        if (*count > 0 && run_id != last + 1) {
            length = add_range(text, length, size, first, last);
            first = run_id;
        }
        first = *count > 0 ? first : run_id;
        last = run_id;
        ++*count;
    }
    sqlite3_finalize(rows);
    if (*count > 0)
        add_range(text, length, size, first, last);
    return code ? code : got;
}

int gate_hint_at_runs(struct comparison *comparison, struct mp_error *error) {
    const struct side *const sides[] = {&comparison->base, &comparison->head};
    const char *paths[] = {mp_store_path(sides[0]->store), mp_store_path(sides[1]->store)};
    char runs[2][120];
    int count[2];
    if (comparison->paired || !lacks_runs(comparison->gate))
        return MP_OK;
    for (int s = 0; s < 2; s++) {
        MP_TRY(list_runs(sides[s], runs[s], sizeof runs[s], &count[s], error));
    }
    if (strcmp(paths[0], paths[1]) == 0 && count[0] > sides[0]->count + sides[1]->count)
        gate_note(comparison->gate,
                  "%.100s has complete runs %s of this suite: name those of base and those of head "
                  "as FILE:1-6 and FILE:7-12 to compare more of them.",
                  paths[0], runs[0]);
    else if (strcmp(paths[0], paths[1]) != 0 &&
             (count[0] > sides[0]->count || count[1] > sides[1]->count))
        gate_note(comparison->gate,
                  "A file alone is its latest invocation; name BASE and HEAD %.100s:%s and "
                  "%.100s:%s to compare all complete runs of this suite.",
                  paths[0], runs[0], paths[1], runs[1]);
    return MP_OK;
}
