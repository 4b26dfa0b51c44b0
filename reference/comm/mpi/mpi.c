/* MPI: all ranks of MPI_COMM_WORLD, on a communicator of our own. */
#include <mpi.h>
#if __has_include(<mpi-ext.h>)
#include <mpi-ext.h> /* MPIX_Query_cuda_support, where there is one */
#endif
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "reference/base/arena.h"
#include "reference/comm/mpi/staging.h"

struct mpi_transport {
    struct mp_transport transport; /* first */
    MPI_Comm world;
    struct mp_staging *staging; /* NULL: MPI takes the memory as it is */
    mp_stream stream;           /* of additions on a deferred device */
    bool initialised_here;
};

/* What a slot holds, for messages about failures. */
struct slot {
    const char *doing;
    int peer;                 /* -1: all ranks */
    struct mp_staged *staged; /* NULL: request[] of the slot */
};

struct mp_messages {
    int capacity;
    MPI_Request *request; /* [capacity] */
    MPI_Status *status;   /* [capacity], working memory */
    struct slot *slot;    /* [capacity] */
    bool host;            /* its messages are the host's memory whatever the device */
    struct mp_staging *staging;
    struct mp_staged *staged; /* [capacity] if there is staging */
    struct mp_staged *free;
    struct mp_arena memory; /* of the tables */
};

static struct mpi_transport *mpi_of(struct mp_comm *comm) {
    return (struct mpi_transport *)comm;
}

static int fail(int rank, const struct slot *slot, int mpi_code, struct mp_error *error) {
    char text[MPI_MAX_ERROR_STRING + 1] = "";
    int length = 0;
    MPI_Error_string(mpi_code, text, &length);
    text[length] = 0;
    if (slot->peer >= 0)
        return mp_fail(error, MP_ECOMM, "rank %d: %s rank %d: %s", rank, slot->doing, slot->peer,
                       text);
    if (rank < 0) /* before ranks have numbers */
        return mp_fail(error, MP_ECOMM, "MPI: %s: %s", slot->doing, text);
    return mp_fail(error, MP_ECOMM, "rank %d: %s: %s", rank, slot->doing, text);
}

/* Notes what the slot holds now and translates the code of the call that started it. */
static int started(struct mp_comm *comm, struct mp_messages *messages, int slot, const char *doing,
                   int peer, int mpi_code, struct mp_error *error) {
    messages->slot[slot].doing = doing;
    messages->slot[slot].peer = peer;
    return mpi_code == MPI_SUCCESS ? MP_OK
                                   : fail(comm->rank, &messages->slot[slot], mpi_code, error);
}

static void messages_destroy(struct mp_messages *messages) {
    if (!messages)
        return;
    for (int i = 0; messages->slot && i < messages->capacity; i++)
        if (messages->slot[i].staged)
            mp_staging_cancel(messages->staging, messages->slot[i].staged);
    for (int i = 0; messages->slot && messages->request && i < messages->capacity; i++) {
        MPI_Request *request = &messages->request[i];
        if (*request == MPI_REQUEST_NULL || messages->slot[i].peer < 0)
            continue; /* a collective in flight can neither be cancelled nor freed */
        MPI_Cancel(request);
        MPI_Request_free(request);
    }
    mp_arena_release(&messages->memory);
    free(messages);
}

MP_END(messages, struct mp_messages *, messages_destroy(*it))

static int messages_create(struct mp_comm *comm, int capacity, struct mp_messages **out,
                           struct mp_error *error) {
    MP_AUTO(messages) struct mp_messages *messages = NULL;
    MP_TRY(MP_NEW(messages, 1, error));
    messages->staging = mpi_of(comm)->staging;
    MP_TAKE_EACH(&messages->memory, capacity, messages->request, messages->status, messages->slot);
    if (messages->staging)
        MP_TAKE(&messages->memory, messages->staged, capacity);
    MP_TRY(mp_arena_check(&messages->memory, error));
    messages->capacity = capacity;
    for (int i = 0; messages->staged && i < capacity; i++) {
        messages->staged[i].next = messages->free;
        messages->free = &messages->staged[i];
    }
    for (int i = 0; i < capacity; i++)
        messages->request[i] = MPI_REQUEST_NULL;
    *out = messages;
    messages = NULL;
    return MP_OK;
}

static void messages_move(struct mp_messages *messages, int from, int to) {
    messages->request[to] = messages->request[from];
    messages->slot[to] = messages->slot[from];
    messages->request[from] = MPI_REQUEST_NULL;
    messages->slot[from].staged = NULL;
}

/* The slot's message goes through buffers. */
static struct mp_staged *stage(struct mp_messages *messages, int slot) {
    struct mp_staged *staged = messages->free;
    messages->free = staged->next;
    messages->slot[slot].staged = staged;
    return staged;
}

