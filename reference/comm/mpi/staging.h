/* Messages of a deferred device's memory over an MPI that takes only the host's: through
 * page-locked buffers of fixed number and size, in parts.
 *
 * A sender asks, with a number of its own and the size; the receiver, once it has a buffer, grants
 * under that number with the buffer's index, which is the tag of the parts that follow.  So a
 * receiver holds a buffer only for data that is ready, and a sender only for data that is wanted:
 * every buffer that is taken is given back in time, and one of each kind is enough for any number
 * of messages.  Sums of all ranks have a buffer of their own and go one after another. */
#pragma once

#include <mpi.h>

#include "reference/comm/transport.h"

enum { MP_STAGE_BYTES = 1 << 20, MP_STAGE_BUFFERS = 16 /* for sends, and as many for receives */ };

enum mp_staged_kind { MP_STAGED_SEND, MP_STAGED_RECEIVE, MP_STAGED_SUM };

enum mp_staged_state {
    MP_STAGED_AGREEING,  /* sends: asked; receives: not asked yet */
    MP_STAGED_AGREED,    /* waits for a buffer, a sum for its turn */
    MP_STAGED_COPYING,   /* between device and buffer */
    MP_STAGED_TRAVELLING /* a part, between ranks */
};

struct mp_staged {
    enum mp_staged_kind kind;
    enum mp_staged_state state;
    char *memory; /* the device's */
    size_t bytes, done;
    int peer;
    bool back;                  /* COPYING: from the buffer to the device */
    int buffer;                 /* -1: none */
    int32_t part_tag;           /* of the parts: the receiver's buffer */
    int64_t ask[2];             /* number, bytes */
    MPI_Request request, other; /* of what is travelling; `other`: what has been asked or granted */
    struct mp_staged *next;     /* free, or behind this one in the line of sums */
};

struct mp_staging {
    MPI_Comm asks, grants, parts, sums;
    int rank, tag_limit;
    int64_t numbers; /* of sends so far */
    struct mp_device *device;
    mp_stream stream;
    char *
        buffer; /* [2 * MP_STAGE_BUFFERS + 1][MP_STAGE_BYTES], page-locked: sends, receives, sums */
    mp_event event[2 * MP_STAGE_BUFFERS + 1];
    bool taken[2 * MP_STAGE_BUFFERS];
    struct mp_staged *first_sum, **last_sum; /* in the order in which they were started */
};

/* Collective; `world` is duplicated.  Errors: MP_ENOMEM, MP_ECOMM, MP_EDEVICE. */
int mp_staging_create(MPI_Comm world, int tag_limit, struct mp_device *device,
                      struct mp_staging **staging, struct mp_error *error);
void mp_staging_destroy(struct mp_staging *staging); /* accepts NULL */

/* Each returns what MPI returns.  `staged` is the caller's until it is finished or cancelled. */
int mp_staging_send(struct mp_staging *staging, struct mp_staged *staged, const void *memory,
                    size_t bytes, int rank, int tag);
int mp_staging_receive(struct mp_staging *staging, struct mp_staged *staged, void *memory,
                       size_t bytes, int rank, int tag);
int mp_staging_sum(struct mp_staging *staging, struct mp_staged *staged, float *values,
                   size_t count);
/* Moves it on; never blocks.  MPI_ERR_TRUNCATE: sender and receiver disagree on the size. */
int mp_staging_test(struct mp_staging *staging, struct mp_staged *staged, bool *finished);
void mp_staging_cancel(struct mp_staging *staging, struct mp_staged *staged);
