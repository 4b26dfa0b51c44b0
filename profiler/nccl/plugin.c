/* NCCL's five functions.  They come from the program's threads and from one proxy thread per
 * communicator; one lock guards all state and is held for some tens of nanoseconds.  They always
 * succeed: a profiler is no reason for a program to stop. */
#include "profiler/nccl/plugin.h"

#include <limits.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "profiler/device/companion.h"
#include "profiler/nccl/nccl.h"
#include "profiler/record/activity.h"
#include "profiler/record/spool.h"

/* ---- operations that are under way, and what callers hold for them ---- */

/* NCCL keeps what startEvent answers and gives it back later, from other threads and in any order:
 * "stop" of a collective only means that it is queued, and the kernel's channels start and stop
 * after it.  An operation is over when it is queued and as many channels as it should use have
 * stopped.  Handles are numbers and no addresses: place in the pool and generation, so that one
 * that comes too late is recognised and harmless.  One thread at a time uses a pool. */

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

enum { KIND_BITS = 2, PLACE_BITS = 16, NO_PLACE = NCCL_OPERATIONS };
_Static_assert(NCCL_OPERATIONS < 1 << PLACE_BITS, "a handle has room for the place");

/* ---- handles ---- */

static void *handle_of(const struct nccl_pool *pool, const struct nccl_operation *operation,
                       enum nccl_handle kind) {
    uint64_t place = (uint64_t)(operation - pool->operation);
    return (void *)(uintptr_t)((uint64_t)operation->generation << (PLACE_BITS + KIND_BITS) |
                               place << KIND_BITS | (uint64_t)kind);
}

static enum nccl_handle nccl_handle_kind(const void *handle) {
    return (enum nccl_handle)((uintptr_t)handle & ((1 << KIND_BITS) - 1));
}

/* A group call as a handle: its ordinal, from 1. */
static void *nccl_group_handle(uint64_t ordinal) {
    return (void *)(uintptr_t)(ordinal << KIND_BITS | NCCL_HANDLE_GROUP);
}

