/* Queue: a binary heap with the largest key on its top. */
#include "reference/plan/queue.h"

#include <stdbool.h>

void mp_queue_create(struct mp_arena *memory, int capacity, struct mp_queue *queue) {
    *queue = (struct mp_queue){0};
    MP_TAKE(memory, queue->item, capacity);
}

static bool comes_before(struct mp_queued a, struct mp_queued b) {
    return a.key > b.key || (!(a.key < b.key) && a.id < b.id);
}

void mp_queue_push(struct mp_queue *queue, double key, int32_t id) {
    struct mp_queued value = {key, id};
    int at = queue->count++;

    for (int parent; at > 0; at = parent) {
        parent = (at - 1) / 2;
        if (!comes_before(value, queue->item[parent]))
            break;
        queue->item[at] = queue->item[parent];
    }
    queue->item[at] = value;
}

/* Puts a value where the first one was. */
static void sift_down(struct mp_queue *queue, struct mp_queued value) {
    int at = 0;

    for (int child; (child = 2 * at + 1) < queue->count; at = child) {
        if (child + 1 < queue->count && comes_before(queue->item[child + 1], queue->item[child]))
            child++;
        if (!comes_before(queue->item[child], value))
            break;
        queue->item[at] = queue->item[child];
    }
    queue->item[at] = value;
}

struct mp_queued mp_queue_pop(struct mp_queue *queue) {
    struct mp_queued first = queue->item[0];

    if (--queue->count > 0)
        sift_down(queue, queue->item[queue->count]);
    return first;
}

void mp_queue_change_first(struct mp_queue *queue, double key) {
    sift_down(queue, (struct mp_queued){key, queue->item[0].id});
}

void mp_queue_lessen_first(struct mp_queue *queue, int64_t routes) {
    double left = queue->item[0].key - (double)routes;

    if (left > 0)
        mp_queue_change_first(queue, left);
    else
        mp_queue_pop(queue);
}
