/* Dense operations on the device's memory: exchange of rows, all-reduce. */
#include "reference/comm/nccl/nccl.h"

/* One group of sends and receives, exact: ranks without rows for each other are left out. */
static int queue_rows(struct mp_nccl *nccl, const int send_rows[], const int receive_rows[],
                      size_t row_bytes, const char *send, char *receive) {
    const struct mp_nccl_library *library = &nccl->library;
    const int rank = nccl->transport.comm.rank;
    int result = library->group_start();
    for (int r = 0; result == MP_NCCL_SUCCESS && r < nccl->transport.comm.ranks; r++) {
        size_t out = (size_t)send_rows[r] * row_bytes, in = (size_t)receive_rows[r] * row_bytes;
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

int mp_nccl_exchange(struct mp_request *request, const int send_rows[], const int receive_rows[],
                     size_t row_bytes, const void *send, void *receive, struct mp_error *error) {
    struct mp_nccl *nccl = mp_nccl_of(&request->transport->comm);
    const int rank = nccl->transport.comm.rank;
    const char *own_from = send;
    char *own_to = receive;
    int code = mp_nccl_begin(request, "exchanging rows", error);
    if (!code)
        code = mp_nccl_check(nccl, "exchanging rows",
                             queue_rows(nccl, send_rows, receive_rows, row_bytes, send, receive),
                             error);
    if (code)
        return code;
    for (int r = 0; r < rank; r++) {
        own_from += (size_t)send_rows[r] * row_bytes;
        own_to += (size_t)receive_rows[r] * row_bytes;
    }
    mp_transport_copy(&nccl->transport, nccl->exchange.stream, own_to, own_from,
                      (size_t)send_rows[rank] * row_bytes);
    return mp_nccl_end(request);
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
