/* Counter-based random numbers: values depend on (seed, stream, index) alone and have the moments
 * of their distributions. */
#include "reference/base/random.h"

#include "tests/support.h"

static uint64_t random_state;

/* One step of SplitMix64 from the given state; its first output from 0 is published. */
static uint64_t step(uint64_t state) {
    return test_random(&state);
}

TEST(bits_are_mixed_argument_by_argument) {
    assert_true(step(0) == UINT64_C(0xe220a8397b1dcdaf));
    for (int i = 0; i < 1000; i++) {
        uint64_t seed = test_random(&random_state), stream = test_random(&random_state),
                 index = test_random(&random_state);
        assert_true(mp_random_bits(seed, stream, index) == step(step(step(seed) ^ stream) ^ index));
    }
}

TEST(neighbouring_arguments_differ_in_half_the_bits) {
    enum { DRAWS = 20000 };
    double flipped[3] = {0};
    for (int i = 0; i < DRAWS; i++) {
        uint64_t seed = test_random(&random_state) >> 40, stream = test_random(&random_state) >> 50,
                 index = (uint64_t)i;
        uint64_t bits = mp_random_bits(seed, stream, index);
        flipped[0] += __builtin_popcountll(bits ^ mp_random_bits(seed + 1, stream, index));
        flipped[1] += __builtin_popcountll(bits ^ mp_random_bits(seed, stream + 1, index));
        flipped[2] += __builtin_popcountll(bits ^ mp_random_bits(seed, stream, index + 1));
    }
    for (int i = 0; i < 3; i++) /* the mean of 20000 has a deviation of 4 / sqrt(20000) = 0.028 */
        assert_close(flipped[i] / DRAWS / 32, 1, 6 * 0.028 / 32);
}

TEST(below_is_uniform) {
    enum { BOUND = 37, DRAWS = 37000 };
    int count[BOUND] = {0};
    uint64_t seed = test_random(&random_state);
    double chi = 0;
    for (uint64_t i = 0; i < DRAWS; i++) {
        uint64_t value = mp_random_below(seed, 5, i, BOUND);
        assert_in_range(value, 0, BOUND - 1);
        count[value]++;
    }
    for (int i = 0; i < BOUND; i++)
        chi += pow(count[i] - 1000.0, 2) / 1000;
    /* 36 degrees of freedom: mean 36, deviation 8.5. */
    assert_true(chi > 36 - 4 * 8.5 && chi < 36 + 8 * 8.5);
    assert_int_equal(mp_random_below(seed, 5, 0, 1), 0);
}

TEST(normal_has_its_moments) {
    enum { COUNT = 200000 };
    AUTO(allocated) float *value = malloc(COUNT * sizeof *value);
    double moment[5] = {0}, neighbours = 0;
    mp_random_normal(test_random(&random_state), 3, 0.5f, COUNT, value);
    for (int i = 0; i < COUNT; i++) {
        double x = value[i] / 0.5, power = 1;
        assert_true(isfinite(x));
        for (int m = 1; m <= 4; m++)
            moment[m] += (power *= x) / COUNT;
        neighbours += i ? x * value[i - 1] / 0.5 / COUNT : 0;
    }
    double deviation = 1 / sqrt(COUNT);
    assert_within(moment[1], 0, 6 * deviation);
    assert_close(moment[2], 1, 6 * sqrt(2) * deviation);
    assert_within(moment[3], 0, 6 * sqrt(15) * deviation);
    assert_close(moment[4], 3, 6 * sqrt(96) * deviation / 3);
    assert_within(neighbours, 0, 6 * deviation);
}

TEST(normal_depends_on_seed_stream_and_index_alone) {
    float all[64], part[64], other[64];
    for (int round = 0; round < 50; round++) {
        uint64_t seed = test_random(&random_state), stream = test_random(&random_state);
        size_t count = (size_t)test_random_int(&random_state, 0, 63);
        mp_random_normal(seed, stream, 1, 64, all);
        part[count] = 77;
        mp_random_normal(seed, stream, 1, count, part);
        assert_memory_equal(all, part, count * sizeof *all);
        assert_true(part[count] == 77); /* nothing behind its end is touched */
        mp_random_normal(seed, stream + 1, 1, 64, other);
        assert_memory_not_equal(all, other, sizeof all);
        mp_random_normal(seed + 1, stream, 1, 64, other);
        assert_memory_not_equal(all, other, sizeof all);
    }
}

/* Many are drawn by threads: each is what it is by itself, wherever rows and pieces begin. */
TEST(normals_of_threads_are_those_of_one) {
    enum { MOST = 300000 };
    float *rows = malloc((MOST + 1) * sizeof *rows), one;
    for (int round = 0; round < 4; round++) {
        uint64_t seed = test_random(&random_state), stream = test_random(&random_state);
        size_t columns = (size_t)test_random_int(&random_state, 1, round ? 5000 : MOST);
        size_t first = (size_t)test_random_int(&random_state, 0, 9999), count = MOST / columns;
        size_t stride = columns + (size_t)test_random_int(&random_state, 0, 999);
        rows[count * columns] = 77;
        mp_random_normal_rows(seed, stream, 0.5f, first, stride, count, columns, rows);
        assert_true(rows[count * columns] == 77);
        for (size_t i = 0; i < count * columns; i++) {
            size_t index = first + i / columns * stride + i % columns;
            mp_random_normal_rows(seed, stream, 0.5f, index, 1, 1, 1, &one);
            assert_memory_equal(&one, &rows[i], sizeof one);
        }
    }
    free(rows);
}

TEST_SEED(random_state);
