/* Reshaping: what every shape keeps, on random traces; golden splits; what can't be made. */
#include "harness/workload/reshape.h"
#include "reference/base/digest.h"
#include "tests/harness/workload/streams.h"

/* A wish in words, "NAME=VALUE ...". */
static struct mp_reshape wish(const char *words) {
    struct mp_reshape wanted = {0};
    for (char *end; *words; words = end + strspn(end, " ")) {
        const size_t length = strcspn(words, "=");
        const double value = strtod(words + length + 1, &end);
        int *whole = !strncmp(words, "ranks", length)     ? &wanted.ranks
                     : !strncmp(words, "experts", length) ? &wanted.experts
                     : !strncmp(words, "layers", length)  ? &wanted.layers
                     : !strncmp(words, "top_k", length)   ? &wanted.top_k
                                                          : &wanted.micro_batches;
        if (!strncmp(words, "tilt", length))
            wanted.tilt = value;
        else if (!strncmp(words, "tokens", length))
            wanted.tokens = (int64_t)value;
        else
            *whole = (int)value;
    }
    return wanted;
}

/* ---- a source: random blocks, the same ones for the same seed ---- */

struct random_source {
    struct mp_trace_shape shape;
    uint64_t state;
    int tokens; /* of a source; 0: any counts */
    int iterations, block;
};

/* Each of a source's tokens takes top_k experts that follow each other. */
static void fill_tokens(struct random_source *source, struct mp_load *load) {
    memset(load->count, 0, (size_t)load->ranks * (size_t)load->experts * sizeof *load->count);
    for (int rank = 0; rank < load->ranks; rank++)
        for (int token = 0; token < source->tokens; token++) {
            int first = test_random_int(&source->state, 0, load->experts - 1);
            for (int k = 0; k < source->shape.top_k; k++)
                load->count[(long)rank * load->experts + (first + k) % load->experts]++;
        }
}

static int random_next(void *self, struct mp_trace_block *block, bool *end,
                       UNUSED struct mp_error *error) {
    struct random_source *source = self;
    const struct mp_trace_shape *shape = &source->shape;
    int blocks = shape->layers * shape->micro_batches;
    *end = source->block == source->iterations * blocks;
    if (*end)
        return MP_OK;
    block->iteration = 3 * (source->block / blocks);
    block->micro_batch = source->block / shape->layers % shape->micro_batches;
    block->layer = source->block++ % shape->layers;
    if (source->tokens)
        fill_tokens(source, &block->load);
    else
        for (long i = 0; i < (long)shape->ranks * shape->experts; i++)
            block->load.count[i] = (uint32_t)test_random_int(&source->state, 0, 50);
    return MP_OK;
}

static struct mp_trace_stream *open_random(struct mp_trace_shape shape, int iterations, int tokens,
                                           uint64_t seed) {
    static const struct mp_trace_stream_operations operations = {random_next, free};
    struct random_source *source = calloc(1, sizeof *source);
    *source = (struct random_source){shape, seed, tokens, iterations, 0};
    return stream_of(shape, !tokens, &operations, source);
}

static struct mp_trace_stream *reshape(struct mp_trace_stream *source, struct mp_reshape wanted) {
    struct mp_trace_stream *stream;
    assert_works(mp_trace_reshape(source, &wanted, &stream, &error));
    return stream;
}

static void assert_same_block(const struct mp_trace_block *one,
                              const struct mp_trace_block *other) {
    assert_numbers(one->iteration, other->iteration, one->micro_batch, other->micro_batch);
    assert_numbers(one->layer, other->layer, one->load.ranks, other->load.ranks);
    assert_int_equal(one->load.experts, other->load.experts);
    assert_counts(&one->load, other->load.count);
}

static void assert_same_stream(struct mp_trace_stream *one, struct mp_trace_stream *other) {
    const struct mp_trace_block *block;
    while ((block = next_good(one)))
        assert_same_block(block, next_good(other));
    assert_null(next_good(other));
    mp_trace_stream_destroy(one);
    mp_trace_stream_destroy(other);
}

static uint64_t routes_of(const struct mp_load *load, int source) {
    uint64_t sum = 0;
    for (int expert = 0; expert < load->experts; expert++)
        sum += mp_load_at(load, source, expert);
    return sum;
}

/* A number that divides `have` or that it divides. */
static int other_size(uint64_t *state, int have, int most) {
    int wanted;
    do
        wanted = test_random_int(state, 1, most);
    while (have % wanted && wanted % have);
    return wanted;
}

static struct mp_trace_shape random_shape(uint64_t *state) {
    struct mp_trace_shape shape = {
        .ranks = test_random_int(state, 1, 8),
        .experts = test_random_int(state, 2, 12),
        .layers = test_random_int(state, 1, 5),
        .micro_batches = test_random_int(state, 1, 3),
    };
    shape.top_k = test_random_int(state, 1, 2);
    return shape;
}

