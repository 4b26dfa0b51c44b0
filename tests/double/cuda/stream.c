/* Streams: a thread each, which does what is queued in order.  Events are marks in them. */
#include "internal.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

static int64_t now_ns(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec * INT64_C(1000000000) + now.tv_nsec;
}

void double_wait(void) {
    double_state.waiting++;
    pthread_cond_wait(&double_state.progress, &double_state.lock);
    double_state.waiting--;
}

static void tell_progress(void) {
    if (double_state.waiting)
        pthread_cond_broadcast(&double_state.progress);
}

static void delay(struct CUstream_st *stream, int most_us) {
    int64_t wait_us = (int64_t)(double_random(&stream->random) % ((uint64_t)most_us + 1));
    struct timespec time = {wait_us / 1000000, wait_us % 1000000 * 1000};
    nanosleep(&time, NULL);
}

static void drop_stream(struct CUstream_st *stream) {
    if (--stream->references == 0) {
        pthread_cond_destroy(&stream->more);
        free(stream);
    }
}

/* Does the first piece of work; locked before and after, not meanwhile. */
static void do_first(struct CUstream_st *stream) {
    struct double_work *work = stream->first;
    int delay_us = double_state.delay_us;
    bool works = !double_state.fault;
    stream->first = work->next;
    if (!stream->first)
        stream->last = NULL;
    double_leave();
    if (delay_us > 0)
        delay(stream, delay_us);
    if (works && work->run)
        work->run(work->context);
    if (work->release)
        work->release(work->context);
    free(work);
    double_enter();
    stream->completed++;
    tell_progress();
}

static void *stream_main(void *context) {
    struct CUstream_st *stream = context;
    double_enter();
    while (stream->first || !stream->ending) {
        if (stream->first)
            do_first(stream);
        else
            pthread_cond_wait(&stream->more, &double_state.lock);
    }
    double_leave();
    double_end_fibers();
    return NULL;
}

/* Locked. */
static cudaError_t start_stream(int device, struct CUstream_st **started) {
    struct double_state *s = &double_state;
    struct CUstream_st *stream = calloc(1, sizeof *stream);
    if (!stream)
        return cudaErrorMemoryAllocation;
    stream->references = 1;
    stream->device = device;
    stream->random = s->seed + ++s->streams_made * 0x9E3779B97F4A7C15u;
    pthread_cond_init(&stream->more, NULL);
    if (pthread_create(&stream->thread, NULL, stream_main, stream) != 0) {
        drop_stream(stream);
        return cudaErrorMemoryAllocation;
    }
    stream->next = s->streams;
    s->streams = stream;
    *started = stream;
    return cudaSuccess;
}

/* Waits for the stream's work and ends its thread.  Locked; the lock is given up meanwhile. */
static void end_stream(struct CUstream_st *stream) {
    struct CUstream_st **link = &double_state.streams;
    double_drain(stream);
    while (*link != stream)
        link = &(*link)->next;
    *link = stream->next;
    stream->ending = true;
    pthread_cond_signal(&stream->more);
    double_leave();
    pthread_join(stream->thread, NULL);
    double_enter();
    drop_stream(stream);
}

struct CUstream_st *double_stream(cudaStream_t handle) {
    for (struct CUstream_st *stream = double_state.streams; stream; stream = stream->next)
        if (stream == handle)
            return stream;
    return NULL;
}

cudaError_t double_queue(struct CUstream_st *stream, void (*run)(void *), void (*release)(void *),
                         void *context) {
    struct double_work *work = malloc(sizeof *work);
    if (!work)
        return cudaErrorMemoryAllocation;
    *work = (struct double_work){.run = run, .release = release, .context = context};
    if (stream->last)
        stream->last->next = work;
    else
        stream->first = work;
    stream->last = work;
    stream->submitted++;
    pthread_cond_signal(&stream->more);
    return cudaSuccess;
}

