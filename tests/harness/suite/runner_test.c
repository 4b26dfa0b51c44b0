/* Running: whatever becomes of a job, it is a row in the database, and the next one runs. */
#include "harness/suite/keep.h"
#include "harness/suite/runner.h"

#include "tests/harness/folder.h"
#include "tests/results/runs.h"

static const struct mp_system ep = {.abi = MP_SYSTEM_ABI, .name = "ep"};
static const struct mp_system fssdp = {.abi = MP_SYSTEM_ABI, .name = "fssdp"};
static const struct mp_systems systems = {.item = {&ep, &fssdp}, .count = 2};

enum { SPOOL_ITERATIONS = 5, SPOOLS = 16 };

/* What a rank leaves behind; one that was cut off after SPOOL_ITERATIONS: no end record. */
static void write_spool(const char *path, bool is_cut) {
    struct mp_recorder *recorder;
    struct mp_record_thread *thread;
    const struct mp_recorder_config config = {.path = path, .rank = 0, .ranks = 1};
    assert_works(mp_recorder_create(&config, &recorder, &error));
    assert_works(mp_recorder_thread(recorder, "compute", &thread, &error));
    for (int i = 0; i < SPOOL_ITERATIONS; i++) {
        const struct mp_span span = {.start_ns = 1000000 * (i + 1),
                                     .end_ns = 1000000 * (i + 1) + 900000,
                                     .cpu_ns = -1,
                                     .tokens = 64,
                                     .bytes = -1,
                                     .flops = -1,
                                     .iteration = i,
                                     .layer = -1,
                                     .phase = MP_PHASE_ITERATION,
                                     .direction = MP_NO_DIRECTION};
        mp_record_span(thread, &span);
        mp_record_number(thread, i, -1, "loss", 5.0 - i);
    }
    assert_works(mp_recorder_finish(&recorder, MP_OK, NULL, &error));
    struct stat status;
    assert_int_equal(stat(path, &status), 0);
    assert_int_equal(truncate(path, status.st_size - (is_cut ? 8 : 0)), 0);
}

/* The stand-in for moeperf-train does what the job's name says; $1 job file, $3 spool folder.  Each
 * takes a recording of its own: the same one again would be the same run. */
static const char trainer[] =
    "for cut in cut-*.spool; do mv $cut \"$3/rank-0000.spool\"; break; done\n"
    "case $(grep '^name:' \"$1\") in\n"
    "*fine*) echo progress 5 5 $OMP_NUM_THREADS.5 10;;\n"
    "*wrong*) echo 'moeperf-train: something is wrong' >&2; exit 2;;\n"
    "*killed*) echo progress 5 9 1.5 10; kill -9 $$;;\n"
    "*hangs*) trap 'exit 1' TERM; while :; do sleep 0.1; done;;\n"
    "*stopped*) echo progress 5 9 1.5 10; trap 'exit 1' INT; kill -ALRM $PPID\n"
    "  while :; do sleep 0.1; done;;\n"
    "*garbled*) echo garbled >\"$3/rank-0001.spool\";;\n"
    "*silent*) rm \"$3\"/*;;\n"
    "esac\n";

static volatile sig_atomic_t signals;

struct session {
    struct mp_suite suite;
    struct mp_store *store;
    struct mp_runner runner;
    struct mp_runner_result result;
    struct mp_progress progress;
    FILE *said;
};

/* Opens the database "results.db" and a suite whose jobs have these names.  Suites are numbered:
 * two runs of one second and one process would share their folder. */
static void begin(struct session *session, const char *keys, const char *names) {
    static int number;
    char text[1 << 15];
    size_t length = (size_t)snprintf(
        text, sizeof text, "suite: trial%d\n%scommon: {text: words}\njobs:\n", ++number, keys);
    for (const char *name = names; *name; name += strspn(name, " ")) {
        int size = (int)strcspn(name, " ");
        length +=
            (size_t)snprintf(text + length, sizeof text - length, "  - {name: %.*s, system: %s}\n",
                             size, name, name == names ? "ep" : "fssdp");
        name += size;
    }
    write_file("suite.yaml", text);
    write_file("words", "words");
    write_script("trainer", trainer);
    for (int i = 0; i < SPOOLS; i++) {
        char path[32];
        snprintf(path, sizeof path, "cut-%02d.spool", i);
        unlink(path);
        write_spool(path, true);
    }
    memset(session, 0, sizeof *session);
    signals = 0;
    assert_works(mp_suite_load("suite.yaml", &systems, NULL, &session->suite, &error));
    assert_works(mp_store_open("results.db", &session->store, &error));
    session->said = tmpfile();
    mp_progress_begin(&session->progress, session->said);
    session->runner = (struct mp_runner){.suite = &session->suite,
                                         .store = session->store,
                                         .work = "work/runs",
                                         .trainer = "./trainer",
                                         .progress = &session->progress,
                                         .signals = &signals};
}

