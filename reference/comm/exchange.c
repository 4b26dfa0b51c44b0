/* Exchange of rows: exact all-to-all-v.
 *
 * Every rank begins with its successor, so that at no time all send to the same one. */
#include "reference/comm/transport.h"

static size_t rows_before(const int rows[], int rank) {
    size_t sum = 0;
    for (int r = 0; r < rank; r++)
        sum += (size_t)rows[r];
    return sum;
}

static int check_rows(const struct mp_comm *comm, const int send_rows[], const int receive_rows[],
                      struct mp_error *error) {
    for (int r = 0; r < comm->ranks; r++)
        if (send_rows[r] < 0 || receive_rows[r] < 0)
            return mp_fail(error, MP_EINVAL,
                           "rank %d: an exchange of %d rows to and %d rows from rank %d",
                           comm->rank, send_rows[r], receive_rows[r], r);
    if (send_rows[comm->rank] != receive_rows[comm->rank])
        return mp_fail(error, MP_EINVAL, "rank %d: it sends itself %d rows and expects %d",
                       comm->rank, send_rows[comm->rank], receive_rows[comm->rank]);
    return MP_OK;
}

/* The same limit as where they are messages, so that what one transport carries all do. */
static int check_messages(const struct mp_comm *comm, const int send_rows[],
                          const int receive_rows[], size_t row_bytes, struct mp_error *error) {
    int code = MP_OK;
    for (int r = 0; code == MP_OK && r < comm->ranks; r++) {
        if (r == comm->rank)
            continue;
        code = mp_message_check(comm, (size_t)send_rows[r] * row_bytes, r, error);
        if (code == MP_OK)
            code = mp_message_check(comm, (size_t)receive_rows[r] * row_bytes, r, error);
    }
    return code;
}

int mp_exchange_start(struct mp_comm *comm, const int *send_rows, const int *receive_rows,
                      size_t row_bytes, const void *send, void *receive, mp_stream stream,
                      struct mp_request *request, struct mp_error *error) {
    const int rank = comm->rank, ranks = comm->ranks;
    int tag = 0;
    int code = check_rows(comm, send_rows, receive_rows, error);
    if (code == MP_OK)
        code = mp_request_begin(comm, request, MP_COMM_EXCHANGE, stream, error);
    if (code)
        return code;
    const struct mp_queued_operations *queued = mp_transport_queued(comm);
    if (queued) {
        code = check_messages(comm, send_rows, receive_rows, row_bytes, error);
        if (code == MP_OK)
            code =
                queued->exchange(request, send_rows, receive_rows, row_bytes, send, receive, error);
        return mp_request_queued(request, code);
    }
    if (ranks > 1) {
        code = mp_transport_take_tags(mp_transport_of(comm), 1, &tag, error);
        comm->operations->settle(comm, stream);
    }
    const size_t own_from = rows_before(send_rows, rank), own_to = rows_before(receive_rows, rank);
    size_t at = own_to;
    for (int i = 1; code == MP_OK && i < ranks; i++) {
        int source = (rank + ranks - i) % ranks;
        if (source == ranks - 1)
            at = rows_before(receive_rows, ranks);
        at -= (size_t)receive_rows[source];
        code = mp_request_receive(request, (char *)receive + at * row_bytes,
                                  (size_t)receive_rows[source] * row_bytes, source, tag,
                                  mp_plain_note, error);
    }
    at = own_from + (size_t)send_rows[rank];
    for (int i = 1; code == MP_OK && i < ranks; i++) {
        int to = (rank + i) % ranks;
        if (to == 0)
            at = 0;
        code = mp_request_send(request, (const char *)send + at * row_bytes,
                               (size_t)send_rows[to] * row_bytes, to, tag, mp_plain_note, error);
        at += (size_t)send_rows[to];
    }
    if (code == MP_OK)
        mp_transport_copy(mp_transport_of(comm), stream, (char *)receive + own_to * row_bytes,
                          (const char *)send + own_from * row_bytes,
                          (size_t)send_rows[rank] * row_bytes);
    return mp_request_started(request, code);
}
