/* Streams work at the same time, each in order; only events order them. */
#include "kernels.h"
#include "support.h"
#include "tests/double/gate.h"

enum { COUNT = 3000, DELAY_US = 3000 };
TEST_WITH(test_streams_run_at_the_same_time, set_up, tear_down) {
    cudaStream_t first = make_stream(), second = make_stream();
    struct gate gates[2] = {CLOSED_GATE, CLOSED_GATE};
    assert_true(cuda_double_enqueue(first, pass_gate, NULL, &gates[0]));
    assert_true(cuda_double_enqueue(second, pass_gate, NULL, &gates[1]));
    wait_for_arrival(&gates[0]);
    wait_for_arrival(&gates[1]); /* while the first still stands at its gate */
    open_gate(&gates[1]);
    assert_cuda(cudaStreamSynchronize(second));
    open_gate(&gates[0]);
    assert_cuda(cudaStreamSynchronize(first));
    assert_cuda(cudaStreamDestroy(first));
    assert_cuda(cudaStreamDestroy(second));
}

/* Writes on one stream, reads on another; with the event between them or without. */
static int stale_values(bool with_event) {
    int zeros[COUNT] = {0}, out[COUNT], stale = 0;
    cudaStream_t writer = make_stream(), reader = make_stream();
    cudaEvent_t event;
    int *values = to_device(zeros, sizeof zeros), *copy = device_memory(sizeof zeros);
    int value = test_random_int(&random_state, 1, INT32_MAX / 2);
    assert_cuda(cudaEventCreateWithFlags(&event, cudaEventDisableTiming));
    assert_cuda(launch_add(writer, COUNT, value, values));
    assert_cuda(cudaEventRecord(event, writer));
    if (with_event)
        assert_cuda(cudaStreamWaitEvent(reader, event, 0));
    assert_cuda(launch_add_to(reader, COUNT, 1, values, copy));
    from_device(out, copy, sizeof out);
    for (int i = 0; i < COUNT; i++)
        stale += out[i] != value + 1;
    cudaFree(values);
    cudaFree(copy);
    assert_cuda(cudaEventDestroy(event));
    assert_cuda(cudaStreamDestroy(writer));
    assert_cuda(cudaStreamDestroy(reader));
    return stale;
}

TEST_WITH(test_events_order_streams, set_up, tear_down) {
    int runs_with_stale_values = 0;
    cuda_double_set_delay(DELAY_US);
    for (int run = 0; run < 30; run++) {
        assert_int_equal(stale_values(true), 0);
        runs_with_stale_values += stale_values(false) > 0;
    }
    print_message("%d of 30 runs without an event had stale values\n", runs_with_stale_values);
    assert_true(runs_with_stale_values > 0);
}

/* A wait is for what was recorded when it was queued, not for a later record. */
TEST_WITH(test_a_wait_keeps_its_record, set_up, tear_down) {
    cudaStream_t first = make_stream(), second = make_stream();
    struct gate gate = CLOSED_GATE;
    cudaEvent_t event;
    assert_cuda(cudaEventCreate(&event));
    assert_cuda(cudaEventQuery(event)); /* never recorded counts as passed */
    assert_cuda(cudaEventSynchronize(event));
    assert_cuda(cudaEventRecord(event, first));
    assert_cuda(cudaStreamWaitEvent(second, event, 0));
    assert_true(cuda_double_enqueue(first, pass_gate, NULL, &gate));
    assert_cuda(cudaEventRecord(event, first));
    assert_cuda(cudaStreamSynchronize(second)); /* although the second record has not passed */
    assert_int_equal(cudaEventQuery(event), cudaErrorNotReady);
    assert_cuda(cudaStreamWaitEvent(second, event, 0));
    assert_cuda(cudaEventDestroy(event)); /* those that wait for it still do */
    open_gate(&gate);
    assert_cuda(cudaStreamSynchronize(second));
    assert_int_equal(cudaEventQuery(event), cudaErrorInvalidResourceHandle);
    assert_cuda(cudaStreamDestroy(first));
    assert_cuda(cudaStreamDestroy(second));
}

