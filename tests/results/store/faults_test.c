/* What happens to databases and recordings that are not as they should be. */
#include <fcntl.h>
#include <sys/stat.h>

#include "profiler/record/format.h"
#include "tests/results/runs.h"

/* ---- databases ---- */

static void close_store(struct runs_folder *folder) {
    mp_store_close(folder->store);
    folder->store = NULL;
}

static void copy_file(const char *from, const char *to) {
    size_t size;
    AUTO(text) char *bytes = read_bytes(from, &size);
    write_bytes(to, bytes, size);
}

/* Both ways of opening refuse with the code and a sentence that holds both texts, and leave every
 * byte as it was. */
static void assert_refused(struct runs_folder *folder, int code, const char *says,
                           const char *says_too) {
    size_t before_size, after_size;
    AUTO(text) char *before = read_bytes(folder->database, &before_size);
    for (int read_only = 0; read_only < 2; read_only++) {
        struct mp_error error = {0};
        struct mp_store *store = NULL;
        int got = read_only ? mp_store_open_read_only(folder->database, &store, &error)
                            : mp_store_open(folder->database, &store, &error);
        assert_int_equal(got, code);
        assert_int_equal(error.code, code);
        assert_null(store);
        assert_contains(error.text, folder->database);
        if (!strstr(error.text, says) || !strstr(error.text, says_too))
            fail_msg("'%s' lacks '%s' or '%s'", error.text, says, says_too);
    }
    AUTO(text) char *after = read_bytes(folder->database, &after_size);
    assert_int_equal(after_size, before_size);
    assert_memory_equal(after, before, before_size);
}

RUNS_TEST(a_newer_schema_is_refused_by_name) {
    runs_query(folder->store, "PRAGMA user_version = 77");
    close_store(folder);
    assert_refused(folder, MP_EVERSION, "version 77", "up to 4");
}

/* As versions before the third have it; the database is closed. */
static void allow_no_refusals(struct runs_folder *folder, int version) {
    char sql[400];
    snprintf(sql, sizeof sql,
             "DROP TABLE choice; " /* of the fourth */
             "PRAGMA writable_schema = ON; UPDATE sqlite_schema SET sql = replace(sql, ', "
             "''refused'')', ')') WHERE type = 'table' AND name = 'run'; PRAGMA writable_schema = "
             "RESET; PRAGMA user_version = %d",
             version);
    runs_execute(folder->store, sql);
    close_store(folder);
}

/* Version 2 is read as it is; written to, it takes refusals and keeps every run as it was. */
RUNS_TEST(runs_of_version_2_stay) {
    struct mp_store_run run = runs_description("ep", "text");
    static const char all_sql[] = "SELECT run.*, (SELECT count(*) FROM v_span) FROM run";
    runs_add(folder, &run, &runs_ep);
    AUTO(text) char *before = strdup(runs_query(folder->store, all_sql));
    allow_no_refusals(folder, 2);
    assert_works(mp_store_open_read_only(folder->database, &folder->store, &error));
    assert_rows(folder->store, all_sql, before);
    assert_rows(folder->store, "SELECT system FROM v_speedup", "ep");
    close_store(folder);
    assert_works(mp_store_open(folder->database, &folder->store, &error));
    assert_rows(folder->store, all_sql, before);
    assert_rows(folder->store, "PRAGMA user_version", "4");
    assert_rows(folder->store,
                "SELECT name FROM sqlite_schema WHERE type = 'index' AND tbl_name = 'run'",
                "run_by_suite_run");
    assert_rows(folder->store, "PRAGMA integrity_check", "ok");
    run.job = "other";
    run.status = "refused";
    run.reason = "it can't";
    assert_works(mp_store_ingest(folder->store, &run, NULL, 0, NULL, &error));
    assert_rows(folder->store, "SELECT status, reason FROM v_run ORDER BY run_id DESC LIMIT 1",
                "refused|it can't");
    run.status = "reused";
    assert_fails(mp_store_ingest(folder->store, &run, NULL, 0, NULL, &error), MP_EINVAL,
                 "complete, failed, interrupted, timeout or refused, not");
}

