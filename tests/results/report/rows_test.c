/* What the charts and tables of the HTML report show, row by row, by hand. */
#include "tests/results/report/pages.h"

/* The second of three runs, made long and wide by hand: iterations 5 .. 404, of which 7 .. count,
 * in each of 11 layers and outside them what iteration 0 and validation have, 65 experts, and 26
 * more ranks. */
static void add_long_run(struct runs_folder *folder) {
    struct mp_store_run run = runs_description("ep", "text");
    run.suite_run = "tiny-0";
    runs_add(folder, &run, &runs_fssdp);
    runs_add_usual(folder, "ep", &runs_ep);
    run = runs_description("ep", "other");
    runs_add(folder, &run, &runs_fssdp);
    runs_execute(
        folder->store,
        "CREATE TEMP TABLE i AS WITH RECURSIVE i(i) AS (VALUES (0) UNION ALL SELECT i + 1 FROM i "
        "WHERE i < 404) SELECT i FROM i;"
        "CREATE TEMP VIEW l AS SELECT i - 1 AS l FROM i WHERE i < 12;"
        "INSERT OR IGNORE INTO StringIds (value) VALUES ('checkpoint'), ('record-bytes'), "
        "('nvtx-lost');"
        "INSERT INTO iteration_summary SELECT run_id, i, ranks, i > 6, start_ns, i * i, tokens, "
        "iif(i > 5, i * i, NULL), NULL, NULL, 0, 0, 0, 0 FROM iteration_summary, i WHERE run_id = "
        "2 AND iteration = 0 AND i > 4; DELETE FROM iteration_summary WHERE run_id = 2 AND "
        "iteration < 5;"
        "INSERT INTO imbalance_summary SELECT run_id, i, l, 65, 1, 0, iif(l = 1, NULL, i * i / "
        "(1.0 "
        "+ l) + 2e6 * (l = 7 AND i = 9)), i, 1, 0, 0 FROM imbalance_summary, i, l WHERE run_id = 2 "
        "AND iteration = 0 AND layer = 0 AND i > 4 AND l BETWEEN 0 AND 7; DELETE FROM "
        "imbalance_summary WHERE "
        "run_id = 2 AND iteration < 5;"
        "INSERT INTO load SELECT run_id, rank, i, layer, (SELECT json_group_array(iif(layer, 7, "
        "iif(rank, e.i * e.i, e.i))) FROM i AS e WHERE e.i < 65), NULL FROM load, i WHERE run_id = "
        "2 AND iteration = 0 AND i > 4; DELETE FROM load WHERE run_id = 2 AND iteration < 5;"
        "INSERT INTO straggler_summary SELECT run_id, i, l, iif(value = 'validate' AND l % 2, "
        "(SELECT id FROM StringIds WHERE value = 'checkpoint'), phase_id), ranks, max_ns + 1000 * "
        "i "
        "* (l + 1) * iif(value = 'validate', 9, 1), sum_ns, min_ns, wait_ns + 1000 * i * abs(l), i "
        "% "
        "5 < 3, 60 + i, 2 * (60 + i % 7) * (i > 5) "
        "FROM straggler_summary JOIN StringIds ON phase_id = id, i, l WHERE run_id = 2 AND "
        "iteration "
        "IN (0, 4) AND i > 4; DELETE FROM straggler_summary WHERE run_id = 2 AND iteration < 5;"
        "INSERT INTO number SELECT run_id, rank, -1, -1, id, 1e6 * (1 + rank) * (1 + (value = "
        "'nvtx-lost')) FROM rank, StringIds WHERE value IN ('record-bytes', 'nvtx-lost');"
        "UPDATE rank SET clock_error_ns = clock_error_ns * run_id;"
        "INSERT INTO rank SELECT run_id, i, iif(i < 9, 'failed', 'cut'), iif(i > 5, 'reason ' || "
        "i, NULL), 0, '', 1, NULL, NULL, 0, 'samples', 0 FROM rank, i WHERE rank = 0 AND i BETWEEN "
        "2 AND 27;"
        "INSERT INTO fact SELECT run_id, i % 2, 'name' || i, printf('%.*c', 340 + i, 'x') || i "
        "FROM run, i WHERE i < 60; INSERT INTO fact SELECT run_id, 0, 'assumption.' || i, 'of ' || "
        "run_id FROM run, i WHERE i < 2");
}

