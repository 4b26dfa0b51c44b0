/* What collectors of a GPU's work put into spools: activities (CUPTI), collectives (NCCL), and how
 * the GPU's timer lies beside the span clock.  The layouts are the spool's (format.h); all are
 * multiples of 8 bytes without holes.  Names are ids of NAME records of the same file, 0: none. */
#pragma once

#include <stdint.h>

enum mp_activity_kind {
    MP_ACTIVITY_KERNEL,
    MP_ACTIVITY_COPY,
    MP_ACTIVITY_SET,
    MP_ACTIVITY_CALL,     /* of CUDA's runtime or driver on the host: what launched the others */
    MP_ACTIVITY_LINK,     /* external id of the calls of one correlation id */
    MP_ACTIVITY_OVERHEAD, /* time that the collecting itself took */
    MP_ACTIVITIES
};

struct mp_activity {
    int64_t start_ns, end_ns; /* mp_clock_ns; both 0: happened, but was not timed */
    uint64_t value;           /* bytes of a copy or set; external id of a link */
    uint64_t graph_node;      /* of a CUDA graph; 0: launched on its own */
    uint32_t correlation;     /* equal for a call and what it launched */
    uint32_t device, context, stream;
    uint32_t thread;        /* a call's, the system's id */
    uint32_t detail;        /* CUPTI's numbers: copy kind; value that was set; callback id of a
                               call; kind of an external id, of an overhead */
    uint32_t result;        /* a call's return value; copies: how many are in this record */
    uint32_t name;          /* a kernel's, a call's */
    uint8_t kind;           /* enum mp_activity_kind */
    uint8_t source, target; /* memory kinds of a copy; of a set: target */
    uint8_t zero;
    uint32_t registers;        /* per thread, as all from here on a kernel's */
    int32_t grid[3], block[3]; /* blocks, threads */
    uint32_t static_shared, dynamic_shared, local, more_zero; /* bytes; local per thread */
    uint64_t local_total;                                     /* bytes */
};

/* One collective or one send or receive of one rank, once all of it is over. */
struct mp_collective {
    int64_t start_ns, queued_ns; /* mp_clock_ns, on the host: it began to queue it, had queued it */
    uint64_t timer_start, timer_end; /* the GPU's global timer, ns: first channel's start, last
                                        one's end; both 0: not timed */
    uint64_t communicator;           /* the hash that NCCL's NVTX payloads carry, too */
    uint64_t sequence; /* of the function in its communicator; 0 for send and receive */
    uint64_t group;    /* ordinal of the group call in its communicator, from 1; 0: not
                          known */
    uint64_t count;    /* elements */
    uint32_t function, datatype, algorithm, protocol; /* names */
    int32_t rank, ranks;                              /* in the communicator */
    int32_t peer;                                     /* of send and receive, else the root */
    uint16_t channels,
        timed_channels; /* that it should use; whose times are in timer_start .. end */
    uint8_t is_pair;    /* 1: send or receive */
    uint8_t zero[7];
};

/* The span clock minus the GPU's global timer, smallest of what was seen from at_ns on: a reading
 * of the timer reaches the host late and never early, so the smallest difference is the best. */
struct mp_timer {
    int64_t at_ns; /* mp_clock_ns */
    int64_t offset_ns;
    int64_t samples; /* it is the smallest of */
};

_Static_assert(sizeof(struct mp_activity) == 120, "ACTIVITY");
_Static_assert(sizeof(struct mp_collective) == 104, "COLLECTIVE");
_Static_assert(sizeof(struct mp_timer) == 24, "TIMER");
