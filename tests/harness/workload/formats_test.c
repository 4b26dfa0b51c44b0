/* Others' formats: what small files say, the sentence for each way of being wrong, and the public
 * traces where they are there. */
#include <inttypes.h>
#include <unistd.h>
#include <zlib.h>
#include <zstd.h>

#include "tests/harness/folder.h"
#include "tests/harness/workload/streams.h"

/* One small load in every format: 2 ranks, 4 experts, two iterations. */
static const uint32_t small[2][8] = {{5, 2, 1, 0, 3, 3, 0, 2}, {2, 2, 2, 2, 1, 3, 4, 0}};
static const uint32_t summed[2][8] = {{8, 5, 1, 2}, {3, 5, 6, 2}};

/* The stream is exactly these blocks of one layer. */
static void expect_blocks(const char *kind, const char *path, int ranks, int experts, int blocks,
                          int64_t first_iteration, const uint32_t count[][8]) {
    AUTO(stream) struct mp_trace_stream *stream = open_good(kind, path, 0);
    const struct mp_trace_info *info = mp_trace_stream_info(stream);
    char source[64]; /* "wide.csv (csv-wide)", even if it is opened as any csv */
    snprintf(source, sizeof source, "%s (%s%c", path, kind, strcmp(kind, "csv") ? ')' : '-');
    assert_true(!strncmp(info->source, source, strlen(source)));
    assert_numbers(info->shape.ranks, ranks, info->shape.experts, experts, info->shape.layers, 1);
    assert_numbers(info->shape.micro_batches, 1, info->shape.top_k, 0);
    for (int i = 0; i < blocks; i++) {
        const struct mp_trace_block *block = next_good(stream);
        assert_non_null(block);
        assert_numbers(block->iteration, first_iteration + i, block->layer, 0);
        assert_counts(&block->load, count[i]);
    }
    assert_null(next_good(stream));
}

/* The small load as long CSV, the rows of each iteration shuffled. */
static char *long_csv(uint64_t *random) {
    char *text = NULL;
    size_t size;
    FILE *file = open_memstream(&text, &size);
    fprintf(file, "\xEF\xBB\xBF"
                  "count,expert,\"layer\",iteration,rank\r\n");
    for (int iteration = 0; iteration < 2; iteration++) {
        int order[8] = {0, 1, 2, 3, 4, 5, 6, 7};
        for (int i = 7; i > 0; i--) {
            int other = test_random_int(random, 0, i);
            int kept = order[i];
            order[i] = order[other];
            order[other] = kept;
        }
        for (int i = 0; i < 8; i++)
            fprintf(file, "%u%s,\"%d\",0, %d,%d\r\n", small[iteration][order[i]], i % 2 ? ".0" : "",
                    order[i] % 4, iteration + 5, order[i] / 4);
    }
    fclose(file);
    text[size - 2] = '\0'; /* no end of the last line */
    return text;
}

TEST_RANDOM(long_csv_in_any_order_and_column_order) {
    AUTO(text) char *text = long_csv(random);
    write_file("long.csv", text);
    expect_blocks("csv-long", "long.csv", 2, 4, 2, 5, small);
    expect_blocks("csv", "long.csv", 2, 4, 2, 5, small);
}

static const char wide_csv[] = "iteration,micro_batch,layer,rank,e0,e1,e2,e3\n"
                               "0,0,0,0,5,2,1,0\n0,0,0,1,3,3,0,2\n\n"
                               "1,0,0,1,1,3,4,0\n1,0,0,0,2,2,2,2\n";

static void write_gzipped(const char *path, const char *text, size_t size) {
    gzFile file = gzopen(path, "wb");
    assert_int_equal(gzwrite(file, text, (unsigned)size), (int)size);
    assert_int_equal(gzclose(file), Z_OK);
}