/* One of so many rows. */
static void assert_row(const json_t *rows, size_t count, size_t at, const char *expected) {
    assert_int_equal(json_array_size(rows), count);
    assert_json(json_array_get(rows, at), 1e-4, expected);
}

/* Bins of 2 iterations, of 10, and of 2 experts.  5 .. 14 have a mean square of 98.5.  Experts e
 * get e and e * e: in pairs 4160 is most, of a mean of 1449.7.  Of 4389 points 500 are shown and
 * each third of the others. */
RUNS_TEST(many_share_a_bin) {
    add_long_run(folder);
    AUTO(text) char *page = page_of(folder);
    AUTO(json) json_t *data = data_of(page);
    assert_row(rows_of(data, "iteration-time", 0), 201, 0, "['ep', 5, 25, 25, 0]");
    assert_row(rows_of(data, "iteration-time", 0), 201, 1, "['ep', 6, 42.5, 49, 1]");
    assert_row(rows_of(data, "loss", 0), 200, 0, "['ep', 6, 42.5]");
    assert_row(rows_of(data, "phases", 0), 6, 4, "['ep', 7, 0.165]");
    assert_row(rows_of(data, "phases", 0), 6, 5, "['ep', 8, 0.01125]"); /* 4.5 ms in 400 */
    assert_row(rows_of(data, "imbalance", 0), 280, 0, "[5, 0, 98.5, 9.5]");
    assert_row(rows_of(data, "imbalance", 0), 280, 279, "[395, 7, 19951.06, 399.5]");
    assert_row(rows_of(data, "experts", 0), 1320, 0, "[5, 0, 0]");
    assert_row(rows_of(data, "experts", 0), 1320, 32, "[5, 64, 2.87]");
    assert_row(rows_of(data, "experts", 0), 1320, 1319, "[395, 64, 2.87]");
    assert_row(rows_of(data, "scatter", 0), 1797, 0, "[10, 404, 0, 7.138, 28.45]");
    assert_json(
        choices_of(data, "experts", 0), 0,
        "[{'label': 'layer 0, the most uneven (fullest expert 55153.50 x mean)'}, {'label': "
        "'layer 2 (fullest expert 18384.50 x mean)'}, {'label': 'layer 7 (fullest expert "
        "11894.19 x mean)'}, {'label': 'layer 6, the most even (fullest expert 7879.07 x "
        "mean)'}]");
    assert_json(choices_of(data, "timeline", 0), 0,
                "[{'label': 'iteration 404, the slowest: 1.632e+05 ms'}, {'label': 'iteration 206, "
                "the median: 4.244e+04 ms'}, {'label': 'iteration 7, the fastest: 49 ms'}]");
}

/* Iterations 7 .. 404, 205.5 on average: of 2 * 8 ms and 2 * 11 us of each 12 ms are not lost; 2.25
 * ms are blocked, and 40 us of each; 265.5 tokens beside 63.  Of facts 60 are shown, of ranks 20
 * rows. */
