/* Timelines of runs that have more than spans: annotated ranges, GPU work, collectives.  Device
 * spools are written by hand, as the collectors write them. */
#include "tests/records.h"
#include "tests/results/devices.h"
#include "tests/results/export/exported.h"

#include "profiler/record/spool.h"

enum { WORKER = 101 };

/* ---- device spools ---- */

/* Rank 0's experts of iteration 0 last from 2500 to 6500 us: see runs_standard_layer. */
static void record_activities(struct runs_folder *folder) {
    struct mp_companion companion;
    devices_open_experts(folder, &companion); /* whose copy has no call, but a span */
    devices_copy(&companion, 0, 2, 5000, 5200);
    devices_record(&companion, (struct mp_activity){.start_ns = devices_at(0, 21000),
                                                    .end_ns = devices_at(0, 21100),
                                                    .correlation = 77, /* nobody launched it */
                                                    .context = 2,
                                                    .stream = 7,
                                                    .value = 64,
                                                    .detail = 255,
                                                    .kind = MP_ACTIVITY_SET});
    devices_close(folder, "cupti", &companion, 0);
}

/* One collective of both ranks: rank 1 comes 1.2 ms later, both leave at 3000 us. */
static void record_collectives(struct runs_folder *folder) {
    struct mp_companion companion;
    for (int r = 0; r < 2; r++) {
        devices_open(folder, "nccl", r, &companion);
        const struct mp_timer timer = {runs_clock(r, 3000000), runs_clock(r, 3000000) - 3000000, 2};
        put_timer(companion.thread, timer);
        devices_collective(&companion, r, false, 1, 800 + 1000 * r, r ? 2200 : 1000, 3000);
        devices_close(folder, "nccl", &companion, r);
    }
}

/* ---- annotated ranges ---- */

static int64_t global_thread(int thread) {
    return ((int64_t)getpid() & 0xFFFFFF) << 24 | thread;
}

/* As ranges_ingest stores them; texts and values are SQL. */
static void add_range(struct runs_folder *folder, int type, int thread, int64_t start_us,
                      const char *end_us, const char *text, const char *columns,
                      const char *values) {
    char sql[1024];
    snprintf(sql, sizeof sql,
             "INSERT INTO NVTX_EVENTS (run_id, rank, eventType, globalTid, start, \"end\", text%s) "
             "VALUES (1, 0, %d, %lld, %lld, %s * 1000, %s%s)",
             columns, type, (long long)global_thread(thread), (long long)start_us * 1000, end_us,
             text, values);
    runs_execute(folder->store, sql);
}

static void add_ranges(struct runs_folder *folder) {
    char sql[256];
    runs_execute(
        folder->store,
        "INSERT OR IGNORE INTO StringIds (value) VALUES ('my domain'), ('io'), ('loader \"1\"')");
    runs_execute(
        folder->store,
        "INSERT INTO NVTX_EVENTS (run_id, rank, start, eventType, textId, domainId, category) "
        "SELECT 1, 0, 0, 75, id, 3, NULL FROM StringIds WHERE value = 'my domain' UNION ALL SELECT "
        "1, 0, 0, 33, id, 3, 5 FROM StringIds WHERE value = 'io'");
    snprintf(sql, sizeof sql,
             "INSERT INTO ThreadNames (nameId, globalTid, run_id, rank) SELECT id, %lld, 1, 0 FROM "
             "StringIds WHERE value = 'loader \"1\"'",
             (long long)global_thread(WORKER));
    runs_execute(folder->store, sql);
    add_range(folder, 59, MAIN_THREAD, 2900, "4000", "'step'",
              ", domainId, category, uint64Value, jsonText",
              ", 3, 5, -1, '[{\"layer\": [7], \"x\": \"\\u00e9\"}]'");
    add_range(folder, 59, MAIN_THREAD, 2900, "3500", "'inner'", ", int64Value, level", ", -9, 1");
    add_range(folder, 34, MAIN_THREAD, 3005, "NULL", "'here'", ", floatValue", ", 0.5");
    add_range(folder, 60, WORKER, 100, "2000", "'read'", ", doubleValue", ", 9e999");
    add_range(folder, 60, WORKER, 1000, "3000", "'read'", ", jsonText", ", 'no json'");
    add_range(folder, 59, WORKER, 40000, "NULL", "'never closed'", "", "");
    add_range(folder, 59, WORKER, 40100, "40200", "'in it'", "", "");
}

/* ---- what is read back ---- */

static const char *thread_of(const json_t *all, const json_t *event) {
    size_t i;
    json_t *other;
    json_array_foreach(json_object_get(all, "traceEvents"), i, other) {
        if (!strcmp(trace_text(other, "name"), "thread_name") &&
            trace_number(other, "pid") == trace_number(event, "pid") &&
            trace_number(other, "tid") == trace_number(event, "tid"))
            return trace_text(json_object_get(other, "args"), "name");
    }
    return "";
}

