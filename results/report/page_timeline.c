/* What ranks did when.  An iteration with few spans is shown span by span.  Of more, a rank's time
 * is cut into equal bins, each of which shows what most of it went to. */
#include "results/report/page.h"
#include "results/report/query.h"

enum {
    SLICES = 3,         /* iterations to choose from */
    EXACT_PARTS = 2500, /* of spans in one of them */
    MOST_ROWS = 64,     /* ranks shown */
    MOST_CELLS = 9600,  /* bins of all ranks */
    MOST_BINS = 400     /* of a rank */
};

/* One iteration. */
struct slice {
    int64_t iteration;
    double ms;
    char label[96];
    json_t *rows;
    bool is_binned;
};

struct timeline {
    struct slice slice[SLICES];
    int slices, ranks, stride, bins; /* every stride-th rank is shown */
};

static void release(struct timeline *timeline) {
    for (int i = 0; i < timeline->slices; i++)
        json_decref(timeline->slice[i].rows);
}
MP_END(timeline, struct timeline, release(it))

#define SLICED                                                                                     \
    PAGE_COUNTED ", placed AS (SELECT *, row_number() OVER (ORDER BY ms DESC, iteration) AS "      \
                 "place, count(*) OVER () AS n FROM counted), slice AS MATERIALIZED (SELECT "      \
                 "iteration, ms, place, n, CAST(start_ms * 1e6 + 0.5 AS INTEGER) AS origin, "      \
                 "CAST(ms * 1e6 + 0.5 AS INTEGER) AS length FROM placed WHERE place IN (1, (n + "  \
                 "1) / 2, n)) "

static const char slices_sql[] =
    SLICED "SELECT iteration, length, ms, CASE place WHEN 1 THEN 'the slowest' WHEN n THEN 'the "
           "fastest' ELSE 'the median' END FROM slice ORDER BY place";

/* What is drawn of every slice, whether that is bins, and its place in order; ?2: the ranks'
 * stride, ?3: bins, ?4: most parts of spans that are no bins.  A span is two parts: own work comes
 * before the waiting, but for the way back to tokens (profiler/straggler/graph.h).  Exact times are
 * whole microseconds, which keep the file small.  A bin that lacks more than it has of anything is
 * no phase, and neighbours that show the same become one. */
static const char rows_sql[] = SLICED
    ", own AS (SELECT span_id, rank.rank, iteration, length / (1.0 * ?3) AS width, start_ns - "
    "origin AS start, end_ns - origin AS until, min(wait_ns, end_ns - start_ns) AS wait, layer, "
    "direction, phase.value AS phase, phase.value = 'combine' AND direction IS NOT 1 AS "
    "waits_first FROM rank CROSS JOIN span ON span_id BETWEEN first_span AND last_span CROSS JOIN "
    "slice USING (iteration) CROSS JOIN StringIds AS phase ON phase.id = phase_id WHERE "
    "rank.run_id = ?1 AND rank.rank % ?2 = 0 AND span.iteration IN (SELECT iteration FROM slice) "
    "AND stream_id = (SELECT id FROM StringIds WHERE value = 'compute') AND phase.value NOT IN "
    "('iteration', 'validate', 'checkpoint')), "
    "half AS (SELECT *, iif(waits_first, start + wait, until - wait) AS middle, column1 AS part "
    "FROM own, (VALUES (0), (1))), "
    "part AS MATERIALIZED (SELECT *, count(*) OVER (PARTITION BY iteration) > ?4 AS is_binned "
    "FROM (SELECT span_id, part, rank, iteration, width, iif(part, middle, start) AS start, "
    "iif(part, until, middle) AS until, iif(part = waits_first, " PAGE_FAMILY ", 8) AS family, "
    "iif(layer < 0, '', 'layer ' || layer || ' ') || substr(phase, 1, 40) || CASE direction WHEN 0 "
    "THEN ' forward' WHEN 1 THEN ' backward' ELSE '' END AS text FROM half) WHERE until > start), "
    "cut AS (SELECT rank, iteration, width, family, start, until, CAST(max(start, 0) / width AS "
    "INTEGER) AS bin FROM part WHERE is_binned UNION ALL SELECT rank, iteration, width, family, "
    "start, until, bin + 1 FROM cut WHERE bin + 1 < ?3 AND until > (bin + 1) * width), "
    "spent AS (SELECT rank, iteration, width, bin, family, total(max(0, min(until, (bin + 1) * "
    "width) - max(start, bin * width))) AS ns FROM cut WHERE bin < ?3 GROUP BY iteration, rank, "
    "bin, family), "
    "most AS (SELECT *, total(ns) OVER bin AS whole, row_number() OVER (bin ORDER BY ns DESC, "
    "family) AS place FROM spent WINDOW bin AS (PARTITION BY iteration, rank, bin)), "
    "seen AS (SELECT *, bin - row_number() OVER (PARTITION BY iteration, rank, family ORDER BY "
    "bin) AS run FROM most WHERE place = 1 AND width - whole <= ns) "
    "SELECT iteration, is_binned, span_id AS first, part AS second, rank, start / 1000, (until + "
    "999) / 1000, family, text FROM part WHERE NOT is_binned UNION ALL SELECT iteration, 1, rank, "
    "min(bin), rank, min(bin), max(bin) + 1, family, NULL FROM seen GROUP BY iteration, rank, "
    "family, run ORDER BY first, second";
