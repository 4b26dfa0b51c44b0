/* What is exported is read back: timelines nest and their arrows hang together, CSV and JSON say
 * what the database says. */
#include <jansson.h>
#include <signal.h>
#include <sys/resource.h>

#include "tests/harness/folder.h"
#include "tests/results/csv.h"
#include "tests/results/export/exported.h"

static bool exists(const char *path) {
    return access(path, F_OK) == 0;
}

/* ---- runs ---- */

/* Spans of both streams at random, so that many overlap without nesting. */
static void record_anything(struct runs_rank *own, int count, uint64_t *random) {
    for (int i = 0; i < count; i++) {
        bool in_flight = test_random_int(random, 0, 1);
        runs_record_one(
            own, i % 6 - 1, (enum mp_phase)test_random_int(random, 1, MP_PHASES - 1),
            (enum mp_direction)test_random_int(random, 0, 2), test_random_int(random, 0, 900),
            test_random_int(random, 0, 60) * test_random_int(random, 0, 4),
            test_random_int(random, 0, 3), test_random_int(random, -1, 2),
            test_random_int(random, -1, 500), test_random_int(random, -1, 500), in_flight);
    }
}

static void add_anything(struct runs_folder *folder, int count, uint64_t *random) {
    struct runs_rank ranks[2];
    struct mp_store_run run = runs_description("e\"p\\", "te\nx\tt\x01");
    for (int r = 0; r < 2; r++) {
        runs_rank_open(folder, r, 2, &ranks[r]);
        record_anything(&ranks[r], count, random);
        mp_record_text(ranks[r].compute, "odd", "\xff<script>\"'\\\x07 \xc3\xa9 \xc3");
    }
    runs_ingest(folder, &run, ranks, 2);
}

/* ---- timelines ---- */

/* More at a time than there are lanes: the rest are pairs, each with an id of its own.  Of
 * others, which follow one at once, more lie in each other than a lane takes. */
RUNS_TEST(what_fits_on_no_thread_is_a_pair) {
    struct runs_rank rank;
    enum { SPANS = 40, ON_THREADS = 32 };
    runs_rank_open(folder, 0, 1, &rank);
    runs_record_one(&rank, 0, MP_PHASE_GATE, MP_FORWARD, -9, 9, 0, 1, -1, -1, false);
    for (int i = 0; i < SPANS; i++) {
        runs_record_one(&rank, 0, MP_PHASE_FETCH, MP_FORWARD, i, 100, 0, 1, -1, -1, true);
        runs_record_one(&rank, 0, MP_PHASE_GATE, MP_FORWARD, 0, 1 + i, 0, 1, -1, -1, false);
    }
    struct mp_store_run run = runs_description("ep", "text");
    run.ranks = 1;
    runs_ingest(folder, &run, &rank, 1);
    json_t *all = timeline(folder, &everything), *event;
    int nested = -1, on_threads = 0, pairs = 0;
    size_t i;
    json_array_foreach(json_object_get(all, "traceEvents"), i, event) {
        const char *ph = trace_text(event, "ph");
        if (!strcmp(trace_text(event, "cat"), "compute")) {
            assert_int_equal(trace_number(event, "tid"), 1 + nested++ / 32);
        } else if (!strcmp(ph, "X")) {
            assert_int_equal(trace_number(event, "tid"), 1 + 32 + on_threads++);
        } else if (!strcmp(ph, "e")) {
            assert_int_equal(trace_number(event, "id"), 1 + SPANS + ON_THREADS + 1 + pairs);
            assert_int_equal(trace_ns(event, "ts"), (9 + ON_THREADS + pairs++ + 100) * 1000);
        }
    }
    assert_int_equal(on_threads, ON_THREADS);
    assert_int_equal(pairs, SPANS - ON_THREADS);
    assert_int_equal(exported.rows, 1 + 2 * SPANS);
    json_decref(all);
}

