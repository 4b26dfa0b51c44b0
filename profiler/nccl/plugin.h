/* NCCL's profiler interface, versions 5 and 6, in our own words.
 *
 * NCCL's headers for it come with its sources and not with the library, so the layouts are declared
 * here and held by tests of their sizes and offsets.  Facts from NCCL 2.28.9 (version 5) and 2.29.2
 * (version 6: more members in the union, none of those here moved). */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

/* Bits of the activation mask, and types of events. */
enum nccl_event_type {
    NCCL_EVENT_GROUP = 1 << 0,
    NCCL_EVENT_COLLECTIVE = 1 << 1,
    NCCL_EVENT_PAIR = 1 << 2, /* send or receive */
    NCCL_EVENT_PROXY_OPERATION = 1 << 3,
    NCCL_EVENT_PROXY_STEP = 1 << 4,
    NCCL_EVENT_PROXY_CONTROL = 1 << 5,
    NCCL_EVENT_KERNEL_CHANNEL = 1 << 6,
    NCCL_EVENT_NETWORK = 1 << 7,
    NCCL_EVENT_GROUP_CALL = 1 << 8,
    NCCL_EVENT_COLLECTIVE_CALL = 1 << 9,
    NCCL_EVENT_PAIR_CALL = 1 << 10,
    NCCL_EVENT_KERNEL_LAUNCH = 1 << 11
};

enum { NCCL_STATE_KERNEL_CHANNEL_STOP = 22 };

enum { NCCL_SUCCESS = 0, NCCL_SYSTEM_ERROR = 2 }; /* ncclResult_t */

/* What an event that starts is.  Strings live during the call only. */
struct nccl_event {
    uint64_t type; /* one nccl_event_type */
    void *parent;  /* what startEvent has answered for it; NULL: not wanted or not started */
    int rank;      /* set for collectives, pairs and proxy events */
    union {
        struct {
            bool graph_captured; /* an int in some releases: the first byte is the same */
            int depth;
        } group_call;
        struct {
            uint64_t sequence; /* per communicator and function */
            const char *function;
            const void *send;
            void *receive;
            size_t count;
            int root;
            const char *datatype;
            uint8_t channels, warps;
            const char *algorithm, *protocol;
            void *parent_group;
        } collective;
        struct {
            const char *function;
            void *buffer;
            const char *datatype;
            size_t count;
            int peer;
            uint8_t channels;
            void *parent_group;
        } pair;
        struct {
            pid_t pid; /* of the process whose operation this is: not always this one */
            uint8_t channel;
            int peer, steps, chunk, is_send;
        } proxy_operation;
        struct {
            uint8_t channel;
            uint64_t timer; /* the GPU's global timer, ns, when the channel's kernel began */
        } kernel_channel;
        /* The largest member of version 6, so that a copy of the whole has room for it. */
        struct {
            uint64_t sequence;
            const char *function;
            const void *send;
            void *receive;
            size_t count;
            int root;
            const char *datatype, *synchronisation;
            bool synchronises_in_batch;
            uint32_t batch_size, batches, copy_sequence;
            void *stream;
        } copy_collective;
    };
};

union nccl_state {
    size_t transferred;
    uint64_t timer; /* NCCL_STATE_KERNEL_CHANNEL_STOP: the GPU's global timer, ns, at the end */
};

typedef void (*nccl_logger)(int level, unsigned long flags, const char *file, int line,
                            const char *format, ...);

struct nccl_profiler {
    const char *name;
    int (*init)(void **context, uint64_t communicator, int *mask, const char *communicator_name,
                int nodes, int ranks, int rank, nccl_logger logger);
    int (*start_event)(void *context, void **handle, struct nccl_event *event);
    int (*stop_event)(void *handle);
    int (*record_state)(void *handle, int state, union nccl_state *arguments);
    int (*finalize)(void *context);
};

/* The same functions twice; NCCL looks for the symbols, newest first. */
extern struct nccl_profiler ncclProfiler_v5, ncclProfiler_v6;
