/* What the charts and tables of the HTML report show, row by row, by hand. */
#include "tests/results/report/pages.h"

/* The second of three runs, made long and wide by hand: iterations 5 .. 405, of which 8 .. count,
 * in each of 11 layers and outside them what iteration 0 and validation have, 128 experts, and 26
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
        "WHERE i < 405) SELECT i FROM i;"
        "CREATE TEMP VIEW l AS SELECT i - 1 AS l FROM i WHERE i < 12;"
        "INSERT OR IGNORE INTO StringIds (value) VALUES ('checkpoint'), ('record-bytes'), "
        "('nvtx-lost');"
        "INSERT INTO iteration_summary SELECT run_id, i, ranks, i > 7, start_ns, i * i, tokens, "
        "iif(i > 5, i * i, NULL), NULL, NULL, 0, 0, 0, 0 FROM iteration_summary, i WHERE run_id = "
        "2 AND iteration = 0 AND i > 4; DELETE FROM iteration_summary WHERE run_id = 2 AND "
        "iteration < 5;"
        "INSERT INTO imbalance_summary SELECT run_id, i, l, 128, 1, 0, iif(l = 1, NULL, i * i / "
        "(1.0 + l) + 2e6 * (l = 7 AND i = 9)), i, 1, 0, 0 FROM imbalance_summary, i, l WHERE "
        "run_id = 2 AND iteration = 0 AND layer = 0 AND i > 4 AND l BETWEEN 0 AND 8; DELETE FROM "
        "imbalance_summary WHERE run_id = 2 AND iteration < 5;"
        "INSERT INTO load SELECT run_id, rank, i, layer, (SELECT json_group_array(iif(layer, 7, "
        "i.i * iif(rank, e.i * e.i, e.i))) FROM i AS e WHERE e.i < 128), NULL FROM load, i WHERE "
        "run_id = 2 AND iteration = 0 AND i > 4; DELETE FROM load WHERE run_id = 2 AND iteration < "
        "5;"
        "INSERT INTO straggler_summary SELECT run_id, i, l, iif(value = 'validate' AND l % 2, "
        "(SELECT id FROM StringIds WHERE value = 'checkpoint'), phase_id), ranks, max_ns + 6000 * "
        "i * ((l + 1) / 2) * iif(value = 'validate', 9, 1), sum_ns, min_ns, wait_ns + 1000 * i * "
        "abs(l), iif(i % 5 = 4, 0, 1 + i % 5 % 2), 60 + i, 2 * (60 + i % 7) * (i > 5) FROM "
        "straggler_summary JOIN StringIds ON phase_id = id, i, l WHERE run_id = 2 AND iteration IN "
        "(0, 4) AND i > 4; DELETE FROM straggler_summary WHERE run_id = 2 AND iteration < 5;"
        "INSERT INTO number SELECT run_id, rank, -1, -1, id, 1e6 * (1 + rank) * (1 + (value = "
        "'nvtx-lost')) FROM rank, StringIds WHERE value IN ('record-bytes', 'nvtx-lost');"
        "UPDATE rank SET clock_error_ns = clock_error_ns * run_id;"
        "INSERT INTO rank SELECT run_id, i, iif(i % 3 = 2, 'failed', 'cut'), iif(i > 5, 'reason ' "
        "|| i, NULL), 0, '', 1, NULL, NULL, 0, 'samples', 0 FROM rank, i WHERE rank = 0 AND i "
        "BETWEEN 2 AND 27;"
        "INSERT INTO fact SELECT run_id, i % 2, 'name' || i, printf('%.*c', 340 + i, 'x') || i "
        "FROM run, i WHERE i < 60; INSERT INTO fact SELECT run_id, 0, 'assumption.' || i, 'of ' || "
        "run_id FROM run, i WHERE i < 2");
}

/* One of so many rows. */
static void assert_row(const json_t *rows, size_t count, size_t at, const char *expected) {
    assert_int_equal(json_array_size(rows), count);
    assert_json(json_array_get(rows, at), 1e-4, expected);
}

/* Bins of 3 iterations, of 11, and of 2 experts.  5 .. 15 have a mean square of 110.  Experts e get
 * e and e * e: in pairs 16129 is most, of a mean of 5461.  Of 4400 points 500 are shown and each
 * third of the others. */
