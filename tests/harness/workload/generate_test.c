/* Generators: what every load keeps, what each kind is for, and the same bits everywhere. */
#include "tests/harness/workload/made.h"
#include "tests/harness/workload/streams.h"

/* Share of all routes on contiguous experts first .. first + count - 1. */
static double share_of(const struct made *made, int first, int count) {
    int64_t part = 0, sum = 0;
    for (int e = 0; e < made->options.experts; e++) {
        part += e >= first && e < first + count ? made->total[e] : 0;
        sum += made->total[e];
    }
    return (double)part / (double)sum;
}

static const char *sampled_at_random(const struct mp_generator *kind) {
    bool sampled = kind->options && mp_options_find(kind->options, "sampling");
    return sampled ? " sampling=random" : "";
}

TEST_RANDOM(test_every_kind_gives_each_token_distinct_experts) {
    for (int repeat = 0; repeat < 20; repeat++)
        for (const struct mp_generator *kind = mp_generators; kind->name; kind++) {
            int ranks = 2 << test_random_int(random, 0, 2);
            AUTO(made)
            struct made made =
                make(kind->name,
                     "seed=%d layers=3 ranks=%d experts=%d tokens=%d top-k=%d micro-batches=2%s",
                     test_random_int(random, 0, 1000000), ranks,
                     ranks * test_random_int(random, 4, 9), test_random_int(random, 1, 300),
                     test_random_int(random, 1, 2), repeat % 2 ? sampled_at_random(kind) : "");
            for (int i = 0; i < 6; i++) {
                load_at(&made, test_random_int(random, 0, 200), i % 2, i % 3);
                assert_feasible(&made, !strcmp(kind->name, "w4"));
            }
        }
}

TEST_RANDOM(test_a_load_depends_on_its_place_alone) {
    for (const struct mp_generator *kind = mp_generators; kind->name; kind++) {
        int seed = test_random_int(random, 0, 1000000);
        AUTO(made)
        struct made one =
            make(kind->name, "seed=%d layers=2 tokens=100%s", seed, sampled_at_random(kind));
        AUTO(made)
        struct made other = make(kind->name, "seed=%d layers=2 tokens=100%s first-iteration=77",
                                 seed, sampled_at_random(kind));
        for (int i = 0; i < 200; i += 7) /* the other has seen nothing but what is asked of it */
            load_at(&one, i, 0, i % 2);
        load_at(&one, 120, 0, 1);
        load_at(&other, 120, 0, 1);
        assert_same_load(&one, &other);
    }
}

static const struct {
    const char *name, *words;
    unsigned long sum;
} sums[] = {
    {"zipf", "seed=7 tokens=512 exponent=0.9 sampling=random", 0xa2644c41},
    {"zipf", "seed=7 tokens=512 period=2", 0x64fec4cd},
    {"power", "seed=7 tokens=512 exponent=1.2", 0x21d78b19},
    {"lognormal", "seed=7 tokens=512 max-violation=4", 0x8927cb55},
    {"lognormal", "seed=3 max-violation=0.2", 0xc31100e7},
    {"balanced", "experts=256 top-k=8 ranks=16 tokens=8", 0x6b3b7938},
    {"balanced", "seed=7 experts=100 top-k=3 ranks=9 tokens=77", 0xd770980d},
    {"balanced", "seed=7 tokens=512 sampling=random", 0x3fbb908b},
    {"w0", "experts=256 top-k=8 ranks=16 tokens=1", 0xf081d280},
    {"w1", "seed=7 tokens=512", 0x83a1787a},
    {"w2", "seed=7 tokens=512", 0xb6fa2593},
    {"w3", "seed=7 tokens=512", 0x04bd7066},
    {"w4", "seed=7 tokens=512", 0x8ba0baed},
    {"w5", "seed=7 tokens=512", 0xe1a74799},
    {"w5", "seed=7 tokens=512 what=ranks", 0x7fd31f96},
    {"w6", "seed=7 tokens=512 period=5", 0x03a0be8d},
    {"w7", "seed=7 tokens=512", 0x0144ba0b},
};

