/* Suites: what a good one becomes, and the sentence for each way of being wrong. */
#include "harness/suite/paths.h"
#include "harness/suite/suite.h"
#include "harness/workload/named.h"
#include "reference/trainer/loads_file.h"

#include "tests/errors.h"
#include "tests/harness/folder.h"
#include "tests/harness/predict/ends.h"

TEST_END(suite, struct mp_suite, mp_suite_destroy(it))

struct plain_options {
    int window;
};
static const struct mp_option plain_options[] = {
    {"window", MP_OPTION_INT, offsetof(struct plain_options, window), "iterations", "5", 1, 100,
     NULL, "seen loads"},
    {0},
};
static const struct mp_system plain = {.abi = MP_SYSTEM_ABI,
                                       .name = "plain",
                                       .options = plain_options,
                                       .options_size = sizeof(struct plain_options)};
static const struct mp_system bare = {.abi = MP_SYSTEM_ABI, .name = "bare"};
static const struct mp_systems systems = {.item = {&plain, &bare}, .count = 2};

static const char good_suite[] = "suite: good\n"
                                 "description: shows something\n"
                                 "repeat: 3\n"
                                 "timeout: 12.5\n"
                                 "common:\n"
                                 "  ranks: 2\n"
                                 "  layers: 3\n"
                                 "  text: words\n"
                                 "jobs:\n"
                                 "  - system: bare\n"
                                 "    layers: 5\n"
                                 "  - {name: tuned, system: plain, options: {window: 7}}\n"
                                 "  - {name: untuned, system: plain}\n";

static int load(const char *text, const struct mp_suite_changes *changes, struct mp_suite *suite,
                struct mp_error *error) {
    write_file("suite.yaml", text);
    return mp_suite_load("suite.yaml", &systems, changes, suite, error);
}

static int window_of(const struct mp_job_file *file) {
    return ((const struct plain_options *)file->system_options)->window;
}

TEST(jobs_are_common_options_and_their_own) {
    AUTO(suite) struct mp_suite suite;
    assert_works(load(good_suite, NULL, &suite, &error));
    assert_string_equal(suite.name, "good");
    assert_string_equal(suite.description, "shows something");
    assert_numbers(suite.repeat, 3, suite.timeout, 12.5);
    assert_string_equal(suite.text, good_suite);
    assert_int_equal(suite.count, 3);
    assert_string_equal(suite.job[0].file.job.name, "bare"); /* the system's */
    assert_numbers(suite.job[0].file.job.layers, 5, suite.job[0].file.job.ranks, 2);
    assert_int_equal(suite.job[0].file.job.width, 128); /* the default */
    assert_string_equal(suite.job[1].file.job.name, "tuned");
    assert_int_equal(suite.job[1].file.job.layers, 3);
    assert_int_equal(window_of(&suite.job[1].file), 7);
    assert_int_equal(window_of(&suite.job[2].file), 5);
    assert_int_equal(suite.line[1], 12);
}

TEST(common_may_have_nothing_under_it) {
    AUTO(suite) struct mp_suite suite;
    assert_works(
        load("suite: s\ncommon:\njobs:\n- {system: bare, text: words}\n", NULL, &suite, &error));
    assert_numbers(suite.repeat, 1, suite.timeout, 3600);
}

TEST(the_command_line_has_the_last_word) {
    static const char *const set[] = {"layers=9", "repeat=1", "timeout=3", "options.window=2"};
    write_file("other words", "text");
    const struct mp_suite_changes changes = {.set = set, .set_count = 4, .text = "other words"};
    AUTO(suite) struct mp_suite suite;
    assert_works(load(good_suite, &changes, &suite, &error));
    assert_numbers(suite.repeat, 1, suite.timeout, 3);
    for (int i = 0; i < suite.count; i++) {
        assert_int_equal(suite.job[i].file.job.layers, 9);
        assert_string_equal(suite.job[i].file.job.text, "other words");
    }
    assert_int_equal(window_of(&suite.job[1].file),
                     2); /* bare has no such option and is left alone */
    assert_int_equal(window_of(&suite.job[2].file), 2);
}