void double_drain(struct CUstream_st *stream) {
    int64_t count = stream->submitted;
    stream->references++;
    while (stream->completed < count)
        double_wait();
    drop_stream(stream);
}

void double_drain_all(void) {
    for (bool all = false; !all;) {
        struct CUstream_st *stream = double_state.streams;
        while (stream && stream->completed >= stream->submitted)
            stream = stream->next;
        all = !stream;
        if (stream)
            double_drain(stream);
    }
}

bool cuda_double_enqueue(cudaStream_t handle, void (*work)(void *), void (*release)(void *),
                         void *context) {
    double_enter();
    struct CUstream_st *stream = double_stream(handle);
    bool queued = stream && double_queue(stream, work, release, context) == cudaSuccess;
    double_leave();
    return queued;
}

cudaError_t cudaStreamCreateWithPriority(cudaStream_t *stream, unsigned int flags, int priority) {
    /* Streams are threads of equal rank. */
    cudaError_t error = double_begin();
    if (!error && flags != cudaStreamNonBlocking)
        error = cudaErrorInvalidValue;
    if (!error && double_state.streams_left == 0)
        error = cudaErrorMemoryAllocation;
    if (!error)
        error = start_stream(double_device(), stream);
    if (!error) {
        (*stream)->priority = priority;
        double_state.counts.streams++;
        if (double_state.streams_left > 0)
            double_state.streams_left--;
    }
    return double_end(error);
}

cudaError_t cudaStreamGetPriority(cudaStream_t handle, int *priority) {
    cudaError_t error = double_begin();
    const struct CUstream_st *stream = error ? NULL : double_stream(handle);
    if (!error && !stream)
        error = cudaErrorInvalidResourceHandle;
    else if (!error)
        *priority = stream->priority;
    return double_end(error);
}

cudaError_t cudaStreamCreateWithFlags(cudaStream_t *stream, unsigned int flags) {
    return cudaStreamCreateWithPriority(stream, flags, 0);
}

cudaError_t cudaStreamDestroy(cudaStream_t handle) {
    cudaError_t error = double_begin();
    struct CUstream_st *stream = double_stream(handle);
    if (!stream) {
        error = cudaErrorInvalidResourceHandle;
    } else {
        end_stream(stream);
        double_state.counts.streams--;
    }
    return double_end(error);
}

cudaError_t cudaStreamSynchronize(cudaStream_t handle) {
    double_enter();
    struct CUstream_st *stream = double_check() ? NULL : double_stream(handle);
    double_state.counts.synchronisations++;
    if (stream)
        double_drain(stream);
    cudaError_t error = double_check();
    if (!error && !stream)
        error = cudaErrorInvalidResourceHandle;
    return double_end(error);
}

/* Events. */

static void drop_mark(struct double_mark *mark) {
    if (mark && --mark->references == 0)
        free(mark);
}

static void pass_mark(void *context) {
    struct double_mark *mark = context;
    double_enter();
    mark->time_ns = now_ns();
    double_leave();
}

/* Passed also where the device has failed: nobody shall wait for ever. */
static void release_passed_mark(void *context) {
    struct double_mark *mark = context;
    double_enter();
    mark->passed = true;
    tell_progress();
    drop_mark(mark);
    double_leave();
}

static void wait_for_mark(void *context) {
    struct double_mark *mark = context;
    double_enter();
    while (!mark->passed)
        double_wait();
    double_leave();
}

static void release_mark(void *context) {
    double_enter();
    drop_mark(context);
    double_leave();
}

static struct CUevent_st *find_event(cudaEvent_t handle) {
    struct CUevent_st *event = double_state.events;
    while (event && event != handle)
        event = event->next;
    return event;
}

cudaError_t cudaEventCreateWithFlags(cudaEvent_t *event, unsigned int flags) {
    cudaError_t error = double_begin();
    if (!error && (flags & ~(unsigned)cudaEventDisableTiming))
        error = cudaErrorInvalidValue;
    struct CUevent_st *made = error ? NULL : calloc(1, sizeof *made);
    if (made) {
        made->flags = flags;
        made->next = double_state.events;
        double_state.events = *event = made;
        double_state.counts.events++;
    } else if (!error) {
        error = cudaErrorMemoryAllocation;
    }
    return double_end(error);
}

