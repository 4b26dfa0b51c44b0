/* Traces with the experts of tokens: exact, cut and damaged anywhere, and what does not agree. */
#include "harness/workload/reshape.h"
#include "tests/harness/folder.h"
#include "tests/harness/workload/draw_tokens.h"
#include "tests/harness/workload/streams.h"

enum { RANKS = 4, LAYERS = 2, TOP_K = 2, TOKENS = 5 };

static void write_tokens(const char *path, int experts, int iterations, int tokens, bool all_taken,
                         uint64_t seed) {
    char source[] = "a test", notes[] = "";
    struct mp_trace_info info = {.shape = {RANKS, experts, LAYERS, 1, TOP_K},
                                 .source = source,
                                 .notes = notes,
                                 .ragged = !all_taken,
                                 .routes = true};
    AUTO(block) struct mp_trace_block block = block_of(RANKS, experts, 3);
    struct mp_trace_writer *writer;
    assert_works(mp_trace_writer_create(path, &info, &writer, &error));
    for (; block.iteration < 3 + iterations; block.iteration++)
        for (block.layer = 0; block.layer < LAYERS; block.layer++) {
            draw_tokens(&seed, tokens, TOP_K, all_taken, &block.load);
            assert_works(mp_trace_write(writer, &block, &error));
        }
    assert_works(mp_trace_writer_finish(writer, true, &error));
}

/* Blocks of the file that are those drawn from seed; `error` is what ended it. */
static int read_back(const char *path, int experts, int tokens, bool all_taken, uint64_t seed,
                     struct mp_error *error) {
    struct mp_trace_stream *stream;
    const struct mp_trace_block *block;
    struct mp_load drawn;
    int blocks = 0;
    *error = (struct mp_error){0};
    if (mp_trace_open(path, &stream, error))
        return 0;
    assert_true(mp_trace_stream_info(stream)->routes);
    assert_int_equal(mp_load_create(RANKS, experts, &drawn, NULL), MP_OK);
    for (; !mp_trace_next(stream, &block, error) && block; blocks++) {
        draw_tokens(&seed, tokens, TOP_K, all_taken, &drawn);
        const struct mp_routes *got = block->load.routes, *wanted = drawn.routes;
        assert_int_equal(got->top_k, TOP_K);
        assert_memory_equal(got->begin, wanted->begin, (RANKS + 1) * sizeof *got->begin);
        assert_memory_equal(got->expert, wanted->expert,
                            (size_t)(RANKS * tokens * TOP_K) * sizeof *got->expert);
        assert_counts(&block->load, drawn.count);
    }
    mp_load_destroy(&drawn);
    mp_trace_stream_destroy(stream);
    return blocks;
}

static const struct {
    int experts, iterations, tokens;
    bool all_taken;
} runs[] = {{7, 3, 5, true}, {7, 2, 0, true}, {32771, 2, 9, false}, {5, 6, 30000, true}};

TEST_ROWS(what_is_written_is_read_back, runs, run) {
    uint64_t seed = test_seed();
    struct mp_error error;
    unlink("tokens.mptrace");
    write_tokens("tokens.mptrace", run->experts, run->iterations, run->tokens, run->all_taken,
                 seed);
    assert_int_equal(
        read_back("tokens.mptrace", run->experts, run->tokens, run->all_taken, seed, &error),
        run->iterations * LAYERS);
    assert_int_equal(error.code, MP_OK);
}

static unsigned char bytes[1 << 16]; /* of a whole trace */

/* Writes one, and reads it into bytes; its size. */
static size_t whole_trace(uint64_t seed) {
    unlink("whole.mptrace");
    write_tokens("whole.mptrace", 7, 1, TOKENS, true, seed);
    FILE *file = fopen("whole.mptrace", "rb");
    size_t size = fread(bytes, 1, sizeof bytes, file);
    fclose(file);
    assert_true(size < sizeof bytes);
    return size;
}

TEST_RANDOM(damage_anywhere_is_found) {
    const uint64_t seed = 5;
    const size_t size = whole_trace(seed);
    struct mp_error error;
    for (size_t place = 0; place < 2 * size; place++) {
        bool cut = place >= size;
        size_t at = cut ? place - size : place;
        unsigned char was = bytes[at];
        bytes[at] ^= cut ? 0 : (unsigned char)test_random_int(random, 1, 255);
        write_bytes("damaged.mptrace", bytes, cut ? at : size);
        bytes[at] = was;
        /* Both blocks are in one frame, and are there once its tokens are. */
        int blocks = read_back("damaged.mptrace", 7, TOKENS, true, seed, &error);
        assert_true(blocks == 0 || (blocks == LAYERS && at >= size - 20));
        assert_int_equal(error.code, MP_EFORMAT);
    }
}

