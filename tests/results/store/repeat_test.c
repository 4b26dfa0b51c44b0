/* Adding a run again, and killing at any moment whoever adds: what was there stays, what was not is
 * added once. */
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include "profiler/record/format.h"
#include "tests/results/runs.h"

enum { RUNS = 6, MOST_SPANS = 4000 };

/* Recordings of one run of two ranks, some hundred to some thousand spans. */
static void record_run(struct runs_folder *folder, uint64_t *random, char *paths[2]) {
    struct runs_rank ranks[2];
    int spans = test_random_int(random, 100, MOST_SPANS);
    for (int r = 0; r < 2; r++) {
        runs_rank_open(folder, r, 2, &ranks[r]);
        for (int i = 0; i < spans; i++)
            runs_record_one(&ranks[r], i / 50, MP_PHASE_EXPERT, MP_FORWARD, i * 10L, 7, 0, i % 8,
                            30, -1, i % 5 == 0);
        mp_record_text(ranks[r].compute, "spans", r ? "second" : "first");
        runs_rank_close(&ranks[r], MP_OK, "");
        paths[r] = strdup(ranks[r].path);
    }
}

static struct mp_store_run description(int number) {
    static char job[RUNS + 1][16];
    struct mp_store_run run = runs_description("ep", "text");
    snprintf(job[number], sizeof job[number], "job %d", number);
    run.job = job[number];
    return run;
}

static int64_t count(struct mp_store *store, const char *sql) {
    return strtoll(runs_query(store, sql), NULL, 10);
}

/* ---- again ---- */

RUNS_TEST(a_run_is_added_once) {
    uint64_t random = test_seed();
    char *paths[3][2];
    int64_t first = 0, again = 0, other = 0;
    for (int i = 0; i < 2; i++)
        record_run(folder, &random, paths[i]);
    struct mp_store_run run = description(0);
    const char *straight[] = {paths[0][0], paths[0][1]}, *turned[] = {paths[0][1], paths[0][0]};
    assert_works(mp_store_ingest(folder->store, &run, straight, 2, &first, &error));
    char *before = strdup(runs_query(folder->store, "SELECT count(*), max(span_id) FROM v_span"));
    run.job = "under another name";
    assert_works(mp_store_ingest(folder->store, &run, turned, 2, &again, &error));
    assert_int_equal(again, first);
    assert_rows(folder->store, "SELECT count(*), max(span_id) FROM v_span", before);
    free(before);
    const char *others[] = {paths[1][0], paths[1][1]}, *mixed[] = {paths[0][0], paths[1][1]};
    assert_works(mp_store_ingest(folder->store, &run, others, 2, &other, &error));
    assert_int_equal(other, first + 1);
    assert_works(mp_store_ingest(folder->store, &run, mixed, 2, &other, &error));
    assert_int_equal(other, first + 2);
    /* One rank's recording on its own is another run, too; and what is left of one that was cut. */
    assert_works(mp_store_ingest(folder->store, &run, mixed, 1, &other, &error));
    assert_int_equal(other, first + 3);
    struct stat status;
    assert_int_equal(stat(mixed[0], &status), 0);
    assert_int_equal(truncate(mixed[0], status.st_size - 100), 0);
    assert_works(mp_store_ingest(folder->store, &run, mixed, 1, &other, &error));
    assert_int_equal(other, first + 4);
    assert_works(mp_store_ingest(folder->store, &run, mixed, 1, &other, &error));
    assert_int_equal(other, first + 4);
    for (int i = 0; i < 4; i++)
        free(paths[i / 2][i % 2]);
}

RUNS_TEST(a_run_without_recordings_is_added_once) {
    struct mp_store_run run = runs_description("ep", "text");
    int64_t run_id[4];
    run.status = "failed";
    run.reason = "mpirun: not found";
    for (int i = 0; i < 4; i++) {
        run.round = i == 2;
        run.job = i == 3 ? "ano" : "another";
        run.suite_run = i == 3 ? "thertiny-1" : "tiny-1";
        assert_works(mp_store_ingest(folder->store, &run, NULL, 0, &run_id[i], &error));
    }
    assert_numbers(run_id[0], run_id[1], run_id[2], run_id[1] + 1, run_id[3], run_id[1] + 2);
}

/* ---- kills ---- */

struct recorded {
    const char *database;
    char *paths[RUNS][2];
};

/* In a process of its own, which opens the database for itself. */
static void add_all(const struct recorded *recorded, int steps) {
    AUTO(store) struct mp_store *store = NULL;
    if (mp_store_open(recorded->database, &store, NULL))
        _exit(1);
    for (int i = 0; i < RUNS; i++) {
        struct mp_store_run run = description(i);
        if (mp_store_ingest(store, &run, (const char *const *)recorded->paths[i], 2, NULL, NULL) ||
            write(steps, "", 1) != 1)
            _exit(1);
    }
}

