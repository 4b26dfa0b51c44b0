#include "tests/double/nccl/queue_device.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "profiler/record/record.h"

struct work {
    struct work *next;
    void (*work)(void *context);
    void (*release)(void *context);
    void *context;
};

struct mp_device_stream {
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    struct work *first, **end;
    bool busy, ends;
    uint64_t random;
    struct mp_device_stream *next; /* of the device */
};

/* Every record has a number; the event has happened when the newest number has been passed. */
struct mp_device_event {
    int64_t recorded, passed, time_ns;
    int uses; /* by what is queued, and by its owner */
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* of events and allocations */
static pthread_cond_t event_passed = PTHREAD_COND_INITIALIZER;

static struct allocation {
    struct allocation *next;
    char *memory;
    size_t bytes;
    bool device;
} * allocations;
static int live, failing;
static int64_t allocated;

struct queue_device {
    struct mp_device device; /* first */
    struct mp_device_operations operations;
    uint64_t random;
    int pause_us;
    mp_stream stream; /* what NULL means */
};

static struct queue_device *of(struct mp_device *device) {
    return (struct queue_device *)device;
}

int queue_device_live(void) {
    return live;
}
int64_t queue_device_allocations(void) {
    return allocated;
}
void queue_device_fail(int n) {
    failing = n;
}

/* ---- streams ---- */

static int longest_pause_us;

static void pause_at_random(uint64_t *random) {
    *random = *random * 6364136223846793005u + 1442695040888963407u;
    int most = longest_pause_us;
    struct timespec pause = {.tv_nsec = most ? (long)((*random >> 33) % (uint64_t)most) * 1000 : 0};
    if (most && (*random >> 60) < 6) /* most things follow at once */
        nanosleep(&pause, NULL);
}

static void *run_stream(void *context) {
    mp_stream stream = context;
    pthread_mutex_lock(&stream->lock);
    while (stream->first || !stream->ends) {
        struct work *work = stream->first;
        if (!work) {
            pthread_cond_wait(&stream->changed, &stream->lock);
            continue;
        }
        stream->first = work->next;
        if (!stream->first)
            stream->end = &stream->first;
        stream->busy = true;
        pthread_mutex_unlock(&stream->lock);
        pause_at_random(&stream->random);
        work->work(work->context);
        if (work->release)
            work->release(work->context);
        free(work);
        pthread_mutex_lock(&stream->lock);
        stream->busy = false;
        pthread_cond_broadcast(&stream->changed);
    }
    pthread_mutex_unlock(&stream->lock);
    return NULL;
}

/* The names under which the NCCL double asks for them. */
bool cuda_double_enqueue(void *stream, void (*work)(void *), void (*release)(void *),
                         void *context);
bool cuda_double_is_device(const void *memory, size_t bytes);

bool cuda_double_enqueue(void *native, void (*work)(void *), void (*release)(void *),
                         void *context) {
    mp_stream stream = native;
    struct work *queued = stream ? malloc(sizeof *queued) : NULL;
    if (!queued)
        return false;
    *queued = (struct work){.work = work, .release = release, .context = context};
    pthread_mutex_lock(&stream->lock);
    *stream->end = queued;
    stream->end = &queued->next;
    pthread_cond_broadcast(&stream->changed);
    pthread_mutex_unlock(&stream->lock);
    return true;
}

static mp_stream stream_of(struct mp_device *device, mp_stream stream) {
    return stream ? stream : of(device)->stream;
}

void queue_device_enqueue(struct mp_device *device, mp_stream stream, void (*work)(void *),
                          void *context) {
    cuda_double_enqueue(stream_of(device, stream), work, NULL, context);
}

static int stream_create(struct mp_device *device, int urgency, mp_stream *stream,
                         struct mp_error *error) {
    (void)urgency; /* what goes first is left to chance */
    (void)error;
    mp_stream made = calloc(1, sizeof *made);
    pthread_mutex_init(&made->lock, NULL);
    pthread_cond_init(&made->changed, NULL);
    made->end = &made->first;
    made->random = of(device)->random += 0x9E3779B97F4A7C15u;
    pthread_create(&made->thread, NULL, run_stream, made);
    pthread_mutex_lock(&lock);
    live++;
    pthread_mutex_unlock(&lock);
    *stream = made;
    return MP_OK;
}

static void stream_destroy(struct mp_device *device, mp_stream stream) {
    (void)device;
    pthread_mutex_lock(&stream->lock);
    stream->ends = true;
    pthread_cond_broadcast(&stream->changed);
    pthread_mutex_unlock(&stream->lock);
    pthread_join(stream->thread, NULL);
    pthread_mutex_destroy(&stream->lock);
    pthread_cond_destroy(&stream->changed);
    free(stream);
    pthread_mutex_lock(&lock);
    live--;
    pthread_mutex_unlock(&lock);
}

static void stream_synchronize(struct mp_device *device, mp_stream given) {
    mp_stream stream = stream_of(device, given);
    pthread_mutex_lock(&stream->lock);
    while (stream->first || stream->busy)
        pthread_cond_wait(&stream->changed, &stream->lock);
    pthread_mutex_unlock(&stream->lock);
}

static void *native_stream(struct mp_device *device, mp_stream stream) {
    return stream_of(device, stream);
}

/* ---- events ---- */

struct moment {
    mp_event event;
    int64_t number;
};

static void let_go(mp_event event) { /* under the lock */
    if (--event->uses == 0)
        free(event);
}

static int event_create(struct mp_device *device, mp_event *event, struct mp_error *error) {
    (void)device;
    (void)error;
    *event = calloc(1, sizeof **event);
    (*event)->uses = 1;
    pthread_mutex_lock(&lock);
    live++;
    pthread_mutex_unlock(&lock);
    return MP_OK;
}

static void event_destroy(struct mp_device *device, mp_event event) {
    (void)device;
    pthread_mutex_lock(&lock);
    live--;
    let_go(event);
    pthread_mutex_unlock(&lock);
}

static void pass_event(void *context) {
    struct moment *moment = context;
    pthread_mutex_lock(&lock);
    if (moment->number > moment->event->passed)
        moment->event->passed = moment->number;
    moment->event->time_ns = mp_clock_ns();
    let_go(moment->event);
    pthread_cond_broadcast(&event_passed);
    pthread_mutex_unlock(&lock);
}

static void await_event(void *context) {
    struct moment *moment = context;
    pthread_mutex_lock(&lock);
    while (moment->event->passed < moment->number)
        pthread_cond_wait(&event_passed, &lock);
    let_go(moment->event);
    pthread_mutex_unlock(&lock);
}

static void queue_moment(struct mp_device *device, mp_stream stream, mp_event event, bool records) {
    struct moment *moment = malloc(sizeof *moment);
    pthread_mutex_lock(&lock);
    event->uses++;
    *moment = (struct moment){event, records ? ++event->recorded : event->recorded};
    pthread_mutex_unlock(&lock);
    cuda_double_enqueue(stream_of(device, stream), records ? pass_event : await_event, free,
                        moment);
}

static void event_record(struct mp_device *device, mp_event event, mp_stream stream) {
    queue_moment(device, stream, event, true);
}

static void stream_wait(struct mp_device *device, mp_stream stream, mp_event event) {
    queue_moment(device, stream, event, false);
}

static void event_synchronize(struct mp_device *device, mp_event event) {
    (void)device;
    pthread_mutex_lock(&lock);
    while (event->passed < event->recorded)
        pthread_cond_wait(&event_passed, &lock);
    pthread_mutex_unlock(&lock);
}

static bool event_done(struct mp_device *device, mp_event event) {
    (void)device;
    pthread_mutex_lock(&lock);
    bool done = event->passed >= event->recorded;
    pthread_mutex_unlock(&lock);
    return done;
}

static int64_t event_time(struct mp_device *device, mp_event event) {
    return event_done(device, event) && event->recorded ? event->time_ns : -1;
}

/* ---- memory ---- */

static void *allocate_kind(size_t bytes, bool device) {
    struct allocation *made = NULL;
    pthread_mutex_lock(&lock);
    allocated++;
    if (!failing || --failing) {
        made = malloc(sizeof *made);
        *made = (struct allocation){allocations, aligned_alloc(64, (bytes + 127) / 64 * 64), bytes,
                                    device};
        memset(made->memory, 0xA7, bytes); /* not cleared */
        allocations = made;
        live++;
    }
    pthread_mutex_unlock(&lock);
    return made ? made->memory : NULL;
}

static void *allocate(struct mp_device *device, size_t bytes) {
    (void)device;
    return allocate_kind(bytes, true);
}

static void *host_allocate(struct mp_device *device, size_t bytes) {
    (void)device;
    return allocate_kind(bytes, false);
}

static void release(struct mp_device *device, void *memory) {
    (void)device;
    pthread_mutex_lock(&lock);
    struct allocation **link = &allocations;
    while (memory && *link && (*link)->memory != memory)
        link = &(*link)->next;
    if (memory && *link) {
        struct allocation *gone = *link;
        *link = gone->next;
        free(gone->memory);
        free(gone);
        live--;
    }
    pthread_mutex_unlock(&lock);
}

static bool holds(const void *memory, size_t bytes, bool device) {
    const char *from = memory;
    bool found = false;
    pthread_mutex_lock(&lock);
    for (const struct allocation *a = allocations; a && !found; a = a->next)
        found = a->device == device && from >= a->memory && from + bytes <= a->memory + a->bytes;
    pthread_mutex_unlock(&lock);
    return found;
}

bool cuda_double_is_device(const void *memory, size_t bytes) {
    return holds(memory, bytes, true);
}

/* ---- operations ---- */

struct arguments {
    const void *from;
    void *to;
    size_t count;
};

static void queue(struct mp_device *device, mp_stream stream, void (*work)(void *),
                  struct arguments arguments) {
    struct arguments *copy = malloc(sizeof *copy);
    *copy = arguments;
    cuda_double_enqueue(stream_of(device, stream), work, free, copy);
}

static void note(struct mp_device *device, const char *sentence) {
    mp_fail(&device->error, MP_EDEVICE, "%s", sentence);
}

static void do_copy(void *context) {
    const struct arguments *a = context;
    memcpy(a->to, a->from, a->count);
}

static void do_zero(void *context) {
    const struct arguments *a = context;
    memset(a->to, 0, a->count);
}

static void do_accumulate(void *context) {
    const struct arguments *a = context;
    for (size_t i = 0; i < a->count; i++)
        ((float *)a->to)[i] += ((const float *)a->from)[i];
}

static void copy(struct mp_device *device, mp_stream stream, void *to, const void *from,
                 size_t bytes) {
    if ((!holds(to, bytes, true) && !holds(to, bytes, false)) ||
        (!holds(from, bytes, true) && !holds(from, bytes, false)))
        note(device, "a queued copy of memory that is neither the device's nor page-locked");
    queue(device, stream, do_copy, (struct arguments){from, to, bytes});
}

static void zero(struct mp_device *device, mp_stream stream, void *memory, size_t bytes) {
    if (!holds(memory, bytes, true))
        note(device, "zeros for memory that is not the device's");
    queue(device, stream, do_zero, (struct arguments){NULL, memory, bytes});
}

static void accumulate(struct mp_device *device, mp_stream stream, size_t count, const float *from,
                       float *to) {
    if (!holds(from, count * sizeof *from, true) || !holds(to, count * sizeof *to, true))
        note(device, "a sum over memory that is not the device's");
    queue(device, stream, do_accumulate, (struct arguments){from, to, count});
}

static void copy_to_host(struct mp_device *device, mp_stream stream, void *host, const void *from,
                         size_t bytes) {
    if (!holds(from, bytes, true))
        note(device, "a copy to the host from memory that is not the device's");
    queue(device, stream, do_copy, (struct arguments){from, host, bytes});
    stream_synchronize(device, stream);
}

static void copy_from_host(struct mp_device *device, mp_stream stream, void *to, const void *host,
                           size_t bytes) {
    if (!holds(to, bytes, true))
        note(device, "a copy from the host to memory that is not the device's");
    queue(device, stream, do_copy, (struct arguments){host, to, bytes});
    stream_synchronize(device, stream);
}

static void destroy(struct mp_device *device) {
    stream_destroy(device, of(device)->stream);
    free(device);
}

struct mp_device *queue_device_create(uint64_t seed, int pause_us) {
    struct queue_device *made = calloc(1, sizeof *made);
    if (!made)
        return NULL;
    made->random = seed;
    longest_pause_us = pause_us;
    made->operations = (struct mp_device_operations){
        .name = "queue",
        .destroy = destroy,
        .allocate = allocate,
        .release = release,
        .host_allocate = host_allocate,
        .host_release = release,
        .copy_to_host = copy_to_host,
        .copy_from_host = copy_from_host,
        .copy = copy,
        .zero = zero,
        .stream_create = stream_create,
        .stream_destroy = stream_destroy,
        .stream_synchronize = stream_synchronize,
        .event_create = event_create,
        .event_destroy = event_destroy,
        .event_record = event_record,
        .stream_wait = stream_wait,
        .event_synchronize = event_synchronize,
        .event_done = event_done,
        .event_time = event_time,
        .native_stream = native_stream,
        .accumulate = accumulate,
    };
    made->device.operations = &made->operations;
    made->device.deferred = true;
    stream_create(&made->device, 0, &made->stream, NULL);
    return &made->device;
}
