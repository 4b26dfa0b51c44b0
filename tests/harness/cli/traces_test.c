/* moeperf generate, reshape, export and import: a trace of a run holds what the database has of it,
 * one made of a file what the file has, and where something is wrong nothing is written. */
#include "tests/harness/cli/shell.h"
#include "tests/harness/workload/streams.h"

enum { RANKS = 2, LAYERS = 3, EXPERTS = 8, ITERATIONS = 7 };

static const char suite[] = SMALL_SUITE(
    "loads", "iterations: 7", "{name: a, system: ep}, {name: b, system: deepspeed, gate: switch}");

TEST(kinds_have_their_own_help_and_seeds) {
    assert_says("moeperf generate --help", 0, "\n  lognormal  lognormal shares with",
                "--micro-batches N");
    assert_says("moeperf generate w7 --help", 0, "--length N", "default 3");
    assert_says("moeperf generate power --help", 0, "After aiconfigurator");
    assert_says("moeperf generate w4 -o w4.mptrace --layers 2 --ranks 4 --micro-batches 3", 0,
                "w4.mptrace: 600 blocks of 4 ranks and 64 experts\n");
    assert_says(
        "moeperf generate balanced -o one.mptrace --layers 1 --ranks 1 --experts 1 --top-k 1 "
        "--iterations 1 && moeperf export --as csv --trace one.mptrace one.csv",
        0, "one.mptrace: 1 block of 1 rank and 1 expert\none.csv: 1 block\n");
    assert_runs("for seed in 5 6; do moeperf generate zipf -o $seed.mptrace --iterations 3 "
                "--seed=$seed; done; ! cmp 5.mptrace 6.mptrace");
}

TEST(how_a_trace_was_reshaped_is_said) {
    assert_runs("moeperf generate w1 -o w1.mptrace --ranks 16 --experts 32 --layers 4 --tokens 128 "
                "--micro-batches 2 --top-k 2 --iterations 3");
    assert_says("moeperf reshape w1.mptrace -o w1-small.mptrace --ranks 8 --experts 64 --layers 2 "
                "--merge-micro-batches --tilt 0.75 --tokens 100",
                0,
                "notes        folded 16 ranks into 8; split 32 experts into 64 with a tilt of\n"
                "             0.75; thinned 4 layers into 2; added up 2 micro-batches into 1;\n"
                "             scaled every source to 100 tokens of top 2\n"
                "shape        ranks 8, experts 64, layers 2, micro-batches 1, experts per token "
                "2\niterations   3, numbered 0 .. 2\nroutes       9600 in 6 blocks\n");
}

/* What comes next of a trace is all that another one holds, `later` iterations later. */
static void assert_goes_on(struct mp_trace_stream *again, const char *path, int later) {
    AUTO(stream) struct mp_trace_stream *made = open_good("native", path, 0);
    for (const struct mp_trace_block *block; (block = next_good(made));) {
        const struct mp_trace_block *other = next_good(again);
        assert_non_null(other);
        assert_int_equal(other->iteration, later + block->iteration);
        assert_counts(&other->load, block->load.count);
    }
}

TEST(an_exported_run_is_what_the_database_has) {
    for (int run = 1; run <= 2; run++) {
        char loads[8 * ITERATIONS * LAYERS * RANKS * EXPERTS];
        const struct mp_trace_block *block;
        int blocks = 0, length = 0;
        assert_says(formatted("moeperf export --as trace --run %d --db l.db %d.mptrace", run, run),
                    0, "\niterations   7, numbered 0 .. 6\n");
        AUTO(stream)
        struct mp_trace_stream *stream = open_good("native", formatted("%d.mptrace", run), 0);
        const struct mp_trace_info *info = mp_trace_stream_info(stream);
        const struct mp_trace_shape shape = {RANKS, EXPERTS, LAYERS, 1, 3 - run};
        assert_memory_equal(&info->shape, &shape, sizeof shape);
        assert_contains(info->source,
                        formatted("run %d of l.db: suite loads, job %c, system %s, workload text",
                                  run, "ab"[run - 1], run == 1 ? "ep" : "deepspeed"));
        for (; (block = next_good(stream)); blocks++) {
            assert_int_equal(block->iteration, blocks / LAYERS);
            assert_int_equal(mp_load_total(&block->load), 4L * 16 * (3 - run));
            for (int cell = 0; cell < RANKS * EXPERTS; cell++)
                length += snprintf(loads + length, sizeof loads - (size_t)length, "%s%u",
                                   length ? "," : "", block->load.count[cell]);
        }
        assert_int_equal(blocks, ITERATIONS * LAYERS);
        assert_answer("l.db",
                      formatted("SELECT group_concat(routes) FROM (SELECT routes FROM v_load WHERE "
                                "run_id = %d ORDER BY iteration, layer, rank, expert)",
                                run),
                      loads);
    }
}