RUNS_TEST(tables_of_a_run_have_their_rows) {
    add_long_run(folder);
    AUTO(text) char *page = page_of(folder);
    *strstr(page, "<h2>tiny: other") = '\0';
    assert_contains(
        page,
        "<tbody><tr><th scope=\"row\" class=\"words\">2 … 5</th><td>4</td><td "
        "class=\"words\">failed</td><td class=\"words long\">–</td></tr>\n"
        "<tr><th scope=\"row\" class=\"words\">6</th><td>1</td>",
        ">reason 24</td></tr>\n</tbody>",
        "<tbody><tr><th scope=\"row\" class=\"words\">layer 10 expert</th><td>8.521</td>"
        "<td>10.470</td><td>1</td><td>60</td><td>4.21</td></tr>\n<tr><th scope=\"row\" "
        "class=\"words\">layer 9 expert</th><td>8.110</td>",
        "layer 3 expert</th><td>5.644</td><td>4.716</td><td>1</td><td>60</td><td>4.21"
        "</td></tr>\n</tbody>",
        "58 in all, 3.00 MB of spools, 6000000 lost. Clocks of the ranks agree to 3.4 µs",
        "<tbody><tr><th scope=\"row\" class=\"words\">host</th><td class=\"words long\">"
        "first</td></tr>\n<tr><th scope=\"row\" class=\"words\">host</th><td class=\"words "
        "long\">second</td></tr>\n<tr><th scope=\"row\" class=\"words\">name0<",
        ">name58<",
        "<tbody><tr><th scope=\"row\" class=\"words\">0</th><td class=\"words long\">of 2"
        "</td></tr>\n<tr><th scope=\"row\" class=\"words\">1</th><td class=\"words long\">of "
        "2</td></tr>\n</tbody>");
    assert_count(page, ">name9<", 0);  /* the 61st */
    assert_count(page, ">name59<", 0); /* too long */
}

/* Predictions take 31, 32, ... ms, the run 24.  Of its own invocation and job the last counts, or
 * else the last of its model and workload. */
RUNS_TEST(the_counterpart_is_of_the_same_thing) {
    enum { RIGHT, SYSTEM, EXECUTOR, RANKS, STATUS, TIME, MODEL, WORKLOAD, OWN, JOB };
    static const int kinds[] = {OWN,    RIGHT, RIGHT, SYSTEM,   EXECUTOR, RANKS,
                                STATUS, TIME,  MODEL, WORKLOAD, JOB};
    const int kinds_count = sizeof kinds / sizeof *kinds;
    char path[128];
    for (int i = 0; i < kinds_count; i++) {
        const int kind = kinds[i];
        struct runs_standard as = runs_ep;
        struct mp_store_run run =
            runs_description(kind == SYSTEM ? "fssdp" : "ep", kind >= WORKLOAD ? "other" : "text");
        run.executor = kind == EXECUTOR ? "measured" : "predicted";
        run.status = kind == STATUS ? "failed" : "complete";
        run.model = kind == OWN || kind == JOB || kind == MODEL ? "large" : NULL;
        run.suite_run = kind == OWN || kind == JOB ? "tiny-2" : "tiny-0";
        run.job = kind == JOB ? "another" : "ep";
        as.ms[1] = as.ms[2] = as.ms[3] = 30 + i;
        runs_add(folder, &run, &as);
    }
    struct mp_store_run run = runs_description("ep", "text");
    runs_add(folder, &run, &runs_ep);
    run.suite_run = "tiny-2";
    runs_add(folder, &run, &runs_ep);
    runs_execute(
        folder->store,
        "UPDATE run SET ranks = 3 WHERE run_id = 6; UPDATE run_summary SET ms_per_iteration "
        "= NULL WHERE run_id = 8; INSERT INTO fact SELECT run_id, 0, column1, column1 || "
        "' of ' || run_id FROM run, (VALUES ('a'), ('cluster'))");
    make_library(folder);
    for (int64_t id = 12; id < 14; id++) {
        write_report(folder, &(struct mp_report_selection){.run_id = id}, path);
        AUTO(text) char *page = file_text(path);
        AUTO(json) json_t *data = data_of(page);
        compare_rows(data, "predicted", id == 12 ? "[['ep', 24, 32]]" : "[['ep', 24, 30]]");
        assert_contains(page, id == 12 ? ">cluster of 3<" : ">cluster of 1<");
    }
}

