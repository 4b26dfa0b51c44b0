/* What a back end gives, and what the operations of comm.h are written on.  Private to
 * reference/comm.
 *
 * A back end knows messages between two ranks and a few dense collectives, all started in a slot
 * of a message array and found finished by a test.  Trees, pieces, windows, tags and waiting are
 * written once above it (request.c, tree.c, sparse.c, exchange.c, clock.c).  With one rank nothing
 * below `abort` is ever called, so that `self` leaves it out.
 *
 * A back end that queues on a device's streams has whole operations instead (`queued`): they come
 * with their arguments checked and, if sparse, their trees built. */
#pragma once

#include "reference/base/arena.h"
#include "reference/comm/comm.h"
#include "reference/schedule/hops.h"

struct mp_messages; /* a back end's array of operations in flight */

/* Where an operation travels; comm.h says which.  What waits for no other lane comes first. */
enum mp_comm_lane { MP_COMM_EXCHANGE, MP_COMM_BACKGROUND, MP_COMM_LANES };

enum mp_reduction { MP_REDUCTION_FLOAT_SUM, MP_REDUCTION_DOUBLE_SUM, MP_REDUCTION_DOUBLE_MAXIMUM };

/* Whole operations.  What returns MP_OK is in flight until `wait`, which is called once. */
struct mp_queued_operations {
    /* The back end's part of a request, request->queued. */
    int (*request_create)(struct mp_request *request, struct mp_error *error);
    void (*request_destroy)(struct mp_request *request);
    int (*wait)(struct mp_request *request, struct mp_error *error);
    int (*progress)(struct mp_comm *comm, struct mp_error *error);

    /* Host memory; done on return. */
    int (*barrier)(struct mp_comm *comm, struct mp_error *error);
    int (*broadcast)(struct mp_comm *comm, void *memory, size_t bytes, int root,
                     struct mp_error *error);
    int (*reduce)(struct mp_comm *comm, enum mp_reduction reduction, double *values, int count,
                  struct mp_error *error);
    int (*pass)(struct mp_comm *comm, void *memory, size_t bytes, int rank, bool send,
                struct mp_error *error);

    int (*gather_counts)(struct mp_request *request, const uint32_t *mine, int count, uint32_t *all,
                         struct mp_error *error);
    int (*exchange)(struct mp_request *request, struct mp_error *error); /* request->rows */
    int (*all_reduce)(struct mp_request *request, float *values, size_t count,
                      struct mp_error *error);
    /* The nodes of request->flow, with their memory: copies down the trees (gather, move), sums up
     * them (reduce).  A gather and a reduce have their list in the flow. */
    int (*down)(struct mp_request *request, struct mp_error *error);
    int (*up)(struct mp_request *request, struct mp_error *error);
};

struct mp_comm_operations {
    const char *name; /* "mpi" */
    void (*destroy)(struct mp_comm *comm);
    void (*abort)(struct mp_comm *comm, int status);
    /* "Open MPI 4.1.4, host node7" */
    void (*describe)(struct mp_comm *comm, char *text, size_t size);

    const struct mp_queued_operations *queued; /* NULL: messages, and all that follows */

    /* Slots 0 .. capacity - 1.  Destroying with operations in flight is only for leaving after a
     * failure: they are given up. */
    int (*messages_create)(struct mp_comm *comm, int capacity, struct mp_messages **messages,
                           struct mp_error *error);
    void (*messages_destroy)(struct mp_messages *messages);
    /* Slot `to` takes over what `from` holds. */
    void (*messages_move)(struct mp_messages *messages, int from, int to);
    /* Never blocks.  finished[] lists those of the slots 0 .. active - 1 that have come to their
     * end since the last test.  All of them hold an operation. */
    int (*messages_test)(struct mp_comm *comm, struct mp_messages *messages, int active,
                         int finished[], int *count, struct mp_error *error);

    /* Messages from one rank with one tag arrive in the order in which they were sent.  `bytes` is
     * 1 .. MP_MESSAGE_LIMIT, the same on both sides. */
    int (*send)(struct mp_comm *comm, struct mp_messages *messages, int slot, const void *memory,
                size_t bytes, int rank, int tag, struct mp_error *error);
    int (*receive)(struct mp_comm *comm, struct mp_messages *messages, int slot, void *memory,
                   size_t bytes, int rank, int tag, struct mp_error *error);

    /* Dense collectives, in place but for all_gather; started by all ranks in the same order. */
    int (*barrier)(struct mp_comm *comm, struct mp_messages *messages, int slot,
                   struct mp_error *error);
    int (*broadcast)(struct mp_comm *comm, struct mp_messages *messages, int slot, void *memory,
                     size_t bytes, int root, struct mp_error *error);
    int (*all_reduce)(struct mp_comm *comm, struct mp_messages *messages, int slot,
                      enum mp_reduction reduction, void *values, size_t count,
                      struct mp_error *error);
    int (*all_gather)(struct mp_comm *comm, struct mp_messages *messages, int slot,
                      const void *mine, size_t bytes, void *all, struct mp_error *error);