/* The experts of tokens go from a training run into its trace, and what it says of them. */
TEST(tokens_are_recorded_where_they_are_asked_for) {
    const struct mp_trace_block *block;
    int blocks = 0;
    write_file("tokens.yaml",
               SMALL_SUITE("tokens", "iterations: 7, nodes: 2",
                           "{system: deepep, gate: softmax, top-k: 3, record-routes: yes}"));
    assert_runs("moeperf run tokens.yaml --quiet --db t.db");
    assert_runs("moeperf export --run 1 --db t.db tokens.mptrace");
    AUTO(stream) struct mp_trace_stream *stream = open_good("native", "tokens.mptrace", 0);
    assert_true(mp_trace_stream_info(stream)->routes);
    for (; (block = next_good(stream)); blocks++)
        assert_int_equal(block->load.routes->begin[RANKS], 4 * 16);
    assert_int_equal(blocks, ITERATIONS * LAYERS);
    AUTO(json) json_t *shown = json_of("moeperf show tokens.mptrace --json", 0);
    const json_t *last = member(shown, "tokens_by_layer/2");
    assert_true(number(last, "ranks_per_token") > 1 && number(last, "ranks_per_token") <= 2);
    assert_true(number(last, "next_most_frequent") >=
                number(last, "next_most_frequent_independent"));
    assert_says("moeperf show tokens.mptrace", 0, "ranks per");
    assert_runs("moeperf import tokens.mptrace -o again.mptrace && "
                "cmp tokens.mptrace again.mptrace");
    assert_says("moeperf reshape tokens.mptrace -o folded.mptrace --experts 4", 0,
                "experts of tokens left out");
}

/* What a prediction of the run's own trace has received in the background is, exchange by exchange,
 * what the other rank of two has sent; less the counts before them, which are no rows. */
TEST(a_predicted_run_exchanges_the_bytes_of_its_trained_one) {
    assert_runs("moeperf predict --cluster swiftmoe --nodes 2 --set predict.precision=fp32 --quiet "
                "--suite tokens.yaml --trace tokens.mptrace --db p.db");
    /* Counts are of tokens, to every node and rank, 4 B each.  Exchanges of 2 ranks, 3 layers and 7
     * iterations, two forward and two backward. */
    assert_answer("t.db",
                  "ATTACH 'p.db' AS predicted; WITH sent AS (SELECT iteration, layer, phase, "
                  "direction, 1 - rank AS peer,   sum(bytes) - 16 * (phase = 'dispatch' AND "
                  "direction = 'forward') AS bytes   FROM main.v_span WHERE stream = 'compute' "
                  "GROUP BY 1, 2, 3, 4, 5), received AS (SELECT iteration, layer, phase, "
                  "direction, rank AS peer,   sum(bytes) AS bytes FROM predicted.v_span WHERE "
                  "stream = 'comm'   GROUP BY 1, 2, 3, 4, 5) SELECT sum(sent.bytes = "
                  "received.bytes) || ' of ' || count(*) FROM sent JOIN received USING (iteration, "
                  "layer, phase, direction, peer) WHERE phase IN ('dispatch', 'combine')",
                  "168 of 168");
}

