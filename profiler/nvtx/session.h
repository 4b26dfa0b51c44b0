/* What libmoeperf-nvtx.so keeps for its process: names, a buffer per thread, one spool.
 *
 * The library is loaded by NVTX_INJECTION64_PATH into any annotated program.  Environment:
 *
 *   MOEPERF_NVTX_SPOOLS    folder for the spools, one per process: HOST-PID-N.spool.  Unset: the
 *                          collector is off and takes nothing
 *   MOEPERF_NVTX_NEXT      the injection library that is called after this one
 *   MOEPERF_NVTX_RANK      name of the variable with the process's rank; else the usual ones are
 *                          tried (session.c's table)
 *   MOEPERF_NVTX_FLUSH_MS  how often the writing thread writes what is buffered (100); 0: there is
 *                          no such thread, a buffer is written when it is full and at the end
 *
 * A range costs its thread two clock reads and a copy into the thread's buffer: no allocation, no
 * lock, no system call.  A thread with the lowest priority writes the buffers.  What it has written
 * survives a kill; what a thread could not buffer, it writes itself. */
#ifndef MOEPERF_PROFILER_NVTX_SESSION_H
#define MOEPERF_PROFILER_NVTX_SESSION_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "profiler/record/spool.h"

enum {
    NVTX_DEPTH = 128,        /* pushed ranges of a thread; deeper ones are counted */
    NVTX_PAYLOAD_BYTES = 192 /* of all payloads of a range, with their heads; further are counted */
};

/* What the spool ends with, as numbers "nvtx-...": what was lost, and what the program got wrong.
 */
enum nvtx_count {
    NVTX_COUNT_RANGES,
    NVTX_COUNT_UNMATCHED, /* pops without a push, ends without a start */
    NVTX_COUNT_OPEN,      /* neither popped nor ended when the process ended */
    NVTX_COUNT_LOST,      /* ranges nested too deep, or too many started at a time */
    NVTX_COUNT_NAMELESS,  /* ranges whose name was one too many */
    NVTX_COUNT_PAYLOADS,  /* payloads left out: too long, or of a length nobody said */
    NVTX_COUNTS
};

/* A name, for good: its address is the handle that programs get for strings and domains. */
struct nvtx_name {
    uint32_t id; /* from 1; as in NAME records */
    uint32_t kind, domain, number, hash;
    _Atomic(void *) next_handle; /* the next tool's */
    struct nvtx_name *older;     /* handle made before, where each registration has its own */
    char text[];
};

/* A range that is open.  Where it lies, its start is the latest thing to be written. */
struct nvtx_open {
    struct mp_range range;
    uint32_t payload_bytes;
    _Alignas(8) uint8_t payload[NVTX_PAYLOAD_BYTES];
};

struct nvtx_thread;

/* The calling thread's state, registered at its first use; NULL: no memory. */
struct nvtx_thread *nvtx_thread_self(void);

/* Reads the environment once per process.  false: the collector is off. */
bool nvtx_session_start(void);

/* The name with this text; added if it is new.  NULL when there are too many.  Thread-safe.  With
 * `number` or `domain` (categories, threads) each call adds one. */
struct nvtx_name *nvtx_name_find(enum mp_name_kind kind, uint32_t domain, uint32_t number,
                                 const char *text);
/* The id of a message of the calling thread: nearly always without looking further than the
 * thread's own cache.  0: too many names, which is counted. */
uint32_t nvtx_name_of(struct nvtx_thread *thread, const char *text);

/* The next free place on the thread's stack of pushed ranges, for the caller to fill; NULL when it
 * is full (counted).  nvtx_pushed makes it the innermost and returns its level. */
struct nvtx_open *nvtx_push(struct nvtx_thread *thread);
int nvtx_pushed(struct nvtx_thread *thread);
/* The innermost range that the thread has pushed in `domain`; NULL: none (counted). */
struct nvtx_open *nvtx_innermost(struct nvtx_thread *thread, uint32_t domain);
/* Records the range that nvtx_innermost gave, as ended at end_ns; returns the level that ends. */
int nvtx_pop(struct nvtx_thread *thread, struct nvtx_open *open, int64_t end_ns);

/* A range that may end on another thread.  start: a place to fill and its id; NULL: too many
 * (counted, id 0).  started makes the id known.  end: takes the place back, NULL if nobody has
 * started `id` (counted); ended records it. */
struct nvtx_open *nvtx_start(struct nvtx_thread *thread, uint64_t *id);
void nvtx_started(uint64_t id, uint64_t next_id);
struct nvtx_open *nvtx_end(struct nvtx_thread *thread, uint64_t id, uint64_t *next_id);
void nvtx_ended(struct nvtx_thread *thread, uint64_t id, struct nvtx_open *open, int64_t end_ns);

/* Records a range as it is, without being open before: marks. */
void nvtx_record(struct nvtx_thread *thread, const struct nvtx_open *open);

/* Copies one payload to an open range; what does not fit is counted. */
void nvtx_add_payload(struct nvtx_thread *thread, struct nvtx_open *open, uint64_t schema,
                      const void *bytes, size_t size);

uint32_t nvtx_thread_id(const struct nvtx_thread *thread);

/* Records a schema; `entries` are in the layout of SCHEMA records (format.h). */
void nvtx_record_schema(struct nvtx_thread *thread, const void *payload, size_t size);

#endif
