/* Requests: slots for messages, moving them on, waiting for them. */
#include <sched.h>
#include <stdlib.h>
#include <string.h>

#include "profiler/record/record.h"
#include "reference/comm/transport.h"

/* Fruitless polls before a waiting rank gives up its core when it has one for itself: about 20 us,
 * longer than a small message takes. */
enum { POLLS_BEFORE_YIELD = 128 };

const struct mp_queued_operations *mp_transport_queued(const struct mp_comm *comm) {
    return comm->ranks > 1 ? comm->operations->queued : NULL;
}

bool mp_comm_keeps_order(const struct mp_comm *comm) {
    return mp_transport_queued(comm);
}

void mp_transport_copy(struct mp_transport *transport, mp_stream stream, void *to, const void *from,
                       size_t bytes) {
    struct mp_device *device = transport->device;
    if (to == from || !bytes)
        return;
    if (device && device->deferred)
        device->operations->copy(device, stream, to, from, bytes);
    else
        memmove(to, from, bytes);
}

void mp_comm_on_wait(struct mp_comm *comm,
                     void (*observe)(void *context, mp_stream stream, bool begins), void *context) {
    mp_transport_of(comm)->observe = observe;
    mp_transport_of(comm)->observe_context = context;
}

int mp_transport_open(struct mp_transport *transport, struct mp_error *error) {
    return mp_request_create(&transport->comm, 0, 0, &transport->blocking, error);
}

void mp_transport_close(struct mp_transport *transport) {
    mp_request_destroy(transport->blocking);
    transport->blocking = NULL;
}

int mp_transport_take_tags(struct mp_transport *transport, int count, int *first,
                           struct mp_error *error) {
    if (count > transport->tag_limit / 4)
        return mp_fail(error, MP_ELIMIT,
                       "rank %d: one operation of %d trees needs more message tags than a quarter "
                       "of the %d there are",
                       transport->comm.rank, count, transport->tag_limit);
    if (count > transport->tag_limit - transport->next_tag)
        transport->next_tag = 0;
    *first = transport->next_tag;
    transport->next_tag += count;
    return MP_OK;
}

static int create_flow(struct mp_request *request, int transfers, size_t chunk_bytes) {
    struct mp_comm *comm = &request->transport->comm;
    struct mp_flow *flow = &request->flow;
    flow->limit = transfers;
    flow->chunk_limit = chunk_bytes;
    if (!transfers)
        return MP_OK;
    flow->buffer_bytes =
        chunk_bytes < MP_REDUCE_PIECE ? (chunk_bytes + 63) / 64 * 64 : (size_t)MP_REDUCE_PIECE;
    MP_TAKE_EACH(&request->arena, transfers, flow->key, flow->node);
    MP_TAKE_EACH(&request->arena, comm->ranks, flow->receiver, flow->hop);
    if (request->arena.lacking)
        return MP_ENOMEM;
    if (mp_transport_queued(comm))
        return MP_OK;
    size_t bytes = (MP_RING * flow->buffer_bytes + 4095) / 4096 * 4096 + 4096;
    flow->buffer = comm->operations->ring_allocate ? comm->operations->ring_allocate(comm, bytes)
                                                   : aligned_alloc(4096, bytes);
    return flow->buffer ? MP_OK : MP_ENOMEM;
}

static void destroy_flow(struct mp_comm *comm, struct mp_flow *flow) {
    if (flow->buffer && comm->operations->ring_release)
        comm->operations->ring_release(comm, flow->buffer);
    else
        free(flow->buffer);
}

/* Slots for messages, or what a back end with operations of its own keeps. */
static int create_slots(struct mp_request *request, struct mp_error *error) {
    struct mp_comm *comm = &request->transport->comm;
    const size_t capacity = (size_t)request->capacity;
    if (comm->ranks == 1)
        return MP_OK;
    if (comm->operations->queued)
        return comm->operations->queued->request_create(request, error);
    MP_TAKE_EACH(&request->arena, capacity, request->finished, request->note, request->done);
    if (request->arena.lacking)
        return MP_ENOMEM;
    return comm->operations->messages_create(comm, request->capacity, &request->messages, error);
}

