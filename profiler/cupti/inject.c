/* Start and end of collecting, in the order that CUPTI wants: subscribe, register callbacks and
 * clock, enable kinds before the first context exists; at the end flush, then parse what is left.
 */
#include <cupti.h>
#include <dlfcn.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "profiler/cupti/buffers.h"
#include "profiler/cupti/cupti.h"

enum { STATUS_SIZE = 256 };

static struct {
    pthread_mutex_t lock; /* CUDA calls the initialiser once, but two libraries may hold a CUDA */
    bool started;
    bool follows; /* of ranges; the parsing thread's, and after its end stop's */
    _Atomic bool on;
    struct mp_companion companion;
    struct cupti_totals totals;
    CUpti_SubscriberHandle subscriber;
} collector = {.lock = PTHREAD_MUTEX_INITIALIZER};

/* ---- what CUPTI calls ---- */

static uint64_t CUPTIAPI span_clock(void) {
    return (uint64_t)mp_clock_ns();
}

static void CUPTIAPI buffer_requested(uint8_t **buffer, size_t *size, size_t *most_records) {
    cupti_buffer_hand_out(buffer, size, most_records);
}

static void CUPTIAPI buffer_completed(CUcontext context, uint32_t stream, uint8_t *buffer,
                                      size_t size, size_t valid) {
    (void)context; /* both always zero in these versions */
    (void)stream;
    (void)size;
    cupti_buffer_take_back(buffer, valid);
}

/* Subscribing takes a function; no domain is enabled, so it is never called. */
static void CUPTIAPI no_callback(void *user, CUpti_CallbackDomain domain, CUpti_CallbackId id,
                                 const void *parameters) {
    (void)user;
    (void)domain;
    (void)id;
    (void)parameters;
}

static void add_dropped(struct cupti_totals *totals) {
    size_t dropped = 0;
    if (cuptiActivityGetNumDroppedRecords(NULL, 0, &dropped) == CUPTI_SUCCESS)
        totals->dropped += (int64_t)dropped;
}

/* The collector of ranges, if it is in this process: it may come before CUDA or after. */
static void follow_ranges(int (*push)(int64_t), int (*pop)(void)) {
    typedef void (*follow_function)(int (*)(int64_t), int (*)(void));
    const char *path = getenv("NVTX_INJECTION64_PATH");
    void *library = path && *path ? dlopen(path, RTLD_NOW | RTLD_NOLOAD) : NULL;
    if (!library)
        return;
    follow_function follow = (follow_function)dlsym(library, "mp_nvtx_follow");
    if (follow) {
        follow(push, pop);
        collector.follows = push != NULL;
    }
    dlclose(library); /* only the count that dlopen has raised */
}

static void poll(struct cupti_totals *totals) {
    if (!collector.follows)
        follow_ranges(mp_cupti_push, mp_cupti_pop);
    cuptiActivityFlushAll(0); /* only what is complete */
    add_dropped(totals);
}

/* ---- starting ---- */

/* What the user can do about a result is in the sentence. */
static void explain(CUptiResult result, const char *doing, const char *other, char *status) {
    const char *name = NULL;
    if (cuptiGetResultString(result, &name) != CUPTI_SUCCESS || !name)
        name = "an unknown error";
    if (result == CUPTI_ERROR_MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED)
        snprintf(
            status, STATUS_SIZE,
            "another profiler uses CUPTI in this process (%s), and only one can: run without it",
            *other ? other : "it does not give its name");
    else if (result == CUPTI_ERROR_UNKNOWN || result == CUPTI_ERROR_NOT_INITIALIZED) /* 13, 12 */
        snprintf(status, STATUS_SIZE, "no usable CUDA driver or GPU here (CUPTI cannot %s: %d, %s)",
                 doing, (int)result, name);
    else
        snprintf(status, STATUS_SIZE, "CUPTI cannot %s: %d, %s", doing, (int)result, name);
}

/* Who is there already is said by CUPTI since CUDA 13. */
#if CUPTI_API_VERSION >= 130000
enum { OTHER_SIZE = CUPTI_OLD_SUBSCRIBER_NAME_MIN_LEN };
static CUptiResult take_subscription(char other[OTHER_SIZE]) {
    CUpti_SubscriberParams parameters = {.structSize = CUpti_SubscriberParams_STRUCT_SIZE,
                                         .subscriberName = "moeperf",
                                         .oldSubscriberName = other,
                                         .oldSubscriberSize = OTHER_SIZE};
    return cuptiSubscribe_v2(&collector.subscriber, no_callback, NULL, &parameters);
}
#else
enum { OTHER_SIZE = 1 };
static CUptiResult take_subscription(char other[OTHER_SIZE]) {
    (void)other;
    return cuptiSubscribe(&collector.subscriber, no_callback, NULL);
}
#endif

