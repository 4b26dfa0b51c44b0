/* Launching: scripts in the place of the trainer end in every way that a job can. */
#include "harness/suite/launch.h"

#include <sys/wait.h>

#include "harness/suite/processes.h"
#include "tests/errors.h"
#include "tests/harness/folder.h"

TEST_END(command, struct mp_command, mp_command_destroy(it))

enum { PATIENCE = 250 }; /* s; none of these jobs takes one, on a machine with nothing else to do */

/* Runs a script as one rank, or under a launcher script that starts two. */
static void launch(const char *script, struct mp_launch *job, bool has_launcher,
                   struct mp_launch_result *result) {
    static const char *const arguments[] = {NULL};
    AUTO(command) struct mp_command command;
    write_script("trainer", script);
    /* Waits for both, whatever the first one's status is: what it left behind would be killed. */
    write_script("launcher", "\"$1\" & \"$1\" & wait %1; first=$?; wait %2 && exit $first\n");
    assert_works(mp_command_create(has_launcher ? "./launcher {program} {arguments}" : NULL, 1,
                                   "./trainer", arguments, &command, &error));
    job->command = &command;
    job->log = "log";
    job->threads = job->threads ? job->threads : 1;
    assert_works(mp_launch_run(job, result, &error));
}

TEST(success_is_complete) {
    struct mp_launch job = {.threads = 3, .timeout = PATIENCE};
    struct mp_launch_result result;
    setenv("OMP_NUM_THREADS", "7", 1); /* the job says it */
    launch("echo progress 1 2 5.5 10.25\n"
           "echo words of a library\n"
           "printf 'progress 2 2 4.25 9.5\\n'\n"
           "echo threads=$OMP_NUM_THREADS root=$OMPI_ALLOW_RUN_AS_ROOT >&2\n"
           "cat\n", /* there is no input to wait for */
           &job, false, &result);
    assert_int_equal(result.end, MP_LAUNCH_COMPLETE);
    assert_string_equal(result.reason, "");
    assert_numbers(result.progress.iteration, 2, result.progress.iterations, 2);
    assert_numbers(result.progress.loss, 4.25, result.progress.ms, 9.5);
    AUTO(text) char *log = read_file("log");
    assert_string_equal(log, geteuid() ? "threads=3 root=\n" : "threads=3 root=1\n");
}

struct failure_case {
    const char *name, *script, *reason;
};

#define DASHES "echo ------------------------------------------------------------ >&2\n"
#define MPIRUN_FRAME                                                                               \
    DASHES "echo 'There are not enough slots' >&2\necho >&2\necho '  Exit code: 1' >&2\n" DASHES

static const struct failure_case failures[] = {
    {"the trainer's sentence",
     "echo 'moeperf-train: first' >&2\necho 'moeperf-train: text: too short' >&2\n"
     "echo more >&2\nexit 2\n",
     "text: too short"},
    {"somebody else's words", "echo 'error while loading libx.so' >&2\nexit 127\n",
     "exit status 127; its last words: error while loading libx.so"},
    {"silence", "exit 3\n", "exit status 3 without a word"},
    {"a signal", "kill -9 $$\n", "ended by signal 9 (Killed)"},
    {"mpirun's word on a rank",
     "echo 'moeperf-train: rank 0: lost rank 1' >&2\n"
     "echo 'mpirun noticed that process rank 1 with PID 0 on node n exited on signal 11 "
     "(Segmentation fault).' >&2\necho ------- >&2\n"
     "echo 'mpirun noticed that process rank 2 with PID 0 on node n exited on signal 9' >&2\n"
     "exit 139\n",
     "rank 1 was ended by signal 11 (Segmentation fault)"},
    {"words before mpirun's", "echo 'a library: gone' >&2\n" MPIRUN_FRAME "exit 1\n",
     "exit status 1; its last words: a library: gone"},
    {"nothing but mpirun's words", MPIRUN_FRAME "exit 1\n",
     "exit status 1; its last words: There are not enough slots"},
    {"what daemons of mpirun say behind it",
     MPIRUN_FRAME "echo '[node:4711] Set MCA parameter \"x\" to 0' >&2\n"
                  "echo '[node:4711] [[22927,0],0] ORTE_ERROR_LOG: Error' >&2\nexit 1\n",
     "exit status 1; its last words: There are not enough slots"},
    {"brackets that are no daemon's", "echo '[rank 0] gone' >&2\nexit 1\n",
     "exit status 1; its last words: [rank 0] gone"},
    {"control characters", "printf 'a\\000\\nmoeperf-train: a\\033[31mb\\tc\\n' >&2\nexit 2\n",
     "a?[31mb?c"},
};

