/* Operations that are under way, and what callers hold for them.
 *
 * NCCL keeps what startEvent answers and gives it back later, from other threads and in any order:
 * "stop" of a collective only means that it is queued, and the kernel's channels start and stop
 * after it.  An operation is over when it is queued and as many channels as it should use have
 * stopped.  Handles are numbers and no addresses: place in the pool and generation, so that one
 * that comes too late is recognised and harmless.  One thread at a time uses a pool. */
#ifndef MOEPERF_PROFILER_NCCL_OPERATIONS_H
#define MOEPERF_PROFILER_NCCL_OPERATIONS_H

#include "profiler/device/companion.h"
#include "profiler/nccl/plugin.h"
#include "profiler/record/activity.h"

enum { NCCL_OPERATIONS = 32768 };

/* Kinds of handles, in their lowest bits; NULL is none of them. */
enum nccl_handle { NCCL_HANDLE_GROUP = 1, NCCL_HANDLE_OPERATION, NCCL_HANDLE_CHANNEL };

struct nccl_operation {
    struct mp_collective is;
    const void *owner; /* the communicator's context */
    uint32_t generation;
    uint32_t next_free;
    uint16_t running;  /* channels started and not stopped */
    uint16_t finished; /* channels stopped */
    bool used, queued, waits_for_channels;
};

struct nccl_pool {
    struct nccl_operation *operation; /* [NCCL_OPERATIONS] */
    uint32_t free, touched, open;
    struct mp_companion *companion;
    int64_t recorded, lost, unfinished;
};

int nccl_pool_create(struct nccl_pool *pool, struct mp_companion *companion);
void nccl_pool_destroy(struct nccl_pool *pool); /* accepts a zeroed one */

/* A group call as a handle: its ordinal, from 1. */
void *nccl_group_handle(uint64_t ordinal);
/* The ordinal of a group's handle; 0 for any other. */
uint64_t nccl_group_ordinal(const void *handle);
enum nccl_handle nccl_handle_kind(const void *handle);

/* Begins an operation; NULL: the pool is full (counted). */
void *nccl_operation_begin(struct nccl_pool *pool, const void *owner,
                           const struct mp_collective *is, bool waits_for_channels);
/* The host has queued it.  False: there is no such operation any more. */
bool nccl_operation_queued(struct nccl_pool *pool, const void *handle, int64_t now_ns);
/* A channel of it starts; the answer is the channel's handle, NULL if there is no such operation.
 */
void *nccl_channel_begin(struct nccl_pool *pool, const void *parent, uint64_t timer);
/* A channel's end by the GPU's timer; and the end of the event, which may come first. */
bool nccl_channel_time(struct nccl_pool *pool, const void *handle, uint64_t timer);
bool nccl_channel_end(struct nccl_pool *pool, const void *handle);

/* Records as they are what `owner` has open (NULL: whose ever) and no later than before_ns. */
void nccl_pool_give_up(struct nccl_pool *pool, const void *owner, int64_t before_ns);

#endif