static void end(struct session *session) {
    mp_store_close(session->store);
    mp_suite_destroy(&session->suite);
    fclose(session->said);
    unlink("results.db");
}

TEST_END(session, struct session, end(it))

static void run(struct session *session) {
    assert_works(mp_runner_run(&session->runner, &session->result, &error));
}

/* Of the last run: "001-fine/log". */
static const char *path_of(const struct session *session, const char *name) {
    static char path[512];
    snprintf(path, sizeof path, "work/runs/%s/%s", session->result.suite_run, name);
    return path;
}

static const char *said(struct session *session) {
    static char text[1 << 14];
    rewind(session->said);
    text[fread(text, 1, sizeof text - 1, session->said)] = '\0';
    return text;
}

TEST(every_end_is_recorded_and_the_next_job_runs) {
    AUTO(session) struct session session;
    begin(&session, "", "fine wrong killed silent fine2 silent2");
    session.suite.job[5].file.job.record = false;
    run(&session);
    assert_numbers(session.result.complete, 3, session.result.failed, 3);
    assert_int_equal(session.result.interrupted, 0);
    assert_rows(session.store,
                "SELECT job, system, status, reason, iterations FROM v_run ORDER BY run_id",
                "fine|ep|complete|NULL|5\n"
                "wrong|fssdp|failed|something is wrong|5\n"
                "killed|fssdp|failed|ended by signal 9 (Killed)|5\n"
                "silent|fssdp|failed|it ended well, and rank 0 has recorded nothing|0\n"
                "fine2|fssdp|complete|NULL|5\n"
                "silent2|fssdp|complete|NULL|0");
}

/* The timeout is for all jobs, and a busy machine may need longer than the first one that is tried
 * for those that end by themselves. */
TEST(a_job_that_hangs_is_stopped) {
    struct session session = {.result.complete = 0};
    char keys[32], expected[256];
    for (int timeout = 1; session.result.complete < 2; timeout *= 2) {
        snprintf(keys, sizeof keys, "timeout: %d\n", timeout);
        begin(&session, keys, "fine hangs fine2");
        run(&session);
        snprintf(expected, sizeof expected,
                 "fine|complete|NULL|5\n"
                 "hangs|timeout|did not end within %d s, stopped after iteration 0 of 0|5\n"
                 "fine2|complete|NULL|5",
                 timeout);
        if (session.result.complete == 2) {
            assert_int_equal(session.result.failed, 1);
            assert_rows(session.store,
                        "SELECT job, status, reason, iterations FROM v_run ORDER BY run_id",
                        expected);
        }
        end(&session);
    }
}

TEST(rounds_are_interleaved_and_files_are_kept) {
    AUTO(session) struct session session;
    begin(&session, "repeat: 2\n", "fine wrong");
    session.suite.job[0].file.job.threads = 3;
    run(&session);
    assert_rows(session.store, "SELECT job, round FROM v_run ORDER BY run_id",
                "fine|0\nwrong|0\nfine|1\nwrong|1");
    assert_contains(said(&session), "[3/4] fine, round 2 of 2: 5 iterations in ",
                    " s, loss 3.5000\n",
                    formatted("[4/4] wrong, round 2 of 2: failed: something is wrong (log: %s)\n",
                              path_of(&session, "004-wrong/log")));
    AUTO(text) char *log = read_file(path_of(&session, "004-wrong/log"));
    assert_string_equal(log, "moeperf-train: something is wrong\n");
    AUTO(text) char *job = read_file(path_of(&session, "003-fine/job.yaml"));
    assert_contains(job, "system: \"ep\"");
    /* Everything of it is in the database. */
    assert_int_equal(access(path_of(&session, "003-fine/spools"), F_OK), -1);
    assert_int_equal(access(path_of(&session, "003-fine/" MP_NOTE_NAME), F_OK), -1);
}

TEST(unreadable_recordings_are_not_removed) {
    AUTO(session) struct session session;
    begin(&session, "", "fine garbled");
    run(&session);
    assert_int_equal(access(path_of(&session, "001-fine/spools"), F_OK), -1);
    AUTO(text) char *garbled = read_file(path_of(&session, "002-garbled/spools/rank-0001.spool"));
    assert_string_equal(garbled, "garbled\n");
}

