/* Timelines of runs that have more than spans: annotated ranges, GPU work, collectives.  Device
 * spools are written by hand, as the collectors write them. */
#include "tests/records.h"
#include "tests/results/devices.h"
#include "tests/results/export/exported.h"

#include "profiler/record/spool.h"

enum { WORKER = 70101 };

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
        devices_collective(&companion, r, false, 3, 800 + 1000 * r, r ? 2200 : 1000, 3000);
        devices_collective(&companion, r, false, 4, 4000, 0, 0);
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
    runs_execute(
        folder->store,
        "INSERT INTO StringIds VALUES (901, 'my domain'), (902, 'io'), (903, 'loader \"1\"'), "
        "(904, 'other');"
        "INSERT INTO NVTX_EVENTS (run_id, rank, start, eventType, textId, domainId, category) "
        "VALUES (1, 0, 0, 75, 901, 3, NULL), (1, 0, 0, 75, 904, 4, NULL), (1, 0, 0, 33, 902, 3, 5),"
        " (1, 0, 0, 33, 904, 3, 6), (1, 0, 0, 33, 904, 4, 5)");
    runs_execute(
        folder->store,
        formatted("INSERT INTO ThreadNames (nameId, globalTid, run_id, rank) VALUES (904, %lld, 1, "
                  "0), (903, %lld, 1, 0)",
                  (long long)global_thread(WORKER), (long long)global_thread(WORKER)));
    add_range(folder, 59, MAIN_THREAD, 2900, "3500", "'inner'", ", int64Value, level, domainId",
              ", -9, 0, 4");
    add_range(folder, 59, MAIN_THREAD, 2900, "4000", "'step'",
              ", level, domainId, category, uint64Value, jsonText",
              ", 1, 3, 5, -1, '[{\"layer\": [7], \"x\": \"\\u00e9\"}]'");
    add_range(folder, 59, MAIN_THREAD, 2900, "4000", "'whole'", ", level, uint32Value", ", 0, 7");
    add_range(folder, 59, MAIN_THREAD, 3000, "3005", "NULL", ", level, textId", ", 3, 902");
    add_range(folder, 34, MAIN_THREAD, 3005, "NULL", "'here'", ", floatValue", ", 0.1 + 0.2");
    add_range(folder, 60, WORKER, -100, "2000", "'read'", ", doubleValue", ", 9e999");
    add_range(folder, 60, WORKER, 1000, "3000", "'read'", ", jsonText, uint64Value",
              ", 'no json', 12");
    add_range(folder, 59, WORKER, 40000, "NULL", "'never closed'", ", category", ", 8");
    add_range(folder, 59, WORKER, 40100, "40200", "NULL", ", int32Value, jsonText", ", -3, '7'");
}

/* On a GPU of its own, the shorter first, and another process's, which has the number of a call. */
static void add_kernels(struct runs_folder *folder) {
    runs_execute(
        folder->store,
        "UPDATE CUPTI_ACTIVITY_KIND_RUNTIME SET returnValue = 2;"
        "UPDATE CUPTI_ACTIVITY_KIND_MEMCPY SET correlationId = 202;"
        "UPDATE CUPTI_ACTIVITY_KIND_KERNEL SET blockY = 2, staticSharedMemory = 16;"
        "INSERT INTO CUPTI_ACTIVITY_KIND_KERNEL (start, \"end\", deviceId, contextId, streamId, "
        "correlationId, globalPid, run_id, rank, span_id) SELECT at + start, at + start + length, "
        "device, 2 + other, 7, iif(other, 1, NULL), globalPid + (other << 24), 1, 0, "
        "iif(other, NULL, span_id) FROM CUPTI_ACTIVITY_KIND_KERNEL JOIN (SELECT 1 AS device, 0 AS "
        "other, 9000000 AS at, 100000 AS length UNION ALL VALUES (1, 0, 9000000, 500000), (0, 1, "
        "19000000, 200000)) WHERE streamId = 7");
    /* Calls with the numbers of spans that launch, and one in the call that does. */
    runs_execute(folder->store,
                 "INSERT INTO CUPTI_ACTIVITY_KIND_RUNTIME (start, \"end\", globalTid, "
                 "correlationId, nameId, returnValue, run_id, rank) SELECT at, at + 9, globalTid, "
                 "launch, nameId, 0, 1, 0 FROM CUPTI_ACTIVITY_KIND_RUNTIME JOIN (SELECT 0 AS at, "
                 "span_id AS launch FROM CUPTI_ACTIVITY_KIND_MEMCPY UNION SELECT 0, span_id FROM "
                 "collective WHERE rank = 0 AND start_ns > 0 UNION VALUES (3003000, 1))");
}

