/* Memory, streams and events.  Every operation has finished when it returns, so streams and
 * events have nothing to order: they only exist. */
#include "reference/device/cpu/cpu.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "profiler/record/record.h"

enum { ALIGNMENT = 64, HUGE_PAGE = 2 << 20 };

struct mp_device_stream {
    struct mp_device *device;
};

struct mp_device_event {
    int64_t recorded_ns; /* -1: not yet */
};

/* Large arrays ask for huge pages, which Linux gives to those who ask: measured on AMD EPYC, a copy
 * is 1.5 times as fast for it and rows in random order 1.2 times, for address translation misses
 * less.  It is advice: without them everything works the same. */
void *mp_cpu_allocate(struct mp_device *device, size_t bytes) {
    (void)device;
    if (bytes > PTRDIFF_MAX) /* a negative size, most likely */
        return NULL;
    void *memory = NULL;
    bool is_large = bytes >= 2 * (size_t)HUGE_PAGE;
    if (posix_memalign(&memory, is_large ? HUGE_PAGE : ALIGNMENT, bytes ? bytes : 1) != 0)
        return NULL;
#ifdef MADV_HUGEPAGE
    if (is_large) /* whole pages only: what shares a page with others stays as it is */
        madvise(memory, bytes / HUGE_PAGE * HUGE_PAGE, MADV_HUGEPAGE);
#endif
    return memory;
}

void mp_cpu_release(struct mp_device *device, void *memory) {
    (void)device;
    free(memory);
}

/* Not counted: a process's memory is the operating system's to tell. */
static void memory_used(const struct mp_device *device, int64_t *now, int64_t *most) {
    (void)device;
    *now = *most = -1;
}

static void copy(struct mp_device *device, mp_stream stream, void *to, const void *from,
                 size_t bytes) {
    (void)device;
    (void)stream;
    if (bytes)
        memcpy(to, from, bytes);
}

static void zero(struct mp_device *device, mp_stream stream, void *memory, size_t bytes) {
    (void)device;
    (void)stream;
    if (bytes)
        memset(memory, 0, bytes);
}

static int stream_create(struct mp_device *device, int urgency, mp_stream *stream,
                         struct mp_error *error) {
    (void)urgency; /* work is done when it is given */
    struct mp_device_stream *created;
    MP_TRY(MP_NEW(created, 1, error));
    created->device = device;
    *stream = created;
    return MP_OK;
}

static void stream_destroy(struct mp_device *device, mp_stream stream) {
    (void)device;
    free(stream);
}

static void stream_synchronize(struct mp_device *device, mp_stream stream) {
    (void)device;
    (void)stream;
}

static int event_create(struct mp_device *device, mp_event *event, struct mp_error *error) {
    (void)device;
    struct mp_device_event *created;
    MP_TRY(MP_NEW(created, 1, error));
    created->recorded_ns = -1;
    *event = created;
    return MP_OK;
}

static void event_destroy(struct mp_device *device, mp_event event) {
    (void)device;
    free(event);
}

static void event_record(struct mp_device *device, mp_event event, mp_stream stream) {
    (void)device;
    (void)stream;
    event->recorded_ns = mp_clock_ns();
}

static void event_synchronize(struct mp_device *device, mp_event event) {
    (void)device;
    (void)event;
}

static bool event_done(struct mp_device *device, mp_event event) {
    (void)device;
    return event->recorded_ns >= 0;
}

static int64_t event_time(struct mp_device *device, mp_event event) {
    (void)device;
    return event->recorded_ns;
}

static void *native_stream(struct mp_device *device, mp_stream stream) {
    (void)device;
    (void)stream;
    return NULL;
}

static void stream_wait(struct mp_device *device, mp_stream stream, mp_event event) {
    (void)device;
    (void)stream;
    (void)event;
}

void mp_cpu_install_memory(struct mp_device_operations *operations) {
    operations->allocate = mp_cpu_allocate;
    operations->release = mp_cpu_release;
    operations->host_allocate = mp_cpu_allocate;
    operations->host_release = mp_cpu_release;
    operations->memory_used = memory_used;
    operations->copy_to_host = copy;
    operations->copy_from_host = copy;
    operations->copy = copy;
    operations->zero = zero;
    operations->stream_create = stream_create;
    operations->stream_destroy = stream_destroy;
    operations->stream_synchronize = stream_synchronize;
    operations->event_create = event_create;
    operations->event_destroy = event_destroy;
    operations->event_record = event_record;
    operations->stream_wait = stream_wait;
    operations->event_synchronize = event_synchronize;
    operations->event_done = event_done;
    operations->event_time = event_time;
    operations->native_stream = native_stream;
}
