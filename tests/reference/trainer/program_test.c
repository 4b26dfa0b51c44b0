/* moeperf-train as its users meet it: usage, bad input, signals, kills, full disks; alone and under
 * mpirun.  Whatever happens, every completed iteration is in the spools. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/wait.h>

#include "profiler/record/spool.h"
#include "reference/trainer/job.h"
#include "tests/harness/folder.h"

enum { MAX_WORDS = 32, PATIENCE_MS = 250000 };

static const char JOB[] = "system: fssdp\n"
                          "layers: 2\n"
                          "width: 16\n"
                          "heads: 2\n"
                          "experts: 4\n"
                          "expert-width: 24\n"
                          "sequence: 16\n"
                          "batch: 4\n"
                          "iterations: 1000000\n"
                          "bandwidth: 1e9\n"
                          "expert-rate: 1e9\n"
                          "non-moe-seconds: 1e-4\n"
                          "text: text\n";

/* ---- running programs ---- */

struct run {
    pid_t pid;
    int status; /* exit status once ended; 128 + signal when one ended it */
};

static pid_t running; /* the program of the test at hand, 0: ended */

/* Starts words up to the first NULL, output in "out" and "err"; file_limit bytes a file may have
 * (0: any number). */
static struct run start(const char *const words[], rlim_t file_limit) {
    close(open("out", O_WRONLY | O_CREAT | O_TRUNC, 0666)); /* not the last run's */
    struct run run = {.pid = fork(), .status = -1};
    running = run.pid;
    if (run.pid == 0) {
        int out = open("out", O_WRONLY | O_CREAT | O_TRUNC, 0666);
        int err = open("err", O_WRONLY | O_CREAT | O_TRUNC, 0666);
        struct rlimit limit = {file_limit, file_limit};
        dup2(out, STDOUT_FILENO);
        dup2(err, STDERR_FILENO);
        signal(SIGXFSZ, SIG_DFL);
        if (file_limit)
            setrlimit(RLIMIT_FSIZE, &limit);
        execvp(words[0], (char **)words);
        _exit(127);
    }
    assert_true(run.pid > 0);
    return run;
}

static bool has_ended(struct run *run) {
    int status;
    if (run->status < 0 && waitpid(run->pid, &status, WNOHANG) == run->pid) {
        running = 0;
        run->status = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
    }
    return run->status >= 0;
}

/* A program that does not come to its end is killed and fails the test. */
static void wait_for_end(struct run *run) {
    for (int ms = 0; !has_ended(run) && ms < PATIENCE_MS; ms += 10)
        usleep(10000);
    if (run->status < 0) {
        char *err = read_file("err");
        print_error("it did not end: %s\n", err);
        free(err);
        fail();
    }
}

/* A failed test leaves nothing running. */
static int end_run(void **state) {
    (void)state;
    if (running > 0) {
        kill(running, SIGKILL);
        waitpid(running, NULL, 0);
    }
    running = 0;
    return 0;
}

/* Words of a command: the trainer, alone (ranks 0) or as `ranks` processes, then `more`. */
static void command(int ranks, const char *const more[], const char *words[MAX_WORDS]) {
    static const char *const counts[] = {"0", "1", "2", "3", "4"};
    int count = 0;
    if (ranks) {
        const char *const launcher[] = {MOEPERF_MPIEXEC, "--oversubscribe", "-n", counts[ranks]};
        for (size_t i = 0; i < sizeof launcher / sizeof *launcher; i++)
            words[count++] = launcher[i];
    }
    words[count++] = MOEPERF_TRAIN;
    while (*more)
        words[count++] = *more++;
    words[count] = NULL;
}

static struct run start_trainer(int ranks, rlim_t file_limit, const char *const more[]) {
    const char *words[MAX_WORDS];
    command(ranks, more, words);
    return start(words, file_limit);
}

/* Iterations that the progress lines report so far. */
static int progress(void) {
    char line[256];
    int done = 0, reported;
    FILE *out = fopen("out", "r");
    while (out && fgets(line, sizeof line, out))
        if (strchr(line, '\n') && sscanf(line, "progress %d ", &reported) == 1)
            done = reported;
    if (out)
        fclose(out);
    return done;
}

