/* Everything about one run. */
#include <math.h>

#include "results/report/page.h"
#include "results/report/phases.h"
#include "results/report/query.h"
#include "results/report/recording_cost.h"

/* ---- routes ---- */

enum { ITERATION_BINS = 40, EXPERT_BINS = 64 };
#define WIDTH                                                                                      \
    "WITH bins AS (SELECT min(iteration) AS first, (max(iteration) - min(iteration) + 40) / 40 "   \
    "AS width FROM v_imbalance WHERE run_id = ?1) "

static const char imbalance_sql[] =
    WIDTH "SELECT first + (iteration - first) / width * width AS iteration, layer, "
          "round(avg(expert_max_over_mean), 3) AS value, round(avg(rank_max_over_mean), 3) AS "
          "ranks FROM v_imbalance, bins WHERE run_id = ?1 AND expert_max_over_mean IS NOT NULL "
          "GROUP BY 1, 2";

static const char layers_sql[] =
    "WITH uneven AS (SELECT layer, avg(expert_max_over_mean) AS value FROM v_imbalance WHERE "
    "run_id = ?1 AND expert_max_over_mean IS NOT NULL GROUP BY layer), placed AS (SELECT *, "
    "row_number() OVER (ORDER BY value DESC, layer) AS place, count(*) OVER () AS n FROM uneven) "
    "SELECT layer, value, CASE place WHEN 1 THEN ', the most uneven' WHEN n THEN ', the most even' "
    "ELSE '' END FROM placed WHERE place IN (1, 2, (n + 1) / 2, n) ORDER BY place";

/* Of many experts neighbours share a row. */
static const char experts_sql[] =
    WIDTH ", routed AS (SELECT (iteration - first) / width AS bin, "
          "expert, sum(routes) AS routes FROM v_load, bins WHERE run_id = ?1 AND layer = ?2 GROUP "
          "BY 1, 2), grouped AS (SELECT bin, expert / ((SELECT max(expert) + 64 FROM routed) / 64) "
          "* ((SELECT max(expert) + 64 FROM routed) / 64) AS expert, avg(routes) AS routes FROM "
          "routed GROUP BY 1, 2) SELECT first + bin * width AS iteration, expert, round(routes / "
          "avg(routes) OVER (PARTITION BY bin), 2) AS value FROM grouped, bins";

static int write_experts(struct page *page, const struct report_run *run, struct mp_error *error) {
    MP_AUTO(json) json_t *choices = json_array();
    struct query layer = query_begin(page->store, layers_sql, run->run_id, error);
    while (query_next(&layer)) {
        char label[96];
        json_t *data = page_data();
        snprintf(label, sizeof label, "layer %s%s (fullest expert %.2f x mean)",
                 query_text(layer.row, 0), query_text(layer.row, 2), query_double(layer.row, 1));
        layer.code = page_data_add(page, data, experts_sql, run->run_id,
                                   sqlite3_column_int64(layer.row, 0), NULL, error);
        if (json_array_append_new(choices, page_choice(label, data, NULL)))
            layer.code = mp_no_memory(error);
    }
    MP_TRY(query_end(&layer));
    return page_figure(
        page, "experts", "Routes per expert",
        "Routes of each expert over the mean of its layer, over iterations: blue has fewer, orange "
        "more, four times as many in full. Of many iterations or experts a cell is the mean.",
        "Layer", json_incref(choices), error);
}

/* ---- tokens beside what is blocked ---- */

static const char scatter_sql[] =
    "WITH waits AS (SELECT iteration, layer, sum(wait_ms) AS wait FROM v_straggler WHERE run_id = "
    "?1 AND layer >= 0 GROUP BY 1, 2), points AS (SELECT v_straggler.iteration, v_straggler.layer, "
    "slowest_rank AS rank, slowest_tokens / mean_tokens AS tokens, wait, row_number() OVER (ORDER "
    "BY wait DESC, iteration, layer) AS place, count(*) OVER () AS n FROM v_straggler JOIN waits "
    "USING (iteration, "
    "layer) WHERE run_id = ?1 AND phase = 'expert' AND mean_tokens > 0) SELECT layer, iteration, "
    "rank, round(tokens, 3) AS tokens, wait FROM points WHERE place <= 500 OR place % ((n + 1999) "
    "/ 2000) = 0";

