/* The recorder: every rank's every span, appended to one spool file per rank.
 *
 * A span costs two clock reads and one copy into the calling thread's buffer.  Buffers are
 * allocated when a thread registers; nothing is allocated afterwards.  mp_recorder_flush appends
 * all complete records to the spool with write(2), so that what was flushed survives a kill of the
 * process; a reader drops a truncated last record and keeps everything before it (spool.h has the
 * byte format and the reader).  A buffer that fills up between flushes is written at once by its
 * own thread: memory stays bounded and nothing is dropped. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <time.h>

#include "reference/base/error.h"

/* What a span was spent on.  Fetch, reduce and allreduce go on beside
 * other phases: their spans on the stream "compute" are the time spent in starting them and waiting
 * for them, those on the stream "comm" the time in flight, until a wait found them finished. */
enum mp_phase {
    MP_PHASE_ITERATION, /* one whole iteration of a rank: encloses all others */
    MP_PHASE_DATA,
    MP_PHASE_EMBED,
    MP_PHASE_ATTENTION, /* layer norm, attention, projections, residual */
    MP_PHASE_GATE,
    MP_PHASE_PLAN,
    MP_PHASE_FETCH,    /* spAG */
    MP_PHASE_DISPATCH, /* permute and exchange towards the experts */
    MP_PHASE_EXPERT,
    MP_PHASE_COMBINE,   /* exchange back and un-permute */
    MP_PHASE_REDUCE,    /* spRS */
    MP_PHASE_ALLREDUCE, /* non-expert gradients */
    MP_PHASE_OPTIMIZER,
    MP_PHASE_MOVE, /* owner changes */
    MP_PHASE_HEAD, /* final layer norm, logits, loss */
    MP_PHASE_WAIT, /* blocked on other ranks outside any other phase (barriers) */
    MP_PHASE_VALIDATE,
    MP_PHASE_CHECKPOINT,
    MP_PHASE_SHARED,  /* the expert that all tokens go through */
    MP_PHASE_SEND,    /* to the rank that `layer` says, as between stages of a pipeline */
    MP_PHASE_RECV,    /* from it */
    MP_PHASE_COLLECT, /* an interpreter collects its garbage, in whatever phase that comes */
    MP_PHASE_WEIGHTS, /* gradients of experts' weights, where rows set out before they are there */
    MP_PHASES
};
/* Experts at work. */
static inline bool mp_phase_of_experts(int phase) {
    return phase == MP_PHASE_EXPERT || phase == MP_PHASE_WEIGHTS;
}
const char *mp_phase_name(enum mp_phase phase); /* "expert"; "?" when out of range */
/* The phase that the first `length` characters name; MP_PHASES if they name none. */
enum mp_phase mp_phase_find(const char *name, size_t length);

enum mp_direction { MP_FORWARD, MP_BACKWARD, MP_NO_DIRECTION };

struct mp_span {
    int64_t start_ns; /* mp_clock_ns */
    int64_t end_ns;
    int64_t wait_ns;       /* of it blocked on other ranks, their transfers included; 0: none */
    int64_t cpu_ns;        /* thread CPU time, -1: not measured (a read costs a system call) */
    int64_t tokens;        /* routes or tokens worked on; -1: does not apply */
    int64_t bytes;         /* "compute": sent to other ranks meanwhile, whatever for; "comm": what
                              this rank gets or sums; -1: does not apply or not known */
    int64_t flops;         /* -1: does not apply */
    int32_t iteration;     /* -1: before the first */
    int16_t layer;         /* -1: none; of a send or recv the other rank */
    uint8_t phase;         /* enum mp_phase */
    uint8_t direction : 2; /* enum mp_direction */
    uint8_t stream : 6;    /* filled by mp_record_span */
};
_Static_assert(sizeof(struct mp_span) == 64, "one cache line");

/* CLOCK_MONOTONIC, ns: slewed, never stepped, one clock per host. */
static inline int64_t mp_clock_ns(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}
/* That clock so long from now, for waits with a limit. */
static inline struct timespec mp_clock_after(int64_t milliseconds) {
    int64_t until = mp_clock_ns() + milliseconds * 1000000;
    return (struct timespec){until / 1000000000, until % 1000000000};
}
/* CPU time of the calling thread, ns (a system call: for whole iterations, not for phases). */
int64_t mp_clock_thread_cpu_ns(void);
/* How long the calling thread was ready to run while others had its core, ns since it began; -1
 * where the system does not say (a file of /proc: once before and once after what is measured). */
int64_t mp_clock_thread_ready_ns(void);

struct mp_recorder;
struct mp_record_thread; /* one per recording thread; used by that thread only */

struct mp_recorder_config {
    const char *path; /* of the spool; created, an existing file is refused */
    int rank, ranks;
    int node;
    int buffer_spans; /* spans a thread buffers; 0: 16384.  A buffer is never smaller than the
                         largest record, 512 KiB. */
};