RUNS_TEST(an_older_schema_is_brought_up_to_date) {
    struct mp_store *store = NULL;
    runs_execute(folder->store,
                 "DROP TABLE NVTX_EVENTS; DROP TABLE ThreadNames; " /* of version 1 and 2 */
                 "DROP TABLE device_spool; DROP TABLE CUPTI_ACTIVITY_KIND_KERNEL; DROP TABLE "
                 "CUPTI_ACTIVITY_KIND_MEMCPY; DROP TABLE CUPTI_ACTIVITY_KIND_MEMSET; DROP TABLE "
                 "CUPTI_ACTIVITY_KIND_RUNTIME; DROP TABLE gpu_overhead; DROP TABLE collective");
    allow_no_refusals(folder, 1);
    assert_fails(mp_store_open_read_only(folder->database, &store, &error), MP_EVERSION, "");
    assert_works(mp_store_open(folder->database, &folder->store, &error));
    assert_rows(folder->store, "PRAGMA user_version", "4");
    assert_rows(folder->store, "SELECT count(*) FROM v_nvtx", "0");
    assert_rows(folder->store, "SELECT count(*) FROM v_gpu", "0");
    assert_rows(folder->store, "SELECT count(*) FROM v_collective", "0");
}

RUNS_TEST(a_file_that_is_no_database_is_refused) {
    close_store(folder);
    FILE *file = fopen(folder->database, "w");
    assert_non_null(file);
    for (int i = 0; i < 200; i++)
        fprintf(file, "routing: %d is text and no database\n", i);
    fclose(file);
    assert_refused(folder, MP_EFORMAT, "not a database", "");
}

RUNS_TEST(a_database_of_another_program_is_refused) {
    close_store(folder);
    remove(folder->database);
    sqlite3 *other;
    assert_int_equal(sqlite3_open(folder->database, &other), SQLITE_OK);
    assert_int_equal(sqlite3_exec(other, "CREATE TABLE dog (name)", NULL, NULL, NULL), SQLITE_OK);
    sqlite3_close(other);
    assert_refused(folder, MP_EFORMAT, "another program", "application_id");
}

RUNS_TEST(a_folder_is_no_database) {
    struct mp_store *store = NULL;
    assert_fails(mp_store_open(folder->path, &store, &error), MP_EIO, folder->path);
}

RUNS_TEST(an_empty_file_becomes_a_database) {
    close_store(folder);
    fclose(fopen(folder->database, "w"));
    struct mp_store *store = NULL;
    assert_fails(mp_store_open_read_only(folder->database, &store, &error), MP_EFORMAT, "");
    assert_works(mp_store_open(folder->database, &folder->store, &error));
    assert_rows(folder->store, "PRAGMA journal_mode", "wal");
    assert_rows(folder->store, "PRAGMA user_version", "4");
}

RUNS_TEST(reading_needs_a_file_and_never_writes) {
    struct mp_store *store = NULL;
    assert_fails(mp_store_open_read_only("/nowhere/results.db", &store, &error), MP_ENOTFOUND,
                 "/nowhere/results.db");

    assert_works(mp_store_open_read_only(folder->database, &store, &error));
    assert_rows(store, "SELECT count(*) FROM v_run", "0");
    struct mp_store_run run = runs_description("ep", "text");
    assert_fails(mp_store_ingest(store, &run, NULL, 0, NULL, &error), MP_EIO, "readonly");
    mp_store_close(store);

    /* Nothing is left beside the file, unless another connection needs it. */
    char log[sizeof folder->database + 4];
    snprintf(log, sizeof log, "%s-wal", folder->database);
    for (int others = 1; others >= 0; others--) {
        if (others == 0)
            close_store(folder);
        assert_works(mp_store_open_read_only(folder->database, &store, &error));
        assert_rows(store, "SELECT count(*) FROM v_run", "0");
        mp_store_close(store);
        assert_int_equal(access(log, F_OK), others ? 0 : -1);
    }
}

/* What a build from before some columns and views existed leaves, and what a user added. */
static void make_views_older(struct runs_folder *folder) {
    runs_execute(folder->store,
                 "DROP VIEW v_speedup; CREATE VIEW v_speedup AS SELECT run_id, suite, system FROM "
                 "run; DROP VIEW v_fact; CREATE VIEW my_own AS SELECT system, count(*) AS runs "
                 "FROM v_speedup GROUP BY system; PRAGMA wal_checkpoint(TRUNCATE)");
    close_store(folder);
}

