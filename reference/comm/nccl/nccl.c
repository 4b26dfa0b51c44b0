/* NCCL: GPUs, everything queued on the streams of two lanes. */
#include "reference/comm/nccl/nccl.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <unistd.h>

#include "profiler/record/record.h"

/* Polls of an event between two looks at NCCL and the device, which cost more. */
enum { POLLS_BETWEEN_LOOKS = 64, POLLS_BEFORE_YIELD = 128 };

/* ---- failures ---- */

static void give_up(struct mp_nccl *nccl) {
    for (int lane = 0; lane < MP_COMM_LANES; lane++) {
        if (nccl->lane[lane].comm)
            nccl->library.comm_abort(nccl->lane[lane].comm);
        nccl->lane[lane].comm = NULL;
    }
}

/* What NCCL says of the failure, "" if nothing. */
static const char *last_words(const struct mp_nccl *nccl) {
    const char *words = NULL;
    for (int lane = 0; lane < MP_COMM_LANES && !(words && *words); lane++)
        if (nccl->lane[lane].comm)
            words = nccl->library.get_last_error(nccl->lane[lane].comm);
    return words ? words : "";
}

int mp_nccl_check(struct mp_nccl *nccl, const char *doing, int result, struct mp_error *error) {
    if (result == MP_NCCL_SUCCESS)
        return MP_OK;
    const char *last = last_words(nccl);
    mp_fail(&nccl->failure, MP_ECOMM, "rank %d: %s: NCCL: %s%s%.400s%s", nccl->transport.comm.rank,
            doing, nccl->library.get_error_string(result), *last ? " (" : "", last,
            *last ? ")" : "");
    /* Its sentence may run over lines; ours is one. */
    for (char *at = nccl->failure.text; *at; at++)
        if (*at == '\n')
            *at = ' ';
    give_up(nccl);
    return mp_fail(error, nccl->failure.code, "%s", nccl->failure.text);
}

/* An error that comes to light by itself belongs to what has been in flight for longest. */
static const char *oldest(const struct mp_nccl *nccl, int lane, const char *doing) {
    const struct mp_request *first = nccl->transport.in_flight[lane];
    const struct mp_nccl_request *own = first ? first->queued : NULL;
    return own && own->doing ? own->doing : doing;
}

int mp_nccl_alive(struct mp_nccl *nccl, const char *doing, struct mp_error *error) {
    if (nccl->failure.code)
        return mp_fail(error, nccl->failure.code, "%s", nccl->failure.text);
    int code = MP_OK;
    for (int lane = 0; !code && lane < MP_COMM_LANES; lane++) {
        int result = MP_NCCL_SUCCESS;
        code = mp_nccl_check(
            nccl, doing, nccl->library.comm_get_async_error(nccl->lane[lane].comm, &result), error);
        if (!code && result != MP_NCCL_IN_PROGRESS)
            code = mp_nccl_check(nccl, oldest(nccl, lane, doing), result, error);
    }
    return code;
}

static int look(struct mp_nccl *nccl, const char *doing, int64_t start_ns, struct mp_error *error) {
    const struct mp_error *device = &nccl->transport.device->error;
    int code = mp_nccl_alive(nccl, doing, error);
    if (!code && device->code)
        code = mp_fail(error, device->code, "%s", device->text);
    if (code || !nccl->patience_s ||
        mp_clock_ns() - start_ns < (int64_t)nccl->patience_s * 1000000000)
        return code;
    mp_fail(&nccl->failure, MP_ECOMM,
            "rank %d: %s: nothing has come for %d s; is another rank stuck, or has it ended?",
            nccl->transport.comm.rank, oldest(nccl, MP_COMM_EXCHANGE, doing), nccl->patience_s);
    give_up(nccl);
    return mp_fail(error, nccl->failure.code, "%s", nccl->failure.text);
}

int mp_nccl_host_wait(struct mp_nccl *nccl, mp_event event, const char *doing,
                      struct mp_error *error) {
    struct mp_device *device = nccl->transport.device;
    int64_t start_ns = mp_clock_ns();
    int code = MP_OK;
    for (int polls = 1; !device->operations->event_done(device, event); polls++) {
        if (polls % POLLS_BETWEEN_LOOKS == 0)
            code = look(nccl, doing, start_ns, error);
        if (code)
            break;
        if (nccl->transport.ranks_share_cores || polls > POLLS_BEFORE_YIELD)
            sched_yield();
    }
    /* What has come to its end after a failure has not brought anything. */
    if (!code)
        code = look(nccl, doing, mp_clock_ns(), error);
    nccl->transport.comm.waited_ns += mp_clock_ns() - start_ns;
    return code;
}