TEST(a_second_run_adds_to_the_first) {
    AUTO(session) struct session session;
    begin(&session, "", "fine");
    session.runner.keep_spools = true;
    run(&session);
    assert_int_equal(access(path_of(&session, "001-fine/spools/rank-0000.spool"), F_OK), 0);
    nanosleep(&(struct timespec){1, 100000000}, NULL); /* ids hold the second */
    run(&session);
    assert_rows(session.store, "SELECT count(*), count(DISTINCT suite_run) FROM v_run", "2|2");
}

static bool gives_up(void *context, double seconds) {
    int *asked = context;
    *asked += seconds == 0;
    return false;
}

static void refuse_job(struct session *session, int job, const char *why) {
    session->suite.refusal[job] = mp_arena_text(&session->suite.arena, why);
    session->suite.job[job].file.job.ranks = 8; /* which would need mpirun */
    session->suite.job[job].file.job.nodes = 2;
}

/* What a system refuses is there once, in its place, whether the database takes it at once or
 * later; of a job that is never started nothing is needed. */
TEST(a_refused_job_is_a_run_of_the_first_round) {
    AUTO(session) struct session session;
    sqlite3 *other;
    int asked = 0;
    static const char all_sql[] =
        "SELECT job, round, status, reason, command IS NULL FROM v_run ORDER BY run_id";
    begin(&session, "repeat: 2\n", "fine other fine2");
    refuse_job(&session, 1, "it can't");
    run(&session);
    assert_numbers(session.result.complete, 4, session.result.failed, 0, session.result.refused, 1);
    assert_rows(session.store, all_sql,
                "fine|0|complete|NULL|0\nother|0|refused|it can't|1\nfine2|0|complete|NULL|0\n"
                "fine|1|complete|NULL|0\nfine2|1|complete|NULL|0");
    assert_int_equal(access(path_of(&session, "002-other/log"), F_OK), -1);
    assert_rows(session.store,
                "SELECT ranks, nodes, ranks_per_node, iterations_wanted, gate FROM run WHERE job = "
                "'other'",
                formatted("8|2|4|%d|gshard", (int)session.suite.job[1].file.job.iterations));
    assert_string_equal(runs_query(session.store, "SELECT DISTINCT suite_text FROM run"),
                        session.suite.text);
    assert_contains(said(&session), "[2/5] other: refused: it can't\n",
                    "[5/5] fine2, round 2 of 2: ");
    end(&session);
    begin(&session, "", "other fine");
    refuse_job(&session, 0, "it can't");
    assert_int_equal(sqlite3_open("results.db", &other), SQLITE_OK);
    sqlite3_exec(other, "BEGIN IMMEDIATE", NULL, NULL, NULL);
    mp_store_set_patience(session.store, gives_up, &asked);
    run(&session);
    assert_int_equal(session.result.lost, 2);
    sqlite3_close(other);
    assert_works(
        mp_suite_keep_killed(session.store, path_of(&session, ""), NULL, session.said, &error));
    assert_rows(session.store, all_sql, "other|0|refused|it can't|1\nfine|0|complete|NULL|0");
    end(&session);
    begin(&session, "", "other");
    refuse_job(&session, 0, "it can't");
    session.runner.trainer = "./gone";
    run(&session);
    assert_int_equal(session.result.refused, 1);
}

/* Of pairs each side has it, so that they are compared like with like; base first and head first
 * by turns.  The other trainer is the same, one as long, or a longer one. */
TEST(both_sides_of_pairs_have_a_refusal) {
    for (int other = 0; other < 3; other++) {
        AUTO(session) struct session session;
        begin(&session, "repeat: 2\n", "other fine");
        refuse_job(&session, 0, "it can't");
        write_script("base", trainer);
        AUTO(text) char *script = read_file("base");
        if (other == 1)
            strstr(script, "S.5")[2] = '7';
        write_file("base", formatted("%s%s", script, other == 2 ? "#" : ""));
        session.runner.against = "./base";
        run(&session);
        assert_numbers(session.result.complete, 4, session.result.refused, 2);
        assert_rows(
            session.store,
            "SELECT job, round, status, substr(suite_run, -4), (SELECT value FROM fact WHERE "
            "fact.run_id = v_run.run_id AND name = 'pairs.side') FROM v_run ORDER BY run_id",
            "other|0|refused|base|base\nother|0|refused|head|head\n"
            "fine|0|complete|base|base\nfine|0|complete|head|head\n"
            "fine|1|complete|head|head\nfine|1|complete|base|base");
        assert_rows(session.store,
                    "SELECT value, count(*) FROM fact WHERE name IN ('pairs.same', 'pairs.slice') "
                    "GROUP BY value",
                    other ? "no|6" : "yes|6");
        assert_contains(said(&session), "[1/6] other, pair 1 of 2, base: refused: it can't\n",
                        "[5/6] fine, pair 2 of 2, head: 5 iterations in ", ", loss 1.5000\n",
                        other == 1 ? ", loss 1.7000\n" : "");
    }
}

