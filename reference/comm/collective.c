/* Dense collectives: the back end's own, waited for like everything else. */
#include <string.h>

#include "reference/comm/transport.h"

void mp_comm_destroy(struct mp_comm *comm) {
    if (comm)
        comm->operations->destroy(comm);
}

void mp_comm_abort(struct mp_comm *comm, int status) {
    comm->operations->abort(comm, status);
}

/* A request with one collective in its only slot. */
static int started(struct mp_request *request, int code) {
    if (code)
        return mp_request_started(request, code);
    request->note[0] = mp_plain_note;
    request->active = 1;
    return MP_OK;
}

int mp_comm_barrier(struct mp_comm *comm, struct mp_error *error) {
    const struct mp_queued_operations *queued = mp_transport_queued(comm);
    if (comm->ranks == 1)
        return MP_OK;
    if (queued)
        return queued->barrier(comm, error);
    struct mp_request *request = mp_transport_of(comm)->blocking;
    MP_TRY(mp_request_begin(comm, request, MP_COMM_EXCHANGE, NULL, error));
    MP_TRY(started(request, comm->operations->barrier(comm, request->messages, 0, error)));
    return mp_request_wait(request, error);
}

int mp_comm_broadcast(struct mp_comm *comm, void *memory, size_t bytes, int root,
                      struct mp_error *error) {
    if (root < 0 || root >= comm->ranks)
        return mp_fail(error, MP_EINVAL, "rank %d: a broadcast from rank %d; ranks are 0 .. %d",
                       comm->rank, root, comm->ranks - 1);
    const struct mp_queued_operations *queued = mp_transport_queued(comm);
    if (comm->ranks == 1)
        return MP_OK;
    struct mp_request *request = mp_transport_of(comm)->blocking;
    if (queued)
        MP_TRY(queued->broadcast(comm, memory, bytes, root, error));
    for (size_t begin = 0; !queued && begin < bytes; begin += MP_MESSAGE_LIMIT) {
        size_t part = bytes - begin < MP_MESSAGE_LIMIT ? bytes - begin : MP_MESSAGE_LIMIT;
        MP_TRY(mp_request_begin(comm, request, MP_COMM_EXCHANGE, NULL, error));
        MP_TRY(started(request,
                       comm->operations->broadcast(comm, request->messages, 0,
                                                   (char *)memory + begin, part, root, error)));
        MP_TRY(mp_request_wait(request, error));
    }
    if (comm->rank == root)
        comm->sent_bytes += (int64_t)bytes;
    return MP_OK;
}

static int reduce_doubles(struct mp_comm *comm, enum mp_reduction reduction, double *values,
                          int count, struct mp_error *error) {
    if (count < 0)
        return mp_fail(error, MP_EINVAL, "rank %d: a reduction of %d values", comm->rank, count);
    const struct mp_queued_operations *queued = mp_transport_queued(comm);
    if (comm->ranks == 1 || count == 0)
        return MP_OK;
    if (queued)
        return queued->reduce(comm, reduction, values, count, error);
    struct mp_request *request = mp_transport_of(comm)->blocking;
    MP_TRY(mp_request_begin(comm, request, MP_COMM_EXCHANGE, NULL, error));
    MP_TRY(started(request, comm->operations->all_reduce(comm, request->messages, 0, reduction,
                                                         values, (size_t)count, error)));
    return mp_request_wait(request, error);
}

int mp_comm_sum(struct mp_comm *comm, double *values, int count, struct mp_error *error) {
    return reduce_doubles(comm, MP_REDUCTION_DOUBLE_SUM, values, count, error);
}

int mp_comm_maximum(struct mp_comm *comm, double *values, int count, struct mp_error *error) {
    return reduce_doubles(comm, MP_REDUCTION_DOUBLE_MAXIMUM, values, count, error);
}

int mp_gather_counts_start(struct mp_comm *comm, const uint32_t *mine, int count, uint32_t *all,
                           struct mp_request *request, struct mp_error *error) {
    if (count < 0)
        return mp_fail(error, MP_EINVAL, "rank %d: a gather of %d counts", comm->rank, count);
    const struct mp_queued_operations *queued = mp_transport_queued(comm);
    MP_TRY(mp_request_begin(comm, request, MP_COMM_EXCHANGE, NULL, error));
    if (comm->ranks == 1)
        memmove(all, mine, (size_t)count * sizeof *all);
    if (comm->ranks == 1 || count == 0)
        return mp_request_started(request, MP_OK);
    comm->sent_bytes += (int64_t)count * (int64_t)sizeof *mine * (comm->ranks - 1);
    if (queued)
        return mp_request_queued(request, queued->gather_counts(request, mine, count, all, error));
    return started(request, comm->operations->all_gather(comm, request->messages, 0, mine,
                                                         (size_t)count * sizeof *mine, all, error));
}

int mp_all_reduce_start(struct mp_comm *comm, float *values, size_t count, mp_stream stream,
                        struct mp_request *request, struct mp_error *error) {
    const struct mp_queued_operations *queued = mp_transport_queued(comm);
    MP_TRY(mp_request_begin(comm, request, MP_COMM_BACKGROUND, stream, error));
    if (comm->ranks == 1 || count == 0)
        return mp_request_started(request, MP_OK);
    /* What a ring sends; the library may choose another algorithm of the same volume. */
    comm->sent_bytes +=
        (int64_t)(2 * count * sizeof *values / (size_t)comm->ranks * (size_t)(comm->ranks - 1));
    if (queued)
        return mp_request_queued(request, queued->all_reduce(request, values, count, error));
    comm->operations->settle(comm, stream);
    return started(request,
                   comm->operations->all_reduce(comm, request->messages, 0, MP_REDUCTION_FLOAT_SUM,
                                                values, count, error));
}

void mp_comm_describe(struct mp_comm *comm, char *text, size_t size, bool *ranks_share_cores) {
    comm->operations->describe(comm, text, size);
    *ranks_share_cores = mp_transport_of(comm)->ranks_share_cores;
}
