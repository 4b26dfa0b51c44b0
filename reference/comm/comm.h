/* Transport: ranks, and what travels between them.
 *
 * Back ends: self (one rank, no library), mpi, and nccl for the memory of GPUs.  Everything is
 * start/wait: start queues, mp_comm_progress may be called between kernels, wait blocks and yields
 * the core while it waits (ranks may share cores).  Requests are created once and used again, so a
 * step allocates nothing.  Every rank starts the same operations in the same order.
 *
 * An operation travels in one of two lanes beside the rank's own computing.  In the exchange lane:
 * rows of tokens, counts, and what the host waits for (barriers, broadcasts, sums of doubles,
 * clocks).  In the background lane: parameters and gradients of experts, sums of dense gradients,
 * moves.  What was started in the background lane never holds up what is in the exchange lane; each
 * lane keeps its own order where it queues (nccl), and its operations may end in any order where
 * they are messages (mpi), of which those of the exchange lane are looked at first and again after
 * every addition to a sum.  On processors messages move on while somebody waits or calls
 * mp_comm_progress: mp_device's `between` is where computing lets them.
 *
 * Memory that an operation moves is the device's, except where "host memory" is said.  On a
 * deferred device its work begins when `stream` has come to where start was called.  With nccl,
 * wait makes that stream wait, not the host: what is queued on it afterwards finds the result, and
 * only the wait for mp_gather_counts_start, whose result the host reads, blocks.
 *
 * Errors: MP_ECOMM with a sentence that names the rank and what it was doing; MP_EINVAL and
 * MP_ELIMIT for arguments.  They are this rank's alone: nobody tells the others, which may be
 * waiting for it, so what follows is mp_comm_abort.  A request whose wait failed can only be
 * destroyed. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "reference/base/error.h"
#include "reference/device/device.h"
#include "reference/plan/plan.h"
#include "reference/schedule/exchange/exchange.h"

struct mp_request; /* of one operation in flight */

struct mp_comm {
    const struct mp_comm_operations *operations; /* private to reference/comm */
    int rank, ranks;
    int ranks_per_node; /* as mp_comm_set_nodes says; 0: all ranks are on one node */
    /* Cost of waiting: time the host spent blocked in waits and bytes sent to other ranks, running
     * sums that callers read before and after to fill their spans.  How long a stream stood still
     * in a wait is known only later: see mp_comm_on_wait. */
    int64_t waited_ns;
    int64_t sent_bytes;
    /* Of them, what messages took to other nodes: rows, and experts and their gradients along their
     * hops.  Not in it: sums, counts and broadcasts of all ranks, whose ways are the library's. */
    int64_t between_bytes;
};

/* Whether an operation of the background lane finds done what set out before it: it queues. */
bool mp_comm_keeps_order(const struct mp_comm *comm);

/* One rank, no library: operations are copies or nothing.  `device` makes the copies where its
 * memory is not the host's; mp_comm_self_create is for memory of the host. */
int mp_comm_self_create(struct mp_comm **comm, struct mp_error *error);
int mp_comm_self_create_on(struct mp_device *device, struct mp_comm **comm, struct mp_error *error);

/* All ranks of MPI_COMM_WORLD; initialises MPI if nobody has, and then finalises it on destroy.
 * `device`, borrowed, does the additions of reductions and may be NULL for the CPU.
 *
 * Memory of a deferred device goes through page-locked buffers of fixed size, or to MPI directly
 * if that takes device memory: as MPIX_Query_cuda_support says, or MOEPERF_MPI_CUDA=0 or 1, the
 * same on all ranks. */
int mp_comm_mpi_create(struct mp_device *device, struct mp_comm **comm, struct mp_error *error);
void mp_comm_destroy(struct mp_comm *comm); /* accepts NULL */

/* Says that nodes are of so many neighbouring ranks, the last perhaps of fewer: experts travel
 * accordingly (reference/schedule/hops.h) in all operations started from now on.  The same on all
 * ranks, between the same operations; before it there is one node. */
void mp_comm_set_nodes(struct mp_comm *comm, int ranks_per_node);

/* How nccl carries out the sparse collectives. */
enum mp_nccl_gather {
    /* The hops of every other transport: sums have the same bits as with mpi. */
    MP_NCCL_TREES,
    /* Experts with copies on all ranks by NCCL's own broadcast and reduction, in whose order of
     * additions sums are then formed; the others along the hops. */
    MP_NCCL_BROADCASTS
};