/* What makes two jobs of a suite incomparable stands in the model; what all share does not. */
TEST(jobs_that_learn_differently_are_not_compared) {
    AUTO(session) struct session session;
    begin(&session, "", "fine fine2 fine3 fine4 fine5");
    for (int i = 0; i < session.suite.count; i++) {
        struct mp_job *job = &session.suite.job[i].file.job;
        job->learning_rate = 0.5; /* all alike */
        job->seed = i == 1 ? 7 : 3;
        job->iterations = 9 - i; /* no difference */
        if (i >= 3)
            snprintf(job->text, sizeof job->text, "%0100d", 0); /* a long name */
    }
    run(&session);
    assert_rows(session.store,
                "SELECT substr(model, instr(model, 'threads')) FROM v_run ORDER BY run_id",
                "threads 1, text words, seed 3\nthreads 1, text words, seed 7\n"
                "threads 1, text words, seed 3\nthreads 1, text of job 4, seed 3\n"
                "threads 1, text of job 4, seed 3");
    assert_rows(session.store, "SELECT ep_run_id FROM v_speedup ORDER BY run_id",
                "1\nNULL\n1\nNULL\nNULL");
    assert_rows(session.store,
                "SELECT count(DISTINCT setting_key) || ' ' || min(length(setting_key)) FROM v_run",
                "3 16");
}

/* ---- a database that takes nothing ---- */

/* The jobs of a run while the database is locked or has no room, then added from their folders. */
static void check_kept_later(bool is_locked) {
    AUTO(session) struct session session;
    sqlite3 *other;
    char folder[256], keys[20000]; /* a comment that no page has room for */
    int asked = 0;
    memset(keys, '#', sizeof keys);
    memcpy(&keys[sizeof keys - 2], "\n", 2);
    begin(&session, keys, "fine wrong silent killed fine2");
    sqlite3 *own = mp_store_connection(session.store);
    assert_int_equal(sqlite3_open("results.db", &other), SQLITE_OK);
    if (is_locked)
        sqlite3_exec(other, "BEGIN IMMEDIATE", NULL, NULL, NULL);
    if (!is_locked)
        sqlite3_exec(own, "PRAGMA max_page_count = 1", NULL, NULL, NULL);
    mp_store_set_patience(session.store, gives_up, &asked);
    run(&session);
    assert_int_equal(asked, is_locked ? 5 : 0);
    assert_numbers(session.result.lost, 5, session.result.complete, 2, session.result.failed, 3);
    assert_rows(session.store, "SELECT count(*) FROM run", "0");
    snprintf(folder, sizeof folder, "work/runs/%s", session.result.suite_run);
    assert_contains(
        said(&session),
        formatted("fine: not in the database: results.db: %s; nothing is lost, this adds "
                  "it: moeperf run --from %s/001-fine --db results.db\n",
                  is_locked ? "cannot write: database is locked"
                            : "cannot store the run: database or disk is full",
                  folder));
    sqlite3_exec(other, "ROLLBACK", NULL, NULL, NULL);
    sqlite3_close(other);
    sqlite3_exec(own, "PRAGMA max_page_count = 1000000", NULL, NULL, NULL);
    for (int i = 0; i < 2; i++) { /* again adds nothing */
        assert_works(mp_suite_keep_killed(session.store, folder, NULL, session.said, &error));
        assert_rows(session.store,
                    "SELECT job, status, reason, iterations FROM v_run ORDER BY run_id",
                    "fine|complete|NULL|5\nwrong|failed|something is wrong|5\n"
                    "silent|failed|it ended well, and rank 0 has recorded "
                    "nothing|0\nkilled|failed|ended by signal 9 (Killed)|5\n"
                    "fine2|complete|NULL|5");
        assert_contains(said(&session), i ? ": job fine2: is already run 5 of results.db\n"
                                          : ": job fine2: added as run 5 of results.db\n");
    }
}

TEST(what_a_locked_database_does_not_take_is_not_lost) {
    check_kept_later(true);
}