static bool subscribe(char *status) {
    char other[OTHER_SIZE] = "";
    uint32_t version = 0;
    if (cuptiGetVersion(&version) != CUPTI_SUCCESS || version < CUPTI_API_VERSION) {
        snprintf(status, STATUS_SIZE,
                 "the CUPTI that was loaded has version %u, and this build needs %d or newer",
                 version, CUPTI_API_VERSION);
        return false;
    }
    CUptiResult result = take_subscription(other);
    if (result != CUPTI_SUCCESS)
        explain(result, "subscribe", other, status);
    return result == CUPTI_SUCCESS;
}

/* A kind that this GPU or driver does not have leaves the others working; kernels are the point. */
static CUptiResult enable_kinds(void) {
    static const CUpti_ActivityKind wanted[] = {
        CUPTI_ACTIVITY_KIND_MEMCPY,  CUPTI_ACTIVITY_KIND_MEMCPY2,
        CUPTI_ACTIVITY_KIND_MEMSET,  CUPTI_ACTIVITY_KIND_RUNTIME,
        CUPTI_ACTIVITY_KIND_DRIVER,  CUPTI_ACTIVITY_KIND_EXTERNAL_CORRELATION,
        CUPTI_ACTIVITY_KIND_OVERHEAD};
    CUptiResult result = cuptiActivityEnable(CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL);
    if (result != CUPTI_SUCCESS)
        return result;
    for (size_t i = 0; i < sizeof wanted / sizeof *wanted; i++)
        cuptiActivityEnable(wanted[i]);
    return CUPTI_SUCCESS;
}

static bool configure(char *status) {
    CUptiResult result = cuptiActivityRegisterCallbacks(buffer_requested, buffer_completed);
    const char *doing = "register the buffers";
    if (result == CUPTI_SUCCESS) {
        doing = "use the span clock";
        result = cuptiActivityRegisterTimestampCallback(span_clock);
    }
    if (result == CUPTI_SUCCESS) {
        doing = "give the system's thread ids";
        result = cuptiSetThreadIdType(CUPTI_ACTIVITY_THREAD_ID_TYPE_SYSTEM);
    }
    if (result == CUPTI_SUCCESS) {
        doing = "record kernels";
        result = enable_kinds();
    }
    if (result != CUPTI_SUCCESS)
        explain(result, doing, "", status);
    return result == CUPTI_SUCCESS;
}

/* ---- ending ---- */

static void stop(void) {
    pthread_mutex_lock(&collector.lock);
    if (atomic_exchange(&collector.on, false) && collector.companion.pid == (int)getpid()) {
        cuptiActivityFlushAll(CUPTI_ACTIVITY_FLAG_FLUSH_FORCED);
        cupti_buffers_stop();
        if (collector.follows)
            follow_ranges(NULL, NULL);
        add_dropped(&collector.totals);
        cupti_record_totals(&collector.companion, &collector.totals);
        mp_companion_close(&collector.companion);
    }
    pthread_mutex_unlock(&collector.lock);
}

/* A child has neither the thread nor the driver; what it calls must find the collector off. */
static void child_of_fork(void) {
    pthread_mutex_init(&collector.lock, NULL);
    atomic_store(&collector.on, false);
}

/* The status is recorded before the parsing thread takes the records over. */
static bool start_collecting(void) {
    struct mp_error error = {0};
    char status[STATUS_SIZE] = "on";
    bool subscribed = subscribe(status);
    bool configured = subscribed && configure(status);
    mp_companion_status(&collector.companion, "cupti", status);
    if (configured &&
        cupti_buffers_start(&collector.companion, &collector.totals, poll, &error) == MP_OK)
        return true;
    if (configured)
        mp_companion_status(&collector.companion, "cupti", error.text);
    if (subscribed)
        cuptiUnsubscribe(collector.subscriber);
    return false;
}

static void start(void) {
    if (mp_companion_open(&collector.companion, "cupti", NULL) != MP_OK)
        return;
    bool on = start_collecting();
    atomic_store(&collector.on, on);
    pthread_atfork(NULL, NULL, child_of_fork);
    if (on)
        atexit(stop);
    else
        mp_companion_close(&collector.companion);
}

int InitializeInjection(void) {
    pthread_mutex_lock(&collector.lock);
    if (!collector.started) {
        collector.started = true;
        start();
    }
    pthread_mutex_unlock(&collector.lock);
    return 1;
}

int mp_cupti_push(int64_t start_ns) {
    return atomic_load_explicit(&collector.on, memory_order_relaxed) &&
                   cuptiActivityPushExternalCorrelationId(CUPTI_EXTERNAL_CORRELATION_KIND_CUSTOM0,
                                                          (uint64_t)start_ns) == CUPTI_SUCCESS
               ? 0
               : -1;
}

int mp_cupti_pop(void) {
    uint64_t last;
    return atomic_load_explicit(&collector.on, memory_order_relaxed) &&
                   cuptiActivityPopExternalCorrelationId(CUPTI_EXTERNAL_CORRELATION_KIND_CUSTOM0,
                                                         &last) == CUPTI_SUCCESS
               ? 0
               : -1;
}