/* Also packed in two frames, cut inside a line. */
TEST(wide_csv_plain_and_packed) {
    write_file("wide.csv", wide_csv);
    expect_blocks("csv-wide", "wide.csv", 2, 4, 2, 0, small);
    char packed[1024];
    size_t size = 0;
    size_t half = sizeof wide_csv / 2;
    size = ZSTD_compress(packed, sizeof packed, wide_csv, half, 3);
    size += ZSTD_compress(packed + size, sizeof packed - size, wide_csv + half,
                          sizeof wide_csv - 1 - half, 3);
    write_bytes("wide.csv.zst", packed, size);
    expect_blocks("csv", "wide.csv.zst", 2, 4, 2, 0, small);
    write_bytes("cut.csv.zst", packed, size - 3);
    struct mp_trace_stream *stream = NULL;
    assert_fails(mp_format_open("csv", "cut.csv.zst", 0, &stream, &error), MP_EFORMAT,
                 "cut off inside a packed frame");
    write_gzipped("wide.csv.gz", wide_csv, sizeof wide_csv - 1);
    assert_string_equal(mp_format_guess("wide.csv.gz"), "csv");
    expect_blocks("csv", "wide.csv.gz", 2, 4, 2, 0, small);
    assert_int_equal(truncate("wide.csv.gz", 60), 0);
    assert_fails(mp_format_open("csv", "wide.csv.gz", 0, &stream, &error), MP_EFORMAT,
                 "wide.csv.gz: damaged gzip data after line");
}

#define HEAD "iteration,layer,rank,e0,e1,e2,e3\n"

/* A rank's rows in each of two files, in the order of none. */
TEST(csv_of_a_folder) {
    struct mp_trace_stream *stream;
    mkdir("ranks", 0700);
    write_file("ranks/b.csv",
               "iteration,micro_batch,layer,rank,e0,e1,e2,e3\n0,0,0,0,5,2,1,0\n1,0,0,0,2,2,2,2\n");
    write_file("ranks/a.csv", "rank,layer,iteration,e3,e2,e1,e0\n1,0,0,2,0,3,3\n1,0,1,0,4,3,1\n");
    write_file("ranks/notes.txt", "not a table");
    assert_string_equal(mp_format_guess("ranks"), "csv");
    expect_blocks("csv", "ranks", 2, 4, 2, 0, small);
    for (int longer = 0; longer < 2; longer++) { /* one has ended, the other goes on */
        const struct mp_trace_block *block;
        write_file(longer ? "ranks/b.csv" : "ranks/a.csv", HEAD "0,0,0,5,2,1,0\n1,0,0,2,2,2,2\n");
        write_file(longer ? "ranks/a.csv" : "ranks/b.csv", HEAD "0,0,1,3,3,0,2\n");
        stream = open_good("csv", "ranks", 0);
        next_good(stream);
        assert_fails(mp_trace_next(stream, &block, &error), MP_EFORMAT,
                     "no row for iteration 1, micro-batch 0, layer 0, rank 1");
        mp_trace_stream_destroy(stream);
    }
    write_file("ranks/a.csv", "iteration,layer,rank,e0,e1\n0,0,1,1,2\n");
    assert_fails(mp_format_open("csv", "ranks", 0, &stream, &error), MP_EFORMAT,
                 "ranks/b.csv:1: a header with other columns of experts");
    assert_int_equal(unlink("ranks/a.csv") + unlink("ranks/b.csv"), 0);
    assert_fails(mp_format_open("csv", "ranks", 0, &stream, &error), MP_ENOTFOUND,
                 "no file of this folder is called *.csv");
    write_file("ranks/router_trace_rank0.jsonl", "");
    assert_string_equal(mp_format_guess("ranks"), "megatron");
}

/* Random shapes and counts, several layers and micro-batches. */
TEST_RANDOM_TURNS(wide_csv_gives_back_what_was_written, 20, round) {
    int size[4];
    for (int i = 0; i < 4; i++)
        size[i] = test_random_int(random, 1, 5);
    int total = 3 * size[0] * size[1] * size[2] * size[3];
    AUTO(allocated) uint32_t *count = malloc((size_t)total * sizeof *count);
    FILE *file = fopen("random.csv", "w");
    fprintf(file, "rank,layer,micro_batch");
    for (int e = 0; e < size[3]; e++)
        fprintf(file, ",e%d", e);
    fprintf(file, ",iteration\n");
    for (int i = 0; i < total; i += size[3]) {
        int row = i / size[3];
        fprintf(file, "%d,%d,%d", row % size[2], row / size[2] % size[1],
                row / size[2] / size[1] % size[0]);
        for (int e = 0; e < size[3]; e++)
            fprintf(file, ",%u", count[i + e] = (uint32_t)test_random(random));
        fprintf(file, ",%d\n", 7 * (i / (total / 3)));
    }
    assert_int_equal(fclose(file), 0);
    AUTO(stream) struct mp_trace_stream *stream = open_good("csv", "random.csv", 0);
    mp_trace_allow_ragged(stream);
    assert_int_equal(mp_trace_stream_info(stream)->shape.micro_batches, size[0]);
    const struct mp_trace_block *block;
    int at = 0;
    for (; (block = next_good(stream)); at += size[2] * size[3]) {
        assert_int_equal(block->iteration, 7 * (at / (total / 3)));
        assert_counts(&block->load, count + at);
    }
    assert_int_equal(at, total);
}