static void assert_is_there(struct runs_folder *folder, const json_t *event) {
    const json_t *args = json_object_get(event, "args");
    const char *sql = formatted(
        "SELECT count(*) > 0 FROM v_span WHERE rank = %lld AND phase = '%s' AND stream = '%s' AND "
        "start_ns = %lld AND end_ns = %lld AND iteration = %lld AND layer = %lld AND "
        "coalesce(tokens, "
        "0) = %lld AND coalesce(flops, 0) = %lld AND coalesce(direction, '') = '%s' AND wait_ns = "
        "%lld",
        trace_number(event, "pid"), trace_text(event, "name"), trace_text(event, "cat"),
        (long long)trace_ns(event, "ts"),
        (long long)(trace_ns(event, "ts") + trace_ns(event, "dur")),
        trace_number(args, "iteration"), trace_number(args, "layer"), trace_number(args, "tokens"),
        trace_number(args, "flops"), trace_text(args, "direction"), trace_number(args, "wait_ns"));
    assert_null(json_object_get(args, "cpu_ns")); /* not recorded */
    if (strcmp(runs_query(folder->store, sql), "1") != 0)
        fail_msg("not in the database: %s", sql);
}

/* What the database has and the timeline says, for every span, and for what experts got; of all
 * iterations, and of three of six. */
RUNS_TEST(every_span_is_there_as_it_was) {
    uint64_t random = test_seed();
    add_anything(folder, 240, &random);
    for (int chosen = 0; chosen < 2; chosen++) {
        const struct mp_results_selection some = {.some_iterations = chosen, .first = 1, .last = 3};
        AUTO(json) json_t *all = timeline(folder, &some);
        long long spans = 0, lanes = 0, counters = 0, tokens = 0;
        size_t i;
        json_t *event;
        json_array_foreach(json_object_get(all, "traceEvents"), i, event) {
            const char *ph = trace_text(event, "ph");
            spans += *ph == 'X' || *ph == 'b';
            lanes += !strcmp(trace_text(event, "name"), "thread_name");
            if (*ph == 'X')
                assert_is_there(folder, event);
            if (*ph == 'C') {
                counters++;
                tokens += (atoi(trace_text(event, "name") + strlen("layer ")) + 1) *
                          trace_number(json_object_get(event, "args"), "tokens");
            }
        }
        assert_numbers(spans, chosen ? 240 : 480, exported.rows, spans);
        assert_true(lanes > 4); /* more than the streams: some had to move over */
        assert_rows(
            folder->store,
            formatted("SELECT count(tokens) = %lld, total((layer + 1) * tokens) = %lld FROM "
                      "v_span WHERE stream = 'compute' AND phase = 'expert' AND direction = "
                      "'forward' AND iteration BETWEEN %d AND %d",
                      counters, tokens, chosen ? 1 : -1, chosen ? 3 : 9),
            "1|1");
    }
}

/* Rank 1 comes 3 ms late to a dispatch of two micro-batches, between others that nobody meets, on
 * its second lane; and clocks that can't be right, or that nobody knows. */
RUNS_TEST(arrows_go_from_the_last_to_the_others) {
    struct runs_rank ranks[3];
    for (int r = 0; r < 3; r++) {
        runs_rank_open(folder, r, 3, &ranks[r]);
        ranks[r].rank = 0; /* one clock */
        for (int other = 0; r == 1 && other < 3; other++)
            runs_record_one(&ranks[r], other == 0, MP_PHASE_DISPATCH,
                            other == 1 ? MP_BACKWARD : MP_FORWARD, 8000 + 10 * other, 5, 0,
                            other == 2 ? 1 : 2, 7, -1, false);
        for (int i = 0; r == 1 && i < 3; i++)
            runs_record_one(&ranks[r], 0, MP_PHASE_GATE, MP_FORWARD, (int[]){2900, 11900, 20400}[i],
                            300, 0, 2, -1, -1, false);
        runs_record_one(&ranks[r], 0, MP_PHASE_DISPATCH, MP_FORWARD, 0, 5000, 0, 2, 7, -1, true);
        for (int turn = 0; turn < 2; turn++)
            runs_record_one(&ranks[r], 0, MP_PHASE_DISPATCH, MP_FORWARD,
                            turn * 9000 + (r == 1 ? 3000 : r), r == 1 ? 1000 : 4000, 0, 2, 7, -1,
                            false);
        /* Rank 0 leaves the combine before rank 2 comes to it. */
        runs_record_one(&ranks[r], 0, MP_PHASE_COMBINE, MP_FORWARD, 20000 + r * 500, 600, 0, 2, -1,
                        -1, false);
    }
    struct mp_store_run run = runs_description("ep", "text");
    run.ranks = 3;
    runs_ingest(folder, &run, ranks, 3);
    AUTO(json)
    json_t *all = timeline(folder, &(struct mp_results_selection){.run_id = 1});
    static const struct {
        int64_t from, to, from_us, to_us;
    } expected[] = {{1, 0, 3000, 4000},
                    {1, 2, 3000, 4002},
                    {1, 0, 12000, 13000},
                    {1, 2, 12000, 13002},
                    {2, 1, 21000, 21100}};
    size_t i, found = 0;
    json_t *event;
    const json_t *start = NULL;
    json_array_foreach(json_object_get(all, "traceEvents"), i, event) {
        if (!strcmp(trace_text(event, "ph"), "s"))
            start = event;
        if (strcmp(trace_text(event, "ph"), "f") != 0)
            continue;
        assert_true(found < 5);
        assert_int_equal(trace_number(start, "id"), trace_number(event, "id"));
        assert_int_equal(trace_number(start, "pid"), expected[found].from);
        assert_int_equal(trace_number(event, "pid"), expected[found].to);
        assert_int_equal(trace_number(start, "tid"), expected[found].from == 1 ? 2 : 1);
        assert_int_equal(trace_number(event, "tid"), expected[found].to == 1 ? 2 : 1);
        assert_int_equal(trace_ns(start, "ts"), expected[found].from_us * 1000);
        assert_int_equal(trace_ns(event, "ts"), expected[found].to_us * 1000 - 1);
        assert_string_equal(trace_text(event, "name"), found < 4 ? "dispatch" : "combine");
        found++;
    }
    assert_int_equal(found, 5);
    assert_numbers(exported.flows, 5, exported.flows_left_out, 1);
    assert_int_equal(trace_number(json_object_get(all, "otherData"), "flows_left_out"), 1);
    runs_execute(folder->store, "UPDATE rank SET clock = 'wall clock' WHERE rank = 2");
    json_decref(timeline(folder, &everything));
    assert_numbers(exported.flows, 3, exported.flows_left_out, 3);
}

