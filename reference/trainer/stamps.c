#include "reference/trainer/spans.h"

#include <stdlib.h>

#include "reference/base/arena.h"

struct kept {
    struct mp_record_thread *thread;
    struct mp_span span;
    int begin, end, first_wait, end_wait;
};

struct wait {
    int before, after;
};

struct mp_stamps {
    struct mp_device *device;
    mp_stream stream;
    mp_event *event; /* [events] */
    int64_t *time;   /* [events]: until a flush, what is to be taken off */
    int events, used;
    struct kept *kept; /* [spans] */
    int spans, count;
    struct wait *wait; /* [spans] */
    int waits;
    struct mp_arena memory; /* of the tables */
};

int mp_stamps_create(struct mp_device *device, mp_stream stream, int spans, struct mp_stamps **out,
                     struct mp_error *error) {
    MP_AUTO(stamps) struct mp_stamps *stamps = NULL;
    size_t count = (size_t)spans;
    MP_TRY(MP_NEW(stamps, 1, error));
    *stamps = (struct mp_stamps){.device = device, .stream = stream, .spans = spans};
    MP_TAKE_EACH(&stamps->memory, 4 * count, stamps->event, stamps->time);
    MP_TAKE_EACH(&stamps->memory, count, stamps->kept, stamps->wait);
    MP_TRY(mp_arena_check(&stamps->memory, error));
    /* Two marks of a span, and two of a wait, of which there is at most one per span. */
    for (; stamps->events < 4 * spans; stamps->events++)
        MP_TRY(device->operations->event_create(device, &stamps->event[stamps->events], error));
    *out = stamps;
    stamps = NULL;
    return MP_OK;
}

void mp_stamps_destroy(struct mp_stamps *stamps) {
    if (!stamps)
        return;
    for (int i = 0; i < stamps->events; i++)
        stamps->device->operations->event_destroy(stamps->device, stamps->event[i]);
    mp_arena_release(&stamps->memory);
    free(stamps);
}

int mp_stamps_mark(struct mp_stamps *stamps, int64_t paused_ns) {
    if (stamps->used == stamps->events)
        return -1;
    stamps->device->operations->event_record(stamps->device, stamps->event[stamps->used],
                                             stamps->stream);
    stamps->time[stamps->used] = paused_ns;
    return stamps->used++;
}

void mp_stamps_waited(struct mp_stamps *stamps, int before, int after) {
    if (before >= 0 && after >= 0 && stamps->waits < stamps->spans)
        stamps->wait[stamps->waits++] = (struct wait){before, after};
}

int mp_stamps_waits(const struct mp_stamps *stamps) {
    return stamps->waits;
}

bool mp_stamps_keep(struct mp_stamps *stamps, struct mp_record_thread *thread,
                    const struct mp_span *span, int begin, int end, int first_wait) {
    if (begin < 0 || end < 0 || stamps->count == stamps->spans)
        return false;
    stamps->kept[stamps->count++] =
        (struct kept){thread, *span, begin, end, first_wait, stamps->waits};
    return true;
}

static int64_t waited(const struct mp_stamps *stamps, const struct kept *kept) {
    int64_t sum = 0;
    for (int w = kept->first_wait; w < kept->end_wait; w++)
        sum += stamps->time[stamps->wait[w].after] - stamps->time[stamps->wait[w].before];
    return sum;
}

void mp_stamps_flush(struct mp_stamps *stamps) {
    const struct mp_device_operations *operations = stamps->device->operations;
    if (stamps->used > 0)
        operations->event_synchronize(stamps->device, stamps->event[stamps->used - 1]);
    for (int i = 0; i < stamps->used; i++)
        stamps->time[i] =
            operations->event_time(stamps->device, stamps->event[i]) - stamps->time[i];
    for (int i = 0; i < stamps->count; i++) {
        struct kept *kept = &stamps->kept[i];
        kept->span.start_ns = stamps->time[kept->begin];
        kept->span.end_ns = stamps->time[kept->end];
        kept->span.wait_ns += waited(stamps, kept);
        mp_record_span(kept->thread, &kept->span);
    }
    mp_stamps_clear(stamps);
}

void mp_stamps_clear(struct mp_stamps *stamps) {
    stamps->used = stamps->count = stamps->waits = 0;
}
