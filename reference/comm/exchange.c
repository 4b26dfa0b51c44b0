/* Exchange of rows: exact all-to-all-v, in one round or several.
 *
 * Every rank begins with its successor, so that at no time all send to the same one. */
#include <string.h>

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
    for (int r = 0; r < comm->ranks; r++) {
        if (r == comm->rank)
            continue;
        MP_TRY(mp_message_check(comm, (size_t)send_rows[r] * row_bytes, r, error));
        MP_TRY(mp_message_check(comm, (size_t)receive_rows[r] * row_bytes, r, error));
    }
    return MP_OK;
}

/* From where blocks have come to where they leave, or on the way back from there. */
static void put_in_order(struct mp_request *request, mp_stream stream) {
    const struct mp_exchange_walk *walk = &request->rows.walk;
    const struct mp_exchange_round *round = walk->round;
    const char *from = request->rows.cargo[0].memory[walk->from];
    char *to = request->rows.cargo[0].memory[walk->to];
    size_t row = request->rows.cargo[0].row_bytes;
    for (const struct mp_exchange_block *b = round->block; b < round->block + round->blocks; b++)
        mp_transport_copy(
            request->transport, stream, to + (size_t)(walk->back ? b->from : b->to) * row,
            from + (size_t)(walk->back ? b->to : b->from) * row, (size_t)b->rows * row);
}

static struct mp_exchange_hop hop_of(const struct mp_exchange_rows *rows) {
    const struct mp_exchange_walk *walk = &rows->walk;
    const struct mp_exchange_round *round = walk->round;
    struct mp_exchange_hop hop = {.send_rows = walk->back ? round->receive_rows : round->send_rows,
                                  .receive_rows =
                                      walk->back ? round->send_rows : round->receive_rows,
                                  .cargoes = rows->cargoes};
    for (int i = 0; i < rows->cargoes; i++) {
        hop.cargo[i].from = rows->cargo[i].memory[walk->from];
        hop.cargo[i].to = rows->cargo[i].memory[walk->to];
        hop.cargo[i].row_bytes = rows->cargo[i].row_bytes;
    }
    return hop;
}

bool mp_exchange_reads_next(const struct mp_request *request) {
    const struct mp_exchange_rows *rows = &request->rows;
    return rows->maker && rows->maker->reads && rows->walk.to == MP_ROWS_IN_TRANSIT;
}

int mp_exchange_next_hop(struct mp_request *request, mp_stream stream, struct mp_exchange_hop *hop,
                         struct mp_error *error) {
    struct mp_exchange_rows *rows = &request->rows;
    hop->send_rows = NULL;
    while (rows->walk.to != MP_ROWS_THERE && mp_exchange_walk_next(&rows->walk)) {
        if (rows->walk.travels) {
            *hop = hop_of(rows);
            return MP_OK;
        }
        if (rows->maker)
            MP_TRY(rows->maker->make(rows->maker->context, stream, error));
        else
            put_in_order(request, stream);
    }
    return MP_OK;
}

void mp_exchange_copy_own(struct mp_request *request, const struct mp_exchange_hop *hop,
                          mp_stream stream) {
    const int rank = request->transport->comm.rank;
    const size_t to = rows_before(hop->receive_rows, rank);
    const size_t from = rows_before(hop->send_rows, rank), rows = (size_t)hop->send_rows[rank];
    for (int i = 0; i < hop->cargoes; i++) {
        size_t row_bytes = hop->cargo[i].row_bytes;
        mp_transport_copy(request->transport, stream, hop->cargo[i].to + to * row_bytes,
                          hop->cargo[i].from + from * row_bytes, rows * row_bytes);
    }
}