/* A nanosecond counts also after days, where a double of microseconds has its doubts. */
RUNS_TEST(times_keep_their_nanoseconds) {
    struct runs_rank rank;
    size_t size;
    runs_rank_open(folder, 0, 1, &rank);
    const int64_t starts[] = {5, 9007199254740993 + 5, 90071992547409931 + 5};
    for (int i = 0; i < 3; i++)
        mp_record_span(rank.compute, &(struct mp_span){.start_ns = starts[i],
                                                       .end_ns = starts[i] + (i == 1 ? -7 : 1),
                                                       .phase = MP_PHASE_GATE,
                                                       .direction = MP_NO_DIRECTION});
    struct mp_store_run run = runs_description("ep", "text");
    run.ranks = 1;
    runs_ingest(folder, &run, &rank, 1);
    assert_works(
        mp_results_perfetto(folder->store, &everything, out_path(folder), &exported, &error));
    AUTO(text) char *text = read_bytes(out_path(folder), &size);
    assert_contains(text, "\"ts\":0.000,\"dur\":0.001,", "\"ts\":9007199254740.993,\"dur\":0.000,",
                    "\"ts\":90071992547409.931,\"dur\":0.001,");
}

/* ---- CSV ---- */

/* Texts that are formulas to spreadsheets have an apostrophe in front. */
static const char *without_mark(const char *field) {
    return field[0] == '\'' && field[1] && strchr("=+-@\t\r", field[1]) ? field + 1 : field;
}

static void assert_csv_is(struct runs_folder *folder, const struct mp_results_selection *selection,
                          const char *view, const char *sql) {
    size_t size;
    sqlite3_stmt *row = NULL;
    struct csv_field field = {0};
    assert_works(
        mp_results_csv(folder->store, selection, view, out_path(folder), &exported, &error));
    char *text = read_bytes(out_path(folder), &size), *at = text;
    assert_int_equal(sqlite3_prepare_v2(mp_store_connection(folder->store), sql, -1, &row, NULL),
                     SQLITE_OK);
    for (int c = 0; c < sqlite3_column_count(row); c++)
        assert_string_equal((field = csv_next(&at)).text, sqlite3_column_name(row, c));
    assert_true(field.ends_line);
    int64_t rows = 0;
    for (; sqlite3_step(row) == SQLITE_ROW; rows++) {
        for (int c = 0; c < sqlite3_column_count(row); c++) {
            int type = sqlite3_column_type(row, c);
            field = csv_next(&at);
            assert_int_equal(!*field.text && !field.quoted, type == SQLITE_NULL);
            if (type == SQLITE_FLOAT)
                assert_true(strtod(field.text, NULL) == sqlite3_column_double(row, c));
            else if (type != SQLITE_NULL)
                assert_string_equal(without_mark(field.text),
                                    (const char *)sqlite3_column_text(row, c));
        }
        assert_true(field.ends_line);
    }
    assert_ptr_equal(at, text + size);
    assert_int_equal(rows, exported.rows);
    assert_true(rows > 0);
    sqlite3_finalize(row);
    free(text);
}

