/* The threads' buffers and how they get into the spool; for the files of this folder. */
#pragma once

#include <errno.h>
#include <pthread.h>
#include <signal.h>

#include "profiler/nvtx/follow.h"
#include "profiler/nvtx/session.h"
#include "profiler/record/line.h"
#include "profiler/record/spool_file.h"

enum { MP_NVTX_STARTED = 4096, MP_NVTX_CACHE = 256 };

/* A stretch of code in which the thread may hold a lock: no signal handler runs in between, and the
 * thread is not cancelled.  So no handler meets a lock that its own thread holds, and who holds a
 * lock gives it back soon. */
struct mp_nvtx_section {
    sigset_t signals;
    int cancels, number;
};
static inline void section_enter(struct mp_nvtx_section *section) {
    sigset_t all;
    section->number = errno;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &section->signals);
    pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &section->cancels);
}
static inline void section_leave(const struct mp_nvtx_section *section) {
    pthread_setcancelstate(section->cancels, NULL);
    pthread_sigmask(SIG_SETMASK, &section->signals, NULL);
    errno = section->number;
}

struct mp_nvtx_thread {
    /* In a call of the program's: set and cleared by the thread alone.  A handler that finds it set
     * has interrupted such a call. */
    _Atomic bool busy;
    uint32_t id;
    _Atomic int depth; /* of the stack, closed places among it included */
    int beyond;        /* pushed deeper than the stack holds */
    _Atomic int64_t count[MP_NVTX_COUNTS];
    struct mp_nvtx_name
        *cache[MP_NVTX_CACHE]; /* by the address of the message, checked by its text */
    struct mp_nvtx_thread *next;
    bool used; /* false: another thread may have it; guarded by the session's lock */
    struct spool_line line;
    struct mp_nvtx_open stack[MP_NVTX_DEPTH];
};

/* Once per process: how often to write, and what happens at fork and exit. */
void threads_start(int flush_ms);

/* Creates the process's spool with its header (session.c). */
bool session_open_spool(struct spool_file *file);

/* Ranges started and not ended (started.c): takes the one in a place; false: it is free. */
bool started_take(int place, struct mp_nvtx_open *open);

static inline void mp_nvtx_leave(struct mp_nvtx_thread *thread) {
    atomic_store_explicit(&thread->busy, false, memory_order_release);
}

static inline void count_one(struct mp_nvtx_thread *thread, enum mp_nvtx_count which) {
    int64_t count = atomic_load_explicit(&thread->count[which], memory_order_relaxed);
    atomic_store_explicit(&thread->count[which], count + 1, memory_order_relaxed);
}
