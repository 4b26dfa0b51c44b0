#include "reference/comm/mpi/staging.h"

#include <stdlib.h>

enum { BUFFERS = 2 * MP_STAGE_BUFFERS + 1, SUM_BUFFER = 2 * MP_STAGE_BUFFERS };

static char *buffer_of(const struct mp_staging *staging, const struct mp_staged *staged) {
    return staging->buffer + (size_t)staged->buffer * MP_STAGE_BYTES;
}

static size_t part_of(const struct mp_staged *staged) {
    size_t left = staged->bytes - staged->done;
    return left < MP_STAGE_BYTES ? left : MP_STAGE_BYTES;
}

/* ---- creating ---- */

static int duplicate(MPI_Comm world, MPI_Comm *copy, struct mp_error *error) {
    if (MPI_Comm_dup(world, copy) != MPI_SUCCESS)
        return mp_fail(error, MP_ECOMM, "MPI: no further communicator for staged messages");
    MPI_Comm_set_errhandler(*copy, MPI_ERRORS_RETURN);
    return MP_OK;
}

int mp_staging_create(MPI_Comm world, int tag_limit, struct mp_device *device,
                      struct mp_staging **out, struct mp_error *error) {
    struct mp_staging *staging;
    MP_TRY(MP_NEW(staging, 1, error));
    *out = staging; /* destroyed by the caller if this fails */
    staging->asks = staging->grants = staging->parts = staging->sums = MPI_COMM_NULL;
    staging->tag_limit = tag_limit;
    staging->device = device;
    staging->last_sum = &staging->first_sum;
    MPI_Comm_rank(world, &staging->rank);
    MP_TRY(duplicate(world, &staging->asks, error));
    MP_TRY(duplicate(world, &staging->grants, error));
    MP_TRY(duplicate(world, &staging->parts, error));
    MP_TRY(duplicate(world, &staging->sums, error));
    MP_TRY(device->operations->stream_create(device, 0, &staging->stream, error));
    for (int i = 0; i < BUFFERS; i++)
        MP_TRY(device->operations->event_create(device, &staging->event[i], error));
    staging->buffer = device->operations->host_allocate(device, (size_t)BUFFERS * MP_STAGE_BYTES);
    if (!staging->buffer)
        return mp_fail(error, MP_ENOMEM,
                       "rank %d: no %d MiB of page-locked memory to stage messages in",
                       staging->rank, BUFFERS * MP_STAGE_BYTES >> 20);
    return MP_OK;
}

void mp_staging_destroy(struct mp_staging *staging) {
    if (!staging)
        return;
    const struct mp_device_operations *operations = staging->device->operations;
    MPI_Comm *comms[] = {&staging->asks, &staging->grants, &staging->parts, &staging->sums};
    for (size_t i = 0; i < sizeof comms / sizeof *comms; i++)
        if (*comms[i] != MPI_COMM_NULL)
            MPI_Comm_free(comms[i]);
    if (staging->stream)
        operations->stream_synchronize(staging->device, staging->stream);
    for (int i = 0; i < BUFFERS; i++)
        if (staging->event[i])
            operations->event_destroy(staging->device, staging->event[i]);
    operations->host_release(staging->device, staging->buffer);
    if (staging->stream)
        operations->stream_destroy(staging->device, staging->stream);
    free(staging);
}

/* ---- starting ---- */

static void begin(struct mp_staged *staged, enum mp_staged_kind kind, const void *memory,
                  size_t bytes, int rank) {
    *staged = (struct mp_staged){
        .kind = kind,
        .memory = (char *)(uintptr_t)memory, /* a send only reads it */
        .bytes = bytes,
        .peer = rank,
        .buffer = -1,
        .request = MPI_REQUEST_NULL,
        .other = MPI_REQUEST_NULL,
    };
}

