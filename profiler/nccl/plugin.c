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

#include "profiler/nccl/nccl.h"
#include "profiler/nccl/operations.h"
#include "profiler/record/spool.h"

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
