/* Child: see child.h, and mp_launch_run in launch.h. */
#include "harness/suite/child.h"

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "harness/suite/processes.h"
#include "harness/suite/seconds.h"
#include "reference/base/characters.h"

/* ---- why a job failed ---- */

static const char TRAINER_PREFIX[] = "moeperf-train: ";
static const char MPIRUN_PREFIX[] = "mpirun noticed that process rank ";

struct findings {
    const char *trainer;       /* last line with its prefix, without that; or NULL */
    const char *last, *framed; /* last line outside of mpirun's frames, first one inside; or NULL */
    int rank, signal;          /* that mpirun noticed; -1: none */
};

/* mpirun: "... process rank 1 with PID 4711 on node n exited on signal 9 (Killed)." */
static void note_signal(struct findings *findings, const char *line) {
    const char *signal = strstr(line, " exited on signal ");
    if (!signal || findings->rank >= 0)
        return;
    findings->rank = atoi(line + sizeof MPIRUN_PREFIX - 1);
    findings->signal = atoi(signal + sizeof " exited on signal " - 1);
}

static bool is_frame(const char *line) {
    return strlen(line) >= 40 && !line[strspn(line, "-")];
}

/* mpirun's daemons about themselves: "[node:4711] Set MCA parameter ..." */
static bool is_of_daemon(const char *line) {
    int end = 0;
    sscanf(line, "[%*[^]: ]:%*d] %n", &end);
    return end > 0;
}

/* Splits `tail` into lines in place and notes the telling ones.  mpirun's own words stand between
 * lines of dashes. */
static struct findings search(char *tail) {
    struct findings findings = {.rank = -1};
    bool is_framed = false;
    for (char *line = tail; line;) {
        char *next = strchr(line, '\n');
        if (next)
            *next++ = '\0';
        if (is_frame(line))
            is_framed = !is_framed;
        else if (!strncmp(line, TRAINER_PREFIX, sizeof TRAINER_PREFIX - 1))
            findings.trainer = line + sizeof TRAINER_PREFIX - 1;
        else if (!strncmp(line, MPIRUN_PREFIX, sizeof MPIRUN_PREFIX - 1))
            note_signal(&findings, line);
        else if (is_framed && !findings.framed)
            findings.framed = line;
        else if (!is_framed && line[strspn(line, " \t\r")] && !is_of_daemon(line))
            findings.last = line;
        line = next;
    }
    return findings;
}

/* Looks in the end of the job's log for, in this order: mpirun's word on a rank that a signal
 * ended, the last line "moeperf-train: ...", any last line.  `tail` is cut into lines in the course
 * of it. `wait_status` is waitpid's.  Control characters become '?'. */
static void find_reason(char *tail, int wait_status, char *reason, size_t size) {
    struct findings findings = search(tail);
    if (findings.rank >= 0)
        snprintf(reason, size, "rank %d was ended by signal %d (%s)", findings.rank,
                 findings.signal, strsignal(findings.signal));
    else if (findings.trainer)
        snprintf(reason, size, "%s", findings.trainer);
    else if (WIFSIGNALED(wait_status))
        snprintf(reason, size, "ended by signal %d (%s)", WTERMSIG(wait_status),
                 strsignal(WTERMSIG(wait_status)));
    else if (findings.last || findings.framed)
        snprintf(reason, size, "exit status %d; its last words: %s", WEXITSTATUS(wait_status),
                 findings.last ? findings.last : findings.framed);
    else
        snprintf(reason, size, "exit status %d without a word", WEXITSTATUS(wait_status));
    mp_clean_text(reason, size, reason);
}

enum { TAIL_SIZE = 65536, WATCH_MS = 250 };

