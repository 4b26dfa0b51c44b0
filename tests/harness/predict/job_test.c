/* Predicted jobs: what they may say, the loads that they get, and what a run of them adds up to. */
#include "harness/predict/job.h"

#include "reference/base/random.h"
#include "reference/model/replay.h"
#include "tests/harness/predict/job_support.h"
#include "tests/harness/workload/streams.h"

/* ---- text ---- */

static char *text_of(const struct mp_predict_job *job) {
    char *text;
    assert_works(mp_predict_job_text(job, true, &text, &error));
    return text;
}

static int apply_text(struct mp_predict_job *job, const char *text, struct mp_error *error) {
    struct mp_yaml *document;
    int code = mp_yaml_parse("job.yaml", text, strlen(text), &document, error);
    if (code)
        return code;
    code = mp_predict_job_apply(job, document, "job.yaml", &systems, error);
    mp_yaml_destroy(document);
    return code;
}

TEST(what_is_written_reads_back) {
    AUTO(job) struct mp_predict_job job, again;
    mp_cluster_destroy(make_job(&job, "system=fssdp"));
    set(&job, "predict.recompute=full", "predict.reserve=0.25", "options.reshard-interval=3",
        "fit=yes", "executor=predicted");
    AUTO(text) char *text = text_of(&job);
    assert_works(mp_predict_job_create(&again, &error));
    assert_works(apply_text(&again, text, &error));
    AUTO(text) char *second = text_of(&again);
    assert_string_equal(text, second);
    assert_int_equal(again.options.recompute, MP_RECOMPUTE_FULL);
    assert_true(again.fit);
    assert_string_equal(again.change, "nodes=2");
}

/* Whether settings differ that decide whether jobs are compared: for predictions, and for measured
 * jobs. */
static const struct {
    bool predicted, measured;
    const char *assignment[20];
} settings[] = {
    {false,
     false,
     {"name=other", "system=ep", "options.overlap=3", "iterations=9", "routing=balanced",
      "loads=zipf", "record=no", "checkpoint=x"}},
    {true,
     true,
     {"layers=5", "batch=160", "shared-experts=1", "mode=prefill", "ranks=8", "ranks-per-node=2",
      "gate=softmax", "top-k=3", "threads=3", "seed=9", "text=x", "weight-decay=0.5",
      "inject=rank=1", "check-plans=yes"}},
    {true,
     false,
     {"cluster=h100", "change=nodes=3", "predict.recompute=full", "predict.reserve=0.25"}},
};

/* `more`: NULL, or what is said beside what all say. */
static uint64_t setting_of(const char *more, bool predicted) {
    AUTO(job) struct mp_predict_job job;
    mp_cluster_destroy(make_job(&job, "system=fssdp"));
    set(&job, "gate=sigmoid", "text=words", more);
    return mp_predict_job_setting(&job, predicted);
}

TEST_ROWS(settings_differ_where_rows_say_so, settings, row) {
    const uint64_t predicted = setting_of(NULL, true), measured = setting_of(NULL, false);
    assert_true(predicted != measured);
    for (const char *const *more = row->assignment; *more; more++)
        if ((setting_of(*more, true) != predicted) != row->predicted ||
            (setting_of(*more, false) != measured) != row->measured)
            fail_msg("%s", *more);
}

static const struct {
    const char *text, *says;
} bad_words[] = {
    {"{system: ep, clustr: h100}", "job.yaml:1: unknown option \"clustr\" for a job; "
                                   "did you mean \"cluster\"?"},
    {"{system: ep,\n predict: {precison: bf16}}", "job.yaml:2: unknown option \"precison\""},
    {"{system: ep, predict: 3}", "job.yaml:1: predict: should be a mapping"},
    {"{system: ep, predict: {reserve: [1, 2]}}", "reserve: should be one value"},
    {"{system: ep, predict: {reserve: 2}}", "reserve: 2 is outside 0 .. 0.9"},
    {"{system: ep, loads: [a, b]}", "loads: should be one value"},
    {"{system: ep, fit: perhaps}", "fit: "},
    {"{system: ep, executor: guessed}", "executor: "},
    {"{system: ep, layer: 3}", "did you mean \"layers\"?"},
    {"[1, 2]", "job.yaml:1: a job should be a mapping"},
};