static const char views_sql[] = "SELECT name, sql FROM main.sqlite_schema WHERE type = 'view' AND "
                                "name <> 'my_own' ORDER BY name";
static const char newer_columns_sql[] = "SELECT count(*), sum(iterations_agreed) FROM v_speedup";

RUNS_TEST(older_views_are_hidden_from_a_reader) {
    struct mp_store *store = NULL;
    runs_add_usual(folder, "ep", &runs_ep);
    make_views_older(folder);
    size_t before_size, after_size;
    AUTO(text) char *before = read_bytes(folder->database, &before_size);

    assert_works(mp_store_open_read_only(folder->database, &store, &error));
    assert_rows(store, newer_columns_sql, "1|4");
    assert_rows(store, "SELECT count(*) FROM v_fact WHERE 0", "0");
    assert_rows(store, "SELECT name FROM temp.sqlite_schema ORDER BY name", "v_fact\nv_speedup");
    mp_store_close(store);

    AUTO(text) char *after = read_bytes(folder->database, &after_size);
    assert_int_equal(after_size, before_size);
    assert_memory_equal(after, before, before_size);
}

RUNS_TEST(older_views_are_renewed_and_no_others) {
    runs_add_usual(folder, "ep", &runs_ep);
    AUTO(text) char *wanted = strdup(runs_query(folder->store, views_sql));
    make_views_older(folder);

    assert_works(mp_store_open(folder->database, &folder->store, &error));
    assert_rows(folder->store, views_sql, wanted);
    assert_rows(folder->store, newer_columns_sql, "1|4");
    assert_rows(folder->store, "SELECT * FROM my_own", "ep|1");
    assert_rows(folder->store, "SELECT count(*) FROM v_span", "58");

    AUTO(text) char *schema = strdup(runs_query(folder->store, "PRAGMA schema_version"));
    close_store(folder);
    assert_works(mp_store_open_read_only(folder->database, &folder->store, &error));
    assert_rows(folder->store, "SELECT count(*) FROM temp.sqlite_schema", "0"); /* none is old */
    close_store(folder);
    assert_works(mp_store_open(folder->database, &folder->store, &error));
    assert_rows(folder->store, "PRAGMA schema_version", schema);
}

RUNS_TEST(views_that_cannot_be_renewed_stay_whole) {
    make_views_older(folder);
    assert_works(mp_store_open_read_only(folder->database, &folder->store, &error));
    AUTO(text) char *before = strdup(runs_query(folder->store, views_sql));
    close_store(folder);

    sqlite3 *other = NULL;
    assert_int_equal(sqlite3_open(folder->database, &other), SQLITE_OK);
    assert_int_equal(sqlite3_exec(other, "CREATE TABLE v_fact (name)", NULL, NULL, NULL),
                     SQLITE_OK);
    assert_fails(mp_store_open(folder->database, &folder->store, &error), MP_EIO, folder->database,
                 "cannot renew the views");
    assert_null(folder->store);
    assert_int_equal(sqlite3_exec(other, "DROP TABLE v_fact", NULL, NULL, NULL), SQLITE_OK);
    assert_int_equal(sqlite3_close(other), SQLITE_OK);

    assert_works(mp_store_open_read_only(folder->database, &folder->store, &error));
    assert_rows(folder->store, views_sql, before);
}

/* A folder and a file in it that may only be read; root gives up its rights for the while. */
static void lose_permission(struct runs_folder *folder, const char *file, bool lost) {
    if (!lost && getuid() == 0)
        assert_int_equal(seteuid(0), 0);
    assert_int_equal(chmod(folder->path, lost ? 0555 : 0755), 0);
    assert_int_equal(chmod(file, lost ? 0444 : 0644), 0);
    if (lost && getuid() == 0)
        assert_int_equal(seteuid(65534), 0);
}