cudaError_t cudaEventCreate(cudaEvent_t *event) {
    return cudaEventCreateWithFlags(event, cudaEventDefault);
}

cudaError_t cudaEventDestroy(cudaEvent_t event) {
    cudaError_t error = double_begin();
    struct CUevent_st **link = &double_state.events;
    while (*link && *link != event)
        link = &(*link)->next;
    if (*link) {
        *link = event->next;
        drop_mark(event->mark);
        free(event);
        double_state.counts.events--;
    } else {
        error = cudaErrorInvalidResourceHandle;
    }
    return double_end(error);
}

/* Locked. */
static cudaError_t record(struct CUevent_st *event, struct CUstream_st *stream) {
    if (!event || !stream)
        return cudaErrorInvalidResourceHandle;
    struct double_mark *mark = calloc(1, sizeof *mark);
    if (!mark)
        return cudaErrorMemoryAllocation;
    mark->references = 2;
    cudaError_t error = double_queue(stream, pass_mark, release_passed_mark, mark);
    if (error) {
        free(mark);
        return error;
    }
    drop_mark(event->mark);
    event->mark = mark;
    return cudaSuccess;
}

cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream) {
    cudaError_t error = double_begin();
    return double_end(error ? error : record(find_event(event), double_stream(stream)));
}

cudaError_t cudaStreamWaitEvent(cudaStream_t handle, cudaEvent_t event, unsigned int flags) {
    cudaError_t error = double_begin();
    struct CUevent_st *known = error ? NULL : find_event(event);
    struct CUstream_st *stream = error ? NULL : double_stream(handle);
    if (!error && flags != cudaEventWaitDefault)
        error = cudaErrorInvalidValue;
    else if (!error && (!known || !stream))
        error = cudaErrorInvalidResourceHandle;
    if (!error && known->mark && !known->mark->passed) {
        known->mark->references++;
        error = double_queue(stream, wait_for_mark, release_mark, known->mark);
        if (error)
            drop_mark(known->mark);
    }
    return double_end(error);
}

cudaError_t cudaEventSynchronize(cudaEvent_t event) {
    cudaError_t error = double_begin();
    struct CUevent_st *known = error ? NULL : find_event(event);
    double_state.counts.synchronisations++;
    if (!error && !known)
        error = cudaErrorInvalidResourceHandle;
    if (!error && known->mark) {
        struct double_mark *mark = known->mark;
        mark->references++;
        while (!mark->passed)
            double_wait();
        drop_mark(mark);
        error = double_check();
    }
    return double_end(error);
}

cudaError_t cudaEventQuery(cudaEvent_t event) {
    cudaError_t error = double_begin();
    struct CUevent_st *known = error ? NULL : find_event(event);
    if (!error && !known)
        error = cudaErrorInvalidResourceHandle;
    else if (!error && known->mark && !known->mark->passed)
        error = cudaErrorNotReady;
    return double_end(error);
}

cudaError_t cudaEventElapsedTime(float *milliseconds, cudaEvent_t start, cudaEvent_t end) {
    cudaError_t error = double_begin();
    struct CUevent_st *from = error ? NULL : find_event(start),
                      *to = error ? NULL : find_event(end);
    if (!error && (!from || !to || !from->mark || !to->mark ||
                   ((from->flags | to->flags) & cudaEventDisableTiming)))
        error = cudaErrorInvalidResourceHandle;
    else if (!error && (!from->mark->passed || !to->mark->passed))
        error = cudaErrorNotReady;
    if (!error)
        *milliseconds = (float)((double)(to->mark->time_ns - from->mark->time_ns) * 1e-6);
    return double_end(error);
}
