#include "tests/errors.h"
#include "tests/profiler/device/companion.h"
#include "tests/records.h"

#include <signal.h>

#include "profiler/device/companion.h"

/* launched_test.c has all that launchers say; a companion is rank 0 of 1 without one. */
TEST(ranks_come_from_the_launcher) {
    int rank, ranks;
    setenv("MOEPERF_NVTX_RANK", "MINE", 1);
    unsetenv("MINE");
    mp_companion_rank(&rank, &ranks);
    assert_int_equal(rank, 0);
    assert_int_equal(ranks, 1);
    setenv("MINE", "4", 1);
    mp_companion_rank(&rank, &ranks);
    assert_int_equal(rank, 4);
    assert_int_equal(ranks, 5); /* no rank outside its job */
    unsetenv("MINE");
    unsetenv("MOEPERF_NVTX_RANK");
    setenv("RANK", "2", 1);
    setenv("WORLD_SIZE", "8", 1);
    setenv("TORCHELASTIC_RUN_ID", "none", 1);
    mp_companion_rank(&rank, &ranks);
    assert_int_equal(rank, 2);
    assert_int_equal(ranks, 8);
    unsetenv("TORCHELASTIC_RUN_ID");
    unsetenv("WORLD_SIZE");
    unsetenv("RANK");
}

/* More names than the table starts with, in random order, asked for again and again. */
TEST_RANDOM(names_have_one_id_each) {
    enum { NAMES = 250 };
    struct mp_companion companion;
    uint32_t id[NAMES] = {0};
    assert_works(mp_companion_open(&companion, "test", &error));
    mp_companion_status(&companion, "test", "on");
    for (int i = 0; i < 4000; i++) {
        char text[32];
        int which = i < NAMES ? i : test_random_int(random, 0, NAMES - 1);
        snprintf(text, sizeof text, "name %d", which);
        uint32_t got = mp_companion_name(&companion, text);
        assert_int_not_equal(got, 0);
        if (id[which])
            assert_int_equal(got, id[which]);
        id[which] = got;
    }
    assert_int_equal(mp_companion_name(&companion, NULL), 0);
    mp_companion_close(&companion);
    const struct companion_contents *contents = companion_read();
    assert_int_equal(contents->files, 1);
    assert_string_equal(contents->status, "on");
    assert_true(contents->ended);
    assert_numbers(contents->unread, 0, contents->header.pid, getpid());
    for (int i = 0; i < NAMES; i++) {
        char text[32];
        snprintf(text, sizeof text, "name %d", i);
        assert_string_equal(contents->names[id[i]], text);
    }
}

TEST(without_a_folder_it_is_off) {
    struct mp_companion companion;
    struct mp_error error = {0};
    unsetenv("MOEPERF_DEVICE_SPOOLS");
    assert_int_equal(mp_companion_open(&companion, "test", &error), MP_ENOTFOUND);
    mp_companion_close(&companion);
    error = (struct mp_error){0};
    setenv("MOEPERF_DEVICE_SPOOLS", "/nowhere/at/all", 1);
    assert_int_not_equal(mp_companion_open(&companion, "test", &error), MP_OK);
    assert_contains(error.text, "/nowhere/at/all");
    mp_companion_close(&companion);
    setenv("MOEPERF_DEVICE_SPOOLS", companion_folder, 1);
}

/* The child must not add an end to its parent's file. */
TEST(a_child_leaves_the_file_alone) {
    struct mp_companion companion;
    assert_works(mp_companion_open(&companion, "test", &error));
    mp_companion_status(&companion, "test", "on");
    pid_t child = fork();
    if (child == 0) {
        mp_companion_close(&companion);
        _exit(companion.recorder != NULL);
    }
    assert_int_equal(end_of_process(child), 0);
    struct mp_activity activity = {.start_ns = 5, .end_ns = 9, .kind = MP_ACTIVITY_COPY};
    put_activity(companion.thread, activity);
    mp_companion_close(&companion);
    const struct companion_contents *contents = companion_read();
    assert_int_equal(contents->activities, 1);
    assert_memory_equal(&contents->activity[0], &activity, sizeof activity);
    assert_int_equal(contents->unread, 0);
}

static pthread_mutex_t waiting = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t wakes;

/* What signals it takes, and whether its wait ends by the clock of mp_clock_after. */
static void *look_around(UNUSED void *unused) {
    static sigset_t blocked;
    pthread_sigmask(SIG_SETMASK, NULL, &blocked);
    struct timespec until = mp_clock_after(1);
    pthread_mutex_lock(&waiting);
    while (!pthread_cond_timedwait(&wakes, &waiting, &until)) /* nobody wakes it */
        ;
    pthread_mutex_unlock(&waiting);
    return &blocked;
}

TEST(a_thread_leaves_signals_alone) {
    pthread_t thread;
    sigset_t own;
    void *blocked;
    int64_t began = mp_clock_ns();
    assert_int_equal(mp_companion_thread(&thread, &wakes, look_around), 0);
    assert_int_equal(pthread_join(thread, &blocked), 0);
    assert_true(mp_clock_ns() - began >= 1000000);
    assert_true(sigismember(blocked, SIGTERM) && sigismember(blocked, SIGCHLD));
    pthread_sigmask(SIG_SETMASK, NULL, &own);
    assert_false(sigismember(&own, SIGTERM));
}

TEST_GROUP(companion_setup, companion_teardown);