/* ---- properties ---- */

TEST_RANDOM_TURNS(totals_are_kept, 300, round) {
    struct mp_trace_shape shape = random_shape(random);
    uint64_t seed = test_random(random);
    struct mp_reshape wanted = {.ranks = other_size(random, shape.ranks, 24),
                                .experts = other_size(random, shape.experts, 36),
                                .tilt = 0.5 + test_random_double(random) / 2};
    if (wanted.experts < shape.top_k)
        return;
    AUTO(stream) struct mp_trace_stream *source = open_random(shape, 2, 0, seed);
    AUTO(stream)
    struct mp_trace_stream *made = reshape(open_random(shape, 2, 0, seed), wanted);
    const struct mp_trace_block *block;
    while ((block = next_good(source))) {
        const struct mp_trace_block *other = next_good(made);
        assert_int_equal(mp_load_total(&block->load), mp_load_total(&other->load));
        assert_int_equal(block->iteration, other->iteration);
        assert_numbers(other->load.ranks, wanted.ranks, other->load.experts, wanted.experts);
    }
    assert_null(next_good(made));
}

/* What the loads by hand have a row for each, in all shapes and at once. */
TEST(reshaped_loads_are_the_known_ones) {
    uint64_t state = 1, digest = MP_DIGEST;
    for (int round = 0; round < 400; round++) {
        struct mp_trace_shape shape = random_shape(&state);
        struct mp_reshape wanted = {.ranks = other_size(&state, shape.ranks, 24),
                                    .experts = other_size(&state, shape.experts, 36),
                                    .layers = test_random_int(&state, 0, 12),
                                    .micro_batches = test_random_int(&state, 0, 1),
                                    .tokens = round % 2 * test_random_int(&state, 1, 300),
                                    .tilt = 0.5 + 0.125 * test_random_int(&state, 0, 4)};
        if (wanted.experts < shape.top_k)
            continue;
        AUTO(stream)
        struct mp_trace_stream *made =
            reshape(open_random(shape, 2, 40, test_random(&state)), wanted);
        for (const struct mp_trace_block *block; (block = next_good(made));) {
            digest = mp_digest_byte(digest, (unsigned char)block->iteration);
            digest =
                mp_digest_byte(digest, (unsigned char)(block->layer + 16 * block->micro_batch));
            for (int cell = 0; cell < block->load.ranks * block->load.experts; cell++)
                for (int bits = 0; bits < 32; bits += 8)
                    digest =
                        mp_digest_byte(digest, (unsigned char)(block->load.count[cell] >> bits));
        }
    }
    if (digest != UINT64_C(0xc757e974ff97ca42))
        fail_msg("0x%016llx", (unsigned long long)digest);
}

/* All steps at once are the steps one after the other. */
TEST_RANDOM_TURNS(steps_may_be_taken_one_by_one, 200, round) {
    struct mp_trace_shape shape = random_shape(random);
    uint64_t seed = test_random(random);
    struct mp_reshape all = {.ranks = other_size(random, shape.ranks, 24),
                             .experts = other_size(random, shape.experts, 36),
                             .layers = test_random_int(random, 1, 7),
                             .micro_batches = 1,
                             .tokens = test_random_int(random, 1, 300),
                             .tilt = 0.75};
    if (all.experts < shape.top_k)
        return;
    struct mp_trace_stream *made = open_random(shape, 2, 40, seed);
    made = reshape(made, (struct mp_reshape){.ranks = all.ranks});
    made = reshape(made, (struct mp_reshape){.experts = all.experts, .tilt = 0.75});
    made = reshape(made, (struct mp_reshape){.layers = all.layers});
    made = reshape(made, (struct mp_reshape){.micro_batches = 1});
    made = reshape(made, (struct mp_reshape){.tokens = all.tokens});
    assert_same_stream(made, reshape(open_random(shape, 2, 40, seed), all));
}

TEST_RANDOM(tokens_are_exact_and_take_distinct_experts) {
    int full = 0;
    for (int round = 0; round < 300; round++) {
        struct mp_trace_shape shape = random_shape(random);
        uint64_t seed = test_random(random);
        struct mp_reshape wanted = {.experts = other_size(random, shape.experts, 36),
                                    .tokens = test_random_int(random, 1, 5000)};
        if (wanted.experts < shape.top_k)
            continue;
        AUTO(stream)
        struct mp_trace_stream *made = reshape(open_random(shape, 1, 30, seed), wanted);
        const struct mp_trace_block *block;
        while ((block = next_good(made)))
            for (int source = 0; source < shape.ranks; source++) {
                assert_int_equal(routes_of(&block->load, source), wanted.tokens * shape.top_k);
                for (int expert = 0; expert < wanted.experts; expert++) {
                    assert_in_range(mp_load_at(&block->load, source, expert), 0, wanted.tokens);
                    full += mp_load_at(&block->load, source, expert) == wanted.tokens;
                }
            }
    }
    assert_true(full > 0);
}