/* The messages of a hop's cargo. */
static int post(struct mp_request *request, const struct mp_exchange_hop *hop, int cargo,
                struct mp_error *error) {
    const struct mp_comm *comm = &request->transport->comm;
    const int rank = comm->rank, ranks = comm->ranks, tag = request->rows.tag + cargo;
    const size_t row_bytes = hop->cargo[cargo].row_bytes;
    const char *send = hop->cargo[cargo].from;
    char *receive = hop->cargo[cargo].to;
    size_t at = rows_before(hop->receive_rows, rank);
    for (int i = 1; i < ranks; i++) {
        int source = (rank + ranks - i) % ranks;
        if (source == ranks - 1)
            at = rows_before(hop->receive_rows, ranks);
        at -= (size_t)hop->receive_rows[source];
        MP_TRY(mp_request_receive(request, receive + at * row_bytes,
                                  (size_t)hop->receive_rows[source] * row_bytes, source, tag,
                                  mp_plain_note, error));
    }
    at = rows_before(hop->send_rows, rank + 1);
    for (int i = 1; i < ranks; i++) {
        int to = (rank + i) % ranks;
        if (to == 0)
            at = 0;
        MP_TRY(mp_request_send(request, send + at * row_bytes,
                               (size_t)hop->send_rows[to] * row_bytes, to, tag, mp_plain_note,
                               error));
        at += (size_t)hop->send_rows[to];
    }
    return MP_OK;
}

static int post_all(struct mp_request *request, const struct mp_exchange_hop *hop,
                    struct mp_error *error) {
    struct mp_comm *comm = &request->transport->comm;
    if (comm->ranks == 1)
        return MP_OK;
    comm->operations->settle(comm, request->stream);
    for (int i = 0; i < hop->cargoes; i++)
        MP_TRY(post(request, hop, i, error));
    return MP_OK;
}

/* All that can be done before messages have come, or the end. */
static int go_on(struct mp_request *request, struct mp_error *error) {
    struct mp_exchange_hop hop;
    int code = MP_OK;
    while (code == MP_OK && !request->active) {
        code = mp_exchange_next_hop(request, request->stream, &hop, error);
        if (code || !hop.send_rows)
            break;
        code = post_all(request, &hop, error);
        if (code == MP_OK)
            mp_exchange_copy_own(request, &hop, request->stream);
    }
    request->go_on = request->rows.walk.to == MP_ROWS_THERE ? NULL : go_on;
    return code;
}

/* What travels is in request->rows but for its walk. */
static int start(struct mp_comm *comm, const struct mp_exchange_path *path, bool back,
                 struct mp_request *request, struct mp_error *error) {
    const struct mp_queued_operations *queued = mp_transport_queued(comm);
    struct mp_transport *transport = mp_transport_of(comm);
    struct mp_exchange_rows *rows = &request->rows;
    int code = MP_OK;
    rows->walk = mp_exchange_walk_begin(path, back);
    if (queued) {
        for (int i = 0; code == MP_OK && i < path->rounds * rows->cargoes; i++)
            code = check_messages(comm, &path->round[i % path->rounds],
                                  rows->cargo[i / path->rounds].row_bytes, error);
        return mp_request_queued(request, code ? code : queued->exchange(request, error));
    }
    if (comm->ranks > 1)
        code = mp_transport_take_tags(transport, rows->cargoes, &rows->tag, error);
    transport->advancing = true; /* what a maker does may pause to let others move on */
    code = code ? code : go_on(request, error);
    transport->advancing = false;
    return mp_request_started(request, code);
}

int mp_exchange_made_start(struct mp_comm *comm, const struct mp_exchange_path *path, bool back,
                           const struct mp_exchange_cargo cargo[], int cargoes,
                           const struct mp_exchange_maker *maker, mp_stream stream,
                           struct mp_request *request, struct mp_error *error) {
    for (int i = 0; i < path->rounds; i++)
        MP_TRY(check_rows(comm, &path->round[i], error));
    MP_TRY(mp_request_begin(comm, request, MP_COMM_EXCHANGE, stream, error));
    request->rows = (struct mp_exchange_rows){.cargoes = cargoes, .maker = maker};
    memcpy(request->rows.cargo, cargo, (size_t)cargoes * sizeof *cargo);
    return start(comm, path, back, request, error);
}

int mp_exchange_path_start(struct mp_comm *comm, const struct mp_exchange_path *path, bool back,
                           size_t row_bytes, const void *here, void *there, void *const transit[2],
                           mp_stream stream, struct mp_request *request, struct mp_error *error) {
    const bool passes_on = path->rounds > 1;
    const struct mp_exchange_cargo cargo = {
        row_bytes,
        {(void *)here, passes_on ? transit[0] : NULL, passes_on ? transit[1] : NULL, there}};
    return mp_exchange_made_start(comm, path, back, &cargo, 1, NULL, stream, request, error);
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