TEST_ROWS(bad_words_are_named, bad_words, row) {
    AUTO(job) struct mp_predict_job job;
    assert_works(mp_predict_job_create(&job, &error));
    assert_fails(apply_text(&job, row->text, &error), MP_EINVAL, row->says);
}

static const struct {
    const char *change, *says;
} wrong_changes[] = {{"node=2", "node"}, {"nodes=0", "nodes: 0"}};

TEST_ROWS(changes_of_clusters_are_checked, wrong_changes, row) {
    AUTO(job) struct mp_predict_job job;
    struct mp_cluster *cluster = NULL;
    assert_works(mp_predict_job_create(&job, &error));
    strcpy(job.change, row->change);
    assert_fails(mp_predict_job_cluster(&job, MOEPERF_SOURCE "/harness/cluster/clusters/h100.yaml",
                                        &cluster, &error),
                 MP_EINVAL, row->says);
    assert_null(cluster);
}

/* ---- loads ---- */

static void write_shape(const char *path, struct mp_trace_shape shape, uint32_t routes) {
    struct mp_trace_info info = {.shape = shape};
    int ranks = shape.ranks, experts = shape.experts, layers = shape.layers;
    AUTO(block) struct mp_trace_block block = block_of(ranks, experts, 0);
    struct mp_trace_writer *writer;
    info.source = strdup("a test");
    info.notes = strdup("");
    assert_works(mp_trace_writer_create(path, &info, &writer, &error));
    for (int i = 0; i < 3 * layers * shape.micro_batches; i++) {
        block.iteration = 10 * (i / layers / shape.micro_batches);
        block.micro_batch = i / layers % shape.micro_batches;
        block.layer = i % layers;
        for (int r = 0; r < ranks; r++) /* an even load, a little of it moved by layer */
            for (int e = 0; e < experts; e++)
                block.load.count[r * experts + e] =
                    routes + (e == block.layer) - (e == block.layer + 1);
        assert_works(mp_trace_write(writer, &block, &error));
    }
    assert_works(mp_trace_writer_finish(writer, true, &error));
    mp_trace_info_destroy(&info);
}

static void write_trace(const char *path, int ranks, int experts, int layers, uint32_t routes) {
    write_shape(path, (struct mp_trace_shape){ranks, experts, layers, 1, 2}, routes);
}

static int predict(const struct mp_predict_job *job, const struct mp_cluster *cluster,
                   struct mp_prediction_summary *summary, struct mp_error *error) {
    return mp_predict_job_run(job, cluster, NULL, NULL, summary, error);
}

/* 16 ranks, 32 experts, 3 layers; 2 sequences of 64 tokens per rank to 2 experts: 8 routes of a
 * source for an expert. */
static const struct {
    const char *loads;
    bool fit;
    int code;
    const char *says;
} fitting[] = {
    {"zipf exponent=0.5", false, MP_OK, ""},
    {"w6 period=2", false, MP_OK, ""},
    {"good.mptrace", false, MP_OK, ""},
    {"few.mptrace", true, MP_OK, ""},
    {"many-routes.mptrace", true, MP_OK, ""},
    {"few.mptrace", false, MP_EINVAL,
     "few.mptrace has 4 ranks, 2 layers, 8 experts, 1 micro-batch and 2 experts per token; the "
     "prediction has 16 ranks, 3 layers, 32 experts, 1 micro-batch and 2 experts per token: "
     "set those to the loads', or have the loads fitted (--fit"},
    {"one.mptrace", false, MP_EINVAL,
     "one.mptrace has 1 rank, 1 layer, 4 experts, 1 micro-batch and 1 expert per token; the "},
    {"six.mptrace", false, MP_EINVAL,
     "16 ranks, 3 layers, 32 experts, 1 micro-batch and 2 experts per token: set those to the "
     "loads' (gate=softmax top-k=6); experts per token are never fitted"},
    {"six.mptrace", true, MP_EINVAL, "(gate=softmax top-k=6); experts per token are never"},
    {"zipf top-k=4", true, MP_EINVAL, "(gate=softmax top-k=4); experts per token are never"},
    {"many.mptrace", false, MP_EINVAL,
     "many.mptrace has 3 ranks, 2 layers, 4 experts, 2 micro-batches and an unknown number of "
     "experts per token; the "},
    {"many-routes.mptrace", false, MP_EINVAL, "iteration 0 has 25600 routes"},
    {"zipf tokens=999", false, MP_EINVAL, "(16 ranks with 128 tokens to 2 experts each)"},
    {"zipf ranks=8", false, MP_EINVAL, "has 8 ranks, 3 layers"},
    {"zipf exponent", false, MP_EINVAL, "\"exponent\" should be option=value"},
    {"zipf exponent=4", false, MP_EINVAL, "none can have more than 0.5"},
    {"zpif", false, MP_ENOTFOUND, "did you mean \"zipf\"?"},
    {"gone.mptrace", false, MP_ENOTFOUND, "gone.mptrace"},
    {"cut.mptrace", false, MP_EFORMAT, "cut.mptrace: the file is cut"},
    {"words.mptrace", false, MP_EFORMAT, "words.mptrace"},
    {"odd.mptrace", true, MP_EINVAL, ""},
    {"sum.mptrace", false, MP_OK, ""},
    {"short.json", false, MP_EINVAL, "short.json has 1 rank, 1 layer, 2 experts"},
    {"", false, MP_EINVAL, "loads: not given"},
};