/* The event of rank `pid` of this kind, category and name that starts at `us`. */
static const json_t *find(const json_t *all, const char *ph, int pid, const char *category,
                          const char *name, double us) {
    size_t i;
    json_t *event;
    json_array_foreach(json_object_get(all, "traceEvents"), i, event) {
        if (!strcmp(trace_text(event, "ph"), ph) && trace_number(event, "pid") == pid &&
            !strcmp(trace_text(event, "cat"), category) &&
            !strcmp(trace_text(event, "name"), name) &&
            fabs((double)trace_ns(event, "ts") - us * 1000) < 2000) /* rank 1's clock is fitted */
            return event;
    }
    fail_msg("there is no %s %s '%s' of rank %d at %.3f", ph, category, name, pid, us);
    return NULL;
}

static void assert_event(const json_t *all, const json_t *event, const char *thread,
                         double length_us, const char *args) {
    AUTO(text) char *is = json_dumps(json_object_get(event, "args"), JSON_COMPACT | JSON_SORT_KEYS);
    assert_string_equal(thread_of(all, event), thread);
    if (length_us >= 0)
        assert_true(fabs((double)trace_ns(event, "dur") - length_us * 1000) < 2000);
    if (args)
        assert_string_equal(is, args);
}

static int64_t add_all(struct runs_folder *folder) {
    int64_t run_id = devices_run(folder);
    record_activities(folder);
    record_collectives(folder);
    assert_works(mp_store_add_device(folder->store, run_id, devices, devices_files, &error));
    add_ranges(folder);
    return run_id;
}

/* ---- tests ---- */

RUNS_TEST(ranges_are_on_the_threads_that_pushed_them) {
    add_all(folder);
    AUTO(json) json_t *all = timeline(folder, &everything);
    assert_event(all, find(all, "X", 0, "nvtx", "step", 2900), "thread 100", 1100,
                 "{\"category\":\"io\",\"domain\":\"my domain\",\"kind\":\"pushed\","
                 "\"payload\":[{\"layer\":[7],\"x\":\"\xc3\xa9\"}],"
                 "\"value\":\"18446744073709551615\"}");
    assert_event(all, find(all, "X", 0, "nvtx", "inner", 2900), "thread 100", 600,
                 "{\"kind\":\"pushed\",\"value\":-9}");
    assert_event(all, find(all, "X", 0, "cuda", "cudaLaunchKernel", 3000), "thread 100", 5,
                 "{\"correlation\":1,\"kind\":\"call\"}");
    assert_event(all, find(all, "i", 0, "nvtx", "here", 3005), "thread 100", -1,
                 "{\"kind\":\"mark\",\"value\":0.5}");
    assert_event(all, find(all, "X", 0, "nvtx", "read", 100),
                 "thread 101 loader \"1\", started ranges", 1900,
                 "{\"kind\":\"started\",\"value\":\"inf\"}");
    assert_event(all, find(all, "X", 0, "nvtx", "read", 1000),
                 "thread 101 loader \"1\", started ranges (2)", 2000,
                 "{\"kind\":\"started\",\"payload\":\"no json\"}");
    assert_event(all, find(all, "B", 0, "nvtx", "never closed", 40000), "thread 101 loader \"1\"",
                 -1, "{\"kind\":\"pushed\",\"open\":true}");
    assert_event(all, find(all, "X", 0, "nvtx", "in it", 40100), "thread 101 loader \"1\"", 100,
                 NULL);
    assert_numbers(exported.ranges, 7, exported.calls, 1);
}

/* From the call, or for want of one from the span. */
RUNS_TEST(gpu_work_is_on_its_stream_with_an_arrow_from_its_launch) {
    add_all(folder);
    AUTO(json) json_t *all = timeline(folder, &everything);
    assert_event(all, find(all, "X", 0, "kernel", "gemm", 3100), "GPU 0 stream 7", 500,
                 "{\"block\":[32,1,1],\"context\":1,\"correlation\":1,\"device\":0,"
                 "\"dynamic_shared\":0,\"grid\":[2,3,4],\"iteration\":0,\"layer\":0,"
                 "\"phase\":\"expert\",\"registers\":40,\"static_shared\":0,\"stream\":7}");
    assert_event(all, find(all, "X", 0, "kernel", "gemm", 3400), "GPU 0 stream 8", 600, NULL);
    assert_event(all, find(all, "X", 0, "memcpy", "memcpy HtoD", 5000), "GPU 0 stream 7", 200,
                 "{\"bytes\":4096,\"context\":1,\"correlation\":2,\"device\":0,\"iteration\":0,"
                 "\"layer\":0,\"phase\":\"expert\",\"stream\":7}");
    assert_event(all, find(all, "X", 0, "memset", "memset", 21000), "GPU 0 context 2 stream 7", 100,
                 "{\"bytes\":64,\"context\":2,\"correlation\":77,\"device\":0,\"stream\":7,"
                 "\"value\":255}");
    assert_string_equal(thread_of(all, find(all, "s", 0, "launch", "gemm", 3000)), "thread 100");
    assert_string_equal(thread_of(all, find(all, "f", 0, "launch", "gemm", 3100)),
                        "GPU 0 stream 7");
    assert_string_equal(thread_of(all, find(all, "f", 0, "launch", "gemm", 3400)),
                        "GPU 0 stream 8");
    assert_string_equal(thread_of(all, find(all, "s", 0, "launch", "memcpy HtoD", 2500)),
                        "compute");
    assert_numbers(exported.gpu, 4, exported.gpu_left_out, 1);
    assert_int_equal(exported.launches, 3 + 2); /* with the collectives' */
}

