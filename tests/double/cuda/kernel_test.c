/* Kernels on the CPU do what they do on a GPU, and those that are wrong are told. */
#include "kernels.h"
#include "support.h"

static uint64_t random_state;
static cudaStream_t stream;

static int set_up(void **state) {
    (void)state;
    cuda_double_reset();
    cuda_double_set_seed(test_random(&random_state));
    stream = make_stream();
    return 0;
}

static int tear_down(void **state) {
    (void)state;
    struct cuda_double_counts counts;
    cuda_double_reset();
    assert_cuda(cudaStreamDestroy(stream));
    cuda_double_get_counts(&counts);
    assert_int_equal(counts.device_live, 0);
    assert_int_equal(counts.streams, 0);
    return 0;
}

static void test_indices(void **state) {
    (void)state;
    int numbers[NUMBERED_THREADS], *out = device_memory(sizeof numbers);
    assert_cuda(launch_number(stream, out));
    from_device(numbers, out, sizeof numbers);
    for (int i = 0; i < NUMBERED_THREADS; i++)
        assert_int_equal(numbers[i], i);
    cudaFree(out);
}

static void test_arguments_are_copied(void **state) {
    (void)state;
    struct many many;
    int sum = 0, result, *out = device_memory(sizeof *out);
    fill_ints(&random_state, 100, -1000, 1000, many.number);
    for (int i = 0; i < 100; i++)
        sum += many.number[i];
    cuda_double_set_delay(2000);
    assert_cuda(launch_many(stream, many, out));
    memset(&many, 0, sizeof many);
    from_device(&result, out, sizeof result);
    assert_int_equal(result, sum);
    cudaFree(out);
}

/* The lane that a lane reads, by the definition of the shuffles. */
static int source(enum exchanged how, int lane, int argument, int width) {
    int first = lane / width * width, from;
    switch (how) {
    case BY_LANE:
        return first + argument % width;
    case BY_XOR:
        from = lane ^ argument;
        return from < first + width ? from : lane;
    case UPWARDS:
        return lane - argument >= first ? lane - argument : lane;
    default:
        return lane + argument < first + width ? lane + argument : lane;
    }
}

static void test_shuffles(void **state) {
    (void)state;
    enum { WARPS = 6, COUNT = 32 * WARPS };
    int in[COUNT], out[COUNT];
    double wide[COUNT], wide_out[COUNT];
    fill_ints(&random_state, COUNT, INT32_MIN, INT32_MAX, in);
    for (int i = 0; i < COUNT; i++)
        wide[i] = test_random_double(&random_state) - 0.5;
    int *from = to_device(in, sizeof in), *to = device_memory(sizeof out);
    double *wide_from = to_device(wide, sizeof wide), *wide_to = device_memory(sizeof wide);
    for (int how = 0; how < EXCHANGES; how++) {
        for (int width = 1; width <= 32; width *= 2) {
            int lane = test_random_int(&random_state, 0, 31);
            assert_cuda(launch_exchange_int(stream, how, WARPS, lane, width, from, to));
            assert_cuda(
                launch_exchange_double(stream, how, WARPS, lane, width, wide_from, wide_to));
            from_device(out, to, sizeof out);
            from_device(wide_out, wide_to, sizeof wide_out);
            for (int i = 0; i < COUNT; i++) {
                int at = i / 32 * 32 + source(how, i % 32, lane, width);
                assert_int_equal(out[i], in[at]);
                assert_true(wide_out[i] == wide[at]);
            }
        }
    }
    cudaFree(from);
    cudaFree(to);
    cudaFree(wide_from);
    cudaFree(wide_to);
}

static void test_votes(void **state) {
    (void)state;
    enum { WARPS = 9, COUNT = 32 * WARPS };
    int in[COUNT];
    unsigned out[4 * COUNT];
    fill_ints(&random_state, COUNT, -3, 4, in);
    for (int i = 0; i < 32; i++) { /* a warp in which all vote for, and one against */
        in[i] = 1 + i % 3;
        in[32 + i] = -(i % 3);
    }
    int *from = to_device(in, sizeof in);
    unsigned *to = device_memory(sizeof out);
    assert_cuda(launch_votes(stream, WARPS, from, to));
    from_device(out, to, sizeof out);
    for (int i = 0; i < COUNT; i++) {
        unsigned positive = 0, same = 0;
        for (int lane = 0; lane < 32; lane++) {
            positive |= (unsigned)(in[i / 32 * 32 + lane] > 0) << lane;
            same |= (unsigned)(in[i / 32 * 32 + lane] == in[i]) << lane;
        }
        assert_int_equal(out[4 * i], positive);
        assert_int_equal(out[4 * i + 1], positive != 0);
        assert_int_equal(out[4 * i + 2], positive == UINT32_MAX);
        assert_int_equal(out[4 * i + 3], same);
    }
    cudaFree(from);
    cudaFree(to);
}

