/* Traces: what a stream refuses, and files of the native format: exact, cut anywhere, damaged
 * anywhere, written in part. */
#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <zlib.h>

#include "tests/harness/folder.h"
#include "tests/harness/workload/streams.h"

/* ---- a source with blocks that a test wrote down ---- */

enum { RANKS = 2, EXPERTS = 3 };

struct script {
    int64_t iteration;
    int micro_batch, layer;
    uint32_t count[RANKS * EXPERTS];
};
struct scripted {
    const struct script *line;
    int lines, at, calls_after_end;
    bool *destroyed;
};

static int scripted_next(void *self, struct mp_trace_block *block, bool *end,
                         UNUSED struct mp_error *error) {
    struct scripted *scripted = self;
    if (scripted->at == scripted->lines) {
        *end = true;
        assert_int_equal(scripted->calls_after_end++, 0);
        return MP_OK;
    }
    const struct script *line = &scripted->line[scripted->at++];
    block->iteration = line->iteration;
    block->micro_batch = line->micro_batch;
    block->layer = line->layer;
    memcpy(block->load.count, line->count, sizeof line->count);
    return MP_OK;
}

static void scripted_destroy(void *self) {
    *((struct scripted *)self)->destroyed = true;
}

static const struct mp_trace_stream_operations scripted_operations = {scripted_next,
                                                                      scripted_destroy};

/* 2 ranks, 3 experts, 2 layers, 2 micro-batches.  A block is "ITERATION.MICRO-BATCH.LAYER" and,
 * unless it is the first, a letter that says which of these counts it has. */
static const struct {
    char letter;
    uint32_t count[RANKS * EXPERTS];
} counts[] = {{' ', {1, 2, 3, 3, 2, 1}},
              {'l', {1, 2, 3, 3, 2, 0}},  /* rank 1 has fewer */
              {'m', {7, 0, 0, 0, 7, 0}},  /* both have more */
              {'n', {0, 0, 7, 6, 1, 0}},  /* likewise */
              {'o', {7, 0, 0, 0, 9, 0}}}; /* one has still more */

static const struct order_case {
    const char *name, *blocks;
    bool ragged;
    int good;          /* blocks that come before the error */
    const char *words; /* of the error; NULL: none */
} order_cases[] = {
    {"whole iterations with a gap", "3.0.0 3.0.1 3.1.0 3.1.1", false, 4, NULL},
    {"nothing", "", false, 0, NULL},
    {"negative iteration", "-1.0.0", false, 0, "block 0 is of iteration -1"},
    {"largest iteration", "9223372036854775807.0.0", false, 0, "which is too large"},
    {"missing first layer", "0.0.1", false, 0,
     "should be of iteration 0 or later, micro-batch 0, layer 0"},
    {"missing layer", "5.0.0 5.1.0", false, 1,
     "block 1 is of iteration 5, micro-batch 1, layer 0 and should be of iteration 5, micro-batch "
     "0, layer 1"},
    {"layer twice", "5.0.0 5.0.0", false, 1,
     "block 1 is of iteration 5, micro-batch 0, layer 0 and should"},
    {"missing micro-batch", "5.0.0 5.0.1 6.0.0", false, 2,
     "should be of iteration 5, micro-batch 1, layer 0"},
    {"layer that is not there", "5.0.0 5.0.1 5.0.2", false, 2, "layer 2 and should be"},
    {"iteration twice", "5.0.0 5.0.1 5.1.0 5.1.1 5.0.0", false, 4,
     "should be of iteration 6 or later, micro-batch 0, layer 0"},
    {"end inside an iteration", "5.0.0 5.0.1 5.1.0", false, 3,
     "ends after 3 blocks, inside iteration 5: micro-batch 1, layer 1 is missing"},
    {"ranks with different sums", "5.0.0l", false, 0,
     "block 0 (iteration 5, micro-batch 0, layer 0): rank 1 has 5 routes, rank 0 in layer 0 has 6"},
    {"layers with different sums", "5.0.0 5.0.1m", false, 1,
     "block 1 (iteration 5, micro-batch 0, layer 1): rank 0 has 7 routes, rank 0 in layer 0 has 6"},
    {"micro-batches with different sums", "5.0.0 5.0.1 5.1.0m 5.1.1n", false, 4, NULL},
    {"different sums where they may be", "5.0.0l 5.0.1 5.1.0l 5.1.1o", true, 4, NULL},
    {"order counts in ragged traces too", "5.0.0l 5.1.1l", true, 1, "block 1 is of iteration 5"},
};

