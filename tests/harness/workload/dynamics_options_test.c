/* Dynamics: what holds of its loads whatever its options are, and what each option does. */
#include <zlib.h>

#include "tests/errors.h"
#include "tests/harness/workload/dynamics.h"

TEST_END(load, struct mp_load, mp_load_destroy(it))
TEST_END(generation, struct mp_generation *, mp_generation_destroy(*it))

/* A generation with options in words, "NAME=VALUE ...". */
static struct mp_generation *start_words(const char *words, struct mp_generate_options *options,
                                         struct mp_load *load) {
    char text[256], *rest = text;
    struct mp_error error = {0};
    const struct mp_generator *kind = mp_generator_find("dynamics", &error);
    snprintf(text, sizeof text, "%s", words);
    assert_int_equal(mp_generate_set_defaults(kind, options, &error), MP_OK);
    for (char *word; (word = strsep(&rest, " "));) {
        char *value = strchr(word, '=');
        *value = 0;
        if (mp_generate_set(kind, options, word, value + 1, NULL, &error))
            fail_msg("%s", error.text);
    }
    return start(options, load);
}

static size_t load_bytes(const struct mp_load *load) {
    return sizeof *load->count * (size_t)load->ranks * (size_t)load->experts;
}

TEST_RANDOM(test_loads_come_in_any_order) {
    enum { COUNT = 40 };
    struct mp_generate_options options;
    struct mp_load load, again;
    char words[128];
    snprintf(words, sizeof words, "seed=%d layers=3 tokens=64 micro-batches=2",
             test_random_int(random, 0, 1 << 30));
    AUTO(generation) struct mp_generation *used = start_words(words, &options, &load);
    for (int i = 0; i < COUNT; i++) {
        int64_t iteration = test_random_int(random, 0, 4000);
        int layer = test_random_int(random, 0, 2), micro_batch = test_random_int(random, 0, 1);
        AUTO(generation) struct mp_generation *fresh = start_words(words, &options, &again);
        assert_works(mp_generation_load(used, iteration, micro_batch, layer, &load, &error));
        assert_works(mp_generation_load(fresh, iteration, micro_batch, layer, &again, &error));
        assert_memory_equal(load.count, again.count, load_bytes(&load));
        mp_load_destroy(&again);
    }
    mp_load_destroy(&load);
}

static uLong sum_of_loads(const char *words) {
    static const int64_t iterations[] = {0, 1, 7, 31, 45, 300, 2001, 5000, 1000000, 1000000000000};
    struct mp_generate_options options;
    AUTO(load) struct mp_load load;
    AUTO(generation) struct mp_generation *generation = start_words(words, &options, &load);
    uLong sum = crc32(0, NULL, 0);
    for (size_t i = 0; i < sizeof iterations / sizeof *iterations; i++)
        for (int layer = 0; layer < options.layers; layer++) {
            assert_works(mp_generation_load(generation, iterations[i], 0, layer, &load, &error));
            for (int j = 0; j < load.ranks * load.experts; j++) {
                uint32_t count = load.count[j];
                unsigned char bytes[4] = {(unsigned char)count, (unsigned char)(count >> 8),
                                          (unsigned char)(count >> 16),
                                          (unsigned char)(count >> 24)};
                sum = crc32(sum, bytes, 4);
            }
        }
    return sum;
}

TEST(test_the_bits_are_the_same_on_every_machine) {
    static const struct {
        const char *words;
        unsigned long sum;
    } cases[] = {
        {"seed=7 tokens=512", 0x06768795},
        {"seed=7 tokens=512 sampling=exact pace=3 spread=0.8", 0xd2929310},
        {"seed=7 tokens=512 sampling=topics dispersion=20", 0x36335af9},
        {"seed=8 tokens=100 layers=2 experts=256 top-k=8 ranks=4", 0xc7850b03},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        uLong sum = sum_of_loads(cases[i].words);
        if (sum != cases[i].sum)
            fail_msg("%s: CRC-32 0x%08lx, expected 0x%08lx", cases[i].words, sum, cases[i].sum);
    }
}

/* No expert has more routes than there are tokens, and rows are whole, in shapes far from the
 * trace's and long after its end. */