RUNS_TEST(collectives_wait_and_then_transfer) {
    add_all(folder);
    AUTO(json) json_t *all = timeline(folder, &everything);
    static const char first[] = "NCCL fffffffffffffffb, 0 of 2";
    static const char second[] = "NCCL fffffffffffffffb, 1 of 2";
    const json_t *whole = find(all, "X", 0, "nccl", "AllReduce", 1000);
    assert_event(all, whole, first, 2000, NULL);
    assert_close(json_number_value(json_object_get(json_object_get(whole, "args"), "wait_ms")), 1.2,
                 1e-2);
    assert_event(all, find(all, "X", 0, "nccl", "wait", 1000), first, 1200, NULL);
    assert_event(all, find(all, "X", 0, "nccl", "transfer", 2200), first, 800, NULL);
    assert_event(all, find(all, "X", 1, "nccl", "AllReduce", 2200), second, 800, NULL);
    assert_event(all, find(all, "X", 1, "nccl", "transfer", 2200), second, 800, NULL);
    assert_string_equal(thread_of(all, find(all, "s", 0, "collective", "AllReduce", 0)), "compute");
    assert_int_equal(exported.collectives, 2);
}

/* Of iteration 1 of rank 0, from 20500 to 49500 us, and what overlaps it. */
RUNS_TEST(chosen_iterations_choose_the_rest_by_time) {
    const struct mp_results_selection second = {.some_iterations = true, .first = 1, .last = 1};
    const struct mp_results_selection none = {.some_iterations = true, .first = 90, .last = 99};
    add_all(folder);
    json_t *all = timeline(folder, &second);
    find(all, "X", 0, "memset", "memset", 21000);
    find(all, "B", 0, "nvtx", "never closed", 40000);
    assert_numbers(exported.ranges, 2, exported.gpu, 1, exported.collectives, 0);
    json_decref(all);
    json_decref(timeline(folder, &none));
    assert_int_equal(exported.rows + exported.ranges + exported.gpu + exported.collectives, 0);
}

/* Times on another host's clock would be anywhere. */
RUNS_TEST(work_on_an_unknown_clock_is_left_out) {
    add_all(folder);
    runs_execute(folder->store, "UPDATE device_spool SET clock = 'unknown'");
    AUTO(json) json_t *all = timeline(folder, &everything);
    assert_int_equal(exported.gpu + exported.calls + exported.collectives + exported.launches, 0);
    assert_int_equal(exported.gpu_left_out, 5 + 2);
    assert_int_equal(trace_number(json_object_get(all, "otherData"), "gpu_left_out"), 5 + 2);
}

/* A rank of which there is GPU work and nothing else. */
RUNS_TEST(ranks_without_a_recording_have_their_gpu) {
    add_all(folder);
    runs_execute(folder->store, "UPDATE CUPTI_ACTIVITY_KIND_KERNEL SET rank = 5");
    runs_execute(folder->store, "INSERT INTO device_spool VALUES (1, 5, 'cupti', 'else\"where', 1, "
                                "1, 'on', 1, 0, 'same host')");
    AUTO(json) json_t *all = timeline(folder, &everything);
    assert_event(all, find(all, "X", 5, "kernel", "gemm", 3100), "GPU 0 stream 7", 500, NULL);
}

/* A random text as SQL. */
static const char *random_text(uint64_t *random) {
    static char sql[128];
    int length = test_random_int(random, 0, 20), used = snprintf(sql, sizeof sql, "CAST(x'");
    for (int i = 0; i < length; i++)
        used += snprintf(sql + used, sizeof sql - (size_t)used, "%02x",
                         (unsigned)test_random_int(random, 0, 255));
    snprintf(sql + used, sizeof sql - (size_t)used, "' AS TEXT)");
    return sql;
}