TEST(sglang_without_its_dense_layers) {
    static const uint32_t expected[1][8] = {{11, 10, 7, 4}};
    write_file("s.json", "{\"logical_count\": [[0, 0, 0, 0], [11.0, 10.0, 7.0, 4]], \"x\": 1}");
    expect_blocks("sglang", "s.json", 1, 4, 1, 0, expected);
    AUTO(stream) struct mp_trace_stream *stream = open_good("sglang", "s.json", 0);
    assert_contains(mp_trace_stream_info(stream)->notes, "1 layers without routes");
    assert_true(mp_trace_stream_info(stream)->of_run);
    assert_int_equal(mp_trace_stream_info(stream)->dense_layers, 1);
}

static const struct {
    const char *counts;
    int dense;
} dense_layers[] = {{"[[4, 4], [3, 5]]", 0},
                    {"[[0, 0], [0, 0], [3, 5]]", 2},
                    {"[[3, 5], [0, 0]]", -1},
                    {"[[0, 0], [3, 5], [0, 0], [4, 4]]", -1}};

TEST_ROWS(dense_layers_are_counted_in_front, dense_layers, row) {
    char text[128];
    snprintf(text, sizeof text, "{\"logical_count\": %s}", row->counts);
    write_file("d.json", text);
    AUTO(stream) struct mp_trace_stream *stream = open_good("sglang", "d.json", 0);
    assert_int_equal(mp_trace_stream_info(stream)->dense_layers, row->dense);
}

#define VLLM_HEAD                                                                                  \
    "{\"world_size\": 2, \"num_moe_layers\": 1, \"num_logical_experts\": 4, "                      \
    "\"num_physical_experts\": 6, \"window_size\": 2, \"snapshots\": ["
#define VLLM_SECOND                                                                                \
    "{\"step\": 1, \"latest_expert_load\": [[2, 3, 6, 1, 2, 2]], "                                 \
    "\"window_expert_load\": [[7, 5, 7, 4, 4, 5]], "                                               \
    "\"physical_to_logical_map\": [[0, 1, 2, 0, 3, 1]]}"

TEST(vllm_slots_become_experts) {
    write_file("v.json",
               VLLM_HEAD "{\"step\": 0, \"latest_expert_load\": [[8, 5, 1, 2]], "
                         "\"physical_to_logical_map\": [[0, 1, 2, 3]]}," VLLM_SECOND "]}");
    expect_blocks("vllm-eplb", "v.json", 1, 4, 2, 0, summed);
}

/* An npy 1.0 file of `size` bytes of numbers. */
static void write_npy(const char *path, const char *header, const void *numbers, size_t size) {
    unsigned char file[1024];
    memset(file, ' ', 128);
    memcpy(file, "\x93NUMPY\x01\x00\x76\x00", 10);
    memcpy(file + 10, header, strlen(header));
    file[127] = '\n';
    if (size)
        memcpy(file + 128, numbers, size);
    write_bytes(path, file, 128 + size);
}

#define NPY(type, shape) "{'descr': '" type "', 'fortran_order': False, 'shape': " shape ", }"

TEST(npy_of_each_type_and_number_of_axes) {
    int64_t wide[16];
    for (int i = 0; i < 16; i++)
        wide[i] = small[i / 8][i % 8];
    write_npy("a.npy", NPY("<i8", "(2, 4)"), wide, 64);
    expect_blocks("npy", "a.npy", 2, 4, 1, 0, small);
    write_npy("b.npy", NPY("<i8", "(2, 1, 2, 4)"), wide, 128);
    expect_blocks("npy", "b.npy", 2, 4, 2, 0, small);
    write_npy("c.npy", NPY("<u4", "(2, 1, 2, 4)"), small, 64);
    expect_blocks("npy", "c.npy", 2, 4, 2, 0, small);
    write_npy("d.npy", NPY("<i4", "(4,)"), small, 16);
    expect_blocks("npy", "d.npy", 1, 4, 1, 0, small);
    write_npy("e.npy", NPY("<i4", "(2, 1, 4)"), summed[0], 16);
    AUTO(stream) struct mp_trace_stream *stream = open_good("npy", "e.npy", 0);
    assert_int_equal(mp_trace_stream_info(stream)->shape.layers, 2);
}

