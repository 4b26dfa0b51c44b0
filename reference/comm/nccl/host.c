/* Host memory over NCCL: through page-locked memory and a copy on the device, in parts.  The host
 * waits for it, hence on the exchange lane. */
#include <string.h>

#include "reference/comm/nccl/nccl.h"

static const struct mp_device_operations *operations_of(const struct mp_nccl *nccl) {
    return nccl->transport.device->operations;
}

static void stage_in(struct mp_nccl *nccl, const void *from, size_t bytes) {
    memcpy(nccl->host_stage, from, bytes);
    operations_of(nccl)->copy(nccl->transport.device, nccl->exchange.stream, nccl->stage,
                              nccl->host_stage, bytes);
}

static int wait_for_stage(struct mp_nccl *nccl, const char *doing, struct mp_error *error) {
    operations_of(nccl)->event_record(nccl->transport.device, nccl->exchange.passed,
                                      nccl->exchange.stream);
    return mp_nccl_host_wait(nccl, nccl->exchange.passed, doing, error);
}

static int stage_out(struct mp_nccl *nccl, void *to, size_t bytes, const char *doing,
                     struct mp_error *error) {
    operations_of(nccl)->copy(nccl->transport.device, nccl->exchange.stream, nccl->host_stage,
                              nccl->stage, bytes);
    MP_TRY(wait_for_stage(nccl, doing, error));
    memcpy(to, nccl->host_stage, bytes);
    return MP_OK;
}

int mp_nccl_barrier(struct mp_comm *comm, struct mp_error *error) {
    static const char doing[] = "in a barrier";
    struct mp_nccl *nccl = mp_nccl_of(comm);
    MP_TRY(mp_nccl_alive(nccl, doing, error));
    MP_TRY(mp_nccl_check(nccl, doing,
                         nccl->library.all_reduce(nccl->stage, nccl->stage, 1, MP_NCCL_UINT32,
                                                  MP_NCCL_SUM, nccl->exchange.comm,
                                                  nccl->exchange.native),
                         error));
    return wait_for_stage(nccl, doing, error);
}

int mp_nccl_broadcast(struct mp_comm *comm, void *memory, size_t bytes, int root,
                      struct mp_error *error) {
    static const char doing[] = "in a broadcast";
    struct mp_nccl *nccl = mp_nccl_of(comm);
    MP_TRY(mp_nccl_alive(nccl, doing, error));
    for (size_t begin = 0; begin < bytes; begin += MP_NCCL_STAGE) {
        size_t part = bytes - begin < MP_NCCL_STAGE ? bytes - begin : MP_NCCL_STAGE;
        char *at = (char *)memory + begin;
        if (comm->rank == root)
            stage_in(nccl, at, part);
        MP_TRY(
            mp_nccl_check(nccl, doing,
                          nccl->library.broadcast(nccl->stage, nccl->stage, part, MP_NCCL_UINT8,
                                                  root, nccl->exchange.comm, nccl->exchange.native),
                          error));
        MP_TRY(comm->rank == root ? wait_for_stage(nccl, doing, error)
                                  : stage_out(nccl, at, part, doing, error));
    }
    return MP_OK;
}

int mp_nccl_reduce(struct mp_comm *comm, enum mp_reduction reduction, double *values, int count,
                   struct mp_error *error) {
    static const char doing[] = "in an all-reduce";
    struct mp_nccl *nccl = mp_nccl_of(comm);
    const int most = MP_NCCL_STAGE / (int)sizeof *values;
    const int operation = reduction == MP_REDUCTION_DOUBLE_MAXIMUM ? MP_NCCL_MAX : MP_NCCL_SUM;
    MP_TRY(mp_nccl_alive(nccl, doing, error));
    for (int begin = 0; begin < count; begin += most) {
        int part = count - begin < most ? count - begin : most;
        size_t bytes = (size_t)part * sizeof *values;
        stage_in(nccl, values + begin, bytes);
        MP_TRY(mp_nccl_check(nccl, doing,
                             nccl->library.all_reduce(nccl->stage, nccl->stage, (size_t)part,
                                                      MP_NCCL_FLOAT64, operation,
                                                      nccl->exchange.comm, nccl->exchange.native),
                             error));
        MP_TRY(stage_out(nccl, values + begin, bytes, doing, error));
    }
    return MP_OK;
}

int mp_nccl_pass(struct mp_comm *comm, void *memory, size_t bytes, int rank, bool send,
                 struct mp_error *error) {
    static const char doing[] = "comparing clocks";
    struct mp_nccl *nccl = mp_nccl_of(comm);
    MP_TRY(mp_nccl_alive(nccl, doing, error));
    if (send) {
        stage_in(nccl, memory, bytes);
        comm->sent_bytes += (int64_t)bytes;
        MP_TRY(mp_nccl_check(nccl, doing,
                             nccl->library.send(nccl->stage, bytes, MP_NCCL_UINT8, rank,
                                                nccl->exchange.comm, nccl->exchange.native),
                             error));
        return wait_for_stage(nccl, doing, error);
    }
    MP_TRY(mp_nccl_check(nccl, doing,
                         nccl->library.receive(nccl->stage, bytes, MP_NCCL_UINT8, rank,
                                               nccl->exchange.comm, nccl->exchange.native),
                         error));
    return stage_out(nccl, memory, bytes, doing, error);
}

/* ---- counts ---- */

static const char gathering[] = "gathering counts";

