/* The memory that CUPTI fills, and the thread that reads it.
 *
 * CUPTI asks for a buffer on whatever thread needs one, several at a time, and gives it back filled
 * on a thread of its own: there it only joins a queue.  One thread of low priority takes buffers
 * off the queue, parses them and keeps them for the next time; no buffer is out twice. */
#pragma once

#include "profiler/cupti/parse.h"

enum { CUPTI_BUFFER_BYTES = 1 << 20, CUPTI_BUFFERS_KEPT = 16 };

/* Starts the thread, which takes over the companion until cupti_buffers_stop.  `poll` is called by
 * it a few times a second (NULL: never): for asking CUPTI about what it dropped and holds back.
 * MP_ELIMIT: the system gives no thread. */
int cupti_buffers_start(struct mp_companion *companion, struct cupti_totals *totals,
                        void (*poll)(struct cupti_totals *totals), struct mp_error *error);

/* What CUPTI is given; any thread.  *bytes NULL: no memory, CUPTI drops and counts. */
void cupti_buffer_hand_out(uint8_t **bytes, size_t *size, size_t *most_records);
/* A buffer that came back with `valid` bytes. */
void cupti_buffer_take_back(uint8_t *bytes, size_t valid);

/* Parses what has come back, ends the thread and frees the kept buffers.  Buffers that come back
 * later are freed unread. */
void cupti_buffers_stop(void);