static int read_script(const char *text, struct script line[]) {
    int lines = 0, length = 0;
    long long iteration;
    for (; sscanf(text, "%lld.%d.%d%n", &iteration, &line[lines].micro_batch, &line[lines].layer,
                  &length) == 3;
         lines++) {
        const char letter = text[length] ? text[length] : ' ';
        text += length + (letter != ' ');
        line[lines].iteration = iteration;
        for (size_t c = 0; c < sizeof counts / sizeof *counts; c++)
            if (counts[c].letter == letter)
                memcpy(line[lines].count, counts[c].count, sizeof counts[c].count);
    }
    return lines;
}

static struct mp_trace_stream *script_stream(struct scripted *scripted, struct mp_trace_shape shape,
                                             int expected) {
    struct mp_trace_info info = {.shape = shape, .source = strdup("a test"), .notes = strdup("")};
    struct mp_trace_stream *stream;
    struct mp_error error = {0};
    assert_int_equal(
        mp_trace_stream_create(MP_OK, &scripted_operations, scripted, &info, &stream, &error),
        expected);
    assert_null(info.source);
    return stream;
}

TEST_EACH(streams_keep_order_and_sums, order_cases, row) {
    bool destroyed = false;
    struct script line[8];
    struct scripted scripted = {line, read_script(row->blocks, line), 0, 0, &destroyed};
    const struct mp_trace_block *block;
    struct mp_trace_stream *stream =
        script_stream(&scripted, (struct mp_trace_shape){RANKS, EXPERTS, 2, 2, 2}, MP_OK);
    if (row->ragged)
        mp_trace_allow_ragged(stream);
    for (int n = 0; n < row->good; n++) {
        assert_works(mp_trace_next(stream, &block, &error));
        assert_non_null(block);
        assert_memory_equal(block->load.count, line[n].count, sizeof line[n].count);
    }
    for (int times = 0; times < 2; times++) { /* it stays so */
        if (row->words && times == 0)
            assert_fails(mp_trace_next(stream, &block, &error), MP_EFORMAT, row->words);
        else
            assert_int_equal(mp_trace_next(stream, &block, NULL), row->words ? MP_EFORMAT : MP_OK);
        assert_null(block);
    }
    mp_trace_stream_destroy(stream);
    assert_true(destroyed);
}

static const struct mp_trace_shape bad_shapes[] = {{0, 3, 1, 1, 0},
                                                   {1, 0, 1, 1, 0},
                                                   {1, 3, 0, 1, 0},
                                                   {1, 3, 1, 0, 0},
                                                   {1, 3, 1, 1, -1},
                                                   {1, 3, 1, 1, 4},
                                                   {1 << 16, 1 << 16, 1, 1, 1},
                                                   {INT32_MAX, INT32_MAX, 1, 1, 1}};

TEST_ROWS(impossible_shapes_are_refused, bad_shapes, shape) {
    bool destroyed = false;
    struct scripted scripted = {NULL, 0, 0, 0, &destroyed};
    struct mp_trace_info info = {.shape = *shape};
    struct mp_trace_writer *writer;
    assert_null(script_stream(&scripted, *shape, MP_EINVAL));
    assert_true(destroyed);
    assert_fails(mp_trace_writer_create("bad.mptrace", &info, &writer, &error), MP_EINVAL, "");
    assert_int_equal(count_entries(".", "bad.mptrace"), 0);
}

