/* Exchange of rows: exact all-to-all-v, in one round or several.
 *
 * Every rank begins with its successor, so that at no time all send to the same one. */
#include "reference/comm/transport.h"

static size_t rows_before(const int rows[], int rank) {
    size_t sum = 0;
    for (int r = 0; r < rank; r++)
        sum += (size_t)rows[r];
    return sum;
}

static int check_rows(const struct mp_comm *comm, const struct mp_exchange_round *round,
                      struct mp_error *error) {
    const int *send_rows = round->send_rows, *receive_rows = round->receive_rows;
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
static int check_messages(const struct mp_comm *comm, const struct mp_exchange_round *round,
                          size_t row_bytes, struct mp_error *error) {
    const int *send_rows = round->send_rows, *receive_rows = round->receive_rows;
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

bool mp_exchange_next_hop(struct mp_request *request, mp_stream stream,
                          struct mp_exchange_hop *hop) {
    struct mp_exchange_rows *rows = &request->rows;
    struct mp_exchange_walk *walk = &rows->walk;
    while (walk->to != MP_ROWS_THERE && mp_exchange_walk_next(walk)) {
        const struct mp_exchange_round *round = walk->round;
        const char *from = rows->memory[walk->from];
        char *to = rows->memory[walk->to];
        if (walk->travels) {
            *hop = (struct mp_exchange_hop){walk->back ? round->receive_rows : round->send_rows,
                                            walk->back ? round->send_rows : round->receive_rows,
                                            from, to};
            return true;
        }
        for (const struct mp_exchange_block *b = round->block; b < round->block + round->blocks;
             b++)
            mp_transport_copy(request->transport, stream,
                              to + (size_t)(walk->back ? b->from : b->to) * rows->row_bytes,
                              from + (size_t)(walk->back ? b->to : b->from) * rows->row_bytes,
                              (size_t)b->rows * rows->row_bytes);
    }
    return false;
}

void mp_exchange_copy_own(struct mp_request *request, const struct mp_exchange_hop *hop,
                          mp_stream stream) {
    const int rank = request->transport->comm.rank;
    const size_t row_bytes = request->rows.row_bytes;
    mp_transport_copy(request->transport, stream,
                      hop->to + rows_before(hop->receive_rows, rank) * row_bytes,
                      hop->from + rows_before(hop->send_rows, rank) * row_bytes,
                      (size_t)hop->send_rows[rank] * row_bytes);
}

/* The messages of a hop. */
static int post(struct mp_request *request, const struct mp_exchange_hop *hop,
                struct mp_error *error) {
    const struct mp_comm *comm = &request->transport->comm;
    const int rank = comm->rank, ranks = comm->ranks, tag = request->rows.tag;
    const size_t row_bytes = request->rows.row_bytes;
    size_t at = rows_before(hop->receive_rows, rank);
    int code = MP_OK;
    for (int i = 1; code == MP_OK && i < ranks; i++) {
        int source = (rank + ranks - i) % ranks;
        if (source == ranks - 1)
            at = rows_before(hop->receive_rows, ranks);
        at -= (size_t)hop->receive_rows[source];
        code = mp_request_receive(request, hop->to + at * row_bytes,
                                  (size_t)hop->receive_rows[source] * row_bytes, source, tag,
                                  mp_plain_note, error);
    }
    at = rows_before(hop->send_rows, rank + 1);
    for (int i = 1; code == MP_OK && i < ranks; i++) {
        int to = (rank + i) % ranks;
        if (to == 0)
            at = 0;
        code =
            mp_request_send(request, hop->from + at * row_bytes,
                            (size_t)hop->send_rows[to] * row_bytes, to, tag, mp_plain_note, error);
        at += (size_t)hop->send_rows[to];
    }
    return code;
}

/* All that can be done before messages have come, or the end. */
static int go_on(struct mp_request *request, struct mp_error *error) {
    struct mp_comm *comm = &request->transport->comm;
    struct mp_exchange_hop hop;
    int code = MP_OK;
    while (code == MP_OK && !request->active &&
           mp_exchange_next_hop(request, request->stream, &hop)) {
        if (comm->ranks > 1) {
            comm->operations->settle(comm, request->stream);
            code = post(request, &hop, error);
        }
        if (code == MP_OK)
            mp_exchange_copy_own(request, &hop, request->stream);
    }
    request->go_on = request->rows.walk.to == MP_ROWS_THERE ? NULL : go_on;
    return code;
}

int mp_exchange_path_start(struct mp_comm *comm, const struct mp_exchange_path *path, bool back,
                           size_t row_bytes, const void *here, void *there, void *const transit[2],
                           mp_stream stream, struct mp_request *request, struct mp_error *error) {
    const struct mp_queued_operations *queued = mp_transport_queued(comm);
    int code = MP_OK;
    for (int i = 0; code == MP_OK && i < path->rounds; i++)
        code = check_rows(comm, &path->round[i], error);
    if (code == MP_OK)
        code = mp_request_begin(comm, request, MP_COMM_EXCHANGE, stream, error);
    if (code)
        return code;
    request->rows = (struct mp_exchange_rows){
        .walk = mp_exchange_walk_begin(path, back),
        .memory = {[MP_ROWS_HERE] = (void *)here, [MP_ROWS_THERE] = there},
        .row_bytes = row_bytes};
    if (path->rounds > 1) {
        request->rows.memory[MP_ROWS_IN_TRANSIT] = transit[0];
        request->rows.memory[MP_ROWS_IN_TRANSIT_2] = transit[1];
    }
    if (queued) {
        for (int i = 0; code == MP_OK && i < path->rounds; i++)
            code = check_messages(comm, &path->round[i], row_bytes, error);
        return mp_request_queued(request, code ? code : queued->exchange(request, error));
    }
    if (comm->ranks > 1)
        code = mp_transport_take_tags(mp_transport_of(comm), 1, &request->rows.tag, error);
    return mp_request_started(request, code ? code : go_on(request, error));
}

int mp_exchange_start(struct mp_comm *comm, const int *send_rows, const int *receive_rows,
                      size_t row_bytes, const void *send, void *receive, mp_stream stream,
                      struct mp_request *request, struct mp_error *error) {
    const struct mp_exchange_path path = {
        .ranks = comm->ranks,
        .rounds = 1,
        .round = {{.send_rows = send_rows, .receive_rows = receive_rows}}};
    return mp_exchange_path_start(comm, &path, false, row_bytes, send, receive, NULL, stream,
                                  request, error);
}