/* A trace file, or a generator, whose digest tells workloads apart. */
TEST(traces_are_read_with_their_suite) {
    static const char text[] =
        "suite: s\n"
        "common: {text: words, ranks: 2, layers: 3, experts: 8, batch: 4, sequence: 32,\n"
        "  iterations: 3, routing: trace, system: bare}\n"
        "jobs:\n"
        "  - {name: file, trace: zipf.mptrace, iterations: 2}\n"
        "  - {name: same, trace: zipf exponent=1 seed=4}\n"
        "  - {name: other, trace: zipf exponent=1 seed=5}\n";
    const struct mp_trace_wanted wanted = {{2, 8, 3, 1, 2}, 64, 3};
    const struct mp_trace_block *block;
    struct mp_trace_stream *stream;
    struct mp_trace_writer *writer;
    AUTO(suite) struct mp_suite suite;
    char workload[64];
    assert_works(mp_trace_open_named("zipf seed=4 exponent=1", &wanted, &stream, &error));
    assert_works(
        mp_trace_writer_create("zipf.mptrace", mp_trace_stream_info(stream), &writer, &error));
    struct mp_error ended = {0};
    while (mp_trace_next(stream, &block, &ended) == MP_OK && block)
        assert_works(mp_trace_write(writer, block, &error));
    assert_works(mp_trace_writer_finish(writer, true, &error));
    mp_trace_stream_destroy(stream);

    assert_works(load(text, NULL, &suite, &error));
    const char *digest = suite.job[0].file.job.trace_digest;
    assert_int_equal(strlen(digest), 8);
    assert_string_equal(suite.job[1].file.job.trace_digest, digest);
    assert_string_not_equal(suite.job[2].file.job.trace_digest, digest);
    assert_string_equal(mp_job_workload(&suite.job[0].file.job, workload, sizeof workload) + 6,
                        digest);

    /* What the ranks get: the iterations that the job needs, for each its row. */
    const struct mp_loads_shape shape = {2, 8, 3, 2, 64, false};
    struct mp_loads loads;
    assert_works(mp_suite_write_loads(&suite.job[0].file.job, "loads", &error));
    assert_string_equal(suite.job[0].file.job.trace_loads, "loads");
    assert_works(mp_loads_read("loads", &shape, 1, &loads, &error));
    assert_int_equal(loads.iterations, 2);
    assert_int_equal(strtoul(digest, NULL, 16), loads.digest);
    assert_works(mp_trace_open("zipf.mptrace", &stream, &error));
    for (int i = 0; i < 2 * 3; i++) {
        assert_works(mp_trace_next(stream, &block, &error));
        assert_memory_equal(mp_loads_row(&loads, i / 3, i % 3, 0), block->load.count + 8,
                            8 * sizeof *loads.count);
    }
    mp_trace_stream_destroy(stream);
    mp_loads_destroy(&loads);
}

TEST(one_text_of_some_may_be_empty) {
    AUTO(suite) struct mp_suite suite;
    write_file("empty", "");
    assert_works(
        load("{suite: s, jobs: [{system: bare, text: 'words:empty'}]}", NULL, &suite, &error));
}

TEST(the_default_text_is_found) {
    static const char text[] = "{suite: s, jobs: [{system: bare, text: default}]}";
    AUTO(suite) struct mp_suite suite;
    setenv("MOEPERF_TEXT", "words", 1);
    assert_works(load(text, NULL, &suite, &error));
    assert_string_equal(suite.job[0].file.job.text, "words");
    mp_suite_destroy(&suite);
    setenv("MOEPERF_TEXT", "gone", 1);
    assert_sentence(load(text, NULL, &suite, &error), MP_ENOTFOUND,
                    "suite.yaml:1: job bare: MOEPERF_TEXT=gone: No such file or directory");
    unsetenv("MOEPERF_TEXT");
    assert_int_equal(
        mkdir("out", 0777) || mkdir("out/text", 0777) || mkdir("out/text/corpus", 0777), 0);
    assert_sentence(load(text, NULL, &suite, &error), MP_EINVAL,
                    "suite.yaml:1: job bare: text: out/text/corpus: there is not one byte in it; "
                    "files of text, or folders with some, are right");
    write_file("out/text/corpus/file", "text");
    assert_works(load(text, NULL, &suite, &error));
    assert_string_equal(suite.job[0].file.job.text, "out/text/corpus");
}

struct wrong_case {
    const char *text, *message;
};

