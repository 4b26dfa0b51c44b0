/* event_time where the GPU's clock is not the host's: it runs fast or slow, and what CUDA says of
 * it is rounded to float milliseconds.  The back end is linked into this test, so that functions
 * here stand between it, the double and the host's clock: pauses are passed over on both clocks,
 * and nobody sleeps. */
#include <dlfcn.h>

#include "profiler/record/record.h"
#include "reference/device/cuda/cuda.h"
#include "tests/reference/device/cuda/cuda_support.h"

enum { MOST_EVENTS = 64 };

static double rate = 1;   /* of the GPU's clock */
static int64_t passed_ns; /* over, on the host's clock */

/* What had been passed over when an event was recorded: those of a case, and one an epoch. */
static struct {
    cudaEvent_t event;
    int64_t passed_ns;
} recorded[MOST_EVENTS + MP_CUDA_EPOCHS + 1];
static size_t recorded_count;

int __real_clock_gettime(clockid_t clock, struct timespec *time);
int __wrap_clock_gettime(clockid_t clock, struct timespec *time);

int __wrap_clock_gettime(clockid_t clock, struct timespec *time) {
    enum { SECOND_NS = 1000000000 };
    int status = __real_clock_gettime(clock, time);
    int64_t ns = time->tv_nsec + passed_ns;
    time->tv_sec += ns / SECOND_NS;
    time->tv_nsec = ns % SECOND_NS;
    return status;
}

static int64_t *passed_before(cudaEvent_t event) {
    size_t i = 0;
    while (i < recorded_count && recorded[i].event != event)
        i++;
    if (i == recorded_count) {
        assert_true(recorded_count < sizeof recorded / sizeof *recorded);
        recorded[recorded_count++].event = event;
    }
    return &recorded[i].passed_ns;
}

cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream) {
    static cudaError_t (*real)(cudaEvent_t, cudaStream_t);
    if (!real)
        *(void **)&real = dlsym(RTLD_NEXT, "cudaEventRecord");
    *passed_before(event) = passed_ns;
    return real(event, stream);
}

cudaError_t cudaEventElapsedTime(float *milliseconds, cudaEvent_t start, cudaEvent_t end) {
    static cudaError_t (*real)(float *, cudaEvent_t, cudaEvent_t);
    if (!real)
        *(void **)&real = dlsym(RTLD_NEXT, "cudaEventElapsedTime");
    cudaError_t status = real(milliseconds, start, end);
    double passed_ms = 1e-6 * (double)(*passed_before(end) - *passed_before(start));
    *milliseconds = status == cudaSuccess ? (float)(rate * ((double)*milliseconds + passed_ms)) : 0;
    return status;
}

struct clock_case {
    const char *name;
    double rate;
    int pause_us; /* between events */
    int events;
};

static const struct clock_case clock_cases[] = {
    {"as fast as the host's", 1, 50000, 30},
    {"0.05 % fast", 1.0005, 50000, 64},
    {"0.05 % slow", 0.9995, 50000, 64},
    {"epochs far apart", 1.0003, 1200000, 6},
};

/* Left alone the clocks would be more than 1 ms apart at the end. */
TEST_EACH(times_stay_on_the_hosts_clock, clock_cases, c) {
    enum { NEAR_NS = 400000 };
    cudaEvent_t event[MOST_EVENTS];
    int64_t time[MOST_EVENTS], before[MOST_EVENTS], after[MOST_EVENTS];
    struct mp_cuda_settings settings = {.rank = 2, .element = MP_FLOAT32};
    struct mp_device *device = NULL;
    rate = c->rate;
    recorded_count = 0;
    assert_works(mp_cuda_open(&settings, &test_limits, &device, &error));
    const struct mp_device_operations *operations = device->operations;
    for (int i = 0; i < c->events; i++) {
        assert_works(operations->event_create(device, (mp_event *)&event[i], &error));
        before[i] = mp_clock_ns();
        operations->event_record(device, (mp_event)event[i], NULL);
        while (!operations->event_done(device, (mp_event)event[i]))
            sleep_us(10);
        after[i] = mp_clock_ns();
        if (i > 0) /* one behind: some are asked for in the epoch after theirs */
            time[i - 1] = operations->event_time(device, (mp_event)event[i - 1]);
        passed_ns += 1000 * (int64_t)c->pause_us;
    }
    time[c->events - 1] = operations->event_time(device, (mp_event)event[c->events - 1]);
    for (int i = 1; i < c->events; i++)
        assert_true(time[i] > time[i - 1]); /* by a pause, so never the same */
    for (int i = 0; i < c->events; i++) {   /* new epochs change nothing about what came before */
        int64_t again = operations->event_time(device, (mp_event)event[i]);
        assert_in_range(again, time[i] - 1000, time[i] + 1000);
    }
    /* On a busy machine the odd epoch may have had no good reading: most count. */
    int near = 0, from = c->events / 2;
    for (int i = from; i < c->events; i++)
        near += time[i] > before[i] - NEAR_NS && time[i] < after[i] + NEAR_NS;
    if (near * 4 < (c->events - from) * 3)
        fail_msg("%s: %d of %d times are near the host's", c->name, near, c->events - from);
    for (int i = 0; i < c->events; i++)
        operations->event_destroy(device, (mp_event)event[i]);
    rate = 1;
    close_device(device);
}
