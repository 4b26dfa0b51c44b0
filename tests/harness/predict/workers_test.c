/* Workers: every task once, whatever the number of processes; what ends them is said. */
#include "harness/predict/workers.h"

#include <signal.h>
#include <stdatomic.h>

#include "tests/errors.h"
#include "tests/reference/plan/plan_support.h"

enum { TASKS = 37, FIRST = 3 };

/* What processes share, and what each has for itself. */
struct tasks {
    struct {
        atomic_int turns; /* so far */
        int turn[TASKS], times[TASKS], seen[TASKS];
        pid_t process[TASKS];
    } * shared;
    int own;                /* changed by every task, for itself alone */
    int fatal;              /* task that ends its process; -1: none */
    int told, last, enough; /* progress: calls, the last number, the number that stops; 0: none */
};

static void carry_out(void *context, int task) {
    struct tasks *tasks = context;
    raise(SIGINT); /* whoever started the process says when to stop */
    if (task == tasks->fatal)
        raise(SIGKILL);
    tasks->shared->turn[task] = atomic_fetch_add(&tasks->shared->turns, 1);
    tasks->shared->times[task]++;
    tasks->shared->seen[task] = tasks->own++;
    tasks->shared->process[task] = getpid();
}

static void never_end(void *context, int task) {
    struct tasks *tasks = context;
    tasks->shared->times[task]++;
    for (;;)
        pause();
}

static bool tell(void *context, int done) {
    struct tasks *tasks = context;
    assert_true(done >= tasks->last && done <= TASKS);
    tasks->last = done;
    tasks->told++;
    return !tasks->enough || tasks->told < tasks->enough;
}

static struct tasks begin(void) {
    struct tasks tasks = {.shared = mp_workers_memory(sizeof *tasks.shared), .fatal = -1};
    assert_non_null(tasks.shared);
    for (int i = 0; i < TASKS; i++)
        assert_int_equal(tasks.shared->times[i], 0);
    return tasks;
}

TEST_END(end, struct tasks, { mp_workers_release(it->shared, sizeof *it->shared); })

TEST(every_task_is_carried_out_once) {
    for (int processes = 1; processes <= 128; processes *= 2) {
        AUTO(end) struct tasks tasks = begin();
        const struct mp_workers workers = {processes, &tasks, carry_out, tell};
        assert_works(mp_workers_run(&workers, FIRST, TASKS, &error));
        for (int i = 0; i < TASKS; i++)
            assert_int_equal(tasks.shared->times[i], i >= FIRST);
        assert_int_equal(tasks.last, TASKS - FIRST);
        assert_int_equal(tasks.own, 0); /* what they do beside shared memory is theirs */
    }
}

/* In their order, by a process that is not this one and sees what it has left itself. */
TEST(one_worker_takes_one_after_the_other) {
    AUTO(end) struct tasks tasks = begin();
    const struct mp_workers workers = {1, &tasks, carry_out, NULL};
    tasks.own = 100;
    assert_works(mp_workers_run(&workers, FIRST, TASKS, &error));
    for (int i = FIRST; i < TASKS; i++) {
        assert_numbers(tasks.shared->turn[i], i - FIRST, tasks.shared->seen[i], 100 + i - FIRST);
        assert_int_equal(tasks.shared->process[i], tasks.shared->process[FIRST]);
    }
    assert_int_not_equal(tasks.shared->process[FIRST], getpid());
}

TEST(nothing_to_do_is_done) {
    AUTO(end) struct tasks tasks = begin();
    const struct mp_workers workers = {4, &tasks, carry_out, tell};
    assert_works(mp_workers_run(&workers, FIRST, FIRST, &error));
    assert_int_equal(tasks.shared->turns, 0);
    mp_workers_release(NULL, sizeof *tasks.shared);
}

/* Two of them are at work for ever, and no other task is begun. */
TEST(progress_stops_them) {
    AUTO(end) struct tasks tasks = begin();
    const struct mp_workers workers = {2, &tasks, never_end, tell};
    tasks.enough = 2;
    assert_sentence(mp_workers_run(&workers, FIRST, TASKS, &error), MP_EINTERRUPTED,
                    "stopped by the user");
    assert_int_equal(tasks.told > 1, true);
    for (int i = FIRST + 2; i < TASKS; i++)
        assert_int_equal(tasks.shared->times[i], 0);
}

TEST(a_process_that_dies_is_told_of) {
    for (int processes = 1; processes <= 4; processes += 3) {
        AUTO(end) struct tasks tasks = begin();
        const struct mp_workers workers = {processes, &tasks, carry_out, tell};
        tasks.fatal = FIRST;
        assert_fails(mp_workers_run(&workers, FIRST, TASKS, &error), MP_EIO,
                     "a process that predicts has died");
        assert_int_equal(tasks.shared->times[FIRST], 0);
    }
}