/* Writes the spool's header (format, rank, ranks, node, host, pid, both clocks at one moment).
 * Errors: MP_EINVAL (the file exists; rank outside 0 .. ranks-1), MP_EIO, MP_ENOSPACE, MP_ENOMEM,
 * each naming the path.  A file that was created is removed again then. */
int mp_recorder_create(const struct mp_recorder_config *config, struct mp_recorder **recorder,
                       struct mp_error *error);

/* Flushes, writes the end record (status MP_OK or a code, and its sentence; NULL: none), closes and
 * frees the recorder with all its threads' buffers: no thread records from here on.  Accepts a
 * NULL recorder.  Returns the first error that any write met. */
int mp_recorder_finish(struct mp_recorder **recorder, int status, const char *reason,
                       struct mp_error *error);

/* Registers the calling thread under a stream name ("compute", "comm") of 1 to 47 bytes.
 * Thread-safe.  *thread belongs to the recorder.  Errors: MP_EINVAL (the name), MP_ELIMIT (64
 * streams exist), MP_ENOMEM. */
int mp_recorder_thread(struct mp_recorder *recorder, const char *stream,
                       struct mp_record_thread **thread, struct mp_error *error);

/* Appends a span; end_ns is taken here if it is 0.  `thread` NULL: recording is off, nothing
 * happens.  No allocation, no formatting, no lock; no system call unless the buffer is full. */
void mp_record_span(struct mp_record_thread *thread, const struct mp_span *span);

/* A thread whose records nobody keeps, for measuring what a span costs; it has a buffer like any
 * other, records spans only, and its user frees it.  Errors: MP_ENOMEM. */
int mp_record_scratch_create(struct mp_record_thread **thread, struct mp_error *error);
void mp_record_scratch_clear(struct mp_record_thread *thread); /* as a flush does, without a file */
void mp_record_scratch_destroy(struct mp_record_thread *thread); /* accepts NULL */

/* The remaining records are rare (a few per iteration) and go to the same thread buffer. */

/* Routes that this rank's tokens chose in a layer, per expert, and of those dropped (NULL: none).
 * Arrays are [experts], and are copied.  More than 65531 experts do not fit a record: the next
 * flush returns MP_ELIMIT. */
void mp_record_load(struct mp_record_thread *thread, int64_t iteration, int layer, int experts,
                    const uint32_t routes[], const uint32_t dropped[]);

/* The experts that this rank's tokens chose in a layer of `experts`: [choices], top_k a token one
 * after the other, -1 less its expert where a choice is not taken; copied.  Recorded before the
 * layer's load, so that what has the one has the other, however it ended. */
void mp_record_choices(struct mp_record_thread *thread, int64_t iteration, int layer, int experts,
                       int top_k, int64_t choices, const int32_t expert[]);

/* One number about (iteration, layer) by name, e.g. "copies", "fetch-bytes", "loss".  layer -1:
 * the whole iteration.  iteration -1: the run.  Names up to 47 bytes. */
void mp_record_number(struct mp_record_thread *thread, int64_t iteration, int layer,
                      const char *name, double value);

/* One text about the run by name: environment, digest, options. Names up to 47 bytes, values up
 * to 60000 (longer ones are cut). */
void mp_record_text(struct mp_record_thread *thread, const char *name, const char *value);

/* offset_ns: this rank's clock minus rank 0's at at_ns (own clock); error_ns: half the smallest
 * round trip. */
void mp_record_clock(struct mp_record_thread *thread, int64_t at_ns, int64_t offset_ns,
                     int64_t error_ns);

/* A record of any type (spool.h), of at most 512 KiB, for the collectors of this folder's
 * neighbours; texts longer than their limits are cut.  `thread` may not be NULL. */
struct mp_spool_record;
void mp_record_add(struct mp_record_thread *thread, const struct mp_spool_record *record);

/* Appends everything buffered by all threads to the spool.  Safe while they record, but it takes
 * about 0.05 us per span (the checks): call it where nobody waits for it (after the iteration's
 * barrier).  Errors: MP_ENOSPACE (disk, quota, file size limit), MP_EIO; the spool is cut back to
 * the last whole record, nothing is written any more, and the first error is returned by every
 * later call. */
int mp_recorder_flush(struct mp_recorder *recorder, struct mp_error *error);

/* Bytes written so far, and spans recorded, for the overhead figures. */
void mp_recorder_totals(const struct mp_recorder *recorder, int64_t *bytes, int64_t *spans);

/* Offset from one ping-pong: t0 sent and t3 received on the asking side, t1 received and t2 sent on
 * the answering side.  offset = ((t1 - t0) + (t2 - t3)) / 2 is "answering minus asking clock",
 * round_trip = (t3 - t0) - (t2 - t1). */
void mp_clock_offset(int64_t t0, int64_t t1, int64_t t2, int64_t t3, int64_t *offset_ns,
                     int64_t *round_trip_ns);