/* What is not rank 0's of run 1 and must not get there: the same of rank 1, whose GPU's clock is
 * not known, and of another run, under other names. */
static void add_others(struct runs_folder *folder) {
    static const char *const tables[] = {"collective",
                                         "NVTX_EVENTS",
                                         "ThreadNames",
                                         "CUPTI_ACTIVITY_KIND_RUNTIME",
                                         "CUPTI_ACTIVITY_KIND_KERNEL",
                                         "CUPTI_ACTIVITY_KIND_MEMCPY",
                                         "CUPTI_ACTIVITY_KIND_MEMSET"};
    for (size_t i = 1; i < 2 * MP_LENGTH(tables); i++)
        runs_execute(
            folder->store,
            formatted("CREATE TEMP TABLE other AS SELECT * FROM %s WHERE run_id = 1 AND rank "
                      "= 0; UPDATE other SET %s; INSERT INTO %s SELECT * FROM other; DROP "
                      "TABLE other",
                      tables[i / 2], i % 2 ? "run_id = 2" : "rank = 1", tables[i / 2]));
    runs_execute(
        folder->store,
        "UPDATE NVTX_EVENTS SET textId = 904 WHERE eventType = 33 AND run_id + rank > 1;"
        "UPDATE ThreadNames SET nameId = 904 WHERE run_id + rank > 1;"
        "INSERT INTO device_spool SELECT run, rank, name, 'h', 1, 1, 'on', 1, 0, 'unknown' "
        "FROM (SELECT 1 AS run, 0 AS rank, 'other' AS name UNION ALL VALUES (1, 1, 'cupti'), "
        "(1, 2, 'nccl'), (2, 0, 'cupti'), (2, 0, 'nccl'), (2, 9, 'cupti'))");
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

static size_t found_at; /* the latest find's place among the events */

/* The event of rank `pid` of this kind, category and name that starts at `us`. */
static const json_t *find(const json_t *all, const char *ph, int pid, const char *category,
                          const char *name, double us) {
    json_t *event;
    json_array_foreach(json_object_get(all, "traceEvents"), found_at, event) {
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
    add_kernels(folder);
    add_others(folder);
    return run_id;
}

/* Of both ranks; GPU work with 1 + 8 pieces and 2 collectives without a time that is known. */
enum { RANGES = 2 * 9, CALLS = 4, GPU = 4 + 3, LEFT_OUT = 1 + 8 + 2, LAUNCHES = 3 + 2 + 2 };

/* ---- tests ---- */

RUNS_TEST(ranges_are_on_the_threads_that_pushed_them) {
    add_all(folder);
    AUTO(json) json_t *all = timeline(folder, &everything);
    assert_event(all, find(all, "X", 0, "nvtx", "step", 2900), "thread 100", 1100,
                 "{\"category\":\"io\",\"domain\":\"my domain\",\"kind\":\"pushed\","
                 "\"payload\":[{\"layer\":[7],\"x\":\"\xc3\xa9\"}],"
                 "\"value\":\"18446744073709551615\"}");
    const size_t step_at = found_at;
    assert_event(all, find(all, "X", 0, "nvtx", "whole", 2900), "thread 100", 1100,
                 "{\"kind\":\"pushed\",\"value\":7}");
    assert_true(found_at < step_at);
    assert_event(all, find(all, "X", 0, "nvtx", "inner", 2900), "thread 100", 600,
                 "{\"domain\":\"other\",\"kind\":\"pushed\",\"value\":-9}");
    assert_event(all, find(all, "X", 0, "nvtx", "io", 3000), "thread 100", 5,
                 "{\"kind\":\"pushed\"}");
    const size_t io_at = found_at;
    assert_event(all, find(all, "X", 0, "cuda", "cudaLaunchKernel", 3000), "thread 100", 5,
                 "{\"correlation\":1,\"kind\":\"call\",\"result\":2}");
    assert_true(found_at > io_at);
    assert_event(all, find(all, "X", 0, "cuda", "cudaLaunchKernel", 3003), "thread 100", -1,
                 "{\"correlation\":1,\"kind\":\"call\"}");
    assert_event(all, find(all, "i", 0, "nvtx", "here", 3005), "thread 100", -1,
                 "{\"kind\":\"mark\",\"value\":0.30000000000000004}");
    assert_event(all, find(all, "X", 0, "nvtx", "read", -100),
                 "thread 70101 loader \"1\", started ranges", 2100,
                 "{\"kind\":\"started\",\"value\":\"inf\"}");
    assert_event(all, find(all, "X", 0, "nvtx", "read", 1000),
                 "thread 70101 loader \"1\", started ranges (2)", 2000,
                 "{\"kind\":\"started\",\"payload\":\"no json\",\"value\":12}");
    assert_event(all, find(all, "B", 0, "nvtx", "never closed", 40000), "thread 70101 loader \"1\"",
                 -1, "{\"category\":8,\"kind\":\"pushed\",\"open\":true}");
    assert_event(all, find(all, "X", 0, "nvtx", "", 40100), "thread 70101 loader \"1\"", 100,
                 "{\"kind\":\"pushed\",\"payload\":7,\"value\":-3}");
    assert_numbers(exported.ranges, RANGES, exported.calls, CALLS);
}

/* From the call, or for want of one from the span. */
RUNS_TEST(gpu_work_is_on_its_stream_with_an_arrow_from_its_launch) {
    add_all(folder);
    AUTO(json) json_t *all = timeline(folder, &everything);
    assert_event(all, find(all, "X", 0, "kernel", "gemm", 3100), "GPU 0 stream 7", 500,
                 "{\"block\":[32,2,1],\"context\":1,\"correlation\":1,\"device\":0,"
                 "\"dynamic_shared\":0,\"grid\":[2,3,4],\"iteration\":0,\"layer\":0,"
                 "\"phase\":\"expert\",\"registers\":40,\"static_shared\":16,\"stream\":7}");
    assert_event(all, find(all, "X", 0, "kernel", "gemm", 3400), "GPU 0 stream 8", 600, NULL);
    assert_event(all, find(all, "X", 0, "memcpy", "memcpy HtoD", 5000), "GPU 0 stream 7", 200,
                 "{\"bytes\":4096,\"context\":1,\"correlation\":202,\"device\":0,\"iteration\":0,"
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
    assert_event(all, find(all, "X", 0, "kernel", "kernel", 12100), "GPU 1 stream 7", 500, NULL);
    assert_event(all, find(all, "X", 0, "kernel", "kernel", 22100),
                 formatted("GPU 0 stream 7, process %d", (int)getpid() + 1), 200, NULL);
    assert_numbers(exported.gpu, GPU, exported.gpu_left_out, LEFT_OUT);
    assert_int_equal(exported.launches, LAUNCHES); /* with the collectives' */
}

RUNS_TEST(collectives_wait_and_then_transfer) {
    add_all(folder);
    AUTO(json) json_t *all = timeline(folder, &everything);
    static const char first[] = "NCCL fffffffffffffffb, 0 of 2";
    static const char second[] = "NCCL fffffffffffffffb, 1 of 2";
    const json_t *whole = find(all, "X", 0, "nccl", "AllReduce", 1000);
    const json_t *args = json_object_get(whole, "args");
    assert_event(all, whole, first, 2000, NULL);
    assert_rows(
        folder->store,
        "SELECT printf('%.6f %.6f', wait_ms, transfer_ms) FROM v_collective WHERE run_id = 1 "
        "AND rank = 0 AND wait_ms > 1",
        formatted("%.6f %.6f", json_number_value(json_object_get(args, "wait_ms")),
                  json_number_value(json_object_get(args, "transfer_ms"))));
    assert_numbers(trace_number(args, "ordinal"), 3, trace_number(args, "operations"), 1,
                   trace_number(args, "bytes"), 2000);
    assert_event(all, find(all, "X", 0, "nccl", "wait", 1000), first, 1200, NULL);
    assert_event(all, find(all, "X", 0, "nccl", "transfer", 2200), first, 800, NULL);
    assert_event(all, find(all, "X", 1, "nccl", "AllReduce", 2200), second, 800, NULL);
    assert_event(all, find(all, "X", 1, "nccl", "transfer", 2200), second, 800, NULL);
    assert_string_equal(thread_of(all, find(all, "s", 0, "collective", "AllReduce", 0)), "compute");
    assert_int_equal(exported.collectives, 2);
}

/* Of iteration 1 of rank 0, from 20500 to 49500 us, and what overlaps it; and before. */
RUNS_TEST(chosen_iterations_choose_the_rest_by_time) {
    const struct mp_results_selection second = {.some_iterations = true, .first = 1, .last = 1};
    const struct mp_results_selection first = {.some_iterations = true, .first = 0, .last = 0};
    const struct mp_results_selection none = {.some_iterations = true, .first = 90, .last = 99};
    add_all(folder);
    json_t *all = timeline(folder, &second);
    find(all, "X", 0, "memset", "memset", 21000);
    find(all, "B", 0, "nvtx", "never closed", 40000);
    assert_numbers(exported.ranges, 2 * 2, exported.gpu, 2, exported.collectives, 0);
    json_decref(all);
    json_decref(timeline(folder, &first));
    assert_numbers(exported.ranges, RANGES - 2 * 2, exported.gpu, GPU - 2, exported.collectives, 2);
    json_decref(timeline(folder, &none));
    assert_int_equal(
        exported.rows + exported.ranges + exported.calls + exported.gpu + exported.collectives, 0);
}

RUNS_TEST(copies_say_where_from_and_to) {
    static const char *const kinds[] = {"HtoD", "DtoH", "HtoA", "AtoH", "AtoA",
                                        "AtoD", "DtoA", "DtoD", "HtoH", "PtoP"};
    add_all(folder);
    for (int i = 0; i < (int)MP_LENGTH(kinds); i++) {
        runs_execute(folder->store,
                     formatted("UPDATE CUPTI_ACTIVITY_KIND_MEMCPY SET copyKind = %d", i + 1));
        AUTO(json) json_t *all = timeline(folder, &everything);
        find(all, "X", 0, "memcpy", formatted("memcpy %s", kinds[i]), 5000);
    }
}

/* Times on another host's clock would be anywhere. */
RUNS_TEST(work_on_an_unknown_clock_is_left_out) {
    add_all(folder);
    runs_execute(folder->store, "UPDATE device_spool SET clock = 'unknown'");
    AUTO(json) json_t *all = timeline(folder, &everything);
    assert_int_equal(exported.gpu + exported.calls + exported.collectives + exported.launches, 0);
    assert_int_equal(exported.gpu_left_out, GPU + LEFT_OUT + 2);
    assert_int_equal(trace_number(json_object_get(all, "otherData"), "gpu_left_out"),
                     exported.gpu_left_out);
}

/* Ranks of which there is GPU work or a range and nothing else; one of which there is nothing. */
RUNS_TEST(ranks_without_a_recording_have_their_gpu) {
    static const char *const names[] = {"rank 0 on host 0",      "rank 1 on host 1",
                                        "rank 2 on h",           "rank 4",
                                        "rank 5 on else\"where", "rank 6 on six"};
    size_t i, ranks = 0;
    json_t *event;
    add_all(folder);
    runs_execute(
        folder->store,
        "UPDATE rank SET host = 'host ' || rank;"
        "UPDATE CUPTI_ACTIVITY_KIND_KERNEL SET rank = 5;"
        "UPDATE NVTX_EVENTS SET rank = 4 WHERE text = 'here';"
        "INSERT INTO rank (run_id, rank, status, unread_bytes, host) VALUES (1, 3, 'cut', 0, "
        "'h'), (1, 4, 'cut', 0, NULL), (1, 6, 'cut', 0, 'six'), (2, 5, 'cut', 0, 'h');"
        "INSERT INTO device_spool VALUES (1, 5, 'cupti', 'else\"where', 1, 1, 'on', 1, 0, "
        "'same host'), (1, 6, 'nccl', 'h', 1, 1, 'on', 1, 0, 'same host')");
    AUTO(json) json_t *all = timeline(folder, &everything);
    assert_event(all, find(all, "X", 5, "kernel", "gemm", 3100), "GPU 0 stream 7", 500, NULL);
    json_array_foreach(json_object_get(all, "traceEvents"), i, event) {
        if (strcmp(trace_text(event, "name"), "process_name") != 0)
            continue;
        assert_true(ranks < MP_LENGTH(names));
        assert_string_equal(trace_text(json_object_get(event, "args"), "name"), names[ranks++]);
    }
    assert_int_equal(ranks, MP_LENGTH(names));
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
    enum { EVENTS = 400 };
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
        /* Those of stream 1 cross, too many for lanes. */
        const int stream = test_random_int(&random, 0, 1),
                  at = test_random_int(&random, 0, 1000000);
        snprintf(sql, sizeof sql,
                 "INSERT INTO CUPTI_ACTIVITY_KIND_KERNEL (start, \"end\", deviceId, contextId, "
                 "streamId, correlationId, globalPid, demangledName, run_id, rank) VALUES (%d, %d, "
                 "0, 0, %d, %d, %lld, %d, 1, 0)",
                 at, stream ? at + 300000 : test_random_int(&random, 0, 1000000), stream,
                 test_random_int(&random, 990, 1000 + EVENTS), (long long)global_thread(0),
                 5000 + i);
        runs_execute(folder->store, sql);
    }
    runs_execute(
        folder->store,
        "INSERT INTO collective (run_id, rank, communicator, is_pair, sequence, group_ordinal, "
        "communicator_rank, communicator_size, peer, count, channels, timed_channels, "
        "queue_start_ns, start_ns, end_ns) SELECT 1, 0, streamId, 0, rowid, 0, 0, 2, 0, 1, 1, 1, "
        "0, "
        "start, \"end\" FROM CUPTI_ACTIVITY_KIND_KERNEL WHERE demangledName >= 5000");
    json_decref(timeline(folder, &everything));
    assert_int_equal(exported.collectives, EVENTS + 2);
    assert_numbers(exported.ranges, EVENTS + RANGES, exported.calls, EVENTS + CALLS);
    assert_int_equal(exported.gpu, EVENTS + GPU);
}

/* A database that may only be read, and memory that does not follow the number of events. */
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
        "SELECT 1, 0, i * 1000, i * 1000 + 999, 59, i % 3, 'range ' || i FROM n;INSERT INTO span "
        "SELECT 1000 + i, 1, 1, stream_id, i / 1000, i % 24, phase_id, 0, i * 2000, i * 2000 + "
        "5000,"
        "0, NULL, 3, NULL, NULL FROM n JOIN span ON span_id = 1;UPDATE rank SET last_span = 1000 + "
        "100000 WHERE rank = 1");
    mp_store_close(folder->store);
    assert_works(mp_store_open_read_only(folder->database, &folder->store, &error));
    sqlite3_memory_highwater(1);
    assert_works(
        mp_results_perfetto(folder->store, &everything, out_path(folder), &exported, &error));
    assert_numbers(exported.ranges, EVENTS + RANGES, exported.launches, EVENTS + LAUNCHES);
    assert_true(exported.rows > EVENTS);
    assert_works(
        mp_results_csv(folder->store, &everything, "span", out_path(folder), &exported, &error));
    assert_true(exported.rows > EVENTS);
    print_message("%d spans, ranges, calls and kernels each: %.1f MB of SQLite's memory\n", EVENTS,
                  (double)sqlite3_memory_highwater(0) / 1e6);
    assert_true(sqlite3_memory_highwater(0) < 16000000);
}
