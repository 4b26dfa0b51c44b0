/* Megatron-LM's router traces: random ones in any order of lines, as a file and as a folder; the
 * sentence for each way of being wrong. */
#include "tests/harness/folder.h"
#include "tests/harness/workload/streams.h"

enum { MOST_LINES = 256, MOST_LOADS = 1 << 14 };

/* A random trace: its lines in memory, and what they hold. */
struct routing {
    struct mp_trace_shape shape; /* layers are those of the decoder and one of mtp */
    int steps;
    char *line[3][MOST_LINES];
    int rank[MOST_LINES];
    uint32_t count[3][MOST_LOADS]; /* [micro-batch][layer][rank][expert] */
};

static char *write_line(uint64_t *random, const struct mp_trace_shape *shape, int step, int layer,
                        int rank, uint32_t row[]) {
    static const char *const ends[2] = {"", "]"};
    char *text = NULL;
    size_t size;
    FILE *file = open_memstream(&text, &size);
    const int tokens = 5, nested = test_random_int(random, 0, 1);
    const bool mtp = layer == shape->layers - 1;
    fprintf(file, "{\"step\": %d, \"stage\": \"pre_dispatch\", \"block\": \"%s\", ", 10 * step + 3,
            mtp ? "mtp" : "decoder");
    if (mtp)
        fputs("\"mtp_idx\": 0, ", file);
    fprintf(file, "\"layer\": %d, \"rank\": %d, \"num_tokens\": %d, ", mtp ? 0 : 2 * layer + 1,
            rank, tokens);
    fprintf(file, "\"hs_shape\": [5, 16], \"topk\": %d, \"top_indices\": [", shape->top_k);
    for (int token = 0; token < tokens; token++) {
        int first = test_random_int(random, 0, shape->experts - 1);
        for (int k = 0; k < shape->top_k; k++) {
            int expert = (first + k) % shape->experts;
            fprintf(file, "%s%s%d", token + k ? ", " : "", nested && k == 0 ? "[" : "", expert);
            row[expert]++;
        }
        fputs(ends[nested], file);
    }
    fputs("]}\n", file);
    fclose(file);
    return text;
}

static void make_routing(uint64_t *random, struct routing *routing) {
    memset(routing, 0, sizeof *routing);
    struct mp_trace_shape *shape = &routing->shape;
    *shape = (struct mp_trace_shape){.ranks = test_random_int(random, 1, 4),
                                     .experts = test_random_int(random, 3, 40),
                                     .layers = test_random_int(random, 2, 5),
                                     .micro_batches = test_random_int(random, 1, 3),
                                     .top_k = test_random_int(random, 1, 3)};
    routing->steps = test_random_int(random, 1, 3);
    for (int step = 0; step < routing->steps; step++) {
        int lines = 0;
        for (int batch = 0; batch < shape->micro_batches; batch++)
            for (int layer = 0; layer < shape->layers; layer++)
                for (int rank = 0; rank < shape->ranks; rank++, lines++) {
                    long block = (long)batch * shape->layers + layer;
                    routing->rank[lines] = rank;
                    routing->line[step][lines] = write_line(
                        random, shape, step, layer, rank,
                        routing->count[step] + (block * shape->ranks + rank) * shape->experts);
                }
    }
}

/* A step's lines, of one rank or (-1) all, shuffled within each micro-batch. */
static void put_step(uint64_t *random, const struct routing *routing, int step, int rank,
                     FILE *file) {
    const int places = routing->shape.layers * routing->shape.ranks;
    int order[MOST_LINES];
    for (int batch = 0; batch < routing->shape.micro_batches; batch++) {
        for (int i = 0; i < places; i++) {
            int other = test_random_int(random, 0, i);
            order[i] = order[other];
            order[other] = batch * places + i;
        }
        for (int i = 0; i < places; i++)
            if (rank < 0 || routing->rank[order[i]] == rank)
                fputs(routing->line[step][order[i]], file);
    }
}

static void put_file(uint64_t *random, const struct routing *routing, int rank, const char *path) {
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    for (int step = 0; step < routing->steps; step++) {
        put_step(random, routing, step, rank, file);
        if (step % 2)
            fputs("\n  \n", file);
    }
    assert_int_equal(fclose(file), 0);
}