TEST(what_a_full_disk_does_not_take_is_not_lost) {
    check_kept_later(false);
}

/* Iterations outside the job's slices don't count, and where moeperf was killed behind the end of
 * all ranks, these say how the job ended. */
TEST(slices_and_ends_are_kept) {
    AUTO(session) struct session session;
    static const struct mp_launch_result complete = {.end = MP_LAUNCH_COMPLETE};
    begin(&session, "", "fine wrong killed");
    assert_int_equal(mkdir("job", 0700), 0);
    write_file("job/slices", "2000000 2900000\n4000000 4900000\n");
    for (int i = 0; i < 3; i++) {
        const struct mp_ended_job job = {.suite = &session.suite,
                                         .index = i,
                                         .suite_run = "r",
                                         .started_at = "then",
                                         .spools = "job/spools",
                                         .slices = "job/slices",
                                         .result = i == 0 ? &complete : NULL};
        mkdir("job/spools", 0700);
        unlink("job/spools/rank-0000.spool");
        write_spool("job/spools/rank-0000.spool", i == 2);
        assert_works(mp_suite_note(&job, "job/run.yaml", &error));
        assert_works(i == 0
                         ? mp_suite_keep(session.store, &job, &error)
                         : mp_suite_keep_killed(session.store, "job", NULL, session.said, &error));
    }
    assert_rows(session.store,
                "SELECT job, status, reason, (SELECT group_concat(iteration) FROM v_iteration i "
                "WHERE i.run_id = v_run.run_id AND steady) FROM v_run ORDER BY run_id",
                "fine|complete|NULL|1,3\nwrong|complete|NULL|1,3\n"
                "killed|interrupted|moeperf was killed|1,3");
}

static void interrupt(UNUSED int number) {
    signals = signals + 1;
}

TEST(interruption_keeps_what_there_is_and_stops) {
    AUTO(session) struct session session;
    begin(&session, "repeat: 2\n", "fine stopped fine2 other");
    refuse_job(&session, 3, "it can't"); /* one turn */
    /* The alarm comes from the second job; like SIGINT it interrupts poll. */
    struct sigaction action = {.sa_handler = interrupt};
    sigaction(SIGALRM, &action, NULL);
    run(&session);
    assert_numbers(session.result.complete, 1, session.result.failed, 0);
    assert_numbers(session.result.interrupted, 1, session.result.left_out, 2 + 3);
    assert_rows(session.store, "SELECT job, status, reason, iterations FROM v_run ORDER BY run_id",
                "fine|complete|NULL|5\n"
                "stopped|interrupted|stopped by the user after iteration 5 of 9|5");
}

TEST(missing_programs_are_named_before_anything_runs) {
    AUTO(session) struct session session;
    begin(&session, "", "fine wrong");
    session.runner.trainer = "./gone";
    assert_sentence(mp_runner_run(&session.runner, &session.result, &error), MP_ENOTFOUND,
                    "can't run ./gone: No such file or directory");
    session.runner.trainer = ".";
    assert_sentence(mp_runner_run(&session.runner, &session.result, &error), MP_ENOTFOUND,
                    "can't run .: Is a directory");
    session.runner.trainer = "./words";
    assert_sentence(mp_runner_run(&session.runner, &session.result, &error), MP_ENOTFOUND,
                    "can't run ./words: Permission denied");
    session.runner.trainer = "./trainer";
    session.runner.against = "./gone";
    assert_sentence(mp_runner_run(&session.runner, &session.result, &error), MP_ENOTFOUND,
                    "can't run ./gone: No such file or directory");
    session.suite.job[1].file.job.ranks = 2; /* the first job would not need mpirun */
    AUTO(text) char *path = strdup(getenv("PATH"));
    setenv("PATH", "/nowhere", 1);
    assert_sentence(mp_runner_run(&session.runner, &session.result, &error), MP_ENOTFOUND,
                    "mpirun is not installed; job wrong with 2 ranks needs it (Debian and Ubuntu: "
                    "package openmpi-bin)");
    setenv("PATH", path, 1);
    assert_rows(session.store, "SELECT count(*) FROM v_run", "0");
}

TEST(unwritable_folders_are_errors) {
    AUTO(session) struct session session;
    begin(&session, "", "fine");
    write_file("file", "no folder");
    session.runner.work = "file/runs";
    assert_sentence(mp_runner_check(&session.runner, &error), MP_EIO, /* before any database */
                    "can't create the folder file/runs: Not a directory");
}

TEST_GROUP(enter_folder, leave_folder);
