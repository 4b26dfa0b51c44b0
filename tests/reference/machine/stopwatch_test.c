/* What seconds a measurement takes: repetitions on clocks that the test moves. */
#include "reference/machine/bench.h"
#include "tests/errors.h"

enum { MS = 1000000 };

static int64_t wall, processor; /* ns */

/* In place of the C library's, for this program. */
int clock_gettime(clockid_t clock, struct timespec *now) {
    int64_t value = clock == CLOCK_THREAD_CPUTIME_ID ? processor : wall;
    *now = (struct timespec){value / 1000000000, value % 1000000000};
    return 0;
}

/* Repetition `turn` takes so many ms: a permutation of 1 to 11, then 12; and less of the processor.
 * The first, which does not count, is much longer. */
static const int order[] = {900, 7, 3, 11, 1, 9, 5, 2, 10, 6, 4, 8};

struct work {
    int turns, slower; /* the pace of it all */
};

static int take(void *context, int turn, UNUSED struct mp_error *error) {
    struct work *work = context;
    int64_t ms = turn < 12 ? order[turn] : 12;
    assert_int_equal(turn, work->turns);
    work->turns++;
    wall += ms * work->slower * (MS / 100);
    processor += ms * work->slower * (MS / 1000);
    return MP_OK;
}

static double timed(struct bench *bench, bool together, struct work *work) {
    double seconds = -1;
    work->turns = 0;
    assert_works(bench_time(bench, together, take, work, &seconds, &error));
    return seconds;
}

TEST(repetitions_are_counted_and_summed_up) {
    struct mp_machine_settings settings = {.threads = 1};
    struct mp_device device = {0};
    struct bench bench = {.device = &device, .settings = &settings};
    assert_works(mp_comm_self_create(&bench.comm, &error));

    /* 7 3 11 ms: above 10 ms there are enough.  The first quarter of 3 7 11, and the mean. */
    struct work work = {.slower = 100};
    assert_close(timed(&bench, false, &work), 3e-3, 1e-9);
    assert_int_equal(work.turns, 1 + 3);
    bench.counts_processor_time = true;
    assert_close(timed(&bench, false, &work), 0.7e-3, 1e-9);
    work.slower = 150; /* 10.5 ms, 1.05 ms of the processor: enough at once */
    assert_close(timed(&bench, false, &work), 1.05e-3, 1e-9);
    assert_int_equal(work.turns, 1 + 1);
    work.slower = 50; /* 3.5 1.5 5.5 ms */
    assert_close(timed(&bench, false, &work), 1.05e-3 / 3, 1e-9);
    assert_int_equal(work.turns, 1 + 3);
    bench.shares_cores = true;
    bench.counts_processor_time = false;
    work.slower = 100;
    assert_close(timed(&bench, false, &work), 21e-3 / 3, 1e-9);
    bench.shares_cores = false;
    /* 10 times as fast: 6.6 ms in eleven, then 1.2 each: the fourteenth passes 10 ms. */
    work.slower = 10;
    assert_close(timed(&bench, false, &work), 0.4e-3, 1e-9);
    assert_int_equal(work.turns, 1 + 14);
    work.slower = 1; /* never: 64, of which 1 to 11 come before the 12s */
    assert_close(timed(&bench, false, &work), 0.12e-3, 1e-9);
    assert_int_equal(work.turns, 1 + 64);

    /* Together: 7, of wall time whatever else, 1 in front of the quarter; quick: 3, and 3. */
    bench.counts_processor_time = true;
    work.slower = 100;
    assert_close(timed(&bench, true, &work), 2e-3, 1e-9);
    assert_int_equal(work.turns, 1 + 7);
    settings.quick = true;
    assert_close(timed(&bench, true, &work), 3e-3, 1e-9);
    assert_int_equal(work.turns, 1 + 3);
    assert_close(timed(&bench, false, &work), 0.7e-3, 1e-9);
    assert_int_equal(work.turns, 1 + 3);
    mp_comm_destroy(bench.comm);
}

/* Two figures in rounds whose pace differs: medians of each over the rounds so far. */
TEST(rounds_have_medians) {
    static const struct {
        int slower[2];
        double ms[2];
    } rounds[] = {{{100, 50}, {2, 1}}, {{300, 700}, {4, 7.5}}, {{200, 100}, {4, 2}}};
    static double seconds[BENCH_FIGURES][BENCH_ROUNDS];
    const struct mp_machine_settings settings = {.threads = 1};
    struct mp_device device = {0};
    struct bench bench = {.device = &device, .settings = &settings, .seconds = seconds};
    assert_works(mp_comm_self_create(&bench.comm, &error));
    for (bench.round = 0; bench.round < 3; bench.round++) {
        bench.figure = 0;
        for (int i = 0; i < 2; i++) {
            struct work work = {.slower = rounds[bench.round].slower[i]};
            assert_close(timed(&bench, true, &work), 1e-3 * rounds[bench.round].ms[i], 1e-9);
        }
    }
    mp_comm_destroy(bench.comm);
}

TEST(a_failed_device_has_no_seconds) {
    const struct mp_machine_settings settings = {.threads = 1, .quick = true};
    struct mp_device device = {.error = {MP_ELIMIT, "too wide"}};
    struct bench bench = {.device = &device, .settings = &settings};
    struct work work = {.slower = 1};
    struct mp_error error = {0};
    double seconds = -1;
    assert_int_equal(mp_comm_self_create(&bench.comm, &error), MP_OK);
    assert_int_equal(bench_time(&bench, false, take, &work, &seconds, &error), MP_ELIMIT);
    assert_string_equal(error.text, "too wide");
    assert_true(seconds == -1);
    mp_comm_destroy(bench.comm);
}

/* Parts begin on cache lines of 16 floats, follow each other, and begin anew at the end. */
TEST(parts_take_turns) {
    static float pool[2][100];
    const struct bench bench = {.pool_floats = 100, .pool = {pool[0], pool[1]}};
    assert_ptr_equal(bench_part(&bench, 0, 0, 16), pool[0]);
    assert_ptr_equal(bench_part(&bench, 1, 1, 16), pool[1] + 16);
    assert_ptr_equal(bench_part(&bench, 1, 1, 17), pool[1] + 32);
    assert_ptr_equal(bench_part(&bench, 1, 2, 32), pool[1] + 64);
    assert_ptr_equal(bench_part(&bench, 1, 3, 32), pool[1]);
    assert_ptr_equal(bench_part(&bench, 1, 7, 16), pool[1] + 16);
    assert_ptr_equal(bench_part(&bench, 0, 5, 100), pool[0]); /* one that fills it */
}

static void note(void *context, int done, int steps, double seconds) {
    double *noted = context;
    noted[0] = done;
    noted[1] = steps;
    noted[2] = seconds;
}

TEST(steps_say_what_they_took) {
    double noted[3] = {0};
    const struct mp_machine_settings settings = {.progress = note, .context = noted}, silent = {0};
    struct bench bench = {.settings = &settings, .steps = 9, .step_begin = wall};
    wall += 5 * MS;
    bench_step(&bench);
    assert_true(noted[0] == 1 && noted[1] == 9);
    assert_close(noted[2], 5e-3, 1e-9);
    wall += 2 * MS;
    bench_step(&bench);
    assert_true(noted[0] == 2 && noted[1] == 9);
    assert_close(noted[2], 2e-3, 1e-9);
    bench.settings = &silent;
    bench_step(&bench);
    assert_int_equal(bench.done, 3);
}
