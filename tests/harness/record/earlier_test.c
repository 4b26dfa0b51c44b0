/* Spools that were found: added when everybody who records has ended, once, as they ended. */
#include <signal.h>
#include <sys/wait.h>

#include "harness/suite/processes.h"
#include "tests/harness/record/kept.h"

enum { SPANS = 5 };

/* What a process leaves: with `is_cut` it has not ended its recording. */
static void record(const char *path, bool is_cut) {
    struct mp_recorder *recorder = NULL;
    struct mp_record_thread *thread = NULL;
    struct stat status;
    const struct mp_recorder_config config = {.path = path, .rank = 0, .ranks = 1};
    assert_works(mp_recorder_create(&config, &recorder, &error));
    assert_works(mp_recorder_thread(recorder, "compute", &thread, &error));
    for (int i = 0; i < SPANS; i++)
        mp_record_number(thread, i, -1, "step", i);
    assert_works(mp_recorder_finish(&recorder, MP_OK, "", &error));
    assert_int_equal(stat(path, &status), 0);
    if (is_cut)
        assert_int_equal(truncate(path, status.st_size - 8), 0);
}

static int add(struct runs_folder *folder, const char *spools, struct mp_error *error) {
    const struct mp_record_run run = {.spools = spools, .keep_spools = true, .is_earlier = true};
    char said[4000];
    return keep_run(folder, run, NULL, said, sizeof said, error);
}

RUNS_TEST(a_program_that_still_records_is_refused) {
    char spools[SPOOLS_SIZE], path[120];
    make_spools(folder, spools);
    snprintf(path, sizeof path, "%s/live.spool", spools);
    record(path, true); /* by this process */
    assert_fails(add(folder, spools, &error), MP_EINVAL,
                 formatted("%s: process %d still runs", path, (int)getpid()));
    assert_rows(folder->store, "SELECT count(*) FROM run", "0");
    assert_int_equal(access(path, F_OK), 0);
    unlink(path);
    record(path, false); /* it says that it has ended */
    for (int again = 0; again < 2; again++) {
        assert_works(add(folder, spools, &error));
        assert_rows(folder->store, "SELECT status, reason FROM run", "complete|NULL");
    }
}

RUNS_TEST(what_a_killed_program_left_is_no_complete_run) {
    char spools[SPOOLS_SIZE], path[120];
    make_spools(folder, spools);
    snprintf(path, sizeof path, "%s/dead.spool", spools);
    pid_t child = fork();
    if (child == 0) {
        record(path, true);
        _exit(0);
    }
    assert_int_equal(waitpid(child, NULL, 0), child);
    for (int again = 0; again < 2; again++) {
        assert_works(add(folder, spools, &error));
        assert_rows(folder->store, "SELECT status, reason FROM run",
                    "interrupted|nobody saw its end, and not every process recorded its own");
    }
}

/* A number that has been given to another process since means that the first has ended. */
TEST(processes_are_known_by_number_and_time) {
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    int64_t now_ns = (int64_t)now.tv_sec * 1000000000 + now.tv_nsec, day_ns = 86400000000000;
    assert_true(mp_processes_runs_since(getpid(), now_ns));
    assert_true(mp_processes_runs_since(getpid(), now_ns + day_ns));
    assert_false(mp_processes_runs_since(getpid(), now_ns - day_ns));
    pid_t child = fork();
    if (child == 0)
        for (;;)
            pause();
    assert_true(mp_processes_runs_since(child, now_ns));
    siginfo_t ended;
    kill(child, SIGKILL);
    assert_int_equal(waitid(P_PID, (id_t)child, &ended, WEXITED | WNOWAIT), 0);
    assert_false(mp_processes_runs_since(child, now_ns)); /* though nobody has asked how it ended */
    assert_int_equal(waitpid(child, NULL, 0), child);
    assert_false(mp_processes_runs_since(child, now_ns));
}
