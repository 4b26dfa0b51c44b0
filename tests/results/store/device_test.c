/* GPU work beside a run whose spans are known: joins, clocks, views. */
#include "tests/records.h"
#include "tests/results/devices.h"

#include <signal.h>
#include <sys/wait.h>

/* The span in which rank 0 computes experts lasts from 2500 to 6500 us, rank 1's from 3500 to 5500:
 * see runs_standard_layer. */
static void record_activities(struct runs_folder *folder) {
    struct mp_companion companion;
    devices_open_experts(folder, &companion);
    devices_call(&companion, 0, 2,
                 100); /* its place in time says another span than its external id */
    devices_copy(&companion, 0, 2, 5000, 5200);
    devices_call(&companion, 0, 3, 900000000); /* after everything */
    devices_kernel(&companion, 0, 3, 7, 900000100, 900000200);
    devices_kernel(&companion, 0, 77, 7, 8000, 8100); /* nobody launched it */
    devices_record(&companion, (struct mp_activity){.start_ns = devices_at(0, 10),
                                                    .end_ns = devices_at(0, 60),
                                                    .kind = MP_ACTIVITY_OVERHEAD});
    mp_record_number(companion.thread, -1, -1, "cupti.dropped", 5);
    devices_close(folder, "cupti", &companion, 0);

    devices_open(folder, "cupti", 1, &companion);
    devices_call(&companion, 1, 1, 4000);
    devices_kernel(&companion, 1, 1, 7, 4100, 4600);
    devices_close(folder, "cupti", &companion, 1);
}

/* Each GPU's timer began with the run, and was compared with the clock three
 * times; what is nearest in time comes last. */
static void record_collectives(struct runs_folder *folder) {
    struct mp_companion companion;
    for (int r = 0; r < 2; r++) {
        devices_open(folder, "nccl", r, &companion);
        const struct mp_timer timer = {devices_at(r, 3000), devices_at(r, 3000) - 3000000, 2};
        const struct mp_timer far = {devices_at(r, 900000000), 12345, 1};
        const struct mp_timer farther = {devices_at(r, 950000000), 54321, 1};
        put_timer(companion.thread, farther);
        put_timer(companion.thread, far);
        put_timer(companion.thread, timer);
        devices_collective(&companion, r, false, 1, 3000 + 500 * r, r ? 2200 : 1000, 3000);
        devices_collective(&companion, r, true, 3, 3000 + 500 * r, r ? 11000 : 10000,
                           r ? 13200 : 12000);
        if (r == 0) {
            devices_collective(&companion, r, true, 3, 3000 + 500 * r, 10500, 13000);
            devices_collective(&companion, r, true, 4, 3000 + 500 * r, 20000,
                               21000); /* rank 1 has none of it */
        }
        devices_collective(&companion, r, false, 2, 3000 + 500 * r, r ? 30000 : 0,
                           r ? 31000 : 0); /* one has no time */
        devices_close(folder, "nccl", &companion, r);
    }
}

static int64_t add(struct runs_folder *folder) {
    int64_t run_id = devices_run(folder);
    record_activities(folder);
    record_collectives(folder);
    assert_works(mp_store_add_device(folder->store, run_id, devices, devices_files, &error));
    return run_id;
}

RUNS_TEST(work_belongs_to_the_span_that_launched_it) {
    add(folder);
    assert_rows(folder->store,
                "SELECT rank, iteration, layer, phase, direction, round(span_ms, 3), round(gpu_ms, "
                "3), round(kernel_ms, 3), round(copy_ms, 3), set_ms, kernels, copies, sets, "
                "copied_bytes, round(first_ms, 3), round(after_ms, 3), untimed FROM v_gpu WHERE "
                "span_id IS NOT NULL ORDER BY rank",
                "0|0|0|expert|forward|4.0|1.1|1.1|0.2|0.0|3|1|0|4096|0.6|-1.3|1\n"
                "1|0|0|expert|forward|2.0|0.5|0.5|0.0|0.0|1|0|0|0|0.6|-0.9|0");
    assert_rows(folder->store,
                "SELECT rank, kernels, round(gpu_ms, 3), phase FROM v_gpu WHERE span_id IS NULL",
                "0|2|0.2|NULL");
    assert_rows(folder->store, "SELECT (end_ns - start_ns), kind FROM gpu_overhead", "50000|0");
    assert_rows(folder->store, "SELECT value FROM v_number WHERE name = 'cupti.dropped'", "5.0");
}

