/* Spans: what of a rank's time is recorded, and the clock that it is recorded by.
 *
 * Work is a span of the compute stream, from its mark to when it is told to be spent; an operation
 * in flight is one of the communication stream, from its departure to its arrival.  NVTX tools are
 * told of both as they begin and end (profiler/nvtx/emit.h).  Where the device's operations return
 * before their work is done, times are the device's (below). */
#pragma once

#include "profiler/record/record.h"
#include "reference/comm/comm.h"
#include "reference/device/device.h"
#include "reference/trainer/inject.h"

/* Times of spans on a device whose operations return before their work is done.
 *
 * What the host's clock says of such a span is how long it took to queue.  So its begin and end are
 * events on the compute stream, and the span is kept back until the iteration has come to its end
 * and the device says when it passed them.  Everything is allocated once; spans for which there is
 * no event left are recorded with the host's times. */

struct mp_stamps; /* private */

/* Room for `spans` spans of one iteration on `stream` (borrowed, as is the device). MP_ENOMEM,
 * MP_EDEVICE. */
int mp_stamps_create(struct mp_device *device, mp_stream stream, int spans,
                     struct mp_stamps **stamps, struct mp_error *error);
void mp_stamps_destroy(struct mp_stamps *stamps); /* accepts NULL */
MP_END(stamps, struct mp_stamps *, mp_stamps_destroy(*it))

/* Notes the place that the stream has been queued up to; -1 when no event is left.  Clocks have
 * stood still for `paused_ns` so far, which is taken off its time. */
int mp_stamps_mark(struct mp_stamps *stamps, int64_t paused_ns);

/* The stream stood still between two events that others recorded on it: added to wait_ns of the
 * spans that are open.  Taken over until the iteration's end. */
void mp_stamps_waited(struct mp_stamps *stamps, int before, int after);
/* How many of these there were; a span that began at n has those from n on. */
int mp_stamps_waits(const struct mp_stamps *stamps);

/* Keeps a span back: begin and end are marks, and replace its start_ns and end_ns; waits from
 * `first_wait` on are added to its wait_ns.  False if there is no room or a mark is -1. */
bool mp_stamps_keep(struct mp_stamps *stamps, struct mp_record_thread *thread,
                    const struct mp_span *span, int begin, int end, int first_wait);

/* Records everything kept back, waiting for the stream to pass all marks, and starts anew. */
void mp_stamps_flush(struct mp_stamps *stamps);
/* Forgets everything kept back. */
void mp_stamps_clear(struct mp_stamps *stamps);

/* An operation in flight. */
struct mp_flight {
    int64_t start_ns;
    uint64_t range; /* of NVTX tools; 0: none listens */
    int begin;      /* of the stamps */
};

/* Where a span of the compute stream began. */
struct mp_mark {
    int64_t start_ns, waited_ns, sent_bytes, between_bytes;
    int64_t cpu_ns;        /* of an iteration's */
    int begin, first_wait; /* of the stamps */
};

struct mp_spans {
    struct mp_comm *comm; /* borrowed, as is all down to threads */
    struct mp_device *device;
    mp_stream stream;                                 /* compute */
    const int64_t *iteration;                         /* whose spans they are */
    struct mp_record_thread *compute, *communication; /* NULL: recording off */
    struct mp_stamps *stamps; /* NULL: work is done when operations return; owned */
    int wait_begin;           /* of the stamps: where the stream was made to wait */
    struct mp_inject inject;  /* seconds 0: nothing on this rank */
    bool validating;          /* one span for all of it */
    bool pauses;              /* transfers are free */
    int64_t paused_ns;        /* what the clocks of this rank have stood still so far */
    struct {
        int64_t start_ns, start_cpu_ns, cpu_ns, waited_ns, sent_bytes, between_bytes;
    } pause; /* cpu_ns: of all pauses so far */
};

/* Stamps for `most` spans of one iteration, if the device is such that they are needed, and has the
 * comm tell them when the stream stands still.  Borrowed members are set.  MP_ENOMEM, MP_EDEVICE.
 */
int mp_spans_create(struct mp_spans *spans, int most, struct mp_error *error);
void mp_spans_destroy(struct mp_spans *spans); /* accepts a zeroed one */

/* Begins a span of the compute stream: every mark has its mp_spans_spent unless the run fails in
 * between, and those of a thread nest. */
struct mp_mark mp_spans_mark(const struct mp_spans *spans, enum mp_phase phase);
/* Records what was spent since `mark` as a span of the compute stream. */
void mp_spans_spent(struct mp_spans *spans, struct mp_mark mark, enum mp_phase phase,
                    enum mp_direction direction, int layer, int64_t tokens, int64_t flops);
/* The same of the whole iteration, of MP_PHASE_ITERATION, with the processor's time that the thread
 * has taken without pauses.  Stamps are flushed before. */
void mp_spans_iterated(struct mp_spans *spans, struct mp_mark mark, int64_t tokens);
/* Begins a span of the communication stream: an operation is in flight until mp_spans_arrived,
 * unless the run fails in between. */
struct mp_flight mp_spans_departed(const struct mp_spans *spans, enum mp_phase phase);
/* Records an operation that was in flight until now. */
void mp_spans_arrived(struct mp_spans *spans, struct mp_flight flight, enum mp_phase phase,
                      enum mp_direction direction, int layer, int64_t bytes);

/* What a span costs this rank where it runs, ns: the median of loops over its own begin and end,
 * clock reads and, where a tool listens, NVTX ranges (named MP_NVTX_COST) with them, into a
 * recording that nobody keeps.  Takes less than 2 ms on common processors.  MP_ENOMEM. */
int mp_spans_cost(struct mp_spans *spans, double *cost_ns, struct mp_error *error);

/* The clock that spans are measured with; it stands still between pause and resume (free
 * transfers).  Pause first waits for all ranks, so that nobody's waiting is hidden.  Both do
 * nothing unless transfers are free. */
int64_t mp_spans_now(const struct mp_spans *spans);
int mp_spans_pause(struct mp_spans *spans, struct mp_error *error);
int mp_spans_resume(struct mp_spans *spans, struct mp_error *error);