/* A frame that says that no bytes are in it, in both of its sizes and its checksum. */
TEST(a_frame_without_bytes_is_damaged) {
    const uint64_t seed = 5;
    const size_t size = whole_trace(seed);
    struct mp_error error;
    unsigned char *frame = memmem(bytes, size, "ROUT", 4);
    assert_non_null(frame);
    memset(frame + 8, 0, 12);
    write_bytes("damaged.mptrace", bytes, size);
    assert_int_equal(read_back("damaged.mptrace", 7, TOKENS, true, seed, &error), 0);
    assert_int_equal(error.code, MP_EFORMAT);
    assert_contains(error.text, "its sizes can't be");
}

/* ---- what a source may say that is wrong ---- */

enum fault { NONE, COUNT, MISSING, OTHER_TOKENS, OTHER_TOP_K };

struct source {
    enum fault fault;
    int blocks;
};

static int next(void *self, struct mp_trace_block *block, bool *end,
                UNUSED struct mp_error *error) {
    struct source *source = self;
    uint64_t seed = 1;
    *end = source->blocks == 2 * LAYERS;
    block->iteration = source->blocks / LAYERS;
    block->layer = source->blocks % LAYERS;
    bool last = ++source->blocks == 2 * LAYERS;
    draw_tokens(&seed, last && source->fault == OTHER_TOKENS ? TOKENS + 1 : TOKENS,
                last && source->fault == OTHER_TOP_K ? 1 : TOP_K, true, &block->load);
    if (last && source->fault == COUNT)
        block->load.count[8]++;
    if (last && source->fault == MISSING)
        mp_load_drop_routes(&block->load);
    return MP_OK;
}

static struct mp_trace_stream *open_source(struct source *source) {
    static const struct mp_trace_stream_operations operations = {next, keep_source};
    struct mp_trace_info info = {.shape = {RANKS, 7, LAYERS, 1, TOP_K},
                                 .source = strdup("a test"),
                                 .notes = strdup(""),
                                 .ragged = true,
                                 .routes = true};
    struct mp_trace_stream *stream;
    assert_works(mp_trace_stream_create(MP_OK, &operations, source, &info, &stream, &error));
    return stream;
}

static const struct {
    const char *name;
    enum fault fault;
} faults[] = {
    {"no fault", NONE},
    {"block 3 (iteration 1, micro-batch 0, layer 1): rank 1 has", COUNT},
    {"block 3 (iteration 1, micro-batch 0, layer 1): has no experts of tokens", MISSING},
    {"ranks have other numbers of tokens than in layer 0", OTHER_TOKENS},
    {"tokens have another number of experts", OTHER_TOP_K},
};

TEST_EACH(tokens_that_do_not_agree_are_named, faults, row) {
    struct source source = {row->fault, 0};
    AUTO(stream) struct mp_trace_stream *stream = open_source(&source);
    const struct mp_trace_block *block;
    for (int blocks = 0; blocks < 3; blocks++)
        next_good(stream);
    if (row->fault == NONE)
        next_good(stream);
    else
        assert_fails(mp_trace_next(stream, &block, &error), MP_EFORMAT, row->name);
}

/* ---- reshaping ---- */

static const struct {
    struct mp_reshape wanted;
    bool keeps;
} folds[] = {{{.ranks = 2}, true},     {{.layers = 4}, false}, {{.layers = 1}, true},
             {{.experts = 14}, false}, {{.ranks = 8}, false},  {{.tokens = 3}, false}};

TEST_ROWS(folds_of_ranks_keep_tokens_and_others_say_that_they_don_t, folds, fold) {
    struct source source = {NONE, 0};
    AUTO(stream) struct mp_trace_stream *stream = NULL;
    const struct mp_trace_block *block;
    int ranks = fold->wanted.ranks ? fold->wanted.ranks : RANKS, blocks = 0;
    assert_works(mp_trace_reshape(open_source(&source), &fold->wanted, &stream, &error));
    const struct mp_trace_info *info = mp_trace_stream_info(stream);
    assert_int_equal(info->routes, fold->keeps);
    assert_int_equal(strstr(info->notes, "experts of tokens left out") != NULL, !fold->keeps);
    for (; (block = next_good(stream)); blocks++) {
        assert_int_equal(block->load.routes != NULL, fold->keeps);
        if (fold->keeps)
            assert_int_equal(block->load.routes->begin[1], TOKENS * RANKS / ranks);
    }
    assert_int_equal(blocks, 2 * info->shape.layers);
}

TEST_GROUP(enter_folder, leave_folder);