struct mp_nccl_settings {
    /* Ranks and their meeting: over another comm (borrowed; it must outlive this one).  NULL: from
     * the environment, where RANK and WORLD_SIZE say who this is.  Ranks that are all on one host
     * (LOCAL_WORLD_SIZE is WORLD_SIZE) meet by files in a folder of the user's, TMPDIR/moeperf-UID,
     * named by MASTER_PORT and TORCHELASTIC_RUN_ID; with MOEPERF_RENDEZVOUS=file:/FOLDER, which
     * ranks on several hosts need, by files there, on a file system that all share.  Either folder
     * is made if it isn't there; it must belong to the user, and nobody else may write to it.
     * Without RANK and WORLD_SIZE this is a world of one. */
    struct mp_comm *bootstrap;
    /* Counts, which the host needs at once, then travel over the bootstrap, if there is one: over
     * NCCL they would queue behind rows that are on their way.  True: over NCCL. */
    bool counts_over_nccl;
    int ordinal;                   /* of this rank's GPU on its host */
    const struct mp_cuda_gpu *gpu; /* the same GPU, read during create; NULL: not known */
    enum mp_nccl_gather gather;
    size_t piece_bytes; /* what is forwarded at a time; 0: 4 MiB, a multiple of 64 */
    int meeting_s;      /* how long ranks wait for each other in create; 0: 120 */
    int patience_s;     /* longest wait of the host for the GPU before it fails; 0: for ever */
};

/* GPUs over NCCL (2.18 or later), which is loaded here: libnccl.so.2, or what MOEPERF_NCCL_LIBRARY
 * names.  `device`, borrowed, is a deferred one; its GPU is this thread's current one.  Each lane
 * has a communicator and a stream of its own, rows the more urgent one.  Collective. Errors:
 * MP_ENOTFOUND (no NCCL), MP_EVERSION (an old one), MP_EINVAL (environment, a folder or file that
 * others may have written, two ranks on one GPU), MP_ECOMM (not all came, or NCCL
 * failed), MP_EIO, MP_ENOMEM, MP_EDEVICE. */
int mp_comm_nccl_create(const struct mp_nccl_settings *settings, struct mp_device *device,
                        struct mp_comm **comm, struct mp_error *error);
/* A remark on the ranks that meet, such as GPUs of different types; "" if there is none. */
const char *mp_comm_nccl_remark(const struct mp_comm *comm);

/* Ends all ranks at once after a failure that others can't know of.  Does not return under mpi, or
 * under nccl over mpi; otherwise nccl gives up what is in flight, and the others' operations fail
 * when NCCL notices. */
void mp_comm_abort(struct mp_comm *comm, int status);

/* Calls observe(context, stream, true) right before and (..., false) right after a stream is made
 * to wait for a request, so that the caller can record events of its own there: the time between
 * them is how long the stream stood still.  Never called where the host waits, whose time is in
 * waited_ns.  NULL: nobody. */
void mp_comm_on_wait(struct mp_comm *comm,
                     void (*observe)(void *context, mp_stream stream, bool begins), void *context);

/* A request serves one operation at a time.  For sparse collectives, give the largest number of
 * transfers in one stage of a list (or in one move) and the largest chunk; 0, 0 for the others.
 * Errors: MP_EINVAL (more than 2^24 transfers), MP_ENOMEM. */
int mp_request_create(struct mp_comm *comm, int transfers, size_t chunk_bytes,
                      struct mp_request **request, struct mp_error *error);
void mp_request_destroy(struct mp_request *request); /* accepts NULL */
MP_END(request, struct mp_request *, mp_request_destroy(*it))
/* Waits for the started operation, or makes the stream given at its start wait (nccl); MP_OK at
 * once if none is in flight. */
int mp_request_wait(struct mp_request *request, struct mp_error *error);
/* Lets everything in flight move on; never blocks.  Cheap enough to call between kernels, and
 * allowed from within a device's work that a wait has asked for, where it does nothing. */
int mp_comm_progress(struct mp_comm *comm, struct mp_error *error);

int mp_comm_barrier(struct mp_comm *comm, struct mp_error *error);
int mp_comm_broadcast(struct mp_comm *comm, void *memory, size_t bytes, int root,
                      struct mp_error *error);
/* In place, sums (or maxima) of doubles over all ranks: for losses and figures. */
int mp_comm_sum(struct mp_comm *comm, double *values, int count, struct mp_error *error);
int mp_comm_maximum(struct mp_comm *comm, double *values, int count, struct mp_error *error);
/* all [ranks][count] = every rank's mine [count]; host memory.  Start/wait. */
int mp_gather_counts_start(struct mp_comm *comm, const uint32_t *mine, int count, uint32_t *all,
                           struct mp_request *request, struct mp_error *error);

/* Exact exchange (all-to-all-v) of rows: send holds the rows for rank 0, then for rank 1, ...;
 * receive likewise by source.  Host arrays [ranks], read during start and until wait.  Rows for
 * oneself are copied.  Only ranks with rows exchange messages. */