/* In the child, between fork and exec; returns only if the program can't be started. */
static void become_program(const struct mp_launch *launch, int output, int errors) {
    char threads[16];
    setpgid(0, 0);
    prctl(PR_SET_PDEATHSIG, SIGTERM); /* moeperf itself was killed: end the job, too */
    signal(SIGPIPE, SIG_DFL);
    signal(SIGINT, SIG_DFL); /* ignored where a script started us with `&`; we ask by it */
    int input = open("/dev/null", O_RDONLY);
    if (input < 0 || dup2(input, 0) < 0 || dup2(output, 1) < 0 || dup2(errors, 2) < 0)
        return;
    if (input > 2)
        close(input);
    snprintf(threads, sizeof threads, "%d", launch->threads);
    setenv("OMP_NUM_THREADS", threads, 1);
    if (geteuid() == 0) { /* Open MPI wants to be asked twice */
        setenv("OMPI_ALLOW_RUN_AS_ROOT", "1", 1);
        setenv("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1", 1);
    }
    execvp(launch->command->word[0], launch->command->word);
}

static int fail_start(const struct mp_launch *launch, int number, struct mp_error *error) {
    const char *program = launch->command->word[0];
    if (number != ENOENT)
        return mp_fail(error, MP_EIO, "can't start %s: %s", program, strerror(number));
    if (!strcmp(program, "mpirun"))
        return mp_fail(error, MP_ENOTFOUND,
                       "mpirun is not installed, which several ranks need (Debian and Ubuntu: "
                       "package openmpi-bin)");
    return mp_fail(error, MP_ENOTFOUND, "can't start %s: there is no such program", program);
}

/* Forks.  A pipe that exec closes carries errno back when the program can't be started. */
static int fork_program(const struct mp_launch *launch, int output, int errors, pid_t *pid,
                        struct mp_error *error) {
    int report[2], number = 0;
    if (pipe2(report, O_CLOEXEC))
        return mp_fail(error, MP_EIO, "can't start a job: %s", strerror(errno));
    *pid = fork();
    if (*pid == 0) {
        become_program(launch, output, errors);
        number = errno;
        ssize_t written = write(report[1], &number, sizeof number);
        _exit(written == sizeof number ? 127 : 126);
    }
    int fork_errno = errno;
    close(report[1]);
    if (*pid < 0) {
        close(report[0]);
        return mp_fail(error, MP_EIO, "can't start a job: %s", strerror(fork_errno));
    }
    setpgid(*pid, *pid); /* whoever comes first, parent or child */
    ssize_t size;
    do
        size = read(report[0], &number, sizeof number);
    while (size < 0 && errno == EINTR);
    close(report[0]);
    if (size <= 0)
        return MP_OK;
    waitpid(*pid, NULL, 0);
    return fail_start(launch, number, error);
}

static void close_if_open(int *descriptor) {
    if (*descriptor >= 0)
        close(*descriptor);
    *descriptor = -1;
}

static void close_child(struct mp_child *child) {
    close_if_open(&child->output);
    close_if_open(&child->errors);
    close_if_open(&child->log);
    free(child->tail);
}

/* What the parent needs, before the fork: the log, memory for its end, and two pipes whose other
 * ends are put into `given`. */
static int open_child(const struct mp_launch *launch, struct mp_child *child, int given[2],
                      struct mp_error *error) {
    int ends[2], *const own[] = {&child->output, &child->errors};
    child->tail = calloc(1, TAIL_SIZE + 1);
    if (!child->tail)
        return mp_fail(error, MP_ENOMEM, "no memory for a job's log");
    child->log = launch->log
                     ? open(launch->log, O_WRONLY | O_CREAT | O_TRUNC | O_APPEND | O_CLOEXEC, 0666)
                     : -1;
    if (launch->log && child->log < 0)
        return mp_fail(error, errno == ENOSPC ? MP_ENOSPACE : MP_EIO, "can't write %s: %s",
                       launch->log, strerror(errno));
    for (int i = 0; i < 2; i++) {
        if (pipe2(ends, O_CLOEXEC))
            return mp_fail(error, MP_EIO, "can't start a job: %s", strerror(errno));
        *own[i] = ends[0];
        given[i] = ends[1];
        fcntl(*own[i], F_SETFL, O_NONBLOCK);
    }
    return MP_OK;
}