/* One slot after another, since staged messages have requests of their own. */
static int test_staged(struct mp_comm *comm, struct mp_messages *messages, int active,
                       int finished[], int *count, struct mp_error *error) {
    *count = 0;
    for (int i = 0; i < active; i++) {
        struct slot *slot = &messages->slot[i];
        bool ended = false;
        int there = 0, mpi_code;
        if (slot->staged)
            mpi_code = mp_staging_test(messages->staging, slot->staged, &ended);
        else
            mpi_code = MPI_Test(&messages->request[i], &there, MPI_STATUS_IGNORE);
        if (mpi_code != MPI_SUCCESS)
            return fail(comm->rank, slot, mpi_code, error);
        if (!ended && !there)
            continue;
        finished[(*count)++] = i;
        if (slot->staged) {
            slot->staged->next = messages->free;
            messages->free = slot->staged;
            slot->staged = NULL;
        }
    }
    return MP_OK;
}

static int messages_test(struct mp_comm *comm, struct mp_messages *messages, int active,
                         int finished[], int *count, struct mp_error *error) {
    if (messages->staging)
        return test_staged(comm, messages, active, finished, count, error);
    int mpi_code = MPI_Testsome(active, messages->request, count, finished, messages->status);
    if (mpi_code == MPI_SUCCESS) {
        if (*count == MPI_UNDEFINED)
            *count = 0;
        return MP_OK;
    }
    for (int i = 0; mpi_code == MPI_ERR_IN_STATUS && i < *count; i++)
        if (messages->status[i].MPI_ERROR != MPI_SUCCESS)
            return fail(comm->rank, &messages->slot[finished[i]], messages->status[i].MPI_ERROR,
                        error);
    return fail(comm->rank, &(struct slot){.doing = "testing messages", .peer = -1}, mpi_code,
                error);
}

static int mpi_send(struct mp_comm *comm, struct mp_messages *messages, int slot,
                    const void *memory, size_t bytes, int rank, int tag, struct mp_error *error) {
    int mpi_code =
        messages->staging && !messages->host
            ? mp_staging_send(messages->staging, stage(messages, slot), memory, bytes, rank, tag)
            : MPI_Isend(memory, (int)bytes, MPI_BYTE, rank, tag, mpi_of(comm)->world,
                        &messages->request[slot]);
    return started(comm, messages, slot, "sending to", rank, mpi_code, error);
}

static int mpi_receive(struct mp_comm *comm, struct mp_messages *messages, int slot, void *memory,
                       size_t bytes, int rank, int tag, struct mp_error *error) {
    int mpi_code =
        messages->staging && !messages->host
            ? mp_staging_receive(messages->staging, stage(messages, slot), memory, bytes, rank, tag)
            : MPI_Irecv(memory, (int)bytes, MPI_BYTE, rank, tag, mpi_of(comm)->world,
                        &messages->request[slot]);
    return started(comm, messages, slot, "receiving from", rank, mpi_code, error);
}

static int mpi_barrier(struct mp_comm *comm, struct mp_messages *messages, int slot,
                       struct mp_error *error) {
    return started(comm, messages, slot, "in a barrier", -1,
                   MPI_Ibarrier(mpi_of(comm)->world, &messages->request[slot]), error);
}

static int mpi_broadcast(struct mp_comm *comm, struct mp_messages *messages, int slot, void *memory,
                         size_t bytes, int root, struct mp_error *error) {
    return started(comm, messages, slot, "in a broadcast", -1,
                   MPI_Ibcast(memory, (int)bytes, MPI_BYTE, root, mpi_of(comm)->world,
                              &messages->request[slot]),
                   error);
}

static int mpi_all_reduce(struct mp_comm *comm, struct mp_messages *messages, int slot,
                          enum mp_reduction reduction, void *values, size_t count,
                          struct mp_error *error) {
    if (count > INT32_MAX)
        return mp_fail(error, MP_ELIMIT, "rank %d: an all-reduce of %zu values; at most %d",
                       comm->rank, count, INT32_MAX);
    if (messages->staging && reduction == MP_REDUCTION_FLOAT_SUM)
        return started(comm, messages, slot, "in an all-reduce", -1,
                       mp_staging_sum(messages->staging, stage(messages, slot), values, count),
                       error);
    MPI_Datatype type = reduction == MP_REDUCTION_FLOAT_SUM ? MPI_FLOAT : MPI_DOUBLE;
    MPI_Op operation = reduction == MP_REDUCTION_DOUBLE_MAXIMUM ? MPI_MAX : MPI_SUM;
    return started(comm, messages, slot, "in an all-reduce", -1,
                   MPI_Iallreduce(MPI_IN_PLACE, values, (int)count, type, operation,
                                  mpi_of(comm)->world, &messages->request[slot]),
                   error);
}