/* ---- golden loads, worked out by hand ---- */

struct golden {
    const char *name;
    int ranks, experts, top_k; /* of one layer and micro-batch */
    const char *before, *wanted, *after, *notes;
};
static const struct golden goldens[] = {
    {"the rest goes round the sources", 1, 3, 0, "7 5 3", "ranks=4", "2 1 1 2 1 1 2 1 1 1 2 0",
     "split 1 ranks into 4"},
    {"neighbouring ranks are added up", 4, 2, 1, "1 2 3 4 5 6 7 8", "ranks=2", "4 6 12 14",
     "folded 4 ranks into 2"},
    {"neighbouring experts are added up", 2, 4, 2, "1 2 3 4 5 6 7 8", "experts=2", "3 7 11 15",
     "folded 4 experts into 2"},
    /* 1 of 3 halves, then the sum of halves: 1.5 -> 2, 3 -> 3 (one more) */
    {"rounding is carried from source to source", 2, 1, 0, "3 3", "experts=2", "2 1 1 2",
     "split 1 experts into 2"},
    /* 100 -> 75, 25 -> 56.25, 18.75; 18.75, 6.25 */
    {"a tilt at every halving", 1, 1, 0, "100", "experts=4 tilt=0.75", "56 19 19 6",
     "split 1 experts into 4 with a tilt of 0.75"},
    {"three equal parts", 1, 1, 0, "90", "experts=3", "30 30 30", "split 1 experts into 3"},
    /* 10 * 5/10, 3/10, 1/10, 1/10 of 7: 3.5 2.1 0.7 0.7: two left, for 0.7 and 0.7 */
    {"largest remainders first, ties to the lower expert", 1, 4, 1, "5 3 1 1", "tokens=7",
     "3 2 1 1", "scaled every source to 7 tokens of top 1"},
    {"a tie", 1, 3, 1, "1 1 1", "tokens=4", "2 1 1", "scaled every source to 4 tokens of top 1"},
    /* 20 routes of 90:6:4 would be 18: one token, one route: 10, and 10 left as 6 : 4 */
    {"what is over a token's one route goes to the others", 1, 3, 2, "90 6 4", "tokens=10",
     "10 6 4", "scaled every source to 10 tokens of top 2"},
    {"nobody else has load: all alike", 1, 4, 0, "0 50 0 0", "tokens=10 top_k=2", "4 10 3 3",
     "scaled every source to 10 tokens of top 2; top 2 as it was given"},
};

struct held_source {
    const struct golden *golden;
    bool ended;
};

/* Counts with spaces between them; how many they are. */
static int read_counts(const char *text, uint32_t count[]) {
    int counts = 0;
    for (char *end; *text; text = end + strspn(end, " "))
        count[counts++] = (uint32_t)strtoul(text, &end, 10);
    return counts;
}

static int held_next(void *self, struct mp_trace_block *block, bool *end,
                     UNUSED struct mp_error *error) {
    struct held_source *held = self;
    *end = held->ended;
    held->ended = true;
    if (!*end)
        assert_int_equal(read_counts(held->golden->before, block->load.count),
                         block->load.ranks * block->load.experts);
    return MP_OK;
}

static struct mp_trace_stream *open_golden(const struct golden *golden) {
    static const struct mp_trace_stream_operations operations = {held_next, free};
    struct held_source *held = calloc(1, sizeof *held);
    held->golden = golden;
    const struct mp_trace_shape shape = {golden->ranks, golden->experts, 1, 1, golden->top_k};
    return stream_of(shape, true, &operations, held);
}

TEST_EACH(golden_load_matches, goldens, golden) {
    AUTO(stream)
    struct mp_trace_stream *made = reshape(open_golden(golden), wish(golden->wanted));
    uint32_t after[16];
    const struct mp_trace_info *info = mp_trace_stream_info(made);
    assert_string_equal(info->notes, golden->notes);
    assert_string_equal(info->source, "a test");
    const int cells = read_counts(golden->after, after);
    assert_int_equal(info->shape.ranks * info->shape.experts, cells);
    assert_counts(&next_good(made)->load, after);
    assert_null(next_good(made));
}

TEST(notes_are_continued) {
    struct mp_trace_shape shape = {4, 8, 3, 2, 2};
    AUTO(stream)
    struct mp_trace_stream *made =
        reshape(open_random(shape, 1, 10, 1), (struct mp_reshape){.ranks = 8});
    made = reshape(made,
                   (struct mp_reshape){
                       .ranks = 2, .experts = 4, .layers = 6, .micro_batches = 1, .tokens = 128});
    const struct mp_trace_info *info = mp_trace_stream_info(made);
    assert_string_equal(info->notes,
                        "split 4 ranks into 8; folded 8 ranks into 2; folded 8 experts into 4; "
                        "repeated 3 layers into 6; added up 2 micro-batches into 1; scaled every "
                        "source to 128 tokens of top 2");
    assert_int_equal(info->shape.top_k, 2);
}