RUNS_TEST(csv_reads_back_as_the_view) {
    uint64_t random = test_seed();
    struct mp_store_run run = runs_description("e,p", " \"text\"\r\n,");
    run.gate = "";
    runs_add(folder, &run, &runs_ep);
    add_anything(folder, 50, &random);
    runs_execute(folder->store, "CREATE VIEW mine AS SELECT 0.1 + 0.2 AS sum, 1e300 AS most, '' AS "
                                "\"a \"\"name\"\"\", NULL AS none, 5.0 AS five; CREATE VIEW "
                                "v_mine AS SELECT 1 AS other");
    assert_csv_is(folder, &everything, "v_run", "SELECT * FROM v_run");
    assert_csv_is(folder, &everything, "speedup", "SELECT * FROM v_speedup");
    assert_csv_is(folder, &everything, "span", "SELECT * FROM v_span");
    assert_csv_is(folder, &everything, "v_iteration", "SELECT * FROM v_iteration");
    assert_csv_is(folder, &everything, "fact", "SELECT * FROM v_fact");
    assert_csv_is(folder, &everything, "mine", "SELECT * FROM mine");
    assert_csv_is(
        folder,
        &(struct mp_results_selection){.run_id = 1, .some_iterations = true, .first = 1, .last = 2},
        "span", "SELECT * FROM v_span WHERE run_id = 1 AND iteration IN (1, 2)");
}

/* Names that a spreadsheet would carry out; numbers stay numbers. */
RUNS_TEST(texts_are_no_formulas) {
    size_t size;
    runs_query(folder->store,
               "CREATE TEMP VIEW hostile AS SELECT '=cmd|x' AS a, '+1' AS b, '-1' AS c, "
               "'@sum' AS d, char(9) || '=1' AS e, char(13) || 'x' AS f, '=a,\"b\"' "
               "AS g, -1 AS h, -0.5 AS i, 'a=b' AS j, '' AS \"=head\"");
    assert_works(
        mp_results_csv(folder->store, &everything, "hostile", out_path(folder), &exported, &error));
    AUTO(text) char *text = read_bytes(out_path(folder), &size);
    assert_string_equal(text, "a,b,c,d,e,f,g,h,i,j,'=head\n"
                              "'=cmd|x,'+1,'-1,'@sum,'\t=1,\"'\rx\",\"'=a,\"\"b\"\"\",-1,-0.5,a=b,"
                              "\"\"\n");
}

RUNS_TEST(views_that_are_not_there_are_refused) {
    runs_add_usual(folder, "ep", &runs_ep);
    static const struct {
        const char *view, *says;
        struct mp_results_selection selection;
        int code;
    } cases[] = {
        {"v_dog", "there is no view v_dog in ", {0}, MP_EINVAL},
        {"span\"; DROP TABLE run; --", "v_speedup", {0}, MP_EINVAL},
        {"run", "there is no run 7;", {.run_id = 7}, MP_ENOTFOUND},
        {"phase", "no iterations", {.some_iterations = true, .last = 2}, MP_EINVAL},
        {"span", "the last is before", {.some_iterations = true, .first = 2, .last = 1}, MP_EINVAL},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        assert_fails(mp_results_csv(folder->store, &cases[i].selection, cases[i].view,
                                    out_path(folder), &exported, &error),
                     cases[i].code, cases[i].says);
        assert_false(exists(out_path(folder)));
    }
}

/* ---- JSON ---- */

