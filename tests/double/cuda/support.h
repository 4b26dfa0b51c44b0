/* What the tests of the double share. */
#pragma once

#include <string.h>
#include <unistd.h>

#include "double.h"
#include "tests/support.h"

#define assert_cuda(call) assert_int_equal((call), cudaSuccess)

static uint64_t random_state;
TEST_SEED(random_state);

/* The first device, with delays and orders of the test's own; and nothing is left of it. */
static inline int set_up(void **state) {
    (void)state;
    cuda_double_reset();
    cuda_double_set_seed(test_random(&random_state));
    assert_cuda(cudaSetDevice(0));
    return 0;
}

static inline int tear_down(void **state) {
    (void)state;
    struct cuda_double_counts counts;
    cuda_double_reset();
    cuda_double_get_counts(&counts);
    assert_numbers(counts.device_live, 0, counts.device_bytes, 0, counts.host_live, 0);
    assert_numbers(counts.streams, 0, counts.events, 0);
    return 0;
}

static inline cudaStream_t make_stream(void) {
    cudaStream_t stream;
    assert_cuda(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    return stream;
}

static inline void *device_memory(size_t bytes) {
    void *memory;
    assert_cuda(cudaMalloc(&memory, bytes));
    return memory;
}

/* The memory of the double is the host's. */
static inline void *to_device(const void *host, size_t bytes) {
    void *memory = device_memory(bytes);
    memcpy(memory, host, bytes);
    return memory;
}

/* Waits for all streams first. */
static inline void from_device(void *host, const void *memory, size_t bytes) {
    assert_cuda(cudaDeviceSynchronize());
    memcpy(host, memory, bytes);
}

static inline void fill_ints(uint64_t *random, int count, int least, int most, int *values) {
    for (int i = 0; i < count; i++)
        values[i] = test_random_int(random, least, most);
}

/* What is written to standard error between the two goes to `text`. */
struct heard {
    FILE *file;
    int kept;
};

static inline struct heard listen_to_errors(void) {
    struct heard heard = {tmpfile(), dup(STDERR_FILENO)};
    assert_non_null(heard.file);
    assert_true(heard.kept >= 0);
    assert_true(dup2(fileno(heard.file), STDERR_FILENO) >= 0);
    return heard;
}

static inline void stop_listening(struct heard *heard, char *text, size_t size) {
    dup2(heard->kept, STDERR_FILENO);
    close(heard->kept);
    rewind(heard->file);
    text[fread(text, 1, size - 1, heard->file)] = '\0';
    fclose(heard->file);
}