/* Predictions list that they draw a token's experts only where they do. */
TEST(predictions_count_tokens_that_they_are_given) {
    static const char predict[] =
        "moeperf predict --cluster h100 --nodes 1 --system deepep --assumptions --trace 8.mptrace";
    FILE *file = fopen("8.csv", "w");
    fputs("rank,layer,token,k0,k1\n", file);
    for (int i = 0; i < 8 * 2 * 16; i++)
        fprintf(file, "%d,%d,%d,%d,%d\n", i / 32, i / 16 % 2, i % 16, i % 7, i % 7 + i % 5 + 1);
    fclose(file);
    assert_runs("moeperf import 8.csv --as csv-tokens --experts 16 -o 8.mptrace");
    assert_says(predict, 0, LACKS("which experts tokens take together"));
    assert_runs("moeperf reshape 8.mptrace -o 9.mptrace --tokens 16 && mv 9.mptrace 8.mptrace");
    assert_says(predict, 0, "which experts tokens take together");
}

/* A run as CSV is its trace as CSV, and both come back as the trace. */
TEST(others_get_the_same_loads) {
    assert_says("moeperf export --as csv --view loads --run 1 --db l.db run.csv", 0,
                "run.csv: 21 blocks\n");
    assert_says("moeperf export --as csv --trace 1.mptrace trace.csv", 0, "trace.csv: 21 blocks\n");
    assert_runs("cmp run.csv trace.csv");
    assert_says("moeperf import run.csv -o run.mptrace", 0, "\niterations   7, numbered 0 .. 6\n");
    assert_runs("moeperf export --as csv --trace run.mptrace again.csv && cmp run.csv again.csv");
}

/* A timeline, a view and all about a run; what they hold is tested with results/export. */
TEST(others_get_times_and_views) {
    assert_says("moeperf export --as perfetto --run 1 --iterations 2..3 --db l.db ep.json", 0,
                " arrows between ranks");
    AUTO(json) json_t *timeline = json_of("cat ep.json", 0);
    assert_true(json_array_size(member(timeline, "traceEvents")) > 100);
    assert_says("moeperf export --as csv --view speedup --db l.db all.csv", 0, "all.csv: 2 rows\n");
    assert_says("moeperf export --as csv --run 2 --iterations 3 --db l.db spans.csv", 0, " rows\n");
    assert_says("head -n 2 spans.csv", 0, "\n2,0,");
    assert_says("moeperf export --as json --run 1 --db l.db all.json", 0, " rows\n");
    assert_json("cat all.json", 0, "iterations/#", "7");
}

/* An iteration that one rank did not finish is left out and counted. */
TEST(unfinished_iterations_are_left_out) {
    assert_runs("cp l.db cut.db");
    execute("cut.db", "DELETE FROM load WHERE run_id = 1 AND rank = 1 AND "
                      "(iteration = 6 OR iteration = 5 AND layer = 2)");
    execute("cut.db", "UPDATE load SET routes = '[1, -2, 3, 4, 5, 6, 7, 8]' WHERE "
                      "run_id = 2 AND rank = 1 AND iteration = 3 AND layer = 1");
    assert_says("moeperf export --run 1 --db cut.db cut.mptrace", 0,
                "notes        iterations left out that not every rank finished: 2\n");
    assert_says("moeperf import cut.mptrace -o cut.mptrace", 0,
                "\niterations   5, numbered 0 .. 4\n");
    assert_says("moeperf export --run 2 --db cut.db bad.mptrace", 2,
                "moeperf export: cut.db: run 2, iteration 3, layer 1, rank 1: a load should be a "
                "whole number that is not negative\n");
    assert_int_equal(count_entries(".", "bad.mptrace"), 0);
}

/* Layers 2, ranks 2, experts 4. */
#define HEAD "iteration,layer,rank,e0,e1,e2,e3\n"
static const char csv[] = HEAD "5,0,0,4,0,0,0\n5,0,1,4,0,0,0\n5,1,0,1,1,1,1\n5,1,1,1,1,1,1\n"
                               "9,0,0,2,0,1,1\n9,0,1,2,2,0,0\n9,1,0,1,1,1,1\n9,1,1,1,1,1,1\n";