static void assert_json_is(struct runs_folder *folder, const json_t *rows, const char *sql) {
    sqlite3_stmt *row = NULL;
    size_t count = 0;
    assert_int_equal(sqlite3_prepare_v2(mp_store_connection(folder->store), sql, -1, &row, NULL),
                     SQLITE_OK);
    for (; sqlite3_step(row) == SQLITE_ROW; count++) {
        const json_t *object = json_array_get(rows, count);
        assert_int_equal(json_object_size(object), sqlite3_column_count(row));
        for (int c = 0; c < sqlite3_column_count(row); c++) {
            const json_t *value = json_object_get(object, sqlite3_column_name(row, c));
            AUTO(text) char *text = json_dumps(value, JSON_COMPACT);
            const double number = sqlite3_column_double(row, c);
            const char *wanted = (const char *)sqlite3_column_text(row, c);
            assert_int_equal(json_is_array(value) || json_is_object(value),
                             wanted && strchr("[{", *wanted));
            if (json_is_null(value))
                assert_true(sqlite3_column_type(row, c) == SQLITE_NULL || isinf(number));
            else if (json_is_number(value))
                assert_true(json_number_value(value) == number);
            else
                assert_string_equal(text ? text : json_string_value(value), wanted);
        }
    }
    sqlite3_finalize(row);
    assert_int_equal(json_array_size(rows), count);
    assert_true(count > 0);
}

static const struct {
    const char *name, *columns, *from, *order;
    bool has_iterations;
} sections[] = {{"ranks", "*", "v_rank", "ORDER BY rank", false},
                {"facts", "rank, name, value", "fact", "ORDER BY name, rank", false},
                {"clocks", "rank, at_ns, offset_ns, error_ns", "clock", "", false},
                {"numbers", "rank, iteration, layer, name, value", "v_number", "", true},
                {"iterations", "*", "v_iteration", "ORDER BY iteration", true},
                {"stragglers", "*", "v_straggler", "ORDER BY iteration, layer, phase", true},
                {"imbalance", "*", "v_imbalance", "ORDER BY iteration, layer", true},
                {"phases", "*", "v_phase", "ORDER BY phase", false},
                {"loads", "rank, iteration, layer, routes, dropped", "load", "", true},
                {"spans", "*", "v_span", "", true},
                {"ranges",
                 "rank, domain, name, kind, start_ns, end_ns, pid, tid, level, category, payload, "
                 "value",
                 "v_nvtx", "", false},
                {"gpu", "*", "v_gpu", "", true},
                {"collectives", "*", "v_collective", "", false}};

/* Of the second of three runs, all of it and one iteration. */
RUNS_TEST(json_has_everything) {
    struct mp_store_run run = runs_description("ep", "text");
    run.job_text = "a: 'b'\n\xc3\xa9\xff\"";
    runs_add(folder, &run, &runs_ep);
    run.system = "fssdp";
    runs_add(folder, &run, &runs_fssdp);
    run.system = "ep";
    run.workload = "balanced";
    runs_add(folder, &run, &runs_balanced);
    assert_fails(mp_results_json(folder->store, &everything, out_path(folder), &exported, &error),
                 MP_EINVAL, "3 runs");
    runs_execute(
        folder->store,
        "UPDATE number SET value = 9e999 WHERE iteration = 1;"
        "INSERT INTO NVTX_EVENTS (start, \"end\", eventType, text, jsonText, run_id, rank) SELECT "
        "1, 5, 59, '<b>\"x\"</b>', '{\"a\":[7]}', run_id, rank FROM rank;"
        "INSERT INTO CUPTI_ACTIVITY_KIND_KERNEL (start, \"end\", deviceId, contextId, streamId, "
        "run_id, rank, span_id) SELECT start_ns, end_ns, 0, 1, 7, run_id, rank, iif(layer < 0, "
        "NULL,"
        "span_id) FROM v_span;"
        "INSERT INTO collective (run_id, rank, communicator, is_pair, sequence, group_ordinal, "
        "communicator_rank, communicator_size, peer, count, channels, timed_channels, "
        "queue_start_ns) SELECT run_id, rank, 5, 0, 1, 0, rank, 2, 0, 9, 1, 1, 3 FROM rank");
    for (int chosen = 0; chosen < 2; chosen++) {
        const struct mp_results_selection selection = {
            .run_id = 2, .some_iterations = chosen, .first = 2, .last = 2};
        size_t rows = 0;
        assert_works(
            mp_results_json(folder->store, &selection, out_path(folder), &exported, &error));
        AUTO(json) json_t *all = load_json(out_path(folder), 0);
        const json_t *about = json_object_get(all, "run");
        assert_string_equal(trace_text(all, "format"), "moeperf run");
        assert_string_equal(trace_text(about, "job_text"), "a: 'b'\n\xc3\xa9\xef\xbf\xbd\"");
        assert_rows(folder->store,
                    "SELECT printf('%.6f %.6f', speedup_vs_ep, speed_vs_balanced) FROM v_speedup "
                    "WHERE run_id = 2",
                    formatted("%.6f %.6f",
                              json_number_value(json_object_get(about, "speedup_vs_ep")),
                              json_number_value(json_object_get(about, "speed_vs_balanced"))));
        for (size_t i = 0; i < MP_LENGTH(sections); i++) {
            const json_t *section = json_object_get(all, sections[i].name);
            assert_json_is(folder, section,
                           formatted("SELECT %s FROM %s WHERE run_id = 2 %s %s",
                                     sections[i].columns, sections[i].from,
                                     chosen && sections[i].has_iterations
                                         ? "AND (iteration = 2 OR coalesce(iteration, -1) = -1)"
                                         : "",
                                     sections[i].order));
            rows += json_array_size(section);
        }
        assert_int_equal(rows, exported.rows);
        AUTO(json) json_t *drawn = timeline(folder, &selection);
        const json_t *other = json_object_get(drawn, "otherData");
        assert_json_is(folder, json_object_get(other, "run"),
                       "SELECT * FROM v_run WHERE run_id = 2");
        assert_json_is(folder, json_object_get(other, "ranks"),
                       "SELECT * FROM v_rank WHERE run_id = 2 ORDER BY rank");
    }
}