TEST_EACH(failure_has_a_reason, failures, c) {
    struct mp_launch job = {.timeout = PATIENCE};
    struct mp_launch_result result;
    launch(c->script, &job, false, &result);
    assert_int_equal(result.end, MP_LAUNCH_FAILED);
    assert_string_equal(result.reason, c->reason);
}

TEST(long_logs_keep_their_end) {
    struct mp_launch job = {.timeout = PATIENCE};
    struct mp_launch_result result;
    launch("echo 'moeperf-train: long ago' >&2\n"
           "head -c 1000000 /dev/zero | tr '\\0' '\\n' >&2\n"
           "printf 'moeperf-train: just now' >&2\nexit 1\n",
           &job, false, &result);
    assert_string_equal(result.reason, "just now");
    struct stat status;
    assert_int_equal(stat("log", &status), 0);
    assert_int_equal(status.st_size,
                     1000000 + (off_t)strlen("moeperf-train: long ago\nmoeperf-train: just now"));
}

/* /dev/full refuses every byte. */
TEST(a_full_disk_does_not_hide_the_reason) {
    static const char *const arguments[] = {NULL};
    AUTO(command) struct mp_command command;
    struct mp_launch_result result;
    write_script("trainer", "echo 'moeperf-train: disk full' >&2\nsleep 0.3\nexit 2\n");
    assert_works(mp_command_create(NULL, 1, "./trainer", arguments, &command, &error));
    const struct mp_launch job = {.command = &command, .log = "/dev/full", .threads = 1};
    assert_works(mp_launch_run(&job, &result, &error));
    assert_int_equal(result.end, MP_LAUNCH_FAILED);
    assert_string_equal(result.reason, "disk full");
}

/* Launches two ranks that write a line each into "ready" and never end, with a timeout that comes
 * after that: a busy machine may not have started both within the first one that is tried. */
static void launch_two_until_ready(const char *script, struct mp_launch *job,
                                   struct mp_launch_result *result) {
    bool are_ready = false;
    for (; !are_ready; job->timeout *= 2) {
        unlink("ready");
        unlink("asked");
        launch(script, job, true, result);
        assert_int_equal(result->end, MP_LAUNCH_TIMEOUT);
        AUTO(text) char *ready = read_file("ready");
        are_ready = strchr(ready, '\n') != strrchr(ready, '\n');
    }
    job->timeout /= 2;
}

/* Both of the launcher's ranks are asked, and end after their iteration. */
TEST(timeout_asks_the_ranks_to_end) {
    struct mp_launch job = {.timeout = 1, .grace = PATIENCE};
    struct mp_launch_result result;
    char reason[128];
    launch_two_until_ready("trap 'echo asked >>asked; exit 1' TERM\necho progress 7 9 1 1\n"
                           "echo ready >>ready\nwhile :; do sleep 0.1; done\n",
                           &job, &result);
    snprintf(reason, sizeof reason, "did not end within %g s, stopped after iteration 7 of 9",
             job.timeout);
    assert_string_equal(result.reason, reason);
    assert_true(result.seconds < job.timeout + PATIENCE); /* nobody had to be killed */
    AUTO(text) char *asked = read_file("asked");
    assert_string_equal(asked, "asked\nasked\n");
}

TEST(deaf_jobs_are_killed_with_their_ranks) {
    struct mp_launch job = {.timeout = 0.4, .grace = 0.5};
    struct mp_launch_result result;
    launch_two_until_ready("trap '' TERM INT\necho $$ >>ready\nwhile :; do sleep 0.1; done\n", &job,
                           &result);
    AUTO(text) char *pids = read_file("ready");
    char *at = pids;
    for (int i = 0; i < 2; i++) {
        pid_t pid = (pid_t)strtol(at, &at, 10);
        assert_true(pid > 1);
        for (int wait = 0; wait < 100 && !kill(pid, 0); wait++) /* init has to reap it */
            nanosleep(&(struct timespec){0, 20000000}, NULL);
        AUTO(text) char *command = read_file(formatted("/proc/%d/cmdline", (int)pid));
        assert_null(strstr(command, "trainer"));
    }
}