/* ---- what can't be made ---- */

/* of 6 ranks, 8 experts, 2 micro-batches, top 2 */
static const struct {
    const char *name, *wanted, *words;
} refusals[] = {
    {"ranks between", "ranks=4",
     "the trace has 6 ranks and 4 are wanted: neither number divides the other; the nearest that "
     "can be made are 3 and 6"},
    {"ranks above", "ranks=16", "the nearest that can be made are 12 and 18"},
    {"experts", "experts=12",
     "8 experts and 12 are wanted: neither number divides the other; the nearest that can be made "
     "are 8 and 16"},
    {"micro-batches", "micro_batches=4", "2 micro-batches and 4 are wanted; 1 (all added up) or 2"},
    {"top k", "top_k=1", "take 2 experts each, not 1"},
    {"fewer experts than a token takes", "experts=1", "2 of 1 experts"},
    {"tokens", "tokens=2147483647", "2147483647 tokens of top 2 are more than"},
    {"more counts than a block can have", "ranks=12582912 experts=8192",
     "more than the 67108864 counts"},
    {"more counts on the way", "ranks=12582912 experts=4", "12582912 ranks x 8 experts are more"},
};

TEST_EACH(wish_is_refused, refusals, refusal) {
    struct mp_trace_shape shape = {6, 8, 3, 2, 2};
    struct mp_trace_stream *stream;
    const struct mp_reshape wanted = wish(refusal->wanted);
    assert_fails(mp_trace_reshape(open_random(shape, 1, 10, 1), &wanted, &stream, &error),
                 MP_EINVAL, refusal->words);
    assert_null(stream);
}

static const struct {
    struct golden golden; /* its name is the failure's sentence */
    int code;
} failures[] = {
    {{"reshaping iteration 0, micro-batch 0, layer 0: source 0, expert 0: 4294967296 routes after "
      "adding up",
      2, 1, 0, "4294967295 1", "ranks=1", "", ""},
     MP_ELIMIT},
    {{"4294967296 routes after adding up; at most 4294967295 fit", 1, 2, 0, "4294967295 1",
      "experts=1", "", ""},
     MP_ELIMIT},
    {{"source 1 has no routes that could be scaled to 8 tokens", 2, 2, 1, "1 1 0 0", "tokens=8", "",
      ""},
     MP_EFORMAT},
    {{"source 0 has 10 routes, so 5 tokens of top 2, but 9 routes to", 1, 4, 0, "5 4 1 0",
      "experts=2 top_k=2", "", ""},
     MP_EFORMAT},
};

TEST_ROWS(loads_that_do_not_fit_are_named, failures, row) {
    AUTO(stream)
    struct mp_trace_stream *made = reshape(open_golden(&row->golden), wish(row->golden.wanted));
    const struct mp_trace_block *block;
    assert_fails(mp_trace_next(made, &block, &error), row->code, row->golden.name);
    assert_int_equal(mp_trace_next(made, &block, NULL), row->code);
}

TEST(tokens_need_to_know_how_many_experts_they_take) {
    struct mp_trace_stream *stream;
    assert_fails(mp_trace_reshape(open_golden(&goldens[0]), &(struct mp_reshape){.tokens = 8},
                                  &stream, &error),
                 MP_EINVAL, "does not say how many experts a token takes");
}

/* A source that fails is heard, in the middle of an iteration that is added up too. */
static int failing_next(void *self, struct mp_trace_block *block, UNUSED bool *end,
                        struct mp_error *error) {
    int *left = self;
    block->layer = 0;
    block->micro_batch = 2 - *left;
    block->iteration = 0;
    return (*left)-- > 0 ? MP_OK : mp_fail(error, MP_EIO, "the disk is gone");
}

TEST_TURNS(errors_of_the_source_pass, 2, merged) {
    static const struct mp_trace_stream_operations operations = {failing_next, free};
    int *left = malloc(sizeof *left);
    *left = 2;
    AUTO(stream)
    struct mp_trace_stream *stream =
        reshape(stream_of((struct mp_trace_shape){2, 2, 1, 3, 1}, false, &operations, left),
                (struct mp_reshape){.ranks = 4, .micro_batches = merged});
    const struct mp_trace_block *block;
    for (int i = 0; i < (merged ? 0 : 2); i++)
        next_good(stream);
    assert_sentence(mp_trace_next(stream, &block, &error), MP_EIO, "the disk is gone");
}