int mp_exchange_start(struct mp_comm *comm, const int *send_rows, const int *receive_rows,
                      size_t row_bytes, const void *send, void *receive, mp_stream stream,
                      struct mp_request *request, struct mp_error *error);

/* The same along a path: from `here` to `there`, or on the way back from where its rows come out to
 * where they are from.  With several rounds the path is read until wait, and `transit` is two
 * arrays with room for path->transit_rows each, which nobody else uses until then; otherwise it may
 * be NULL. */
int mp_exchange_path_start(struct mp_comm *comm, const struct mp_exchange_path *path, bool back,
                           size_t row_bytes, const void *here, void *there, void *const transit[2],
                           mp_stream stream, struct mp_request *request, struct mp_error *error);

/* Rows of one kind of several that travel together, a message of each: how large, and where. */
struct mp_exchange_cargo {
    size_t row_bytes;
    void *memory[MP_ROWS_PLACES]; /* by enum mp_exchange_memory: here, in transit after the first
                                     round and before the second one, there */
};
enum { MP_EXCHANGE_CARGOES = 2 }; /* at most */

/* Makes the rows of a later round, or on the way back of an earlier one, from what has come to
 * transit[0], into transit[1]: of all cargoes, with work on `stream`.  Called by whoever lets
 * operations move on, also between the parts of other work (mp_device.between). */
struct mp_exchange_maker {
    int (*make)(void *context, mp_stream stream, struct mp_error *error);
    void *context;
    /* The host has to read what has come before it knows the next round's rows.  Where operations
     * are queued, the lane's next one, or the wait for this one, then waits for the first round. */
    bool reads;
};

/* Along a path that makes rows (exchange.h).  Maker and path are read until wait. */
int mp_exchange_made_start(struct mp_comm *comm, const struct mp_exchange_path *path, bool back,
                           const struct mp_exchange_cargo cargo[], int cargoes,
                           const struct mp_exchange_maker *maker, mp_stream stream,
                           struct mp_request *request, struct mp_error *error);

/* In-place sum of floats over all ranks (non-expert gradients). */
int mp_all_reduce_start(struct mp_comm *comm, float *values, size_t count, mp_stream stream,
                        struct mp_request *request, struct mp_error *error);

/* Sparse all-gather (Hecate, section 4): every transfer of one stage in `list` copies an expert's
 * chunk from a rank that has it, its owner or another, to one that has not.  Those of one expert
 * from one rank form a tree, the hops of reference/schedule/hops.h; messages are cut into pieces so
 * that a rank forwards while it receives.  `chunk` [experts] is an array of the host's: this rank's
 * memory of each expert's chunk, the source on who has it, the destination on a receiver, NULL
 * elsewhere; `bytes` are those of one chunk, the same for all.  Copies are bit-equal to the owner's
 * after wait.  Every rank passes the same list. */
int mp_sparse_all_gather_start(struct mp_comm *comm, const struct mp_transfers *list,
                               enum mp_stage stage, int experts, void *const chunk[], size_t bytes,
                               mp_stream stream, struct mp_request *request,
                               struct mp_error *error);

/* Sparse reduce-scatter: the inverse.  Every transfer (stage MP_STAGE_BACKWARD_REDUCE) adds the
 * chunk of `from` to the owner's; sums run up the same tree: to a rank's own chunk that of the next
 * rank of its node is added, then that of the next node, so equal runs give equal bits.  After wait
 * the owner's chunk is the sum over all copies including its own; the other chunks are undefined
 * (they may hold partial sums). */
int mp_sparse_reduce_scatter_start(struct mp_comm *comm, const struct mp_transfers *list,
                                   int experts, float *const chunk[], size_t bytes,
                                   mp_stream stream, struct mp_request *request,
                                   struct mp_error *error);

/* Point to point: transfers of `list` in any pattern; send_chunk[i] / receive_chunk[i] are this
 * rank's memory for list item i (NULL where it isn't concerned). */
int mp_move_start(struct mp_comm *comm, const struct mp_transfer list[], int count,
                  void *const send_chunk[], void *const receive_chunk[], size_t bytes,
                  mp_stream stream, struct mp_request *request, struct mp_error *error);

/* This rank's clock minus rank 0's, by the tightest of `trips` ping-pongs.
 * Collective.  Rank 0 gets 0, 0. */
int mp_comm_clock_offset(struct mp_comm *comm, int trips, int64_t *offset_ns, int64_t *error_ns,
                         struct mp_error *error);

/* Names for the fingerprint: "Open MPI 4.1.4", host of this rank; and whether ranks on this host
 * outnumber the cores they may use (their wall times are no speed-up then).  All of it was learnt
 * when the comm was created. */
void mp_comm_describe(struct mp_comm *comm, char *text, size_t size, bool *ranks_share_cores);
