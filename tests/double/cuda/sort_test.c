/* Radix sorts against the library's sort, with the position as the last word: stable. */
#include "kernels.h"
#include "support.h"

enum { MOST = 2000 };
static uint64_t random_state;
static cudaStream_t stream;

static int set_up(void **state) {
    (void)state;
    cuda_double_reset();
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
    return 0;
}

/* What a key is ordered by, and where it was. */
struct entry {
    double key;
    int at;
};

static int ascending(const void *a, const void *b) {
    const struct entry *x = a, *y = b;
    return x->key < y->key ? -1 : x->key > y->key ? 1 : x->at - y->at;
}

static int descending(const void *a, const void *b) {
    const struct entry *x = a, *y = b;
    return x->key > y->key ? -1 : x->key < y->key ? 1 : x->at - y->at;
}

static void test_ints(void **state) {
    (void)state;
    for (int run = 0; run < 8; run++) {
        int count = test_random_int(&random_state, 1, MOST), range = run % 4 < 2 ? 20 : INT32_MAX;
        int keys[MOST], values[MOST], sorted[MOST], order[MOST];
        struct entry expected[MOST];
        size_t bytes = 0;
        fill_ints(&random_state, count, -range, range, keys);
        for (int i = 0; i < count; i++) {
            values[i] = 1000 * i;
            expected[i] = (struct entry){keys[i], i};
        }
        qsort(expected, (size_t)count, sizeof *expected, run % 2 ? descending : ascending);
        size_t size = (size_t)count * sizeof *keys;
        int *from = to_device(keys, size), *to = device_memory(size);
        int *values_from = run < 6 ? to_device(values, size) : NULL;
        int *values_to = run < 6 ? device_memory(size) : NULL;
        assert_cuda(sort_ints(stream, NULL, &bytes, from, to, values_from, values_to, count, 0, 32,
                              run % 2));
        assert_true(bytes > 0);
        void *storage = device_memory(bytes);
        size_t less = bytes - 1;
        assert_int_equal(sort_ints(stream, storage, &less, from, to, values_from, values_to, count,
                                   0, 32, run % 2),
                         cudaErrorInvalidValue);
        assert_cuda(sort_ints(stream, storage, &bytes, from, to, values_from, values_to, count, 0,
                              32, run % 2));
        from_device(sorted, to, size);
        if (values_to)
            from_device(order, values_to, size);
        for (int i = 0; i < count; i++) {
            assert_int_equal(sorted[i], keys[expected[i].at]);
            if (values_to)
                assert_int_equal(order[i], values[expected[i].at]);
        }
        cudaFree(from);
        cudaFree(to);
        cudaFree(values_from);
        cudaFree(values_to);
        cudaFree(storage);
    }
}

static void test_floats(void **state) {
    (void)state;
    for (int run = 0; run < 4; run++) {
        float keys[MOST], sorted[MOST];
        int values[MOST], order[MOST];
        struct entry expected[MOST];
        size_t bytes = 0;
        for (int i = 0; i < MOST; i++) {
            keys[i] = (float)(test_random_double(&random_state) - 0.5);
            if (i % 7 == 0) /* zeros of both signs are the same key */
                keys[i] = i % 2 ? 0.0f : -0.0f;
            if (i % 101 == 0)
                keys[i] = i % 2 ? INFINITY : -INFINITY;
            values[i] = i;
            expected[i] = (struct entry){keys[i], i};
        }
        qsort(expected, MOST, sizeof *expected, run % 2 ? descending : ascending);
        float *from = to_device(keys, sizeof keys), *to = device_memory(sizeof keys);
        int *values_from = to_device(values, sizeof values),
            *values_to = device_memory(sizeof values);
        assert_cuda(sort_floats(stream, NULL, &bytes, from, to, values_from, values_to, MOST, 0, 32,
                                run % 2));
        void *storage = device_memory(bytes);
        assert_cuda(sort_floats(stream, storage, &bytes, from, to, values_from, values_to, MOST, 0,
                                32, run % 2));
        from_device(sorted, to, sizeof sorted);
        from_device(order, values_to, sizeof order);
        for (int i = 0; i < MOST; i++) {
            assert_int_equal(order[i], expected[i].at);
            assert_memory_equal(&sorted[i], &keys[order[i]], sizeof sorted[i]);
        }
        cudaFree(from);
        cudaFree(to);
        cudaFree(values_from);
        cudaFree(values_to);
        cudaFree(storage);
    }
}

/* Only the bits asked for count. */
static void test_some_bits(void **state) {
    (void)state;
    uint64_t keys[MOST], sorted[MOST];
    int values[MOST], order[MOST];
    struct entry expected[MOST];
    int begin = test_random_int(&random_state, 0, 50);
    int end = test_random_int(&random_state, begin + 1, begin + 12);
    size_t bytes = 0;
    for (int i = 0; i < MOST; i++) {
        keys[i] = test_random(&random_state);
        values[i] = i;
        expected[i] =
            (struct entry){(double)(keys[i] >> begin & ((UINT64_C(1) << (end - begin)) - 1)), i};
    }
    qsort(expected, MOST, sizeof *expected, ascending);
    uint64_t *from = to_device(keys, sizeof keys), *to = device_memory(sizeof keys);
    int *values_from = to_device(values, sizeof values), *values_to = device_memory(sizeof values);
    assert_cuda(sort_unsigned_long(stream, NULL, &bytes, from, to, values_from, values_to, MOST,
                                   begin, end, 0));
    void *storage = device_memory(bytes);
    assert_cuda(sort_unsigned_long(stream, storage, &bytes, from, to, values_from, values_to, MOST,
                                   begin, end, 0));
    from_device(order, values_to, sizeof order);
    from_device(sorted, to, sizeof sorted);
    for (int i = 0; i < MOST; i++) {
        assert_int_equal(order[i], expected[i].at);
        assert_true(sorted[i] == keys[order[i]]);
    }
    assert_int_equal(sort_unsigned_long(stream, storage, &bytes, from, to, values_from, values_to,
                                        MOST, 0, 65, 0),
                     cudaErrorInvalidValue);
    cudaFree(from);
    cudaFree(to);
    cudaFree(values_from);
    cudaFree(values_to);
    cudaFree(storage);
}

/* Storage or arrays that are too small are a fault when the stream gets there. */
static void test_arrays_that_are_cut_short(void **state) {
    (void)state;
    int keys[100], *from, *to = device_memory(sizeof keys);
    char text[512];
    size_t bytes = 0;
    fill_ints(&random_state, 100, -9, 9, keys);
    from = to_device(keys, sizeof keys - 4);
    assert_cuda(sort_ints(stream, NULL, &bytes, from, to, NULL, NULL, 100, 0, 32, 0));
    void *storage = device_memory(bytes);
    struct heard heard = listen_to_errors();
    cudaError_t queued = sort_ints(stream, storage, &bytes, from, to, NULL, NULL, 100, 0, 32, 0);
    cudaError_t error = cudaStreamSynchronize(stream);
    stop_listening(&heard, text, sizeof text);
    assert_cuda(queued);
    assert_int_equal(error, cudaErrorIllegalAddress);
    assert_non_null(strstr(text, "radix sort of 100"));
    cuda_double_reset();
    cudaFree(from);
    cudaFree(to);
    cudaFree(storage);
}

int main(void) {
    random_state = test_seed();
#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
    const struct CMUnitTest tests[] = {
        TEST(test_ints),
        TEST(test_floats),
        TEST(test_some_bits),
        TEST(test_arrays_that_are_cut_short),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