    /* Memory that additions can read and messages reach; NULL: aligned_alloc and free. */
    void *(*ring_allocate)(struct mp_comm *comm, size_t bytes);
    void (*ring_release)(struct mp_comm *comm, void *memory);
    /* Returns when the work queued on `stream` so far is done, so that its memory can be sent. */
    void (*settle)(struct mp_comm *comm, mp_stream stream);
    /* to[i] += from[i], done on return. */
    void (*add)(struct mp_comm *comm, mp_stream stream, size_t count, const float *from, float *to);
};

/* The largest message, in bytes: half of what an int counts. */
enum { MP_MESSAGE_LIMIT = 1 << 30 };

/* What every back end's comm begins with; a struct mp_comm pointer points to it. */
struct mp_transport {
    struct mp_comm comm;
    struct mp_device *device;                    /* borrowed; NULL: memory is the host's */
    struct mp_request *in_flight[MP_COMM_LANES]; /* oldest first */
    struct mp_request *blocking; /* serves the calls that wait themselves; NULL for one rank */
    bool advancing;              /* messages are being moved on */
    int next_tag;                /* equal on all ranks */
    int tag_limit;               /* tags are 0 .. tag_limit */
    bool ranks_share_cores;
    struct mp_comm
        *host; /* where clocks are compared instead, and their errors are smaller; NULL */
    void (*observe)(void *context, mp_stream stream, bool begins); /* mp_comm_on_wait */
    void *observe_context;
};

/* A message has been sent. */
static inline void mp_comm_sent(struct mp_comm *comm, int rank, size_t bytes) {
    const int node = comm->ranks_per_node > 0 ? comm->ranks_per_node : comm->ranks;
    comm->sent_bytes += (int64_t)bytes;
    if (rank / node != comm->rank / node)
        comm->between_bytes += (int64_t)bytes;
}

static inline struct mp_transport *mp_transport_of(struct mp_comm *comm) {
    return (struct mp_transport *)comm;
}

/* Queued on the stream, or done on return where memory is the host's; to and from may be equal. */
void mp_transport_copy(struct mp_transport *transport, mp_stream stream, void *to, const void *from,
                       size_t bytes);
/* Operations of the back end's own that replace messages; NULL for messages and for one rank. */
const struct mp_queued_operations *mp_transport_queued(const struct mp_comm *comm);

/* The last step of creating a back end with several ranks, and the first of destroying it. */
int mp_transport_open(struct mp_transport *transport, struct mp_error *error);
void mp_transport_close(struct mp_transport *transport);

/* `count` tags that no operation in flight uses, the same on every rank because all start the
 * same operations in the same order.  Numbers are used again once all have been used, hence
 * MP_ELIMIT for more than a quarter of them at a time. */
int mp_transport_take_tags(struct mp_transport *transport, int count, int *first,
                           struct mp_error *error);

/* What a message is to the operation it belongs to. */
struct mp_note {
    int node;  /* of the flow */
    int index; /* the operation's own numbering: piece or place in the ring */
    int child; /* sends: which child; -1 for a receive */
    bool finished;
};
/* Of messages that nothing follows. */
static const struct mp_note mp_plain_note = {.child = -1};

/* Sizes that decide the speed of the sparse collectives; measured with `moeperf-bench comm`.  The
 * ring is small so that what has been received is added before it leaves the cache. */
enum {
    MP_GATHER_PIECE = 256 << 10, /* bytes that are forwarded as soon as they are here */
    MP_REDUCE_PIECE = 512 << 10, /* bytes that are received and then added */
    MP_WINDOW = 8,               /* pieces of one edge in flight; at most 32 */
    MP_RING = 4                  /* pieces being received for additions, per request; at least 2 */
};

/* This rank's place in the tree of one expert, and how far it has come.  Pieces are sent and
 * received in ascending order along every edge. */
struct mp_node {
    int expert;
    int owner;             /* rank, the root */
    int members;           /* ranks in the tree */
    int depth, height;     /* hops from the owner to this rank, and to the farthest one */
    int tag;               /* minus the operation's first */
    int parent;            /* rank; -1 at the root */
    int child[MP_HOP_FAN]; /* ranks; -1 if there is none, child[0] first */
    size_t piece;          /* bytes of all pieces but the last */
    int pieces;
    char *memory;         /* the chunk */
    int posted;           /* gather: receives started */
    int ready;            /* pieces 0 .. ready - 1 are here (gather) or summed (reduce) */
    uint32_t arrived;     /* gather: bit i: piece ready + i is here too */
    int sent[MP_HOP_FAN]; /* per child (gather); [0] to the parent (reduce) */
    int outstanding[MP_HOP_FAN];
};