RUNS_TEST(tables_are_as_nsight_has_them) {
    char sql[300];
    add(folder);
    snprintf(sql, sizeof sql,
             "SELECT start, \"end\", name.value, streamId, gridX, blockX, correlationId, globalPid "
             "/ 0x1000000 = %d FROM CUPTI_ACTIVITY_KIND_KERNEL JOIN StringIds AS name ON name.id = "
             "demangledName WHERE rank = 0 AND correlationId = 1 AND streamId = 7",
             (int)getpid() & 0xFFFFFF);
    assert_rows(folder->store, sql, "3100000|3600000|gemm|7|2|32|1|1");
    assert_rows(folder->store,
                "SELECT start, name.value, globalTid % 0x1000000, returnValue FROM "
                "CUPTI_ACTIVITY_KIND_RUNTIME JOIN StringIds AS name ON name.id = nameId WHERE rank "
                "= 0 AND correlationId = 1",
                "3000000|cudaLaunchKernel|100|0");
    assert_rows(folder->store, "SELECT bytes, copyKind, copies FROM CUPTI_ACTIVITY_KIND_MEMCPY",
                "4096|1|1");
    assert_rows(folder->store,
                "SELECT rank, collector, status, complete, unread_bytes, clock FROM device_spool "
                "ORDER BY collector, rank",
                "0|cupti|on|1|0|same host\n1|cupti|on|1|0|samples\n"
                "0|nccl|on|1|0|same host\n1|nccl|on|1|0|samples");
}

/* Who came last waited for nobody: 2 and 0.8 ms of one collective, 3 and 2.2 of one group.  Other
 * runs, communicators and functions have numbers and times of their own. */
RUNS_TEST(waiting_is_what_exceeds_the_transfer) {
    static const char sql[] =
        "SELECT rank, function, ordinal, operations, bytes, round(ms, 2), round(transfer_ms, 2), "
        "round(wait_ms, 2), round(queue_ms, 2), untimed FROM v_collective WHERE run_id = 1 AND "
        "communicator < 0 AND function <> 'expert' ORDER BY function, ordinal, rank";
    add(folder);
    runs_execute(
        folder->store,
        "CREATE TEMP TABLE other AS SELECT * FROM collective; UPDATE other SET end_ns = start_ns + "
        "1, run_id = 2; INSERT INTO collective SELECT * FROM other; UPDATE other SET run_id = 1, "
        "communicator = 7; INSERT INTO collective SELECT * FROM other; UPDATE other SET "
        "communicator = -5, function_id = (SELECT id FROM StringIds WHERE value = 'expert'); "
        "INSERT INTO collective SELECT * FROM other WHERE NOT is_pair");
    assert_rows(folder->store, sql,
                "0|AllReduce|1|1|2000|2.0|0.8|1.2|0.01|0\n"
                "1|AllReduce|1|1|2000|0.8|0.8|0.0|0.01|0\n"
                "0|AllReduce|2|1|2000|NULL|NULL|NULL|0.01|1\n"
                "1|AllReduce|2|1|2000|1.0|NULL|NULL|0.01|0\n"
                "0|pairs|3|2|4000|3.0|2.2|0.8|0.01|0\n"
                "1|pairs|3|1|2000|2.2|2.2|0.0|0.01|0\n"
                "0|pairs|4|1|2000|1.0|NULL|NULL|0.01|0");
    assert_rows(folder->store,
                "SELECT start_ns FROM v_collective WHERE run_id = 1 AND operations = 2 AND "
                "communicator < 0",
                "10000000");
    /* Without its number none has a counterpart; a group is as long and as large as is known. */
    runs_execute(folder->store,
                 "UPDATE collective SET sequence = 0 WHERE sequence = 1;UPDATE collective SET "
                 "timed_channels = 0 WHERE is_pair AND start_ns <> 10500000;UPDATE collective SET "
                 "bytes = NULL WHERE group_ordinal = 4;UPDATE collective SET bytes = NULL, "
                 "start_ns = NULL, span_id = span_id + 1, queue_start_ns = queue_end_ns, "
                 "queue_end_ns = queue_end_ns + 20000 WHERE rank = 0 AND start_ns = 10500000");
    assert_rows(folder->store, sql,
                "0|AllReduce|0|1|2000|2.0|NULL|NULL|0.01|0\n"
                "1|AllReduce|0|1|2000|0.8|NULL|NULL|0.01|0\n"
                "0|AllReduce|2|1|2000|NULL|NULL|NULL|0.01|1\n"
                "1|AllReduce|2|1|2000|1.0|NULL|NULL|0.01|0\n"
                "0|pairs|3|2|2000|NULL|NULL|NULL|0.03|2\n"
                "1|pairs|3|1|2000|2.2|NULL|NULL|0.01|1\n"
                "0|pairs|4|1|NULL|1.0|NULL|NULL|0.01|1");
    assert_rows(
        folder->store,
        "SELECT v_collective.start_ns, v_collective.end_ns, phase FROM v_collective JOIN v_span "
        "USING (span_id) WHERE v_collective.run_id = 1 AND operations = 2 AND communicator < 0",
        "10000000|13000000|expert");
}