/* ---- files ---- */

/* Random loads whose rows have the same sum. */
static void draw_block(uint64_t *seed, struct mp_trace_block *block, uint32_t routes) {
    struct mp_load *load = &block->load;
    for (int rank = 0; rank < load->ranks; rank++) {
        uint32_t *row = load->count + (long)rank * load->experts, left = routes;
        for (int expert = 0; expert + 1 < load->experts; expert++) {
            row[expert] = (uint32_t)(test_random(seed) % (left + 1ull));
            left -= row[expert];
        }
        row[load->experts - 1] = left;
    }
}

static struct mp_trace_writer *start(const char *path, struct mp_trace_shape shape,
                                     const char *source, const char *notes) {
    char own_source[200], own_notes[200];
    struct mp_trace_writer *writer;
    snprintf(own_source, sizeof own_source, "%s", source);
    snprintf(own_notes, sizeof own_notes, "%s", notes);
    const struct mp_trace_info info = {.shape = shape,
                                       .source = own_source,
                                       .notes = own_notes,
                                       .of_run = true,
                                       .dense_layers = 3};
    assert_works(mp_trace_writer_create(path, &info, &writer, &error));
    return writer;
}

/* Writes `iterations` from seed; numbers start at `first` and go on in steps of 1 .. 9. */
static void write_trace(const char *path, struct mp_trace_shape shape, int iterations,
                        int64_t first, uint64_t seed) {
    struct mp_trace_writer *writer = start(path, shape, "a test, \"seeded\" \xc3\xa4", "none\n");
    AUTO(block) struct mp_trace_block block = block_of(shape.ranks, shape.experts, first);
    for (int i = 0; i < iterations; i++, block.iteration += test_random_int(&seed, 1, 9))
        for (block.micro_batch = 0; block.micro_batch < shape.micro_batches; block.micro_batch++) {
            uint32_t routes = (uint32_t)test_random(&seed);
            for (block.layer = 0; block.layer < shape.layers; block.layer++) {
                draw_block(&seed, &block, routes);
                assert_works(mp_trace_write(writer, &block, &error));
            }
        }
    assert_int_equal(access(path, F_OK), -1); /* not before it is whole */
    assert_works(mp_trace_writer_finish(writer, true, &error));
}

/* Reads a file against what write_trace drew; the number of blocks that are right, and the code of
 * what stopped it. */
static int64_t compare(const char *path, struct mp_trace_shape shape, int64_t first, uint64_t seed,
                       struct mp_error *error) {
    struct mp_trace_stream *stream;
    const struct mp_trace_block *block;
    int64_t blocks = 0;
    *error = (struct mp_error){0};
    if (mp_trace_open(path, &stream, error))
        return 0;
    const struct mp_trace_info *info = mp_trace_stream_info(stream);
    assert_memory_equal(&info->shape, &shape, sizeof shape);
    assert_string_equal(info->source, "a test, \"seeded\" \xc3\xa4");
    assert_string_equal(info->notes, "none\n");
    assert_false(info->ragged);
    assert_true(info->of_run);
    assert_int_equal(info->dense_layers, 3);
    AUTO(block) struct mp_trace_block expected = block_of(shape.ranks, shape.experts, first);
    int per_iteration = shape.micro_batches * shape.layers;
    uint32_t routes = 0;
    for (; !mp_trace_next(stream, &block, error) && block; blocks++) {
        int place = (int)(blocks % per_iteration);
        if (blocks > 0 && place == 0)
            expected.iteration += test_random_int(&seed, 1, 9);
        if (place % shape.layers == 0)
            routes = (uint32_t)test_random(&seed);
        draw_block(&seed, &expected, routes);
        assert_int_equal(block->iteration, expected.iteration);
        assert_int_equal(block->micro_batch, place / shape.layers);
        assert_int_equal(block->layer, place % shape.layers);
        assert_counts(&block->load, expected.load.count);
    }
    mp_trace_stream_destroy(stream);
    return blocks;
}

