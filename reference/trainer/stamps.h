/* Times of spans on a device whose operations return before their work is done.
 *
 * What the host's clock says of such a span is how long it took to queue.  So its begin and end are
 * events on the compute stream, and the span is kept back until the iteration has come to its end
 * and the device says when it passed them.  Everything is allocated once; spans for which there is
 * no event left are recorded with the host's times. */
#ifndef MOEPERF_REFERENCE_TRAINER_STAMPS_H
#define MOEPERF_REFERENCE_TRAINER_STAMPS_H

#include "profiler/record/record.h"
#include "reference/device/device.h"

struct mp_stamps; /* private */

/* Room for `spans` spans of one iteration on `stream` (borrowed, as is the device). MP_ENOMEM,
 * MP_EDEVICE. */
int mp_stamps_create(struct mp_device *device, mp_stream stream, int spans,
                     struct mp_stamps **stamps, struct mp_error *error);
void mp_stamps_destroy(struct mp_stamps *stamps); /* accepts NULL */

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

#endif