/* An empty log beside it is none. */
RUNS_TEST(what_may_only_be_read_can_be_read) {
    char odd[128], log[160];
    runs_add_usual(folder, "ep", &runs_ep);
    close_store(folder);
    snprintf(odd, sizeof odd, "%s/100%% #1?.db", folder->path);
    snprintf(log, sizeof log, "%s-wal", odd);
    assert_int_equal(rename(folder->database, odd), 0);
    for (int has_empty_log = 0; has_empty_log < 2; has_empty_log++) {
        struct mp_error error = {0}, writing = {0};
        struct mp_store *store = NULL;
        AUTO(text) char *spans = NULL;
        if (has_empty_log)
            write_bytes(log, "", 0);
        lose_permission(folder, odd, true);
        int code = mp_store_open_read_only(odd, &store, &error);
        if (!code)
            spans = strdup(runs_query(store, "SELECT count(*) FROM v_span"));
        mp_store_close(store);
        store = NULL;
        int writing_code = mp_store_open(odd, &store, &writing);
        lose_permission(folder, odd, false);

        runs_ok(code, &error);
        assert_string_equal(spans, "58");
        assert_int_equal(writing_code, MP_EIO);
        assert_contains(writing.text, "the database may not be written (permissions)");
    }
}

RUNS_TEST(a_folder_that_may_not_be_written_is_named) {
    char made[128];
    struct mp_store *store = NULL;
    struct mp_error error = {0};
    snprintf(made, sizeof made, "%s/new.db", folder->path);
    lose_permission(folder, folder->database, true);
    const int code = mp_store_open(made, &store, &error);
    lose_permission(folder, folder->database, false);
    assert_int_equal(code, MP_EIO);
    assert_string_equal(error.text,
                        formatted("%s: cannot open the database: Permission denied", made));
}

RUNS_TEST(runs_that_only_a_log_has_are_not_left_out) {
    struct mp_error error = {0};
    char copied[128], log[128];
    runs_add_usual(folder, "ep", &runs_ep);
    snprintf(copied, sizeof copied, "%s/copied.db", folder->path);
    snprintf(log, sizeof log, "%s/copied.db-wal", folder->path);
    copy_file(folder->database, copied);
    snprintf(copied, sizeof copied, "%s-wal", folder->database);
    copy_file(copied, log);
    snprintf(copied, sizeof copied, "%s/copied.db", folder->path);

    lose_permission(folder, copied, true);
    AUTO(store) struct mp_store *store = NULL;
    int code = mp_store_open_read_only(copied, &store, &error);
    mp_store_close(store);
    lose_permission(folder, copied, false);
    assert_int_equal(code, MP_EIO);
    assert_contains(error.text, "copied.db: its newest runs are still in ");

    error = (struct mp_error){0};
    runs_ok(mp_store_open_read_only(copied, &store, &error), &error);
    assert_rows(store, "SELECT count(*) FROM v_span", "58");
}

RUNS_TEST(a_full_disk_leaves_the_database_as_it_was) {
    struct mp_store_run run = runs_description("ep", "text");
    runs_add(folder, &run, &runs_ep);
    struct runs_rank rank;
    runs_rank_open(folder, 0, 1, &rank);
    for (int i = 0; i < 20000; i++)
        runs_record_one(&rank, i, MP_PHASE_GATE, MP_FORWARD, i, 1, 0, 0, -1, -1, false);
    runs_rank_close(&rank, MP_OK, "");
    runs_query(folder->store, "PRAGMA max_page_count = 60");
    const char *paths[] = {rank.path};
    run.ranks = 1;
    assert_fails(mp_store_ingest(folder->store, &run, paths, 1, NULL, &error), MP_ENOSPACE,
                 folder->database);
    assert_rows(folder->store, "SELECT count(*), sum(iteration) FROM v_span", "58|92");
    assert_rows(folder->store, "SELECT count(*) FROM v_run", "1");
    runs_query(folder->store, "PRAGMA max_page_count = 1073741823");
    assert_works(mp_store_ingest(folder->store, &run, paths, 1, NULL, &error));
    assert_rows(folder->store, "SELECT count(*) FROM v_run", "2");
}

/* ---- runs ---- */

RUNS_TEST(runs_are_added_and_never_overwritten) {
    assert_int_equal(runs_add_usual(folder, "ep", &runs_ep), 1);
    close_store(folder);
    assert_works(mp_store_open(folder->database, &folder->store, &error));
    assert_int_equal(runs_add_usual(folder, "ep", &runs_ep), 2);
    assert_rows(folder->store,
                "SELECT run_id, count(*), min(span_id), max(span_id) FROM v_span GROUP BY run_id",
                "1|58|1|58\n2|58|59|116");
    assert_rows(folder->store, "SELECT iterations FROM v_run WHERE run_id = 2", "4");
}

struct lock {
    sqlite3 *holder;
    double waited; /* s */
    int calls;
};