RUNS_TEST(adding_again_adds_nothing) {
    char before[200];
    static const char counts[] =
        "SELECT (SELECT count(*) FROM CUPTI_ACTIVITY_KIND_KERNEL), (SELECT count(*) FROM "
        "CUPTI_ACTIVITY_KIND_RUNTIME), (SELECT count(*) FROM collective), (SELECT count(*) FROM "
        "device_spool), (SELECT count(*) FROM gpu_overhead)";
    int64_t run_id = add(folder);
    snprintf(before, sizeof before, "%s", runs_query(folder->store, counts));
    assert_string_equal(before, "6|4|8|4|1");
    assert_works(mp_store_add_device(folder->store, run_id, devices, devices_files, &error));
    assert_rows(folder->store, counts, before);
}

RUNS_TEST(errors_leave_everything_as_it_was) {
    int64_t run_id = devices_run(folder);
    record_activities(folder);
    devices[devices_files] = "/nowhere/at/all.device";
    assert_fails(mp_store_add_device(folder->store, run_id, devices, devices_files + 1, &error),
                 MP_ENOTFOUND, "/nowhere/at/all");
    assert_rows(folder->store, "SELECT count(*) FROM device_spool", "0");
    assert_fails(mp_store_add_device(folder->store, run_id + 1, devices, devices_files, &error),
                 MP_ENOTFOUND, "");
    assert_rows(folder->store, "SELECT count(*) FROM CUPTI_ACTIVITY_KIND_KERNEL", "0");
}

