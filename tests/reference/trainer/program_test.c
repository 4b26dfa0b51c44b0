/* moeperf-train as its users meet it: usage, bad input, whole runs, and what is dropped in them;
 * alone and under mpirun. */
#include "tests/reference/trainer/program.h"

/* ---- usage and bad input ---- */

static const struct {
    const char *name, *text;
} printed[] = {{"--help", "usage: moeperf-train [JOB.yaml]"},
               {"-h", "--spool-directory DIR"},
               {"--version", "moeperf-train "}};

TEST_EACH_WITH(help_and_version_are_printed, printed, c, NULL, end_run) {
    run_trainer(0, c->name, 0);
    AUTO(text) char *out = read_file("out"), *err = read_file("err");
    assert_contains(out, c->text);
    assert_string_equal(err, "");
}

/* Every option of a job has a line in the help, with the first word of what it does. */
TEST_WITH(help_names_the_options_of_a_job, NULL, end_run) {
    run_trainer(0, "--help", 0);
    AUTO(text) char *out = read_file("out");
    for (const struct mp_option *option = mp_job_options; option->name; option++) {
        char begin[64];
        snprintf(begin, sizeof begin, "\n  %s ", option->name);
        const char *line = strstr(out, begin);
        if (!line)
            fail_msg("--help does not name %s", option->name);
        line += strlen(begin) + strspn(line + strlen(begin), " ");
        assert_int_equal(strncmp(line, option->help, strcspn(option->help, " ")), 0);
    }
}

