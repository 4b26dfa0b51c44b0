#include "harness/suite/launch.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <math.h>
#include <poll.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/types.h>
#include <sys/wait.h>
#include <unistd.h>

#include "harness/suite/processes.h"
#include "harness/suite/seconds.h"
#include "reference/base/arena.h"
#include "reference/base/characters.h"
#include "results/store/store.h"

enum { CHILD_LINE_SIZE = 256, CHILD_TICK_MS = 100, CHILD_DESCRIPTORS = 2 };

/* A started job as its parent sees it. */
struct child {
    const struct mp_launch *launch; /* borrowed */
    pid_t pid;
    int output;                 /* read end of its standard output; -1 after its end */
    char line[CHILD_LINE_SIZE]; /* the beginning of a line whose end has not come yet */
    size_t length;
    bool is_skipping; /* the rest of a line that was too long */
    int errors;       /* read end of its standard error; -1 after its end */
    int log;          /* file that it goes to; -1: none */
    char *tail;       /* its last bytes, a string, owned */
    size_t tail_length;
    struct mp_launch_progress progress;
    double begin, end, watched; /* s */
    double stopped;             /* s that it was stopped, which don't count for its time-out */
    int status;                 /* waitpid's, once it has ended */
    /* How it is being ended from outside, if it is. */
    enum mp_launch_end ending; /* COMPLETE: nobody asked it to end */
    double kill_at;            /* s; 0: not set */
    int signals_before;        /* that had come before the job */
};

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
        if (strlen(line) >= 40 && !line[strspn(line, "-")])
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
        return mp_fail_errno(error, "can't start a job");
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

static void close_child(struct child *child) {
    close_if_open(&child->output);
    close_if_open(&child->errors);
    close_if_open(&child->log);
    free(child->tail);
}

/* What the parent needs, before the fork: the log, memory for its end, and two pipes whose other
 * ends are put into `given`. */
static int open_child(const struct mp_launch *launch, struct child *child, int given[2],
                      struct mp_error *error) {
    int ends[2], *const own[] = {&child->output, &child->errors};
    child->tail = calloc(1, TAIL_SIZE + 1);
    if (!child->tail)
        return mp_fail(error, MP_ENOMEM, "no memory for a job's log");
    child->log = launch->log
                     ? open(launch->log, O_WRONLY | O_CREAT | O_TRUNC | O_APPEND | O_CLOEXEC, 0666)
                     : -1;
    if (launch->log && child->log < 0)
        return mp_fail_errno(error, "can't write %s", launch->log);
    for (int i = 0; i < 2; i++) {
        if (pipe2(ends, O_CLOEXEC))
            return mp_fail_errno(error, "can't start a job");
        *own[i] = ends[0];
        given[i] = ends[1];
        fcntl(*own[i], F_SETFL, O_NONBLOCK);
    }
    return MP_OK;
}