static int enter_with_loads(void **state) {
    int failed = enter(state);
    write_trace("good.mptrace", 16, 32, 3, 8);
    write_trace("few.mptrace", 4, 8, 2, 50);
    write_trace("many-routes.mptrace", 16, 32, 3, 50);
    write_trace("odd.mptrace", 5, 7, 3, 8);
    write_shape("six.mptrace", (struct mp_trace_shape){16, 32, 3, 1, 6}, 24);
    write_shape("one.mptrace", (struct mp_trace_shape){1, 4, 1, 1, 1}, 8);
    write_shape("many.mptrace", (struct mp_trace_shape){3, 4, 2, 2, 0}, 8);
    write_shape("sum.mptrace", (struct mp_trace_shape){1, 32, 3, 1, 0}, 999);
    write_file("short.json", "{\"logical_count\": [[0, 0], [3, 5]]}");
    write_file("words.mptrace", "no trace\n");
    assert_int_equal(system("head -c -10 good.mptrace > cut.mptrace"), 0);
    return failed;
}

TEST_ROWS(loads_fit_or_say_why_not, fitting, row) {
    AUTO(job) struct mp_predict_job job;
    AUTO(cluster) struct mp_cluster *cluster = make_job(&job, "system=ep");
    struct mp_prediction_summary summary;
    strcpy(job.loads, row->loads);
    job.fit = row->fit;
    assert_fails(predict(&job, cluster, &summary, &error), row->code, row->says);
    if (row->code == MP_OK)
        assert_int_equal(summary.iterations, strstr(job.loads, "mptrace") ? 3 : 7);
}

/* What the trainer would replay (reference/model/replay.h). */
TEST(routing_is_replayed_as_in_training) {
    AUTO(job) struct mp_predict_job job;
    AUTO(cluster)
    struct mp_cluster *cluster =
        make_job(&job, "system=ep", "loads=", "routing=skewed", "skew-share=0.4", "skew-experts=3");
    AUTO(stream) struct mp_trace_stream *stream;
    const struct mp_trace_block *block;
    double weight[32];
    uint32_t count[32];
    int blocks = 0;
    mp_replay_skew(32, 3, 0.4, weight);
    assert_works(mp_replay_apportion(32, weight, 256, count, &error));
    assert_works(mp_predict_job_loads(&job, cluster, &stream, &error));
    for (; !mp_trace_next(stream, &block, NULL) && block; blocks++)
        for (int r = 0; r < 16; r++)
            assert_memory_equal(block->load.count + r * 32, count, sizeof count);
    assert_int_equal(blocks, 7 * 3);
    char workload[64];
    assert_string_equal(mp_predict_job_workload(&job, workload, sizeof workload),
                        "skewed 0.40 on 3");
}