static int mpi_all_gather(struct mp_comm *comm, struct mp_messages *messages, int slot,
                          const void *mine, size_t bytes, void *all, struct mp_error *error) {
    if (bytes > MP_MESSAGE_LIMIT)
        return mp_fail(error, MP_ELIMIT, "rank %d: a gather of %zu bytes of each rank; at most %d",
                       comm->rank, bytes, MP_MESSAGE_LIMIT);
    return started(comm, messages, slot, "in a gather", -1,
                   MPI_Iallgather(mine, (int)bytes, MPI_BYTE, all, (int)bytes, MPI_BYTE,
                                  mpi_of(comm)->world, &messages->request[slot]),
                   error);
}

static void mpi_settle(struct mp_comm *comm, mp_stream stream) {
    struct mp_device *device = mp_transport_of(comm)->device;
    if (device)
        device->operations->stream_synchronize(device, stream);
}

static void mpi_add(struct mp_comm *comm, mp_stream stream, size_t count, const float *from,
                    float *to) {
    struct mp_device *device = mp_transport_of(comm)->device;
    if (device) {
        /* Beside the computation that the caller's stream has been given meanwhile. */
        if (device->deferred)
            stream = mpi_of(comm)->stream;
        device->operations->add(device, stream, count, to, from, to);
        device->operations->stream_synchronize(device, stream);
        return;
    }
    for (size_t i = 0; i < count; i++)
        to[i] += from[i];
}

static bool is_deferred(const struct mp_device *device) {
    return device && device->deferred;
}

static void *mpi_ring_allocate(struct mp_comm *comm, size_t bytes) {
    struct mp_device *device = mp_transport_of(comm)->device;
    return is_deferred(device) ? device->operations->allocate(device, bytes)
                               : aligned_alloc(4096, bytes);
}

static void mpi_ring_release(struct mp_comm *comm, void *memory) {
    struct mp_device *device = mp_transport_of(comm)->device;
    if (is_deferred(device))
        device->operations->release(device, memory);
    else
        free(memory);
}

static void mpi_destroy(struct mp_comm *comm) {
    struct mpi_transport *mpi = mpi_of(comm);
    struct mp_device *device = mpi->transport.device;
    mp_transport_close(&mpi->transport);
    mp_staging_destroy(mpi->staging);
    if (mpi->stream)
        device->operations->stream_destroy(device, mpi->stream);
    if (mpi->world != MPI_COMM_NULL)
        MPI_Comm_free(&mpi->world);
    if (mpi->initialised_here)
        MPI_Finalize();
    free(mpi);
}

static void mpi_abort(struct mp_comm *comm, int status) {
    MPI_Abort(mpi_of(comm)->world, status);
}

static void mpi_describe(struct mp_comm *comm, char *text, size_t size) {
    (void)comm;
    char library[MPI_MAX_LIBRARY_VERSION_STRING] = "";
    char host[MPI_MAX_PROCESSOR_NAME] = "";
    int length;
    MPI_Get_library_version(library, &length);
    MPI_Get_processor_name(host, &length);
    /* "Open MPI v4.1.4, package: ...", "MPICH Version:\t4.0.2\n...": the name ends there. */
    library[strcspn(library, ",\n")] = 0;
    const char *version = strstr(library, " v");
    if (version)
        snprintf(text, size, "%.*s %s, host %s", (int)(version - library), library, version + 2,
                 host);
    else
        snprintf(text, size, "%s, host %s", library, host);
}

static const struct mp_comm_operations mpi_operations = {
    .name = "mpi",
    .destroy = mpi_destroy,
    .abort = mpi_abort,
    .describe = mpi_describe,
    .messages_create = messages_create,
    .messages_destroy = messages_destroy,
    .messages_move = messages_move,
    .messages_test = messages_test,
    .send = mpi_send,
    .receive = mpi_receive,
    .barrier = mpi_barrier,
    .broadcast = mpi_broadcast,
    .all_reduce = mpi_all_reduce,
    .all_gather = mpi_all_gather,
    .ring_allocate = mpi_ring_allocate,
    .ring_release = mpi_ring_release,
    .settle = mpi_settle,
    .add = mpi_add,
};

static int check(int rank, const char *doing, int mpi_code, struct mp_error *error) {
    return mpi_code == MPI_SUCCESS
               ? MP_OK
               : fail(rank, &(struct slot){.doing = doing, .peer = -1}, mpi_code, error);
}

static int initialise(struct mpi_transport *mpi, struct mp_error *error) {
    int initialised = 0, finalised = 0, provided = 0;
    MPI_Initialized(&initialised);
    MPI_Finalized(&finalised);
    if (finalised)
        return mp_fail(error, MP_ECOMM, "MPI was finalised and cannot be used again");
    if (initialised)
        return MP_OK;
    int code = check(-1, "initialising MPI",
                     MPI_Init_thread(NULL, NULL, MPI_THREAD_FUNNELED, &provided), error);
    mpi->initialised_here = code == MP_OK;
    return code;
}