int mp_staging_send(struct mp_staging *staging, struct mp_staged *staged, const void *memory,
                    size_t bytes, int rank, int tag) {
    begin(staged, MP_STAGED_SEND, memory, bytes, rank);
    staged->ask[0] = staging->numbers++ % staging->tag_limit;
    staged->ask[1] = (int64_t)bytes;
    int result = MPI_Irecv(&staged->part_tag, 1, MPI_INT32_T, rank, (int)staged->ask[0],
                           staging->grants, &staged->request);
    if (result != MPI_SUCCESS)
        return result;
    return MPI_Isend(staged->ask, 2, MPI_INT64_T, rank, tag, staging->asks, &staged->other);
}

int mp_staging_receive(struct mp_staging *staging, struct mp_staged *staged, void *memory,
                       size_t bytes, int rank, int tag) {
    begin(staged, MP_STAGED_RECEIVE, memory, bytes, rank);
    return MPI_Irecv(staged->ask, 2, MPI_INT64_T, rank, tag, staging->asks, &staged->request);
}

int mp_staging_sum(struct mp_staging *staging, struct mp_staged *staged, float *values,
                   size_t count) {
    begin(staged, MP_STAGED_SUM, values, count * sizeof *values, -1);
    staged->state = MP_STAGED_AGREED;
    *staging->last_sum = staged;
    staging->last_sum = &staged->next;
    return MPI_SUCCESS;
}

/* ---- moving on ---- */

static bool take_buffer(struct mp_staging *staging, struct mp_staged *staged) {
    int first = staged->kind == MP_STAGED_SEND ? 0 : MP_STAGE_BUFFERS;
    if (staged->kind == MP_STAGED_SUM) {
        staged->buffer = staging->first_sum == staged ? SUM_BUFFER : -1;
        return staged->buffer >= 0;
    }
    for (int i = first; i < first + MP_STAGE_BUFFERS; i++)
        if (!staging->taken[i]) {
            staging->taken[i] = true;
            staged->buffer = i;
            return true;
        }
    return false;
}

static void give_buffer(struct mp_staging *staging, struct mp_staged *staged) {
    if (staged->kind == MP_STAGED_SUM) {
        struct mp_staged **link = &staging->first_sum;
        while (*link && *link != staged)
            link = &(*link)->next;
        if (*link)
            *link = staged->next;
        if (staging->last_sum == &staged->next)
            staging->last_sum = link;
    } else if (staged->buffer >= 0)
        staging->taken[staged->buffer] = false;
    staged->buffer = -1;
}

/* One part between the device and the buffer. */
static void copy_part(struct mp_staging *staging, struct mp_staged *staged, bool back) {
    const struct mp_device_operations *operations = staging->device->operations;
    char *memory = staged->memory + staged->done, *buffer = buffer_of(staging, staged);
    operations->copy(staging->device, staging->stream, back ? memory : buffer,
                     back ? buffer : memory, part_of(staged));
    operations->event_record(staging->device, staging->event[staged->buffer], staging->stream);
    staged->back = back;
    staged->state = MP_STAGED_COPYING;
}

/* One part between ranks. */
static int send_part(struct mp_staging *staging, struct mp_staged *staged) {
    const int bytes = (int)part_of(staged);
    char *buffer = buffer_of(staging, staged);
    staged->state = MP_STAGED_TRAVELLING;
    if (staged->kind == MP_STAGED_SEND)
        return MPI_Isend(buffer, bytes, MPI_BYTE, staged->peer, staged->part_tag, staging->parts,
                         &staged->request);
    if (staged->kind == MP_STAGED_RECEIVE)
        return MPI_Irecv(buffer, bytes, MPI_BYTE, staged->peer, staged->part_tag, staging->parts,
                         &staged->request);
    return MPI_Iallreduce(MPI_IN_PLACE, buffer, bytes / (int)sizeof(float), MPI_FLOAT, MPI_SUM,
                          staging->sums, &staged->request);
}