#define LONG_HEAD "iteration,layer,rank,expert,count\n"
#define LONG_ROWS "0,0,0,0,1\n0,0,0,1,2\n0,0,1,0,3\n0,0,1,1,0\n"
#define NEST "[[[[[[[[[[[[[[[["
#define NEST256 NEST NEST NEST NEST NEST NEST NEST NEST NEST NEST NEST NEST NEST NEST NEST NEST
#define NEST4096                                                                                   \
    NEST256 NEST256 NEST256 NEST256 NEST256 NEST256 NEST256 NEST256 NEST256 NEST256 NEST256        \
        NEST256 NEST256 NEST256 NEST256 NEST256

static const struct {
    const char *kind, *text, *says, *also;
    int code; /* 0: MP_EFORMAT */
} malformed[] = {
    {"csv-lnog", "", "csv-lnog", "'csv-long'", MP_EINVAL},
    {"deepspeed", "", "unknown trace format 'deepspeed'", "nearest", MP_EINVAL},
    {"csv", "", "empty", "header", 0},
    {"csv", LONG_HEAD, "bad:1", "rows have to follow", 0},
    {"csv", "iteration,layer,rank,expert,count,colour\n", "bad:1: column 6", "'colour'", 0},
    {"csv", "iteration,layer,rank,rank,expert,count\n", "column 4", "twice", 0},
    {"csv", "iteration,layer,expert,count\n", "no column 'rank'", "long", 0},
    {"csv", "iteration,layer,rank,e0,e2\n", "no column e1", "bad:1", 0},
    {"csv", "iteration,layer,rank,e0,e1,count\n", "unexpected column 'count'", "wide", 0},
    {"csv-wide", LONG_HEAD LONG_ROWS, "use csv-long", "bad:1", 0},
    {"csv-long", "iteration,layer,rank,e0\n", "use csv-wide", "bad:1", 0},
    {"csv", LONG_HEAD LONG_ROWS "1,0,0,0,-3\n", "bad:6", "'-3' is negative", 0},
    {"csv", LONG_HEAD LONG_ROWS "1,0,0,0,3.5\n", "bad:6", "'3.5' is not whole", 0},
    {"csv", LONG_HEAD LONG_ROWS "1,0,0,0,nan\n", "bad:6", "not a whole number", 0},
    {"csv", LONG_HEAD LONG_ROWS "1,0,0,0,4294967296\n", "too large", "4294967295", 0},
    {"csv", LONG_HEAD LONG_ROWS "1,0,0\n", "bad:6: 3 columns", "has 5", 0},
    {"csv", LONG_HEAD LONG_ROWS "1,0,0,0,1,1\n", "bad:6: 6 columns", "has 5", 0},
    {"csv", LONG_HEAD LONG_ROWS "1,0,0,0,3\n1,0,0,1,0\n",
     "no row for iteration 1, micro-batch 0, layer 0, rank 1, expert 0", "line 7", 0},
    {"csv", LONG_HEAD "0,0,1,0,3\n", "no row for iteration 0", "rank 0, expert 0", 0},
    {"csv", LONG_HEAD "0,65535,65535,0,3\n", "65536 ranks", "at most", MP_ELIMIT},
    {"csv", LONG_HEAD "0,0,4095,4095,3\n", "1 rows", "ask for 16777216", 0},
    {"csv", LONG_HEAD LONG_ROWS "1,0,2,0,1\n", "bad:6: rank 2", "0 to 1", 0},
    {"csv", LONG_HEAD LONG_ROWS "0,0,1,1,1\n", "bad:6", "second row", 0},
    {"csv", LONG_HEAD "1,0,0,0,1\n0,0,0,0,1\n", "bad:3", "iteration 0 after iteration 1", 0},
    {"csv", LONG_HEAD "0,0,0,0,3\n0,0,1,0,4\n", "iteration 0", "rank 1 has 4", 0}, /* sums */
    {"csv", "\x28\xB5\x2F\xFD rubbish", "bad", "zstd", 0},
    {"sglang", NEST4096, "bad:1:", "depth", 0},
    {"sglang", "{\"logical_count\": [[1, 2]", "bad:1:", "not valid JSON", 0},
    {"sglang", "[1]", "array", "object is right", 0},
    {"sglang", "{}", "logical_count", "missing", 0},
    {"sglang", "{\"snapshots\": []}", "vllm-eplb", "snapshots", 0},
    {"sglang", "{\"logical_count\": []}", "logical_count", "empty", 0},
    {"sglang", "{\"logical_count\": 3}", "logical_count", "not an array", 0},
    {"sglang", "{\"logical_count\": [[1, 2], [3]]}", "logical_count[1]", "2 are right", 0},
    {"sglang", "{\"logical_count\": [[1, -2]]}", "logical_count[0][1] is -2", "whole", 0},
    {"sglang", "{\"logical_count\": [[1, 2.5]]}", "[0][1] is 2.5", "whole", 0},
    {"sglang", "{\"logical_count\": [[1, null]]}", "[0][1]", "not a number", 0},
    {"sglang", "{\"logical_count\": [[0, 0]]}", "zero", "every layer", 0},
    {"sglang", "{\"logical_count\": [[1, 2], [1, 3]]}", "layer 1", "4 routes", 0},
    {"vllm-eplb", "{\"num_logical_experts\": 4}", "num_moe_layers", "missing", 0},
    {"vllm-eplb", VLLM_HEAD "]}", "snapshots", "empty", 0},
    {"vllm-eplb", VLLM_HEAD "{\"step\": 1}]}", "snapshots[0]", "latest_expert_load", 0},
    {"vllm-eplb", VLLM_HEAD VLLM_SECOND "," VLLM_SECOND "]}", "snapshots[1]", "step 1 after step 1",
     0},
    {"vllm-eplb",
     VLLM_HEAD "{\"step\": 1, \"latest_expert_load\": [[2, 3]], "
               "\"physical_to_logical_map\": [[0, 4]]}]}",
     "physical_to_logical_map[0][1] is 4", "0 to 3", 0},
    {"vllm-eplb",
     VLLM_HEAD "{\"step\": 1, \"latest_expert_load\": [[2, 3]], "
               "\"physical_to_logical_map\": [[0]]}]}",
     "physical_to_logical_map has 1", "2 are right", 0},
    {"npy", "NUMPY", "not an npy file", "NUMPY", 0},
};

