/* What seconds a measurement takes: repetitions on clocks that the test moves. */
#include <string.h>
#include <time.h>

#include "reference/machine/bench.h"
#include "tests/support.h"

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

static int take(void *context, int turn, struct mp_error *error) {
    struct work *work = context;
    int64_t ms = turn < 12 ? order[turn] : 12;
    (void)error;
    assert_int_equal(turn, work->turns);
    work->turns++;
    wall += ms * work->slower * (MS / 100);
    processor += ms * work->slower * (MS / 1000);
    return MP_OK;
}

static double timed(struct bench *bench, bool together, struct work *work) {
    double seconds = -1;
    struct mp_error error = {0};
    work->turns = 0;
    assert_int_equal(bench_time(bench, together, take, work, &seconds, &error), MP_OK);
    return seconds;
}

static void repetitions_are_counted_and_summed_up(void **state) {
    struct mp_machine_settings settings = {.threads = 1};
    struct mp_device device = {0};
    struct bench bench = {.device = &device, .settings = &settings};
    struct mp_error error = {0};
    (void)state;
    assert_int_equal(mp_comm_self_create(&bench.comm, &error), MP_OK);

    /* 7 3 11 1 9 ms: at 31 ms there are enough.  Sorted 1 3 7 9 11: a quarter, and the half. */
    struct work work = {.slower = 100};
    assert_close(timed(&bench, false, &work), 3e-3, 1e-9);
    assert_int_equal(work.turns, 1 + 5);
    bench.counts_processor_time = true;
    assert_close(timed(&bench, false, &work), 0.7e-3, 1e-9);
    bench.shares_cores = true;
    bench.counts_processor_time = false;
    assert_close(timed(&bench, false, &work), 31e-3 / 5, 1e-9);
    bench.shares_cores = false;
    work.slower = 1000; /* enough at once: at least five */
    assert_close(timed(&bench, false, &work), 30e-3, 1e-9);
    assert_int_equal(work.turns, 1 + 5);
    /* 10 times as fast: 66 in eleven, then 12 each: 30 ms are passed by the 31st (66 + 20 * 12). */
    work.slower = 10;
    assert_close(timed(&bench, false, &work), 0.8e-3, 1e-9);
    assert_int_equal(work.turns, 1 + 31);
    work.slower = 1; /* never: 64, of which 1 to 11 come before the 12s */
    assert_close(timed(&bench, false, &work), 0.12e-3, 1e-9);
    assert_int_equal(work.turns, 1 + 64);

    /* Together: 15, of wall time whatever else, 4 in front of the quarter; quick: 3, and 3. */
    bench.counts_processor_time = true;
    work.slower = 100;
    assert_close(timed(&bench, true, &work), 4e-3, 1e-9);
    assert_int_equal(work.turns, 1 + 15);
    settings.quick = true;
    assert_close(timed(&bench, true, &work), 3e-3, 1e-9);
    assert_int_equal(work.turns, 1 + 3);
    assert_close(timed(&bench, false, &work), 0.7e-3, 1e-9);
    assert_int_equal(work.turns, 1 + 3);
    mp_comm_destroy(bench.comm);
}

static void a_failed_device_has_no_seconds(void **state) {
    const struct mp_machine_settings settings = {.threads = 1, .quick = true};
    struct mp_device device = {.error = {MP_ELIMIT, "too wide"}};
    struct bench bench = {.device = &device, .settings = &settings};
    struct work work = {.slower = 1};
    struct mp_error error = {0};
    double seconds = -1;
    (void)state;
    assert_int_equal(mp_comm_self_create(&bench.comm, &error), MP_OK);
    assert_int_equal(bench_time(&bench, false, take, &work, &seconds, &error), MP_ELIMIT);
    assert_string_equal(error.text, "too wide");
    assert_true(seconds == -1);
    mp_comm_destroy(bench.comm);
}

/* Parts begin on cache lines of 16 floats, follow each other, and begin anew at the end. */
static void parts_take_turns(void **state) {
    static float pool[2][100];
    const struct bench bench = {.pool_floats = 100, .pool = {pool[0], pool[1]}};
    (void)state;
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

static void steps_say_what_they_took(void **state) {
    double noted[3] = {0};
    const struct mp_machine_settings settings = {.progress = note, .context = noted}, silent = {0};
    struct bench bench = {.settings = &settings, .steps = 9, .step_begin = wall};
    (void)state;
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

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(repetitions_are_counted_and_summed_up),
        cmocka_unit_test(a_failed_device_has_no_seconds),
        cmocka_unit_test(parts_take_turns),
        cmocka_unit_test(steps_say_what_they_took),
    };
    return cmocka_run_group_tests_name("machine/stopwatch", tests, NULL, NULL);
}