/* The buffer is there: the first part. */
static int set_out(struct mp_staging *staging, struct mp_staged *staged) {
    if (staged->kind != MP_STAGED_RECEIVE) {
        copy_part(staging, staged, false);
        return MPI_SUCCESS;
    }
    staged->part_tag = staged->buffer - MP_STAGE_BUFFERS;
    int result = MPI_Isend(&staged->part_tag, 1, MPI_INT32_T, staged->peer, (int)staged->ask[0],
                           staging->grants, &staged->other);
    return result == MPI_SUCCESS ? send_part(staging, staged) : result;
}

/* A part has been copied: a receive's and a sum's are done with it if they went back. */
static int copied(struct mp_staging *staging, struct mp_staged *staged, bool *ended) {
    if (!staged->back)
        return send_part(staging, staged);
    staged->done += part_of(staged);
    *ended = staged->done == staged->bytes;
    if (*ended)
        return MPI_SUCCESS;
    if (staged->kind == MP_STAGED_RECEIVE)
        return send_part(staging, staged);
    copy_part(staging, staged, false);
    return MPI_SUCCESS;
}

/* A part has travelled. */
static void travelled(struct mp_staging *staging, struct mp_staged *staged, bool *ended) {
    if (staged->kind != MP_STAGED_SEND) {
        copy_part(staging, staged, true);
        return;
    }
    staged->done += part_of(staged);
    *ended = staged->done == staged->bytes;
    if (!*ended)
        copy_part(staging, staged, false);
}

/* One step; *moved says whether there was one. */
static int step(struct mp_staging *staging, struct mp_staged *staged, bool *moved, bool *ended) {
    const struct mp_device_operations *operations = staging->device->operations;
    int there = 0, result;
    *moved = false;
    switch (staged->state) {
    case MP_STAGED_AGREEING:
        result = MPI_Test(&staged->request, &there, MPI_STATUS_IGNORE);
        if (result != MPI_SUCCESS || !there)
            return result;
        if (staged->kind == MP_STAGED_RECEIVE && staged->ask[1] != (int64_t)staged->bytes)
            return MPI_ERR_TRUNCATE;
        staged->state = MP_STAGED_AGREED;
        *moved = true;
        return MPI_SUCCESS;
    case MP_STAGED_AGREED:
        *moved = take_buffer(staging, staged);
        return *moved ? set_out(staging, staged) : MPI_SUCCESS;
    case MP_STAGED_COPYING:
        *moved = operations->event_done(staging->device, staging->event[staged->buffer]);
        return *moved ? copied(staging, staged, ended) : MPI_SUCCESS;
    case MP_STAGED_TRAVELLING:
        result = MPI_Test(&staged->request, &there, MPI_STATUS_IGNORE);
        *moved = there;
        if (result == MPI_SUCCESS && there)
            travelled(staging, staged, ended);
        return result;
    }
    return MPI_SUCCESS;
}

int mp_staging_test(struct mp_staging *staging, struct mp_staged *staged, bool *finished) {
    bool moved = true, ended = staged->bytes == staged->done;
    int result = MPI_SUCCESS, there = 1;
    while (result == MPI_SUCCESS && moved && !ended)
        result = step(staging, staged, &moved, &ended);
    if (ended && staged->buffer >= 0)
        give_buffer(staging, staged);
    if (result == MPI_SUCCESS && ended) /* what was asked or granted has long been read */
        result = MPI_Test(&staged->other, &there, MPI_STATUS_IGNORE);
    *finished = result == MPI_SUCCESS && ended && there;
    return result;
}

void mp_staging_cancel(struct mp_staging *staging, struct mp_staged *staged) {
    MPI_Request *requests[] = {&staged->request, &staged->other};
    for (int i = 0; i < 2; i++) {
        /* A sum in flight can neither be cancelled nor freed. */
        if (*requests[i] == MPI_REQUEST_NULL || staged->kind == MP_STAGED_SUM)
            continue;
        MPI_Cancel(requests[i]);
        MPI_Request_free(requests[i]);
    }
    give_buffer(staging, staged);
}