/* ---- requests ---- */

/* Rounds that the host had to wait for, of the lane's operations up to one. */
static int go_on_until(const struct mp_request *last, struct mp_error *error) {
    struct mp_request *request = last->transport->in_flight[last->lane];
    for (bool is_last = false; request && !is_last; request = request->next) {
        is_last = request == last;
        while (request->go_on)
            MP_TRY(request->go_on(request, error));
    }
    return MP_OK;
}

int mp_nccl_begin(struct mp_request *request, const char *doing, struct mp_error *error) {
    struct mp_nccl *nccl = mp_nccl_of(&request->transport->comm);
    struct mp_device *device = nccl->transport.device;
    struct mp_nccl_request *own = request->queued;
    own->doing = doing;
    own->for_host = false;
    MP_TRY(mp_nccl_alive(nccl, doing, error));
    MP_TRY(go_on_until(request, error));
    device->operations->event_record(device, own->ready, request->stream);
    device->operations->stream_wait(device, nccl->lane[request->lane].stream, own->ready);
    return MP_OK;
}

int mp_nccl_end(struct mp_request *request) {
    struct mp_nccl *nccl = mp_nccl_of(&request->transport->comm);
    const struct mp_nccl_request *own = request->queued;
    nccl->transport.device->operations->event_record(nccl->transport.device, own->done,
                                                     nccl->lane[request->lane].stream);
    return MP_OK;
}

static int wait_for(struct mp_request *request, struct mp_error *error) {
    struct mp_nccl *nccl = mp_nccl_of(&request->transport->comm);
    struct mp_transport *transport = &nccl->transport;
    const struct mp_nccl_request *own = request->queued;
    if (own->for_host)
        return mp_nccl_land_counts(request, error);
    MP_TRY(mp_nccl_alive(nccl, own->doing, error));
    MP_TRY(go_on_until(request, error));
    if (transport->observe)
        transport->observe(transport->observe_context, request->stream, true);
    transport->device->operations->stream_wait(transport->device, request->stream, own->done);
    if (transport->observe)
        transport->observe(transport->observe_context, request->stream, false);
    return MP_OK;
}

static int progress(struct mp_comm *comm, struct mp_error *error) {
    struct mp_nccl *nccl = mp_nccl_of(comm);
    int code = mp_nccl_alive(nccl, "looking for errors", error);
    return code || !nccl->counts_host ? code : mp_comm_progress(nccl->counts_host, error);
}

static void request_destroy(struct mp_request *request) {
    struct mp_nccl *nccl = mp_nccl_of(&request->transport->comm);
    struct mp_device *device = nccl->transport.device;
    struct mp_nccl_request *own = request->queued;
    for (int i = 0; i < MP_NCCL_PLACES; i++)
        if (nccl->place[i].request == request)
            nccl->place[i].request = NULL; /* nobody asks for the counts any more */
    if (own->ready)
        device->operations->event_destroy(device, own->ready);
    if (own->done)
        device->operations->event_destroy(device, own->done);
    mp_request_destroy(own->over_host);
    free(own);
    request->queued = NULL;
}

static int request_create(struct mp_request *request, struct mp_error *error) {
    struct mp_nccl *nccl = mp_nccl_of(&request->transport->comm);
    struct mp_device *device = nccl->transport.device;
    struct mp_nccl_request *own = request->queued = calloc(1, sizeof *own);
    if (!own)
        return MP_ENOMEM;
    MP_TRY(device->operations->event_create(device, &own->ready, error));
    MP_TRY(device->operations->event_create(device, &own->done, error));
    if (nccl->counts_host)
        MP_TRY(mp_request_create(nccl->counts_host, 0, 0, &own->over_host, error));
    return MP_OK; /* the request is destroyed by its creator */
}

/* ---- the comm ---- */

