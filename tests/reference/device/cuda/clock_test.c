/* event_time where the GPU's clock is not the host's: it runs fast or slow, and what CUDA says of
 * it is rounded to float milliseconds.  The back end is linked into this test, so that the function
 * here stands between it and the double. */
#include <dlfcn.h>

#include "profiler/record/record.h"
#include "reference/device/cuda/cuda.h"
#include "tests/reference/device/cuda/cuda_support.h"

static double rate = 1; /* of the GPU's clock */

cudaError_t cudaEventElapsedTime(float *milliseconds, cudaEvent_t start, cudaEvent_t end) {
    static cudaError_t (*real)(float *, cudaEvent_t, cudaEvent_t);
    if (!real)
        *(void **)&real = dlsym(RTLD_NEXT, "cudaEventElapsedTime");
    cudaError_t status = real(milliseconds, start, end);
    *milliseconds = status == cudaSuccess ? (float)(rate * (double)*milliseconds) : 0;
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
static void times_stay_on_the_hosts_clock(void **state) {
    enum { MOST_EVENTS = 64, NEAR_NS = 400000 };
    const struct clock_case *c = *state;
    cudaEvent_t event[MOST_EVENTS];
    int64_t time[MOST_EVENTS], before[MOST_EVENTS], after[MOST_EVENTS];
    struct mp_cuda_settings settings = {.rank = 2, .element = MP_FLOAT32};
    struct mp_error error = {0};
    struct mp_device *device = NULL;
    rate = c->rate;
    assert_int_equal(mp_cuda_open(&settings, &test_limits, &device, &error), MP_OK);
    const struct mp_device_operations *operations = device->operations;
    for (int i = 0; i < c->events; i++) {
        assert_int_equal(operations->event_create(device, (mp_event *)&event[i], &error), MP_OK);
        before[i] = mp_clock_ns();
        operations->event_record(device, (mp_event)event[i], NULL);
        while (!operations->event_done(device, (mp_event)event[i]))
            sleep_us(10);
        after[i] = mp_clock_ns();
        if (i > 0) /* one behind: some are asked for in the epoch after theirs */
            time[i - 1] = operations->event_time(device, (mp_event)event[i - 1]);
        sleep_us(c->pause_us);
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

int main(void) {
    enum { COUNT = sizeof clock_cases / sizeof *clock_cases };
    struct CMUnitTest tests[COUNT];
    for (int i = 0; i < COUNT; i++)
        tests[i] = (struct CMUnitTest){clock_cases[i].name, times_stay_on_the_hosts_clock, NULL,
                                       NULL, (void *)(uintptr_t)&clock_cases[i]};
    random_state = test_seed();
    return cmocka_run_group_tests_name("cuda clock", tests, NULL, NULL);
}
