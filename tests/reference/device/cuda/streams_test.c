/* Urgencies of streams, and events that have not passed. */
#include "tests/reference/device/cuda/cuda_support.h"

#include "profiler/record/record.h"
#include "tests/double/gate.h"

static void close_stream(struct mp_device *device, mp_stream stream, struct gate *gate) {
    cudaStream_t native = device->operations->native_stream(device, stream);
    assert_true(cuda_double_enqueue(native, pass_gate, NULL, gate));
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