static volatile sig_atomic_t signals;

static void signal_after_progress(void *context, const struct mp_launch_progress *progress) {
    int wanted = *(int *)context;
    if (progress->iteration > 0 && signals < wanted)
        signals = signals + 1;
}

/* Launches what tells of progress, then interrupts it so many times. */
static struct mp_launch_result interrupt(const char *script, int wanted, bool has_launcher) {
    struct mp_launch job = {.timeout = PATIENCE,
                            .signals = &signals,
                            .watch = signal_after_progress,
                            .context = &wanted};
    struct mp_launch_result result;
    signals = 0;
    launch(script, &job, has_launcher, &result);
    return result;
}

/* Also where moeperf ignores it, as whatever a script starts with `&` does. */
TEST(interruption_is_passed_on) {
    struct sigaction before, ignored = {.sa_handler = SIG_IGN};
    sigaction(SIGINT, &ignored, &before);
    struct mp_launch_result result =
        interrupt("trap 'echo progress 4 9 1 1; exit 1' INT\necho progress 3 9 1 1\n"
                  "while :; do sleep 0.1; done\n",
                  1, false);
    sigaction(SIGINT, &before, NULL);
    assert_int_equal(result.end, MP_LAUNCH_INTERRUPTED);
    assert_string_equal(result.reason, "stopped by the user after iteration 4 of 9");
}

TEST(second_interruption_kills) {
    struct mp_launch_result result = interrupt(
        "trap '' INT TERM\necho progress 3 9 1 1\nwhile :; do sleep 0.1; done\n", 2, true);
    assert_int_equal(result.end, MP_LAUNCH_INTERRUPTED); /* else it would never end */
}

TEST(a_job_that_was_done_anyway_is_complete) {
    struct mp_launch_result result = interrupt(
        "trap 'exit 0' INT\necho progress 9 9 1 1\nwhile :; do sleep 0.1; done\n", 1, false);
    assert_int_equal(result.end, MP_LAUNCH_COMPLETE);
}

TEST(output_of_any_shape_is_survived) {
    struct mp_launch job = {.timeout = PATIENCE};
    struct mp_launch_result result;
    launch("head -c 100000 /dev/zero | tr '\\0' x\necho\n"
           "printf 'progress 1'; sleep 0.2; echo ' 3 2.5 1.5'\n"
           "head -c 3000 /dev/urandom\necho\necho progress 2 3 nonsense\n"
           "echo progress 2 3 nan 1.5\nprintf 'progress 3 3 1 %01000d\\n' 1\n"
           "printf 'progress 3 3 1 1'\n",
           &job, false, &result);
    assert_int_equal(result.end, MP_LAUNCH_COMPLETE);
    assert_int_equal(result.progress.iteration, 2); /* the last one was no whole line */
    assert_true(isnan(result.progress.loss));
}

static const struct {
    const char *template;
    int code;
    const char *message;
} missing[] = {
    {NULL, MP_ENOTFOUND, "can't start ./nothing: there is no such program"},
    {"./folder {program} {arguments}", MP_EIO, "can't start ./folder: Permission denied"},
    {"mpirun {program} {arguments}", MP_ENOTFOUND,
     "mpirun is not installed, which several ranks need (Debian and Ubuntu: package openmpi-bin)"},
};

TEST_ROWS(programs_that_are_not_there_are_named, missing, row) {
    static const char *const arguments[] = {NULL};
    AUTO(command) struct mp_command command;
    AUTO(text) char *path = strdup(getenv("PATH"));
    struct mp_launch_result result;
    mkdir("folder", 0777);
    setenv("PATH", "/nowhere", 1);
    assert_works(mp_command_create(row->template, 1, "./nothing", arguments, &command, &error));
    const struct mp_launch job = {.command = &command, .log = "log", .threads = 1};
    assert_sentence(mp_launch_run(&job, &result, &error), row->code, row->message);
    setenv("PATH", path, 1);
}

/* Nothing that was launched is left as a child of this program. */
static int leave(void **state) {
    if (waitpid(-1, NULL, WNOHANG) > 0)
        return -1;
    return leave_folder(state);
}

TEST_GROUP(enter_folder, leave);
