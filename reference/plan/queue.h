/* Queue: who comes first by a number, ties to the lower id.
 *
 * A binary heap: push and pop take O(log count).  Everything popped one after another is the stable
 * descending sort.  For the smallest first, push what is negated. */
#pragma once

#include <stdint.h>

#include "reference/base/arena.h"

struct mp_queued {
    double key; /* no NaN */
    int32_t id;
};
struct mp_queue {
    struct mp_queued *item; /* [capacity], a heap; item[0] comes first */
    int count;
};

/* Empty, with room for so many: a table of the arena, whose user looks whether there was memory. */
void mp_queue_create(struct mp_arena *memory, int capacity, struct mp_queue *queue);

/* The caller keeps count within capacity, and pops and looks at item[0] only while count > 0. */
void mp_queue_push(struct mp_queue *queue, double key, int32_t id);
struct mp_queued mp_queue_pop(struct mp_queue *queue);
/* Gives the first one another key. */
void mp_queue_change_first(struct mp_queue *queue, double key);
/* Takes so many routes off the first one's key, and the first one out if none are left. */
void mp_queue_lessen_first(struct mp_queue *queue, int64_t routes);
