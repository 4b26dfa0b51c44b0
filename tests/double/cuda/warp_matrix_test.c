/* What a warp does as one - products and loading fragments -, and copies that run beside threads.
 */
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
    assert_cuda(cudaStreamDestroy(stream));
    return 0;
}

/* Bits of a random bf16 in -2 .. 2. */
static uint16_t random_bits(void) {
    float value = (float)(4 * test_random_double(&random_state) - 2);
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    return (uint16_t)(bits >> 16);
}

static double value_of(uint16_t bits) {
    uint32_t whole = (uint32_t)bits << 16;
    float value;
    memcpy(&value, &whole, sizeof value);
    return (double)value;
}

static void test_products(void **state) {
    (void)state;
    for (int turned = 0; turned < 2; turned++) {
        uint16_t a[16][16], b[16][16];
        float c[16][16], before[16][16];
        for (int i = 0; i < 16; i++)
            for (int j = 0; j < 16; j++) {
                a[i][j] = random_bits();
                b[i][j] = random_bits();
                before[i][j] = (float)test_random_double(&random_state);
            }
        void *in_a = to_device(a, sizeof a), *in_b = to_device(b, sizeof b);
        void *out = to_device(before, sizeof before);
        assert_cuda(launch_warp_product(stream, turned, in_a, in_b, out));
        from_device(c, out, sizeof c);
        for (int i = 0; i < 16; i++)
            for (int j = 0; j < 16; j++) {
                double expected = (double)before[i][j];
                for (int k = 0; k < 16; k++)
                    expected += value_of(a[i][k]) * value_of(turned ? b[j][k] : b[k][j]);
                assert_within((double)c[i][j], expected, 1e-5);
            }
        cudaFree(in_a);
        cudaFree(in_b);
        cudaFree(out);
    }
}

/* A thread sees what another has copied, once that has waited; before, it does not see what was
 * there either. */
static void test_copies(void **state) {
    (void)state;
    enum { COUNT = COPYING_THREADS * 4 };
    float in[2][COUNT], out[4][COPYING_THREADS][4];
    for (int i = 0; i < COUNT; i++) {
        in[0][i] = (float)test_random_double(&random_state) - 2;
        in[1][i] = (float)test_random_double(&random_state) + 2;
    }
    void *from = to_device(in, sizeof in), *to = device_memory(sizeof out);
    assert_cuda(launch_copies(stream, from, to));
    from_device(out, to, sizeof out);
    for (int i = 0; i < COPYING_THREADS; i++)
        for (int n = 0; n < 4; n++) {
            int other = (COPYING_THREADS - 1 - i) * 4 + n;
            assert_true(isnan(out[0][i][n]));
            assert_true(out[1][i][n] == in[0][other]);
            assert_true(out[2][i][n] == in[1][other]);
            assert_true(out[3][i][n] == 0);
        }
    cudaFree(from);
    cudaFree(to);
}

int main(void) {
    random_state = test_seed();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_products, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_copies, set_up, tear_down),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