/* Numbers of a rank's routes, which are apportioned to its tokens. */
TEST(a_load_is_replayed_by_rank) {
    AUTO(job) struct mp_predict_job job;
    AUTO(cluster)
    struct mp_cluster *cluster =
        make_job(&job, "system=ep", "loads=", "change=nodes=1", "experts=8", "routing=load");
    AUTO(stream) struct mp_trace_stream *stream;
    const struct mp_trace_block *block;
    char load[MP_TEXT_SIZE] = "load=";
    for (int r = 0; r < job.file.job.ranks; r++) /* 256 routes: 16 for each of 16 parts */
        strcat(load, r % 2 ? ";4,4,2,2,1,1,1,1" : r ? ";1,2,3,4,3,2,1,0" : "1,2,3,4,3,2,1,0");
    set(&job, load);
    static const uint32_t expected[2][8] = {{16, 32, 48, 64, 48, 32, 16, 0},
                                            {64, 64, 32, 32, 16, 16, 16, 16}};
    assert_works(mp_predict_job_loads(&job, cluster, &stream, &error));
    assert_works(mp_trace_next(stream, &block, &error));
    for (int r = 0; r < job.file.job.ranks; r++)
        assert_memory_equal(block->load.count + r * 8, expected[r % 2], sizeof *expected);
}

static const struct {
    int experts;
    uint32_t routes; /* of a source to each expert; half as many tokens */
    int micro_batches, sequence, adopted, batch;
} sequences[] = {
    {48, 24, 1, 96, 96, 16 * 6},     {48, 24, 1, 128, 576, 16},        {48, 24, 1, 100, 576, 16},
    {48, 24, 2, 96, 96, 2 * 16 * 6}, {48, 24, 3, 100, 576, 3 * 16},    {32, 4096, 1, 3, 65536, 16},
    {2, 65537, 1, 3, 3, 32},         {32, 4096, 1, 64, 64, 16 * 1024},
};

/* 16 ranks' tokens of a trace make sequences as long as the job's if that many come out even; else
 * one of each rank and micro-batch, unless that is too long. */
TEST_ROWS(tokens_of_a_trace_become_sequences, sequences, row) {
    AUTO(job) struct mp_predict_job job;
    AUTO(cluster) struct mp_cluster *cluster = make_job(&job, "system=ep", "loads=tokens.mptrace");
    write_shape("tokens.mptrace",
                (struct mp_trace_shape){16, row->experts, 5, row->micro_batches, 2}, row->routes);
    job.file.job.sequence = row->sequence;
    assert_works(mp_predict_job_adopt(&job, cluster, &error));
    assert_numbers(job.file.job.sequence, row->adopted, job.file.job.batch, row->batch);
    assert_numbers(job.file.job.layers, 5, job.file.job.experts, row->experts);
    assert_int_equal(job.options.micro_batches, row->micro_batches);
}

/* 600 tokens of nobody: 37 of each rank. */
TEST(tokens_that_are_split_leave_no_rest) {
    AUTO(job) struct mp_predict_job job;
    AUTO(cluster) struct mp_cluster *cluster = make_job(&job, "system=ep", "loads=tokens.mptrace");
    write_shape("tokens.mptrace", (struct mp_trace_shape){1, 48, 5, 1, 2}, 25);
    assert_works(mp_predict_job_adopt(&job, cluster, &error));
    assert_numbers(job.file.job.sequence, 37, job.file.job.batch, 16);
    assert_works(mp_predict_job_check(&job, cluster, &error));
}

/* Without a file there is nothing to take sizes from. */
TEST_TURNS(generated_loads_leave_a_job_as_it_is, 2, i) {
    static const char *const loads[] = {"loads=", "loads=w6 period=2"};
    AUTO(job) struct mp_predict_job job;
    AUTO(cluster) struct mp_cluster *cluster = make_job(&job, "system=ep", loads[i]);
    assert_works(mp_predict_job_adopt(&job, cluster, &error));
    assert_numbers(job.file.job.layers, 3, job.file.job.experts, 32, job.file.job.sequence, 64);
}