static bool unlocks_at_once(void *context, double seconds) {
    struct lock *lock = context;
    lock->calls++;
    lock->waited = seconds;
    sqlite3_exec(lock->holder, "ROLLBACK", NULL, NULL, NULL);
    return true;
}

static bool gives_up_soon(void *context, double seconds) {
    struct lock *lock = context;
    lock->calls++;
    lock->waited = seconds;
    return lock->calls < 3;
}

RUNS_TEST(who_waits_for_a_lock_may_give_up) {
    struct mp_store_run run = runs_description("ep", "text");
    struct lock lock = {.holder = NULL};
    assert_int_equal(sqlite3_open(folder->database, &lock.holder), SQLITE_OK);
    for (int unlocks = 0; unlocks < 2; unlocks++) {
        struct mp_error error = {0};
        lock.calls = 0;
        sqlite3_exec(lock.holder, "BEGIN IMMEDIATE", NULL, NULL, NULL);
        mp_store_set_patience(folder->store, unlocks ? unlocks_at_once : gives_up_soon, &lock);
        int code = mp_store_ingest(folder->store, &run, NULL, 0, NULL, &error);
        assert_int_equal(code, unlocks ? MP_OK : MP_EIO);
        assert_int_equal(lock.calls, unlocks ? 1 : 3);
        assert_close(lock.waited, unlocks ? 0 : 0.04, 1e-12);
        if (!unlocks)
            assert_contains(error.text, "database is locked");
        assert_rows(folder->store, "SELECT count(*) FROM run", unlocks ? "1" : "0");
    }
    sqlite3_close(lock.holder);
}

/* Where nobody saw the end, all ranks have to say that they completed. */
RUNS_TEST(ranks_that_completed_complete_a_run) {
    static const int ends[][2] = {{MP_OK, MP_EINTERRUPTED},
                                  {MP_EIO, MP_OK},
                                  {MP_OK, 1 /* cut off */},
                                  {1 /* none */, 1 /* none */},
                                  {MP_OK, MP_OK}};
    for (size_t i = 0; i < sizeof ends / sizeof *ends; i++) {
        struct mp_store_run run = runs_description("ep", "text");
        struct runs_rank ranks[2];
        const char *paths[2];
        run.status = "interrupted";
        run.reason = "not seen";
        run.unless_completed = true;
        run.round = (int)i;
        for (int r = 0; r < 2; r++) {
            runs_rank_open(folder, r, 2, &ranks[r]);
            runs_standard_rank(&ranks[r], &runs_ep);
            runs_rank_close(&ranks[r], ends[i][r] > 0 ? MP_OK : ends[i][r], "");
            paths[r] = ranks[r].path;
            struct stat status;
            assert_int_equal(stat(paths[r], &status), 0);
            if (ends[i][r] > 0)
                assert_int_equal(truncate(paths[r], status.st_size - 8), 0);
        }
        assert_works(mp_store_ingest(folder->store, &run, paths, 2, NULL, &error));
    }
    assert_rows(folder->store, "SELECT status, reason FROM run ORDER BY round",
                "interrupted|not seen\ninterrupted|not seen\ninterrupted|not seen\n"
                "interrupted|not seen\ncomplete|NULL");
}

RUNS_TEST(what_is_no_file_keeps_no_runs) {
    static const char *const names[] = {"", ":memory:", "file:x?mode=memory", "file::memory:"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        struct mp_store *store = NULL;
        assert_fails(mp_store_open(names[i], &store, &error), MP_EINVAL,
                     "is no file that a database can be kept in");
        assert_null(store);
    }
}

RUNS_TEST(incomplete_descriptions_are_refused) {
    static const char *const says[] = {"suite_run", "status", "not 'perhaps'", "not 0"};
    for (int i = 0; i < 4; i++) {
        struct mp_store_run run = runs_description("ep", "text");
        run.suite_run = i == 0 ? NULL : run.suite_run;
        run.status = i == 1 ? NULL : i == 2 ? "perhaps" : run.status;
        run.ranks = i == 3 ? 0 : run.ranks;
        assert_fails(mp_store_ingest(folder->store, &run, NULL, 0, NULL, &error), MP_EINVAL,
                     says[i]);
    }
    assert_rows(folder->store, "SELECT count(*) FROM run", "0");
}

