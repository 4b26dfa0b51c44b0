/* Inside of the nccl back end: the comm, its one communication stream, and what it keeps for host
 * memory.
 *
 * An operation records `ready` on its caller's stream, makes the communication stream wait for it,
 * queues its NCCL calls there and records `done`, for which wait makes the caller's stream wait.
 * The communication stream is in order, so that staging memory and the buffer of reductions need no
 * further events between operations.  Counts, which the host needs at once, go over the comm that
 * ranks met on, if there is one, past what is queued. */
#ifndef MOEPERF_REFERENCE_COMM_NCCL_NCCL_H
#define MOEPERF_REFERENCE_COMM_NCCL_NCCL_H

#include "reference/comm/nccl/library.h"
#include "reference/comm/nccl/meeting.h"
#include "reference/comm/tree.h"

enum {
    MP_NCCL_PLACES = 2,         /* gathers of counts in flight */
    MP_NCCL_COUNTS = 4096,      /* of a rank that travel at a time */
    MP_NCCL_STAGE = 1 << 20,    /* bytes of host memory that travel at a time */
    MP_NCCL_PIECE = 4 << 20,    /* bytes that trees forward at a time; a 4 MiB message keeps
                                   NVLink busy for longer than a group takes to start */
    MP_NCCL_TREES_AT_A_TIME = 8 /* of reductions: two pieces of each have a place in the buffer */
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

struct mp_nccl {
    struct mp_transport transport; /* first */
    struct mp_nccl_library library;
    struct mp_meeting meeting;
    struct mp_comm *counts_host; /* what counts travel over; NULL: NCCL */
    mp_nccl_comm comm;           /* NULL: none, or given up after a failure */
    struct mp_error failure;
    enum mp_nccl_gather gather;
    size_t piece;
    int patience_s;
    mp_stream stream;
    void *native;
    char *stage, *host_stage; /* [MP_NCCL_STAGE] of the device; page-locked */
    mp_event staged;
    char *buffer; /* [2 * MP_NCCL_TREES_AT_A_TIME][piece] */
    struct mp_nccl_place place[MP_NCCL_PLACES];
    int next_place;
    char host[128], remark[512];
};

static inline struct mp_nccl *mp_nccl_of(struct mp_comm *comm) {
    return (struct mp_nccl *)comm;
}

/* Translates what a call of NCCL returned.  A failure is kept, and the communicator given up, so
 * that neither the GPU nor another rank waits for it: all that follows fails with its sentence. */
int mp_nccl_check(struct mp_nccl *nccl, const char *doing, int result, struct mp_error *error);
/* MP_OK, or the failure kept or come to light since. */
int mp_nccl_alive(struct mp_nccl *nccl, const char *doing, struct mp_error *error);
/* The host waits for an event of the communication stream and keeps an eye on NCCL. */
int mp_nccl_host_wait(struct mp_nccl *nccl, mp_event event, const char *doing,
                      struct mp_error *error);

/* The first and last step of an operation that streams wait for. */
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
void mp_nccl_destroy_stage(struct mp_nccl *nccl);

/* rows.c */
int mp_nccl_exchange(struct mp_request *request, const int send_rows[], const int receive_rows[],
                     size_t row_bytes, const void *send, void *receive, struct mp_error *error);
int mp_nccl_all_reduce(struct mp_request *request, float *values, size_t count,
                       struct mp_error *error);

/* flow.c */
int mp_nccl_down(struct mp_request *request, struct mp_error *error);
int mp_nccl_up(struct mp_request *request, struct mp_error *error);

#endif