TEST(an_imported_file_is_what_it_says) {
    static const uint32_t count[4][8] = {{4, 0, 0, 0, 4, 0, 0, 0},
                                         {1, 1, 1, 1, 1, 1, 1, 1},
                                         {2, 0, 1, 1, 2, 2, 0, 0},
                                         {1, 1, 1, 1, 1, 1, 1, 1}};
    const struct mp_trace_block *block;
    int blocks = 0;
    write_file("wide.csv", csv);
    assert_says("moeperf import wide.csv --as csv-wide -o wide.mptrace", 0,
                "\nshape        ranks 2, experts 4, layers 2, micro-batches 1, experts per token\n"
                "             not known\n",
                "\niterations   2, numbered 5 .. 9\nroutes       32 in 4 blocks\n",
                "\nimbalance    fullest expert / mean of a layer: median 1.50, worst 4.00\n"
                "             (iteration 5, layer 0)\n");
    AUTO(stream) struct mp_trace_stream *stream = open_good("native", "wide.mptrace", 0);
    for (; (block = next_good(stream)); blocks++)
        assert_memory_equal(block->load.count, count[blocks], sizeof count[blocks]);
    assert_int_equal(blocks, 4);
    /* Read as its own format and written again it is the same bytes. */
    assert_runs("moeperf import wide.mptrace --as native -o again.mptrace && "
                "cmp wide.mptrace again.mptrace");
    assert_says("moeperf import wide.csv -o guessed.mptrace", 0, "32 in 4 blocks\n");
}

/* What a run is led to meet is what it records, once round and again. */
TEST(a_replayed_trace_is_recorded_as_it_was) {
    enum { ROUNDS = 2 };
    write_file(
        "replay.yaml",
        SMALL_SUITE("replay", "iterations: 14, routing: trace",
                    "{system: ep, trace: text.mptrace}, {system: fssdp, trace: text.mptrace},"
                    " {name: drawn, system: ep, trace: zipf exponent=1 sampling=random}"));
    assert_runs("moeperf export --run 1 --db l.db text.mptrace");
    assert_runs("moeperf run replay.yaml --quiet --db r.db");
    for (int run = 1; run <= 2; run++) {
        assert_says(formatted("moeperf export --run %d --db r.db again.mptrace", run), 0,
                    "workload");
        AUTO(stream) struct mp_trace_stream *again = open_good("native", "again.mptrace", 0);
        for (int round = 0; round < ROUNDS; round++)
            assert_goes_on(again, "text.mptrace", round * ITERATIONS);
    }
    /* Two workloads: the generator's run is compared with none of the trace's. */
    AUTO(json) json_t *runs = json_of("moeperf report --runs --json --db r.db", 0);
    assert_has(runs, "rows/0/workload", text(runs, "rows/1/workload"));
    assert_string_not_equal(text(runs, "rows/0/workload"), text(runs, "rows/2/workload"));
}

/* Four, six and all experts per token: replayed, recorded, exported and predicted as they are. */
TEST(many_experts_per_token_stay_as_many) {
    for (int k = 4; k <= 8; k += 2)
        assert_runs(
            formatted("moeperf generate zipf -o k%d.mptrace --ranks 2 --layers 3 --experts 8 "
                      "--tokens 32 --iterations 2 --exponent %g --top-k %d",
                      k, k < EXPERTS ? 0.1 : 0, k));
    write_file(
        "many.yaml",
        SMALL_SUITE("many", "iterations: 2, routing: trace, gate: softmax, system: moonep",
                    "{top-k: 4, trace: k4.mptrace}, {name: six, top-k: 6, trace: k6.mptrace}, "
                    "{name: all, top-k: 8, trace: k8.mptrace}"));
    assert_runs("moeperf run many.yaml --quiet --db many.db");
    for (int k = 4; k <= 8; k += 2) {
        assert_says(formatted("moeperf export --run %d --db many.db again.mptrace", k / 2 - 1), 0,
                    "workload\n             trace ", " in 6 blocks");
        AUTO(stream) struct mp_trace_stream *again = open_good("native", "again.mptrace", 0);
        const struct mp_trace_shape shape = {RANKS, EXPERTS, LAYERS, 1, k};
        assert_memory_equal(&mp_trace_stream_info(again)->shape, &shape, sizeof shape);
        assert_goes_on(again, formatted("k%d.mptrace", k), 0);
        assert_runs(formatted("moeperf predict --cluster h100 --nodes 1 --set sequence=16 --system "
                              "moonep --quiet --fit --trace k%d.mptrace | grep 'gate softmax "
                              "top-%d$'",
                              k, k));
    }
    assert_says("moeperf predict --cluster h100 --nodes 1 --fit --set gate=gshard --set top-k=auto "
                "--trace k6.mptrace",
                2, "(gate=softmax top-k=6); experts per token are never fitted");
    write_file("wide.csv", csv);
    assert_says(
        "moeperf import wide.csv --as csv-wide -o wide.mptrace && "
        "moeperf predict --system ep --cluster h100 --nodes 1 --fit --quiet --trace wide.mptrace",
        0, "top 2 as it was given");
}