static void destroy_lane(struct mp_nccl *nccl, struct mp_nccl_lane *lane) {
    struct mp_device *device = nccl->transport.device;
    if (lane->comm)
        nccl->library.comm_destroy(lane->comm);
    if (lane->passed)
        device->operations->event_destroy(device, lane->passed);
    if (!lane->stream)
        return;
    device->operations->stream_synchronize(device, lane->stream);
    device->operations->stream_destroy(device, lane->stream);
}

static void nccl_destroy(struct mp_comm *comm) {
    struct mp_nccl *nccl = mp_nccl_of(comm);
    struct mp_device *device = nccl->transport.device;
    /* NCCL wants nothing in flight. */
    for (int i = 0; i < MP_COMM_LANES; i++)
        if (nccl->lane[i].comm && nccl->lane[i].passed) {
            device->operations->event_record(device, nccl->lane[i].passed, nccl->lane[i].stream);
            mp_nccl_host_wait(nccl, nccl->lane[i].passed, "leaving", NULL);
        }
    for (int i = 0; i < MP_COMM_LANES; i++)
        destroy_lane(nccl, &nccl->lane[i]);
    for (int i = 0; i < MP_NCCL_PLACES; i++)
        if (nccl->place[i].done)
            device->operations->event_destroy(device, nccl->place[i].done);
    mp_device_memory_release(&nccl->memory);
    free(nccl);
}

static void nccl_abort(struct mp_comm *comm, int status) {
    struct mp_nccl *nccl = mp_nccl_of(comm);
    mp_fail(&nccl->failure, MP_ECOMM, "rank %d: it was told to give up", comm->rank);
    give_up(nccl);
    if (nccl->transport.host)
        mp_comm_abort(nccl->transport.host, status);
}

static void nccl_describe(struct mp_comm *comm, char *text, size_t size) {
    const struct mp_nccl *nccl = mp_nccl_of(comm);
    int version = nccl->library.version;
    snprintf(text, size, "NCCL %d.%d.%d, host %s", version / 10000, version / 100 % 100,
             version % 100, nccl->host);
}

static const struct mp_queued_operations queued_operations = {
    .request_create = request_create,
    .request_destroy = request_destroy,
    .wait = wait_for,
    .progress = progress,
    .barrier = mp_nccl_barrier,
    .broadcast = mp_nccl_broadcast,
    .reduce = mp_nccl_reduce,
    .pass = mp_nccl_pass,
    .gather_counts = mp_nccl_gather_counts,
    .exchange = mp_nccl_exchange,
    .all_reduce = mp_nccl_all_reduce,
    .down = mp_nccl_down,
    .up = mp_nccl_up,
};

static const struct mp_comm_operations nccl_operations = {
    .name = "nccl",
    .destroy = nccl_destroy,
    .abort = nccl_abort,
    .describe = nccl_describe,
    .queued = &queued_operations,
};

const char *mp_comm_nccl_remark(const struct mp_comm *comm) {
    return comm->operations == &nccl_operations ? ((const struct mp_nccl *)comm)->remark : "";
}

/* ---- meeting ---- */

static void fill_card(const struct mp_nccl *nccl, const struct mp_nccl_settings *settings,
                      const struct mp_error *failure, struct mp_card *card) {
    *card = (struct mp_card){.rank = nccl->meeting.rank,
                             .ranks = nccl->meeting.ranks,
                             .nccl_version = nccl->library.version,
                             .ordinal = settings->ordinal};
    if (getrandom(&card->nonce, sizeof card->nonce, 0) != (ssize_t)sizeof card->nonce)
        card->nonce = (uint64_t)mp_clock_ns() << 16 ^ (uint64_t)getpid();
    card->nonce |= 1; /* 0 is none */
    if (settings->gpu) {
        memcpy(card->uuid, settings->gpu->uuid, sizeof card->uuid);
        snprintf(card->gpu, sizeof card->gpu, "%.127s", settings->gpu->name);
        card->processors = settings->gpu->processors;
    }
    snprintf(card->host, sizeof card->host, "%s", nccl->host);
    snprintf(card->failure, sizeof card->failure, "%.511s", failure->text);
    if (sched_getaffinity(0, sizeof card->cores, &card->cores)) {
        CPU_ZERO(&card->cores);
        CPU_SET(0, &card->cores);
    }
}