TEST_ROWS(malformed_files_are_named_with_their_place, malformed, row) {
    write_file("bad", row->text);
    assert_fails(read_bad(row->kind, "bad", 0, &error), row->code ? row->code : MP_EFORMAT,
                 row->says, row->also);
}

TEST(a_file_that_is_not_there_is_named) {
    assert_fails(read_bad("csv", "nowhere.csv", 0, &error), MP_ENOTFOUND, "nowhere.csv");
}

static const struct {
    const char *header;
    size_t bytes;
    const char *says;
} malformed_arrays[] = {
    {NPY("<i4", "(2, 4)"), 32, "iteration 0, layer 0, rank 1, expert 3: -3"},
    {NPY("<i4", "(1, 4)"), 12, "cut off in iteration 0 of 1, layer 0: 12 bytes of 16"},
    {NPY("<i4", "(10,)"), 36, "cut off in iteration 0 of 1, layer 0: 36 bytes of 40"},
    {NPY("<i4", "(1, 4)"), 20, "more bytes"},
    {NPY("<f8", "(1, 4)"), 32, "'<f8'"},
    {NPY("|O", "(1, 4)"), 32, "'|O'"},
    {NPY("<i4", "(1, 1, 1, 1, 4)"), 16, "1 to 4 axes"},
    {NPY("<i4", "()"), 4, "1 to 4 axes"},
    {NPY("<i4", "(0,)"), 0, "1 to 4 axes"},
    {"{'descr': '<i4', 'fortran_order': True, 'shape': (4,), }", 16, "Fortran"},
    {"{'descr': '<i4', 'shape': (4,), }", 16, "no fortran_order"},
};

TEST_ROWS(malformed_arrays_are_refused, malformed_arrays, row) {
    static const int32_t numbers[9] = {1, 2, 3, 4, 2, 2, 3, -3, 5};
    write_npy("bad.npy", row->header, numbers, row->bytes);
    assert_fails(read_bad("npy", "bad.npy", 0, &error), MP_EFORMAT, row->says);
}