static void test_masks_of_halves(void **state) {
    (void)state;
    enum { WARPS = 8, COUNT = 32 * WARPS };
    int in[COUNT], out[COUNT];
    fill_ints(&random_state, COUNT, -1000000, 1000000, in);
    int *from = to_device(in, sizeof in), *to = device_memory(sizeof out);
    assert_cuda(launch_half_sums(stream, WARPS, from, to));
    from_device(out, to, sizeof out);
    for (int i = 0; i < COUNT; i++) {
        int sum = 0;
        for (int j = i / 16 * 16; j < i / 16 * 16 + 16; j++)
            sum += in[j];
        assert_int_equal(out[i], sum);
    }
    cudaFree(from);
    cudaFree(to);
}

static void test_sums_over_blocks(void **state) {
    (void)state;
    enum { BLOCKS = 37, COUNT = 256 * BLOCKS };
    float in[COUNT], out[BLOCKS], again[BLOCKS];
    for (int i = 0; i < COUNT; i++)
        in[i] = (float)(test_random_double(&random_state) - 0.5);
    float *from = to_device(in, sizeof in), *to = device_memory(sizeof out);
    assert_cuda(launch_block_sums(stream, BLOCKS, from, to));
    from_device(out, to, sizeof out);
    for (int b = 0; b < BLOCKS; b++) {
        double sum = 0;
        for (int i = 0; i < 256; i++)
            sum += in[256 * b + i];
        assert_within(out[b], sum, 1e-5);
    }
    /* The order of threads and blocks, which another seed changes, does not show. */
    cuda_double_set_seed(test_random(&random_state));
    assert_cuda(launch_block_sums(stream, BLOCKS, from, to));
    from_device(again, to, sizeof again);
    assert_memory_equal(out, again, sizeof out);
    cudaFree(from);
    cudaFree(to);
}

/* A kernel that lacks its barrier gives something else. */
static void test_a_barrier_matters(void **state) {
    (void)state;
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

static void test_votes_of_blocks(void **state) {
    (void)state;
    enum { BLOCKS = 4, THREADS = 100, COUNT = BLOCKS * THREADS }; /* not whole warps */
    int in[COUNT], out[4 * COUNT];
    fill_ints(&random_state, COUNT, -5, 5, in);
    for (int i = 0; i < THREADS; i++) {
        in[i] = 1;
        in[THREADS + i] = 0;
    }
    int *from = to_device(in, sizeof in), *to = device_memory(sizeof out);
    assert_cuda(launch_barrier_votes(stream, BLOCKS, THREADS, from, to));
    from_device(out, to, sizeof out);
    for (int i = 0; i < COUNT; i++) {
        int positive = 0;
        for (int j = 0; j < THREADS; j++)
            positive += in[i / THREADS * THREADS + j] > 0;
        assert_int_equal(out[4 * i], positive);
        assert_int_equal(out[4 * i + 1], positive > 0);
        assert_int_equal(out[4 * i + 2], positive == THREADS);
        assert_int_equal(out[4 * i + 3], in[i]);
    }
    cudaFree(from);
    cudaFree(to);
}

static void test_atomics(void **state) {
    (void)state;
    enum { COUNT = 1000 };
    int in[COUNT], largest = INT32_MIN, smallest = INT32_MAX;
    unsigned counts[16] = {0};
    struct tally tally = {.largest = INT32_MIN, .smallest = INT32_MAX};
    fill_ints(&random_state, COUNT, -100000, 100000, in);
    for (int i = 0; i < COUNT; i++) {
        counts[in[i] & 15]++;
        largest = in[i] > largest ? in[i] : largest;
        smallest = in[i] < smallest ? in[i] : smallest;
    }
    int *from = to_device(in, sizeof in);
    struct tally *to = to_device(&tally, sizeof tally);
    assert_cuda(launch_tally(stream, COUNT, from, to));
    from_device(&tally, to, sizeof tally);
    assert_memory_equal(tally.counts, counts, sizeof counts);
    assert_int_equal(tally.largest, largest);
    assert_int_equal(tally.smallest, smallest);
    assert_true(tally.sum == COUNT);
    assert_int_equal(tally.total, COUNT * (COUNT - 1) / 2);
    assert_int_equal(tally.once, 1);
    assert_int_equal(tally.flag, 7);
    cudaFree(from);
    cudaFree(to);
}

/* The nearest bfloat16, found among its neighbours. */
static void check_bfloat(float x, unsigned short bits, float back) {
    uint32_t whole = (uint32_t)bits << 16;
    float rounded, below, above;
    memcpy(&rounded, &whole, sizeof rounded);
    assert_true(rounded == back);
    whole -= 0x10000;
    memcpy(&below, &whole, sizeof below);
    whole += 0x20000;
    memcpy(&above, &whole, sizeof above);
    assert_true(fabs((double)x - rounded) <= fabs((double)x - below));
    assert_true(fabs((double)x - rounded) <= fabs((double)x - above));
    if (fabs((double)x - rounded) == fabs((double)x - above))
        assert_int_equal(bits % 2, 0);
}

static void test_mathematics(void **state) {
    (void)state;
    enum { COUNT = 500 };
    float in[COUNT];
    static struct mathematics out[COUNT];
    for (int i = 0; i < COUNT; i++)
        in[i] = (float)((test_random_double(&random_state) - 0.5) * 40);
    in[0] = 1 + 0x1p-8f; /* half-way between two, once down and once up */
    in[1] = 1 + 0x3p-8f;
    float *from = to_device(in, sizeof in);
    struct mathematics *to = device_memory(sizeof out);
    assert_cuda(launch_mathematics(stream, COUNT, from, to));
    from_device(out, to, sizeof out);
    for (int i = 0; i < COUNT; i++) {
        uint32_t bits, reversed = 0;
        memcpy(&bits, &in[i], sizeof bits);
        for (int b = 0; b < 32; b++)
            reversed |= (bits >> b & 1) << (31 - b);
        assert_close(out[i].reciprocal_root, 1 / sqrt(fabs((double)in[i])), 1e-6);
        assert_close(out[i].exponential, exp(in[i]), 1e-6);
        assert_close(out[i].logarithm, log(fabs((double)in[i])), 1e-6);
        assert_true(out[i].least == fminf(in[i], 0.5f) && out[i].most == fmaxf(in[i], 0.5f));
        assert_int_equal(out[i].ones, __builtin_popcount(bits));
        assert_int_equal(out[i].first, __builtin_ffs((int)bits));
        assert_int_equal(out[i].leading, bits ? __builtin_clz(bits) : 32);
        assert_int_equal(out[i].rounded, lrint((double)in[i]));
        assert_int_equal(out[i].reversed, reversed);
        assert_int_equal(out[i].high, (uint64_t)bits * 0x10001 >> 32);
        check_bfloat(in[i], out[i].bfloat, out[i].back);
    }
    cudaFree(from);
    cudaFree(to);
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
    {WIDTH_OF_THREE, "power of two"},
    {TRAP, "__trap"},
    {SOME_AT_ANOTHER_INSTRUCTION, "different instructions"},
    {FRAGMENT_NOT_ALIGNED, "__trap"},
    {COPY_NOT_ALIGNED, "no multiple of what it copies"},
    {COPY_NOT_WAITED_FOR, "has not waited for its copies"},
};

/* Each is told, with the line where it happened, stays the device's error, and leaves a double that
 * works when it is set back. */
static void test_mistakes(void **state) {
    (void)state;
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
        test_indices(state);
    }
}

