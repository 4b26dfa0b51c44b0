#include "profiler/nccl/operations.h"

#include <stdlib.h>

#include "profiler/record/spool.h"

enum { KIND_BITS = 2, PLACE_BITS = 16, NO_PLACE = NCCL_OPERATIONS };
_Static_assert(NCCL_OPERATIONS < 1 << PLACE_BITS, "a handle has room for the place");

/* ---- handles ---- */

static void *handle_of(const struct nccl_pool *pool, const struct nccl_operation *operation,
                       enum nccl_handle kind) {
    uint64_t place = (uint64_t)(operation - pool->operation);
    return (void *)(uintptr_t)((uint64_t)operation->generation << (PLACE_BITS + KIND_BITS) |
                               place << KIND_BITS | (uint64_t)kind);
}

enum nccl_handle nccl_handle_kind(const void *handle) {
    return (enum nccl_handle)((uintptr_t)handle & ((1 << KIND_BITS) - 1));
}

void *nccl_group_handle(uint64_t ordinal) {
    return (void *)(uintptr_t)(ordinal << KIND_BITS | NCCL_HANDLE_GROUP);
}

uint64_t nccl_group_ordinal(const void *handle) {
    return nccl_handle_kind(handle) == NCCL_HANDLE_GROUP ? (uintptr_t)handle >> KIND_BITS : 0;
}

/* NULL: not of this kind, or of an operation that is over. */
static struct nccl_operation *find(const struct nccl_pool *pool, const void *handle,
                                   enum nccl_handle kind) {
    uint64_t bits = (uintptr_t)handle;
    uint32_t place = (uint32_t)(bits >> KIND_BITS) & ((1u << PLACE_BITS) - 1);
    if (nccl_handle_kind(handle) != kind || place >= pool->touched)
        return NULL;
    struct nccl_operation *operation = &pool->operation[place];
    bool same = operation->used && operation->generation == bits >> (PLACE_BITS + KIND_BITS);
    return same ? operation : NULL;
}

/* ---- the pool ---- */

int nccl_pool_create(struct nccl_pool *pool, struct mp_companion *companion) {
    *pool = (struct nccl_pool){.free = NO_PLACE, .companion = companion};
    pool->operation = calloc(NCCL_OPERATIONS, sizeof *pool->operation);
    return pool->operation ? MP_OK : MP_ENOMEM;
}

void nccl_pool_destroy(struct nccl_pool *pool) {
    free(pool->operation);
    *pool = (struct nccl_pool){0};
}

static struct nccl_operation *take(struct nccl_pool *pool) {
    struct nccl_operation *operation = NULL;
    if (pool->free != NO_PLACE) {
        operation = &pool->operation[pool->free];
        pool->free = operation->next_free;
    } else if (pool->touched < NCCL_OPERATIONS) {
        operation = &pool->operation[pool->touched++];
    }
    return operation;
}

static void record(struct nccl_pool *pool, struct nccl_operation *operation) {
    operation->is.timed_channels = operation->finished;
    if (operation->finished == 0) /* a start without an end is no time */
        operation->is.timer_start = operation->is.timer_end = 0;
    mp_record_add(
        pool->companion->thread,
        &(struct mp_spool_record){.type = MP_SPOOL_COLLECTIVE, .as.collective = operation->is});
    pool->recorded++;
    pool->open--;
    operation->used = false;
    operation->generation++; /* 32 bits shifted by 18 stay within a handle's 64 */
    operation->next_free = pool->free;
    pool->free = (uint32_t)(operation - pool->operation);
}

static void record_if_over(struct nccl_pool *pool, struct nccl_operation *operation) {
    bool channels_over = !operation->waits_for_channels ||
                         (operation->finished >= operation->is.channels && !operation->running);
    if (operation->queued && channels_over)
        record(pool, operation);
}

void nccl_pool_give_up(struct nccl_pool *pool, const void *owner, int64_t before_ns) {
    for (uint32_t i = 0; i < pool->touched && pool->open > 0; i++) {
        struct nccl_operation *operation = &pool->operation[i];
        if (operation->used && (!owner || operation->owner == owner) &&
            operation->is.start_ns <= before_ns) {
            pool->unfinished++;
            record(pool, operation);
        }
    }
}

/* ---- one operation ---- */

void *nccl_operation_begin(struct nccl_pool *pool, const void *owner,
                           const struct mp_collective *is, bool waits_for_channels) {
    struct nccl_operation *operation = take(pool);
    if (!operation) {
        pool->lost++;
        return NULL;
    }
    *operation = (struct nccl_operation){.is = *is,
                                         .owner = owner,
                                         .generation = operation->generation,
                                         .used = true,
                                         .waits_for_channels = waits_for_channels};
    pool->open++;
    return handle_of(pool, operation, NCCL_HANDLE_OPERATION);
}

bool nccl_operation_queued(struct nccl_pool *pool, const void *handle, int64_t now_ns) {
    struct nccl_operation *operation = find(pool, handle, NCCL_HANDLE_OPERATION);
    if (!operation)
        return false;
    operation->queued = true;
    operation->is.queued_ns = now_ns;
    record_if_over(pool, operation);
    return true;
}

void *nccl_channel_begin(struct nccl_pool *pool, const void *parent, uint64_t timer) {
    struct nccl_operation *operation = find(pool, parent, NCCL_HANDLE_OPERATION);
    if (!operation)
        return NULL;
    operation->running++;
    if (timer && (!operation->is.timer_start || timer < operation->is.timer_start))
        operation->is.timer_start = timer;
    return handle_of(pool, operation, NCCL_HANDLE_CHANNEL);
}

bool nccl_channel_time(struct nccl_pool *pool, const void *handle, uint64_t timer) {
    struct nccl_operation *operation = find(pool, handle, NCCL_HANDLE_CHANNEL);
    if (!operation)
        return false;
    if (timer > operation->is.timer_end)
        operation->is.timer_end = timer;
    return true;
}

bool nccl_channel_end(struct nccl_pool *pool, const void *handle) {
    struct nccl_operation *operation = find(pool, handle, NCCL_HANDLE_CHANNEL);
    if (!operation || operation->running == 0)
        return false;
    operation->running--;
    operation->finished++;
    record_if_over(pool, operation);
    return true;
}