/* Page-locked memory is read when the stream gets there, pageable memory before the call returns.
 */
TEST_WITH(test_when_host_memory_is_read, set_up, tear_down) {
    cudaStream_t stream = make_stream();
    int *pinned, pageable = 1, *values = device_memory(2 * sizeof *values), got[2];
    struct gate gate = CLOSED_GATE;
    assert_cuda(cudaMallocHost((void **)&pinned, sizeof *pinned));
    assert_int_equal(*pinned, -1); /* garbage */
    *pinned = 1;
    assert_true(cuda_double_enqueue(stream, pass_gate, NULL, &gate));
    assert_cuda(cudaMemcpyAsync(values, pinned, sizeof *pinned, cudaMemcpyHostToDevice, stream));
    assert_cuda(
        cudaMemcpyAsync(values + 1, &pageable, sizeof pageable, cudaMemcpyHostToDevice, stream));
    *pinned = pageable = 2;
    open_gate(&gate);
    from_device(got, values, sizeof got);
    assert_numbers(got[0], 2, got[1], 1);
    assert_cuda(cudaFreeHost(pinned));
    cudaFree(values);
    assert_cuda(cudaStreamDestroy(stream));
}

static void count_one(void *context) {
    ++*(int *)context;
}

TEST_WITH(test_own_work, set_up, tear_down) {
    int done = 0, released = 0;
    cudaStream_t stream = make_stream();
    assert_true(cuda_double_enqueue(stream, count_one, NULL, &done));
    assert_cuda(cudaStreamSynchronize(stream));
    assert_int_equal(done, 1);
    struct heard heard = listen_to_errors();
    char text[256];
    cuda_double_fault(cudaErrorIllegalAddress, "of %s", "the test");
    stop_listening(&heard, text, sizeof text);
    assert_string_equal(text, "CUDA double: cudaErrorIllegalAddress: of the test\n");
    assert_true(cuda_double_enqueue(stream, count_one, count_one, &released));
    assert_int_equal(cudaStreamSynchronize(stream), cudaErrorIllegalAddress);
    cuda_double_reset();
    assert_cuda(cudaStreamSynchronize(stream));
    assert_int_equal(released, 1); /* and not run */
    assert_cuda(cudaStreamDestroy(stream));
    assert_false(cuda_double_enqueue(stream, count_one, NULL, &done));
}

TEST_WITH(test_wrong_handles, set_up, tear_down) {
    cudaStream_t stream = make_stream();
    cudaEvent_t event;
    int value = 0;
    assert_cuda(cudaEventCreate(&event));
    assert_int_equal(cudaEventCreateWithFlags(&event, 64), cudaErrorInvalidValue);
    assert_int_equal(cudaStreamCreateWithFlags(&stream, 64), cudaErrorInvalidValue);
    assert_int_equal(cudaStreamDestroy(NULL), cudaErrorInvalidResourceHandle);
    assert_cuda(cudaStreamDestroy(stream));
    assert_int_equal(cudaStreamDestroy(stream), cudaErrorInvalidResourceHandle);
    assert_int_equal(cudaStreamSynchronize(stream), cudaErrorInvalidResourceHandle);
    assert_int_equal(cudaStreamWaitEvent(stream, event, 0), cudaErrorInvalidResourceHandle);
    assert_int_equal(cudaEventRecord(event, stream), cudaErrorInvalidResourceHandle);
    assert_int_equal(launch_add(stream, 1, 1, &value), cudaErrorInvalidResourceHandle);
    assert_cuda(cudaEventDestroy(event));
    assert_int_equal(cudaEventDestroy(event), cudaErrorInvalidResourceHandle);
    assert_int_equal(cudaGetLastError(), cudaErrorInvalidResourceHandle);
    assert_cuda(cudaGetLastError());
    cuda_double_fail_streams_after(1);
    stream = make_stream();
    cudaStream_t another;
    assert_int_equal(cudaStreamCreateWithFlags(&another, cudaStreamNonBlocking),
                     cudaErrorMemoryAllocation);
    assert_cuda(cudaStreamDestroy(stream));
}