/* ---- tables ---- */

static const char lost_sql[] = PAGE_COUNTED
    ", places AS (SELECT layer, phase, sum(lost_ms) AS lost, avg(slowest_tokens) / "
    "avg(mean_tokens) AS tokens FROM counted JOIN v_straggler USING (run_id, iteration) "
    "WHERE phase NOT IN ('validate', 'checkpoint') GROUP BY 1, 2 HAVING sum(lost_ms) > 0 ORDER BY "
    "3 DESC, 1, 2 LIMIT 8), waits AS (SELECT layer, sum(v_straggler.wait_ms) AS wait FROM counted "
    "JOIN "
    "v_straggler USING (run_id, iteration) WHERE phase NOT IN ('validate', 'checkpoint') GROUP BY "
    "1), often AS (SELECT layer, phase, v_straggler.slowest_rank AS rank, count(*) AS times, "
    "row_number() OVER (PARTITION BY layer, phase ORDER BY count(*) DESC, "
    "v_straggler.slowest_rank) AS place FROM counted JOIN v_straggler USING (run_id, iteration) "
    "JOIN places USING (layer, phase) GROUP BY 1, 2, 3) SELECT CASE WHEN layer < 0 THEN phase ELSE "
    "'layer ' || layer || ' ' || phase END, lost / n, wait / n, rank, 1.0 * times / n, tokens FROM "
    "places JOIN often USING (layer, phase) JOIN waits USING (layer), (SELECT count(*) AS n FROM "
    "counted) WHERE place = 1 ORDER BY lost DESC, layer, phase";
static const struct table_column lost_columns[] = {
    {"where", .kind = TABLE_LEFT},
    {"lost ms/iteration", TABLE_NUMBER, .decimals = 3},
    {"blocked in the layer", TABLE_NUMBER, "ms", .decimals = 3},
    {"slowest rank", .kind = TABLE_COUNT},
    {"that often", TABLE_NUMBER, "%", .decimals = 0},
    {"its tokens / mean", TABLE_NUMBER, .decimals = 2}};

static const char ranks_sql[] =
    "SELECT CASE count(*) WHEN 1 THEN CAST(min(rank) AS TEXT) ELSE min(rank) || ' … ' || max(rank) "
    "END, count(*), status, reason FROM v_rank WHERE run_id = ?1 AND status <> "
    "'complete' GROUP BY status, reason ORDER BY min(rank) LIMIT 20";
static const struct table_column ranks_columns[] = {{"rank", .kind = TABLE_LEFT},
                                                    {"how many", .kind = TABLE_COUNT},
                                                    {"status", .kind = TABLE_LEFT},
                                                    {"reason", .kind = TABLE_LONG}};

static const char facts_sql[] =
    "SELECT replace(name, 'environment.', ''), value FROM v_fact WHERE run_id = ?1 AND "
    "length(value) <= 400 AND name NOT LIKE 'assumption.%' ORDER BY name, rank LIMIT 60";
static const char assumptions_sql[] =
    "SELECT substr(name, 12), value FROM v_fact WHERE run_id = ?1 AND name LIKE 'assumption.%' "
    "ORDER BY name, rank";
static const struct table_column facts_columns[] = {{"what", .kind = TABLE_LEFT},
                                                    {"", .kind = TABLE_LONG}};

/* ---- what recording cost ---- */