static const struct {
    const char *bytes;
    size_t size;
    int code;
    const char *says;
} malformed_heads[] = {{"\x93NUMPY\x09\x00", 8, MP_EVERSION, "9.0"},
                       {"\x93NUMPY\x03\x00\x76\x00", 10, MP_EFORMAT, "inside the header"},
                       {"\x93NUMPY\x01\x00\x76\x00{'descr", 17, MP_EFORMAT, "inside the header"}};

TEST_ROWS(malformed_heads_of_arrays_are_refused, malformed_heads, row) {
    write_bytes("bad.npy", row->bytes, row->size);
    assert_fails(read_bad("npy", "bad.npy", 0, &error), row->code, row->says);
}

TEST(the_ending_suggests_a_format) {
    assert_string_equal(mp_format_guess("a/b.csv"), "csv");
    assert_string_equal(mp_format_guess("b.csv.zst"), "csv");
    assert_string_equal(mp_format_guess("b.json"), "sglang");
    assert_string_equal(mp_format_guess("b.npy"), "npy");
    assert_string_equal(mp_format_guess("b.mptrace"), "native");
    assert_null(mp_format_guess("csv"));
    assert_null(mp_format_guess("b.csv.pt"));
    assert_null(mp_format_guess(""));
}

/* A public trace's path, or NULL after saying that it isn't there. */
static const char *public_trace(const char *name) {
    static char path[512];
    snprintf(path, sizeof path, "%s/%s", MOEPERF_TRACES, name);
    need_file(path);
    return path;
}

static double max_over_mean(const struct mp_load *load) {
    int64_t total[64];
    assert_true(load->experts <= 64);
    mp_load_expert_totals(load, total);
    int64_t most = 0;
    for (int i = 0; i < load->experts; i++)
        most = total[i] > most ? total[i] : most;
    return (double)most * load->experts / (double)mp_load_total(load);
}

/* The statistics that were taken from the file by other means: iterations 1, 11 and 2001. */
TEST(smartmoe_trace_has_its_known_statistics) {
    static const struct {
        int iteration;
        double known, within;
    } known[] = {
        {1, 1.54, 0.02}, {11, 14.0, 0.1}, {101, 12.1, 0.1}, {501, 9.1, 0.1}, {2001, 11.6, 0.1}};
    AUTO(stream)
    struct mp_trace_stream *stream =
        open_good("csv", public_trace("smartmoe_gpt_e32_top2.csv.zst"), 0);
    const struct mp_trace_shape *shape = &mp_trace_stream_info(stream)->shape;
    assert_numbers(shape->layers, 24, shape->experts, 32, shape->ranks, 16);
    assert_int_equal(shape->micro_batches, 4);
    const struct mp_trace_block *block;
    int found = 0;
    double sum = 0;
    while (found < 5 && (block = next_good(stream))) {
        for (int rank = 0; rank < 16; rank++) {
            uint32_t routes = 0;
            for (int expert = 0; expert < 32; expert++)
                routes += mp_load_at(&block->load, rank, expert);
            assert_int_equal(routes, 4096);
        }
        if (block->iteration != known[found].iteration)
            continue;
        sum += max_over_mean(&block->load);
        if (block->micro_batch == 3 && block->layer == 23) {
            print_message("iteration %" PRId64 ": max/mean %.3f\n", block->iteration, sum / 96);
            assert_true(fabs(sum / 96 - known[found].known) <= known[found].within);
            sum = 0;
            found++;
        }
    }
    assert_int_equal(found, 5);
}

TEST(sglang_traces_have_their_known_sums) {
    static const struct {
        const char *name;
        int64_t routes;
    } traces[] = {{"sglang_deepseek_prefill_in4096.json", 67108864},
                  {"sglang_deepseek_decode_in2000out100.json", 23760000}};
    for (int i = 0; i < 2; i++) {
        const char *path = public_trace(traces[i].name);
        AUTO(stream) struct mp_trace_stream *stream = open_good(mp_format_guess(path), path, 0);
        assert_int_equal(mp_trace_stream_info(stream)->shape.experts, 256);
        const struct mp_trace_block *block;
        int layers = 0;
        for (; (block = next_good(stream)); layers++)
            assert_int_equal(mp_load_total(&block->load), traces[i].routes);
        assert_int_equal(layers, 58);
    }
}

TEST_GROUP(enter_folder, leave_folder);
