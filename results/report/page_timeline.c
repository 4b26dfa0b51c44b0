/* What ranks did when.  An iteration with few spans is shown span by span.  Of more, a rank's time
 * is cut into equal bins, each of which shows what most of it went to. */
#include "reference/base/arena.h"
#include "results/report/page.h"
#include "results/report/query.h"

enum {
    SLICES = 3,         /* iterations to choose from */
    EXACT_SPANS = 2500, /* in one of them */
    MOST_ROWS = 64,     /* ranks shown */
    MOST_CELLS = 9600   /* bins of all ranks */
};

/* One iteration. */
struct slice {
    int64_t iteration, origin_ns, length_ns;
    char label[96];
    json_t *exact; /* rows while there are few, else NULL */
    int spans;
    float *spent; /* [rows][bins][PAGE_FAMILIES] ns, in timeline.spent */
};

struct timeline {
    struct slice slice[SLICES];
    int slices, ranks, stride, bins; /* every stride-th rank is shown */
    size_t cells;                    /* of one slice's spent */
    float *spent;                    /* [SLICES][cells] */
    struct mp_arena memory;          /* of it */
};

static void release(struct timeline *timeline) {
    for (int i = 0; i < timeline->slices; i++)
        json_decref(timeline->slice[i].exact);
    mp_arena_release(&timeline->memory);
}
MP_END(timeline, struct timeline, release(it))

static const char slices_sql[] = PAGE_COUNTED
    ", placed AS (SELECT *, row_number() OVER (ORDER BY ms DESC, iteration) AS place, count(*) "
    "OVER () AS n FROM counted) SELECT iteration, start_ms, ms, CASE place WHEN 1 THEN 'the "
    "slowest' WHEN n THEN 'the fastest' ELSE 'the median' END FROM placed WHERE place IN (1, (n + "
    "1) / 2, n) ORDER BY place";

static const char spans_sql[] =
    "SELECT rank, iteration, start_ns, end_ns, wait_ns, " PAGE_FAMILY ", layer, phase, direction, "
    "phase = 'combine' AND direction IS NOT 1 FROM (SELECT rank.rank, iteration, start_ns, end_ns, "
    "wait_ns, layer, direction, phase.value AS phase FROM rank CROSS JOIN span ON span_id BETWEEN "
    "first_span AND last_span CROSS JOIN StringIds AS phase ON phase.id = phase_id WHERE "
    "rank.run_id = ?1 AND iteration IN (?2, ?3, ?4) AND rank.rank % ?5 = 0 AND stream_id = (SELECT "
    "id FROM StringIds WHERE value = 'compute')) WHERE phase NOT IN ('iteration', 'validate', "
    "'checkpoint')";

static int find_slices(struct page *page, int64_t run_id, struct timeline *timeline,
                       struct mp_error *error) {
    struct query query = query_begin(page->store, slices_sql, run_id, error);
    while (timeline->slices < SLICES && query_next(&query)) {
        struct slice *slice = &timeline->slice[timeline->slices];
        slice->spent = timeline->spent + (size_t)timeline->slices++ * timeline->cells;
        slice->iteration = sqlite3_column_int64(query.row, 0);
        slice->origin_ns = (int64_t)(query_double(query.row, 1) * 1e6 + 0.5);
        slice->length_ns = (int64_t)(query_double(query.row, 2) * 1e6 + 0.5);
        snprintf(slice->label, sizeof slice->label, "iteration %lld, %s: %.4g ms",
                 (long long)slice->iteration, query_text(query.row, 3), query_double(query.row, 2));
        slice->exact = json_array();
    }
    return query_end(&query);
}

/* Adds from..to, ns from the iteration's start, to the bins of a row. */
static void spend(const struct timeline *timeline, struct slice *slice, int row, int64_t from,
                  int64_t to, int family) {
    double bin_ns = (double)slice->length_ns / timeline->bins;
    int bin = bin_ns > 0 && from > 0 ? (int)((double)from / bin_ns) : 0;
    for (; bin < timeline->bins && (double)to > bin * bin_ns; bin++) {
        double start = bin * bin_ns, end = start + bin_ns;
        start = (double)from > start ? (double)from : start;
        end = (double)to < end ? (double)to : end;
        if (end > start)
            slice->spent[((size_t)row * (size_t)timeline->bins + (size_t)bin) * PAGE_FAMILIES +
                         (size_t)family] += (float)(end - start);
    }
}

/* Times in whole microseconds, which keep the file small. */
static int add_exact(struct slice *slice, int rank, int64_t from, int64_t to, int family,
                     const char *text) {
    if (!slice->exact || to <= from)
        return 0;
    if (slice->spans++ < EXACT_SPANS)
        return json_array_append_new(
            slice->exact, json_pack("[iIIio]", rank, (json_int_t)(from / 1000),
                                    (json_int_t)((to + 999) / 1000), family, text_value(text)));
    json_decref(slice->exact);
    slice->exact = NULL;
    return 0;
}