RUNS_TEST(many_share_a_bin) {
    add_long_run(folder);
    AUTO(text) char *page = page_of(folder);
    AUTO(json) json_t *data = data_of(page);
    assert_row(rows_of(data, "iteration-time", 0), 135, 0, "['ep', 5, 25, 25, 0]");
    assert_row(rows_of(data, "iteration-time", 0), 135, 1, "['ep', 6, 49.6667, 64, 1]");
    assert_row(rows_of(data, "loss", 0), 134, 0, "['ep', 6, 49.6667]");
    assert_row(rows_of(data, "phases", 0), 6, 4, "['ep', 7, 0.164589]");
    assert_row(rows_of(data, "phases", 0), 6, 5, "['ep', 8, 0.011222]"); /* 4.5 ms in 401 */
    assert_row(rows_of(data, "imbalance", 0), 296, 0, "[5, 0, 110, 10]");
    assert_row(rows_of(data, "imbalance", 0), 296, 295, "[401, 8, 18045.667, 403]");
    assert_row(rows_of(data, "experts", 0), 2368, 0, "[5, 0, 0]");
    assert_row(rows_of(data, "experts", 0), 2368, 63, "[5, 126, 2.95]");
    assert_row(rows_of(data, "experts", 0), 2368, 2367, "[401, 126, 2.95]");
    assert_row(rows_of(data, "scatter", 0), 1800, 0, "[10, 405, 1, 7.045, 28.5]");
    assert_json(
        choices_of(data, "experts", 0), 0,
        "[{'label': 'layer 0, the most uneven (fullest expert 55425.00 x mean)'}, {'label': "
        "'layer 2 (fullest expert 18475.00 x mean)'}, {'label': 'layer 7 (fullest expert "
        "11915.66 x mean)'}, {'label': 'layer 8, the most even (fullest expert 6158.33 x "
        "mean)'}]");
    assert_json(choices_of(data, "timeline", 0), 0,
                "[{'label': 'iteration 405, the slowest: 1.64e+05 ms'}, {'label': 'iteration 207, "
                "the median: 4.285e+04 ms'}, {'label': 'iteration 8, the fastest: 64 ms'}]");
}

/* Iterations 8 .. 405, 206.5 on average: of 2 * 8 ms and twelve times 5 us of each 12 ms are not
 * lost, of attention nothing; 2.25 ms are blocked, and 36 us of each; 266.5 tokens beside 63.  Of
 * facts 60 are shown, of ranks 20 rows. */