int mp_child_start(const struct mp_launch *launch, struct mp_child *child, struct mp_error *error) {
    int given[2] = {-1, -1};
    *child = (struct mp_child){.launch = launch,
                               .output = -1,
                               .errors = -1,
                               .log = -1,
                               .begin = mp_seconds_now(),
                               .signals_before = launch->signals ? (int)*launch->signals : 0};
    child->watched = child->begin;
    int code = open_child(launch, child, given, error);
    if (!code)
        code = fork_program(launch, given[0], given[1], &child->pid, error);
    close_if_open(&given[0]);
    close_if_open(&given[1]);
    if (code)
        close_child(child);
    return code;
}

/* A whole line of the job's output; other lines than progress are nobody's business. */
static bool take_line(const char *line, struct mp_launch_progress *progress) {
    long long iteration, iterations;
    double loss, ms;
    if (sscanf(line, "progress %lld %lld %lf %lf", &iteration, &iterations, &loss, &ms) != 4)
        return false;
    *progress = (struct mp_launch_progress){iteration, iterations, loss, ms};
    return true;
}

/* Bytes that have come: their number, 0 when there are none for now or ever again (then the
 * descriptor is closed and -1). */
static size_t read_some(int *descriptor, char *bytes, size_t size) {
    if (*descriptor < 0)
        return 0;
    ssize_t count = read(*descriptor, bytes, size);
    if (count == 0 || (count < 0 && errno != EAGAIN && errno != EINTR))
        close_if_open(descriptor);
    return count > 0 ? (size_t)count : 0;
}

/* Reads the standard output; true if it brought progress. */
static bool read_output(struct mp_child *child) {
    char bytes[4096];
    bool has_progress = false;
    size_t count;
    while ((count = read_some(&child->output, bytes, sizeof bytes)) > 0) {
        for (size_t i = 0; i < count; i++) {
            if (bytes[i] == '\n') {
                child->line[child->length] = '\0';
                has_progress |= !child->is_skipping && take_line(child->line, &child->progress);
                child->length = 0;
                child->is_skipping = false;
            } else if (child->length + 1 < sizeof child->line) {
                child->line[child->length++] = bytes[i];
            } else {
                child->is_skipping = true;
            }
        }
    }
    return has_progress;
}

/* Adds to the end of the log that is remembered; its older half goes when it is full. */
static void keep_tail(struct mp_child *child, const char *bytes, size_t count) {
    if (child->tail_length + count > TAIL_SIZE) {
        size_t half = child->tail_length / 2;
        child->tail_length -= half;
        memmove(child->tail, child->tail + half, child->tail_length);
    }
    for (size_t i = 0; i < count; i++)
        child->tail[child->tail_length++] = bytes[i] ? bytes[i] : '?';
    child->tail[child->tail_length] = '\0';
}

/* Reads the standard error into the log, as long as the disk takes it. */
static void read_errors(struct mp_child *child) {
    char bytes[4096];
    size_t count;
    while ((count = read_some(&child->errors, bytes, sizeof bytes)) > 0) {
        keep_tail(child, bytes, count);
        if (child->log >= 0 && write(child->log, bytes, count) != (ssize_t)count)
            close_if_open(&child->log);
    }
}

static void ask_to_end(const struct mp_child *child, int signal) {
    mp_processes_signal(child->pid, signal, !child->launch->command->has_launcher);
}

