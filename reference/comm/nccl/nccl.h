/* Inside of the nccl back end: the comm, its two lanes, and what it keeps for host memory.
 *
 * A lane is a communicator and a stream: rows, counts and what the host waits for travel on the
 * exchange lane, the rest on the background lane (comm.h).  An operation records `ready` on its
 * caller's stream, makes its lane wait for it, queues its NCCL calls there and records `done`, for
 * which wait makes the caller's stream wait.  A lane is in order, so that staging memory (exchange)
 * and the buffer of reductions (background) need no further events between operations.  Counts,
 * which the host needs at once, go over the comm that ranks met on, if there is one, past the
 * exchange lane as well.
 *
 * Why two communicators on one GPU cannot wait for each other here.  NCCL asks that operations of
 * all communicators come in the same order on every rank, and warns that two at a time only work if
 * both fit the GPU and that any CUDA call may wait for all that is queued (user guide of 2.22,
 * "Using multiple NCCL communicators concurrently").
 *
 * One thread per rank starts everything, and all ranks start the same in the same order (comm.h).
 * Whatever waits, a kernel for its stream, an event or the same operation on another rank, a stream
 * for another one that shares its hardware queue, the host for a connection that NCCL makes at
 * first use or for the whole device, waits for something that comes earlier in that order, so no
 * wait closes a circle.
 *
 * But one: a kernel that is waited for on other ranks and finds no room because of a later one,
 * which waits for others in turn.  A lane is in order, so that at most one kernel of each runs at a
 * time; NCCL is told (maxCTAs) to take at most a quarter of the multiprocessors for one, and all
 * other kernels end by themselves.  So both always get their room.
 * NCCL_LAUNCH_ORDER_IMPLICIT (2.26) would exclude that case by starting kernels in the order of
 * calls.  It is not used: a sum over copies is many kernels, and an exchange called after it would
 * start after the last of them.  Set by the user it does no harm but that. */
#pragma once

#include "reference/comm/nccl/library.h"
#include "reference/comm/nccl/meeting.h"
#include "reference/comm/tree.h"
#include "reference/device/memory.h"

enum {
    MP_NCCL_PLACES = 2,          /* gathers of counts in flight */
    MP_NCCL_COUNTS = 4096,       /* of a rank that travel at a time */
    MP_NCCL_STAGE = 1 << 20,     /* bytes of host memory that travel at a time */
    MP_NCCL_PIECE = 4 << 20,     /* bytes that trees forward at a time; a 4 MiB message keeps
                                    NVLink busy for longer than a group takes to start */
    MP_NCCL_TREES_AT_A_TIME = 8, /* of reductions: two pieces of each have a place in the buffer */
    MP_NCCL_BLOCKS = 16,         /* of a kernel of NCCL where the GPU is not known */
    MP_NCCL_MOST_BLOCKS = 32     /* what the oldest NCCL takes */
};

/* A gather of counts: what the host gave and is to get. */
struct mp_nccl_place {
    struct mp_request *request; /* NULL: free */
    uint32_t *host_mine, *host_all, *mine, *all;
    mp_event done;
    uint32_t *result;       /* the caller's [ranks][count] */
    int count, begin, part; /* counts begin .. begin + part - 1 are on their way */
};

struct mp_nccl_request {
    mp_event ready, done;
    const char *doing;            /* "exchanging rows" */
    bool for_host;                /* a gather of counts */
    struct mp_request *over_host; /* which carries it; NULL: a place does */
};

struct mp_nccl_lane {
    mp_nccl_comm comm; /* NULL: none, or given up after a failure */
    mp_stream stream;
    void *native;
    mp_event passed; /* what the host waits for */
};

struct mp_nccl {
    struct mp_transport transport; /* first */
    struct mp_nccl_library library;
    struct mp_meeting meeting;
    struct mp_comm *counts_host; /* what counts travel over; NULL: NCCL */
    union {
        struct mp_nccl_lane lane[MP_COMM_LANES];
        struct {
            struct mp_nccl_lane exchange, background;
        };
    };
    struct mp_error failure;
    enum mp_nccl_gather gather;
    size_t piece;
    int patience_s;
    struct mp_device_memory memory; /* of all that follows */
    char *stage, *host_stage;       /* [MP_NCCL_STAGE] of the device; page-locked */
    char *buffer;                   /* [2 * MP_NCCL_TREES_AT_A_TIME][piece] */
    struct mp_nccl_place place[MP_NCCL_PLACES];
    int next_place;
    char host[128], remark[512];
};

static inline struct mp_nccl *mp_nccl_of(struct mp_comm *comm) {
    return (struct mp_nccl *)comm;
}

/* Translates what a call of NCCL returned.  A failure is kept, and the communicators given up, so
 * that neither the GPU nor another rank waits for it: all that follows fails with its sentence. */
int mp_nccl_check(struct mp_nccl *nccl, const char *doing, int result, struct mp_error *error);
/* MP_OK, or the failure kept or come to light since. */
int mp_nccl_alive(struct mp_nccl *nccl, const char *doing, struct mp_error *error);
/* The host waits for an event of a lane and keeps an eye on NCCL. */
int mp_nccl_host_wait(struct mp_nccl *nccl, mp_event event, const char *doing,
                      struct mp_error *error);

/* The first and last step of an operation that streams wait for, on its request's lane. */
int mp_nccl_begin(struct mp_request *request, const char *doing, struct mp_error *error);
int mp_nccl_end(struct mp_request *request);

/* host.c: host memory */
int mp_nccl_barrier(struct mp_comm *comm, struct mp_error *error);
int mp_nccl_broadcast(struct mp_comm *comm, void *memory, size_t bytes, int root,
                      struct mp_error *error);
int mp_nccl_reduce(struct mp_comm *comm, enum mp_reduction reduction, double *values, int count,
                   struct mp_error *error);
int mp_nccl_pass(struct mp_comm *comm, void *memory, size_t bytes, int rank, bool send,
                 struct mp_error *error);
int mp_nccl_gather_counts(struct mp_request *request, const uint32_t *mine, int count,
                          uint32_t *all, struct mp_error *error);
/* The host's wait for the counts of a request, if they have not landed already. */
int mp_nccl_land_counts(struct mp_request *request, struct mp_error *error);
int mp_nccl_create_stage(struct mp_nccl *nccl, struct mp_error *error);

/* rows.c */
int mp_nccl_exchange(struct mp_request *request, struct mp_error *error);
int mp_nccl_all_reduce(struct mp_request *request, float *values, size_t count,
                       struct mp_error *error);

/* flow.c */
int mp_nccl_down(struct mp_request *request, struct mp_error *error);
int mp_nccl_up(struct mp_request *request, struct mp_error *error);
