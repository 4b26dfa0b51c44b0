/* A back end whose ranks all live in one process, for tests that have to see every order of events.
 *
 * Messages are matched as MPI matches them (in order per sender, receiver and tag), but a matched
 * message arrives, and its send ends, only when a random number says so: later messages overtake
 * earlier ones, and the receiver's copy is taken from the sender's memory at the last moment, so
 * that memory which is written too early or given away too early shows. */
#pragma once

#include "reference/comm/transport.h"
#include "tests/support.h"

struct loopback_operation {
    struct loopback_operation *next;  /* unmatched: oldest first */
    struct loopback_operation *other; /* the matched one; NULL when it is gone */
    int from, to, tag;
    bool is_send, matched, copied;
    size_t bytes;
    void *memory;
};

struct loopback_world {
    uint64_t random;
    struct loopback_operation *unmatched;
    int in_flight;
};

struct loopback {
    struct mp_transport transport; /* first */
    struct loopback_world *world;
};

struct mp_messages {
    struct loopback_operation **slot;
};

static inline struct loopback_world *loopback_world_of(struct mp_comm *comm) {
    return ((struct loopback *)comm)->world;
}

static inline int loopback_messages_create(UNUSED struct mp_comm *comm, int capacity,
                                           struct mp_messages **messages,
                                           UNUSED struct mp_error *error) {
    *messages = malloc(sizeof **messages);
    (*messages)->slot = calloc((size_t)capacity, sizeof *(*messages)->slot);
    return MP_OK;
}

static inline void loopback_messages_destroy(struct mp_messages *messages) {
    free(messages->slot);
    free(messages);
}

static inline void loopback_messages_move(struct mp_messages *messages, int from, int to) {
    messages->slot[to] = messages->slot[from];
    messages->slot[from] = NULL;
}

static inline void loopback_post(struct mp_comm *comm, struct mp_messages *messages, int slot,
                                 struct loopback_operation operation) {
    struct loopback_world *world = loopback_world_of(comm);
    struct loopback_operation *posted = malloc(sizeof *posted);
    *posted = operation;
    messages->slot[slot] = posted;
    world->in_flight++;
    struct loopback_operation **link = &world->unmatched;
    for (; *link; link = &(*link)->next) {
        struct loopback_operation *other = *link;
        if (other->is_send == posted->is_send || other->from != posted->from ||
            other->to != posted->to || other->tag != posted->tag)
            continue;
        assert_int_equal(other->bytes, posted->bytes);
        *link = other->next;
        posted->other = other;
        other->other = posted;
        posted->matched = other->matched = true;
        return;
    }
    *link = posted;
}

static inline int loopback_send(struct mp_comm *comm, struct mp_messages *messages, int slot,
                                const void *memory, size_t bytes, int rank, int tag,
                                UNUSED struct mp_error *error) {
    assert_true(bytes > 0 && rank != comm->rank);
    assert_in_range(tag, 0, mp_transport_of(comm)->tag_limit);
    loopback_post(comm, messages, slot,
                  (struct loopback_operation){.from = comm->rank,
                                              .to = rank,
                                              .tag = tag,
                                              .is_send = true,
                                              .bytes = bytes,
                                              .memory = (void *)(uintptr_t)memory});
    return MP_OK;
}

static inline int loopback_receive(struct mp_comm *comm, struct mp_messages *messages, int slot,
                                   void *memory, size_t bytes, int rank, int tag,
                                   UNUSED struct mp_error *error) {
    assert_true(bytes > 0 && rank != comm->rank);
    loopback_post(
        comm, messages, slot,
        (struct loopback_operation){
            .from = rank, .to = comm->rank, .tag = tag, .bytes = bytes, .memory = memory});
    return MP_OK;
}

/* A receive ends when it has copied; a send any time after that. */
static inline bool loopback_ends(struct loopback_operation *operation) {
    struct loopback_operation *other = operation->other;
    if (operation->is_send) {
        if (!operation->copied)
            return false;
    } else {
        memcpy(operation->memory, other->memory, operation->bytes);
        other->copied = true;
        other->other = NULL;
    }
    return true;
}

static inline int loopback_test(struct mp_comm *comm, struct mp_messages *messages, int active,
                                int finished[], int *count, UNUSED struct mp_error *error) {
    struct loopback_world *world = loopback_world_of(comm);
    *count = 0;
    for (int i = 0; i < active; i++) {
        struct loopback_operation *operation = messages->slot[i];
        if (!operation->matched || test_random_int(&world->random, 0, 2) ||
            !loopback_ends(operation))
            continue;
        finished[(*count)++] = i;
        messages->slot[i] = NULL;
        world->in_flight--;
        free(operation);
    }
    return MP_OK;
}

static inline void loopback_settle(UNUSED struct mp_comm *comm, UNUSED mp_stream stream) {}

static inline void loopback_add(UNUSED struct mp_comm *comm, UNUSED mp_stream stream, size_t count,
                                const float *from, float *to) {
    for (size_t i = 0; i < count; i++)
        to[i] += from[i];
}

static inline void loopback_destroy(struct mp_comm *comm) {
    mp_transport_close(mp_transport_of(comm));
    free(comm);
}

static inline struct mp_comm *loopback_create(struct loopback_world *world, int rank, int ranks,
                                              int tag_limit) {
    static const struct mp_comm_operations operations = {
        .name = "loopback",
        .destroy = loopback_destroy,
        .messages_create = loopback_messages_create,
        .messages_destroy = loopback_messages_destroy,
        .messages_move = loopback_messages_move,
        .messages_test = loopback_test,
        .send = loopback_send,
        .receive = loopback_receive,
        .settle = loopback_settle,
        .add = loopback_add,
    };
    struct loopback *loopback = calloc(1, sizeof *loopback);
    loopback->world = world;
    loopback->transport.comm =
        (struct mp_comm){.operations = &operations, .rank = rank, .ranks = ranks};
    loopback->transport.tag_limit = tag_limit;
    assert_int_equal(mp_transport_open(&loopback->transport, NULL), MP_OK);
    return &loopback->transport.comm;
}
