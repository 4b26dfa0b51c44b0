/* The threads' buffers and how they get into the spool; for the files of this folder. */
#ifndef MOEPERF_PROFILER_NVTX_THREADS_H
#define MOEPERF_PROFILER_NVTX_THREADS_H

#include "profiler/nvtx/follow.h"
#include "profiler/nvtx/session.h"
#include "profiler/record/spool_file.h"

enum { NVTX_STARTED = 4096, NVTX_CACHE = 256 };

struct nvtx_thread {
    _Atomic uint64_t head; /* see record.c: positions in the endless sequence of its bytes */
    uint64_t base;
    uint8_t *buffer;
    uint32_t id;
    _Atomic int depth; /* of the stack, closed places among it included */
    int beyond;        /* pushed deeper than the stack holds */
    _Atomic int64_t count[NVTX_COUNTS];
    struct nvtx_name *cache[NVTX_CACHE]; /* by the address of the message, checked by its text */
    struct nvtx_thread *next;
    _Atomic bool used; /* false: its thread has ended, another may have it */
    _Alignas(64) _Atomic uint64_t flushed;
    struct nvtx_open stack[NVTX_DEPTH];
};

/* Once per process: how often to write, and what happens at fork and exit. */
void threads_start(int flush_ms);

/* Creates the process's spool with its header (session.c). */
bool session_open_spool(struct spool_file *file);

/* Ranges started and not ended (started.c): how many places, and the range in one; false: free. */
bool started_get(int place, struct nvtx_open *open);

static inline void count_one(struct nvtx_thread *thread, enum nvtx_count which) {
    int64_t count = atomic_load_explicit(&thread->count[which], memory_order_relaxed);
    atomic_store_explicit(&thread->count[which], count + 1, memory_order_relaxed);
}

#endif