/* Every byte but zero, on its own and among letters. */
RUNS_TEST(texts_of_any_bytes_are_escaped) {
    uint64_t random = test_seed();
    char bytes[256];
    for (int i = 0; i < 255; i++)
        bytes[i] = (char)(i + 1);
    bytes[255] = '\0';
    struct mp_store_run run = runs_description(bytes, "\xed\xa0\x80 \xf4\x90\x80\x80 \xc0\xaf ok");
    runs_add(folder, &run, &runs_ep);
    for (int i = 0; i < 20; i++) {
        for (int b = 0; b < 255; b++)
            bytes[b] = (char)test_random_int(&random, 1, 255);
        run.system = bytes;
        runs_add(folder, &run, &runs_ep);
    }
    for (int i = 1; i <= 21; i++) {
        const struct mp_results_selection selection = {.run_id = i};
        assert_works(
            mp_results_json(folder->store, &selection, out_path(folder), &exported, &error));
        json_decref(load_json(out_path(folder), 0));
        json_decref(timeline(folder, &selection));
    }
    assert_works(mp_results_json(folder->store, &(struct mp_results_selection){.run_id = 1},
                                 out_path(folder), &exported, &error));
    AUTO(json) json_t *all = load_json(out_path(folder), 0);
    const json_t *about = json_object_get(all, "run");
    assert_int_equal(trace_text(about, "system")[0], 1);
    assert_int_equal(strncmp(trace_text(about, "system") + 31, " !\"#", 4), 0);
    assert_string_equal(trace_text(about, "workload") + 3 * 3 + 1 + 4 * 3 + 1 + 2 * 3, " ok");
}

/* ---- files ---- */

RUNS_TEST(nothing_is_left_half_written) {
    struct mp_error error = {0};
    size_t size;
    runs_add_usual(folder, "ep", &runs_ep);
    FILE *file = fopen(out_path(folder), "w");
    fputs("before", file);
    fclose(file);

    struct rlimit before, small;
    getrlimit(RLIMIT_FSIZE, &before);
    small = (struct rlimit){1000, before.rlim_max};
    signal(SIGXFSZ, SIG_IGN);
    setrlimit(RLIMIT_FSIZE, &small);
    int code = mp_results_json(folder->store, &(struct mp_results_selection){.run_id = 1},
                               out_path(folder), &exported, &error);
    setrlimit(RLIMIT_FSIZE, &before);
    assert_int_equal(code, MP_ENOSPACE);
    assert_contains(error.text, "can't write ");
    assert_int_equal(count_entries(folder->path, ".partial"), 0);
    AUTO(text) char *text = read_bytes(out_path(folder), &size);
    assert_string_equal(text, "before");

    error = (struct mp_error){0};
    assert_int_equal(
        mp_results_perfetto(folder->store, &everything, folder->path, &exported, &error),
        MP_EINVAL);
    assert_contains(error.text, "is there and no file");
    /* The connection is free again, and keeps nothing. */
    error = (struct mp_error){0};
    runs_ok(mp_results_perfetto(folder->store, &everything, out_path(folder), &exported, &error),
            &error);
    assert_rows(folder->store, "SELECT count(*) FROM temp.sqlite_schema", "0");
    runs_add_usual(folder, "ep", &runs_ep);
}