RUNS_TEST(a_job_without_recordings_is_a_failed_run) {
    runs_add_unrecorded(folder, "ep", "failed", "mpirun: not found");
    assert_rows(folder->store, "SELECT status, reason, iterations, ranks_recorded FROM v_run",
                "failed|mpirun: not found|0|0");
    assert_rows(folder->store,
                "SELECT ms_per_iteration, tokens_per_s, speedup_vs_ep, loss_final, "
                "max_loss_difference FROM v_speedup",
                "NULL|NULL|NULL|NULL|NULL");
    assert_rows(
        folder->store, "SELECT rank, status, reason, host, clock FROM rank",
        "0|missing|no recording was given|NULL|NULL\n1|missing|no recording was given|NULL|NULL");
}

RUNS_TEST(strange_recordings_are_named_and_left_out) {
    struct runs_rank ranks[4];
    static const struct { int rank, ranks; } headers[] = {{2, 4}, {2, 4}, {1, 3}, {0, 4}};
    for (int i = 0; i < 4; i++) {
        runs_rank_open(folder, headers[i].rank, headers[i].ranks, &ranks[i]);
        runs_record(&ranks[i], 0,
                    &(struct runs_span){.phase = MP_PHASE_ITERATION,
                                        .length_us = 5,
                                        .layer = -1,
                                        .tokens = -1,
                                        .flops = -1});
        runs_rank_close(&ranks[i], MP_OK, "");
    }
    char text[128];
    snprintf(text, sizeof text, "%s/text.spool", folder->path);
    write_bytes(text, "not a spool at all, not at all", 30);

    const char *paths[] = {ranks[3].path, text, ranks[0].path, ranks[1].path, ranks[2].path};
    struct mp_store_run run = runs_description("ep", "text");
    run.ranks = 4;
    assert_works(mp_store_ingest(folder->store, &run, paths, 5, NULL, &error));
    assert_rows(folder->store, "SELECT rank, status FROM rank",
                "0|complete\n1|missing\n2|complete\n3|missing");
    assert_contains(runs_query(folder->store, "SELECT reason FROM rank WHERE rank = 1"),
                    "text.spool: not a spool");
    assert_contains(runs_query(folder->store, "SELECT reason FROM rank WHERE rank = 3"),
                    "a second recording of rank 2");
    assert_contains(runs_query(folder->store, "SELECT reason FROM rank WHERE rank = 0"),
                    "recorded by rank 1 of 3");
    assert_rows(folder->store, "SELECT count(*) FROM v_span", "2");
}

/* Cut at every byte of its last records: the run is stored as far as it goes. */
RUNS_TEST(a_cut_recording_goes_as_far_as_it_goes) {
    struct runs_rank ranks[2];
    for (int r = 0; r < 2; r++) {
        runs_rank_open(folder, r, 2, &ranks[r]);
        runs_standard_rank(&ranks[r], &runs_ep);
        runs_rank_close(&ranks[r], MP_OK, "");
    }
    const char *paths[] = {ranks[0].path, ranks[1].path};
    size_t size;
    free(read_bytes(paths[1], &size));
    int64_t iterations_before = 4;
    for (size_t left = size - 1; left > size / 4; left -= 37) {
        struct mp_store_run run = runs_description("ep", "text");
        int64_t run_id;
        run.status = "failed";
        run.reason = "rank 1 was killed by signal 9";
        assert_int_equal(truncate(paths[1], (off_t)left), 0);
        assert_works(mp_store_ingest(folder->store, &run, paths, 2, &run_id, &error));
        int64_t iterations = atoll(
            runs_query(folder->store, "SELECT iterations FROM v_run ORDER BY run_id DESC LIMIT 1"));
        assert_true(iterations <= iterations_before);
        iterations_before = iterations;
    }
    assert_true(iterations_before < 3);
    assert_rows(
        folder->store,
        "SELECT status, reason LIKE '%without an end%' FROM rank WHERE rank = 1 GROUP BY 1, 2",
        "cut|1");
    /* Rank 0 went on: its iterations are there, but don't count as the run's. */
    assert_rows(folder->store,
                "SELECT sum(ranks = 1 AND steady = 0) > 0, count(*) FROM v_iteration WHERE run_id "
                "= (SELECT max(run_id) FROM run)",
                "1|4");
    assert_rows(folder->store, "SELECT count(*) FROM v_speedup WHERE speedup_vs_ep NOT NULL", "0");
}