/* 16 ranks x 32 experts, as in published traces, and memory that does not grow with the file.
 * First: other tests' memory would hide this one's. */
TEST(memory_does_not_grow_with_the_file) {
    const struct mp_trace_shape shape = {16, 32, 24, 4, 2};
    struct rusage before, after;
    struct mp_error error;
    write_trace("short.mptrace", shape, 5, 0, 11);
    assert_int_equal(compare("short.mptrace", shape, 0, 11, &error), 5 * 96);
    getrusage(RUSAGE_SELF, &before);
    write_trace("long.mptrace", shape, 100, 0, 11);
    assert_int_equal(compare("long.mptrace", shape, 0, 11, &error), 100 * 96);
    getrusage(RUSAGE_SELF, &after);
    print_message("  20 MB of blocks: %ld KiB more\n", after.ru_maxrss - before.ru_maxrss);
    assert_true(after.ru_maxrss - before.ru_maxrss < 6000);
}

TEST_RANDOM_TURNS(what_is_written_is_read_back, 30, n) {
    struct mp_trace_shape shape = {test_random_int(random, 1, 9), test_random_int(random, 1, 70),
                                   test_random_int(random, 1, 5), test_random_int(random, 1, 4), 0};
    int iterations = test_random_int(random, 0, 40);
    int64_t first = n % 2 ? INT64_MAX - 1000 : test_random_int(random, 0, 100);
    uint64_t own = test_random(random);
    struct mp_error error;
    shape.top_k = test_random_int(random, 0, shape.experts);
    unlink("same.mptrace");
    write_trace("same.mptrace", shape, iterations, first, own);
    assert_int_equal(compare("same.mptrace", shape, first, own, &error),
                     (int64_t)iterations * shape.layers * shape.micro_batches);
    assert_int_equal(error.code, MP_OK);
    assert_int_equal(count_entries(".", "same.mptrace"), 1);
}

TEST(a_block_may_be_larger_than_a_frame) {
    const struct mp_trace_shape shape = {700, 1000, 2, 1, 8};
    uint64_t seed = test_seed();
    struct mp_error error;
    write_trace("large.mptrace", shape, 2, 0, seed);
    assert_int_equal(compare("large.mptrace", shape, 0, seed, &error), 4);
    assert_int_equal(error.code, MP_OK);
}

/* ---- cut and damaged ---- */

/* Three frames of one block, a frame of one block being 512 KiB raw but little packed: counts are
 * mostly 0. */
static const struct mp_trace_shape damage_shape = {4, 20000, 3, 1, 2};
enum { DAMAGE_BLOCKS = 3, FRAME_HEAD = 20 };

/* A small file of several frames, whose blocks have few routes, and where its frames begin. */
static char *make_damage_file(size_t *size, long frame[DAMAGE_BLOCKS + 1]) {
    struct mp_trace_writer *writer = start("whole.mptrace", damage_shape, "frames", "");
    AUTO(block)
    struct mp_trace_block block = block_of(damage_shape.ranks, damage_shape.experts, 7);
    uint64_t seed = test_seed();
    for (; block.layer < DAMAGE_BLOCKS; block.layer++) {
        memset(block.load.count, 0, (size_t)damage_shape.ranks * (size_t)damage_shape.experts * 4);
        for (int rank = 0; rank < damage_shape.ranks; rank++)
            for (int route = 0; route < 3; route++)
                block.load.count[rank * damage_shape.experts +
                                 test_random_int(&seed, 0, damage_shape.experts - 1)]++;
        assert_works(mp_trace_write(writer, &block, &error));
    }
    assert_works(mp_trace_writer_finish(writer, true, &error));
    char *bytes = read_bytes("whole.mptrace", size);
    uint32_t packed;
    memcpy(&packed, bytes + 8, 4); /* of the header's object */
    frame[0] = 8 + 4 + (long)packed + 4;
    for (int n = 0; n < DAMAGE_BLOCKS; n++) {
        assert_memory_equal(bytes + frame[n], "FRAM", 4);
        memcpy(&packed, bytes + frame[n] + 12, 4);
        frame[n + 1] = frame[n] + FRAME_HEAD + (long)packed;
    }
    assert_int_equal(*size, frame[DAMAGE_BLOCKS] + FRAME_HEAD);
    return bytes;
}

