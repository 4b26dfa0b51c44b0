/* Dense operations on the device's memory: exchange of rows, all-reduce. */
#include "reference/comm/nccl/nccl.h"

/* One group of sends and receives, exact: ranks without rows for each other are left out. */
static int queue_rows(struct mp_nccl *nccl, const struct mp_exchange_hop *hop, size_t row_bytes) {
    const struct mp_nccl_library *library = &nccl->library;
    const int rank = nccl->transport.comm.rank;
    const char *send = hop->from;
    char *receive = hop->to;
    int result = library->group_start();
    for (int r = 0; result == MP_NCCL_SUCCESS && r < nccl->transport.comm.ranks; r++) {
        size_t out = (size_t)hop->send_rows[r] * row_bytes;
        size_t in = (size_t)hop->receive_rows[r] * row_bytes;
        if (out && r != rank) {
            result = library->send(send, out, MP_NCCL_UINT8, r, nccl->exchange.comm,
                                   nccl->exchange.native);
            nccl->transport.comm.sent_bytes += (int64_t)out;
        }
        if (result == MP_NCCL_SUCCESS && in && r != rank)
            result = library->receive(receive, in, MP_NCCL_UINT8, r, nccl->exchange.comm,
                                      nccl->exchange.native);
        send += out;
        receive += in;
    }
    int ended = library->group_end();
    return result == MP_NCCL_SUCCESS ? ended : result;
}

int mp_nccl_exchange(struct mp_request *request, struct mp_error *error) {
    struct mp_nccl *nccl = mp_nccl_of(&request->transport->comm);
    static const char doing[] = "exchanging rows";
    struct mp_exchange_hop hop;
    int code = mp_nccl_begin(request, doing, error);
    while (!code && mp_exchange_next_hop(request, nccl->exchange.stream, &hop)) {
        code = mp_nccl_check(nccl, doing, queue_rows(nccl, &hop, request->rows.row_bytes), error);
        if (!code)
            mp_exchange_copy_own(request, &hop, nccl->exchange.stream);
    }
    return code ? code : mp_nccl_end(request);
}

int mp_nccl_all_reduce(struct mp_request *request, float *values, size_t count,
                       struct mp_error *error) {
    static const char doing[] = "in an all-reduce";
    struct mp_nccl *nccl = mp_nccl_of(&request->transport->comm);
    int code = mp_nccl_begin(request, doing, error);
    if (!code)
        code = mp_nccl_check(nccl, doing,
                             nccl->library.all_reduce(values, values, count, MP_NCCL_FLOAT32,
                                                      MP_NCCL_SUM, nccl->background.comm,
                                                      nccl->background.native),
                             error);
    return code ? code : mp_nccl_end(request);
}