/* A trace that was ended before its first iteration has a shape, and no tokens to count. */
TEST(an_empty_trace_says_no_tokens) {
    AUTO(job) struct mp_predict_job job;
    AUTO(cluster) struct mp_cluster *cluster = make_job(&job, "system=ep", "loads=empty.mptrace");
    char words[] = "a test";
    struct mp_trace_info info = {.shape = {16, 48, 5, 1, 1}, .source = words, .notes = words};
    struct mp_trace_writer *writer;
    assert_works(mp_trace_writer_create("empty.mptrace", &info, &writer, &error));
    assert_works(mp_trace_writer_finish(writer, true, &error));
    assert_works(mp_predict_job_adopt(&job, cluster, &error));
    assert_numbers(job.file.job.layers, 5, job.file.job.experts, 48, job.file.job.sequence, 64);
    assert_int_equal(job.file.job.batch, 2 * 16);
}

/* 32768 ranks and 65536 micro-batches of one token each: no job has 2^31 sequences. */
TEST(sequences_beyond_counting_are_not_adopted) {
    AUTO(job) struct mp_predict_job job;
    AUTO(cluster) struct mp_cluster *cluster = make_job(&job, "system=ep", "change=nodes=4096");
    assert_int_equal(mp_cluster_ranks(cluster), 32768);
    write_shape("beyond.mptrace", (struct mp_trace_shape){1, 2, 1, 65536, 2}, 32768);
    set(&job, "loads=beyond.mptrace");
    job.file.job.sequence = 3;
    job.file.job.batch = 5;
    assert_works(mp_predict_job_adopt(&job, cluster, &error));
    assert_numbers(job.file.job.sequence, 3, job.file.job.batch, 5);
    assert_int_equal(job.options.micro_batches, 65536);
}

/* A job that replays a trace is predicted on it; what else a trace is said to be is not read. */
TEST(a_replayed_trace_is_predicted) {
    AUTO(job) struct mp_predict_job job;
    AUTO(cluster)
    struct mp_cluster *cluster =
        make_job(&job, "system=ep", "loads=", "trace=replayed.mptrace", "routing=balanced");
    struct mp_prediction_summary summary;
    write_trace("replayed.mptrace", 16, 32, 3, 8);
    assert_works(predict(&job, cluster, &summary, &error));
    assert_int_equal(summary.iterations, 7);
    set(&job, "routing=trace");
    assert_works(predict(&job, cluster, &summary, &error));
    assert_int_equal(summary.iterations, 3);
}

/* write_shape's are 0, 10 and 20. */
TEST(iterations_are_called_what_the_trace_calls_them) {
    AUTO(job) struct mp_predict_job job;
    AUTO(cluster) struct mp_cluster *cluster = make_job(&job, "system=ep", "loads=gaps.mptrace");
    struct seen seen = {0};
    const struct mp_predict_sink sink = {.context = &seen, .span = see_span, .load = see_load};
    const struct mp_predict_watch watch = {&seen, see_step, NULL};
    struct mp_prediction_summary summary;
    write_trace("gaps.mptrace", 16, 32, 3, 8);
    assert_works(mp_predict_job_run(&job, cluster, &sink, &watch, &summary, &error));
    for (int who = 0; who < 3; who++)
        assert_numbers(seen.next[who], 21, seen.changes[who], 3);
    set(&job, "loads=w6 first-iteration=2147483646");
    assert_fails(mp_predict_job_run(&job, cluster, NULL, NULL, &summary, &error), MP_ELIMIT,
                 "loads: iteration 2147483648: ");
}

/* SGLang's recorder sums up a run: proportions of experts, which any ranks and tokens can have. */
TEST(sums_of_a_run_need_no_flag) {
    AUTO(job) struct mp_predict_job job;
    AUTO(cluster) struct mp_cluster *cluster = make_job(&job, "system=ep", "loads=sum.json");
    AUTO(stream) struct mp_trace_stream *stream;
    const struct mp_trace_block *block = NULL;
    write_file("sum.json", "{\"logical_count\": [[0, 0, 0, 0], [11200, 3200, 1600, 3200]]}");
    assert_works(mp_predict_job_adopt(&job, cluster, &error));
    assert_numbers(job.file.job.layers, 1, job.file.job.experts, 4);
    assert_int_equal(job.file.job.batch, 2 * job.file.job.ranks); /* as it was */
    struct mp_error error = {0};
    if (mp_predict_job_loads(&job, cluster, &stream, &error) ||
        mp_trace_next(stream, &block, &error))
        fail_msg("%s", error.text);
    /* 128 tokens to 2 of 4 experts; none has more than the tokens, 7/12 of 256 would be 149 */
    static const uint32_t row[] = {128, 51, 26, 51};
    for (int rank = 0; rank < job.file.job.ranks; rank++)
        assert_memory_equal(block->load.count + (size_t)rank * 4, row, sizeof row);
}