int mp_request_create(struct mp_comm *comm, int transfers, size_t chunk_bytes,
                      struct mp_request **out, struct mp_error *error) {
    if (transfers < 0 || transfers > 1 << 24)
        return mp_fail(error, MP_EINVAL,
                       "rank %d: a request for %d transfers; 0 .. %d are possible", comm->rank,
                       transfers, 1 << 24);
    struct mp_request *request;
    MP_TRY(MP_NEW(request, 1, error));
    request->transport = mp_transport_of(comm);
    /* An exchange has at most two messages per other rank and cargo; every transfer is at most one
     * edge of this rank with MP_WINDOW pieces on it, or MP_RING arrivals in all. */
    int64_t capacity = (int64_t)transfers * MP_WINDOW + (transfers ? MP_RING : 0);
    if (capacity < 2 * MP_EXCHANGE_CARGOES * comm->ranks)
        capacity = 2 * MP_EXCHANGE_CARGOES * comm->ranks;
    request->capacity = (int)capacity;
    int code = create_flow(request, comm->ranks > 1 ? transfers : 0, chunk_bytes);
    if (code == MP_OK)
        code = create_slots(request, error);
    if (code) {
        mp_request_destroy(request);
        return mp_fail(error, code, "rank %d: no memory for a request of %d transfers", comm->rank,
                       transfers);
    }
    *out = request;
    return MP_OK;
}

static void leave_flight(struct mp_request *request) {
    struct mp_request **link = &request->transport->in_flight[request->lane];
    while (*link && *link != request)
        link = &(*link)->next;
    if (*link)
        *link = request->next;
    request->next = NULL;
    request->in_flight = false;
}

void mp_request_destroy(struct mp_request *request) {
    if (!request)
        return;
    struct mp_comm *comm = &request->transport->comm;
    leave_flight(request);
    if (request->messages)
        comm->operations->messages_destroy(request->messages);
    if (request->queued)
        comm->operations->queued->request_destroy(request);
    destroy_flow(comm, &request->flow);
    mp_arena_release(&request->arena);
    free(request);
}

int mp_request_begin(struct mp_comm *comm, struct mp_request *request, enum mp_comm_lane lane,
                     mp_stream stream, struct mp_error *error) {
    if (&request->transport->comm != comm)
        return mp_fail(error, MP_EINVAL, "rank %d: the request belongs to another comm",
                       comm->rank);
    if (request->in_flight)
        return mp_fail(error, MP_EINVAL,
                       "rank %d: the request still carries an operation; wait for it first",
                       comm->rank);
    struct mp_request **link = &request->transport->in_flight[lane];
    while (*link)
        link = &(*link)->next;
    *link = request;
    request->in_flight = true;
    request->lane = lane;
    request->stream = stream;
    request->active = 0;
    request->follow = NULL;
    request->go_on = NULL;
    return MP_OK;
}

int mp_request_started(struct mp_request *request, int code) {
    if (request->active == 0)
        leave_flight(request);
    return code;
}

int mp_request_queued(struct mp_request *request, int code) {
    request->active = code == MP_OK;
    return mp_request_started(request, code);
}

int mp_message_check(const struct mp_comm *comm, size_t bytes, int rank, struct mp_error *error) {
    if (bytes <= MP_MESSAGE_LIMIT)
        return MP_OK;
    return mp_fail(
        error, MP_ELIMIT,
        "rank %d: a message of %zu bytes between it and rank %d; at most %d are possible",
        comm->rank, bytes, rank, MP_MESSAGE_LIMIT);
}

static int check_message(const struct mp_request *request, size_t bytes, int rank,
                         struct mp_error *error) {
    const struct mp_comm *comm = &request->transport->comm;
    MP_TRY(mp_message_check(comm, bytes, rank, error));
    if (request->active == request->capacity)
        return mp_fail(error, MP_ELIMIT,
                       "rank %d: the request has room for %d messages at a time and needs more",
                       comm->rank, request->capacity);
    return MP_OK;
}

int mp_request_send(struct mp_request *request, const void *memory, size_t bytes, int rank, int tag,
                    struct mp_note note, struct mp_error *error) {
    if (!bytes)
        return MP_OK;
    struct mp_comm *comm = &request->transport->comm;
    MP_TRY(check_message(request, bytes, rank, error));
    MP_TRY(comm->operations->send(comm, request->messages, request->active, memory, bytes, rank,
                                  tag, error));
    request->note[request->active++] = note;
    mp_comm_sent(comm, rank, bytes);
    return MP_OK;
}

int mp_request_receive(struct mp_request *request, void *memory, size_t bytes, int rank, int tag,
                       struct mp_note note, struct mp_error *error) {
    if (!bytes)
        return MP_OK;
    struct mp_comm *comm = &request->transport->comm;
    MP_TRY(check_message(request, bytes, rank, error));
    MP_TRY(comm->operations->receive(comm, request->messages, request->active, memory, bytes, rank,
                                     tag, error));
    request->note[request->active++] = note;
    return MP_OK;
}