#if !defined(__SANITIZE_ADDRESS__) /* which ends the program at the write */
static void test_overruns(void **state) {
    (void)state;
    char text[4096];
    int count = test_random_int(&random_state, 1, 100), *out = device_memory((size_t)count * 4);
    struct heard heard = listen_to_errors();
    cudaError_t launched = launch_overrun(stream, count, out), freed = cudaFree(out);
    stop_listening(&heard, text, sizeof text);
    assert_cuda(launched);
    assert_int_equal(freed, cudaErrorIllegalAddress);
    assert_non_null(strstr(text, "written behind"));
}
#endif

static void test_speed(void **state) {
    (void)state;
    enum { COUNT = 1000 * 256 };
    int *values = device_memory(COUNT * sizeof *values);
    assert_cuda(cudaMemsetAsync(values, 0, COUNT * sizeof *values, stream));
    int64_t best_ns = INT64_MAX;
    for (int i = 0; i < 5; i++) {
        struct timespec before, after;
        assert_cuda(cudaStreamSynchronize(stream));
        clock_gettime(CLOCK_MONOTONIC, &before);
        assert_cuda(launch_add(stream, COUNT, 1, values));
        assert_cuda(cudaStreamSynchronize(stream));
        clock_gettime(CLOCK_MONOTONIC, &after);
        int64_t ns = (after.tv_sec - before.tv_sec) * 1000000000 + after.tv_nsec - before.tv_nsec;
        best_ns = ns < best_ns ? ns : best_ns;
    }
    print_message("256000 threads: %.1f ms\n", (double)best_ns * 1e-6);
#if defined(__OPTIMIZE__) && !defined(__SANITIZE_ADDRESS__)
    assert_true(best_ns < 50000000);
#endif
    int result;
    from_device(&result, values + COUNT - 1, sizeof result);
    assert_int_equal(result, 5);
    cudaFree(values);
}

int main(void) {
    random_state = test_seed();
#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
    const struct CMUnitTest tests[] = {
        TEST(test_indices),
        TEST(test_arguments_are_copied),
        TEST(test_shuffles),
        TEST(test_votes),
        TEST(test_masks_of_halves),
        TEST(test_sums_over_blocks),
        TEST(test_a_barrier_matters),
        TEST(test_votes_of_blocks),
        TEST(test_atomics),
        TEST(test_mathematics),
        TEST(test_mistakes),
#if !defined(__SANITIZE_ADDRESS__)
        TEST(test_overruns),
#endif
        TEST(test_speed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