TEST(a_shape_of_a_known_model_is_adopted) {
    AUTO(job) struct mp_predict_job job;
    AUTO(cluster) struct mp_cluster *cluster = make_job(&job, "system=ep", "loads=v3.json");
    FILE *file = fopen("v3.json", "w");
    fputs("{\"logical_count\": [", file);
    for (int layer = 0; layer < 61; layer++) {
        fputs(layer ? ",[" : "[", file);
        for (int expert = 0; expert < 256; expert++)
            fprintf(file, "%s%d", expert ? "," : "", layer < 3 ? 0 : 8);
        fputs("]", file);
    }
    fputs("]}", file);
    fclose(file);
    assert_works(mp_predict_job_adopt(&job, cluster, &error));
    const struct mp_job *sizes = &job.file.job;
    const int has[] = {sizes->layers, sizes->experts,      mp_job_top_k(sizes),   sizes->width,
                       sizes->heads,  sizes->expert_width, sizes->shared_experts, 3};
    const int published[] = {58, 256, 8, 7168, 128, 2048, 1, job.options.expert_matrices};
    assert_memory_equal(has, published, sizeof has);
}

/* ---- running ---- */

/* fssdp copies, deepspeed drops. */
TEST_TURNS(a_summary_is_of_its_iterations, 6, turn) {
    bool drops = turn / 3;
    int stop_after = 3 * (turn % 3); /* 0: to the end */
    struct seen seen;
    struct mp_prediction_summary summary;
    double sum = 0;
    watch_job(drops ? "deepspeed" : "fssdp", stop_after, &seen, &summary);
    assert_int_equal(seen.steps, stop_after ? stop_after : 7);
    assert_int_equal(summary.iterations, seen.steps);
    for (int i = 0; i < seen.steps; i++)
        sum += seen.seconds[i];
    assert_close(summary.seconds_mean, sum / seen.steps, 1e-12 * sum);
    qsort(seen.seconds, (size_t)seen.steps, sizeof *seen.seconds, test_compare_doubles);
    double median = seen.steps % 2
                        ? seen.seconds[seen.steps / 2]
                        : (seen.seconds[seen.steps / 2 - 1] + seen.seconds[seen.steps / 2]) / 2;
    assert_true(summary.seconds_median == median);
    assert_true(summary.seconds_median > 0);
    int means = 0;
    for (const struct mp_named_number *row = mp_prediction_means; row->name; row++, means++)
        assert_close(mp_named_value(row, &summary.mean),
                     mp_named_value(row, &seen.sum) / seen.steps, 1e-12);
    assert_int_equal(means, 16); /* of all doubles but the bytes and the bound */
    assert_int_equal(summary.mean.routes, seen.sum.routes);
    assert_int_equal(summary.mean.routes, (int64_t)seen.steps * 3 * 16 * 128 * 2);
    assert_numbers(summary.mean.dropped, seen.sum.dropped, summary.mean.copies, seen.sum.copies);
    assert_true(drops ? seen.sum.dropped > 0 : seen.sum.copies > 0);
    for (int stage = 0; stage < MP_STAGES; stage++)
        assert_close(summary.mean.bytes[stage], seen.sum.bytes[stage], 0);
    assert_close(summary.mean.exchanged_bytes, seen.sum.exchanged_bytes, 0);
    assert_close(summary.tokens_per_second, 16 * 128 / median, 1e-6);
}

/* The last one is the first one's job again, which says the same bits. */
TEST(all_systems_meet_the_same_loads) {
    static const char *const others[] = {"ep", "fastermoe", "free-balance", "fssdp"};
    struct seen first, seen;
    struct mp_prediction_summary summary, again;
    watch_job("fssdp", 0, &first, &summary);
    assert_true(first.loads != 0);
    for (int i = 0; i < 4; i++) {
        watch_job(others[i], 0, &seen, &again);
        assert_true(seen.loads == first.loads);
    }
    assert_memory_equal(&summary, &again, sizeof again);
}