/* The file gives the whole blocks that lie before byte `place` and then says so. */
static void assert_read_until(long place, const long frame[DAMAGE_BLOCKS + 1], int *exact) {
    struct mp_trace_stream *stream;
    const struct mp_trace_block *block = NULL;
    char words[64];
    int whole = 0;
    while (whole < DAMAGE_BLOCKS && frame[whole + 1] <= place)
        whole++;
    if (place < frame[0]) {
        assert_fails(mp_trace_open("damaged.mptrace", &stream, &error), MP_EFORMAT,
                     "damaged.mptrace is no trace or its header is damaged");
        return;
    }
    assert_works(mp_trace_open("damaged.mptrace", &stream, &error));
    for (int got = 0; got < whole; got++) {
        assert_works(mp_trace_next(stream, &block, &error));
        assert_int_equal(block->layer, got);
        assert_int_equal(mp_load_total(&block->load), 3L * damage_shape.ranks);
    }
    snprintf(words, sizeof words, "after the first %d blocks", whole);
    assert_fails(mp_trace_next(stream, &block, &error), MP_EFORMAT, words);
    mp_trace_stream_destroy(stream);
    (*exact)++;
}

TEST(a_file_cut_anywhere_gives_its_whole_frames) {
    long frame[DAMAGE_BLOCKS + 1];
    size_t size;
    int exact = 0;
    AUTO(text) char *bytes = make_damage_file(&size, frame);
    print_message("  %zu bytes\n", size);
    for (long place = 0; place < (long)size; place++) {
        write_bytes("damaged.mptrace", bytes, (size_t)place);
        assert_read_until(place, frame, &exact);
    }
    assert_int_equal(exact, (long)size - frame[0]);
}

TEST_RANDOM(a_flipped_byte_anywhere_is_found) {
    long frame[DAMAGE_BLOCKS + 1];
    size_t size;
    int exact = 0;
    AUTO(text) char *bytes = make_damage_file(&size, frame);
    for (long place = 0; place < (long)size; place++) {
        char was = bytes[place];
        bytes[place] ^= (char)test_random_int(random, 1, 255);
        write_bytes("damaged.mptrace", bytes, size);
        assert_read_until(place, frame, &exact);
        bytes[place] = was;
    }
    assert_int_equal(exact, (long)size - frame[0]);
}

TEST(bytes_behind_the_end_are_found) {
    long frame[DAMAGE_BLOCKS + 1];
    size_t size;
    int exact = 0;
    AUTO(text) char *bytes = make_damage_file(&size, frame);
    bytes[size] = 'F'; /* where a zero byte was */
    write_bytes("damaged.mptrace", bytes, size + 1);
    assert_read_until((long)size, frame, &exact);
}

