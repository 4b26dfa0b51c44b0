/* Whose GPU work is, beside spans in any order, nested, crossing, empty and with equal ends: as a
 * search of all of the rank's spans says for each piece by itself. */
#include "tests/records.h"
#include "tests/results/runs.h"

#include "profiler/record/format.h"

enum { RANKS = 2, RUNS = 12, SPANS_MOST = 300, RECORDS_MOST = 400, LENGTH_MOST = 4000 };

/* Starts of the spans of the rank that is being recorded. */
static int64_t starts[SPANS_MOST];
static int span_count;

/* Most follow each other, some lie anywhere, some begin with another one, some end when or before
 * they begin. */
static void record_spans(struct runs_rank *own, uint64_t *random, int64_t length) {
    span_count = test_random_int(random, 1, SPANS_MOST);
    for (int i = 0; i < span_count; i++) {
        int64_t start = i * length / span_count;
        int64_t lasts = test_random_int(random, -2, (int)(3 * length / span_count) + 1);
        if (test_random_int(random, 0, 5) == 0)
            start = test_random_int(random, 0, (int)length);
        if (i > 0 && test_random_int(random, 0, 8) == 0)
            start = starts[test_random_int(random, 0, i - 1)];
        if (test_random_int(random, 0, 5) == 0)
            lasts = test_random_int(random, 0, (int)length);
        starts[i] = start;
        mp_record_span(test_random_int(random, 0, 5) ? own->compute : own->comm,
                       &(struct mp_span){.start_ns = RUNS_T0 + start,
                                         .end_ns = RUNS_T0 + start + lasts,
                                         .cpu_ns = -1,
                                         .tokens = -1,
                                         .bytes = -1,
                                         .flops = -1,
                                         .phase = MP_PHASE_EXPERT,
                                         .direction = MP_FORWARD});
    }
}

/* Times near which something begins or ends are the interesting ones. */
static int64_t choose_time(uint64_t *random, int64_t length) {
    if (test_random_int(random, 0, 1))
        return RUNS_T0 + starts[test_random_int(random, 0, span_count - 1)] +
               test_random_int(random, -1, 1);
    return RUNS_T0 + test_random_int(random, -20, (int)length + 20);
}

/* Calls, each with a copy; the end of a call is the time that its external id names, so that a
 * query finds it in the tables. */
static void record_work(struct runs_rank *own, uint64_t *random, int64_t length) {
    int count = test_random_int(random, 1, RECORDS_MOST);
    for (int i = 0; i < count; i++) {
        struct mp_activity is = {.start_ns = choose_time(random, length),
                                 .correlation = (uint32_t)i + 1,
                                 .kind = MP_ACTIVITY_CALL};
        const struct mp_collective began = {.start_ns = choose_time(random, length), .ranks = 1};
        if (test_random_int(random, 0, 1))
            is.end_ns = choose_time(random, length);
        put_activity(own->compute, is);
        put_collective(own->compute, began);
        is.kind = MP_ACTIVITY_COPY;
        put_activity(own->compute, is);
        is.kind = MP_ACTIVITY_LINK;
        is.value = (uint64_t)is.end_ns;
        if (is.end_ns)
            put_activity(own->compute, is);
    }
}

static int64_t add_run(struct runs_folder *folder, uint64_t *random) {
    struct mp_store_run description = runs_description("ep", "skewed");
    struct runs_rank spans[RANKS], work[RANKS];
    int64_t length = test_random_int(random, 100, LENGTH_MOST);
    for (int r = 0; r < RANKS; r++) {
        runs_rank_open(folder, r, RANKS, &spans[r]);
        record_spans(&spans[r], random, length);
        runs_rank_open(folder, r, RANKS, &work[r]);
        record_work(&work[r], random, length);
        runs_rank_close(&work[r], MP_OK, "");
    }
    const char *collected[] = {work[0].path, work[1].path};
    const int64_t run_id = runs_ingest(folder, &description, spans, RANKS);
    assert_works(mp_store_add_device(folder->store, run_id, collected, RANKS, &error));
    return run_id;
}

#define OF_ITS_RANK                                                                                \
    "FROM v_span WHERE v_span.run_id = work.run_id AND v_span.rank = work.rank AND stream <> "     \
    "'comm' AND "
/* The innermost: of those that contain the time the last to begin, then the first to end. */
#define INNERMOST_AT(time)                                                                         \
    "(SELECT v_span.span_id " OF_ITS_RANK "start_ns <= " time " AND end_ns > " time                \
    " ORDER BY start_ns DESC, end_ns, v_span.span_id DESC LIMIT 1)"
#define STARTING_AT(time)                                                                          \
    "(SELECT v_span.span_id " OF_ITS_RANK "start_ns = " time                                       \
    " ORDER BY end_ns, v_span.span_id DESC LIMIT 1)"
#define OF_CALL "coalesce(" STARTING_AT("work.\"end\"") ", " INNERMOST_AT("work.start") ")"

RUNS_TEST(work_has_the_span_that_a_search_finds) {
    uint64_t random = test_seed();
    for (int i = 0; i < RUNS; i++)
        add_run(folder, &random);
    assert_rows(
        folder->store,
        "SELECT count(*) FROM CUPTI_ACTIVITY_KIND_RUNTIME AS work WHERE span_id IS NOT " OF_CALL,
        "0");
    assert_rows(
        folder->store,
        "SELECT count(*) FROM CUPTI_ACTIVITY_KIND_MEMCPY AS work WHERE span_id IS NOT " OF_CALL,
        "0");
    assert_rows(folder->store,
                "SELECT count(*) FROM collective AS work WHERE span_id IS NOT " INNERMOST_AT(
                    "work.queue_start_ns"),
                "0");
    assert_rows(
        folder->store,
        "SELECT count(span_id) > 0, count(span_id) < count(*) FROM CUPTI_ACTIVITY_KIND_RUNTIME",
        "1|1");
}