/* Adds in a process that is killed after a random while; what it wrote into the pipe, one byte for
 * every run that it finished, is counted. */
static int kill_at_random(const struct recorded *recorded, int most_us, uint64_t *random) {
    int ends[2], steps = 0;
    char byte;
    assert_int_equal(pipe(ends), 0);
    fflush(stdout);
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        close(ends[0]);
        add_all(recorded, ends[1]);
        _exit(0);
    }
    close(ends[1]);
    usleep((useconds_t)test_random_int(random, 0, most_us));
    kill(child, SIGKILL);
    assert_int_equal(waitpid(child, NULL, 0), child);
    while (read(ends[0], &byte, 1) == 1)
        steps++;
    close(ends[0]);
    return steps;
}

/* Every run that is there is whole. */
static void assert_whole(struct mp_store *store, int64_t runs) {
    assert_rows(store, "PRAGMA integrity_check", "ok");
    assert_int_equal(count(store, "SELECT count(*) FROM run"), runs);
    assert_int_equal(count(store, "SELECT count(*) FROM run_summary"), runs);
    assert_int_equal(count(store, "SELECT count(*) FROM rank WHERE status = 'complete'"), 2 * runs);
    assert_int_equal(
        count(store, "SELECT count(DISTINCT value) FROM fact WHERE name = 'run.identity'"), runs);
    assert_int_equal(count(store, "SELECT count(*) FROM span"),
                     count(store, "SELECT coalesce(sum(spans), 0) FROM v_rank"));
}

static void remove_database(const struct runs_folder *folder) {
    static const char *const endings[] = {"", "-wal", "-shm"};
    char path[128];
    for (int i = 0; i < 3; i++) {
        snprintf(path, sizeof path, "%s%s", folder->database, endings[i]);
        remove(path);
    }
}

/* Several processes open a database that is not there yet: all of them find it theirs. */
RUNS_TEST(opened_by_several_at_once) {
    enum { PROCESSES = 4 };
    mp_store_close(folder->store);
    for (int round = 0; round < 30; round++) {
        int start[2], status, failed = 0;
        remove_database(folder);
        assert_int_equal(pipe(start), 0);
        fflush(stdout);
        for (int i = 0; i < PROCESSES; i++)
            if (fork() == 0) {
                char byte;
                struct mp_store *store = NULL;
                close(start[1]);
                if (read(start[0], &byte, 1) != 0)
                    _exit(1);
                int code = mp_store_open(folder->database, &store, NULL);
                mp_store_close(store);
                _exit(code != MP_OK);
            }
        close(start[0]);
        close(start[1]);
        for (int i = 0; i < PROCESSES; i++) {
            assert_true(wait(&status) > 0);
            failed += status != 0;
        }
        assert_int_equal(failed, 0);
    }
    assert_works(mp_store_open(folder->database, &folder->store, &error));
}

/* Adding is killed, and repeated by somebody who does not know how far it came. */
RUNS_TEST(killed_while_adding) {
    uint64_t random = test_seed();
    struct recorded recorded = {.database = folder->database};
    int stopped[RUNS + 1] = {0};
    for (int i = 0; i < RUNS; i++)
        record_run(folder, &random, recorded.paths[i]);
    mp_store_close(folder->store);
    int all_us = INT_MAX, nowhere = open("/dev/null", O_WRONLY);
    for (int round = 0; round < 40; round++) {
        remove_database(folder);
        /* How long it takes without a kill, at its quickest. */
        if (round % 20 < 2) {
            int64_t start_ns = mp_clock_ns();
            add_all(&recorded, nowhere);
            int took_us = (int)((mp_clock_ns() - start_ns) / 1000);
            all_us = took_us < all_us ? took_us : all_us;
            remove_database(folder);
        }
        int before = kill_at_random(&recorded, all_us, &random);
        int again = round % 2 ? kill_at_random(&recorded, all_us, &random) : 0;
        assert_works(mp_store_open(folder->database, &folder->store, &error));
        int64_t runs = count(folder->store, "SELECT count(*) FROM run");
        /* One more: it was killed between its commit and saying so. */
        assert_in_range(runs, before > again ? before : again, RUNS);
        assert_true(round % 2 || runs <= before + 1);
        assert_whole(folder->store, runs);
        stopped[runs]++;
        mp_store_close(folder->store);
        add_all(&recorded, nowhere);
        assert_works(mp_store_open(folder->database, &folder->store, &error));
        assert_whole(folder->store, RUNS);
        mp_store_close(folder->store);
    }
    close(nowhere);
    folder->store = NULL;
    for (int i = 0; i <= RUNS; i++)
        print_message("killed with %d of %d runs added: %d times\n", i, RUNS, stopped[i]);
    for (int i = 0; i < RUNS; i++)
        for (int r = 0; r < 2; r++)
            free(recorded.paths[i][r]);
}

