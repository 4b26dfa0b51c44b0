/* Devices, memory, copies, and failures on demand. */
#include "kernels.h"
#include "support.h"

/* Streams, memory and kernels of two devices. */
TEST_WITH(test_work_on_two_devices, set_up, tear_down) {
    cudaStream_t stream[2];
    int zero = 0, result, *values[2];
    for (int i = 0; i < 2; i++) {
        assert_cuda(cudaSetDevice(i));
        stream[i] = make_stream();
        values[i] = to_device(&zero, sizeof zero);
    }
    assert_int_equal(launch_add(stream[0], 1, 1, values[0]), cudaErrorInvalidResourceHandle);
    assert_cuda(launch_add(stream[1], 1, 1, values[1]));
    from_device(&result, values[1], sizeof result);
    assert_int_equal(result, 1);
    for (int i = 0; i < 2; i++) {
        assert_cuda(cudaStreamDestroy(stream[i]));
        assert_cuda(cudaFree(values[i]));
    }
}

TEST_WITH(test_environment, set_up, tear_down) {
    struct cudaDeviceProp of;
    int count;
    setenv("MOEPERF_DOUBLE_DEVICES", "3", 1);
    setenv("MOEPERF_DOUBLE_NAMES", "NVIDIA H100,NVIDIA A100", 1);
    cuda_double_reset();
    assert_cuda(cudaGetDeviceCount(&count));
    assert_int_equal(count, 3);
    for (int i = 0; i < 3; i++) {
        assert_cuda(cudaGetDeviceProperties(&of, i));
        assert_string_equal(of.name, i == 0 ? "NVIDIA H100" : "NVIDIA A100");
    }
    unsetenv("MOEPERF_DOUBLE_DEVICES");
    unsetenv("MOEPERF_DOUBLE_NAMES");
}

TEST_WITH(test_wrong_copies, set_up, tear_down) {
    char host[200] = {0}, *memory = device_memory(100), *pinned;
    cudaStream_t stream = make_stream();
    assert_cuda(cudaMallocHost((void **)&pinned, 100));
    const struct {
        void *to, *from;
        size_t bytes;
        enum cudaMemcpyKind kind;
        cudaError_t error;
    } copies[] = {
        {memory, host, 100, cudaMemcpyHostToDevice, cudaSuccess},
        {memory, host, 101, cudaMemcpyHostToDevice, cudaErrorInvalidValue},
        {memory + 1, host, 100, cudaMemcpyHostToDevice, cudaErrorInvalidValue},
        {memory + 99, host, 1, cudaMemcpyDefault, cudaSuccess},
        {memory, host, 100, cudaMemcpyDeviceToDevice, cudaErrorInvalidValue},
        {memory, host, 100, cudaMemcpyDeviceToHost, cudaErrorInvalidValue},
        {host, host + 100, 100, cudaMemcpyDeviceToHost, cudaErrorInvalidValue},
        {host, host + 100, 100, cudaMemcpyHostToHost, cudaSuccess},
        {host, memory, 100, cudaMemcpyHostToDevice, cudaErrorInvalidValue},
        {pinned, memory, 100, cudaMemcpyDeviceToHost, cudaSuccess},
        {pinned + 50, memory, 51, cudaMemcpyDeviceToHost, cudaErrorInvalidValue},
        {NULL, memory, 10, cudaMemcpyDeviceToHost, cudaErrorInvalidValue},
        {NULL, NULL, 0, cudaMemcpyDeviceToHost, cudaSuccess},
        {memory, memory, 10, (enum cudaMemcpyKind)7, cudaErrorInvalidMemcpyDirection},
    };
    for (size_t i = 0; i < sizeof copies / sizeof copies[0]; i++)
        assert_int_equal(
            cudaMemcpyAsync(copies[i].to, copies[i].from, copies[i].bytes, copies[i].kind, stream),
            copies[i].error);
    assert_int_equal(cudaMemsetAsync(host, 0, 100, stream), cudaErrorInvalidValue);
    assert_int_equal(cudaMemsetAsync(memory, 0, 101, stream), cudaErrorInvalidValue);
    assert_int_equal(cudaFree(host), cudaErrorInvalidValue);
    assert_int_equal(cudaFree(memory + 1), cudaErrorInvalidValue);
    assert_int_equal(cudaFree(pinned), cudaErrorInvalidValue);
    assert_int_equal(cudaFreeHost(memory), cudaErrorInvalidValue);
    assert_cuda(cudaFreeHost(pinned));
    assert_cuda(cudaFree(memory));
    assert_int_equal(cudaMemcpyAsync(memory, host, 1, cudaMemcpyHostToDevice, stream),
                     cudaErrorInvalidValue);
    assert_cuda(cudaStreamDestroy(stream));
    assert_cuda(cudaFree(NULL));
    assert_cuda(cudaFreeHost(NULL));
}

TEST_WITH(test_memory_is_garbage, set_up, tear_down) {
    int count = test_random_int(&random_state, 1, 1000);
    float values[1000], *memory = device_memory((size_t)count * sizeof *memory);
    from_device(values, memory, (size_t)count * sizeof *memory);
    for (int i = 0; i < count; i++)
        assert_true(isnan(values[i]));
    assert_cuda(cudaFree(memory));
}

/* Pointers to the host's memory are told before a kernel follows them. */
TEST_WITH(test_parameters_astray, set_up, tear_down) {
    int host = 0, result, *device = to_device(&host, sizeof host), *pinned;
    cudaStream_t stream = make_stream();
    assert_cuda(cudaMallocHost((void **)&pinned, sizeof *pinned));
    *pinned = 41;
    assert_cuda(launch_add_to(stream, 1, 1, pinned, device));
    assert_cuda(launch_add_to(stream, 1, 0, device, device));
    from_device(&result, device, sizeof result);
    assert_int_equal(result, 42);
    struct heard heard = listen_to_errors();
    char text[512];
    cudaError_t launched = launch_add_to(stream, 1, 1, &host, device);
    cudaError_t synchronised = cudaStreamSynchronize(stream);
    stop_listening(&heard, text, sizeof text);
    assert_cuda(launched);
    assert_int_equal(synchronised, cudaErrorIllegalAddress);
    assert_contains(text, "parameter 3 points");
    cuda_double_reset();
    assert_cuda(cudaFreeHost(pinned));
    assert_cuda(cudaFree(device));
    assert_cuda(cudaStreamDestroy(stream));
}
