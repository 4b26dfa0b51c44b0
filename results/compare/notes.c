/* What stands beside a comparison.  Several runs in one database are several samples, if they are
 * named. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "results/compare/internal.h"
#include "results/compare/statistics.h"
#include "results/report/query.h"
#include "results/report/recording_cost.h"

/* Each range of neighbours, and how many they are. */
static const char runs_sql[] =
    "SELECT CASE count(*) WHEN 1 THEN min(run_id) ELSE min(run_id) || '-' || max(run_id) END, "
    "count(*) FROM (SELECT run_id, run_id - row_number() OVER (ORDER BY run_id) AS gap FROM run "
    "WHERE suite = ?2 AND status = 'complete' AND executor <> 'predicted' AND run_id > ?1) "
    "GROUP BY gap ORDER BY min(run_id)";

static bool lacks_runs(const struct mp_gate *gate) {
    for (int i = 0; i < gate->metrics; i++) {
        const struct mp_gate_metric *metric = &gate->metric[i];
        const struct mp_samples *samples = &metric->evidence.samples;
        int fewest = samples->bases < samples->heads ? samples->bases : samples->heads;
        if (!metric->exact && metric->outcome == MP_OUTCOME_INCONCLUSIVE && fewest > 0 &&
            isinf(metric->evidence.high - metric->evidence.low))
            return true;
    }
    return false;
}

/* All complete runs of the side's suite as "1-6,9", as far as there is room; `count` of them. */
static int list_runs(const struct side *side, char *text, size_t size, int *count,
                     struct mp_error *error) {
    const char *suite = json_string_value(json_object_get(side->run[0].key, "suite"));
    size_t length = 0;
    struct query query = query_begin(side->store, runs_sql, 0, error);
    sqlite3_bind_text(query.row, 2, suite, -1, SQLITE_STATIC);
    *count = 0;
    *text = '\0';
    while (query_next(&query)) {
        const char *range = query_text(query.row, 0);
        *count += sqlite3_column_int(query.row, 1);
        if (length + strlen(range) + 2 <= size)
            length +=
                (size_t)snprintf(text + length, size - length, "%s%s", length ? "," : "", range);
    }
    return query_end(&query);
}

int gate_hint_at_runs(struct comparison *comparison, struct mp_error *error) {
    const struct side *const sides[] = {&comparison->base, &comparison->head};
    const char *paths[] = {mp_store_path(sides[0]->store), mp_store_path(sides[1]->store)};
    char runs[2][120];
    int count[2];
    if (comparison->paired || !lacks_runs(comparison->gate))
        return MP_OK;
    for (int s = 0; s < 2; s++)
        MP_TRY(list_runs(sides[s], runs[s], sizeof runs[s], &count[s], error));
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

/* ---- times contain what recording them cost: how much, on either side ---- */

enum { SHARE_TEXT = 48 };

/* The largest share of an iteration over a side's complete runs, in words. */
static int describe(const struct side *side, char text[SHARE_TEXT], int *measured,
                    struct mp_error *error) {
    double most = NAN;
    for (int i = 0; i < side->count; i++) {
        struct recording_cost cost;
        if (!side->run[i].complete || side->run[i].predicted)
            continue;
        MP_TRY(recording_cost_read(side->store, side->run[i].run_id, &cost, error));
        most = fmax(most, cost.share);
        ++*measured;
    }
    if (isnan(most))
        snprintf(text, SHARE_TEXT, "not measured");
    else
        snprintf(text, SHARE_TEXT, "at most %.3f %% of an iteration", 100 * most);
    return MP_OK;
}

int gate_note_recording(struct comparison *comparison, struct mp_error *error) {
    char base[SHARE_TEXT], head[SHARE_TEXT];
    int measured = 0;
    MP_TRY(describe(&comparison->base, base, &measured, error));
    MP_TRY(describe(&comparison->head, head, &measured, error));
    if (measured > 0)
        gate_note(comparison->gate, "Recording cost: base %s, head %s.", base, head);
    return MP_OK;
}

/* ---- noise floors: what base against base shows on a machine, kept as facts of the head's runs
 * ---- */

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
