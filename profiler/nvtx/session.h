/* What libmoeperf-nvtx.so keeps for its process: names, a buffer per thread, one spool.
 *
 * The library is loaded by NVTX_INJECTION64_PATH into any annotated program.  Environment:
 *
 *   MOEPERF_NVTX_SPOOLS    folder for the spools, one per process: HOST-PID-N.spool.  Unset: the
 *                          collector is off and takes nothing
 *   MOEPERF_NVTX_NEXT      the injection library that is called after this one
 *   MOEPERF_NVTX_RANK      name of the variable with the process's rank; else the usual ones are
 *                          tried (launched.c's table)
 *   MOEPERF_NVTX_FLUSH_MS  how often the writing thread writes what is buffered (100); 0: there is
 *                          no such thread, a buffer is written when it is full and at the end
 *
 * A range costs its thread two clock reads and a copy into the thread's buffer: no allocation, no
 * lock, no system call.  A thread of the collector's own writes the buffers.  What it has written
 * survives a kill; what a thread could not buffer, it writes itself.
 *
 * Signal handlers may make ranges, whatever they have interrupted.  Locks are held with signals
 * blocked, memory is the kernel's and not malloc's, and a handler that has interrupted a call of
 * the collector in its own thread is sent away, which is counted.  Two things stay dangerous: NVTX
 * itself waits for ever in a handler that has interrupted the program's very first call of it,
 * which loads the collector; and where the very first range of a process comes from a handler, with
 * no domain created before, the writing thread is started there, which takes memory of malloc's. */
#pragma once

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "profiler/record/spool.h"

enum {
    MP_NVTX_DEPTH = 128,    /* pushed ranges of a thread; deeper ones are counted */
    MP_NVTX_NAMES = 100000, /* of all kinds together; names.h has how many bytes */
    MP_NVTX_PAYLOAD_BYTES =
        192 /* of all payloads of a range, with their heads; further are counted */
};

/* What the spool ends with, as numbers "nvtx-...": what was lost, and what the program got wrong.
 */
enum mp_nvtx_count {
    MP_NVTX_COUNT_RANGES,
    MP_NVTX_COUNT_UNMATCHED, /* pops without a push, ends without a start */
    MP_NVTX_COUNT_OPEN,      /* neither popped nor ended when the process ended */
    MP_NVTX_COUNT_LOST,      /* ranges nested too deep, or too many started at a time */
    MP_NVTX_COUNT_PAYLOADS,  /* payloads left out: too long, or of a length nobody said */
    MP_NVTX_COUNTS
};

/* A name, for good. */
struct mp_nvtx_name {
    uint32_t id; /* from 1; as in NAME records */
    uint32_t kind, domain, number, hash;
    _Atomic(void *) next_handle; /* the next tool's */
    char text[];
};

/* Handles of strings and domains, as programs get them: places in this array, which has nothing in
 * it.  So any pointer tells whether it is one, and none is followed. */
extern const char mp_nvtx_handles[MP_NVTX_NAMES + 1];
extern _Atomic uint32_t mp_nvtx_count; /* of names, so far */

/* The id that the handle stands for; 0: of none, and if it is not NULL, that is counted. */
void mp_nvtx_unknown_handle(void);
static inline uint32_t mp_nvtx_handle_id(const void *handle) {
    uintptr_t id = (uintptr_t)handle - (uintptr_t)mp_nvtx_handles;
    if (__builtin_expect(id - 1 < atomic_load_explicit(&mp_nvtx_count, memory_order_acquire), 1))
        return (uint32_t)id;
    if (handle)
        mp_nvtx_unknown_handle();
    return 0;
}

/* The handle of a name for which the next tool gave `next_handle` (NULL: there is no next tool). */
const void *mp_nvtx_name_handle(struct mp_nvtx_name *name, void *next_handle);

/* A range that is open.  Where it lies, its start is the latest thing to be written. */
struct mp_nvtx_open {
    struct mp_range range;
    uint32_t payload_bytes;
    _Alignas(8) uint8_t payload[MP_NVTX_PAYLOAD_BYTES];
};

struct mp_nvtx_thread;

/* The calling thread's state, registered at its first use, for one call of the program: until
 * mp_nvtx_leave (threads.h).  NULL: nothing is recorded (any more), or a signal handler has
 * interrupted another call in the same thread, which is counted. */
struct mp_nvtx_thread *mp_nvtx_enter(void);

/* Starts what may allocate, before a signal handler is the first to need it. */
void mp_nvtx_prepare(void);

/* Reads the environment once per process.  false: the collector is off. */
bool mp_nvtx_session_start(void);

/* The name with this text; added if it is new.  NULL when there are too many (counted).
 * Thread-safe.  With `number` or `domain` (categories, threads) each call adds one. */
struct mp_nvtx_name *mp_nvtx_name_find(enum mp_name_kind kind, uint32_t domain, uint32_t number,
                                       const char *text);
/* The id of a message of the calling thread: nearly always without looking further than the
 * thread's own cache.  0: too many names. */
uint32_t mp_nvtx_name_of(struct mp_nvtx_thread *thread, const char *text);

/* The next free place on the thread's stack of pushed ranges, for the caller to fill; NULL when it
 * is full (counted).  mp_nvtx_pushed makes it the innermost and returns its level. */
struct mp_nvtx_open *mp_nvtx_push(struct mp_nvtx_thread *thread);
int mp_nvtx_pushed(struct mp_nvtx_thread *thread);
/* The innermost range that the thread has pushed in `domain`; NULL: none (counted). */
struct mp_nvtx_open *mp_nvtx_innermost(struct mp_nvtx_thread *thread, uint32_t domain);
/* Records the range that mp_nvtx_innermost gave, as ended at end_ns; returns the level that ends.
 */
int mp_nvtx_pop(struct mp_nvtx_thread *thread, struct mp_nvtx_open *open, int64_t end_ns);

/* A range that may end on another thread.  start: a place to fill and its id; NULL: too many
 * (counted, id 0).  started makes the id known.  end: takes the place back, NULL if nobody has
 * started `id` (counted); ended records it. */
struct mp_nvtx_open *mp_nvtx_start(struct mp_nvtx_thread *thread, uint64_t *id);
void mp_nvtx_started(uint64_t id, uint64_t next_id);
struct mp_nvtx_open *mp_nvtx_end(struct mp_nvtx_thread *thread, uint64_t id, uint64_t *next_id);
void mp_nvtx_ended(struct mp_nvtx_thread *thread, uint64_t id, struct mp_nvtx_open *open,
                   int64_t end_ns);

/* Records a range as it is, without being open before: marks. */
void mp_nvtx_record(struct mp_nvtx_thread *thread, const struct mp_nvtx_open *open);

/* Copies one payload to an open range; what does not fit is counted. */
void mp_nvtx_add_payload(struct mp_nvtx_thread *thread, struct mp_nvtx_open *open, uint64_t schema,
                         const void *bytes, size_t size);

/* Records a schema; one that is too long is counted. */
void mp_nvtx_record_schema(struct mp_nvtx_thread *thread, const struct mp_spool_record *schema);