static int compare_gpus(struct mp_nccl *nccl, const struct mp_card *a, const struct mp_card *b,
                        struct mp_error *error) {
    static const unsigned char unknown[sizeof a->uuid] = {0};
    if (memcmp(a->uuid, unknown, sizeof unknown) != 0 &&
        memcmp(a->uuid, b->uuid, sizeof a->uuid) == 0)
        return mp_fail(error, MP_EINVAL,
                       "ranks %d and %d are both on GPU %d (%s) of host %s, which NCCL refuses; "
                       "give each rank a GPU of its own or use transport mpi",
                       a->rank, b->rank, b->ordinal, b->gpu, b->host);
    if (strcmp(a->gpu, b->gpu) != 0 && !*nccl->remark)
        snprintf(nccl->remark, sizeof nccl->remark,
                 "GPUs differ: rank %d has %s, rank %d has %s; the slower ones set the pace",
                 a->rank, *a->gpu ? a->gpu : "an unknown one", b->rank,
                 *b->gpu ? b->gpu : "an unknown one");
    return MP_OK;
}

/* Every rank draws the same conclusion from the same cards. */
static int judge_cards(struct mp_nccl *nccl, const struct mp_card cards[], struct mp_error *error) {
    const int ranks = nccl->meeting.ranks;
    for (int r = 0; r < ranks; r++)
        if (*cards[r].failure)
            return mp_fail(error, MP_ECOMM, "%s", cards[r].failure);
    for (int r = 1; r < ranks; r++)
        if (cards[r].nccl_version != cards[0].nccl_version)
            return mp_fail(error, MP_EVERSION,
                           "rank %d on host %s has NCCL %d, rank 0 on host %s has %d; all need the "
                           "same",
                           r, cards[r].host, cards[r].nccl_version, cards[0].host,
                           cards[0].nccl_version);
    for (int r = 1; r < ranks; r++)
        for (int other = 0; other < r; other++)
            MP_TRY(compare_gpus(nccl, &cards[other], &cards[r], error));
    return MP_OK;
}

static bool shares_cores(const struct mp_nccl *nccl, const struct mp_card cards[]) {
    cpu_set_t cores;
    int here = 0;
    CPU_ZERO(&cores);
    for (int r = 0; r < nccl->meeting.ranks; r++) {
        if (strcmp(cards[r].host, nccl->host) != 0)
            continue;
        here++;
        CPU_OR(&cores, &cores, &cards[r].cores);
    }
    return here > CPU_COUNT(&cores);
}

/* A quarter of the smallest GPU's multiprocessors. */
static int blocks_of(const struct mp_card cards[], int ranks) {
    int blocks = MP_NCCL_MOST_BLOCKS;
    for (int r = 0; r < ranks; r++) {
        int own = cards[r].processors ? cards[r].processors / 4 : MP_NCCL_BLOCKS;
        blocks = own < blocks ? own : blocks;
    }
    return blocks > 1 ? blocks : 1;
}

/* Both communicators, with ids of their own: neither has anything of the other's. */
static int join_lanes(struct mp_nccl *nccl, const struct mp_card cards[], struct mp_error *error) {
    const struct mp_comm *comm = &nccl->transport.comm;
    for (int lane = 0; lane < MP_COMM_LANES; lane++) {
        struct mp_nccl_config config = {.size = sizeof config,
                                        .magic = MP_NCCL_CONFIG_MAGIC,
                                        .version = MP_NCCL_OLDEST,
                                        .blocking = MP_NCCL_UNDEFINED,
                                        .cluster_blocks = MP_NCCL_UNDEFINED,
                                        .least_blocks = MP_NCCL_UNDEFINED,
                                        .most_blocks = blocks_of(cards, comm->ranks),
                                        .split_share = MP_NCCL_UNDEFINED};
        MP_TRY(mp_nccl_check(nccl, "joining the others",
                             nccl->library.comm_init_rank(&nccl->lane[lane].comm, comm->ranks,
                                                          cards[0].id[lane], comm->rank, &config),
                             error));
    }
    return MP_OK;
}