static const char overhead_sql[] =
    "SELECT (SELECT sum(value) FROM v_number WHERE run_id = ?1 AND name = 'record-bytes'), "
    "(SELECT sum(value) FROM v_number WHERE run_id = ?1 AND name = 'nvtx-lost'), clock_error_us "
    "FROM v_run WHERE run_id = ?1";

static int write_overhead(struct page *page, const struct report_run *run, struct mp_error *error) {
    struct recording_cost cost;
    fputs("<h3>What recording cost</h3>\n", page->out);
    if (run->predicted) {
        fputs("<p>Nothing: this run was predicted, and nothing ran.</p>\n", page->out);
        return MP_OK;
    }
    MP_TRY(recording_cost_read(page->store, run->run_id, &cost, error));
    struct query query = query_begin(page->store, overhead_sql, run->run_id, error);
    if (query_next(&query)) {
        char words[RECORDING_COST_TEXT];
        double bytes = query_double(query.row, 0), lost = query_double(query.row, 1);
        recording_cost_words(&cost, words);
        page_print(page->out, "<p>Recording cost: %s", *words ? words : "nothing was recorded");
        if (cost.spans > 0)
            fprintf(page->out, "; %.0f in all", cost.spans);
        if (!isnan(bytes))
            fprintf(page->out, ", %.2f MB of spools", bytes / 1e6);
        if (!isnan(lost))
            fprintf(page->out, ", %.0f lost", lost);
        fputs(".", page->out);
        if (sqlite3_column_type(query.row, 2) != SQLITE_NULL)
            fprintf(page->out, " Clocks of the ranks agree to %.1f µs: nothing finer is concluded.",
                    query_double(query.row, 2));
        fputs("</p>\n", page->out);
    }
    return query_end(&query);
}

/* ---- all of it ---- */

static int write_routes(struct page *page, const struct report_run *run, struct mp_error *error) {
    MP_AUTO(table) struct table table = {0};
    MP_TRY(page_figure_query(page, "imbalance", "How uneven routing was",
                             "Routes of the fullest expert over the mean (1: even), by layer and "
                             "iteration.",
                             imbalance_sql, run->run_id, error));
    MP_TRY(write_experts(page, run, error));
    MP_TRY(imbalance_table(page->store, run->run_id, &table, error));
    page_table(page->out, &table, "Mean over the iterations.", "Routes by layer, in numbers");
    return MP_OK;
}

static int write_scatter(struct page *page, const struct report_run *run, struct mp_error *error) {
    return page_figure_query(
        page, "scatter", "Tokens beside what is blocked",
        "A point per layer and iteration. Ranks are blocked (ms, summed) until others "
        "come and by transfers. Where that grows to the right, routing explains "
        "it; points high up on the left have another reason. Of many points "
        "those with most of it and an even share of the rest are shown.",
        scatter_sql, run->run_id, error);
}

int page_run(struct page *page, const struct report_run *run, struct mp_error *error) {
    MP_TRY(page_query(page, ranks_sql, run->run_id, ranks_columns, 4, "Ranks that did not complete",
                      NULL, error));
    MP_TRY(page_query(page, lost_sql, run->run_id, lost_columns, 6,
                      "Where the others would wait for the slowest rank: time lost is its busy "
                      "time minus each other's, summed. Blocked: all ranks in "
                      "all of the layer, until others come and by transfers.",
                      NULL, error));
    MP_TRY(page_timeline(page, run, error));
    MP_TRY(write_scatter(page, run, error));
    MP_TRY(write_routes(page, run, error));
    MP_AUTO(table) struct table table = {0};
    MP_TRY(phases_table(page->store, run->run_id, &table, error));
    page_table(page->out, &table, "Mean over iterations and ranks, ms.", "Phases, in numbers");
    MP_TRY(write_overhead(page, run, error));
    MP_TRY(page_query(page, facts_sql, run->run_id, facts_columns, 2, NULL, "Environment", error));
    return page_query(page, assumptions_sql, run->run_id, facts_columns, 2, NULL,
                      "What the prediction assumes", error);
}