/* Suites, and what is said of them behind the name of the file. */
#define JOBS "suite: s\njobs:\n  - "
#define BARE "jobs: [{system: bare, text: words}]\n"
static const struct wrong_case wrong_cases[] = {
    {"suite: s\nrepaet: 2\n" BARE,
     ":2: unknown option \"repaet\" for a suite; did you mean \"repeat\"?"},
    {"suite: s\njosb: []\n", ":2: unknown option \"josb\" for a suite; did you mean \"jobs\"?"},
    {JOBS "system: bare\n    expert: 4\n",
     ":4: unknown option \"expert\" for a job; did you mean \"experts\"?"},
    {"suite: s\ncommon:\n  layer: 2\n" BARE,
     ":3: unknown option \"layer\" for a job; did you mean \"layers\"?"},
    {JOBS "system: plian\n", ":3: unknown system \"plian\"; did you mean \"plain\"?"},
    {JOBS "system: plain\n    options:\n      windw: 3\n",
     ":5: unknown option \"windw\" for system plain; did you mean \"window\"?"},
    {"suite: s\nrepeat: often\n" BARE, ":2: repeat: \"often\" is not a number 1 .. 10000 rounds"},
    {"suite: s\ntimeout: -1\n" BARE, ":2: timeout: -1 is outside 0.1 .. 10000000 s"},
    {"suite: [s]\n" BARE, ":1: suite: should be one value: a text of at most 4095 characters"},
    {BARE, ":1: suite: not given; a suite needs a text of at most 4095 characters: name of the "
           "suite"},
    {"suite: s\n", ":1: jobs: not given; a suite needs a list of 1 to 4096, each a job: its own "
                   "options, over the common ones"},
    {"suite: s\njobs: []\n", ":2: jobs: should be a list of 1 to 4096, each a job"},
    {"suite: s\njobs: {system: bare}\n", ":2: jobs: should be a list of 1 to 4096, each a job"},
    {JOBS "bare\n", ":3: a job should be a mapping of options, key: value"},
    {JOBS "{ranks: 2}\n", ":3: system: not given for this job; moeperf list systems names them"},
    {JOBS "{system: bare}\n  - {system: bare}\n",
     ":4: name: \"bare\" is already the job of line 3; give each its own"},
    {JOBS "{system: bare, text: \"words:gone\"}\n",
     ":3: job bare: text: gone: No such file or directory"},
    {JOBS "{system: bare, text: words, routing: trace}\n",
     ":3: job bare: trace: not given, but routing is trace"},
    {JOBS "{system: bare, text: words, routing: trace, trace: gone.mptrace}\n",
     ":3: job bare: can't open gone.mptrace: No such file or directory"},
    {JOBS "{system: bare, text: words, routing: trace, trace: gone.csv}\n",
     ":3: job bare: gone.csv: No such file or directory"},
    {"suite: s\ncommon: {text: words, routing: trace, batch: 4, ranks: 2}\njobs:\n"
     "  - {system: bare, trace: zipf ranks=4 layers=3 micro-batches=2}\n",
     ":4: job bare: trace: zipf ranks=4 layers=3 micro-batches=2 has 4 ranks, 3 "
     "layers, 16 experts, 2 micro-batches and 2 experts per token; the job has 2 ranks, 4 layers, "
     "16 experts, 1 micro-batch and 2 experts per token.  moeperf reshape makes a trace of another "
     "shape, but for experts per token, which top-k says"},
    {"suite: s\ncommon: {text: words, routing: trace, batch: 4, ranks: 2, sequence: 8}\njobs:\n"
     "  - {system: bare, trace: balanced tokens=15}\n",
     ":4: job bare: trace: balanced tokens=15: iteration 0, layer 0: source 0 has 30 "
     "routes, but the job's 16 tokens of a rank with 2 experts each have 32"},
    {JOBS "{system: bare, text: words, routing: trace, trace: zipf 1}\n",
     ":3: job bare: zipf: \"1\" should be option=value"},
    {"suite: s\ncommon: {text: words}\njobs:\n  - {system: bare, ranks: 3, batch: 3}\n",
     ":4: job bare: experts: 16 experts can't be divided evenly over 3 ranks, which "
     "system bare needs; take a multiple of ranks"},
    {"suite: s\ncommon: {text: words}\njobs:\n  - {system: bare, ranks: 4, experts: 2}\n",
     ":4: job bare: ranks: 4 ranks are more than the 2 experts of a layer; with system "
     "bare every rank needs one at least"},
    {JOBS "{system: bare, text: words, loads: zipf}\n",
     ":3: job bare has a cluster or loads, which are for predictions, and no job of the suite says "
     "executor: predicted"},
    {JOBS "{system: bare, executor: predicted}\n",
     ":3: job bare: cluster: not given; a prediction needs --cluster with the name of "
     "one (moeperf list clusters) or a file"},
    {JOBS "{system: bare, executor: predicted, cluster: h10}\n",
     ":3: job bare: no ready-made cluster is called \"h10\"; did you mean \"h100\"? "
     "(moeperf list clusters names them; a file's name ends in .yaml)"},
    {JOBS "{system: bare, executor: predicted, cluster: gone.yaml}\n",
     ":3: job bare: gone.yaml: No such file or directory (moeperf list clusters names "
     "the ready-made ones)"},
    {"- suite\n", ":1: a suite should be a mapping of options, key: value"},
    {"suite: [s\n", ":2:1: while parsing a flow sequence, did not find expected ',' or ']'"},
};