static const struct refused_line refusals[] = {
    {"moeperf generate ziph -o x.mptrace", "did you mean \"zipf\"?"},
    {"moeperf generate zipf", "-o FILE names the trace to write"},
    {"moeperf generate", "an argument is missing"},
    {"moeperf generate -o x.mptrace zipf", "the kind comes first"},
    {"moeperf generate zipf -o x.mptrace --heat 0.5", "unknown option --heat"},
    {"moeperf generate zipf -o x.mptrace --tokens many", "tokens: "},
    {"moeperf generate w0 -o gone/x.mptrace", "gone/x.mptrace"},
    {"moeperf reshape wide.csv -o x.mptrace", "wide.csv is no trace or its header is damaged; "
                                              "moeperf import makes one"},
    {"moeperf reshape w4.mptrace", "moeperf reshape: -o OUT.mptrace is missing"},
    {"moeperf reshape w4.mptrace -o x.mptrace --ranks 6",
     "4 ranks and 6 are wanted: neither number divides the other; the nearest that can be made are "
     "4 and 8"},
    {"moeperf reshape w4.mptrace -o x.mptrace --tilt 0.4", "--tilt 0.4: should be a number"},
    {"moeperf reshape w4.mptrace -o x.mptrace --top-k 9", "experts each, not 9"},
    {"moeperf import wide.csv --as csv-wide", "moeperf import: -o OUT.mptrace is"},
    {"moeperf import wide.csv --as csv-wid -o x.mptrace", "csv-wide"},
    {"moeperf import wide.txt -o x.mptrace",
     "the name of wide.txt does not say what it is; --as KIND does"},
    {"moeperf import gone.mptrace -o x.mptrace", "can't open gone.mptrace"},
    {"moeperf import ragged.csv --as csv-wide -o x.mptrace",
     "block 0 (iteration 5, micro-batch 0, layer 0): rank 1 has 5 routes, rank 0 in layer 0 has 4; "
     "they may differ only in a ragged trace, as moeperf import --ragged writes it"},
    {"moeperf export --run 1 --db l.db x.json",
     "x.json: without --as it would be a trace, whose name ends in .mptrace; --as json or --as "
     "perfetto is right"},
    {"moeperf export --run 1 --db l.db x.csv", "--as csv is right"},
    {"moeperf export --as trace --db l.db x.mptrace",
     "l.db: there are 2 runs in it: name one; moeperf report --db l.db --runs lists them"},
    {"moeperf export --run 1 --run 2 --db l.db x.mptrace",
     "--run is given 2 times; a file is of one run"},
    {"moeperf export --run 1,2 --db l.db x.mptrace", "--run 1,2: should be the number of a run"},
    {"moeperf export --run 3 --db l.db x.mptrace", "l.db: there is no run 3"},
    {"moeperf export --run 3 --db gone.db x.mptrace", "moeperf export: gone.db: no such database"},
    {"moeperf export --as perfetto --run 1 --iterations 90..100 --db l.db x",
     "moeperf export: --iterations 90..100: there are the iterations 0..6\n"},
    {"moeperf export --as csv --view iteration --iterations 7 --db l.db x",
     "moeperf export: --iterations 7..7: there are the iterations 0..6\n"},
    {"moeperf export --as json --run 3 --iterations 9 --db l.db x", "there is no run 3"},
    {"moeperf export --as cvs --run 1 --db l.db x.mptrace",
     "--as cvs: trace, csv, perfetto and json can be written"},
    {"moeperf export --run 1 --layer 1 --db l.db x.mptrace",
     "--iteration and --layer are for loads as csv"},
    {"moeperf export --as perfetto --trace 1.mptrace x.mptrace",
     "a trace has loads only, no times"},
    {"moeperf export --as csv --view run --trace 1.mptrace x.mptrace",
     "--view is for csv of a database: a trace has no views"},
    {"moeperf export --as perfetto --view run --db l.db x.mptrace",
     "--view is for csv of a database: perfetto has no views"},
    {"moeperf export --as csv --view dog --db l.db x.mptrace",
     "there is no view dog in l.db; there are v_"},
    {"moeperf export --as csv --layer 1 --run 1 --db l.db x.mptrace", "--view loads writes loads"},
    {"moeperf export --iterations 1 --run 1 --db l.db x.mptrace",
     "--iterations is for perfetto, json and views"},
    {"moeperf export --as json --iterations 3.. --run 1 --db l.db x",
     "--iterations 3..: should be one, or the first and the last, e.g. 10..19"},
    {"moeperf export --as json --iterations 3..2 --run 1 --db l.db x",
     "--iterations 3..2: should be"},
    {"moeperf export --as perfetto --db l.db x.mptrace", "l.db: there are 2 runs in it: name one"},
    {"moeperf export --as csv --trace 1.mptrace --run 1 x.mptrace", "the loads are of one of them"},
};