static void check_ending(struct mp_child *child) {
    const struct mp_launch *launch = child->launch;
    int signals = launch->signals ? (int)*launch->signals - child->signals_before : 0;
    double now = mp_seconds_now();
    if (child->ending == MP_LAUNCH_COMPLETE && signals > 0) {
        child->ending = MP_LAUNCH_INTERRUPTED;
        ask_to_end(child, SIGINT);
    } else if (child->ending == MP_LAUNCH_COMPLETE && launch->timeout > 0 &&
               now - child->begin - child->stopped > launch->timeout) {
        child->ending = MP_LAUNCH_TIMEOUT;
        child->kill_at = now + (launch->grace > 0 ? launch->grace : 10);
        ask_to_end(child, SIGTERM);
    }
    if (signals > 1 || (child->kill_at > 0 && now > child->kill_at))
        mp_processes_signal(child->pid, SIGKILL, true);
}

void mp_child_poll(const struct mp_child *child, struct pollfd ready[MP_CHILD_DESCRIPTORS]) {
    ready[0] = (struct pollfd){.fd = child->output, .events = POLLIN};
    ready[1] = (struct pollfd){.fd = child->errors, .events = POLLIN};
}

bool mp_child_attend(struct mp_child *child) {
    const struct mp_launch *launch = child->launch;
    /* Asked before reading: what an ended job has written is there to be read. */
    bool has_ended = waitpid(child->pid, &child->status, WNOHANG) == child->pid;
    bool has_progress = read_output(child);
    read_errors(child);
    child->end = mp_seconds_now();
    if (launch->watch && (has_progress || child->end - child->watched > 1e-3 * WATCH_MS)) {
        launch->watch(launch->context, &child->progress);
        child->watched = mp_seconds_now();
    }
    if (!has_ended)
        check_ending(child);
    return has_ended;
}

static void describe_end(const struct mp_child *child, struct mp_launch_result *result) {
    long long iteration = child->progress.iteration, iterations = child->progress.iterations;
    bool is_success = WIFEXITED(child->status) && WEXITSTATUS(child->status) == 0;
    result->end = child->ending;
    if (is_success &&
        (child->ending == MP_LAUNCH_COMPLETE || (iteration > 0 && iteration == iterations))) {
        result->end = MP_LAUNCH_COMPLETE; /* also when the signal came after its last iteration */
    } else if (child->ending == MP_LAUNCH_COMPLETE) {
        result->end = MP_LAUNCH_FAILED;
        find_reason(child->tail, child->status, result->reason, sizeof result->reason);
    } else if (child->ending == MP_LAUNCH_TIMEOUT) {
        snprintf(result->reason, sizeof result->reason,
                 "did not end within %g s, stopped after iteration %lld of %lld",
                 child->launch->timeout, iteration, iterations);
    } else {
        snprintf(result->reason, sizeof result->reason,
                 "stopped by the user after iteration %lld of %lld", iteration, iterations);
    }
}

void mp_child_finish(struct mp_child *child, struct mp_launch_result *result) {
    *result = (struct mp_launch_result){.progress = child->progress,
                                        .seconds = child->end - child->begin - child->stopped};
    describe_end(child, result);
    close_child(child);
}

const char *mp_launch_end_name(enum mp_launch_end end) {
    static const char *const names[] = {"complete", "failed", "interrupted", "timeout", "refused"};
    return names[end];
}

int mp_launch_run(const struct mp_launch *launch, struct mp_launch_result *result,
                  struct mp_error *error) {
    struct mp_child child;
    *result = (struct mp_launch_result){.seconds = 0};
    MP_TRY(mp_child_start(launch, &child, error));
    do {
        struct pollfd ready[MP_CHILD_DESCRIPTORS];
        bool is_silent = child.output < 0 && child.errors < 0;
        mp_child_poll(&child, ready);
        poll(ready, MP_CHILD_DESCRIPTORS, is_silent ? MP_CHILD_TICK_MS / 10 : MP_CHILD_TICK_MS);
    } while (!mp_child_attend(&child));
    mp_child_finish(&child, result);
    return MP_OK;
}