/* Ranges that cross, GPU work that overlaps on its stream, calls outside of their ranges, names
 * and payloads of any bytes: the file is one that can be drawn, and nothing is missing. */
RUNS_TEST(anything_can_be_drawn) {
    uint64_t random = test_seed();
    enum { EVENTS = 150 };
    char sql[512], number[32], end[32];
    add_all(folder);
    for (int i = 0; i < EVENTS; i++) {
        int64_t start = test_random_int(&random, 0, 1000);
        int type = (int[]){34, 59, 60}[test_random_int(&random, 0, 2)];
        snprintf(end, sizeof end, "%lld",
                 (long long)start + (long long)test_random_int(&random, -5, 300));
        snprintf(number, sizeof number, ", %d", test_random_int(&random, 0, 4));
        AUTO(text) char *text = strdup(random_text(&random));
        add_range(folder, type, test_random_int(&random, 1, 3), start,
                  type == 34 || !test_random_int(&random, 0, 9) ? "NULL" : end, text,
                  ", domainId, jsonText", strcat(strcpy(sql, number), ", '\xff{'"));
        snprintf(sql, sizeof sql, "INSERT OR IGNORE INTO StringIds VALUES (%d, %s)", 5000 + i,
                 random_text(&random));
        runs_execute(folder->store, sql);
        snprintf(
            sql, sizeof sql,
            "INSERT INTO CUPTI_ACTIVITY_KIND_RUNTIME (start, \"end\", globalTid, correlationId, "
            "nameId, returnValue, run_id, rank) VALUES (%d, %d, %lld, %d, %d, 0, 1, 0)",
            test_random_int(&random, 0, 1000000), test_random_int(&random, 0, 1000000),
            (long long)global_thread(test_random_int(&random, 1, 3)), i + 1000, 5000 + i);
        runs_execute(folder->store, sql);
        snprintf(sql, sizeof sql,
                 "INSERT INTO CUPTI_ACTIVITY_KIND_KERNEL (start, \"end\", deviceId, contextId, "
                 "streamId, correlationId, globalPid, demangledName, run_id, rank) VALUES (%d, %d, "
                 "%d, %d, %d, %d, %lld, %d, 1, 0)",
                 test_random_int(&random, 0, 1000000), test_random_int(&random, 0, 1000000),
                 test_random_int(&random, 0, 1), test_random_int(&random, 0, 1),
                 test_random_int(&random, 0, 1), test_random_int(&random, 990, 1000 + EVENTS),
                 (long long)global_thread(0), 5000 + i);
        runs_execute(folder->store, sql);
    }
    json_decref(timeline(folder, &everything));
    assert_numbers(exported.ranges, EVENTS + 7, exported.calls, EVENTS + 1);
    assert_int_equal(exported.gpu, EVENTS + 4);
}

/* Memory does not follow the number of events. */
RUNS_TEST(many_events_need_no_more_memory) {
    enum { EVENTS = 100000 };
    add_all(folder);
    runs_execute(
        folder->store,
        "CREATE TABLE n AS WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i "
        "< 100000) SELECT i FROM n;INSERT INTO CUPTI_ACTIVITY_KIND_KERNEL (start, \"end\", "
        "deviceId, contextId, streamId, correlationId, globalPid, run_id, rank) SELECT i * 1000, i "
        "* 1000 + 900, 0, 1, i % 4, i + 1000, (SELECT globalPid FROM CUPTI_ACTIVITY_KIND_KERNEL "
        "LIMIT 1), 1, 0 FROM n;INSERT INTO CUPTI_ACTIVITY_KIND_RUNTIME (start, \"end\", globalTid, "
        "correlationId, nameId, returnValue, run_id, rank) SELECT i * 1000 - 500, i * 1000 - 100, "
        "(SELECT globalPid FROM CUPTI_ACTIVITY_KIND_KERNEL LIMIT 1) + 1, i + 1000, 1, 0, 1, 0 FROM "
        "n;INSERT INTO NVTX_EVENTS (run_id, rank, start, \"end\", eventType, globalTid, text) "
        "SELECT 1, 0, i * 1000, i * 1000 + 999, 59, i % 3, 'range ' || i FROM n");
    mp_store_close(folder->store);
    assert_works(mp_store_open_read_only(folder->database, &folder->store, &error));
    sqlite3_memory_highwater(1);
    assert_works(
        mp_results_perfetto(folder->store, &everything, out_path(folder), &exported, &error));
    print_message("%d ranges, calls and kernels each: %.1f MB of SQLite's memory\n", EVENTS,
                  (double)sqlite3_memory_highwater(0) / 1e6);
    assert_numbers(exported.ranges, EVENTS + 7, exported.launches, EVENTS + 5);
    assert_true(sqlite3_memory_highwater(0) < 24000000);
}
