/* A gate in a stream: what a test queues there (pass_gate) waits until the test opens it, so that
 * what is queued behind it cannot have run before. */
#pragma once

#include <pthread.h>
#include <stdbool.h>

struct gate {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    bool open, reached;
};

#define CLOSED_GATE                                                                                \
    { PTHREAD_MUTEX_INITIALIZER, PTHREAD_COND_INITIALIZER, false, false }

/* context: the gate */
static inline void pass_gate(void *context) {
    struct gate *gate = context;
    pthread_mutex_lock(&gate->lock);
    gate->reached = true;
    pthread_cond_broadcast(&gate->changed);
    while (!gate->open)
        pthread_cond_wait(&gate->changed, &gate->lock);
    pthread_mutex_unlock(&gate->lock);
}

static inline void open_gate(struct gate *gate) {
    pthread_mutex_lock(&gate->lock);
    gate->open = true;
    pthread_cond_broadcast(&gate->changed);
    pthread_mutex_unlock(&gate->lock);
}

/* Until the stream stands at the gate. */
static inline void wait_for_arrival(struct gate *gate) {
    pthread_mutex_lock(&gate->lock);
    while (!gate->reached)
        pthread_cond_wait(&gate->changed, &gate->lock);
    pthread_mutex_unlock(&gate->lock);
}