/* ---- recordings that do not belong together ---- */

static void rewrite_header(const char *path, int64_t later_ns, int64_t monotonic_ns, int version) {
    uint64_t bytes[(sizeof(struct spool_head) + sizeof(struct mp_spool_header)) / 8];
    struct spool_head *head = (void *)bytes;
    struct mp_spool_header *header = (void *)(bytes + sizeof *head / 8);
    int file = open(path, O_RDWR);
    assert_int_equal(pread(file, bytes, sizeof bytes, 0), sizeof bytes);
    header->realtime_ns += later_ns;
    header->monotonic_ns = monotonic_ns;
    header->version = version;
    head->check = spool_check(head);
    assert_int_equal(pwrite(file, bytes, sizeof bytes, 0), sizeof bytes);
    close(file);
}

/* Rank 1 recorded ten minutes later, in another run; another build; a clock that jumped back. */
RUNS_TEST(what_does_not_belong_together_is_named) {
    static const char *const says[] = {
        "its recording began 600 s later than that of rank 0 and does not overlap it",
        "600 s earlier than that of rank 0 and does not overlap it: it is of another run, or a ",
        "1.spool: a spool of version 99, and this build reads version ",
        "1 of its spans end before they start, as when a clock jumps back"};
    for (int i = 0; i < 4; i++) {
        struct runs_rank ranks[2];
        char sql[160];
        for (int r = 0; r < 2; r++) {
            runs_rank_open(folder, r, 2, &ranks[r]);
            runs_standard_rank(&ranks[r], &runs_ep);
            if (i == 3 && r == 1)
                runs_record_one(&ranks[r], 1, MP_PHASE_GATE, MP_FORWARD, 900, -400, 0, 0, -1, -1,
                                false);
            runs_rank_close(&ranks[r], MP_OK, "");
        }
        const int64_t later_s = i == 0 ? 600 : i == 1 ? -600 : 0;
        rewrite_header(ranks[0].path, 0, RUNS_T0, MP_SPOOL_VERSION);
        rewrite_header(ranks[1].path, later_s * 1000000000, RUNS_T0,
                       i == 2 ? 99 : MP_SPOOL_VERSION);
        const char *paths[] = {ranks[0].path, ranks[1].path};
        struct mp_store_run run = runs_description("ep", "text");
        assert_works(mp_store_ingest(folder->store, &run, paths, 2, NULL, &error));
        snprintf(sql, sizeof sql, "SELECT reason FROM rank WHERE rank = 1 AND run_id = %d", i + 1);
        const char *reason = runs_query(folder->store, sql);
        const char *sentence = says[i] + (i == 2 ? 2 : 0);
        if (!strstr(reason, sentence))
            fail_msg("'%s' lacks '%s'", reason, sentence);
        snprintf(sql, sizeof sql, "SELECT count(*) FROM v_span WHERE run_id = %d", i + 1);
        assert_int_equal(count(folder->store, sql), i == 2 ? 29 : i == 3 ? 59 : 58);
        snprintf(sql, sizeof sql,
                 "SELECT count(*) FROM rank WHERE run_id = %d AND rank = 0 AND reason IS NULL",
                 i + 1);
        assert_int_equal(count(folder->store, sql), 1);
    }
    /* Times of different runs are not subtracted: the longest rank's, not from one to the other. */
    assert_rows(folder->store, "SELECT round(ms) FROM v_iteration WHERE run_id = 1",
                "39.0\n19.0\n27.0\n23.0");
}

/* The same of two that recorded for a moment, 1000 s before their clocks' zero. */
RUNS_TEST(recordings_end_before_zero) {
    struct mp_store_run run = runs_description("ep", "text");
    const char *paths[2];
    struct runs_rank ranks[2];
    for (int r = 0; r < 2; r++) {
        runs_rank_open(folder, r, 2, &ranks[r]);
        runs_record_one(&ranks[r], 0, MP_PHASE_GATE, MP_FORWARD, -2000000000, 4, 0, 0, 1, -1,
                        false);
        runs_rank_close(&ranks[r], MP_OK, "");
        rewrite_header(ranks[r].path, r * 600000000000, -RUNS_T0, MP_SPOOL_VERSION);
        paths[r] = ranks[r].path;
    }
    assert_works(mp_store_ingest(folder->store, &run, paths, 2, NULL, &error));
    assert_rows(folder->store, "SELECT reason LIKE '%600 s later than%' FROM rank", "NULL\n1");
}