TEST(what_cant_be_is_said_and_nothing_is_written) {
    write_file("wide.csv", csv);
    write_file("wide.txt", csv);
    write_file("router.jsonl", "{\"step\": 0, \"layer\": 0, \"rank\": 0, \"num_tokens\": 2, "
                               "\"topk\": 2, \"top_indices\": [[0, 1], [2, 0]]}\n");
    write_file("ragged.csv", HEAD "5,0,0,4,0,0,0\n5,0,1,4,1,0,0\n");
    assert_refused(refusals);
    assert_int_equal(count_entries(".", "x.mptrace"), 0);
    assert_says("moeperf import router.jsonl --experts 8 -o router.mptrace", 0,
                "shape        ranks 1, experts 8, layers 1, micro-batches 1, experts per token 2\n"
                "iterations   1, numbered 0 .. 0\nroutes       4 in 1 block\n");
    assert_says("moeperf import ragged.csv --as csv-wide --ragged -o ragged.mptrace", 0,
                "routes       9 in 1 block; ragged\n");
    /* The file says so itself to whoever reads it next. */
    assert_says("moeperf import ragged.mptrace -o again.mptrace", 0,
                "routes       9 in 1 block; ragged\n");
    assert_says("moeperf reshape ragged.mptrace --ranks 1 -o sum.mptrace", 0,
                "routes       9 in 1 block; ragged\n");
    assert_says("moeperf export --as csv --trace ragged.mptrace same.csv && tail -n 1 same.csv", 0,
                "5,0,0,1,3,0");
    assert_says("moeperf generate w4 -o w4.mptrace --iterations 3 --ranks 4 --experts 8 --layers 2 "
                "&& moeperf predict --cluster hecate-b --nodes 1 --trace w4.mptrace --fit "
                "--system ep",
                0, "ep");
}

/* Two layers of two iterations, ten apart, of which the second layer is empty at first. */
static const char four[] = HEAD "5,0,0,4,0,4,0\n5,1,0,0,0,0,0\n"
                                "15,0,0,8,0,0,0\n15,1,0,3,1,0,0\n";

TEST(a_trace_is_shown) {
    write_file("four.csv", four);
    assert_runs("moeperf import four.csv --as csv-wide --ragged -o four.mptrace");
    assert_says("moeperf show four.mptrace", 0,
                "routes       20 in 4 blocks, 1 of them without any; ragged\n"
                "imbalance    fullest expert / mean of a layer: median 3.00, worst 4.00\n"
                "             (iteration 15, layer 0)\n",
                "0         3.00     1.00        1.5  62.5            -     0.577          -\n"
                "1         3.00     1.00        1.8  50.0            -         -          -\n");
    AUTO(json) json_t *shown = json_of("moeperf show four.mptrace --json", 0);
    assert_has(shown, "ragged", "true", "blocks_without_routes", "1", "by_layer/0/layer", "0",
               "by_layer/0/correlation_1", "null", "all/layer", "null");
    assert_close(number(shown, "by_layer/0/correlation_10"), 1 / sqrt(3), 1e-9);
    assert_says("moeperf show gone.mptrace", 2, "moeperf show: can't open gone.mptrace");
    assert_says("moeperf show four.mptrace --html x.html --json", 2, "--json does not go with it");
    assert_says("moeperf show fssdp --html x.html", 2, "--html is for traces, FILE.mptrace");
}