/* One piece on its way to an addition. */
struct mp_arrival {
    int node, piece, child;
    bool here;
};

/* State of a sparse collective or a move. */
struct mp_flow {
    int limit;                    /* of nodes and of transfers, from mp_request_create */
    size_t chunk_limit;           /* bytes */
    uint64_t *key;                /* [limit], the transfers of the stage, sorted; working memory */
    struct mp_receiver *receiver; /* [ranks] of one tree; likewise */
    struct mp_hop *hop;           /* [ranks] likewise */
    bool moves;                   /* nodes are messages, each between two ranks of its own */
    struct mp_node *node;
    int nodes;
    size_t bytes;
    int first_tag;

    /* Reduce only.  Pieces are received and added in the order (step, tree, child), at most MP_RING
     * at a time.  Piece p of a tree of height H is added at depth d in step p + H - d, the order in
     * which pieces come if all travel alike, so that none waits for one that comes later.  It makes
     * a bounded ring safe, whatever the trees look like: what a rank adds in a step, its children
     * have added in the one before.  So of all that is still to be added anywhere the first in the
     * order is on its way, and its receive is started, since nothing is left before it. */
    char *buffer; /* [MP_RING][MP_REDUCE_PIECE or the chunk if that is smaller] */
    size_t buffer_bytes;
    struct mp_arrival arrival[MP_RING];
    int64_t head, tail;                          /* arrivals head .. tail - 1 are started */
    int steps, next_step, next_node, next_child; /* what is received next */
};

/* Rows on their way. */
struct mp_exchange_rows {
    struct mp_exchange_walk walk;
    int cargoes;
    struct mp_exchange_cargo cargo[MP_EXCHANGE_CARGOES];
    const struct mp_exchange_maker *maker; /* NULL: rows are put in order */
    int tag; /* of the messages of all rounds: a rank's come one round after the other */
};

/* One round of it: rows to and from each rank, one rank's behind the other's. */
struct mp_exchange_hop {
    const int *send_rows, *receive_rows; /* [ranks]; NULL: there is no round any more */
    struct {
        const char *from;
        char *to;
        size_t row_bytes;
    } cargo[MP_EXCHANGE_CARGOES];
    int cargoes;
};

struct mp_request {
    struct mp_transport *transport;
    struct mp_request *next;
    bool in_flight;
    enum mp_comm_lane lane; /* of the operation, as all that follows */
    mp_stream stream;
    void *queued; /* the part of a back end with operations of its own */
    struct mp_messages *messages;
    int active, capacity; /* slots 0 .. active - 1 hold a message */
    int *finished;        /* [capacity] */
    struct mp_note *note; /* [capacity], of each slot */
    struct mp_note *done; /* [capacity], working memory */
    /* Called for every message of the operation that has ended; NULL if nothing follows, which is
     * so on the exchange lane. */
    int (*follow)(struct mp_request *request, const struct mp_note *note, struct mp_error *error);
    struct mp_flow flow;
    struct mp_exchange_rows rows;
    /* Called on the exchange lane when all messages have ended, or for an operation that is queued
     * before the lane's next one; NULL: that is all. */
    int (*go_on)(struct mp_request *request, struct mp_error *error);
    struct mp_arena arena; /* of the tables */
};

/* Checks that the request is of this comm and free, and puts it in flight with nothing in it. */
int mp_request_begin(struct mp_comm *comm, struct mp_request *request, enum mp_comm_lane lane,
                     mp_stream stream, struct mp_error *error);
/* The end of every start: if nothing had to be started, or could be, the request is free again.
 * Returns `code`. */
int mp_request_started(struct mp_request *request, int code);
/* The same for a back end's own operation, which is in flight unless `code` says that it failed. */
int mp_request_queued(struct mp_request *request, int code);
/* MP_ELIMIT for a message that no transport carries. */
int mp_message_check(const struct mp_comm *comm, size_t bytes, int rank, struct mp_error *error);
/* Goes on to the next round of request->rows, or its end, with what is to be put in order or made
 * before it queued on the stream, or done. */
int mp_exchange_next_hop(struct mp_request *request, mp_stream stream, struct mp_exchange_hop *hop,
                         struct mp_error *error);
/* Whether the host has to see the rows of the last round before. */
bool mp_exchange_reads_next(const struct mp_request *request);
/* What of it stays at this rank. */
void mp_exchange_copy_own(struct mp_request *request, const struct mp_exchange_hop *hop,
                          mp_stream stream);
/* Starts one message in the next slot.  `bytes` 0 is nothing. */
int mp_request_send(struct mp_request *request, const void *memory, size_t bytes, int rank, int tag,
                    struct mp_note note, struct mp_error *error);
int mp_request_receive(struct mp_request *request, void *memory, size_t bytes, int rank, int tag,
                       struct mp_note note, struct mp_error *error);