RUNS_TEST(a_rank_says_itself_how_it_ended) {
    struct runs_rank ranks[2];
    static const int statuses[] = {MP_ECOMM, MP_EINTERRUPTED};
    for (int r = 0; r < 2; r++) {
        runs_rank_open(folder, r, 2, &ranks[r]);
        runs_rank_close(&ranks[r], statuses[r], r ? "stopped by SIGINT" : "rank 1 is gone");
    }
    struct mp_store_run run = runs_description("ep", "text");
    run.status = "interrupted";
    runs_ingest(folder, &run, ranks, 2);
    assert_rows(folder->store, "SELECT rank, status, reason FROM rank",
                "0|failed|rank 1 is gone\n1|interrupted|stopped by SIGINT");
}

/* Moves a recording to another host, whose monotonic clock is ahead. */
static void move_to_another_host(const char *path, int64_t ahead_ns) {
    size_t size;
    AUTO(text) char *bytes = read_bytes(path, &size);
    struct spool_head *head = (void *)bytes;
    struct mp_spool_header *header = (void *)(bytes + sizeof *head);
    snprintf(header->host, sizeof header->host, "elsewhere");
    header->monotonic_ns += ahead_ns;
    head->check = spool_check(bytes);
    write_bytes(path, bytes, size);
}

/* Without clock samples another host goes by its wall clock, which is too coarse to subtract: an
 * iteration then takes as long as its longest rank. */
RUNS_TEST(hosts_without_clock_samples_go_by_wall_clock) {
    struct runs_rank ranks[2];
    const int64_t ahead_ns = 77000000000000;
    for (int r = 0; r < 2; r++) {
        runs_rank_open(folder, r, 2, &ranks[r]);
        int64_t start_ns = RUNS_T0 + (r ? ahead_ns + 900000000 : 0);
        mp_record_span(ranks[r].compute,
                       &(struct mp_span){.start_ns = start_ns,
                                         .end_ns = start_ns + 8000000 + r * 1000000,
                                         .tokens = -1,
                                         .layer = -1,
                                         .phase = MP_PHASE_ITERATION});
        runs_rank_close(&ranks[r], MP_OK, "");
    }
    move_to_another_host(ranks[1].path, ahead_ns);
    struct mp_store_run run = runs_description("ep", "text");
    runs_ingest(folder, &run, ranks, 2);
    assert_rows(folder->store, "SELECT clock FROM v_rank", "reference\nwall clock");
    assert_rows(folder->store, "SELECT round(ms, 6) FROM v_iteration", "9.0");
    assert_rows(folder->store,
                "SELECT start_ns BETWEEN 800000000 AND 1000000000 FROM v_span WHERE rank = 1", "1");
}

/* ---- values ---- */

RUNS_TEST(names_may_hold_quotes_and_control_characters) {
    struct mp_store_run run = runs_description("e\"p'; DROP TABLE run; --", "te\nx\tt\x01");
    run.job_text = "a: 'b'\n";
    runs_add(folder, &run, &runs_ep);
    assert_rows(
        folder->store,
        "SELECT system, workload, job_text FROM v_run JOIN run USING (run_id, system, workload)",
        "e\"p'; DROP TABLE run; --|te\nx\tt\x01|a: 'b'\n");
}

/* A file that is no recording is told of where one is missing, in turn, not where there is one. */
RUNS_TEST(reasons_are_where_recordings_are_missing) {
    struct mp_store_run run = runs_description("EP", "synthetic");
    struct runs_rank own;
    int64_t run_id = 0;
    runs_rank_open(folder, 0, 3, &own);
    runs_standard_rank(&own, &runs_ep);
    runs_rank_close(&own, MP_OK, "");
    char first[96], second[96];
    snprintf(first, sizeof first, "%s/first", folder->path);
    snprintf(second, sizeof second, "%s/second", folder->path);
    const char *paths[] = {first, own.path, second};
    run.ranks = run.ranks_per_node = 3;
    assert_works(mp_store_ingest(folder->store, &run, paths, 3, &run_id, &error));
    assert_rows(
        folder->store,
        "SELECT rank, reason LIKE '%/first%', reason LIKE '%/second%' FROM rank ORDER BY rank",
        "0|NULL|NULL\n1|1|0\n2|0|1");
}
