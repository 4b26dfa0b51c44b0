/* Elementary functions against the C library's of higher precision, and the bits that Python's
 * arithmetic (IEEE 754 without contraction) gives for the same operations. */
#include "reference/base/elementary.h"

#include "reference/base/random.h"
#include "tests/support.h"

enum { DRAWS = 20000 };

static uint64_t random_state;

static double draw(double from, double to) {
    return from + (to - from) * test_random_double(&random_state);
}

TEST(functions_are_those_of_the_c_library) {
    for (int i = 0; i < DRAWS; i++) {
        double x = draw(-700, 700), y = exp2(draw(-1000, 1000)), power = draw(-3, 3);
        assert_close(mp_elementary_exp(x), (double)expl(x), 1e-14);
        assert_close(mp_elementary_log(y), (double)logl(y), 1e-14);
        double near = draw(0.5, 2); /* where the logarithm is small */
        assert_close(mp_elementary_log(near), (double)logl(near), 1e-14);
        assert_close(mp_elementary_power(near, power), (double)powl(near, power), 1e-14);
    }
}

TEST(limits_are_met) {
    assert_close(mp_elementary_exp(-700), (double)expl(-700), 1e-14);
    assert_true(mp_elementary_exp(nextafter(-700, -INFINITY)) == 0);
    assert_true(mp_elementary_exp(-INFINITY) == 0);
    assert_true(mp_elementary_exp(0) == 1);
    assert_true(mp_elementary_log(1) == 0);
    assert_close(mp_elementary_log(0x1p-1074), -1074 * M_LN2, 1e-14);
}

TEST(bits_are_the_same_everywhere) {
    assert_true(mp_elementary_exp(1) == 0x1.5bf0a8b14576ap+1);
    assert_true(mp_elementary_exp(-1) == 0x1.78b56362cef38p-2);
    assert_true(mp_elementary_exp(-37.7) == 0x1.86d47300a1b65p-55);
    assert_true(mp_elementary_exp(300.3) == 0x1.2e9c6cabf8f3fp+433);
    assert_true(mp_elementary_log(3) == 0x1.193ea7aad030bp+0);
    assert_true(mp_elementary_log(0.7) == -0x1.6d3c324e13f4fp-2);
    assert_true(mp_elementary_log(0x1.6a09e667f3bcdp-1) == -0x1.62e42fefa39eep-2); /* sqrt(1/2) */
    assert_true(mp_elementary_log(1e-300) == -0x1.5963447f87fb5p+9);
    assert_true(mp_elementary_log(1e17) == 0x1.3926cd770aa67p+5);
    assert_true(mp_elementary_power(0.3, 1.7) == 0x1.08819f76d9f8dp-3);
    assert_true(mp_elementary_power(10, -2.5) == 0x1.9e7c6e43390b0p-9);
    assert_true(mp_elementary_uniform(1, 2, 3) == 0x1.a0e68ea1fbc6dp-1);
    assert_true(mp_elementary_normal(7, 3, 0) == 0x1.e1c0d65f8ba65p-2);
    assert_true(mp_elementary_normal(7, 3, 2) == 0x1.6a644448f00e8p+0); /* its second trial */
    assert_true(mp_elementary_normal(7, 3, 6) == 0x1.19008463bd65fp+0);
}

/* The upper 52 bits, in the middle between two neighbours. */
TEST(uniform_is_made_of_the_upper_bits) {
    for (uint64_t i = 0; i < 1000; i++) {
        uint64_t seed = test_random(&random_state), stream = test_random(&random_state);
        double value = ldexp(mp_elementary_uniform(seed, stream, i), 53);
        assert_true((uint64_t)value == ((mp_random_bits(seed, stream, i) >> 12) << 1 | 1));
    }
}

TEST(normal_has_its_moments) {
    double moment[5] = {0}, deviation = 1 / sqrt(DRAWS);
    uint64_t seed = test_random(&random_state);
    for (uint64_t i = 0; i < DRAWS; i++) {
        double x = mp_elementary_normal(seed, 5, i), power = 1;
        for (int m = 1; m <= 4; m++)
            moment[m] += (power *= x) / DRAWS;
    }
    assert_within(moment[1], 0, 6 * deviation);
    assert_within(moment[2], 1, 6 * sqrt(2) * deviation);
    assert_within(moment[3], 0, 6 * sqrt(15) * deviation);
    assert_within(moment[4], 3, 6 * sqrt(96) * deviation);
}

TEST_SEED(random_state);
