#include "reference/trainer/timeline.h"

#include <stdlib.h>

struct kept {
    struct mp_record_thread *thread;
    struct mp_span span;
    int begin, end, first_wait, end_wait;
};

struct wait {
    int before, after;
};

struct mp_timeline {
    struct mp_device *device;
    mp_stream stream;
    mp_event *event; /* [events] */
    int64_t *time;   /* [events]: until a flush, what is to be taken off */
    int events, used;
    struct kept *kept; /* [spans] */
    int spans, count;
    struct wait *wait; /* [spans] */
    int waits;
};

int mp_timeline_create(struct mp_device *device, mp_stream stream, int spans,
                       struct mp_timeline **out, struct mp_error *error) {
    struct mp_timeline *timeline = calloc(1, sizeof *timeline);
    size_t count = (size_t)spans;
    if (!timeline)
        return mp_fail(error, MP_ENOMEM, "no memory for the times of %d spans", spans);
    *timeline = (struct mp_timeline){.device = device, .stream = stream, .spans = spans};
    timeline->event = calloc(4 * count, sizeof *timeline->event);
    timeline->time = calloc(4 * count, sizeof *timeline->time);
    timeline->kept = calloc(count, sizeof *timeline->kept);
    timeline->wait = calloc(count, sizeof *timeline->wait);
    int code = timeline->event && timeline->time && timeline->kept && timeline->wait
                   ? MP_OK
                   : mp_fail(error, MP_ENOMEM, "no memory for the times of %d spans", spans);
    /* Two marks of a span, and two of a wait, of which there is at most one per span. */
    while (!code && timeline->events < 4 * spans) {
        code = device->operations->event_create(device, &timeline->event[timeline->events], error);
        timeline->events += !code;
    }
    if (code) {
        mp_timeline_destroy(timeline);
        return code;
    }
    *out = timeline;
    return MP_OK;
}

void mp_timeline_destroy(struct mp_timeline *timeline) {
    if (!timeline)
        return;
    for (int i = 0; i < timeline->events; i++)
        timeline->device->operations->event_destroy(timeline->device, timeline->event[i]);
    free(timeline->event);
    free(timeline->time);
    free(timeline->kept);
    free(timeline->wait);
    free(timeline);
}

int mp_timeline_mark(struct mp_timeline *timeline, int64_t paused_ns) {
    if (timeline->used == timeline->events)
        return -1;
    timeline->device->operations->event_record(timeline->device, timeline->event[timeline->used],
                                               timeline->stream);
    timeline->time[timeline->used] = paused_ns;
    return timeline->used++;
}

void mp_timeline_waited(struct mp_timeline *timeline, int before, int after) {
    if (before >= 0 && after >= 0 && timeline->waits < timeline->spans)
        timeline->wait[timeline->waits++] = (struct wait){before, after};
}

int mp_timeline_waits(const struct mp_timeline *timeline) {
    return timeline->waits;
}

bool mp_timeline_keep(struct mp_timeline *timeline, struct mp_record_thread *thread,
                      const struct mp_span *span, int begin, int end, int first_wait) {
    if (begin < 0 || end < 0 || timeline->count == timeline->spans)
        return false;
    timeline->kept[timeline->count++] =
        (struct kept){thread, *span, begin, end, first_wait, timeline->waits};
    return true;
}

static int64_t waited(const struct mp_timeline *timeline, const struct kept *kept) {
    int64_t sum = 0;
    for (int w = kept->first_wait; w < kept->end_wait; w++)
        sum += timeline->time[timeline->wait[w].after] - timeline->time[timeline->wait[w].before];
    return sum;
}

void mp_timeline_flush(struct mp_timeline *timeline) {
    const struct mp_device_operations *operations = timeline->device->operations;
    if (timeline->used > 0)
        operations->event_synchronize(timeline->device, timeline->event[timeline->used - 1]);
    for (int i = 0; i < timeline->used; i++)
        timeline->time[i] =
            operations->event_time(timeline->device, timeline->event[i]) - timeline->time[i];
    for (int i = 0; i < timeline->count; i++) {
        struct kept *kept = &timeline->kept[i];
        kept->span.start_ns = timeline->time[kept->begin];
        kept->span.end_ns = timeline->time[kept->end];
        kept->span.wait_ns += waited(timeline, kept);
        mp_record_span(kept->thread, &kept->span);
    }
    mp_timeline_clear(timeline);
}

void mp_timeline_clear(struct mp_timeline *timeline) {
    timeline->used = timeline->count = timeline->waits = 0;
}