enum { ITERATION, IS_BINNED, SHOWN = 4 };

static int find_slices(struct page *page, int64_t run_id, struct timeline *timeline,
                       struct mp_error *error) {
    struct query query = query_begin(page->store, slices_sql, run_id, error);
    while (timeline->slices < SLICES && query_next(&query)) {
        struct slice *slice = &timeline->slice[timeline->slices++];
        slice->iteration = sqlite3_column_int64(query.row, 0);
        slice->ms = (double)sqlite3_column_int64(query.row, 1) / 1e6;
        snprintf(slice->label, sizeof slice->label, "iteration %lld, %s: %.4g ms",
                 (long long)slice->iteration, query_text(query.row, 3), query_double(query.row, 2));
        slice->rows = json_array();
    }
    return query_end(&query);
}

static int read_rows(struct page *page, int64_t run_id, struct timeline *timeline,
                     struct mp_error *error) {
    const int64_t values[] = {run_id, timeline->stride, timeline->bins, EXACT_PARTS};
    struct query query = {.store = page->store, .error = error};
    query.code = mp_store_query(page->store, rows_sql, values, 4, &query.row, error);
    while (query_next(&query)) {
        struct slice *slice = timeline->slice;
        json_t *row = json_array();
        while (slice->iteration != sqlite3_column_int64(query.row, ITERATION))
            slice++;
        slice->is_binned = sqlite3_column_int(query.row, IS_BINNED);
        for (int c = SHOWN; c < sqlite3_column_count(query.row); c++)
            json_array_append_new(row, query_value(query.row, c));
        if (json_array_append_new(slice->rows, row))
            query.code = mp_no_memory(error);
    }
    return query_end(&query);
}

static json_t *choice_of(const struct timeline *timeline, const struct slice *slice) {
    return page_choice(slice->label,
                       json_pack("{s[sssss] sO}", "columns", "rank", "from", "to", "family", "span",
                                 "rows", slice->rows),
                       json_pack("{sf si si sf}", "unit",
                                 slice->is_binned ? slice->ms / timeline->bins : 1e-3, "ranks",
                                 timeline->ranks, "stride", timeline->stride, "length", slice->ms));
}

static int write_timeline(struct page *page, const struct timeline *timeline,
                          struct mp_error *error) {
    char bins[96] = "", ranks[64] = "", caption[400];
    MP_AUTO(json) json_t *choices = json_array();
    for (int i = 0; i < timeline->slices; i++) {
        if (timeline->slice[i].is_binned)
            snprintf(bins, sizeof bins,
                     " Of many spans each of %d steps shows what most of it went to.",
                     timeline->bins);
        if (json_array_append_new(choices, choice_of(timeline, &timeline->slice[i])))
            return mp_no_memory(error);
    }
    if (timeline->stride > 1)
        snprintf(ranks, sizeof ranks, " One of every %d ranks is shown.", timeline->stride);
    snprintf(
        caption, sizeof caption,
        "A row per rank, what its own thread did over time (ms). Red: it was blocked by others "
        "or transfers; pale or empty: outside any recorded phase.%s%s",
        bins, ranks);
    return page_figure(page, "timeline", "Timeline of one iteration", caption, "Iteration",
                       json_incref(choices), error);
}

int page_timeline(struct page *page, const struct report_run *run, struct mp_error *error) {
    const int stride = (run->ranks + MOST_ROWS - 1) / MOST_ROWS;
    const int cells = MOST_CELLS / ((run->ranks + stride - 1) / stride);
    MP_AUTO(timeline)
    struct timeline timeline = {
        .ranks = run->ranks, .stride = stride, .bins = cells < MOST_BINS ? cells : MOST_BINS};
    MP_TRY(find_slices(page, run->run_id, &timeline, error));
    if (timeline.slices > 0)
        MP_TRY(read_rows(page, run->run_id, &timeline, error));
    return write_timeline(page, &timeline, error);
}