TEST_EACH(test_the_bits_are_the_same_on_every_machine, sums, row) {
    AUTO(made) struct made made = make(row->name, "%s", row->words);
    uLong sum = crc32(0, NULL, 0);
    for (int layer = 0; layer < 12; layer++) {
        load_at(&made, 30 + layer, 0, layer);
        sum = add_counts(sum, &made.load);
    }
    assert_int_equal(sum, row->sum);
}

static int descending(const void *a, const void *b) {
    int64_t one = *(const int64_t *)a, other = *(const int64_t *)b;
    return (one < other) - (one > other);
}

static const struct { double exponent; } exponents[] = {{0.4}, {0.8}, {1.2}};

TEST_ROWS(test_zipf_falls_with_its_exponent, exponents, row) {
    AUTO(made)
    struct made made = make("zipf", "layers=2 tokens=65536 exponent=%g", row->exponent);
    double x = 0, y = 0, xx = 0, xy = 0;
    load_at(&made, 3, 0, 1);
    qsort(made.total, 64, sizeof *made.total, descending);
    for (int e = 0; e < 64; e++) {
        double a = log(e + 1), b = log((double)made.total[e]);
        x += a / 64, y += b / 64, xx += a * a / 64, xy += a * b / 64;
    }
    assert_close(-(xy - x * y) / (xx - x * x), row->exponent, 1e-3);
}

/* The counts of experts above the mean. */
static int hot_of(const struct made *made, double above[], int limit) {
    int64_t sum = 0;
    int hot = 0;
    for (int e = 0; e < made->options.experts; e++)
        sum += made->total[e];
    for (int e = 0; e < made->options.experts && hot < limit; e++)
        if (made->total[e] * made->options.experts > sum + made->options.experts)
            above[hot++] = (double)made->total[e] / (double)sum;
    return hot;
}

static const struct {
    const char *name;
    double hottest_rank;
} places[] = {
    {"w1", 0},
    {"w2", 0.5 + 4 * 0.5 / 60},   /* the heat, and four of the sixty others */
    {"w3", 0.125 + 7 * 0.5 / 60}, /* one hot expert, seven others */
};

TEST_EACH(test_w1_to_w3_have_the_same_heat_in_other_places, places, row) {
    AUTO(made) struct made made = make(row->name, "experts=64 ranks=8 layers=2");
    double above[8] = {0}, most = 0;
    load_at(&made, 9, 0, 1);
    assert_int_equal(hot_of(&made, above, 8), 4);
    for (int i = 0; i < 4; i++)
        assert_close(above[i], 0.125, 1e-3);
    for (int rank = 0; rank < 8; rank++)
        most = fmax(most, share_of(&made, rank * 8, 8));
    if (row->hottest_rank > 0)
        assert_close(most, row->hottest_rank, 1e-3);
}

TEST(test_w4_has_one_large_source) {
    AUTO(made) struct made made = make("w4", "ranks=8 tokens=700 layers=2");
    int large = 0;
    load_at(&made, 3, 0, 1);
    for (int rank = 0; rank < 8; rank++) {
        large += tokens_of(&made, rank) == 1400;
        assert_true(tokens_of(&made, rank) == 1400 || tokens_of(&made, rank) == 600);
    }
    assert_int_equal(large, 1);
    assert_true(most_over_mean(&made) < 1.01);
}

TEST(test_w5_leaves_experts_or_ranks_empty) {
    AUTO(made) struct made experts = make("w5", "ranks=8");
    AUTO(made) struct made ranks = make("w5", "ranks=8 what=ranks");
    int empty = 0, idle = 0;
    load_at(&experts, 3, 0, 1);
    for (int e = 0; e < 64; e++)
        empty += experts.total[e] == 0;
    assert_int_equal(empty, 16);
    load_at(&ranks, 3, 0, 1);
    for (int rank = 0; rank < 8; rank++)
        idle += share_of(&ranks, rank * 8, 8) == 0;
    assert_int_equal(idle, 2);
}

