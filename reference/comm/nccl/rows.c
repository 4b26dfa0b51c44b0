/* Dense operations on the device's memory: exchange of rows, all-reduce. */
#include "reference/comm/nccl/nccl.h"

/* A cargo's sends and receives: ranks without rows for each other are left out. */
static int queue_cargo(struct mp_nccl *nccl, const struct mp_exchange_hop *hop, int cargo) {
    const struct mp_nccl_library *library = &nccl->library;
    const int rank = nccl->transport.comm.rank;
    const size_t row_bytes = hop->cargo[cargo].row_bytes;
    const char *send = hop->cargo[cargo].from;
    char *receive = hop->cargo[cargo].to;
    int result = MP_NCCL_SUCCESS;
    for (int r = 0; result == MP_NCCL_SUCCESS && r < nccl->transport.comm.ranks; r++) {
        size_t out = (size_t)hop->send_rows[r] * row_bytes;
        size_t in = (size_t)hop->receive_rows[r] * row_bytes;
        if (out && r != rank) {
            result = library->send(send, out, MP_NCCL_UINT8, r, nccl->exchange.comm,
                                   nccl->exchange.native);
            mp_comm_sent(&nccl->transport.comm, r, out);
        }
        if (result == MP_NCCL_SUCCESS && in && r != rank)
            result = library->receive(receive, in, MP_NCCL_UINT8, r, nccl->exchange.comm,
                                      nccl->exchange.native);
        send += out;
        receive += in;
    }
    return result;
}

/* One group of all, exact. */
static int queue_rows(struct mp_nccl *nccl, const struct mp_exchange_hop *hop) {
    int result = nccl->library.group_start();
    for (int i = 0; result == MP_NCCL_SUCCESS && i < hop->cargoes; i++)
        result = queue_cargo(nccl, hop, i);
    int ended = nccl->library.group_end();
    return result == MP_NCCL_SUCCESS ? ended : result;
}

static int go_on(struct mp_request *request, struct mp_error *error);

/* All rounds, or those before one for which the host has to see what has come. */
static int queue_rounds(struct mp_request *request, struct mp_error *error) {
    struct mp_nccl *nccl = mp_nccl_of(&request->transport->comm);
    const struct mp_nccl_request *own = request->queued;
    struct mp_exchange_hop hop;
    int code = MP_OK;
    request->go_on = NULL;
    while (!code && !request->go_on) {
        code = mp_exchange_next_hop(request, nccl->exchange.stream, &hop, error);
        if (code || !hop.send_rows)
            break;
        code = mp_nccl_check(nccl, own->doing, queue_rows(nccl, &hop), error);
        if (!code)
            mp_exchange_copy_own(request, &hop, nccl->exchange.stream);
        request->go_on = mp_exchange_reads_next(request) ? go_on : NULL;
    }
    return code ? code : mp_nccl_end(request);
}

static int go_on(struct mp_request *request, struct mp_error *error) {
    struct mp_nccl *nccl = mp_nccl_of(&request->transport->comm);
    const struct mp_nccl_request *own = request->queued;
    MP_TRY(mp_nccl_host_wait(nccl, own->done, own->doing, error));
    return queue_rounds(request, error);
}

int mp_nccl_exchange(struct mp_request *request, struct mp_error *error) {
    MP_TRY(mp_nccl_begin(request, "exchanging rows", error));
    return queue_rounds(request, error);
}

int mp_nccl_all_reduce(struct mp_request *request, float *values, size_t count,
                       struct mp_error *error) {
    static const char doing[] = "in an all-reduce";
    struct mp_nccl *nccl = mp_nccl_of(&request->transport->comm);
    MP_TRY(mp_nccl_begin(request, doing, error));
    MP_TRY(
        mp_nccl_check(nccl, doing,
                      nccl->library.all_reduce(values, values, count, MP_NCCL_FLOAT32, MP_NCCL_SUM,
                                               nccl->background.comm, nccl->background.native),
                      error));
    return mp_nccl_end(request);
}