TEST_ROWS(wrong_suites_are_refused, wrong_cases, c) {
    struct mp_suite suite;
    struct mp_error error = {0};
    assert_true(load(c->text, NULL, &suite, &error) < 0);
    assert_string_equal(error.text, formatted("suite.yaml%s", c->message));
}

/* One --set on the good suite. */
static const struct wrong_case wrong_sets[] = {
    {"layer=2", "--set: unknown option \"layer\" for a job; did you mean \"layers\"?"},
    {"layers=two", "--set: layers: \"two\" is not a number 1 .. 1024 layers"},
    {"repeat=0", "--set: repeat: 0 is outside 1 .. 10000 rounds"},
    {"name=x", "--set: name: jobs of a suite keep their own names"},
    {"layers", "--set layers: should be key=value"},
    {"options.windw=2",
     "--set: unknown option \"windw\" for system plain; did you mean \"window\"?"},
    {"batch=3",
     "suite.yaml:10: job bare: batch: 3 sequences can't be divided evenly over 2 ranks; take a "
     "multiple of ranks"},
};

TEST_ROWS(wrong_sets_are_refused, wrong_sets, c) {
    const struct mp_suite_changes changes = {.set = &c->text, .set_count = 1};
    struct mp_suite suite;
    assert_sentence(load(good_suite, &changes, &suite, &error), MP_EINVAL, c->message);
}

/* A name with a '/' or one that ends in ".yaml" is a file's, wherever it lies. */
TEST(clusters_are_files_by_their_names) {
    static const char *const names[] = {"hecate-b", "own.yaml", "./own"};
    char path[MP_PATH_SIZE], command[MP_PATH_SIZE + 64];
    assert_works(mp_path_file(MP_CLUSTERS, "hecate-b", path, &error));
    snprintf(command, sizeof command, "cp %s own.yaml && cp own.yaml own", path);
    assert_int_equal(system(command), 0);
    for (int i = 0; i < 3; i++) {
        AUTO(job) struct mp_predict_job job;
        AUTO(cluster) struct mp_cluster *cluster;
        assert_works(mp_predict_job_create(&job, &error));
        strcpy(job.cluster, names[i]);
        assert_works(mp_suite_job_cluster(&job, &cluster, &error));
        assert_int_equal(job.file.job.ranks, 32);
    }
}

/* Beside jobs that can be done, a refused one stays, with the reason and where it stands;
 * everything else of it is checked all the same (cli/refusals). */
TEST(refusals_stay_beside_other_jobs) {
    struct mp_suite suite;
    static const char text[] = "suite: s\ncommon: {text: words, ranks: 2, batch: 4}\njobs:\n"
                               "  - {system: bare, experts: 9}\n"
                               "  - {system: plain}\n"
                               "  - {name: few, system: bare, experts: 1, gate: switch}\n";
    assert_works(load(text, NULL, &suite, &error));
    assert_int_equal(suite.count, 3);
    assert_string_equal(suite.refusal[0],
                        "experts: 9 experts can't be divided evenly over 2 ranks, which system "
                        "bare needs; take a multiple of ranks");
    assert_null(suite.refusal[1]);
    assert_string_equal(suite.refusal[2], "ranks: 2 ranks are more than the 1 experts of a layer; "
                                          "with system bare every rank needs one at least");
    mp_suite_destroy(&suite);
    const char *const experts = "experts=9";
    const struct mp_suite_changes changes = {.set = &experts, .set_count = 1};
    assert_sentence(load(text, &changes, &suite, &error), MP_EREFUSED,
                    "suite.yaml:4: job bare: experts: 9 experts can't be divided evenly over 2 "
                    "ranks, which system bare needs; take a multiple of ranks; the other jobs "
                    "(2) are refused, too");
}

static int enter(void **state) {
    int failed = enter_folder(state);
    unsetenv("MOEPERF_TEXT");
    write_file("words", "some words to train on\n");
    return failed;
}

TEST_GROUP(enter, leave_folder);