TEST(test_w6_moves) {
    AUTO(made) struct made made = make("w6", "period=5 layers=1");
    for (int i = 0; i < 40; i++) {
        int64_t kept[64];
        load_at(&made, i, 0, 0);
        memcpy(kept, made.total, sizeof kept);
        load_at(&made, i + 1, 0, 0);
        int moved = 0;
        for (int e = 0; e < 64; e++)
            moved += llabs(made.total[e] - kept[e]) > 1;
        assert_int_equal(moved, (i + 1) % 5 ? 0 : 8); /* four cool down, four heat up */
    }
}

TEST(test_w7_bursts) {
    AUTO(made) struct made made = make("w7", "layers=1");
    for (int i = 0; i < 150; i++) {
        load_at(&made, i, 0, 0);
        bool burst = i % 50 >= 23 && i % 50 < 26;
        assert_close(most_over_mean(&made), burst ? 8 : 1, 1e-2);
    }
}

static const struct {
    const char *name, *words, *says;
    int code; /* 0: MP_EINVAL */
} wishes[] = {
    {"zipf", "exponent=3", "none can have more than 0.5", 0},
    {"lognormal", "max-violation=40", "at most 31", 0},
    {"balanced", "top-k=8 experts=4", "8 distinct experts where there are 4", 0},
    {"w1", "hot-experts=1 heat=0.6", "heat can be 0.5, or hot-experts 2", 0},
    {"w1", "hot-experts=64", "64 hot experts are wanted of 64", 0},
    {"w1", "heat=0.01", "it must be at least 0.0625", 0},
    {"w2", "hot-experts=5", "on one rank, which has 4 of the 64", 0},
    {"w2", "experts=60", "60 experts do not divide by 16 ranks", 0},
    {"w3", "ranks=1", "needs at least 2", 0},
    {"w4", "largest=17", "at most 16 times", 0},
    {"w5", "empty=1", "64 of 64 experts empty 0 experts are left", 0},
    {"w7", "length=50", "bursts of 50 iterations do not end", 0},
    {"balanced", "ranks=65536 tokens=65536", "268435456", MP_ELIMIT},
};

TEST_EACH(test_wishes_that_cannot_be_met_are_refused_with_numbers, wishes, wish) {
    struct mp_generate_options options;
    struct mp_generation *generation = NULL;
    const struct mp_generator *kind = mp_generator_find(wish->name, NULL);
    set_words(kind, &options, wish->words);
    assert_fails(mp_generation_create(kind, &options, &generation, &error),
                 wish->code ? wish->code : MP_EINVAL, wish->says);
    assert_null(generation);
}

TEST(test_unknown_kinds_are_refused) {
    struct mp_error error = {0};
    assert_null(mp_generator_find("ziph", &error));
    assert_contains(error.text, "did you mean \"zipf\"?");
}

TEST(test_option_tables_are_sound) {
    for (const struct mp_generator *kind = mp_generators; kind->name; kind++) {
        struct mp_error error = {0};
        if (mp_options_check(mp_generate_options, sizeof(struct mp_generate_options), "generators",
                             &error) ||
            mp_options_check(kind->options, sizeof(struct mp_generate_options), kind->name, &error))
            fail_msg("%s", error.text);
    }
}

TEST(test_a_stream_has_every_block_once) {
    for (const struct mp_generator *kind = mp_generators; kind->name; kind++) {
        struct mp_generate_options options;
        AUTO(stream) struct mp_trace_stream *stream = NULL;
        const struct mp_trace_block *block;
        set_words(kind, &options,
                  "iterations=3 first-iteration=22 layers=2 micro-batches=2 tokens=64");
        assert_works(mp_generate(kind, &options, &stream, &error));
        const char *source = mp_trace_stream_info(stream)->source;
        assert_contains(source, kind->name, "first-iteration 22");
        int blocks = 0;
        for (; (block = next_good(stream)); blocks++) {
            assert_numbers(block->iteration, 22 + blocks / 4, block->micro_batch, blocks / 2 % 2);
            assert_int_equal(block->layer, blocks % 2);
        }
        assert_int_equal(blocks, 12);
    }
}