static void expect(const struct routing *routing, const char *path) {
    const struct mp_trace_shape *shape = &routing->shape;
    AUTO(stream) struct mp_trace_stream *stream = open_good("megatron", path, shape->experts);
    const struct mp_trace_info *info = mp_trace_stream_info(stream);
    assert_memory_equal(&info->shape, shape, sizeof *shape);
    assert_contains(info->source, path);
    assert_contains(info->notes,
                    formatted("%d of block decoder from 1 on, 1 of block mtp", shape->layers - 1));
    const size_t loads = (size_t)shape->ranks * (size_t)shape->experts;
    for (int step = 0; step < routing->steps; step++)
        for (int i = 0; i < shape->micro_batches * shape->layers; i++) {
            const struct mp_trace_block *block = next_good(stream);
            assert_non_null(block);
            assert_numbers(block->iteration, 10 * step + 3, block->micro_batch, i / shape->layers);
            assert_int_equal(block->layer, i % shape->layers);
            assert_counts(&block->load, routing->count[step] + (size_t)i * loads);
        }
    assert_null(next_good(stream));
}

TEST_RANDOM_TURNS(lines_in_any_order_in_a_file_or_one_for_every_rank, 100, round) {
    static struct routing routing;
    make_routing(random, &routing);
    put_file(random, &routing, -1, "all.jsonl");
    expect(&routing, "all.jsonl");
    assert_int_equal(mkdir("ranks", 0755), 0);
    write_file("ranks/notes.txt", "no trace\n");
    for (int rank = 0; rank < routing.shape.ranks; rank++) {
        char path[64];
        snprintf(path, sizeof path, "ranks/router_trace_rank%d.jsonl", rank);
        put_file(random, &routing, rank, path);
    }
    expect(&routing, "ranks");
    assert_int_equal(system("rm -r ranks"), 0);
    for (int step = 0; step < 3; step++)
        for (int i = 0; i < MOST_LINES; i++)
            free(routing.line[step][i]);
}

#define LINE(step, layer, rank, rest)                                                              \
    "{\"step\": " step ", \"layer\": " layer ", \"rank\": " rank ", " rest "}\n"
#define TOP "\"num_tokens\": 2, \"topk\": 1, \"top_indices\": [0, 3]"

