/* Sources with the experts of tokens: the same random ones as CSV and as a router trace. */
#include "tests/harness/folder.h"
#include "tests/harness/workload/draw_tokens.h"
#include "tests/harness/workload/streams.h"

enum { RANKS = 3, LAYERS = 2, EXPERTS = 11, STEPS = 2, TOKENS = 6, TOP_K = 3 };

static void put_csv(FILE *file, int step, int layer, const struct mp_load *load) {
    for (int t = 0; t < TOKENS * RANKS; t++) {
        const int32_t *expert = load->routes->expert + (size_t)t * TOP_K;
        fprintf(file, "%d,%d,%d,%d", t % TOKENS, step + 4, layer, t / TOKENS);
        for (int j = 0; j < TOP_K; j++)
            if (expert[j] < 0)
                fputs(",", file);
            else
                fprintf(file, ", %d", expert[j]);
        fputs("\n", file);
    }
}

static void put_json(FILE *file, int step, int layer, const struct mp_load *load) {
    for (int r = 0; r < RANKS; r++) {
        const int32_t *expert = load->routes->expert + (size_t)(r * TOKENS * TOP_K);
        fprintf(file,
                "{\"step\": %d, \"block\": \"decoder\", \"layer\": %d, \"rank\": %d, "
                "\"num_tokens\": %d, \"topk\": %d, \"top_indices\": [",
                step + 4, layer, r, TOKENS, TOP_K);
        for (int i = 0; i < TOKENS * TOP_K; i++)
            fprintf(file, "%s%d", i ? ", " : "", expert[i]);
        fputs("]}\n", file);
    }
}

TEST_TURNS(tokens_are_those_of_the_source, 3, k) {
    static const char *const kind[] = {"csv-tokens", "megatron-tokens", "csv"};
    static const char *const path[] = {"tokens.csv", "tokens.jsonl", "told.csv"};
    const uint64_t seed = test_seed();
    uint64_t random = seed;
    const struct mp_trace_block *block;
    struct mp_load load;
    int blocks = 0;
    assert_works(mp_load_create(RANKS, EXPERTS, &load, &error));
    FILE *file = fopen(path[k], "w");
    if (k != 1)
        fputs("token,iteration,layer,rank,k0,\"k1\",k2\n", file);
    for (int step = 0; step < STEPS; step++)
        for (int layer = 0; layer < LAYERS; layer++) {
            draw_tokens(&random, TOKENS, TOP_K, k == 1, &load);
            (k == 1 ? put_json : put_csv)(file, step, layer, &load);
        }
    fclose(file);
    AUTO(stream) struct mp_trace_stream *stream = open_good(kind[k], path[k], EXPERTS);
    assert_true(mp_trace_stream_info(stream)->routes);
    mp_trace_allow_ragged(stream);
    for (random = seed; (block = next_good(stream)); blocks++) {
        draw_tokens(&random, TOKENS, TOP_K, k == 1, &load);
        assert_int_equal(block->iteration, 4 + blocks / LAYERS);
        assert_counts(&block->load, load.count);
        for (int i = 0; i < RANKS * TOKENS * TOP_K; i++) {
            int32_t drawn = load.routes->expert[i];
            assert_int_equal(block->load.routes->expert[i], drawn < 0 ? -1 : drawn);
        }
    }
    assert_int_equal(blocks, STEPS * LAYERS);
    mp_load_destroy(&load);
}

static const struct {
    const char *text, *words;
} wrong[] = {
    {"", "bad.csv: an empty file"},
    {"layer,token,k1\n", "bad.csv:1: no column k0"},
    {"layer,token\n", "bad.csv:1: no column k0"},
    {"layer,k0\n", "no column 'token' in the header of a tokens file"},
    {"layer,token,k0,count\n", "unexpected column 'count'"},
    {"layer,token,k0,e0\n", "column 4, 'e0', is unknown"},
    {"layer,token,k0,token\n", "bad.csv:1: column 4, 'token', is there twice"},
    {"layer,token,k0\n", "rows have to follow"},
    {"layer,token,k0\n0,0,11\n",
     "bad.csv:2: column 3 (k0): '11' is too large; a whole number from 0 to 10"},
    {"layer,token,k0\n0,0,x\n", "bad.csv:2: column 3 (k0): 'x' is not a whole number"},
    {"layer,token,k0\n0,0\n", "bad.csv:2: 2 columns, but the header has 3"},
    {"layer,token,k0\n0,1,2\n", "numbered from 0 on"},
    {"layer,token,k0\n0,0,2\n0,0,2\n", "numbered from 0 on"},
    {"layer,token,k0\n0,0,2\n1,0,1\n1,1,1\n", "rank 0 has 2 routes, rank 0 in layer 0 has 1"},
    {"layer,token,k0,k1\n0,0,2,2\n", "block 0 (iteration 0, micro-batch 0, layer 0): token 0 of "
                                     "rank 0 has an expert twice"},
    {"iteration,layer,token,k0\n1,0,0,2\n0,0,0,2\n", "iterations to ascend"},
    {"iteration,layer,token,k0\n0,0,0,2\n1,1,0,2\n", "layer 1, but the first iteration has 0 to 0"},
    {"layer,rank,token,k0\n4095,4095,0,2\n", "ask for 16777216"},
};

TEST_ROWS(what_is_wrong_is_said, wrong, row) {
    write_file("bad.csv", row->text);
    assert_fails(read_bad("csv-tokens", "bad.csv", EXPERTS, &error), MP_EFORMAT, row->words);
}

TEST(experts_that_nobody_says_are_asked_for) {
    write_file("bad.csv", "layer,token,k0,k1\n0,0,2,5\n");
    assert_fails(read_bad("csv-tokens", "bad.csv", 0, &error), MP_EINVAL,
                 "the largest index of the first iteration is 5");
}

TEST_GROUP(enter_folder, leave_folder);