/* Times and sizes from a damaged record: it is there, and the views still answer for the others. */
RUNS_TEST(impossible_times_are_taken_and_harm_no_view) {
    struct mp_companion companion;
    const int64_t ends[] = {INT64_MIN, INT64_MIN + 1, -1, 1, INT64_MAX - 1, INT64_MAX};
    int64_t run_id = devices_run(folder);
    devices_open(folder, "cupti", 0, &companion);
    devices_call(&companion, 0, 1, 3000);
    devices_kernel(&companion, 0, 1, 7, 3100, 3600);
    for (int i = 0; i < 36; i++) {
        struct mp_activity activity = {.start_ns = ends[i % 6],
                                       .end_ns = ends[i / 6],
                                       .value = (uint64_t)ends[i % 6],
                                       .correlation = 2,
                                       .kind = MP_ACTIVITY_KERNEL};
        for (; activity.kind < MP_ACTIVITIES; activity.kind++)
            devices_record(&companion, activity);
    }
    devices_close(folder, "cupti", &companion, 0);
    devices_open(folder, "nccl", 0, &companion);
    for (int i = 0; i < 36; i++) {
        const struct mp_collective is = {.start_ns = ends[i % 6],
                                         .queued_ns = ends[i / 6],
                                         .timer_start = (uint64_t)ends[i % 6],
                                         .timer_end = (uint64_t)ends[i / 6],
                                         .count = INT64_MAX / 8,
                                         .datatype = mp_companion_name(&companion, "ncclFloat64")};
        put_collective(companion.thread, is);
    }
    devices_close(folder, "nccl", &companion, 0);
    assert_works(mp_store_add_device(folder->store, run_id, devices, devices_files, &error));
    assert_rows(folder->store,
                "SELECT phase, kernels, round(gpu_ms, 3) FROM v_gpu WHERE kernels = 1",
                "expert|1|0.5");
    assert_rows(folder->store, "SELECT kernels, copies, sets FROM v_gpu WHERE kernels > 1",
                "36|36|36");
    assert_rows(folder->store, "SELECT operations, bytes FROM v_collective",
                "36|9223372036854775807");
}

/* A run that nobody annotated counts from a spool's clock, and that may be any. */
RUNS_TEST(an_impossible_clock_is_an_origin) {
    struct mp_companion companion;
    struct mp_store_run description = runs_description("ep", "skewed");
    int64_t run_id = 0;
    assert_works(mp_store_ingest(folder->store, &description, NULL, 0, &run_id, &error));
    devices_files = 0;
    devices_open(folder, "cupti", 0, &companion);
    devices_record(&companion, (struct mp_activity){.start_ns = INT64_MAX, .end_ns = INT64_MAX});
    devices_close(folder, "cupti", &companion, 0);
    struct {
        struct spool_head head;
        struct mp_spool_header payload;
    } first;
    FILE *file = fopen(devices[0], "r+b");
    assert_non_null(file);
    assert_int_equal(fread(&first, sizeof first, 1, file), 1);
    first.payload.monotonic_ns = INT64_MIN;
    first.head.check = spool_check(&first);
    rewind(file);
    assert_int_equal(fwrite(&first, sizeof first, 1, file), 1);
    assert_int_equal(fclose(file), 0);
    assert_works(mp_store_add_device(folder->store, run_id, devices, devices_files, &error));
    assert_rows(folder->store, "SELECT start, \"end\" - start FROM CUPTI_ACTIVITY_KIND_KERNEL",
                "4611686018427387904|0");
}

static const char work_counts[] =
    "SELECT (SELECT count(*) FROM device_spool), (SELECT count(*) FROM "
    "CUPTI_ACTIVITY_KIND_KERNEL), (SELECT count(*) FROM CUPTI_ACTIVITY_KIND_MEMCPY), (SELECT "
    "count(*) FROM CUPTI_ACTIVITY_KIND_MEMSET), (SELECT count(*) FROM "
    "CUPTI_ACTIVITY_KIND_RUNTIME), (SELECT count(*) FROM gpu_overhead)";

/* Records of random kinds, more than are inserted at a time; how many of each, as in work_counts.
 * Those of kind k have the sums[k] of correlation ids. */
static void record_many(struct runs_folder *folder, uint64_t *random, char counts[96],
                        int64_t sums[MP_ACTIVITIES]) {
    struct mp_companion companion;
    int of[MP_ACTIVITIES] = {0};
    devices_open(folder, "cupti", 0, &companion);
    for (int i = test_random_int(random, 16380, 40000); i > 0; i--) {
        struct mp_activity activity = {.start_ns = devices_at(0, i),
                                       .end_ns = devices_at(0, i + 5),
                                       .correlation = (uint32_t)i,
                                       .kind = (uint8_t)test_random_int(random, 0, 5)};
        devices_record(&companion, activity);
        of[activity.kind]++;
        sums[activity.kind] += i;
    }
    devices_close(folder, "cupti", &companion, 0);
    snprintf(counts, 96, "1|%d|%d|%d|%d|%d", of[MP_ACTIVITY_KERNEL], of[MP_ACTIVITY_COPY],
             of[MP_ACTIVITY_SET], of[MP_ACTIVITY_CALL], of[MP_ACTIVITY_OVERHEAD]);
}

