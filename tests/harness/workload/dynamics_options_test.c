/* Dynamics: what holds of its loads whatever its options are, and what each option does. */
#include "tests/harness/workload/made.h"

TEST_RANDOM(test_loads_come_in_any_order) {
    int seed = test_random_int(random, 0, 1 << 30);
    static const char words[] = "seed=%d layers=3 tokens=64 micro-batches=2";
    AUTO(made) struct made used = make("dynamics", words, seed);
    for (int i = 0; i < 40; i++) {
        int64_t iteration = test_random_int(random, 0, 4000);
        int layer = test_random_int(random, 0, 2), micro_batch = test_random_int(random, 0, 1);
        AUTO(made) struct made fresh = make("dynamics", words, seed);
        load_at(&used, iteration, micro_batch, layer);
        load_at(&fresh, iteration, micro_batch, layer);
        assert_same_load(&used, &fresh);
    }
}

static const struct {
    const char *name; /* options */
    unsigned long sum;
} sums[] = {
    {"seed=7 tokens=512", 0x06768795},
    {"seed=7 tokens=512 sampling=exact pace=3 spread=0.8", 0xd2929310},
    {"seed=7 tokens=512 sampling=topics dispersion=20", 0x36335af9},
    {"seed=8 tokens=100 layers=2 experts=256 top-k=8 ranks=4", 0xc7850b03},
};

TEST_EACH(test_the_bits_are_the_same_on_every_machine, sums, row) {
    static const int64_t iterations[] = {0, 1, 7, 31, 45, 300, 2001, 5000, 1000000, 1000000000000};
    AUTO(made) struct made made = make("dynamics", "%s", row->name);
    uLong sum = crc32(0, NULL, 0);
    for (size_t i = 0; i < sizeof iterations / sizeof *iterations; i++)
        for (int layer = 0; layer < made.options.layers; layer++) {
            load_at(&made, iterations[i], 0, layer);
            sum = add_counts(sum, &made.load);
        }
    assert_int_equal(sum, row->sum);
}

static const struct {
    const char *name; /* options */
} shapes[] = {
    {"experts=1 top-k=1 ranks=3 tokens=9 layers=1"},
    {"experts=4 top-k=4 ranks=2 tokens=33 layers=2"},
    {"experts=7 top-k=3 ranks=5 tokens=100 layers=2 spread=4"},
    {"experts=8 top-k=1 ranks=8 tokens=64 layers=4 pace=0.001"},
    {"experts=256 top-k=8 ranks=2 tokens=128 layers=3 sampling=exact"},
    {"experts=1000 top-k=6 ranks=2 tokens=50 layers=2 pace=1000 dispersion=100"},
    {"experts=1000 top-k=6 ranks=2 tokens=51 layers=2 dispersion=100 sampling=topics"},
    {"experts=8 top-k=2 ranks=3 tokens=333 layers=2 dispersion=1 sampling=topics"},
};

/* No expert has more routes than there are tokens, and rows are whole, in shapes far from the
 * trace's and long after its end. */
TEST_EACH(test_other_shapes_are_feasible, shapes, shape) {
    uint64_t random = test_seed();
    for (int repeat = 0; repeat < 20; repeat++) {
        AUTO(made)
        struct made made =
            make("dynamics", "seed=%d %s", test_random_int(&random, 0, 1 << 30), shape->name);
        load_at(&made, repeat ? test_random_int(&random, 0, 100000) : INT64_C(1000000000000), 0, 0);
        assert_feasible(&made, false);
    }
}

/* Standard deviation between ranks of their routes to an expert, over what independent tokens would
 * have: means over experts and layers of squares. */
static double dispersion_of(const char *words) {
    AUTO(made) struct made made = make("dynamics", "%s", words);
    const int ranks = made.options.ranks;
    double squares = 0, independent = 0;
    for (int layer = 0; layer < made.options.layers; layer++) {
        load_at(&made, 900, 0, layer);
        for (int e = 0; e < made.options.experts; e++) {
            double sum = 0, square = 0;
            for (int rank = 0; rank < ranks; rank++) {
                double count = mp_load_at(&made.load, rank, e);
                sum += count;
                square += count * count;
            }
            double mean = sum / ranks;
            squares += (square / ranks - mean * mean) * ranks / (ranks - 1);
            independent += mean * (1 - mean / made.options.tokens);
        }
    }
    return sqrt(squares / independent);
}

/* Ranks are as far apart whether all tokens are drawn or topics alone, which leave out what
 * independent tokens differ by.  A micro-batch's topics and its iteration's both tell ranks apart:
 * the square is twice what is asked for, of whole numbers of topics a bit less. */
TEST(test_topics_disperse_ranks) {
#define MANY "spread=0.3 ranks=64 experts=8 layers=12 tokens=4096 dispersion="
    double drawn = dispersion_of(MANY "16 sampling=random");
    double topics = dispersion_of(MANY "16 sampling=topics");
    double fewer = dispersion_of(MANY "4 sampling=topics");
    print_message("ranks apart: %.2f drawn, %.2f and %.2f by topics\n", drawn, topics, fewer);
    assert_true(drawn > 14 && drawn < 18);
    assert_true(topics > 14 && topics < 18);
    assert_true(fewer > 4.8 && fewer < 5.8);
    assert_true(dispersion_of(MANY "1 sampling=topics") < 0.1);
    assert_true(dispersion_of(MANY "16 sampling=exact") < 0.1);
#undef MANY
}

/* Hottest expert's load over the mean, mean over the layers. */
static double hottest(const char *words, int64_t iteration) {
    AUTO(made) struct made made = make("dynamics", "%s", words);
    double sum = 0;
    for (int layer = 0; layer < made.options.layers; layer++) {
        load_at(&made, iteration, 0, layer);
        sum += most_over_mean(&made);
    }
    return sum / made.options.layers;
}

#define SHAPE "experts=32 layers=24 sampling=exact tokens=8192"

TEST(test_options_stretch_time_and_spread) {
    /* Only the noise of single iterations is not the same. */
    assert_close(hottest(SHAPE " pace=10", 301), hottest(SHAPE, 31), 0.03);
    assert_close(hottest(SHAPE " pace=10", 5001), hottest(SHAPE, 501), 0.03);
    assert_close(hottest(SHAPE " spread=0", 501), 1, 1e-3);
    double half = hottest(SHAPE " spread=0.5", 501), full = hottest(SHAPE, 501);
    print_message("max / mean at 501: %.3g with half the spread, %.3g with all\n", half, full);
    assert_true(half > 1.5 && half < 0.8 * full);
    assert_close(hottest(SHAPE, 0), hottest(SHAPE, 1), 0.1); /* both the start */
}

static const struct {
    const char *name, *value, *says;
} bad_options[] = {
    {"pace", "0", "pace: 0 is outside 0.001 .. 1000000"},
    {"pace", "nan", "pace: "},
    {"spread", "-1", "spread: -1 is outside 0 .. 4"},
    {"dispersion", "0.5", "dispersion: 0.5 is outside 1 .. 100"},
    {"sampling", "some", "exact, random"},
    {"exponent", "1", "unknown option \"exponent\" for generator dynamics"},
};

TEST_EACH(test_bad_options_are_refused, bad_options, bad) {
    struct mp_generate_options options;
    const struct mp_generator *kind = mp_generator_find("dynamics", NULL);
    assert_works(mp_generate_set_defaults(kind, &options, &error));
    assert_fails(mp_generate_set(kind, &options, bad->name, bad->value, NULL, &error), MP_EINVAL,
                 bad->says);
}