/* Ranks share cores when this host's ranks are more than the cores that any of them may use. */
static int find_sharing(struct mpi_transport *mpi, struct mp_error *error) {
    MPI_Comm host;
    cpu_set_t cores;
    int ranks = 1, rank = mpi->transport.comm.rank;
    CPU_ZERO(&cores);
    if (sched_getaffinity(0, sizeof cores, &cores))
        CPU_SET(0, &cores);
    MP_TRY(check(rank, "finding the ranks of this host",
                 MPI_Comm_split_type(mpi->world, MPI_COMM_TYPE_SHARED, rank, MPI_INFO_NULL, &host),
                 error));
    MPI_Comm_size(host, &ranks);
    int code = check(
        rank, "joining the cores of this host",
        MPI_Allreduce(MPI_IN_PLACE, &cores, (int)sizeof cores, MPI_BYTE, MPI_BOR, host), error);
    MPI_Comm_free(&host);
    mpi->transport.ranks_share_cores = ranks > CPU_COUNT(&cores);
    return code;
}

static int open_world(struct mpi_transport *mpi, struct mp_error *error) {
    struct mp_comm *comm = &mpi->transport.comm;
    int found = 0, *limit = NULL;
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    MP_TRY(check(-1, "copying MPI_COMM_WORLD", MPI_Comm_dup(MPI_COMM_WORLD, &mpi->world), error));
    MPI_Comm_set_errhandler(mpi->world, MPI_ERRORS_RETURN);
    MPI_Comm_rank(mpi->world, &comm->rank);
    MPI_Comm_size(mpi->world, &comm->ranks);
    MPI_Comm_get_attr(mpi->world, MPI_TAG_UB, &limit, &found);
    mpi->transport.tag_limit = found ? *limit : 32767; /* the least that MPI promises */
    return find_sharing(mpi, error);
}

/* Whether MPI takes the memory of GPUs, as far as this rank knows. */
static int takes_device_memory(int rank, int *takes, struct mp_error *error) {
    const char *given = getenv("MOEPERF_MPI_CUDA");
    *takes = 0;
#if defined(MPIX_CUDA_AWARE_SUPPORT) && MPIX_CUDA_AWARE_SUPPORT
    *takes = MPIX_Query_cuda_support();
#endif
    if (!given || !*given)
        return MP_OK;
    if (strcmp(given, "0") != 0 && strcmp(given, "1") != 0)
        return mp_fail(error, MP_EINVAL,
                       "rank %d: MOEPERF_MPI_CUDA=%s; 1 says that MPI takes the memory of GPUs, 0 "
                       "that it doesn't",
                       rank, given);
    *takes = *given == '1';
    return MP_OK;
}

/* Staging, unless all ranks can do without. */
static int open_device(struct mpi_transport *mpi, struct mp_error *error) {
    struct mp_device *device = mpi->transport.device;
    const int rank = mpi->transport.comm.rank;
    int takes = 1;
    if (!is_deferred(device) || mpi->transport.comm.ranks == 1)
        return MP_OK;
    MP_TRY(takes_device_memory(rank, &takes, error));
    MP_TRY(check(rank, "agreeing on the memory of GPUs",
                 MPI_Allreduce(MPI_IN_PLACE, &takes, 1, MPI_INT, MPI_MIN, mpi->world), error));
    MP_TRY(device->operations->stream_create(device, 0, &mpi->stream, error));
    if (!takes)
        MP_TRY(
            mp_staging_create(mpi->world, mpi->transport.tag_limit, device, &mpi->staging, error));
    return MP_OK;
}

static int open_all(struct mpi_transport *mpi, struct mp_error *error) {
    MP_TRY(initialise(mpi, error));
    MP_TRY(open_world(mpi, error));
    MP_TRY(open_device(mpi, error));
    MP_TRY(mp_transport_open(&mpi->transport, error));
    if (mpi->transport.blocking->messages)
        mpi->transport.blocking->messages->host = true;
    return MP_OK;
}

int mp_comm_mpi_create(struct mp_device *device, struct mp_comm **comm, struct mp_error *error) {
    struct mpi_transport *mpi;
    MP_TRY(MP_NEW(mpi, 1, error));
    mpi->transport.comm.operations = &mpi_operations;
    mpi->transport.device = device;
    mpi->world = MPI_COMM_NULL;
    int code = open_all(mpi, error);
    if (code)
        mpi_destroy(&mpi->transport.comm);
    else
        *comm = &mpi->transport.comm;
    return code;
}