/* The ordinal of a group's handle; 0 for any other. */
static uint64_t nccl_group_ordinal(const void *handle) {
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

static int nccl_pool_create(struct nccl_pool *pool, struct mp_companion *companion) {
    *pool = (struct nccl_pool){.free = NO_PLACE, .companion = companion};
    pool->operation = calloc(NCCL_OPERATIONS, sizeof *pool->operation);
    return pool->operation ? MP_OK : MP_ENOMEM;
}

/* Accepts a zeroed one. */
static void nccl_pool_destroy(struct nccl_pool *pool) {
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

/* Records as they are what `owner` has open (NULL: whose ever) and no later than before_ns. */
static void nccl_pool_give_up(struct nccl_pool *pool, const void *owner, int64_t before_ns) {
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

/* Begins an operation; NULL: the pool is full (counted). */
static void *nccl_operation_begin(struct nccl_pool *pool, const void *owner,
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

/* The host has queued it.  False: there is no such operation any more. */
static bool nccl_operation_queued(struct nccl_pool *pool, const void *handle, int64_t now_ns) {
    struct nccl_operation *operation = find(pool, handle, NCCL_HANDLE_OPERATION);
    if (!operation)
        return false;
    operation->queued = true;
    operation->is.queued_ns = now_ns;
    record_if_over(pool, operation);
    return true;
}

/* A channel of it starts; the answer is the channel's handle, NULL if there is no such operation.
 */
static void *nccl_channel_begin(struct nccl_pool *pool, const void *parent, uint64_t timer) {
    struct nccl_operation *operation = find(pool, parent, NCCL_HANDLE_OPERATION);
    if (!operation)
        return NULL;
    operation->running++;
    if (timer && (!operation->is.timer_start || timer < operation->is.timer_start))
        operation->is.timer_start = timer;
    return handle_of(pool, operation, NCCL_HANDLE_CHANNEL);
}

/* A channel's end by the GPU's timer; and the end of the event, which may come first. */
static bool nccl_channel_time(struct nccl_pool *pool, const void *handle, uint64_t timer) {
    struct nccl_operation *operation = find(pool, handle, NCCL_HANDLE_CHANNEL);
    if (!operation)
        return false;
    if (timer > operation->is.timer_end)
        operation->is.timer_end = timer;
    return true;
}

static bool nccl_channel_end(struct nccl_pool *pool, const void *handle) {
    struct nccl_operation *operation = find(pool, handle, NCCL_HANDLE_CHANNEL);
    if (!operation || operation->running == 0)
        return false;
    operation->running--;
    operation->finished++;
    record_if_over(pool, operation);
    return true;
}

enum {
    FLUSH_MILLISECONDS = 200,
    FLUSHES_PER_TIMER = 5, /* a record of the timer every second */
    GIVE_UP_SECONDS = 30,  /* after which an operation's channels are not waited for */
    COST_EVERY = 16,       /* one event in so many is timed */
    LOG_INFO = 3
};

static const int mask_between = NCCL_EVENT_GROUP_CALL;
static const int mask_sampled =
    NCCL_EVENT_GROUP_CALL | NCCL_EVENT_COLLECTIVE | NCCL_EVENT_PAIR | NCCL_EVENT_KERNEL_CHANNEL;

struct communicator {
    struct communicator *next;
    uint64_t hash, groups;
    int rank, ranks;
};

static struct {
    pthread_mutex_t lock;
    pthread_cond_t wakes;
    pthread_t thread;
    bool on, stopping, knows_forks;
    struct communicator *first;
    struct mp_companion companion;
    struct nccl_pool pool;
    int *mask; /* NCCL's, one for the process */
    int64_t sampled, period, groups;
    int64_t foreign, events, timed_ns;
    struct mp_timer timer; /* of this window; samples 0: none yet */
    nccl_logger logger;
} plugin = {.lock = PTHREAD_MUTEX_INITIALIZER};

/* ---- the thread that writes ---- */

static void record_timer(void) {
    if (plugin.timer.samples > 0)
        mp_record_add(plugin.companion.thread,
                      &(struct mp_spool_record){.type = MP_SPOOL_TIMER, .as.timer = plugin.timer});
    plugin.timer = (struct mp_timer){0};
}

/* At the program's priority, since it holds the lock that NCCL's threads may wait for. */
static void *flush_thread(void *unused) {
    pthread_mutex_lock(&plugin.lock);
    for (int turn = 1; !plugin.stopping; turn++) {
        struct timespec until = mp_clock_after(FLUSH_MILLISECONDS);
        int timed_out = 0;
        while (!plugin.stopping && !timed_out)
            timed_out = pthread_cond_timedwait(&plugin.wakes, &plugin.lock, &until);
        if (turn % FLUSHES_PER_TIMER == 0) {
            record_timer();
            nccl_pool_give_up(&plugin.pool, NULL,
                              mp_clock_ns() - GIVE_UP_SECONDS * (int64_t)1000000000);
        }
        struct mp_recorder *recorder = plugin.companion.recorder;
        pthread_mutex_unlock(&plugin.lock);
        mp_recorder_flush(recorder, NULL);
        pthread_mutex_lock(&plugin.lock);
    }
    pthread_mutex_unlock(&plugin.lock);
    return unused;
}

static bool start_thread(void) {
    plugin.stopping = false;
    return mp_companion_thread(&plugin.thread, &plugin.wakes, flush_thread) == 0;
}

/* ---- start and end of all; the lock is held ---- */

bool nccl_parse_sample(const char *text, int64_t *sampled, int64_t *period) {
    char *slash, *end;
    *sampled = 1000;
    *period = 10000;
    if (!text || !*text)
        return true;
    long long first = strtoll(text, &slash, 10);
    long long all = *slash == '/' ? strtoll(slash + 1, &end, 10) : 0;
    if (slash == text || *slash != '/' || end == slash + 1 || *end || first < 1 || all < first ||
        all == LLONG_MAX)
        return false;
    *sampled = first;
    *period = all;
    return true;
}

/* A child has neither the thread nor the right to write its parent's file, and the lock may have
 * been somebody's.  It stays off for good. */
static void child_of_fork(void) {
    pthread_mutex_init(&plugin.lock, NULL);
    plugin.on = plugin.stopping = false;
}

static void start(void) {
    char status[200] = "on";
    const char *sample = getenv("MOEPERF_NCCL_SAMPLE");
    if (mp_companion_open(&plugin.companion, "nccl", NULL) != MP_OK)
        return;
    if (!plugin.knows_forks)
        plugin.knows_forks = pthread_atfork(NULL, NULL, child_of_fork) == 0;
    plugin.groups = plugin.foreign = plugin.events = plugin.timed_ns = 0;
    plugin.timer = (struct mp_timer){0};
    if (!nccl_parse_sample(sample, &plugin.sampled, &plugin.period))
        snprintf(status, sizeof status,
                 "MOEPERF_NCCL_SAMPLE is \"%.40s\", and N/P is needed, the first N group calls of "
                 "every P, 1 <= N <= P",
                 sample);
    else if (nccl_pool_create(&plugin.pool, &plugin.companion) != MP_OK || !start_thread())
        snprintf(status, sizeof status, "no memory or no thread for the operations");
    else
        plugin.on = true;
    mp_companion_status(&plugin.companion, "nccl", status);
    if (!plugin.on) {
        nccl_pool_destroy(&plugin.pool);
        mp_companion_close(&plugin.companion);
    }
}

static void record_totals(void) {
    int64_t cost_ns = plugin.timed_ns * COST_EVERY;
    const struct {
        const char *name;
        int64_t value;
    } numbers[] = {{"nccl.operations", plugin.pool.recorded},
                   {"nccl.lost", plugin.pool.lost},
                   {"nccl.unfinished", plugin.pool.unfinished},
                   {"nccl.foreign", plugin.foreign},
                   {"nccl.groups", plugin.groups},
                   {"nccl.sampled", plugin.sampled},
                   {"nccl.period", plugin.period},
                   {"nccl.events", plugin.events},
                   {"nccl.callback-ns", cost_ns}};
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++)
        mp_record_number(plugin.companion.thread, -1, -1, numbers[i].name,
                         (double)numbers[i].value);
    if (plugin.logger)
        plugin.logger(LOG_INFO, ~0ul, __func__, __LINE__,
                      "moeperf: %lld operations recorded, %lld events took %.3f ms in all",
                      (long long)plugin.pool.recorded, (long long)plugin.events,
                      (double)cost_ns / 1e6);
}

/* Gives the lock up while the thread ends.  NCCL may unload the library after its last finalize. */
static void stop(void) {
    if (!plugin.on)
        return;
    plugin.on = false;
    plugin.stopping = true;
    pthread_cond_signal(&plugin.wakes);
    pthread_t thread = plugin.thread;
    pthread_mutex_unlock(&plugin.lock);
    pthread_join(thread, NULL);
    pthread_mutex_lock(&plugin.lock);
    nccl_pool_give_up(&plugin.pool, NULL, INT64_MAX);
    record_timer();
    record_totals();
    nccl_pool_destroy(&plugin.pool);
    mp_companion_close(&plugin.companion);
    plugin.stopping = false;
}

static void forget_communicators(void) {
    while (plugin.first) {
        struct communicator *gone = plugin.first;
        plugin.first = gone->next;
        free(gone);
    }
}

/* Programs often end without destroying their communicators. */
static __attribute__((destructor)) void at_exit(void) {
    pthread_mutex_lock(&plugin.lock);
    if (plugin.on && plugin.companion.pid == (int)getpid())
        stop();
    forget_communicators();
    pthread_mutex_unlock(&plugin.lock);
}

/* ---- events; the lock is held ---- */

/* NULL: not a context of ours: a failed start's, one that has ended, or another process's. */
static struct communicator *communicator_of(const void *context) {
    struct communicator *own = plugin.on && context ? plugin.first : NULL;
    while (own && own != context)
        own = own->next;
    return own;
}

/* The mask is read again at every call, so what is set here decides about the calls to come. */
static void *begin_group(struct communicator *own) {
    bool sampled = plugin.groups++ % plugin.period < plugin.sampled;
    if (plugin.mask)
        __atomic_store_n(plugin.mask, sampled ? mask_sampled : mask_between, __ATOMIC_RELAXED);
    return nccl_group_handle(++own->groups);
}

static void *begin_operation(struct communicator *own, const struct nccl_event *event) {
    struct mp_companion *companion = &plugin.companion;
    struct mp_collective is = {.start_ns = mp_clock_ns(),
                               .communicator = own->hash,
                               .group = nccl_group_ordinal(event->parent),
                               .rank = own->rank,
                               .ranks = own->ranks};
    if (event->type == NCCL_EVENT_COLLECTIVE) {
        is.sequence = event->collective.sequence;
        is.count = event->collective.count;
        is.function = mp_companion_name(companion, event->collective.function);
        is.datatype = mp_companion_name(companion, event->collective.datatype);
        is.algorithm = mp_companion_name(companion, event->collective.algorithm);
        is.protocol = mp_companion_name(companion, event->collective.protocol);
        is.peer = event->collective.root;
        is.channels = event->collective.channels;
    } else {
        is.count = event->pair.count;
        is.function = mp_companion_name(companion, event->pair.function);
        is.datatype = mp_companion_name(companion, event->pair.datatype);
        is.peer = event->pair.peer;
        is.channels = event->pair.channels;
        is.is_pair = 1;
    }
    return nccl_operation_begin(&plugin.pool, own, &is, is.channels > 0);
}

static void *begin(struct communicator *own, const struct nccl_event *event) {
    switch (event->type) {
    case NCCL_EVENT_GROUP_CALL:
        return begin_group(own);
    case NCCL_EVENT_COLLECTIVE_CALL: /* stands for its group, for which its children ask */
    case NCCL_EVENT_PAIR_CALL:
        return nccl_group_ordinal(event->parent) ? event->parent : NULL;
    case NCCL_EVENT_COLLECTIVE:
    case NCCL_EVENT_PAIR:
        return begin_operation(own, event);
    case NCCL_EVENT_KERNEL_CHANNEL:
        return nccl_channel_begin(&plugin.pool, event->parent, event->kernel_channel.timer);
    case NCCL_EVENT_PROXY_OPERATION: /* not asked for; through another rank's proxy all the same */
        plugin.foreign += event->proxy_operation.pid != getpid();
        return NULL;
    default:
        return NULL;
    }
}

/* The callback runs some time after the GPU read its timer, so the smallest difference is the
 * nearest to the truth. */
static void sample_timer(uint64_t timer) {
    int64_t now_ns = mp_clock_ns();
    int64_t offset_ns = now_ns - (int64_t)timer;
    if (plugin.timer.samples++ == 0)
        plugin.timer = (struct mp_timer){now_ns, offset_ns, 1};
    else if (offset_ns < plugin.timer.offset_ns)
        plugin.timer.offset_ns = offset_ns;
}

/* ---- what NCCL calls ---- */

/* Every so many events one is timed, and not the cold first: two readings of the clock for each
 * would be most of the cost. */
static int64_t enter(void) {
    pthread_mutex_lock(&plugin.lock);
    bool timed = plugin.events++ % COST_EVERY == COST_EVERY / 2;
    return timed ? mp_clock_ns() : 0;
}

static void leave(int64_t entered_ns) {
    if (entered_ns)
        plugin.timed_ns += mp_clock_ns() - entered_ns;
    pthread_mutex_unlock(&plugin.lock);
}

static int profiler_init(void **context, uint64_t hash, int *mask, const char *name, int nodes,
                         int ranks, int rank, nccl_logger logger) {
    (void)name;
    (void)nodes;
    if (context)
        *context = NULL;
    if (mask)
        *mask = 0;
    struct communicator *own = calloc(1, sizeof *own);
    if (!own || !context || !mask) {
        free(own);
        return NCCL_SUCCESS; /* nothing is asked for, so nothing comes */
    }
    pthread_mutex_lock(&plugin.lock);
    if (!plugin.on && !plugin.first && !plugin.stopping)
        start();
    if (plugin.on) {
        *own = (struct communicator){plugin.first, hash, 0, rank, ranks};
        plugin.first = own;
        plugin.logger = logger;
        plugin.mask = mask;
        bool sampled = plugin.groups % plugin.period < plugin.sampled;
        __atomic_store_n(mask, sampled ? mask_sampled : mask_between, __ATOMIC_RELAXED);
        *context = own;
        own = NULL;
    }
    pthread_mutex_unlock(&plugin.lock);
    free(own);
    return NCCL_SUCCESS;
}

static int profiler_start_event(void *context, void **handle, struct nccl_event *event) {
    if (!handle)
        return NCCL_SUCCESS;
    *handle = NULL;
    if (!context || !event)
        return NCCL_SUCCESS;
    int64_t entered_ns = enter();
    struct communicator *own = communicator_of(context);
    if (own)
        *handle = begin(own, event);
    leave(entered_ns);
    return NCCL_SUCCESS;
}

static int profiler_stop_event(void *handle) {
    if (!handle)
        return NCCL_SUCCESS;
    int64_t entered_ns = enter();
    if (plugin.on && nccl_handle_kind(handle) == NCCL_HANDLE_OPERATION)
        nccl_operation_queued(&plugin.pool, handle, mp_clock_ns());
    else if (plugin.on && nccl_handle_kind(handle) == NCCL_HANDLE_CHANNEL)
        nccl_channel_end(&plugin.pool, handle);
    leave(entered_ns);
    return NCCL_SUCCESS;
}

static int profiler_record_state(void *handle, int state, union nccl_state *arguments) {
    if (!handle || !arguments || state != NCCL_STATE_KERNEL_CHANNEL_STOP)
        return NCCL_SUCCESS;
    int64_t entered_ns = enter();
    if (plugin.on && arguments->timer && nccl_channel_time(&plugin.pool, handle, arguments->timer))
        sample_timer(arguments->timer);
    leave(entered_ns);
    return NCCL_SUCCESS;
}

static int profiler_finalize(void *context) {
    pthread_mutex_lock(&plugin.lock);
    struct communicator *own = communicator_of(context), **link = &plugin.first;
    if (own) {
        nccl_pool_give_up(&plugin.pool, own, INT64_MAX);
        while (*link != own)
            link = &(*link)->next;
        *link = own->next;
        free(own);
        if (!plugin.first)
            stop();
    }
    pthread_mutex_unlock(&plugin.lock);
    return NCCL_SUCCESS;
}

struct nccl_profiler ncclProfiler_v5 = {
    "moeperf",           profiler_init,         profiler_start_event,
    profiler_stop_event, profiler_record_state, profiler_finalize};
struct nccl_profiler ncclProfiler_v6 = {
    "moeperf",           profiler_init,         profiler_start_event,
    profiler_stop_event, profiler_record_state, profiler_finalize};
