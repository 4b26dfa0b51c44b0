/* Noise floors: what base against base shows on a machine, kept as facts of the head's runs. */
#include <math.h>

#include "results/compare/internal.h"
#include "results/report/query.h"

enum { LAST_FLOORS = 5 };

static const char floors_sql[] =
    "SELECT max(CAST(value AS REAL)) FROM (SELECT floor.value FROM fact AS floor "
    "JOIN fact AS key USING (run_id) WHERE floor.name = '" MP_FACT_FLOOR
    "' AND key.name = '" MP_FACT_FLOOR_KEY "' AND key.value = ?2 "
    "ORDER BY run_id DESC LIMIT ?1)";

int gate_find_floor(const struct comparison *comparison, const char *key, double *floor,
                    struct mp_error *error) {
    struct mp_store *const stores[] = {comparison->base.store, comparison->head.store};
    *floor = NAN;
    for (int s = 0; s < 2; s++) {
        struct query query = query_begin(stores[s], floors_sql, LAST_FLOORS, error);
        sqlite3_bind_text(query.row, 2, key, -1, SQLITE_STATIC);
        if (query_next(&query)) /* of a number and NAN the number */
            *floor = fmax(*floor, query_double(query.row, 0));
        MP_TRY(query_end(&query));
    }
    return MP_OK;
}

static int first_run(struct mp_store *store, const char *suite_run, const char *job,
                     int64_t *run_id, struct mp_error *error) {
    struct query query = query_begin(
        store, "SELECT min(run_id) FROM run WHERE suite_run = ?2 AND job = ?3 AND ?1 = 0", 0,
        error);
    sqlite3_bind_text(query.row, 2, suite_run, -1, SQLITE_STATIC);
    sqlite3_bind_text(query.row, 3, job, -1, SQLITE_STATIC);
    if (query_next(&query))
        *run_id = sqlite3_column_int64(query.row, 0);
    return query_end(&query);
}

int mp_gate_keep_floors(const struct mp_gate *gate, struct mp_store *store, const char *suite_run,
                        int *kept, struct mp_error *error) {
    *kept = 0;
    if (!gate->same_program)
        return mp_fail(error, MP_EINVAL, "a noise floor comes from base against base");
    for (int i = 0; i < gate->metrics; i++) {
        const struct mp_gate_metric *metric = &gate->metric[i];
        double half = (metric->evidence.high - metric->evidence.low) / 2;
        char value[32];
        int64_t run_id = 0;
        bool was_judged = !metric->exact && !isnan(metric->adjusted_p);
        if (!was_judged || !isfinite(half))
            continue;
        snprintf(value, sizeof value, "%.17g", half);
        const struct mp_store_fact facts[] = {{MP_FACT_FLOOR, value},
                                              {MP_FACT_FLOOR_KEY, metric->floor_key}};
        MP_TRY(first_run(store, suite_run, metric->job, &run_id, error));
        for (int f = 0; f < 2; f++)
            MP_TRY(mp_store_add_fact(store, run_id, &facts[f], error));
        ++*kept;
    }
    return MP_OK;
}