/* Meets the others, even when it can't take part, so that they learn why; then joins them. */
static int join(struct mp_nccl *nccl, const struct mp_nccl_settings *settings,
                struct mp_error *error) {
    struct mp_comm *comm = &nccl->transport.comm;
    struct mp_error own = {0};
    mp_nccl_id id[MP_COMM_LANES] = {{{0}}};
    int code = mp_nccl_load(&nccl->library, &own);
    if (code)
        mp_error_prefix(&own, "rank %d", comm->rank);
    for (int lane = 0; !code && comm->rank == 0 && lane < MP_COMM_LANES; lane++)
        code = mp_nccl_check(nccl, "making an id for its world",
                             nccl->library.get_unique_id(&id[lane]), &own);
    MP_AUTO(memory) struct mp_card *cards = NULL;
    MP_TRY(MP_NEW(cards, comm->ranks, error));
    fill_card(nccl, settings, &own, &cards[comm->rank]);
    memcpy(cards[comm->rank].id, id, sizeof id);
    int met = mp_meeting_hold(&nccl->meeting, cards, error);
    if (!code && !met)
        code = judge_cards(nccl, cards, error);
    else
        code = code ? mp_fail(error, code, "%s", own.text) : met;
    nccl->transport.ranks_share_cores = !code && shares_cores(nccl, cards);
    if (!code)
        code = join_lanes(nccl, cards, error);
    return code;
}

/* Rows are waited for at once, parameters and sums soon; computations come last, since they leave
 * little room and the few blocks of NCCL's would wait for it. */
static int create_lane(struct mp_nccl *nccl, enum mp_comm_lane which, struct mp_error *error) {
    struct mp_device *device = nccl->transport.device;
    struct mp_nccl_lane *lane = &nccl->lane[which];
    MP_TRY(device->operations->stream_create(device, which == MP_COMM_EXCHANGE ? 2 : 1,
                                             &lane->stream, error));
    MP_TRY(device->operations->event_create(device, &lane->passed, error));
    lane->native = device->operations->native_stream(device, lane->stream);
    return MP_OK;
}

static int create_queues(struct mp_nccl *nccl, struct mp_error *error) {
    for (int lane = 0; lane < MP_COMM_LANES; lane++)
        MP_TRY(create_lane(nccl, lane, error));
    nccl->buffer = mp_device_take(&nccl->memory, 2 * MP_NCCL_TREES_AT_A_TIME, nccl->piece);
    if (!nccl->buffer)
        return mp_fail(error, MP_ENOMEM, "rank %d: no memory for reductions in pieces of %zu bytes",
                       nccl->transport.comm.rank, nccl->piece);
    return mp_nccl_create_stage(nccl, error);
}

static int check_settings(const struct mp_nccl_settings *settings, const struct mp_nccl *nccl,
                          struct mp_error *error) {
    const struct mp_device *device = nccl->transport.device;
    if (!device || !device->deferred)
        return mp_fail(error, MP_EINVAL,
                       "rank %d: transport nccl is for the memory of GPUs; with device %s use "
                       "transport mpi",
                       nccl->meeting.rank, device ? device->operations->name : "cpu");
    if (settings->piece_bytes % 64)
        return mp_fail(error, MP_EINVAL, "rank %d: pieces of %zu bytes; they are a multiple of 64",
                       nccl->meeting.rank, settings->piece_bytes);
    return MP_OK;
}

int mp_comm_nccl_create(const struct mp_nccl_settings *settings, struct mp_device *device,
                        struct mp_comm **comm, struct mp_error *error) {
    struct mp_nccl *nccl;
    MP_TRY(MP_NEW(nccl, 1, error));
    nccl->transport.device = nccl->memory.device = device;
    int code = mp_meeting_find(settings, &nccl->meeting, error);
    if (!code)
        code = check_settings(settings, nccl, error);
    if (code) {
        free(nccl);
        return code;
    }
    nccl->transport.comm = (struct mp_comm){
        .operations = &nccl_operations, .rank = nccl->meeting.rank, .ranks = nccl->meeting.ranks};
    nccl->transport.host = settings->bootstrap;
    nccl->counts_host = settings->counts_over_nccl ? NULL : settings->bootstrap;
    nccl->transport.tag_limit = INT32_MAX;
    nccl->gather = settings->gather;
    nccl->piece = settings->piece_bytes ? settings->piece_bytes : MP_NCCL_PIECE;
    nccl->patience_s = settings->patience_s;
    gethostname(nccl->host, sizeof nccl->host - 1);
    code = join(nccl, settings, error);
    if (!code)
        code = create_queues(nccl, error);
    if (code) {
        nccl_destroy(&nccl->transport.comm);
        return code;
    }
    *comm = &nccl->transport.comm;
    return MP_OK;
}
