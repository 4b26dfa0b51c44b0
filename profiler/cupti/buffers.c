#include "profiler/cupti/buffers.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

enum { POLL_MILLISECONDS = 200, ALIGNMENT = 64 };

/* Stands in front of the bytes that CUPTI sees. */
struct buffer {
    _Alignas(ALIGNMENT) struct buffer *next;
    size_t valid;
};

static struct {
    pthread_mutex_t lock; /* guards the lists and the flags */
    pthread_cond_t wakes;
    struct buffer *first, **end; /* came back, oldest first */
    struct buffer *kept;
    int kept_count;
    bool running, stopping;
    pthread_t thread;
    struct mp_companion *companion;
    struct cupti_totals *totals;
    void (*poll)(struct cupti_totals *totals);
} buffers = {.lock = PTHREAD_MUTEX_INITIALIZER, .end = &buffers.first};

static uint8_t *bytes_of(struct buffer *buffer) {
    return (uint8_t *)(buffer + 1);
}

void cupti_buffer_hand_out(uint8_t **bytes, size_t *size, size_t *most_records) {
    pthread_mutex_lock(&buffers.lock);
    struct buffer *buffer = buffers.kept;
    if (buffer) {
        buffers.kept = buffer->next;
        buffers.kept_count--;
    }
    pthread_mutex_unlock(&buffers.lock);
    if (!buffer)
        buffer = aligned_alloc(ALIGNMENT, sizeof *buffer + CUPTI_BUFFER_BYTES);
    *bytes = buffer ? bytes_of(buffer) : NULL;
    *size = buffer ? CUPTI_BUFFER_BYTES : 0;
    *most_records = 0; /* as many as fit */
}

void cupti_buffer_take_back(uint8_t *bytes, size_t valid) {
    if (!bytes)
        return;
    struct buffer *buffer = (struct buffer *)(void *)bytes - 1;
    *buffer = (struct buffer){.valid = valid};
    pthread_mutex_lock(&buffers.lock);
    bool running = buffers.running;
    if (running) {
        *buffers.end = buffer;
        buffers.end = &buffer->next;
        pthread_cond_signal(&buffers.wakes);
    }
    pthread_mutex_unlock(&buffers.lock);
    if (!running)
        free(buffer);
}

/* The lock is held. */
static void keep(struct buffer *buffer) {
    if (buffers.kept_count < CUPTI_BUFFERS_KEPT) {
        buffer->next = buffers.kept;
        buffers.kept = buffer;
        buffers.kept_count++;
    } else {
        free(buffer);
    }
}

/* Parses until the queue is empty; the lock is held, except while parsing. */
static void parse_all(void) {
    while (buffers.first) {
        struct buffer *buffer = buffers.first;
        buffers.first = buffer->next;
        if (!buffers.first)
            buffers.end = &buffers.first;
        pthread_mutex_unlock(&buffers.lock);
        cupti_parse(buffers.companion, bytes_of(buffer), buffer->valid, buffers.totals);
        pthread_mutex_lock(&buffers.lock);
        keep(buffer);
    }
}

/* Polling ends in CUPTI, which may give buffers back meanwhile: without the lock. */
static void poll_and_flush(void) {
    pthread_mutex_unlock(&buffers.lock);
    if (buffers.poll)
        buffers.poll(buffers.totals);
    mp_recorder_flush(buffers.companion->recorder, NULL);
    pthread_mutex_lock(&buffers.lock);
}

/* At the program's priority, since it holds the lock that CUPTI's callbacks may wait for. */
static void *parse_thread(void *unused) {
    pthread_mutex_lock(&buffers.lock);
    while (!buffers.stopping) {
        struct timespec until = mp_clock_after(POLL_MILLISECONDS);
        int timed_out = 0;
        while (!buffers.first && !buffers.stopping && !timed_out)
            timed_out = pthread_cond_timedwait(&buffers.wakes, &buffers.lock, &until);
        parse_all();
        if (timed_out)
            poll_and_flush();
    }
    parse_all();
    buffers.running = false;
    pthread_mutex_unlock(&buffers.lock);
    return unused;
}

int cupti_buffers_start(struct mp_companion *companion, struct cupti_totals *totals,
                        void (*poll)(struct cupti_totals *totals), struct mp_error *error) {
    buffers.companion = companion;
    buffers.totals = totals;
    buffers.poll = poll;
    buffers.stopping = false;
    buffers.running = true;
    int failed = mp_companion_thread(&buffers.thread, &buffers.wakes, parse_thread);
    if (!failed)
        return MP_OK;
    buffers.running = false;
    return mp_fail(error, MP_ELIMIT, "no thread to read CUPTI's records: %s", strerror(failed));
}

void cupti_buffers_stop(void) {
    pthread_mutex_lock(&buffers.lock);
    bool running = buffers.running;
    buffers.stopping = true;
    pthread_cond_signal(&buffers.wakes);
    pthread_mutex_unlock(&buffers.lock);
    if (!running)
        return;
    pthread_join(buffers.thread, NULL);
    while (buffers.kept) {
        struct buffer *buffer = buffers.kept;
        buffers.kept = buffer->next;
        free(buffer);
    }
    buffers.kept_count = 0;
}