/* FlexMoE's experts move after every other iteration: in the open, or under the next one, where the
 * same bytes take their time of the background. */
TEST(moves_hide_under_the_next_iteration) {
    static const char *const ways[] = {"options.moves=exposed", "options.moves=asynchronous"};
    struct mp_prediction_summary summary[2];
    for (int way = 0; way < 2; way++) {
        AUTO(job) struct mp_predict_job job;
        AUTO(cluster) struct mp_cluster *cluster = make_job(&job, "system=flexmoe");
        set(&job, "loads=w6 period=2 heat=0.4 seed=5", "options.interval=2", ways[way]);
        assert_works(predict(&job, cluster, &summary[way], &error));
        assert_true(summary[way].mean.bytes[MP_STAGE_AFTER_STEP] > 0);
    }
    assert_true(summary[0].mean.move_seconds > 0);
    assert_close(summary[1].mean.move_seconds, 0, 0);
    assert_true(summary[1].mean.transfer_seconds > summary[0].mean.transfer_seconds);
}

/* ---- assumptions ---- */

static char said[1 << 16]; /* "\n", and lines */

static void take_line(UNUSED void *context, const char *text) {
    strcat(strcat(said, text), "\n");
}

/* How many lines of a job's assumptions begin so. */
static int assumed(const struct mp_predict_job *job, const struct mp_cluster *cluster,
                   const char *beginning) {
    int count = 0;
    strcpy(said, "\n");
    assert_works(mp_predict_job_assumptions(job, cluster, take_line, NULL, &error));
    for (const char *at = said; (at = strstr(at, formatted("\n%s", beginning))); at++)
        count++;
    return count;
}

static void count_assumed(void *context, const char *place, UNUSED const char *unit,
                          const struct mp_quantity *quantity) {
    *(int *)context += quantity->assumed && strncmp(place, "device.efficiency", 17) != 0;
}

TEST(assumptions_are_what_nobody_said) {
    static const char of_levels[] = "exchange two-level: messages of level",
                      of_leader[] = "hetumoe exchange leader: messages of level",
                      of_slots[] = "hetumoe slots as-released: ";
    AUTO(job) struct mp_predict_job job;
    AUTO(cluster)
    struct mp_cluster *cluster = make_job(&job, "system=ep", "predict.precision=fp32");
    int of_cluster = 0;
    mp_cluster_each(cluster, count_assumed, &of_cluster);
    assert_in_range(assumed(&job, cluster, "cluster: "), of_cluster,
                    of_cluster + 1); /* efficiency */
    assert_int_equal(strncmp(said, "\nloads: generator zipf", 22), 0);
    assert_int_equal(assumed(&job, cluster, "predict.reserve 0.1 (default)"), 1);
    assert_int_equal(assumed(&job, cluster, "predict.precision"), 0);
    assert_numbers(assumed(&job, cluster, "predict.optimizer-bytes"), 1,
                   assumed(&job, cluster, "predict.cache-width"), 0);
    set(&job, "mode=decode");
    assert_numbers(assumed(&job, cluster, "predict.optimizer-bytes"), 0,
                   assumed(&job, cluster, "predict.cache-width"), 1);
    assert_numbers(assumed(&job, cluster, of_levels), 0, assumed(&job, cluster, of_leader), 0);
    set(&job, "exchange=two-level");
    assert_int_equal(assumed(&job, cluster, of_levels), 2); /* node and cluster */
    assert_works(mp_cluster_set(cluster, "levels.cluster.message-cost=4e-6", &error));
    assert_numbers(assumed(&job, cluster, of_levels), 1, assumed(&job, cluster, of_leader), 0);
    set(&job, "system=hetumoe", "exchange=flat");
    assert_numbers(assumed(&job, cluster, of_levels), 0, assumed(&job, cluster, of_leader), 1);
    set(&job, "options.exchange=flat");
    assert_numbers(assumed(&job, cluster, of_leader), 0, assumed(&job, cluster, of_slots), 0);
    set(&job, "options.slots=as-released");
    assert_int_equal(assumed(&job, cluster, of_slots), 1);
}

TEST_GROUP(enter_with_loads, leave_folder);