/* Heat maps of bins of iterations: what is in the page's tables, before a browser draws it. */
TEST(a_trace_is_drawn) {
    write_file("four.csv", four);
    assert_runs(
        "moeperf import four.csv --as csv-wide --ragged -o four.mptrace && mkdir -p vega && "
        "for module in util time format loader dataflow statistics canvas scale scenegraph "
        "expression event-selector selection functions parser runtime view transforms "
        "view-transforms encode interpreter; do echo >vega/vega-$module.min.js; done");
    assert_says("MOEPERF_VEGA=vega moeperf show four.mptrace --html page.html && cat page.html", 0,
                "{\"columns\":[\"iteration\",\"layer\",\"value\",\"ranks\"],\"rows\":"
                "[[5,0,2.0,1.0],[15,0,4.0,1.0],[15,1,3.0,1.0]]}");
    assert_says("cat page.html", 0,
                "{\"columns\":[\"iteration\",\"expert\",\"value\"],\"rows\":[[5,0,2.0],[5,1,0.0],"
                "[5,2,2.0],[5,3,0.0],[15,0,4.0],[15,1,0.0],[15,2,0.0],[15,3,0.0]]}",
                "<h1>four.mptrace</h1>", "worst 4.00              (iteration 15, layer 0)</p>");
}

/* Tokens' ways from layer to layer, against chance: 4 x 3 / 6 = 2 go from 0 to 1 and to 2, 1 each
 * from
 * 3.  Of 128 experts a row is of two. */
TEST(transitions_are_drawn) {
    static const int way[6][3] = {{0, 0, 1}, {0, 0, 1}, {0, 0, 1}, {0, 0, 2}, {0, 3, 2}, {0, 3, 2}};
    FILE *file = fopen("ways.csv", "w");
    fputs("rank,layer,token,k0\n", file);
    for (int i = 0; i < 3 * 6; i++)
        fprintf(file, "0,%d,%d,%d\n", i / 6, i % 6, way[i % 6][i / 6]);
    fclose(file);
    assert_runs("moeperf import ways.csv --as csv-tokens --experts 4 -o ways.mptrace");
    assert_runs("MOEPERF_VEGA=vega moeperf show ways.mptrace --html page.html");
    assert_says("cat page.html", 0,
                "{\"label\":\"1 to 2 (tells 0.459 bits)\",\"table\":{\"columns\":[\"next\","
                "\"expert\",\"value\"],\"rows\":[[1,0,1.5],[2,0,0.5],[1,3,0.0],[2,3,2.0]]},"
                "\"signals\":{\"across\":\"next\",\"rowTitle\":\"expert of layer 1\","
                "\"columnTitle\":\"expert of layer 2\",",
                "{\"label\":\"0 to 1 (tells 0.000 bits)\",\"table\":{\"columns\":[\"next\","
                "\"expert\",\"value\"],\"rows\":[[0,0,1.0],[3,0,1.0]]},");
    assert_says("grep -o '[0-9] to [0-9] (' page.html", 0, "1 to 2 (\n0 to 1 (\n");
    assert_says("cat page.html", 0, "<th scope=\"col\">present tells bits</th>",
                "<th scope=\"col\">corr. 10 later</th>");
    assert_runs("moeperf import ways.csv --as csv-tokens --experts 128 -o ways.mptrace");
    assert_runs("MOEPERF_VEGA=vega moeperf show ways.mptrace --html page.html");
    assert_says("cat page.html", 0, "\"rows\":[[0,0,1.5],[2,0,0.5],[0,2,0.0],[2,2,2.0]]},");
}

static int record_runs(void **state) {
    int failed = enter_shell(state);
    write_file("loads.yaml", suite);
    assert_runs("moeperf run loads.yaml --quiet --db l.db");
    return failed;
}

TEST_GROUP(record_runs, leave_folder);