struct header_case {
    const char *json;
    int code;
    const char *words;
};
#define SHAPE "\"shape\":{\"ranks\":2,\"experts\":4,\"layers\":1,\"micro_batches\":1,\"top_k\":2}"
#define TEXTS "\"source\":\"a\",\"notes\":\"\""
static const struct header_case header_cases[] = {
    {"{\"version\":2," SHAPE "," TEXTS "}", MP_EVERSION, "has format version 2, this build reads"},
    {"{" SHAPE "," TEXTS "}", MP_EFORMAT, "a number \"version\""},
    {"{\"version\":1," TEXTS "}", MP_EFORMAT, "a number \"ranks\""},
    {"{\"version\":1," SHAPE ",\"source\":\"a\"}", MP_EFORMAT, "a text \"notes\""},
    {"{\"version\":1,\"shape\":{\"ranks\":-2}," TEXTS "}", MP_EFORMAT, "a number \"ranks\""},
    {"{\"version\":1,\"shape\":{\"ranks\":1,\"experts\":2.5}," TEXTS "}", MP_EFORMAT,
     "a number \"experts\""},
    {"{\"version\":1,\"shape\":{\"ranks\":2,\"experts\":4,\"layers\":0,\"micro_batches\":1,"
     "\"top_k\":2}," TEXTS "}",
     MP_EFORMAT, "a trace needs at least one of each: 2 ranks, 4 experts, 0 layers"},
    {"{\"version\":1,\"shape\":{\"ranks\":2147483647,\"experts\":2147483647,\"layers\":1,"
     "\"micro_batches\":1,\"top_k\":2}," TEXTS "}",
     MP_EFORMAT, "more than the"},
    {"[1]", MP_EFORMAT, "a number \"version\""},
    {"{\"version\":", MP_EFORMAT, "is no trace"},
};

TEST_ROWS(headers_that_say_impossible_things_are_refused, header_cases, row) {
    struct mp_trace_stream *stream;
    uint32_t length = (uint32_t)strlen(row->json);
    uint32_t check = (uint32_t)crc32(0, (const unsigned char *)row->json, length);
    FILE *file = fopen("header.mptrace", "wb");
    fwrite("MPTRACE1", 1, 8, file);
    fwrite(&length, 1, 4, file);
    fwrite(row->json, 1, length, file);
    fwrite(&check, 1, 4, file);
    fclose(file);
    assert_fails(mp_trace_open("header.mptrace", &stream, &error), row->code, row->words);
    assert_null(stream);
}

TEST(what_is_no_file_is_said) {
    struct mp_trace_stream *stream;
    mkdir("folder", 0755);
    assert_fails(mp_trace_open("absent.mptrace", &stream, &error), MP_ENOTFOUND,
                 "can't open absent.mptrace");
    assert_fails(mp_trace_open("folder", &stream, &error), MP_EFORMAT, "folder is a folder");
    rmdir("folder");
}

/* ---- writing ---- */

static const struct second {
    int64_t iteration;
    int layer, ranks;
    const char *words;
} seconds[] = {{4, 0, RANKS, "should be of iteration 4, micro-batch 0, layer 1"},
               {3, 1, RANKS, "should be of iteration 4, micro-batch 0, layer 1"},
               {4, 1, RANKS + 1, "block 1 has 3 ranks and 3 experts"}};

TEST_ROWS(a_writer_refuses_what_is_out_of_order, seconds, second) {
    struct mp_trace_writer *writer =
        start("order.mptrace", (struct mp_trace_shape){RANKS, EXPERTS, 2, 1, 2}, "", "");
    AUTO(block) struct mp_trace_block first = block_of(RANKS, EXPERTS, 4);
    AUTO(block)
    struct mp_trace_block other = block_of(second->ranks, EXPERTS, second->iteration);
    other.layer = second->layer;
    assert_works(mp_trace_write(writer, &first, &error));
    assert_fails(mp_trace_write(writer, &other, &error), MP_EINVAL, second->words);
    assert_int_equal(mp_trace_writer_finish(writer, true, NULL), MP_EINVAL);
    assert_int_equal(count_entries(".", "order.mptrace"), 0);
}