/* Takes the finished messages out of the slots, keeping the others in their order, so that every
 * test looks at live slots only.  Returns how many notes are in `done`. */
static int take_finished(struct mp_request *request, int count) {
    const struct mp_comm_operations *operations = request->transport->comm.operations;
    int kept = 0, taken = 0;
    for (int i = 0; i < count; i++)
        request->note[request->finished[i]].finished = true;
    for (int slot = 0; slot < request->active; slot++) {
        if (request->note[slot].finished) {
            request->done[taken++] = request->note[slot];
            continue;
        }
        if (kept != slot) {
            request->note[kept] = request->note[slot];
            operations->messages_move(request->messages, slot, kept);
        }
        kept++;
    }
    request->active = kept;
    return taken;
}

/* The messages of a request that have ended since the last look: how many notes are in `done`. */
static int look(struct mp_request *request, int *count, struct mp_error *error) {
    struct mp_comm *comm = &request->transport->comm;
    *count = 0;
    if (!request->active)
        return MP_OK;
    int code = comm->operations->messages_test(comm, request->messages, request->active,
                                               request->finished, count, error);
    *count = code || !*count ? 0 : take_finished(request, *count);
    return code;
}

static int advance_exchanges(struct mp_transport *transport, bool *moved, struct mp_error *error) {
    struct mp_request *next;
    for (struct mp_request *request = transport->in_flight[MP_COMM_EXCHANGE]; request;
         request = next) {
        int count;
        next = request->next;
        do {
            MP_TRY(look(request, &count, error));
            *moved = *moved || count;
            if (!request->active && request->go_on)
                MP_TRY(request->go_on(request, error));
        } while (count);
        if (!request->active)
            leave_flight(request);
    }
    return MP_OK;
}

/* What follows from a message may take long, an addition above all: exchanges have their turn after
 * each. */
static int follow(struct mp_request *request, int count, bool *moved, struct mp_error *error) {
    for (int i = 0; request->follow && i < count; i++) {
        MP_TRY(request->follow(request, &request->done[i], error));
        MP_TRY(advance_exchanges(request->transport, moved, error));
    }
    return MP_OK;
}

/* Moves on, until nothing more has come to its end, exchanges and then, unless `until` has ended
 * with them, the rest.  `until` may be NULL. */
static int advance(struct mp_transport *transport, const struct mp_request *until, bool *moved,
                   struct mp_error *error) {
    struct mp_request *next;
    MP_TRY(advance_exchanges(transport, moved, error));
    for (struct mp_request *request = transport->in_flight[MP_COMM_BACKGROUND];
         request && !(until && !until->in_flight); request = next) {
        int count;
        next = request->next;
        do {
            MP_TRY(look(request, &count, error));
            *moved = *moved || count;
            MP_TRY(follow(request, count, moved, error));
        } while (count && !(until && !until->in_flight));
        if (!request->active)
            leave_flight(request);
    }
    return MP_OK;
}

/* Additions give the device's work to do, and its pauses are where progress is called from: what is
 * being moved on already is left alone. */
static int advance_once(struct mp_transport *transport, const struct mp_request *until, bool *moved,
                        struct mp_error *error) {
    if (transport->advancing)
        return MP_OK;
    transport->advancing = true;
    int code = advance(transport, until, moved, error);
    transport->advancing = false;
    return code;
}

int mp_comm_progress(struct mp_comm *comm, struct mp_error *error) {
    const struct mp_queued_operations *queued = mp_transport_queued(comm);
    bool moved = false;
    if (queued)
        return queued->progress(comm, error);
    return advance_once(mp_transport_of(comm), NULL, &moved, error);
}

int mp_request_wait(struct mp_request *request, struct mp_error *error) {
    if (!request->in_flight)
        return MP_OK;
    struct mp_transport *transport = request->transport;
    const struct mp_queued_operations *queued = mp_transport_queued(&transport->comm);
    int code = MP_OK, idle = 0;
    if (queued) {
        MP_TRY(queued->wait(request, error));
        leave_flight(request);
        return MP_OK;
    }
    int64_t start = mp_clock_ns();
    for (;;) {
        bool moved = false;
        code = advance_once(transport, request, &moved, error);
        if (code || !request->in_flight)
            break;
        idle = moved ? 0 : idle + 1;
        if (idle && (transport->ranks_share_cores || idle > POLLS_BEFORE_YIELD))
            sched_yield();
    }
    transport->comm.waited_ns += mp_clock_ns() - start;
    return code;
}
