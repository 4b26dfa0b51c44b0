#include "results/report/recording_cost.h"

#include <math.h>
#include <string.h>

#include "results/report/query.h"

/* A collector that was killed has not counted its ranges: then spans stand for them. */
static const char cost_sql[] =
    "WITH number AS (SELECT name, max(value) AS most, sum(value) AS all_ranks FROM rank CROSS JOIN "
    "v_number USING (run_id, rank) WHERE rank.run_id = ?1 AND iteration = -1 GROUP BY name) SELECT "
    "executor, (SELECT sum(spans) FROM v_rank WHERE run_id = ?1), ranks_recorded, iterations, "
    "(SELECT avg(ms) FROM v_iteration WHERE run_id = ?1), (SELECT most FROM number WHERE name = "
    "'record-span-ns'), (SELECT most FROM number WHERE name = 'nvtx-pair-ns'), (SELECT all_ranks "
    "FROM number WHERE name = 'nvtx-ranges') FROM v_run WHERE run_id = ?1";

enum { EXECUTOR, SPANS, RANKS, ITERATIONS, MS, SPAN_NS, PAIR_NS, RANGES };

static void fill(struct recording_cost *cost, sqlite3_stmt *row) {
    double ranges = query_double(row, RANGES), span_ns = query_double(row, SPAN_NS);
    double in_all = query_double(row, RANKS) * query_double(row, ITERATIONS);
    cost->predicted = strcmp(query_text(row, EXECUTOR), "predicted") == 0;
    if (cost->predicted)
        return;
    cost->ranges = isnan(span_ns) && ranges > 0;
    cost->spans = cost->ranges ? ranges : query_double(row, SPANS);
    cost->cost_ns = isnan(span_ns) ? query_double(row, PAIR_NS) : span_ns;
    if (in_all > 0)
        cost->per_iteration = cost->spans / in_all;
    if (query_double(row, MS) > 0)
        cost->share = cost->per_iteration * cost->cost_ns / (1e6 * query_double(row, MS));
}

int recording_cost_read(struct mp_store *store, int64_t run_id, struct recording_cost *cost,
                        struct mp_error *error) {
    *cost =
        (struct recording_cost){.spans = NAN, .per_iteration = NAN, .cost_ns = NAN, .share = NAN};
    struct query query = query_begin(store, cost_sql, run_id, error);
    if (query_next(&query))
        fill(cost, query.row);
    return query_end(&query);
}

const char *recording_cost_words(const struct recording_cost *cost, char *text) {
    const char *what = cost->ranges ? "ranges" : "spans";
    size_t size = RECORDING_COST_TEXT;
    text[0] = '\0';
    if (cost->predicted || !(cost->spans > 0))
        return text;
    if (isnan(cost->cost_ns))
        snprintf(text, size, "%.0f %s, and the run did not measure what one costs", cost->spans,
                 what);
    else if (isnan(cost->share))
        snprintf(text, size, "%.0f %s at %.0f ns, and no iteration to compare with", cost->spans,
                 what, cost->cost_ns);
    else
        snprintf(text, size, "%.0f %s per iteration at %.0f ns: %.3f %% of an iteration",
                 cost->per_iteration, what, cost->cost_ns, 100 * cost->share);
    return text;
}

json_t *recording_cost_json(const struct recording_cost *cost) {
    if (cost->predicted)
        return json_null();
    return json_pack("{so so so so}", "spans", number_value(cost->spans), "spans_per_iteration",
                     number_value(cost->per_iteration), "span_ns", number_value(cost->cost_ns),
                     "share", number_value(cost->share));
}