/* Of half an iteration, or when the caller gives up, nothing stays; what was there stays. */
TEST(only_whole_files_take_the_name) {
    const struct mp_trace_shape shape = {RANKS, EXPERTS, 2, 1, 2};
    write_file("kept.mptrace", "what was there");
    for (int commit = 0; commit < 2; commit++) {
        struct mp_trace_writer *writer = start("kept.mptrace", shape, "", "");
        AUTO(block) struct mp_trace_block block = block_of(RANKS, EXPERTS, 4);
        assert_works(mp_trace_write(writer, &block, &error));
        if (commit)
            assert_fails(mp_trace_writer_finish(writer, true, &error), MP_EINVAL,
                         "micro-batch 0, layer 1 is missing");
        else
            assert_works(mp_trace_writer_finish(writer, false, &error));
        assert_int_equal(count_entries(".", "kept.mptrace"), 1);
        AUTO(allocated) char *text = read_file("kept.mptrace");
        assert_string_equal(text, "what was there");
    }
}

TEST_RANDOM(a_full_disk_is_said_and_leaves_nothing) {
    const struct mp_trace_shape shape = {64, 512, 1, 1, 2};
    struct mp_trace_writer *writer = start("full.mptrace", shape, "", "");
    AUTO(block) struct mp_trace_block block = block_of(64, 512, 0);
    struct mp_error error = {0};
    struct rlimit old, small = {1 << 18, RLIM_INFINITY};
    int code = MP_OK;
    getrlimit(RLIMIT_FSIZE, &old);
    small.rlim_max = old.rlim_max;
    signal(SIGXFSZ, SIG_IGN);
    setrlimit(RLIMIT_FSIZE, &small);
    for (int i = 0; i < 100 && !code; i++, block.iteration++) {
        for (int cell = 0; cell < 64 * 512; cell++)
            block.load.count[cell] = (uint32_t)test_random(random);
        code = mp_trace_write(writer, &block, &error);
    }
    setrlimit(RLIMIT_FSIZE, &old);
    assert_int_equal(code, MP_ENOSPACE);
    assert_contains(error.text, "can't write full.mptrace: File too large");
    assert_int_equal(mp_trace_writer_finish(writer, true, NULL), MP_ENOSPACE);
    assert_int_equal(count_entries(".", "full.mptrace"), 0);
}

TEST(a_killed_writer_leaves_no_trace_of_that_name) {
    int ready[2];
    char letter;
    assert_int_equal(pipe(ready), 0);
    pid_t pid = fork();
    if (pid == 0) {
        const struct mp_trace_shape shape = {64, 512, 1, 1, 2};
        struct mp_trace_writer *writer = start("killed.mptrace", shape, "", "");
        struct mp_trace_block block = block_of(64, 512, 0);
        for (;; block.iteration++) {
            mp_trace_write(writer, &block, NULL);
            if (block.iteration == 50 && write(ready[1], "!", 1) != 1)
                _exit(1);
        }
    }
    assert_int_equal(read(ready[0], &letter, 1), 1);
    kill(pid, SIGKILL);
    waitpid(pid, NULL, 0);
    close(ready[0]);
    close(ready[1]);
    assert_int_equal(access("killed.mptrace", F_OK), -1);
    assert_int_equal(count_entries(".", "killed.mptrace"), 1);
    /* What it left is not in the next writer's way. */
    write_trace("killed.mptrace", (struct mp_trace_shape){2, 3, 1, 1, 2}, 3, 0, 5);
    assert_int_equal(access("killed.mptrace", F_OK), 0);
}

TEST(a_place_that_is_no_file_is_refused) {
    const struct mp_trace_info info = {.shape = {2, 3, 1, 1, 2}};
    struct mp_trace_writer *writer;
    mkdir("place", 0755);
    assert_fails(mp_trace_writer_create("place", &info, &writer, &error), MP_EINVAL,
                 "place is there and no file");
    assert_fails(mp_trace_writer_create("absent/a.mptrace", &info, &writer, &error), MP_EIO,
                 "can't write absent/a.mptrace: No such file");
    rmdir("place");
}

TEST_GROUP(enter_folder, leave_folder);