TEST_RANDOM(test_other_shapes_are_feasible) {
    static const char *const shapes[] = {
        "experts=1 top-k=1 ranks=3 tokens=9 layers=1",
        "experts=4 top-k=4 ranks=2 tokens=33 layers=2",
        "experts=7 top-k=3 ranks=5 tokens=100 layers=2 spread=4",
        "experts=8 top-k=1 ranks=8 tokens=64 layers=4 pace=0.001",
        "experts=256 top-k=8 ranks=2 tokens=128 layers=3 sampling=exact",
        "experts=1000 top-k=6 ranks=2 tokens=50 layers=2 pace=1000 dispersion=100",
        "experts=1000 top-k=6 ranks=2 tokens=51 layers=2 dispersion=100 sampling=topics",
        "experts=8 top-k=2 ranks=3 tokens=333 layers=2 dispersion=1 sampling=topics",
    };
    for (size_t s = 0; s < sizeof shapes / sizeof *shapes; s++)
        for (int repeat = 0; repeat < 20; repeat++) {
            struct mp_generate_options options;
            AUTO(load) struct mp_load load;
            char words[192];
            snprintf(words, sizeof words, "seed=%d %s", test_random_int(random, 0, 1 << 30),
                     shapes[s]);
            AUTO(generation) struct mp_generation *generation = start_words(words, &options, &load);
            int64_t iteration =
                repeat ? test_random_int(random, 0, 100000) : INT64_C(1000000000000);
            assert_works(mp_generation_load(generation, iteration, 0, 0, &load, &error));
            for (int rank = 0; rank < options.ranks; rank++) {
                int64_t routes = 0;
                for (int e = 0; e < options.experts; e++) {
                    assert_true(mp_load_at(&load, rank, e) <= (uint32_t)options.tokens);
                    routes += mp_load_at(&load, rank, e);
                }
                assert_int_equal(routes, (int64_t)options.tokens * options.top_k);
            }
        }
}

/* Standard deviation between ranks of their routes to an expert, over what independent tokens would
 * have: means over experts and layers of squares. */
static double dispersion_of(const char *words) {
    struct mp_generate_options options;
    AUTO(load) struct mp_load load;
    double squares = 0, independent = 0;
    AUTO(generation) struct mp_generation *generation = start_words(words, &options, &load);
    for (int layer = 0; layer < options.layers; layer++) {
        assert_works(mp_generation_load(generation, 900, 0, layer, &load, &error));
        for (int e = 0; e < options.experts; e++) {
            double sum = 0, square = 0;
            for (int rank = 0; rank < options.ranks; rank++) {
                double count = mp_load_at(&load, rank, e);
                sum += count;
                square += count * count;
            }
            double mean = sum / options.ranks;
            squares += (square / options.ranks - mean * mean) * options.ranks / (options.ranks - 1);
            independent += mean * (1 - mean / options.tokens);
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

enum { EXPERTS = 32 };

/* Hottest expert's load over the mean, mean over the layers. */
static double most_over_mean(const char *words, int64_t iteration) {
    struct mp_generate_options options;
    AUTO(load) struct mp_load load;
    int64_t total[EXPERTS];
    double sum = 0;
    AUTO(generation) struct mp_generation *generation = start_words(words, &options, &load);
    for (int layer = 0; layer < options.layers; layer++) {
        assert_works(mp_generation_load(generation, iteration, 0, layer, &load, &error));
        mp_load_expert_totals(&load, total);
        int64_t most = 0;
        for (int e = 0; e < EXPERTS; e++)
            most = total[e] > most ? total[e] : most;
        sum += (double)most * EXPERTS / (double)mp_load_total(&load) / options.layers;
    }
    return sum;
}

#define SHAPE "experts=32 layers=24 sampling=exact tokens=8192"

TEST(test_options_stretch_time_and_spread) {
    /* Only the noise of single iterations is not the same. */
    assert_close(most_over_mean(SHAPE " pace=10", 301), most_over_mean(SHAPE, 31), 0.03);
    assert_close(most_over_mean(SHAPE " pace=10", 5001), most_over_mean(SHAPE, 501), 0.03);
    assert_close(most_over_mean(SHAPE " spread=0", 501), 1, 1e-3);
    double half = most_over_mean(SHAPE " spread=0.5", 501), full = most_over_mean(SHAPE, 501);
    print_message("max / mean at 501: %.3g with half the spread, %.3g with all\n", half, full);
    assert_true(half > 1.5 && half < 0.8 * full);
    assert_close(most_over_mean(SHAPE, 0), most_over_mean(SHAPE, 1), 0.1); /* both the start */
}

TEST(test_bad_options_are_refused) {
    static const struct {
        const char *name, *value, *says;
    } cases[] = {
        {"pace", "0", "pace: 0 is outside 0.001 .. 1000000"},
        {"pace", "nan", "pace: "},
        {"spread", "-1", "spread: -1 is outside 0 .. 4"},
        {"dispersion", "0.5", "dispersion: 0.5 is outside 1 .. 100"},
        {"sampling", "some", "exact, random"},
        {"exponent", "1", "unknown option \"exponent\" for generator dynamics"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct mp_error error = {0};
        struct mp_generate_options options;
        const struct mp_generator *kind = mp_generator_find("dynamics", &error);
        assert_int_equal(mp_generate_set_defaults(kind, &options, &error), MP_OK);
        assert_int_not_equal(
            mp_generate_set(kind, &options, cases[i].name, cases[i].value, NULL, &error), MP_OK);
        if (!strstr(error.text, cases[i].says))
            fail_msg("%s=%s: says \"%s\"", cases[i].name, cases[i].value, error.text);
    }
}