/* Own work comes before the waiting, but for the way back to tokens: profiler/straggler/graph.h. */
static int add_span(const struct timeline *timeline, struct slice *slice, sqlite3_stmt *row) {
    int rank = sqlite3_column_int(row, 0), family = sqlite3_column_int(row, 5);
    int64_t from = sqlite3_column_int64(row, 2) - slice->origin_ns;
    int64_t to = sqlite3_column_int64(row, 3) - slice->origin_ns;
    int64_t wait = sqlite3_column_int64(row, 4), middle;
    bool waits_first = sqlite3_column_int(row, 9);
    int first = waits_first ? PAGE_WAITING : family, last = waits_first ? family : PAGE_WAITING;
    char text[96], layer[24] = "";
    wait = wait < to - from ? wait : to - from;
    middle = waits_first ? from + wait : to - wait;
    if (sqlite3_column_int(row, 6) >= 0)
        snprintf(layer, sizeof layer, "layer %d ", sqlite3_column_int(row, 6));
    snprintf(text, sizeof text, "%s%.40s%s", layer, query_text(row, 7),
             sqlite3_column_type(row, 8) == SQLITE_NULL ? ""
             : sqlite3_column_int(row, 8)               ? " backward"
                                                        : " forward");
    spend(timeline, slice, rank / timeline->stride, from, middle, first);
    spend(timeline, slice, rank / timeline->stride, middle, to, last);
    return add_exact(slice, rank, from, middle, first, text) |
           add_exact(slice, rank, middle, to, last, text);
}

static int read_spans(struct page *page, int64_t run_id, struct timeline *timeline,
                      struct mp_error *error) {
    struct query query = query_begin(page->store, spans_sql, run_id, error);
    for (int i = 0; i < timeline->slices; i++)
        sqlite3_bind_int64(query.row, 2 + i, timeline->slice[i].iteration);
    sqlite3_bind_int(query.row, 2 + SLICES, timeline->stride);
    while (query_next(&query)) {
        int i = 0;
        while (timeline->slice[i].iteration != sqlite3_column_int64(query.row, 1))
            i++;
        if (add_span(timeline, &timeline->slice[i], query.row))
            query.code = mp_no_memory(error);
    }
    return query_end(&query);
}

/* What most of a bin went to; what is missing of half of it is no phase. */
static int family_of(const float spent[], double bin_ns) {
    int most = 0;
    double sum = 0;
    for (int f = 0; f < PAGE_FAMILIES; f++) {
        sum += (double)spent[f];
        if (spent[f] > spent[most])
            most = f;
    }
    return bin_ns - sum > (double)spent[most] ? PAGE_NO_PHASE : most;
}

/* Neighbours that show the same become one. */
static int add_bins(const struct timeline *timeline, const struct slice *slice, json_t *rows) {
    double bin_ns = (double)slice->length_ns / timeline->bins;
    int failed = 0;
    for (int rank = 0; rank < timeline->ranks; rank += timeline->stride) {
        const float *spent = slice->spent + (size_t)(rank / timeline->stride) *
                                                (size_t)timeline->bins * PAGE_FAMILIES;
        int from = 0, family = family_of(spent, bin_ns);
        for (int bin = 1; bin <= timeline->bins; bin++) {
            int next = bin < timeline->bins ? family_of(spent + bin * PAGE_FAMILIES, bin_ns) : -1;
            if (next == family)
                continue;
            if (family != PAGE_NO_PHASE)
                failed |=
                    json_array_append_new(rows, json_pack("[iiiin]", rank, from, bin, family));
            from = bin;
            family = next;
        }
    }
    return failed;
}

static json_t *choice_of(const struct timeline *timeline, struct slice *slice) {
    bool exact = slice->exact != NULL;
    json_t *rows = exact ? slice->exact : json_array();
    slice->exact = NULL;
    double unit = exact ? 1e-3 : (double)slice->length_ns / 1e6 / timeline->bins;
    if (!exact && add_bins(timeline, slice, rows)) {
        json_decref(rows);
        return NULL;
    }
    return page_choice(
        slice->label,
        json_pack("{s[sssss] so}", "columns", "rank", "from", "to", "family", "span", "rows", rows),
        json_pack("{sf si si sf}", "unit", unit, "ranks", timeline->ranks, "stride",
                  timeline->stride, "length", (double)slice->length_ns / 1e6));
}

static int write_timeline(struct page *page, struct timeline *timeline, struct mp_error *error) {
    char caption[400];
    MP_AUTO(json) json_t *choices = json_array();
    bool exact = true;
    for (int i = 0; i < timeline->slices; i++) {
        exact = exact && timeline->slice[i].exact;
        if (json_array_append_new(choices, choice_of(timeline, &timeline->slice[i])))
            return mp_no_memory(error);
    }
    int length =
        snprintf(caption, sizeof caption,
                 "A row per rank, what its own thread did over time (ms). Red: it was blocked "
                 "by others or transfers; pale or empty: outside any recorded phase.");
    if (!exact)
        length += snprintf(caption + length, sizeof caption - (size_t)length,
                           " Of many spans each of %d steps shows what most of it went to.",
                           timeline->bins);
    if (timeline->stride > 1)
        snprintf(caption + length, sizeof caption - (size_t)length,
                 " One of every %d ranks is shown.", timeline->stride);
    return page_figure(page, "timeline", "Timeline of one iteration", caption, "Iteration",
                       json_incref(choices), error);
}

int page_timeline(struct page *page, const struct report_run *run, struct mp_error *error) {
    MP_AUTO(timeline) struct timeline timeline = {.ranks = run->ranks};
    timeline.stride = (run->ranks + MOST_ROWS - 1) / MOST_ROWS;
    int shown = (run->ranks + timeline.stride - 1) / timeline.stride;
    timeline.bins = MOST_CELLS / shown < 400 ? MOST_CELLS / shown : 400;
    timeline.cells = (size_t)(shown * timeline.bins * PAGE_FAMILIES);
    MP_TAKE(&timeline.memory, timeline.spent, SLICES * timeline.cells);
    MP_TRY(mp_arena_check(&timeline.memory, error));
    MP_TRY(find_slices(page, run->run_id, &timeline, error));
    if (timeline.slices > 0)
        MP_TRY(read_spans(page, run->run_id, &timeline, error));
    return write_timeline(page, &timeline, error);
}
