/* moeperf-train as its users start it, alone and under mpirun, and what its spools then hold. */
#pragma once

#include <errno.h>
#include <sys/wait.h>

#include "reference/trainer/job.h"
#include "tests/harness/folder.h"
#include "tests/spools.h"

enum { PATIENCE_MS = 250000 };

static const char JOB[] =
    "system: fssdp\nlayers: 2\nwidth: 16\nheads: 2\nexperts: 4\nexpert-width: 24\n"
    "sequence: 16\nbatch: 4\niterations: 1000000\nbandwidth: 1e9\nexpert-rate: 1e9\n"
    "non-moe-seconds: 1e-4\ntext: text\n";

/* ---- running programs ---- */

struct run {
    pid_t pid;
    int status; /* exit status once ended; 128 + signal when one ended it */
};

static pid_t running; /* the program of the test at hand, 0: ended */

/* Starts the trainer, alone (ranks 0) or as `ranks` processes, on the words of a shell's line,
 * output in "out" and "err"; file_limit bytes a file may have (0: any number). */
static inline struct run start_trainer(int ranks, rlim_t file_limit, const char *words) {
    char launcher[300] = "", line[2000];
    if (ranks)
        snprintf(launcher, sizeof launcher, "%s --oversubscribe -n %d ", MOEPERF_MPIEXEC, ranks);
    snprintf(line, sizeof line, "exec %s%s %s >out 2>err", launcher, MOEPERF_TRAIN, words);
    write_file("out", ""); /* not the last run's */
    struct run run = {.pid = fork(), .status = -1};
    running = run.pid;
    if (run.pid == 0) {
        struct rlimit limit = {file_limit, file_limit};
        signal(SIGXFSZ, SIG_DFL);
        if (file_limit)
            setrlimit(RLIMIT_FSIZE, &limit);
        execl("/bin/sh", "sh", "-c", line, NULL);
        _exit(127);
    }
    assert_true(run.pid > 0);
    return run;
}

static inline bool has_ended(struct run *run) {
    int status;
    if (run->status < 0 && waitpid(run->pid, &status, WNOHANG) == run->pid) {
        running = 0;
        run->status = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
    }
    return run->status >= 0;
}

static inline void fail_with_words(const char *what) {
    AUTO(text) char *err = read_file("err");
    fail_msg("%s: %s", what, err);
}

/* A program that does not come to its end is killed and fails the test. */
static inline void wait_for_end(struct run *run) {
    for (int ms = 0; !has_ended(run) && ms < PATIENCE_MS; ms += 10)
        usleep(10000);
    if (run->status < 0)
        fail_with_words("it did not end");
}

/* A failed test leaves nothing running. */
static inline int end_run(UNUSED void **state) {
    if (running > 0) {
        kill(running, SIGKILL);
        waitpid(running, NULL, 0);
    }
    running = 0;
    return 0;
}

/* Runs it to its end, which has this status. */
static inline void run_trainer(int ranks, const char *words, int status) {
    struct run run = start_trainer(ranks, 0, words);
    wait_for_end(&run);
    if (run.status != status)
        fail_msg("%s: status %d: %s", words, run.status, read_file("err"));
}

/* Alone, with one line of its own for what is wrong, and nothing else. */
static inline void refused(const char *words, const char *message) {
    run_trainer(0, words, 2);
    AUTO(text) char *err = read_file("err"), *out = read_file("out");
    char *end = strchr(err, '\n');
    if (strncmp(err, "moeperf-train: ", 15) != 0 || !end || end[1] || !strstr(err, message) || *out)
        fail_msg("%s: %s", words, err);
}

struct reported {
    int done, of;
    double loss, ms;
};

/* Progress lines so far, of which `lines` gets the last `room`; returns how many. */
static inline int read_progress(struct reported lines[], int room) {
    char line[256];
    int count = 0;
    struct reported now;
    FILE *out = fopen("out", "r");
    while (out && fgets(line, sizeof line, out))
        if (strchr(line, '\n') &&
            sscanf(line, "progress %d %d %lf %lf", &now.done, &now.of, &now.loss, &now.ms) == 4)
            lines[count++ % room] = now;
    if (out)
        fclose(out);
    return count;
}

/* Iterations that the progress lines report so far. */
static inline int progress(void) {
    struct reported last = {0};
    read_progress(&last, 1);
    return last.done;
}

static inline void wait_for_progress(struct run *run, int iterations) {
    for (int ms = 0; progress() < iterations; ms += 10) {
        if (has_ended(run) || ms > PATIENCE_MS)
            fail_with_words("no progress");
        usleep(10000);
    }
}

/* Lines of standard error that the trainer wrote; those of mpirun do not count. */
static inline int own_lines(const char *message) {
    AUTO(text) char *err = read_file("err");
    int lines = 0;
    bool found = false;
    for (char *line = strtok(err, "\n"); line; line = strtok(NULL, "\n")) {
        if (strncmp(line, "moeperf-train: ", 15) != 0)
            continue;
        lines++;
        found |= strstr(line, message) != NULL;
    }
    if (!found)
        fail_with_words(message);
    return lines;
}

/* ---- reading spools ---- */

struct found {
    int iterations;              /* 0 .. iterations - 1 are there, each once and whole */
    double iterations_to_target; /* number of this name; 0: there is none */
    double span_ns;              /* what a span costs there; 0: not measured */
    int status;                  /* of the end record; 1: there is none */
    char reason[200];
    int pid;
    size_t unread;
};

static inline struct mp_spool_reader *open_spool_of(const char *folder, int rank) {
    return open_spool(formatted("%s/rank-%04d.spool", folder, rank));
}

static inline struct found read_spool(const char *folder, int rank) {
    struct found found = {.status = 1};
    AUTO(spool) struct mp_spool_reader *reader = open_spool_of(folder, rank);
    struct mp_spool_record record;
    found.pid = mp_spool_header(reader)->pid;
    while (next_record(reader, &record)) {
        assert_int_equal(found.status, 1); /* nothing stands behind the end */
        if (record.type == MP_SPOOL_SPAN && record.as.span.phase == MP_PHASE_ITERATION)
            assert_int_equal(record.as.span.iteration, found.iterations++);
        if (record.type == MP_SPOOL_NUMBER &&
            strcmp(record.as.number.name, "iterations-to-target") == 0)
            found.iterations_to_target = record.as.number.value;
        if (record.type == MP_SPOOL_NUMBER && strcmp(record.as.number.name, "record-span-ns") == 0)
            found.span_ns = record.as.number.value;
        if (record.type == MP_SPOOL_END) {
            found.status = record.as.end.status;
            snprintf(found.reason, sizeof found.reason, "%s", record.as.end.reason);
        }
    }
    found.unread = mp_spool_unread(reader);
    return found;
}

/* A fresh folder for spools. */
static inline void clear_spools(void) {
    unlink("spools/rank-0000.spool");
    unlink("spools/rank-0001.spool");
    assert_true(mkdir("spools", 0777) == 0 || errno == EEXIST);
}

static inline int enter(void **state) {
    int code = enter_folder(state);
    FILE *file = fopen("text", "w");
    for (int i = 0; file && i < 3000; i++)
        fprintf(file, "line %d of %d and %d; ", i, i * i, i * 7919 % 1000);
    if (!file || fclose(file))
        return -1;
    write_file("job.yaml", JOB);
    return code;
}