/* In a process of its own, which is killed after a random while. */
static void add_and_be_killed(struct runs_folder *folder, int64_t run_id, uint64_t *random) {
    fflush(stdout);
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        struct mp_store *store = NULL;
        if (mp_store_open(folder->database, &store, NULL) == MP_OK)
            mp_store_add_device(store, run_id, devices, devices_files, NULL);
        _exit(0);
    }
    usleep((useconds_t)test_random_int(random, 0, 60000));
    kill(child, SIGKILL);
    assert_int_equal(waitpid(child, NULL, 0), child);
}

RUNS_TEST(a_killed_addition_left_all_or_nothing) {
    uint64_t random = test_seed();
    char counts[96];
    int64_t sums[MP_ACTIVITIES] = {0};
    int64_t run_id = devices_run(folder);
    record_many(folder, &random, counts, sums);
    for (int kills = 0; kills < 3; kills++) {
        add_and_be_killed(folder, run_id, &random);
        const char *there = runs_query(folder->store, work_counts);
        assert_true(strcmp(there, "0|0|0|0|0|0") == 0 || strcmp(there, counts) == 0);
    }
    assert_works(mp_store_add_device(folder->store, run_id, devices, devices_files, &error));
    assert_rows(folder->store, work_counts, counts);
    char expected[96];
    snprintf(expected, sizeof expected, "%lld|%lld|%lld|%lld", (long long)sums[MP_ACTIVITY_KERNEL],
             (long long)sums[MP_ACTIVITY_COPY], (long long)sums[MP_ACTIVITY_SET],
             (long long)sums[MP_ACTIVITY_CALL]);
    assert_rows(
        folder->store,
        "SELECT (SELECT sum(correlationId) FROM CUPTI_ACTIVITY_KIND_KERNEL), (SELECT "
        "sum(correlationId) FROM CUPTI_ACTIVITY_KIND_MEMCPY), (SELECT sum(correlationId) FROM "
        "CUPTI_ACTIVITY_KIND_MEMSET), (SELECT sum(correlationId) FROM CUPTI_ACTIVITY_KIND_RUNTIME)",
        expected);
}

/* Cut anywhere: what is whole counts, and the row says that the rest is missing. */
RUNS_TEST(a_cut_spool_is_taken_as_far_as_it_goes) {
    uint64_t random = test_seed();
    int64_t run_id = devices_run(folder);
    record_activities(folder);
    struct stat status;
    assert_int_equal(stat(devices[0], &status), 0);
    off_t length = 200 + (off_t)(test_random(&random) % (uint64_t)(status.st_size - 200));
    assert_int_equal(truncate(devices[0], length), 0);
    assert_works(mp_store_add_device(folder->store, run_id, devices, 1, &error));
    assert_rows(folder->store, "SELECT complete FROM device_spool", "0");
    assert_rows(folder->store, "SELECT count(*) <= 5 FROM CUPTI_ACTIVITY_KIND_KERNEL", "1");
}

/* Collectors alone, of a program that nobody annotated: times count from the first of them. */
RUNS_TEST(a_run_without_spans_has_its_gpu_work) {
    struct mp_store_run description = runs_description("ep", "skewed");
    int64_t run_id = 0;
    assert_works(mp_store_ingest(folder->store, &description, NULL, 0, &run_id, &error));
    devices_files = 0;
    record_activities(folder);
    assert_works(mp_store_add_device(folder->store, run_id, devices, devices_files, &error));
    assert_rows(folder->store,
                "SELECT rank, kernels, round(kernel_ms, 6), span_id FROM v_gpu ORDER BY rank",
                "0|5|1.3|NULL\n1|1|0.5005|NULL");
    assert_rows(folder->store, "SELECT DISTINCT clock FROM device_spool", "same host");
}