static const struct {
    const char *name, *text;
    int experts, code;
    const char *words;
} bad_traces[] = {
    {"experts not said", LINE("1", "0", "0", TOP), 0, MP_EINVAL,
     "bad.jsonl: rows of tokens' experts do not say how many experts there are; the largest index "
     "of the first iteration is 3; --experts N says it"},
    {"nothing", "\n\n", 4, MP_EFORMAT, "bad.jsonl:2: no row in it"},
    {"no JSON", "step 1\n", 4, MP_EFORMAT, "bad.jsonl:1:"},
    {"cut", LINE("1", "0", "0", TOP) "{\"step\": 2, \"top_ind", 4, MP_EFORMAT,
     "bad.jsonl:2: column 20: not valid JSON"},
    {"a list", "[1, 2]\n", 4, MP_EFORMAT, "bad.jsonl:1: not a JSON object"},
    {"no step", "{\"layer\": 1}\n", 4, MP_EFORMAT, "bad.jsonl:1: step is missing"},
    {"double key", "{\"step\": 1, \"step\": 2}\n", 4, MP_EFORMAT, "duplicate"},
    {"negative rank", LINE("1", "0", "-1", TOP), 4, MP_EFORMAT,
     "rank is none that can be; a whole number from 0 to 65535"},
    {"half a layer", LINE("1", "0.5", "0", TOP), 4, MP_EFORMAT, "layer is none that can be"},
    {"index too large", LINE("1", "0", "0", TOP), 3, MP_EFORMAT,
     "bad.jsonl:1: value 1 of top_indices is no expert: 0 to 2 are there"},
    {"too few indices",
     LINE("1", "0", "0", "\"num_tokens\": 2, \"topk\": 2, \"top_indices\": [0, 3, 1]"), 4,
     MP_EFORMAT, "top_indices has 3 values; 2 lists of 2, or 4 numbers, are right"},
    {"a short list",
     LINE("1", "0", "0", "\"num_tokens\": 2, \"topk\": 2, \"top_indices\": [[0, 3], [1]]"), 4,
     MP_EFORMAT, "top_indices[1] is no list of 2 experts"},
    {"lists and numbers",
     LINE("1", "0", "0", "\"num_tokens\": 2, \"topk\": 1, \"top_indices\": [0, [1]]"), 4,
     MP_EFORMAT, "value 1 of top_indices is no expert"},
    {"no experts per token",
     LINE("1", "0", "0", "\"num_tokens\": 2, \"topk\": 0, \"top_indices\": []"), 4, MP_EFORMAT,
     "topk is 0"},
    {"two stages",
     LINE("1", "0", "0", "\"stage\": \"pre_dispatch\", " TOP)
         LINE("1", "0", "0", "\"stage\": \"post\", " TOP),
     4, MP_EFORMAT, "bad.jsonl:2: stage 'post' after stage 'pre_dispatch'"},
    {"unknown block", LINE("1", "0", "0", "\"block\": \"encoder\", " TOP), 4, MP_EFORMAT,
     "neither 'decoder' nor 'mtp'"},
    {"mtp without its number", LINE("1", "0", "0", "\"block\": \"mtp\", " TOP), 4, MP_EFORMAT,
     "mtp_idx belongs"},
    {"missing rank", LINE("1", "0", "0", TOP) LINE("1", "0", "2", TOP), 4, MP_EFORMAT,
     "bad.jsonl: no row for iteration 1, micro-batch 0, decoder layer 0, rank 1 (read to line 2)"},
    {"missing layer later",
     LINE("1", "0", "0", TOP) LINE("1", "7", "0", TOP) LINE("4", "0", "0", TOP), 4, MP_EFORMAT,
     "no row for iteration 4, micro-batch 0, decoder layer 7, rank 0 (read to line 3)"},
    {"new layer later", LINE("1", "0", "0", TOP) LINE("2", "1", "0", TOP), 4, MP_EFORMAT,
     "bad.jsonl:2: layer 1 is not in the first step"},
    {"one line more", LINE("1", "0", "0", TOP) LINE("2", "0", "0", TOP) LINE("2", "0", "0", TOP), 4,
     MP_EFORMAT, "bad.jsonl:3: micro_batch 1, but the first iteration has 0 to 0"},
    {"steps that descend", LINE("2", "0", "0", TOP) LINE("1", "0", "0", TOP), 4, MP_EFORMAT,
     "bad.jsonl:2: iteration 1 after iteration 2"},
    {"numbers that ask for much", LINE("1", "60000", "60000", TOP), 4, MP_EFORMAT,
     "micro-batch 0, decoder layer 60000, rank 0"},
};

TEST_EACH(bad_lines_are_named, bad_traces, bad) {
    write_file("bad.jsonl", bad->text);
    assert_fails(read_bad("megatron", "bad.jsonl", bad->experts, &error), bad->code, bad->words);
}

TEST_TURNS(long_and_deep_lines_are_refused, 2, deep) {
    FILE *file = fopen("bad.jsonl", "w");
    fputs("{\"step\": 1, \"top_indices\": ", file);
    for (int i = 0; i < (deep ? 1 << 20 : (4 << 20)); i++)
        fputc(deep ? '[' : ' ', file);
    assert_int_equal(fclose(file), 0);
    assert_fails(read_bad("megatron", "bad.jsonl", 4, &error), deep ? MP_EFORMAT : MP_ELIMIT,
                 deep ? "depth" : "at most 4194304 are read");
}

TEST(experts_are_for_kinds_that_do_not_say) {
    struct mp_trace_stream *stream;
    write_file("some.csv", "iteration,layer,rank,e0,e1\n0,0,0,1,1\n");
    assert_fails(mp_format_open("csv", "some.csv", 4, &stream, &error), MP_EFORMAT,
                 "some.csv:1: long and wide files say themselves how many experts");
    assert_fails(mp_format_open("npy", "some.csv", 4, &stream, &error), MP_EINVAL,
                 "says itself how many experts");
    assert_int_equal(mkdir("empty", 0755), 0);
    assert_fails(mp_format_open("megatron", "empty", 4, &stream, &error), MP_ENOTFOUND,
                 "no file of this folder is called router_trace_rank*.jsonl");
}

TEST_GROUP(enter_folder, leave_folder);