RUNS_TEST(tables_of_a_run_have_their_rows) {
    add_long_run(folder);
    AUTO(text) char *page = page_of(folder);
    *strstr(page, "<h2>tiny: other") = '\0';
    assert_contains(
        page,
        "<tbody><tr><th scope=\"row\" class=\"words\">2 … 5</th><td>2</td><td "
        "class=\"words\">failed</td><td class=\"words long\">–</td></tr>\n"
        "<tr><th scope=\"row\" class=\"words\">3 … 4</th><td>2</td>",
        ">reason 23</td></tr>\n</tbody>",
        "<tbody><tr><th scope=\"row\" class=\"words\">layer 9 expert</th><td>16.390</td>"
        "<td>9.684</td><td>1</td><td>40</td><td>4.23</td></tr>\n<tr><th scope=\"row\" "
        "class=\"words\">layer 10 expert</th><td>16.390</td><td>10.510</td>",
        "layer 9 attention</th><td>12.390</td><td>9.684</td><td>1</td><td>40</td><td>4.23"
        "</td></tr>\n<tr><th scope=\"row\" class=\"words\">layer 9 combine</th><td>12.390</td>"
        "<td>9.684</td><td>1</td><td>40</td><td>4.23</td></tr>\n</tbody>",
        "58 in all, 3.00 MB of spools, 6000000 lost. Clocks of the ranks agree to 3.4 µs",
        "<tbody><tr><th scope=\"row\" class=\"words\">host</th><td class=\"words long\">"
        "first</td></tr>\n<tr><th scope=\"row\" class=\"words\">host</th><td class=\"words "
        "long\">second</td></tr>\n<tr><th scope=\"row\" class=\"words\">name0<",
        ">name58<", ">name8<",
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
    runs_execute(folder->store,
                 "UPDATE run SET ranks = 3 WHERE run_id = 6; UPDATE run_summary SET "
                 "ms_per_iteration = NULL WHERE run_id = 8; INSERT INTO fact SELECT run_id, 0, "
                 "column1, column1 || ' of ' || run_id FROM run, (VALUES ('a'), ('cluster'))");
    make_library(folder);
    static const struct {
        int64_t id;
        const char *rows, *cluster;
    } cases[] = {{12, "[['ep', 24, 32]]", ">cluster of 3<"},
                 {13, "[['ep', 24, 30]]", ">cluster of 1<"},
                 {3, "[['ep', 34, 32]]", ">cluster of 3<"}}; /* itself predicted */
    for (int i = 0; i < 3; i++) {
        write_report(folder, &(struct mp_report_selection){.run_id = cases[i].id}, path);
        AUTO(text) char *page = file_text(path);
        AUTO(json) json_t *data = data_of(page);
        compare_rows(data, "predicted", cases[i].rows);
        assert_contains(page, cases[i].cluster);
    }
}

/* One iteration span by span, and two longer ones with too many, in bins of 1 and 0.5 ms: what most
 * of each went to, neighbours together.  By hand. */
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
    static const struct runs_span whole = {
        MP_PHASE_ITERATION, MP_NO_DIRECTION, 1200000, 200000, 0, -1, -1, -1, false};
    /* Rank 1's, in iteration 0 before, across and behind its ends; between others, half of a bin,
     * most of what is there, as much as another, longer than it and mostly in the next. */
    enum { F = MP_FORWARD, B = MP_BACKWARD, N = MP_NO_DIRECTION };
    static const struct {
        int phase, direction, start, length, wait;
    } second[] = {
        {MP_PHASE_FETCH, F, -9000, 4000, 0},       {MP_PHASE_FETCH, F, -3000, 5000, 0},
        {MP_PHASE_FETCH, F, 59000, 1000, 0},       {MP_PHASE_EXPERT, F, 60000, 500, 0},
        {MP_PHASE_FETCH, F, 61000, 1000, 0},       {MP_PHASE_FETCH, F, 70000, 400, 0},
        {MP_PHASE_ATTENTION, F, 70400, 300, 0},    {MP_PHASE_FETCH, F, 72000, 400, 0},
        {MP_PHASE_ATTENTION, F, 72400, 400, 0},    {MP_PHASE_ATTENTION, F, 80000, 600, 0},
        {MP_PHASE_FETCH, F, 80900, 2100, 0},       {MP_PHASE_MOVE, F, 398000, 5000, 0},
        {MP_PHASE_MOVE, F, 900000, 1000, 0},       {MP_PHASE_COMBINE, B, 402000, 1000, 500},
        {MP_PHASE_COMBINE, N, 403000, 1000, 400},  {MP_PHASE_WEIGHTS, B, 404000, 100, 0},
        {MP_PHASE_REDUCE, B, 404200, 100, 0},      {MP_PHASE_ALLREDUCE, N, 404400, 100, 0},
        {MP_PHASE_PLAN, N, 404600, 100, 0},        {MP_PHASE_WAIT, N, 404800, 100, 0},
        {MP_PHASE_MOVE, N, 405000, 100, 0},        {MP_PHASE_GATE, N, 405200, 100, 0},
        {MP_PHASE_DATA, N, 406000, 1000, 2000},    {MP_PHASE_VALIDATE, N, 408000, 1000, 0},
        {MP_PHASE_CHECKPOINT, N, 409000, 1000, 0}, {MP_PHASE_EXPERT, F, 1200000, 500, 0},
        {MP_PHASE_FETCH, F, 1200500, 500, 0},      {MP_PHASE_ATTENTION, F, 1201000, 500, 0},
        {MP_PHASE_FETCH, F, 1201500, 500, 0}};
    struct mp_store_run run = runs_description("ep", "text");
    struct runs_rank rank[2];
    for (int r = 0; r < 2; r++) {
        runs_rank_open(folder, r, 2, &rank[r]);
        rank[r].rank = 0; /* with its clock */
    }
    runs_record_all(&rank[0], 0, long_ones);
    for (int i = 0; i < 2 * MANY; i++)
        runs_record_one(&rank[0], i / MANY * 2, MP_PHASE_EXPERT, MP_FORWARD,
                        i / MANY * 1200000 + i % MANY * 50, 50, 0, 0, -1, -1, false);
    runs_record_all(&rank[0], 1, few);
    runs_record(&rank[0], 2, &whole);
    for (size_t i = 0; i < sizeof second / sizeof *second; i++)
        runs_record_one(&rank[1], second[i].start < 1200000 ? second[i].start / 400000 == 1 : 2,
                        (enum mp_phase)second[i].phase, (enum mp_direction)second[i].direction,
                        second[i].start, second[i].length, second[i].wait,
                        second[i].phase == MP_PHASE_DATA ? -1 : 0, -1, -1, false);
    runs_ingest(folder, &run, rank, 2);
    runs_execute(folder->store, "UPDATE iteration_summary SET steady = 0");
    run.workload = "other";
    runs_add(folder, &run, &runs_ep);
    runs_execute(folder->store, "UPDATE run SET ranks = 65 WHERE run_id = 2");
    AUTO(text) char *page = page_of(folder);
    AUTO(json) json_t *data = data_of(page);
    const json_t *choices = choices_of(data, "timeline", 0);
    /* Ranks 0 and 1 work for 0.75 and 0 ms on their data in one of three iterations. */
    assert_contains(page, "each of 400 steps", ">data</th><td>0.250</td>");
    assert_json(rows_in(choices, 0), 0,
                "[[0, 0, 130, 0, null], [0, 150, 200, 1, null], [0, 210, 214, 8, null], [0, 214, "
                "220, 3, null], [0, 230, 236, 3, null], [0, 236, 240, 8, null], [0, 250, 251, 1, "
                "null], [1, 0, 2, 4, null], [1, 59, 60, 4, null], [1, 60, 61, 0, null], [1, 61, "
                "62, 4, null], [1, 70, 71, 4, null], [1, 72, 73, 1, null], [1, 80, 81, 1, null], "
                "[1, 81, 83, 4, null], [1, 398, 400, 4, null]]");
    assert_json(rows_in(choices, 1), 0,
                "[[0, 0, 260, 0, null], [1, 0, 1, 0, null], [1, 1, 2, 4, null], [1, 2, 3, 1, "
                "null], [1, 3, 4, 4, null]]");
    assert_json(
        rows_in(choices, 2), 0,
        "[[0, 1000, 2000, 1, 'layer 2 attention backward'], [0, 3000, 3500, 8, 'combine "
        "forward'], [0, 3500, 5000, 3, 'combine forward'], [0, 6000, 6750, 6, 'data'], [0, "
        "6750, 7000, 8, 'data'], [1, 2000, 2500, 3, 'layer 0 combine backward'], [1, 2500, "
        "3000, 8, 'layer 0 combine backward'], [1, 3000, 3400, 8, 'layer 0 combine'], [1, "
        "3400, 4000, 3, 'layer 0 combine'], [1, 4000, 4100, 0, 'layer 0 weights backward'], "
        "[1, 4200, 4300, 4, 'layer 0 reduce backward'], [1, 4400, 4500, 5, 'layer 0 "
        "allreduce'], [1, 4600, 4700, 6, 'layer 0 plan'], [1, 4800, 4900, 8, 'layer 0 wait'], "
        "[1, 5000, 5100, 4, 'layer 0 move'], [1, 5200, 5300, 2, 'layer 0 gate'], [1, 6000, "
        "7000, 8, 'data']]");
    assert_json(choices, 1e-9,
                "[{'signals': {'unit': 1, 'ranks': 2, 'stride': 1, 'length': 400}},"
                " {'signals': {'unit': 0.5}}, {'signals': {'unit': 0.001, 'length': 10}}]");
    /* Of more than 64 ranks every second, whose 6 parts are those of rank 0. */
    choices = choices_of(data, "timeline", 1);
    assert_json(choices, 0, "[{'signals': {'ranks': 65, 'stride': 2}}, {}, {}]");
    assert_int_equal(json_array_size(rows_in(choices, 0)), 6);
}