TEST_WITH(bad_input_gets_one_line, NULL, end_run) {
    write_file("bad-key.yaml", formatted("%slaiers: 3\n", JOB));
    write_file("bad-value.yaml", "system: fssdp\ntext: text\nlayers: many\n");
    write_file("not.yaml", "system: [fssdp\n");
    write_file("short", "a few bytes");
    assert_int_equal(mkdir("precious", 0777) | mkdir("taken", 0777), 0);
    write_file("precious/diary", "dear diary");
    write_file("taken/rank-0000.spool", "an older run's");
    static const struct {
        const char *words, *message;
    } cases[] = {
        {"--frobnicate job.yaml", "unknown option --frobnicate"},
        {"", "no job file given"},
        {"job.yaml other.yaml", "one job file only: job.yaml or other.yaml?"},
        {"job.yaml --set", "--set needs a value"},
        {"job.yaml --spool-directory", "--spool-directory needs a value"},
        {"--calibrate", "--calibrate needs a value"},
        {"--threads", "--threads needs a value"},
        {"--threads 0 --calibrate c.yaml", "--threads 0: should be a whole number from 1 to 1024"},
        {"--threads 1025 --calibrate c.yaml", "--threads 1025: should be a whole number"},
        {"--threads 2x --calibrate c.yaml", "--threads 2x: should be a whole number"},
        {"job.yaml --threads 1024", "--threads is for --calibrate"},
        {"job.yaml --threads 1", "--threads is for --calibrate"},
        {"job.yaml --quick", "--quick is for --calibrate"},
        {"job.yaml --calibrate c.yaml", "--calibrate measures and does not train job.yaml"},
        {"--progress --rate", "no job file given; see --help"},
        {"-x job.yaml", "unknown option -x"},
        {"--set system=ep", "text: not given"}, /* needs no file */
        {"job.yaml --set 'inject=rank=1 phase=expert seconds=1'", "rank 1 of a job with 1"},
        {"job.yaml --set layers", "should be key=value"},
        {"nowhere.yaml", "nowhere.yaml"},
        {"bad-key.yaml", "bad-key.yaml:14: unknown option \"laiers\" for a job; did you mean "
                         "\"layers\"?"},
        {"bad-value.yaml", "bad-value.yaml:3: "},
        {"not.yaml", "not.yaml:"},
        {"job.yaml --set laiers=3", "did you mean \"layers\"?"},
        {"job.yaml --set options.windo=3", "did you mean \"window\"?"},
        {"job.yaml --set system=fsdp", "fsdp"},
        {"job.yaml --set heads=3", "width: 16 can't be divided evenly over 3 heads"},
        {"job.yaml --set ranks=8 --set batch=8", "ranks"},
        {"job.yaml --set ranks=2", "the job has 2 ranks, but 1 process was started"},
        {"job.yaml --set text=nowhere", "text nowhere: No such file or directory"},
        {"job.yaml --set text=short", "11 bytes for training, but one batch needs 68"},
        {"job.yaml --set restore=nowhere", "nowhere/checkpoint.yaml"},
        {"job.yaml --set checkpoint=precious", "checkpoint precious: the folder holds"},
        {"job.yaml --set checkpoint=no/such", "checkpoint no/such: no: No such file"},
        {"job.yaml --spool-directory no/where", "no/where/rank-0000.spool"},
        {"job.yaml --spool-directory taken", "taken/rank-0000.spool"},
        {"job.yaml --set learning-rate=1000 --set iterations=500", "the training diverged; a "},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        refused(cases[i].words, cases[i].message);
    AUTO(text) char *kept = read_file("taken/rank-0000.spool");
    assert_string_equal(kept, "an older run's");
}

/* What is wrong is said once, whoever started how many. */
static const struct {
    const char *name;
    int processes;
    const char *setting, *message;
} started[] = {
    {"one too many", 2, "ranks=1",
     "job.yaml: the job has 1 rank, but 2 processes were started; use mpirun"},
    {"one of three too many", 3, "ranks=2",
     "the job has 2 ranks, but 3 processes were started; use mpirun -n 2"},
    {"three too few", 1, "ranks=4",
     "the job has 4 ranks, but 1 process was started; use mpirun -n 4"},
    {"a bad job", 2, "laiers=3", "did you mean \"layers\"?"},
};

TEST_EACH_WITH(under_mpirun_it_is_said_once, started, c, NULL, end_run) {
    run_trainer(c->processes, formatted("job.yaml --set %s", c->setting), 2);
    assert_int_equal(own_lines(c->message), 1);
}

/* ---- whole runs ---- */

TEST_WITH(a_run_is_recorded_to_its_end, NULL, end_run) {
    for (int ranks = 0; ranks <= 2; ranks += 2) {
        clear_spools();
        assert_int_equal(rmdir("spools"), 0); /* it is created */
        run_trainer(ranks,
                    ranks ? "job.yaml --set iterations=7 --spool-directory spools --progress "
                            "--set ranks=2"
                          : "job.yaml --set iterations=7 --spool-directory spools --progress",
                    0);
        assert_int_equal(progress(), 7);
        for (int r = 0; r < (ranks ? 2 : 1); r++) {
            struct found found = read_spool("spools", r);
            assert_numbers(found.iterations, 7, found.status, MP_OK, found.unread, 0);
            assert_true(found.span_ns >= 1 && found.span_ns < 1e9);
        }
    }
}

/* Mean of the `window` losses before `end`. */
static double mean_before(const struct reported lines[], int end, int window) {
    double sum = 0;
    for (int i = end - window; i < end; i++)
        sum += lines[i].loss;
    return sum / window;
}

TEST_WITH(a_run_ends_at_its_target, NULL, end_run) {
    enum { WINDOW = 3, MOST = 2000 };
    static struct reported lines[MOST];
    clear_spools();
    run_trainer(2,
                "job.yaml --set ranks=2 --set iterations=2000 --set target-loss=5.2 "
                "--set target-window=3 --spool-directory spools --progress",
                0);
    int count = read_progress(lines, MOST);
    assert_in_range(count, WINDOW + 1, MOST - 1);
    assert_true(mean_before(lines, count, WINDOW) <= 5.2 + 1e-6); /* printed with six decimals */
    for (int end = WINDOW; end < count; end++)
        assert_true(mean_before(lines, end, WINDOW) > 5.2 - 1e-6);
    for (int r = 0; r < 2; r++) {
        struct found found = read_spool("spools", r);
        assert_numbers(found.iterations, count, found.status, MP_OK);
        if (r == 0)
            assert_close(found.iterations_to_target, count, 0);
    }
}

/* A checkpoint goes on where it was, with the options of the command line. */
TEST_WITH(a_run_goes_on_from_its_checkpoint, NULL, end_run) {
    run_trainer(0, "job.yaml --set iterations=4 --set checkpoint=first --set seed=3 --progress", 0);
    assert_int_equal(progress(), 4);
    run_trainer(0,
                "job.yaml --set iterations=9 --set checkpoint=second --set restore=first "
                "--progress",
                0);
    assert_int_equal(progress(), 9);
    AUTO(text) char *out = read_file("out"), *text = read_file("second/checkpoint.yaml");
    assert_int_equal(strncmp(out, "progress 5 9 ", 13), 0);
    assert_contains(text, "iteration: 9\n");
}

/* ---- drops ---- */

enum { RANKS = 2, LAYERS = 2, EXPERTS = 8, ITERATIONS = 30 };

/* Routes and drops of every expert as the ranks recorded them. */
struct recorded {
    uint32_t routes[RANKS][ITERATIONS][LAYERS][EXPERTS],
        dropped[RANKS][ITERATIONS][LAYERS][EXPERTS];
};

static void read_loads(int rank, struct recorded *recorded) {
    AUTO(spool) struct mp_spool_reader *reader = open_spool_of("spools", rank);
    struct mp_spool_record record;
    int loads = 0;
    for (; next_of(reader, MP_SPOOL_LOAD, &record); loads++) {
        int64_t iteration = record.as.load.iteration;
        int layer = record.as.load.layer;
        assert_int_equal(record.as.load.experts, EXPERTS);
        assert_in_range(iteration, 0, ITERATIONS - 1);
        memcpy(recorded->routes[rank][iteration][layer], record.as.load.routes,
               sizeof recorded->routes[0][0][0]);
        if (record.as.load.dropped)
            memcpy(recorded->dropped[rank][iteration][layer], record.as.load.dropped,
                   sizeof recorded->dropped[0][0][0]);
    }
    assert_int_equal(loads, ITERATIONS * LAYERS);
}

/* SYMI's placement scheduler as published, differences in units of 1 / sum. */
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
    run_trainer(
        RANKS,
        formatted("job.yaml --set ranks=2 --set system=%s --set experts=8 --set gate=switch "
                  "--set auxiliary-weight=1e-5 --set batch=8 --set learning-rate=1e-2 "
                  "--set iterations=30 --spool-directory spools",
                  system),
        0);
    *recorded = (struct recorded){0};
    for (int rank = 0; rank < RANKS; rank++)
        read_loads(rank, recorded);
}

/* 128 routes over 16 slots: 8 each. */
TEST_WITH(swiftmoe_drops_what_a_recount_says, NULL, end_run) {
    static struct recorded recorded;
    int dropped = 0;
    record_drops("swiftmoe", &recorded);
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
TEST_WITH(deepspeed_drops_what_a_recount_says, NULL, end_run) {
    static const int64_t capacity[EXPERTS] = {8, 8, 8, 8, 8, 8, 8, 8};
    static struct recorded recorded;
    int dropped = 0;
    record_drops("deepspeed", &recorded);
    for (int layer = 0; layer < LAYERS; layer++)
        for (int iteration = 0; iteration < ITERATIONS; iteration++)
            dropped += check_drops(&recorded, iteration, layer, capacity, true);
    assert_in_range(dropped, 1, 128 * LAYERS * ITERATIONS);
}

TEST_GROUP(enter, leave_folder);