/* One iteration span by span, and a longer one with too many, in bins of 1 ms: what most of each
 * went to, neighbours together.  By hand. */
RUNS_TEST(a_timeline_shows_spans_or_what_bins_went_to) {
    enum { MANY = 2600 };
    static const struct runs_span few[] = {
        {MP_PHASE_ITERATION, MP_NO_DIRECTION, 400000, 10000, 0, -1, -1, -1, false},
        {MP_PHASE_ATTENTION, MP_BACKWARD, 401000, 1000, 0, 2, -1, -1, false},
        {MP_PHASE_COMBINE, MP_FORWARD, 403000, 2000, 500, -1, -1, -1, false}, /* waits first */
        {MP_PHASE_FETCH, MP_FORWARD, 404000, 500, 0, -1, -1, -1, true},
        {MP_PHASE_DATA, MP_NO_DIRECTION, 406000, 1000, 250, -1, -1, -1, false},
    };
    static const struct runs_span long_ones[] = {
        {MP_PHASE_ITERATION, MP_NO_DIRECTION, 0, 400000, 0, -1, -1, -1, false},
        {MP_PHASE_ATTENTION, MP_FORWARD, 150000, 50400, 0, 0, -1, -1, false}, /* 0.4 of the last */
        {MP_PHASE_COMBINE, MP_FORWARD, 210000, 10000, 4000, 0, -1, -1, false},
        {MP_PHASE_DISPATCH, MP_FORWARD, 230000, 10000, 4000, 0, -1, -1, false},
        {MP_PHASE_EXPERT, MP_FORWARD, 250000, 300, 0, 0, -1, -1, false},
        {MP_PHASE_ATTENTION, MP_FORWARD, 250300, 700, 0, 1, -1, -1, false},
    };
    /* Rank 1's, in iteration 0 before, across and behind its ends; between others, half of a bin,
     * most of what is there, as much as another, longer than it and mostly in the next. */
    enum { F = MP_FORWARD, B = MP_BACKWARD, N = MP_NO_DIRECTION };
    static const struct {
        int phase, direction, start, length, wait;
    } second[] = {
        {MP_PHASE_FETCH, F, -9000, 4000, 0},      {MP_PHASE_FETCH, F, -3000, 5000, 0},
        {MP_PHASE_FETCH, F, 59000, 1000, 0},      {MP_PHASE_EXPERT, F, 60000, 500, 0},
        {MP_PHASE_FETCH, F, 61000, 1000, 0},      {MP_PHASE_FETCH, F, 70000, 400, 0},
        {MP_PHASE_ATTENTION, F, 70400, 300, 0},   {MP_PHASE_FETCH, F, 72000, 400, 0},
        {MP_PHASE_ATTENTION, F, 72400, 400, 0},   {MP_PHASE_ATTENTION, F, 80000, 600, 0},
        {MP_PHASE_FETCH, F, 80900, 2100, 0},      {MP_PHASE_MOVE, F, 398000, 5000, 0},
        {MP_PHASE_MOVE, F, 900000, 1000, 0},      {MP_PHASE_COMBINE, B, 402000, 1000, 500},
        {MP_PHASE_COMBINE, N, 403000, 1000, 400}, {MP_PHASE_WEIGHTS, B, 404000, 100, 0},
        {MP_PHASE_REDUCE, B, 404200, 100, 0},     {MP_PHASE_ALLREDUCE, N, 404400, 100, 0},
        {MP_PHASE_PLAN, N, 404600, 100, 0},       {MP_PHASE_WAIT, N, 404800, 100, 0},
        {MP_PHASE_MOVE, N, 405000, 100, 0},       {MP_PHASE_GATE, N, 405200, 100, 0},
        {MP_PHASE_DATA, N, 406000, 1000, 2000},   {MP_PHASE_VALIDATE, N, 408000, 1000, 0},
        {MP_PHASE_CHECKPOINT, N, 409000, 1000, 0}};
    struct mp_store_run run = runs_description("ep", "text");
    struct runs_rank rank[2];
    for (int r = 0; r < 2; r++) {
        runs_rank_open(folder, r, 2, &rank[r]);
        rank[r].rank = 0; /* with its clock */
    }
    runs_record_all(&rank[0], 0, long_ones);
    for (int i = 0; i < MANY; i++)
        runs_record_one(&rank[0], 0, MP_PHASE_EXPERT, MP_FORWARD, 50 * i, 50, 0, 0, -1, -1, false);
    runs_record_all(&rank[0], 1, few);
    for (size_t i = 0; i < sizeof second / sizeof *second; i++)
        runs_record_one(&rank[1], second[i].start / 400000 == 1, (enum mp_phase)second[i].phase,
                        (enum mp_direction)second[i].direction, second[i].start, second[i].length,
                        second[i].wait, second[i].phase == MP_PHASE_DATA ? -1 : 0, -1, -1, false);
    runs_ingest(folder, &run, rank, 2);
    runs_execute(folder->store, "UPDATE iteration_summary SET steady = 0");
    run.workload = "other";
    runs_add(folder, &run, &runs_ep);
    AUTO(text) char *page = page_of(folder);
    AUTO(json) json_t *data = data_of(page);
    const json_t *choices = choices_of(data, "timeline", 0);
    /* Ranks 0 and 1 work for 0.75 and 0 ms on their data in one of two iterations. */
    assert_contains(page, "each of 400 steps", ">data</th><td>0.375</td>");
    assert_json(json_object_get(json_object_get(json_array_get(choices, 0), "table"), "rows"), 0,
                "[[0, 0, 130, 0, null], [0, 150, 200, 1, null], [0, 210, 214, 8, null], [0, 214, "
                "220, 3, null], [0, 230, 236, 3, null], [0, 236, 240, 8, null], [0, 250, 251, 1, "
                "null], [1, 0, 2, 4, null], [1, 59, 60, 4, null], [1, 60, 61, 0, null], [1, 61, "
                "62, 4, null], [1, 70, 71, 4, null], [1, 72, 73, 1, null], [1, 80, 81, 1, null], "
                "[1, 81, 83, 4, null], [1, 398, 400, 4, null]]");
    assert_json(
        json_object_get(json_object_get(json_array_get(choices, 1), "table"), "rows"), 0,
        "[[0, 1000, 2000, 1, 'layer 2 attention backward'], [0, 3000, 3500, 8, 'combine "
        "forward'], [0, 3500, 5000, 3, 'combine forward'], [0, 6000, 6750, 6, 'data'], [0, "
        "6750, 7000, 8, 'data'], [1, 2000, 2500, 3, 'layer 0 combine backward'], [1, 2500, "
        "3000, 8, 'layer 0 combine backward'], [1, 3000, 3400, 8, 'layer 0 combine'], [1, "
        "3400, 4000, 3, 'layer 0 combine'], [1, 4000, 4100, 0, 'layer 0 weights backward'], "
        "[1, 4200, 4300, 4, 'layer 0 reduce backward'], [1, 4400, 4500, 5, 'layer 0 "
        "allreduce'], [1, 4600, 4700, 6, 'layer 0 plan'], [1, 4800, 4900, 8, 'layer 0 wait'], "
        "[1, 5000, 5100, 4, 'layer 0 move'], [1, 5200, 5300, 2, 'layer 0 gate'], [1, 6000, "
        "7000, 8, 'data']]");
    assert_json(json_object_get(json_array_get(choices, 0), "signals"), 1e-9,
                "{'unit': 1, 'ranks': 2, 'stride': 1, 'length': 400}");
    assert_json(json_object_get(json_array_get(choices, 1), "signals"), 1e-9,
                "{'unit': 0.001, 'ranks': 2, 'stride': 1, 'length': 10}");
}
