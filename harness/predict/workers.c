#include "harness/predict/workers.h"

#include <errno.h>
#include <signal.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { PROCESSES = 64 };
static const long poll_nanoseconds = 20000000;

/* What processes share beside results. */
struct sharing {
    atomic_int next, done;
};

void *mp_workers_memory(size_t size) {
    void *memory = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    return memory == MAP_FAILED ? NULL : memory;
}

void mp_workers_release(void *memory, size_t size) {
    if (memory)
        munmap(memory, size);
}

static void work(const struct mp_workers *workers, struct sharing *sharing, int end) {
    for (int i; (i = atomic_fetch_add(&sharing->next, 1)) < end;) {
        workers->work(workers->context, i);
        atomic_fetch_add(&sharing->done, 1);
    }
}

/* Waits until all have ended; stops them if the user wants it. */
static int wait_for(const struct mp_workers *workers, const struct sharing *sharing, pid_t pid[],
                    int count, struct mp_error *error) {
    const struct timespec pause = {.tv_nsec = poll_nanoseconds};
    bool is_stopped = false, has_died = false;
    for (int left = count; left > 0;) {
        for (int i = 0; i < count; i++) {
            int status = 0;
            if (pid[i] > 0 && waitpid(pid[i], &status, WNOHANG) == pid[i]) {
                has_died = has_died || (status && !is_stopped);
                pid[i] = 0;
                left--;
            }
        }
        if (left > 0)
            nanosleep(&pause, NULL);
        bool goes_on = !workers->progress || workers->progress(workers->context, sharing->done);
        for (int i = 0; i < count && !is_stopped && (!goes_on || has_died); i++)
            if (pid[i] > 0)
                kill(pid[i], SIGKILL);
        is_stopped = is_stopped || !goes_on || has_died;
    }
    if (has_died)
        return mp_fail(error, MP_EIO,
                       "a process that predicts has died; is there memory enough for %d of them?",
                       count);
    return is_stopped ? mp_fail(error, MP_EINTERRUPTED, "stopped by the user") : MP_OK;
}

int mp_workers_run(const struct mp_workers *workers, int first, int end, struct mp_error *error) {
    int count = workers->processes, started = 0;
    pid_t pid[PROCESSES];
    struct sharing *sharing = mp_workers_memory(sizeof *sharing);
    if (!sharing)
        return mp_fail(error, MP_ENOMEM, "no memory that processes share");
    count = count > PROCESSES ? PROCESSES : count;
    count = count > end - first ? end - first : count;
    sharing->next = first;
    for (; started < count; started++) {
        pid[started] = fork();
        if (pid[started] < 0)
            break;
        if (pid[started] == 0) {
            signal(SIGINT, SIG_IGN);          /* whoever started this one says when to stop, */
            prctl(PR_SET_PDEATHSIG, SIGKILL); /* or has been killed */
            work(workers, sharing, end);
            _exit(0);
        }
    }
    int code = started || count <= 0
                   ? wait_for(workers, sharing, pid, started, error)
                   : mp_fail(error, MP_EIO, "can't start a process: %s", strerror(errno));
    mp_workers_release(sharing, sizeof *sharing);
    return code;
}
