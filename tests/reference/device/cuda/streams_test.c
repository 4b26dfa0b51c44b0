/* Streams keep their own order and, through events, each other's; events know when they passed. */
#include "tests/reference/device/cuda/cuda_support.h"

#include "profiler/record/record.h"
#include "tests/double/gate.h"

static void close_stream(struct mp_device *device, mp_stream stream, struct gate *gate) {
    cudaStream_t native = device->operations->native_stream(device, stream);
    assert_true(cuda_double_enqueue(native, pass_gate, NULL, gate));
}

/* A ring of streams hands one array on: each waits for the one before and copies. */
TEST(events_order_streams) {
    enum { STREAMS = 5, ROUNDS = 8, BYTES = 4096 };
    mp_stream stream[STREAMS];
    mp_event event[STREAMS];
    uint8_t sent[BYTES], got[BYTES];
    cuda_double_set_delay(1000);
    struct mp_device *device = open_device(MP_FLOAT32);
    const struct mp_device_operations *operations = device->operations;
    uint8_t *array = operations->allocate(device, (size_t)(STREAMS + 1) * BYTES);
    for (int i = 0; i < STREAMS; i++) {
        assert_works(operations->stream_create(device, 0, &stream[i], &error));
        assert_works(operations->event_create(device, &event[i], &error));
    }
    for (int round = 0; round < ROUNDS; round++) {
        for (int i = 0; i < BYTES; i++)
            sent[i] = (uint8_t)test_random(&random_state);
        operations->copy_from_host(device, NULL, array, sent, BYTES);
        for (int i = 0; i < STREAMS; i++) {
            if (i > 0)
                operations->stream_wait(device, stream[i], event[i - 1]);
            operations->copy(device, stream[i], array + (i + 1) * BYTES, array + i * BYTES, BYTES);
            operations->zero(device, stream[i], array + i * BYTES, BYTES);
            operations->event_record(device, event[i], stream[i]);
        }
        operations->event_synchronize(device, event[STREAMS - 1]);
        assert_true(operations->event_done(device, event[STREAMS - 1]));
        operations->copy_to_host(device, NULL, got, array + STREAMS * BYTES, BYTES);
        assert_memory_equal(got, sent, BYTES);
    }
    for (int i = 0; i < STREAMS; i++) {
        operations->stream_destroy(device, stream[i]);
        operations->event_destroy(device, event[i]);
    }
    operations->release(device, array);
    close_device(device);
    cuda_double_set_delay(0);
}

/* As CUDA numbers it: the more urgent, the smaller, down to a limit of the device's. */
TEST(streams_have_urgencies) {
    static const int urgency[] = {0, 1, 2, 99}, expected[] = {0, -1, -2, -5};
    struct mp_device *device = open_device(MP_FLOAT32);
    const struct mp_device_operations *operations = device->operations;
    for (int i = 0; i < 4; i++) {
        mp_stream stream;
        int priority = 1;
        assert_works(operations->stream_create(device, urgency[i], &stream, &error));
        assert_int_equal(
            cudaStreamGetPriority(operations->native_stream(device, stream), &priority),
            cudaSuccess);
        assert_int_equal(priority, expected[i]);
        operations->stream_destroy(device, stream);
    }
    close_device(device);
}

/* Neither recorded nor passed: no time.  Asking never blocks. */
TEST(an_event_ahead_has_no_time) {
    struct gate gate = CLOSED_GATE;
    mp_stream stream;
    mp_event event;
    struct mp_device *device = open_device(MP_FLOAT32);
    const struct mp_device_operations *operations = device->operations;
    assert_works(operations->stream_create(device, 0, &stream, &error));
    assert_works(operations->event_create(device, &event, &error));
    assert_int_equal(operations->event_time(device, event), -1);
    close_stream(device, stream, &gate);
    operations->event_record(device, event, stream);
    assert_false(operations->event_done(device, event));
    assert_int_equal(operations->event_time(device, event), -1);
    operations->stream_synchronize(device, NULL); /* another one goes on meanwhile */
    int64_t before = mp_clock_ns();
    open_gate(&gate);
    operations->event_synchronize(device, event);
    assert_true(operations->event_done(device, event));
    assert_true(operations->event_time(device, event) > before - 1000000);
    assert_works(mp_device_check(device, &error));
    operations->stream_destroy(device, stream);
    operations->event_destroy(device, event);
    close_device(device);
}

/* For longer than several epochs last: times order as the events were recorded, lie on the host's
 * clock, and stay what they are when asked again. */
TEST(events_know_their_time) {
    enum { EVENTS = 60, SPAN_US = 3300000, NEAR_NS = 3000000, AGAIN_NS = 1000000 };
    static struct {
        mp_event event;
        int64_t before, after, time;
    } mark[EVENTS];
    struct mp_device *device = open_device(MP_FLOAT32);
    const struct mp_device_operations *operations = device->operations;
    for (int i = 0; i < EVENTS; i++)
        assert_works(operations->event_create(device, &mark[i].event, &error));
    for (int i = 0; i < EVENTS; i++) {
        mark[i].before = mp_clock_ns();
        operations->event_record(device, mark[i].event, NULL);
        operations->stream_synchronize(device, NULL);
        mark[i].after = mp_clock_ns();
        if (i >= 3) { /* asked for somewhat later, as spans are */
            mark[i - 3].time = operations->event_time(device, mark[i - 3].event);
            assert_in_range(mark[i - 3].time, mark[i - 3].before - NEAR_NS,
                            mark[i - 3].after + NEAR_NS);
        }
        if (i % 2)
            sleep_us(2 * SPAN_US / EVENTS);
    }
    for (int i = EVENTS - 3; i < EVENTS; i++)
        mark[i].time = operations->event_time(device, mark[i].event);
    for (int i = 1; i < EVENTS; i++)
        assert_true(mark[i].time >= mark[i - 1].time);
    for (int i = 0; i < EVENTS; i++) {
        int64_t again = operations->event_time(device, mark[i].event);
        assert_in_range(again, mark[i].time - AGAIN_NS, mark[i].time + AGAIN_NS);
        operations->event_destroy(device, mark[i].event);
    }
    close_device(device);
}

TEST_SEED(random_state);