static void wait_for_progress(struct run *run, int iterations) {
    for (int ms = 0; progress() < iterations; ms += 10) {
        if (has_ended(run) || ms > PATIENCE_MS) {
            char *err = read_file("err");
            print_error("no progress: %s\n", err);
            free(err);
            fail();
        }
        usleep(10000);
    }
}

/* Lines of standard error that the trainer wrote; those of mpirun do not count. */
static int own_lines(const char *message) {
    char *err = read_file("err");
    int lines = 0;
    bool found = false;
    for (char *line = strtok(err, "\n"); line; line = strtok(NULL, "\n")) {
        if (strncmp(line, "moeperf-train: ", 15) != 0)
            continue;
        lines++;
        found |= strstr(line, message) != NULL;
    }
    free(err);
    if (found)
        return lines;
    err = read_file("err");
    print_error("\"%s\" is not in: %s\n", message, err);
    free(err);
    fail();
    return 0;
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

static struct found read_spool(const char *path) {
    struct found found = {.status = 1};
    struct mp_spool_reader *reader = NULL;
    struct mp_error error = {0};
    struct mp_spool_record record;
    if (mp_spool_open(path, &reader, &error))
        fail_msg("%s", error.text);
    found.pid = mp_spool_header(reader)->pid;
    int code;
    while ((code = mp_spool_next(reader, &record, &error)) == 1) {
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
    assert_int_equal(code, 0);
    found.unread = mp_spool_unread(reader);
    mp_spool_close(reader);
    return found;
}

/* A fresh folder for spools. */
static void clear_spools(void) {
    unlink("spools/rank-0000.spool");
    unlink("spools/rank-0001.spool");
    assert_true(mkdir("spools", 0777) == 0 || errno == EEXIST);
}

static int enter(void **state) {
    int code = enter_folder(state);
    FILE *file = fopen("text", "w");
    for (int i = 0; file && i < 3000; i++)
        fprintf(file, "line %d of %d and %d; ", i, i * i, i * 7919 % 1000);
    if (!file || fclose(file))
        return -1;
    write_file("job.yaml", JOB);
    return code;
}

/* ---- usage and bad input ---- */

static void help_and_version_are_printed(void **state) {
    (void)state;
    static const struct {
        const char *option, *text;
    } cases[] = {{"--help", "usage: moeperf-train [JOB.yaml]"},
                 {"-h", "--spool-directory DIR"},
                 {"--version", "moeperf-train "}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct run run = start_trainer(0, 0, (const char *[]){cases[i].option, NULL});
        wait_for_end(&run);
        assert_int_equal(run.status, 0);
        char *out = read_file("out"), *err = read_file("err");
        assert_non_null(strstr(out, cases[i].text));
        assert_string_equal(err, "");
        free(out);
        free(err);
    }
}

/* Every option of a job has a line in the help, with the first word of what it does. */
static void help_names_the_options_of_a_job(void **state) {
    (void)state;
    struct run run = start_trainer(0, 0, (const char *[]){"--help", NULL});
    wait_for_end(&run);
    char *out = read_file("out");
    for (const struct mp_option *option = mp_job_options; option->name; option++) {
        char begin[64];
        snprintf(begin, sizeof begin, "\n  %s ", option->name);
        const char *line = strstr(out, begin);
        if (!line)
            fail_msg("--help does not name %s", option->name);
        line += strlen(begin) + strspn(line + strlen(begin), " ");
        assert_int_equal(strncmp(line, option->help, strcspn(option->help, " ")), 0);
    }
    free(out);
}

static void bad_input_gets_one_line(void **state) {
    (void)state;
    char bad_key[sizeof JOB + 64];
    snprintf(bad_key, sizeof bad_key, "%slaiers: 3\n", JOB);
    write_file("bad-key.yaml", bad_key);
    write_file("bad-value.yaml", "system: fssdp\ntext: text\nlayers: many\n");
    write_file("not.yaml", "system: [fssdp\n");
    write_file("short", "a few bytes");
    assert_int_equal(mkdir("precious", 0777) | mkdir("taken", 0777), 0);
    write_file("precious/diary", "dear diary");
    write_file("taken/rank-0000.spool", "an older run's");
    static const struct {
        const char *words[6], *message;
    } cases[] = {
        {{"--frobnicate", "job.yaml"}, "unknown option --frobnicate"},
        {{NULL}, "no job file given"},
        {{"job.yaml", "other.yaml"}, "one job file only: job.yaml or other.yaml?"},
        {{"job.yaml", "--set"}, "--set needs a value"},
        {{"job.yaml", "--spool-directory"}, "--spool-directory needs a value"},
        {{"job.yaml", "--set", "layers"}, "should be key=value"},
        {{"nowhere.yaml"}, "nowhere.yaml"},
        {{"bad-key.yaml"},
         "bad-key.yaml:14: unknown option \"laiers\" for a job; did you mean "
         "\"layers\"?"},
        {{"bad-value.yaml"}, "bad-value.yaml:3: "},
        {{"not.yaml"}, "not.yaml:"},
        {{"job.yaml", "--set", "laiers=3"}, "did you mean \"layers\"?"},
        {{"job.yaml", "--set", "options.windo=3"}, "did you mean \"window\"?"},
        {{"job.yaml", "--set", "system=fsdp"}, "fsdp"},
        {{"job.yaml", "--set", "heads=3"}, "width: 16 can't be divided evenly over 3 heads"},
        {{"job.yaml", "--set", "ranks=8", "--set", "batch=8"}, "ranks"},
        {{"job.yaml", "--set", "ranks=2"}, "the job has 2 ranks, but 1 process was started"},
        {{"job.yaml", "--set", "text=nowhere"}, "text nowhere: No such file or directory"},
        {{"job.yaml", "--set", "text=short"}, "11 bytes for training, but one batch needs 68"},
        {{"job.yaml", "--set", "restore=nowhere"}, "nowhere/checkpoint.yaml"},
        {{"job.yaml", "--set", "checkpoint=precious"}, "checkpoint precious: the folder holds"},
        {{"job.yaml", "--set", "checkpoint=no/such"}, "checkpoint no/such: no: No such file"},
        {{"job.yaml", "--spool-directory", "no/where"}, "no/where/rank-0000.spool"},
        {{"job.yaml", "--spool-directory", "taken"}, "taken/rank-0000.spool"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct run run = start_trainer(0, 0, cases[i].words);
        wait_for_end(&run);
        char *err = read_file("err");
        char *end = strchr(err, '\n');
        if (run.status != 2 || strncmp(err, "moeperf-train: ", 15) != 0 || !end || end[1] ||
            !strstr(err, cases[i].message))
            fail_msg("case %zu, \"%s\": status %d: %s", i, cases[i].message, run.status, err);
        free(err);
    }
    char *kept = read_file("taken/rank-0000.spool");
    assert_string_equal(kept, "an older run's");
    free(kept);
}

/* A wrong number of processes is said once, whoever started how many. */
static void wrong_numbers_of_processes_are_refused(void **state) {
    (void)state;
    static const struct {
        int processes;
        const char *ranks, *message;
    } cases[] = {
        {2, "ranks=1", "job.yaml: the job has 1 rank, but 2 processes were started; use mpirun"},
        {3, "ranks=2", "the job has 2 ranks, but 3 processes were started; use mpirun -n 2"},
        {1, "ranks=4", "the job has 4 ranks, but 1 process was started; use mpirun -n 4"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct run run = start_trainer(cases[i].processes, 0,
                                       (const char *[]){"job.yaml", "--set", cases[i].ranks, NULL});
        wait_for_end(&run);
        assert_int_equal(run.status, 2);
        assert_int_equal(own_lines(cases[i].message), 1);
    }
}

static void a_bad_job_under_mpirun_is_said_once(void **state) {
    (void)state;
    struct run run = start_trainer(2, 0, (const char *[]){"job.yaml", "--set", "laiers=3", NULL});
    wait_for_end(&run);
    assert_int_equal(run.status, 2);
    assert_int_equal(own_lines("did you mean \"layers\"?"), 1);
}

/* ---- whole runs ---- */

static void a_run_is_recorded_to_its_end(void **state) {
    (void)state;
    for (int ranks = 0; ranks <= 2; ranks += 2) {
        clear_spools();
        assert_int_equal(rmdir("spools"), 0); /* it is created */
        struct run run = start_trainer(
            ranks, 0,
            (const char *[]){"job.yaml", "--set", ranks ? "ranks=2" : "ranks=1", "--set",
                             "iterations=7", "--spool-directory", "spools", "--progress", NULL});
        wait_for_end(&run);
        assert_int_equal(run.status, 0);
        assert_int_equal(progress(), 7);
        for (int r = 0; r < (ranks ? 2 : 1); r++) {
            struct found found =
                read_spool(r ? "spools/rank-0001.spool" : "spools/rank-0000.spool");
            assert_int_equal(found.iterations, 7);
            assert_int_equal(found.status, MP_OK);
            assert_int_equal(found.unread, 0);
            assert_true(found.span_ns >= 1 && found.span_ns < 1e9);
        }
    }
}

/* Losses that the progress lines report; returns how many. */
static int read_losses(double loss[], int room) {
    char line[256];
    int count = 0;
    FILE *out = fopen("out", "r");
    while (out && count < room && fgets(line, sizeof line, out))
        count += sscanf(line, "progress %*d %*d %lf", &loss[count]) == 1;
    if (out)
        fclose(out);
    return count;
}

/* Mean of the `window` losses before `end`. */
static double mean_before(const double loss[], int end, int window) {
    double sum = 0;
    for (int i = end - window; i < end; i++)
        sum += loss[i];
    return sum / window;
}

static void a_run_ends_at_its_target(void **state) {
    (void)state;
    enum { WINDOW = 3, MOST = 2000 };
    static double loss[MOST];
    clear_spools();
    struct run run =
        start_trainer(2, 0,
                      (const char *[]){"job.yaml", "--set", "ranks=2", "--set", "iterations=2000",
                                       "--set", "target-loss=5.2", "--set", "target-window=3",
                                       "--spool-directory", "spools", "--progress", NULL});
    wait_for_end(&run);
    assert_int_equal(run.status, 0);
    int count = read_losses(loss, MOST);
    assert_in_range(count, WINDOW + 1, MOST - 1);
    assert_true(mean_before(loss, count, WINDOW) <= 5.2 + 1e-6); /* printed with six decimals */
    for (int end = WINDOW; end < count; end++)
        assert_true(mean_before(loss, end, WINDOW) > 5.2 - 1e-6);
    for (int r = 0; r < 2; r++) {
        struct found found = read_spool(r ? "spools/rank-0001.spool" : "spools/rank-0000.spool");
        assert_int_equal(found.iterations, count);
        assert_int_equal(found.status, MP_OK);
        if (r == 0)
            assert_close(found.iterations_to_target, count, 0);
    }
}

/* A checkpoint goes on where it was, with the options of the command line. */
static void a_run_goes_on_from_its_checkpoint(void **state) {
    (void)state;
    static const char *const runs[][3] = {{"iterations=4", "checkpoint=first", "seed=3"},
                                          {"iterations=9", "checkpoint=second", "restore=first"}};
    for (int i = 0; i < 2; i++) {
        struct run run =
            start_trainer(0, 0,
                          (const char *[]){"job.yaml", "--set", runs[i][0], "--set", runs[i][1],
                                           "--set", runs[i][2], "--progress", NULL});
        wait_for_end(&run);
        assert_int_equal(run.status, 0);
        assert_int_equal(progress(), i ? 9 : 4);
    }
    char *out = read_file("out"), *text = read_file("second/checkpoint.yaml");
    assert_int_equal(strncmp(out, "progress 5 9 ", 13), 0);
    assert_non_null(strstr(text, "iteration: 9\n"));
    free(out);
    free(text);
}

/* ---- drops ---- */

enum { RANKS = 2, LAYERS = 2, EXPERTS = 8, ITERATIONS = 30 };

/* Routes and drops of every expert as the ranks recorded them. */
struct recorded {
    uint32_t routes[RANKS][ITERATIONS][LAYERS][EXPERTS],
        dropped[RANKS][ITERATIONS][LAYERS][EXPERTS];
};

static void read_loads(int rank, struct recorded *recorded) {
    struct mp_spool_reader *reader = NULL;
    struct mp_spool_record record;
    struct mp_error error = {0};
    int loads = 0;
    if (mp_spool_open(rank ? "spools/rank-0001.spool" : "spools/rank-0000.spool", &reader, &error))
        fail_msg("%s", error.text);
    while (mp_spool_next(reader, &record, &error) == 1) {
        if (record.type != MP_SPOOL_LOAD)
            continue;
        int64_t iteration = record.as.load.iteration;
        int layer = record.as.load.layer;
        assert_int_equal(record.as.load.experts, EXPERTS);
        assert_in_range(iteration, 0, ITERATIONS - 1);
        memcpy(recorded->routes[rank][iteration][layer], record.as.load.routes,
               sizeof recorded->routes[0][0][0]);
        if (record.as.load.dropped)
            memcpy(recorded->dropped[rank][iteration][layer], record.as.load.dropped,
                   sizeof recorded->dropped[0][0][0]);
        loads++;
    }
    mp_spool_close(reader);
    assert_int_equal(loads, ITERATIONS * LAYERS);
}

/* SYMI's placement scheduler as published (systems.md 2.6.2), differences in units of 1 / sum. */
static void slots_by_popularity(const int64_t popularity[], int64_t slots, int64_t count[]) {
    int64_t sum = 0, given = 0, difference[EXPERTS];
    for (int e = 0; e < EXPERTS; e++)
        sum += popularity[e];
    for (int e = 0; e < EXPERTS; e++) {
        int64_t goal = popularity[e] * slots;
        count[e] = goal < sum ? 1 : goal / sum;
        difference[e] = count[e] * sum - goal;
        given += count[e];
    }
    while (given != slots) {
        int64_t sign = given > slots ? -1 : 1;
        int at = 0;
        for (int e = 1; e < EXPERTS; e++)
            if (sign * difference[e] < sign * difference[at])
                at = e;
        difference[at] += sign * sum;
        if (sign < 0 && count[at] == 1)
            continue;
        count[at] += sign;
        given += sign;
    }
}

/* Drops of one layer of one iteration under a capacity per expert: the first routes are kept,
 * counted over the ranks in ascending order or, with `by_rank`, on every rank anew. */
static int check_drops(const struct recorded *recorded, int iteration, int layer,
                       const int64_t capacity[], bool by_rank) {
    int64_t left[EXPERTS];
    int sum = 0;
    for (int rank = 0; rank < RANKS; rank++)
        for (int e = 0; e < EXPERTS; e++) {
            int64_t routes = recorded->routes[rank][iteration][layer][e];
            left[e] = rank == 0 || by_rank ? capacity[e] : left[e];
            int64_t kept = routes < left[e] ? routes : left[e];
            left[e] -= kept;
            assert_int_equal(recorded->dropped[rank][iteration][layer][e], routes - kept);
            sum += (int)(routes - kept);
        }
    return sum;
}

static void record_drops(const char *system, struct recorded *recorded) {
    clear_spools();
    struct run run = start_trainer(RANKS, 0,
                                   (const char *[]){"job.yaml",
                                                    "--set",
                                                    "ranks=2",
                                                    "--set",
                                                    system,
                                                    "--set",
                                                    "experts=8",
                                                    "--set",
                                                    "gate=switch",
                                                    "--set",
                                                    "auxiliary-weight=1e-5",
                                                    "--set",
                                                    "batch=8",
                                                    "--set",
                                                    "learning-rate=1e-2",
                                                    "--set",
                                                    "iterations=30",
                                                    "--spool-directory",
                                                    "spools",
                                                    NULL});
    wait_for_end(&run);
    assert_int_equal(run.status, 0);
    *recorded = (struct recorded){0};
    for (int rank = 0; rank < RANKS; rank++)
        read_loads(rank, recorded);
}

/* 128 routes over 16 slots: 8 each. */
static void swiftmoe_drops_what_a_recount_says(void **state) {
    (void)state;
    static struct recorded recorded;
    int dropped = 0;
    record_drops("system=swiftmoe", &recorded);
    for (int layer = 0; layer < LAYERS; layer++) {
        int64_t popularity[EXPERTS] = {1, 1, 1, 1, 1, 1, 1, 1}, capacity[EXPERTS];
        for (int iteration = 0; iteration < ITERATIONS; iteration++) {
            slots_by_popularity(popularity, 16, capacity);
            for (int e = 0; e < EXPERTS; e++) {
                capacity[e] *= 8;
                popularity[e] = recorded.routes[0][iteration][layer][e] +
                                recorded.routes[1][iteration][layer][e];
            }
            dropped += check_drops(&recorded, iteration, layer, capacity, false);
        }
    }
    assert_in_range(dropped, 1, 128 * LAYERS * ITERATIONS / 2); /* some, and most are kept */
}

/* 64 routes of a rank over 8 experts: 8 each. */
static void deepspeed_drops_what_a_recount_says(void **state) {
    (void)state;
    static const int64_t capacity[EXPERTS] = {8, 8, 8, 8, 8, 8, 8, 8};
    static struct recorded recorded;
    int dropped = 0;
    record_drops("system=deepspeed", &recorded);
    for (int layer = 0; layer < LAYERS; layer++)
        for (int iteration = 0; iteration < ITERATIONS; iteration++)
            dropped += check_drops(&recorded, iteration, layer, capacity, true);
    assert_in_range(dropped, 1, 128 * LAYERS * ITERATIONS);
}

/* ---- signals ---- */

static struct run start_recorded(int ranks, rlim_t file_limit) {
    clear_spools();
    return start_trainer(ranks, file_limit,
                         (const char *[]){"job.yaml", "--set", ranks ? "ranks=2" : "ranks=1",
                                          "--spool-directory", "spools", "--progress", NULL});
}

/* Ends by a signal: all that was done is recorded, and says so. */
static void assert_interrupted(struct run *run, int ranks, int at_least) {
    wait_for_end(run);
    int done = progress();
    char line[64];
    assert_int_equal(run->status, 0);
    snprintf(line, sizeof line, "stopped by a signal after iteration %d", done);
    assert_true(done >= at_least);
    assert_int_equal(own_lines(line), 1);
    for (int r = 0; r < ranks; r++) {
        struct found found = read_spool(r ? "spools/rank-0001.spool" : "spools/rank-0000.spool");
        assert_int_equal(found.iterations, done);
        assert_int_equal(found.status, MP_EINTERRUPTED);
        assert_string_equal(found.reason, line);
        assert_int_equal(found.unread, 0);
    }
}

static const int stopping[] = {SIGINT, SIGTERM};

/* Which signals a thread holds back, or has handlers for: a mask of the line of /proc. */
static unsigned long long signals_of(pid_t pid, const char *thread, const char *line) {
    char path[300], text[256];
    unsigned long long mask = 0;
    snprintf(path, sizeof path, "/proc/%d/task/%s/status", (int)pid, thread);
    FILE *status = fopen(path, "r");
    assert_non_null(status);
    while (fgets(text, sizeof text, status))
        if (!strncmp(text, line, strlen(line)))
            sscanf(text + strlen(line), "%llx", &mask);
    fclose(status);
    return mask;
}

/* No thread that computes is ever interrupted (signals.h): one thread waits for signals, all others
 * hold them back. */
static void assert_one_thread_waits(pid_t pid) {
    char path[64];
    unsigned long long ends = 1ull << (SIGINT - 1) | 1ull << (SIGTERM - 1);
    int held = 0, waiting = 0;
    snprintf(path, sizeof path, "/proc/%d/task", (int)pid);
    DIR *threads = opendir(path);
    assert_non_null(threads);
    for (struct dirent *thread; (thread = readdir(threads));) {
        if (thread->d_name[0] == '.')
            continue;
        assert_true((signals_of(pid, thread->d_name, "SigCgt:") & ends) == 0);
        unsigned long long blocked = signals_of(pid, thread->d_name, "SigBlk:") & ends;
        assert_true(blocked == 0 || blocked == ends);
        held += blocked == ends;
        waiting += blocked == 0;
    }
    closedir(threads);
    assert_true(held > 0);
    assert_int_equal(waiting, 1);
}

/* With nothing to keep they end it as they end any program. */
static void signals_end_what_does_not_train(void **state) {
    (void)state;
    for (int i = 0; i < 2; i++) {
        struct run run = start_trainer(0, 0, (const char *[]){"--calibrate", "machine.yaml", NULL});
        usleep(300000 * (useconds_t)i);
        kill(run.pid, stopping[i]);
        wait_for_end(&run);
        assert_int_equal(run.status, 128 + stopping[i]);
    }
}

static void signals_end_a_run_after_its_iteration(void **state) {
    (void)state;
    for (int i = 0; i < 2; i++) {
        struct run run = start_recorded(0, 0);
        wait_for_progress(&run, 3);
        assert_one_thread_waits(run.pid);
        kill(run.pid, stopping[i]);
        assert_interrupted(&run, 1, 3);
    }
}

/* One rank is asked, both end after the same iteration. */
static void a_signal_to_one_rank_ends_all(void **state) {
    (void)state;
    for (int i = 0; i < 2; i++) {
        struct run run = start_recorded(2, 0);
        wait_for_progress(&run, 3);
        kill(read_spool(i ? "spools/rank-0000.spool" : "spools/rank-0001.spool").pid, stopping[i]);
        assert_interrupted(&run, 2, 3);
    }
}

/* mpirun itself passes a signal on as SIGTERM, has its own opinion of the exit status, may drop the
 * ranks' last words, and kills them after a second, which a loaded machine may need for more. */
static void a_signal_to_mpirun_ends_all(void **state) {
    (void)state;
    for (int i = 0; i < 2; i++) {
        struct run run = start_recorded(2, 0);
        wait_for_progress(&run, 3);
        kill(run.pid, stopping[i]);
        wait_for_end(&run);
        struct found first = read_spool("spools/rank-0000.spool"),
                     second = read_spool("spools/rank-0001.spool");
        assert_true(first.iterations >= progress() && first.iterations >= 3);
        if (first.status == 1 || second.status == 1) {
            print_message("mpirun killed a rank before it had ended by itself\n");
            assert_in_range(second.iterations, first.iterations - 1, first.iterations + 1);
            continue;
        }
        assert_int_equal(first.iterations, second.iterations);
        assert_true(first.status == MP_EINTERRUPTED && second.status == MP_EINTERRUPTED);
    }
}

static void a_killed_rank_ends_the_run_and_loses_nothing(void **state) {
    (void)state;
    for (int victim = 0; victim < 2; victim++) {
        struct run run = start_recorded(2, 0);
        wait_for_progress(&run, 5);
        kill(read_spool(victim ? "spools/rank-0001.spool" : "spools/rank-0000.spool").pid, SIGKILL);
        wait_for_end(&run);
        int done = progress();
        assert_int_not_equal(run.status, 0);
        struct found first = read_spool("spools/rank-0000.spool"),
                     second = read_spool("spools/rank-0001.spool");
        /* Progress is printed when rank 0 has flushed; rank 1 may have been about to. */
        assert_true(first.iterations >= done);
        assert_true(second.iterations >= done - 1);
        assert_true(first.status != MP_OK && second.status != MP_OK);
    }
}

/* What the progress line of an iteration says of its loss. */
static double loss_after(int iterations) {
    char line[256];
    double loss = -1;
    FILE *out = fopen("out", "r");
    assert_non_null(out);
    while (fgets(line, sizeof line, out)) {
        int done;
        double found;
        if (sscanf(line, "progress %d %*d %lf", &done, &found) == 2 && done == iterations)
            loss = found;
    }
    fclose(out);
    assert_true(loss > 0);
    return loss;
}

static int checkpointed(const char *path) {
    char *text = read_file(path), *at = strstr(text, "iteration: ");
    assert_non_null(at);
    int iteration = atoi(at + strlen("iteration: "));
    free(text);
    return iteration;
}

/* Slots that follow what was popular are there again after a kill: the curve goes on as if there
 * had been none. */
static void a_killed_run_goes_on_from_its_checkpoint(void **state) {
    (void)state;
    char end[40];
    const char *words[] = {"job.yaml",
                           "--progress",
                           "--spool-directory",
                           "spools",
                           "--set",
                           "ranks=2",
                           "--set",
                           "system=swiftmoe",
                           "--set",
                           "iterations=1000000",
                           "--set",
                           "checkpoint=kept",
                           "--set",
                           "checkpoint-every=2",
                           NULL};
    clear_spools();
    struct run run = start_trainer(2, 0, words);
    wait_for_progress(&run, 6);
    kill(read_spool("spools/rank-0001.spool").pid, SIGKILL);
    wait_for_end(&run);
    assert_int_not_equal(run.status, 0);
    int iteration = checkpointed("kept/checkpoint.yaml");
    assert_true(iteration >= 4);
    snprintf(end, sizeof end, "iterations=%d", iteration + 10);
    words[9] = end;
    words[11] = "checkpoint=later";
    words[13] = "restore=kept";
    double loss[2];
    for (int unbroken = 0; unbroken < 2; unbroken++) {
        clear_spools();
        words[12] = unbroken ? NULL : "--set";
        run = start_trainer(2, 0, words);
        wait_for_end(&run);
        assert_int_equal(run.status, 0);
        loss[unbroken] = loss_after(iteration + 10);
    }
    assert_true(loss[0] == loss[1]);
    assert_int_equal(checkpointed("later/checkpoint.yaml"), iteration + 10);
}

/* ---- full disks ---- */

static void assert_readable_up_to_the_end(int ranks, const char *folder) {
    int done = progress();
    for (int r = 0; r < ranks; r++) {
        char path[64];
        snprintf(path, sizeof path, "%s/rank-%04d.spool", folder, r);
        struct found found = read_spool(path);
        /* The other rank may have been a step behind when it was ended. */
        assert_true(found.iterations >= done - 1 && found.iterations > 0);
        if (ranks == 1)
            assert_int_equal(found.unread, 0); /* cut back to the last whole record */
        assert_int_not_equal(found.status, MP_OK);
    }
}

/* A size limit stands for a disk: mpirun's own files would meet it, too, so one rank alone. */
static void a_file_at_its_limit_ends_the_run_with_a_message(void **state) {
    (void)state;
    struct run run = start_recorded(0, 150000);
    wait_for_end(&run);
    assert_int_equal(run.status, 2);
    assert_int_equal(own_lines("File too large; the spool ends after"), 1);
    assert_true(progress() > 3);
    assert_readable_up_to_the_end(1, "spools");
}

static void a_full_disk_ends_the_run_with_a_message(void **state) {
    (void)state;
    for (int ranks = 0; ranks <= 2; ranks += 2) {
        clear_spools();
        if (mount("none", "spools", "tmpfs", 0, "size=400k") != 0)
            skip("no file system may be mounted here: %s", strerror(errno));
        struct run run = start_recorded(ranks, 0);
        for (int ms = 0; !has_ended(&run) && ms < PATIENCE_MS; ms += 10)
            usleep(10000);
        assert_int_equal(system("rm -rf kept && cp -r spools kept"), 0);
        umount2("spools", MNT_DETACH);
        assert_int_equal(run.status, 2);
        assert_in_range(own_lines("No space left on device"), 1, ranks ? 2 : 1);
        assert_readable_up_to_the_end(ranks ? 2 : 1, "kept");
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_teardown(help_and_version_are_printed, end_run),
        cmocka_unit_test_teardown(help_names_the_options_of_a_job, end_run),
        cmocka_unit_test_teardown(bad_input_gets_one_line, end_run),
        cmocka_unit_test_teardown(wrong_numbers_of_processes_are_refused, end_run),
        cmocka_unit_test_teardown(a_bad_job_under_mpirun_is_said_once, end_run),
        cmocka_unit_test_teardown(a_run_is_recorded_to_its_end, end_run),
        cmocka_unit_test_teardown(a_run_ends_at_its_target, end_run),
        cmocka_unit_test_teardown(a_run_goes_on_from_its_checkpoint, end_run),
        cmocka_unit_test_teardown(swiftmoe_drops_what_a_recount_says, end_run),
        cmocka_unit_test_teardown(deepspeed_drops_what_a_recount_says, end_run),
        cmocka_unit_test_teardown(signals_end_what_does_not_train, end_run),
        cmocka_unit_test_teardown(signals_end_a_run_after_its_iteration, end_run),
        cmocka_unit_test_teardown(a_signal_to_one_rank_ends_all, end_run),
        cmocka_unit_test_teardown(a_signal_to_mpirun_ends_all, end_run),
        cmocka_unit_test_teardown(a_killed_rank_ends_the_run_and_loses_nothing, end_run),
        cmocka_unit_test_teardown(a_killed_run_goes_on_from_its_checkpoint, end_run),
        cmocka_unit_test_teardown(a_file_at_its_limit_ends_the_run_with_a_message, end_run),
        cmocka_unit_test_teardown(a_full_disk_ends_the_run_with_a_message, end_run),
    };
    return cmocka_run_group_tests_name("moeperf-train", tests, enter, leave_folder);
}