/* Errors: mp_launch_run's; nothing is to be ended then. */
static int child_start(const struct mp_launch *launch, struct child *child,
                       struct mp_error *error) {
    int given[2] = {-1, -1};
    *child = (struct child){.launch = launch,
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
static bool read_output(struct child *child) {
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

/* Reads the standard error into the log, as long as the disk takes it. */
static void read_errors(struct child *child) {
    char bytes[4096];
    size_t count;
    while ((count = read_some(&child->errors, bytes, sizeof bytes)) > 0) {
        /* Adds to the end of the log that is remembered; its older half goes when it is full. */
        if (child->tail_length + count > TAIL_SIZE) {
            size_t half = child->tail_length / 2;
            child->tail_length -= half;
            memmove(child->tail, child->tail + half, child->tail_length);
        }
        for (size_t i = 0; i < count; i++)
            child->tail[child->tail_length++] = bytes[i] ? bytes[i] : '?';
        child->tail[child->tail_length] = '\0';
        if (child->log >= 0 && write(child->log, bytes, count) != (ssize_t)count)
            close_if_open(&child->log);
    }
}

static void ask_to_end(const struct child *child, int signal) {
    mp_processes_signal(child->pid, signal, !child->launch->command->has_launcher);
}

static void check_ending(struct child *child) {
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

/* Reads what has come, shows it, ends a job that takes too long or that the user stops.  Whether
 * the job has ended. */
static bool child_attend(struct child *child) {
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

/* After the job's end: says how it ended and frees what the child had. */
static void child_finish(struct child *child, struct mp_launch_result *result) {
    *result = (struct mp_launch_result){.progress = child->progress,
                                        .seconds = child->end - child->begin - child->stopped};
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
    close_child(child);
}

const char *mp_launch_end_name(enum mp_launch_end end) {
    static const char *const names[] = {"complete", "failed", "interrupted", "timeout", "refused"};
    return names[end];
}

/* ---- jobs side by side ---- */

int mp_slices_read(const char *path, struct mp_store_slice **slice, int *count,
                   struct mp_error *error) {
    int code = MP_OK;
    char line[64];
    FILE *file = fopen(path, "re");
    *slice = NULL;
    *count = 0;
    if (!file && errno != ENOENT)
        return mp_fail_errno(error, "can't read %s", path);
    while (file && !code && fgets(line, sizeof line, file)) {
        struct mp_store_slice next;
        char end;
        if (!strchr(line, '\n'))
            break; /* cut off */
        if (!MP_ROOM(*slice, *count))
            code = mp_fail(error, MP_ENOMEM, "no memory for the slices of %s", path);
        if (!code &&
            (sscanf(line, "%" SCNd64 " %" SCNd64 "%c", &next.start_ns, &next.end_ns, &end) != 3 ||
             end != '\n' || next.end_ns < next.start_ns))
            code = mp_fail(error, MP_EFORMAT,
                           "%s, line %d: should be two times in ns, a start and an end", path,
                           *count + 1);
        if (!code)
            (*slice)[(*count)++] = next;
    }
    if (file && fclose(file) && !code)
        code = mp_fail_errno(error, "can't read %s", path);
    return code;
}

/* One of the two jobs. */
struct side {
    struct child child;
    struct mp_processes ranks;
    FILE *slices;
    bool has_ended, is_stopped, has_slice;
    double since;  /* s, when it began to run or to be stopped */
    double ran;    /* s in slices after the first, which has the start in it */
    int64_t begun; /* iterations done in the first */
};

static bool begin(const struct mp_launch *job, struct side *side, struct mp_launch_result *result) {
    struct mp_error error = {0};
    *side = (struct side){.has_ended = true, .since = mp_seconds_now()};
    side->slices = job->slices ? fopen(job->slices, "we") : NULL;
    if (job->slices && !side->slices)
        mp_fail_errno(&error, "can't write %s", job->slices);
    else
        child_start(job, &side->child, &error);
    side->has_ended = error.code != MP_OK;
    if (side->has_ended) {
        *result = (struct mp_launch_result){.end = MP_LAUNCH_FAILED};
        snprintf(result->reason, sizeof result->reason, "%s", error.text);
    }
    return !side->has_ended;
}

static void attend(struct side *side) {
    double stopped = side->child.stopped;
    if (side->has_ended)
        return;
    if (side->is_stopped) /* being stopped does not count for a time-out, from the beginning */
        side->child.stopped += mp_seconds_now() - side->since;
    side->has_ended = child_attend(&side->child);
    if (side->is_stopped)
        side->child.stopped = stopped;
}

static void attend_both(struct side side[2]) {
    attend(&side[0]);
    attend(&side[1]);
}

/* Waits for output of either side until `until`, at most a tick. */
static void wait_for(const struct side side[2], double until) {
    struct pollfd ready[2 * CHILD_DESCRIPTORS];
    double left = 1e3 * (until - mp_seconds_now());
    bool is_silent = false;
    for (int i = 0; i < 2; i++) {
        if (side[i].has_ended) {
            ready[2 * i] = ready[2 * i + 1] = (struct pollfd){.fd = -1};
            continue;
        }
        ready[2 * i] = (struct pollfd){.fd = side[i].child.output, .events = POLLIN};
        ready[2 * i + 1] = (struct pollfd){.fd = side[i].child.errors, .events = POLLIN};
        is_silent = is_silent || (ready[2 * i].fd < 0 && ready[2 * i + 1].fd < 0);
    }
    left = fmin(left, is_silent ? CHILD_TICK_MS / 10.0 : CHILD_TICK_MS);
    poll(ready, 2 * CHILD_DESCRIPTORS, left > 0 ? (int)ceil(left) : 0);
}

static bool is_to_end(const struct side *side) {
    return side->has_ended || side->child.ending != MP_LAUNCH_COMPLETE;
}

/* What it ran from when it was started or continued until now was a slice. */
static void note_slice(const struct side *side, double now) {
    if (!side->slices)
        return;
    fprintf(side->slices, "%" PRId64 " %" PRId64 "\n", (int64_t)(1e9 * side->since),
            (int64_t)(1e9 * now));
    fflush(side->slices);
}

static void stop(struct side *side) {
    double now = mp_seconds_now();
    mp_processes_send(&side->ranks, SIGSTOP);
    note_slice(side, now);
    if (side->has_slice)
        side->ran += now - side->since;
    else
        side->begun = side->child.progress.iteration;
    side->has_slice = true;
    side->is_stopped = true;
    side->since = now;
}

static void go_on(struct side *side) {
    if (!side->is_stopped)
        return;
    mp_processes_send(&side->ranks, SIGCONT);
    side->is_stopped = false;
    double now = mp_seconds_now();
    side->child.stopped += now - side->since;
    side->since = now;
}

/* Runs side[on] until its first iteration is done, and stops it then.  Whether it could be. */
static bool run_first(struct side side[2], int on, const struct mp_launch *job) {
    while (!is_to_end(&side[on]) && side[on].child.progress.iteration == 0) {
        wait_for(side, INFINITY);
        attend_both(side);
    }
    if (is_to_end(&side[on]))
        return false;
    mp_processes_hold(side[on].child.pid, !job->command->has_launcher, &side[on].ranks);
    if (side[on].ranks.leaves < job->ranks)
        return false;
    stop(&side[on]);
    return true;
}

/* Seconds of its own time that an iteration takes, at least; what the trainer says of iterations
 * has the times in it when it was stopped. */
static double pace(const struct side *side) {
    int64_t iterations = side->child.progress.iteration - side->begun;
    return side->ran / (double)(iterations > 1 ? iterations : 1);
}

/* Seconds of the next slice of side[on].  Both do as many iterations in theirs, so that a slower
 * one is not alone for the rest of its time, once the other has ended. */
static double length_of(const struct side side[2], int on, double slice) {
    double own = pace(&side[on]), other = pace(&side[!on]), faster = fmin(own, other);
    if (faster > 0)
        return fmax(slice, MP_SLICE_ITERATIONS * faster) * own / faster;
    return fmax(slice, MP_SLICE_ITERATIONS * fmax(own, other));
}

/* Lets side[on] run for a slice.  Whether neither of the two has ended or is to. */
static bool run_for(struct side side[2], int on, double length) {
    double until = side[on].since + length;
    while (mp_seconds_now() < until) {
        wait_for(side, until);
        attend_both(side);
        if (is_to_end(&side[0]) || is_to_end(&side[1]))
            return false;
    }
    return true;
}

/* One slice of side[on]; false once the two are no longer to take turns. */
static bool run_slice(struct side side[2], int on, double slice) {
    go_on(&side[on]);
    bool goes_on = run_for(side, on, length_of(side, on, slice));
    if (goes_on)
        stop(&side[on]);
    return goes_on;
}

/* One of the two has ended: in its slice, which was one, too, or as launchers do, which are not
 * stopped, in that of the other.  That one has its slice before it is alone. */
static void run_last_slice(struct side side[2], int on, double slice) {
    if (side[on].has_ended) {
        note_slice(&side[on], mp_seconds_now());
        on = !on;
    }
    struct side *last = &side[on];
    if (is_to_end(last) || !side[!on].has_ended)
        return;
    go_on(last);
    double until = last->since + length_of(side, on, slice);
    while (!is_to_end(last) && mp_seconds_now() < until) {
        wait_for(side, until);
        attend(last);
    }
    note_slice(last, mp_seconds_now());
    last->since = mp_seconds_now();
}

/* Lets both run to their ends. */
static void run_rest(struct side side[2]) {
    go_on(&side[0]);
    go_on(&side[1]);
    while (!side[0].has_ended || !side[1].has_ended) {
        wait_for(side, INFINITY);
        attend_both(side);
    }
}

int mp_launch_run(const struct mp_launch *launch, struct mp_launch_result *result,
                  struct mp_error *error) {
    struct side side[2] = {{.slices = NULL}, {.has_ended = true}};
    *result = (struct mp_launch_result){.seconds = 0};
    MP_TRY(child_start(launch, &side->child, error));
    run_rest(side);
    child_finish(&side->child, result);
    return MP_OK;
}

static void end(struct side *side) {
    mp_processes_release(&side->ranks);
    if (side->slices)
        fclose(side->slices);
    side->slices = NULL;
}

bool mp_launch_in_slices(const struct mp_launch job[2], double slice,
                         struct mp_launch_result result[2]) {
    struct side side[2] = {{.has_ended = true}, {.has_ended = true}};
    bool is_sliced = false, has_begun[2] = {begin(&job[0], &side[0], &result[0]), false};
    if (has_begun[0] && !(slice > 0 && run_first(side, 0, &job[0])))
        run_rest(side); /* the other one comes after it */
    int signals_before = side[0].child.signals_before;
    if (has_begun[0] && job[0].signals && (int)*job[0].signals > signals_before)
        result[1] = (struct mp_launch_result){.end = MP_LAUNCH_INTERRUPTED,
                                              .reason = "stopped by the user before it began"};
    else
        has_begun[1] = begin(&job[1], &side[1], &result[1]);
    if (has_begun[0] && has_begun[1])
        side[1].child.signals_before = signals_before; /* one that has come meanwhile ends both */
    if (has_begun[1] && !side[0].has_ended)
        is_sliced = run_first(side, 1, &job[1]);
    int on = 0;
    while (is_sliced && run_slice(side, on, slice))
        on = !on;
    if (is_sliced)
        run_last_slice(side, on, slice);
    run_rest(side);
    for (int i = 0; i < 2; i++) {
        end(&side[i]);
        if (has_begun[i])
            child_finish(&side[i].child, &result[i]);
    }
    return is_sliced;
}