/* Sends the next part of the caller's counts on its way. */
static int send_part(struct mp_nccl *nccl, struct mp_nccl_place *place, const uint32_t *mine,
                     struct mp_error *error) {
    const struct mp_device_operations *operations = operations_of(nccl);
    struct mp_device *device = nccl->transport.device;
    const size_t bytes = (size_t)place->part * sizeof *mine;
    memcpy(place->host_mine, mine + place->begin, bytes);
    operations->copy(device, nccl->exchange.stream, place->mine, place->host_mine, bytes);
    MP_TRY(mp_nccl_check(nccl, gathering,
                         nccl->library.all_gather(place->mine, place->all, (size_t)place->part,
                                                  MP_NCCL_UINT32, nccl->exchange.comm,
                                                  nccl->exchange.native),
                         error));
    operations->copy(device, nccl->exchange.stream, place->host_all, place->all,
                     (size_t)nccl->transport.comm.ranks * bytes);
    operations->event_record(device, place->done, nccl->exchange.stream);
    return MP_OK;
}

static int land_part(struct mp_nccl *nccl, struct mp_nccl_place *place, struct mp_error *error) {
    MP_TRY(mp_nccl_host_wait(nccl, place->done, gathering, error));
    for (int r = 0; r < nccl->transport.comm.ranks; r++)
        memcpy(place->result + (size_t)r * (size_t)place->count + place->begin,
               place->host_all + (size_t)r * (size_t)place->part,
               (size_t)place->part * sizeof *place->result);
    return MP_OK;
}

static int gather_over_nccl(struct mp_request *request, const uint32_t *mine, int count,
                            uint32_t *all, struct mp_error *error) {
    struct mp_nccl *nccl = mp_nccl_of(&request->transport->comm);
    struct mp_nccl_place *place = &nccl->place[nccl->next_place];
    if (place->request) /* the oldest, if there are more at a time than places */
        MP_TRY(mp_nccl_land_counts(place->request, error));
    nccl->next_place = (nccl->next_place + 1) % MP_NCCL_PLACES;
    place->result = all;
    place->count = count;
    for (place->begin = 0;; place->begin += place->part) {
        place->part = count - place->begin < MP_NCCL_COUNTS ? count - place->begin : MP_NCCL_COUNTS;
        MP_TRY(send_part(nccl, place, mine, error));
        if (place->begin + place->part == count)
            break;
        MP_TRY(land_part(nccl, place, error));
    }
    place->request = request;
    return MP_OK;
}

int mp_nccl_gather_counts(struct mp_request *request, const uint32_t *mine, int count,
                          uint32_t *all, struct mp_error *error) {
    struct mp_nccl *nccl = mp_nccl_of(&request->transport->comm);
    struct mp_nccl_request *own = request->queued;
    int code = mp_nccl_alive(nccl, gathering, error);
    if (!code)
        code = nccl->counts_host ? mp_gather_counts_start(nccl->counts_host, mine, count, all,
                                                          own->over_host, error)
                                 : gather_over_nccl(request, mine, count, all, error);
    own->doing = gathering;
    own->for_host = true;
    return code;
}

static int land_over_host(struct mp_nccl *nccl, struct mp_nccl_request *own,
                          struct mp_error *error) {
    int64_t before_ns = nccl->counts_host->waited_ns;
    int code = mp_request_wait(own->over_host, error);
    nccl->transport.comm.waited_ns += nccl->counts_host->waited_ns - before_ns;
    return code ? code : mp_nccl_alive(nccl, gathering, error);
}

int mp_nccl_land_counts(struct mp_request *request, struct mp_error *error) {
    struct mp_nccl *nccl = mp_nccl_of(&request->transport->comm);
    if (nccl->counts_host)
        return land_over_host(nccl, request->queued, error);
    for (int i = 0; i < MP_NCCL_PLACES; i++) {
        struct mp_nccl_place *place = &nccl->place[i];
        if (place->request != request)
            continue;
        place->request = NULL;
        return land_part(nccl, place, error);
    }
    return MP_OK;
}

/* ---- memory ---- */

int mp_nccl_create_stage(struct mp_nccl *nccl, struct mp_error *error) {
    const struct mp_device_operations *operations = operations_of(nccl);
    struct mp_device *device = nccl->transport.device;
    const int ranks = nccl->transport.comm.ranks;
    nccl->stage = mp_device_take(&nccl->memory, MP_NCCL_STAGE, 1);
    nccl->host_stage = mp_device_take_host(&nccl->memory, MP_NCCL_STAGE, 1);
    for (int i = 0; i < MP_NCCL_PLACES; i++) {
        struct mp_nccl_place *place = &nccl->place[i];
        const int64_t count = MP_NCCL_COUNTS;
        place->host_mine = mp_device_take_host(&nccl->memory, count, sizeof *place->mine);
        place->host_all = mp_device_take_host(&nccl->memory, ranks * count, sizeof *place->all);
        place->mine = mp_device_take(&nccl->memory, count, sizeof *place->mine);
        place->all = mp_device_take(&nccl->memory, ranks * count, sizeof *place->all);
    }
    if (nccl->memory.lacking)
        return mp_fail(error, MP_ENOMEM,
                       "rank %d: no memory for what the host sends and receives, and to gather "
                       "counts of %d ranks in",
                       nccl->transport.comm.rank, ranks);
    operations->zero(device, nccl->exchange.stream, nccl->stage, MP_NCCL_STAGE);
    for (int i = 0; i < MP_NCCL_PLACES; i++)
        MP_TRY(operations->event_create(device, &nccl->place[i].done, error));
    return MP_OK;
}
