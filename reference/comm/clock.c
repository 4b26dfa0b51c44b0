/* Clocks: rank 0 plays ping-pong with every other rank and keeps the tightest trip. */
#include "profiler/record/record.h"
#include "reference/comm/transport.h"

static int pass(struct mp_comm *comm, int64_t *memory, size_t bytes, int rank, int tag, bool send,
                struct mp_error *error) {
    const struct mp_queued_operations *queued = mp_transport_queued(comm);
    if (queued)
        return queued->pass(comm, memory, bytes, rank, send, error);
    struct mp_request *request = mp_transport_of(comm)->blocking;
    MP_TRY(mp_request_begin(comm, request, MP_COMM_EXCHANGE, NULL, error));
    int code = send ? mp_request_send(request, memory, bytes, rank, tag, mp_plain_note, error)
                    : mp_request_receive(request, memory, bytes, rank, tag, mp_plain_note, error);
    return code ? mp_request_started(request, code) : mp_request_wait(request, error);
}

/* The offset of the tightest trip, off by at most half of it, goes to the other rank. */
static int measure(struct mp_comm *comm, int rank, int trips, int tag, struct mp_error *error) {
    int64_t best[2] = {0, INT64_MAX}; /* offset, error */
    for (int trip = 0; trip < trips; trip++) {
        int64_t there[2] = {0, 0};
        int64_t sent = mp_clock_ns();
        MP_TRY(pass(comm, there, sizeof *there, rank, tag, true, error));
        MP_TRY(pass(comm, there, sizeof there, rank, tag, false, error));
        int64_t offset, round_trip;
        mp_clock_offset(sent, there[0], there[1], mp_clock_ns(), &offset, &round_trip);
        if ((round_trip + 1) / 2 < best[1]) {
            best[0] = offset;
            best[1] = (round_trip + 1) / 2;
        }
    }
    return pass(comm, best, sizeof best, rank, tag, true, error);
}

static int answer(struct mp_comm *comm, int trips, int tag, int64_t best[2],
                  struct mp_error *error) {
    for (int trip = 0; trip < trips; trip++) {
        int64_t here[2];
        MP_TRY(pass(comm, here, sizeof *here, 0, tag, false, error));
        here[0] = mp_clock_ns();
        here[1] = mp_clock_ns();
        MP_TRY(pass(comm, here, sizeof here, 0, tag, true, error));
    }
    return pass(comm, best, 2 * sizeof *best, 0, tag, false, error);
}

int mp_comm_clock_offset(struct mp_comm *comm, int trips, int64_t *offset_ns, int64_t *error_ns,
                         struct mp_error *error) {
    int64_t best[2] = {0, 0};
    if (trips < 1)
        return mp_fail(error, MP_EINVAL, "rank %d: clocks measured by %d trips", comm->rank, trips);
    if (mp_transport_of(comm)->host)
        return mp_comm_clock_offset(mp_transport_of(comm)->host, trips, offset_ns, error_ns, error);
    int tag = 0;
    if (comm->ranks > 1)
        MP_TRY(mp_transport_take_tags(mp_transport_of(comm), 1, &tag, error));
    for (int rank = 1; comm->rank == 0 && rank < comm->ranks; rank++)
        MP_TRY(measure(comm, rank, trips, tag, error));
    if (comm->rank != 0)
        MP_TRY(answer(comm, trips, tag, best, error));
    *offset_ns = best[0];
    *error_ns = best[1];
    return MP_OK;
}
