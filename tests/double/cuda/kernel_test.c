/* Kernels on the CPU do what they do on a GPU, and those that are wrong are told. */
#include "kernels.h"
#include "support.h"

static cudaStream_t stream;

static int begin(void **state) {
    set_up(state);
    stream = make_stream();
    return 0;
}

static int finish(void **state) {
    cuda_double_reset();
    assert_cuda(cudaStreamDestroy(stream));
    return tear_down(state);
}

TEST_WITH(test_indices, begin, finish) {
    int numbers[NUMBERED_THREADS], *out = device_memory(sizeof numbers);
    assert_cuda(launch_number(stream, out));
    from_device(numbers, out, sizeof numbers);
    for (int i = 0; i < NUMBERED_THREADS; i++)
        assert_int_equal(numbers[i], i);
    cudaFree(out);
}

/* A kernel that lacks its barrier gives something else. */
TEST_WITH(test_a_barrier_matters, begin, finish) {
    enum { BLOCKS = 5, COUNT = 192 * BLOCKS };
    int in[COUNT], out[COUNT], wrong = 0;
    fill_ints(&random_state, COUNT, 1, INT32_MAX, in);
    for (int barrier = 1; barrier >= 0; barrier--) {
        int *values = to_device(in, sizeof in);
        assert_cuda(launch_reverse(stream, BLOCKS, barrier, values));
        from_device(out, values, sizeof out);
        wrong = 0;
        for (int i = 0; i < COUNT; i++)
            wrong += out[i] != in[i / 192 * 192 + 191 - i % 192];
        assert_true(barrier ? wrong == 0 : wrong > 0);
        cudaFree(values);
    }
}

static const struct {
    enum mistake mistake;
    const char *told;
} mistakes[] = {
    {SOME_END_BEFORE_BARRIER, "40 from thread 0 on: ended"},
    {SOME_AT_ANOTHER_BARRIER, "different barriers"},
    {SOME_END_BEFORE_SHUFFLE, "31 from thread 32 on: __shfl_xor_sync"},
    {SOME_AT_ANOTHER_SHUFFLE, "different exchanges"},
    {BARRIER_AND_SHUFFLE, "32 from thread 0 on: at __syncthreads"},
    {MASKS_THAT_DIFFER, "name different lanes"},
    {LANE_NOT_IN_MASK, "not in the mask"},
    {TRAP, "__trap"},
    {SOME_AT_ANOTHER_INSTRUCTION, "different instructions"},
    {FRAGMENT_NOT_ALIGNED, "__trap"},
    {COPY_NOT_ALIGNED, "no multiple of what it copies"},
    {COPY_NOT_WAITED_FOR, "has not waited for its copies"},
    {PREFETCH_ASTRAY, "__trap"},
};

/* Each is told, with the line where it happened, stays the device's error, and leaves a double that
 * works when it is set back. */
TEST_WITH(test_mistakes, begin, finish) {
    assert_int_equal(sizeof mistakes / sizeof mistakes[0], MISTAKES);
    for (int i = 0; i < MISTAKES; i++) {
        char text[4096];
        int *out = device_memory(64 * sizeof *out);
        struct heard heard = listen_to_errors();
        cudaError_t launched = launch_mistake(stream, mistakes[i].mistake, out);
        cudaError_t synchronised = cudaStreamSynchronize(stream);
        stop_listening(&heard, text, sizeof text);
        assert_cuda(launched);
        if (synchronised != cudaErrorLaunchFailure || !strstr(text, mistakes[i].told) ||
            !strstr(text, "kernels.cu:"))
            fail_msg("mistake %d (%s) was told as: %s", i, cudaGetErrorName(synchronised), text);
        assert_int_equal(launch_add(stream, 64, 1, out), cudaErrorLaunchFailure);
        assert_int_equal(cudaGetLastError(), cudaErrorLaunchFailure);
        assert_int_equal(cudaGetLastError(), cudaErrorLaunchFailure);
        assert_int_equal(cudaFree(out), cudaErrorLaunchFailure);
        cuda_double_reset();
        test_indices(NULL);
    }
}

#if !defined(__SANITIZE_ADDRESS__) /* which ends the program at the write */
TEST_WITH(test_overruns, begin, finish) {
    char text[4096];
    int count = test_random_int(&random_state, 1, 100), *out = device_memory((size_t)count * 4);
    struct heard heard = listen_to_errors();
    cudaError_t launched = launch_overrun(stream, count, out), freed = cudaFree(out);
    stop_listening(&heard, text, sizeof text);
    assert_cuda(launched);
    assert_int_equal(freed, cudaErrorIllegalAddress);
    assert_contains(text, "written behind");
}
#endif

/* Storage or arrays that are too small are a fault when the stream gets there. */
TEST_WITH(test_sorts_of_arrays_cut_short, begin, finish) {
    enum { COUNT = 100, SIZE = COUNT * sizeof(int) };
    char text[512];
    size_t bytes = 0, less;
    unsigned *keys = device_memory(SIZE - 4), *sorted = device_memory(SIZE);
    int *items = device_memory(SIZE), *moved = device_memory(SIZE);
    assert_cuda(sort_pairs(stream, NULL, &bytes, keys, sorted, items, moved, COUNT));
    void *storage = device_memory(bytes);
    less = bytes - 1;
    assert_int_equal(sort_pairs(stream, storage, &less, keys, sorted, items, moved, COUNT),
                     cudaErrorInvalidValue);
    struct heard heard = listen_to_errors();
    cudaError_t queued = sort_pairs(stream, storage, &bytes, keys, sorted, items, moved, COUNT);
    cudaError_t error = cudaStreamSynchronize(stream);
    stop_listening(&heard, text, sizeof text);
    assert_cuda(queued);
    assert_int_equal(error, cudaErrorIllegalAddress);
    assert_contains(text, "radix sort of 100");
    cuda_double_reset();
    void *const memory[] = {keys, sorted, items, moved, storage};
    for (int i = 0; i < 5; i++)
        cudaFree(memory[i]);
}
