/* Jobs: every option from every side, files that come back, sentences for what is wrong. */
#include "reference/trainer/job.h"
#include "tests/errors.h"

/* Two systems that are only described here. */
struct plain_options {
    int window;
    double share;
    bool eager;
    int mode;
    char note[MP_TEXT_SIZE];
    int degree;
};
#define FIELD(member) offsetof(struct plain_options, member)
static const struct mp_option plain_options[] = {
    {"window", MP_OPTION_INT, FIELD(window), "iterations", "5", 1, 100, NULL, "seen loads"},
    {"share", MP_OPTION_DOUBLE, FIELD(share), "", "0.25", 0, 1, NULL, "some share"},
    {"eager", MP_OPTION_BOOL, FIELD(eager), "", "yes", 0, 0, NULL, "some switch"},
    {"mode", MP_OPTION_CHOICE, FIELD(mode), "", "slow", 0, 0, "slow fast", "some choice"},
    {"note", MP_OPTION_TEXT, FIELD(note), "", "", 0, 0, NULL, "some text"},
    {"degree", MP_OPTION_COUNT, FIELD(degree), "experts", "auto", -1, 64, NULL, "some count"},
    {0},
};
static const struct mp_system plain = {.abi = MP_SYSTEM_ABI,
                                       .name = "plain",
                                       .options = plain_options,
                                       .options_size = sizeof(struct plain_options)};
static const struct mp_system uneven = {
    .abi = MP_SYSTEM_ABI, .name = "uneven", .capabilities = MP_SYSTEM_UNEVEN_EXPERTS};

/* One that copies experts if there are more ranks, and remembers what it was asked. */
static struct mp_setting asked;
static int living;
static int tied_create(UNUSED void *self, const struct mp_setting *setting,
                       UNUSED const void *options, struct mp_error *error) {
    asked = *setting;
    living++;
    if (setting->topology.ranks % setting->experts)
        return mp_fail(error, MP_EINVAL, "tied: %d ranks are no multiple of %d experts",
                       setting->topology.ranks, setting->experts);
    return MP_OK;
}
static void tied_destroy(UNUSED void *self) {
    living--;
}
static const struct mp_system tied = {.abi = MP_SYSTEM_ABI,
                                      .name = "tied",
                                      .capabilities = MP_SYSTEM_MORE_RANKS,
                                      .size = 1,
                                      .create = tied_create,
                                      .destroy = tied_destroy};
static const struct mp_systems systems = {.item = {&plain, &uneven, &tied}, .count = 3};

TEST_END(job, struct mp_job_file, mp_job_file_destroy(it))

/* Defaults and then the mapping `text`; returns the code of applying it. */
static int apply(struct mp_job_file *file, const char *text, struct mp_error *error) {
    struct mp_yaml *document = NULL;
    assert_int_equal(mp_yaml_parse("job.yaml", text, strlen(text), &document, error), MP_OK);
    assert_int_equal(mp_job_file_create(file, error), MP_OK);
    int code = mp_job_apply(file, NULL, document, "job.yaml", &systems, error);
    mp_yaml_destroy(document);
    return code;
}

TEST(table_is_sound) {
    assert_works(mp_options_check(mp_job_options, sizeof(struct mp_job), "a job", &error));
}

TEST(defaults_are_a_small_model) {
    AUTO(job) struct mp_job_file file;
    assert_int_equal(mp_job_file_create(&file, NULL), MP_OK);
    const struct mp_job *job = &file.job;
    assert_numbers(job->ranks, 1, job->ranks_per_node, MP_ALL, job->layers, 4, job->experts, 16);
    assert_int_equal(job->gate, mp_gate_find("gshard"));
    assert_int_equal(mp_job_top_k(job), 2);
    assert_numbers(job->routing, MP_ROUTING_GATE, job->iterations, 100, job->learning_rate, 1e-3);
    assert_close(job->beta2, 0.95, 0);
    assert_true(job->record);
    assert_false(job->check_plans);
    assert_string_equal(job->system, "");
    assert_string_equal(job->text, "");
    assert_null(file.system);
}

/* A random value that `option` takes, as text. */
static void random_value(const struct mp_option *option, uint64_t *seed, char *text) {
    double span = option->maximum - option->minimum;
    switch (mp_option_kind(option)) {
    case MP_OPTION_INT:
    case MP_OPTION_INT64:
        sprintf(text, "%.0f", floor(option->minimum + test_random_double(seed) * span));
        break;
    case MP_OPTION_DOUBLE:
        sprintf(text, "%.17g", option->minimum + test_random_double(seed) * span);
        break;
    case MP_OPTION_BOOL:
        strcpy(text, test_random_int(seed, 0, 1) ? "yes" : "no");
        break;
    case MP_OPTION_COUNT:
        if (test_random_int(seed, 0, 3) == 0)
            strcpy(text, "all");
        else
            sprintf(text, "%d", test_random_int(seed, 1, (int)option->maximum));
        break;
    case MP_OPTION_CHOICE: {
        int word = test_random_int(seed, 0, 1);
        const char *words = option->of, *start = word ? strchr(words, ' ') + 1 : words;
        sprintf(text, "%.*s", (int)strcspn(start, " "), start);
        break;
    }
    case MP_OPTION_TEXT: {
        static const char letters[] = "ab/:; #\"'\\{}[],&*-?|%@`\t\n!=";
        int length = test_random_int(seed, 1, 60);
        for (int i = 0; i < length; i++)
            text[i] = letters[test_random_int(seed, 0, (int)sizeof letters - 2)];
        text[length] = '\0';
        break;
    }
    default: /* in files only */
        fail();
    }
}

static void set(struct mp_job_file *file, const char *prefix, const char *name, const char *value) {
    assert_works(
        mp_job_set(file, NULL, formatted("%s%s=%s", prefix, name, value), &systems, &error));
}

/* The same fields say the same, whichever way they were set. */
static void assert_same(const struct mp_option table[], const void *left, const void *right) {
    char a[MP_TEXT_SIZE], b[MP_TEXT_SIZE];
    for (const struct mp_option *option = table; option->name; option++) {
        mp_options_format(option, left, a, sizeof a);
        mp_options_format(option, right, b, sizeof b);
        assert_string_equal(a, b);
    }
}

static void random_job(struct mp_job_file *file, uint64_t *seed) {
    char value[MP_TEXT_SIZE];
    assert_int_equal(mp_job_file_create(file, NULL), MP_OK);
    set(file, "", "system", "plain");
    for (const struct mp_option *option = mp_job_options; option->name; option++) {
        if (!strcmp(option->name, "system") || !strcmp(option->name, "gate"))
            continue;
        random_value(option, seed, value);
        set(file, "", option->name, value);
    }
    for (const struct mp_option *option = plain_options; option->name; option++) {
        random_value(option, seed, value);
        set(file, "options.", option->name, value);
    }
    int gates = 0;
    while (mp_gate_kinds[gates])
        gates++;
    const struct mp_gate_kind *gate = mp_gate_kinds[test_random_int(seed, 0, gates - 1)];
    set(file, "", "gate", gate->name);
    for (const struct mp_option *option = gate->options; option && option->name; option++) {
        random_value(option, seed, value);
        set(file, "gate-options.", option->name, value);
    }
}

TEST_RANDOM(every_written_job_reads_back) {
    for (int trial = 0; trial < 100; trial++) {
        AUTO(job) struct mp_job_file written, read;
        AUTO(text) char *text = NULL;
        size_t size;
        random_job(&written, random);
        FILE *stream = open_memstream(&text, &size);
        assert_works(mp_job_write(&written, NULL, stream, &error));
        fclose(stream);
        assert_works(apply(&read, text, &error));
        assert_same(mp_job_options, &written.job, &read.job);
        assert_ptr_equal(read.system, &plain);
        assert_same(plain_options, written.system_options, read.system_options);
        assert_memory_equal(&written.job.gate_options, &read.job.gate_options,
                            sizeof read.job.gate_options);
    }
}

TEST(mapping_and_set_mean_the_same) {
    AUTO(job) struct mp_job_file from_mapping, from_set;
    assert_int_equal(apply(&from_mapping,
                           "options: {window: 7, degree: all}\n"
                           "ranks: 2\nrouting: load\nload: [[3, 1], [2, 2]]\n"
                           "text: [one, two/three]\nsystem: plain\n",
                           NULL),
                     MP_OK);
    assert_int_equal(mp_job_file_create(&from_set, NULL), MP_OK);
    set(&from_set, "", "system", "plain");
    set(&from_set, "options.", "window", "7");
    set(&from_set, "options.", "degree", "all");
    set(&from_set, "", "ranks", "2");
    set(&from_set, "", "routing", "load");
    set(&from_set, "", "load", "3,1;2,2");
    set(&from_set, "", "text", "one:two/three");
    assert_same(mp_job_options, &from_mapping.job, &from_set.job);
    assert_same(plain_options, from_mapping.system_options, from_set.system_options);
    assert_int_equal(((struct plain_options *)from_set.system_options)->degree, MP_ALL);
}

TEST(another_system_brings_its_own_defaults) {
    AUTO(job) struct mp_job_file file;
    assert_int_equal(apply(&file, "system: plain\noptions: {window: 7}\n", NULL), MP_OK);
    set(&file, "", "system", "plain"); /* the same: its options stay */
    assert_int_equal(((struct plain_options *)file.system_options)->window, 7);
    set(&file, "", "system", "uneven");
    assert_null(file.system_options);
    set(&file, "", "system", "plain");
    assert_int_equal(((struct plain_options *)file.system_options)->window, 5);
}

struct message_case {
    const char *text, *message;
};

/* Found while the mapping is applied. */
static const struct message_case apply_cases[] = {
    {"rank: 2\n", "job.yaml:1: unknown option \"rank\" for a job; did you mean \"ranks\"?"},
    {"system: plain\noptins: {window: 1}\n",
     "job.yaml:2: unknown option \"optins\" for a job; did you mean \"options\"?"},
    {"gate: gsard\n", "job.yaml:1: gate: \"gsard\" is not one of gshard, switch, softmax, "
                      "hash, ktop1, sam, sigmoid, tamoe, dts, base, expertchoice"},
    {"device: gpu\n", "job.yaml:1: device: \"gpu\" is not one of cpu, cuda"},
    {"text: {a: b}\n", "job.yaml:1: text: should be one value or a list of values"},
    {"load: [[1, 2], 3]\n", "job.yaml:1: load: should be one value or a list of values"},
    {"load: [[[1], 2]]\n", "job.yaml:1: load: should be one value or a list of values"},
    {"ranks: 1\nsystem: plian\n", "job.yaml:2: unknown system \"plian\"; did you mean \"plain\"?"},
    {"system: plain\noptions:\n  windw: 2\n",
     "job.yaml:3: unknown option \"windw\" for system plain; did you mean \"window\"?"},
    {"system: uneven\noptions: {window: 2}\n",
     "job.yaml:2: unknown option \"window\" for system uneven, which has no options"},
    {"options: {window: 2}\n",
     "job.yaml:1: unknown option \"window\" for a job that names no system, which has no options"},
    {"system: plain\noptions: [window]\n", "job.yaml:2: options: should be a mapping of options"},
    {"- ranks\n", "job.yaml:1: a job should be a mapping of options, key: value"},
};

TEST_ROWS(apply_says, apply_cases, c) {
    AUTO(job) struct mp_job_file file;
    struct mp_error error = {0};
    assert_int_not_equal(apply(&file, c->text, &error), MP_OK);
    assert_string_equal(error.text, c->message);
}

/* A job that has a text, and what follows "system: "; or one in braces. */
static int apply_whole(struct mp_job_file *file, const char *text, struct mp_error *error) {
    return apply(file, *text == '{' ? text : formatted("{text: x, system: %s}", text), error);
}

/* Found when the job is whole. */
static const struct message_case check_cases[] = {
    {"{text: x}", "system: not given; a job needs the name of a system"},
    {"{system: plain}", "text: not given; a job needs files or folders of text to train on"},
    {"plain, experts: 1025",
     "experts: 1025 are more than the 1024 that gates choose among; only predictions take more"},
    {"plain, ranks: 4, batch: 6",
     "batch: 6 sequences can't be divided evenly over 4 ranks; take a multiple of ranks"},
    {"plain, width: 100, heads: 3",
     "width: 100 can't be divided evenly over 3 heads; take a multiple of heads"},
    {"uneven, ranks: 8, experts: 4",
     "ranks: 8 ranks are more than the 4 experts of a layer; with system uneven every rank needs "
     "one at least"},
    {"tied, ranks: 8, experts: 3", "tied: 8 ranks are no multiple of 3 experts"},
    {"tied, ranks: 4, experts: 6",
     "experts: 6 experts can't be divided evenly over 4 ranks, which system tied needs; take a "
     "multiple of ranks"},
    {"plain, ranks: 4, experts: 10",
     "experts: 10 experts can't be divided evenly over 4 ranks, which system plain needs; take a "
     "multiple of ranks"},
    {"plain, ranks: 8, nodes: 3",
     "nodes: 8 ranks can't be divided evenly over 3 nodes; take a divisor of ranks, or say "
     "ranks-per-node"},
    {"plain, ranks: 2, nodes: 4",
     "nodes: 2 ranks can't be divided evenly over 4 nodes; take a divisor of ranks, or say "
     "ranks-per-node"},
    {"plain, ranks: 8, nodes: 2, ranks-per-node: 2",
     "nodes: 2 nodes of 8 ranks have 4 each, ranks-per-node says 2; leave one of the two out"},
    {"plain, experts: 1", "experts: the gshard gate sends a token to 2 experts, there is only 1"},
    {"plain, experts: 6, gate: softmax, top-k: 8",
     "experts: the softmax gate sends a token to 8 experts, there are only 6"},
    {"plain, top-k: 4",
     "top-k: gate gshard sends a token to 2 experts, not to 4; gate softmax takes 1 to 16"},
    {"plain, gate: switch, top-k: 2",
     "top-k: gate switch sends a token to 1 expert, not to 2; gate softmax takes 1 to 16"},
    {"plain, gate: softmax, top-k: 0", "top-k: 0 experts of a token; 1 to 16 can be chosen"},
    {"plain, experts: 17, gate: softmax, top-k: all",
     "top-k: 17 experts of a token; 1 to 16 can be chosen"},
    {"plain, renormalise: no",
     "renormalise: gate gshard has it on; gate softmax with top-k 2 takes either"},
    {"plain, gate: switch, renormalise: yes",
     "renormalise: gate switch has it off; gate softmax with top-k 1 takes either"},
    {"plain, gate: ktop1, routing: balanced",
     "routing: gate ktop1 takes one expert of each prototype, and replayed loads don't say "
     "which experts go together; take routing gate, or gate softmax"},
    {"plain, gate: sam, experts: 9, gate-options: {groups: 2}",
     "groups: 9 experts can't be divided evenly over 2; take a divisor"},
    {"plain, gate: sigmoid, top-k: 5, experts: 16, gate-options: {groups: 4, groups-kept: 1}",
     "groups: a token takes 5 experts, and 1 of 4 groups have only 4"},
    {"plain, gate: sigmoid, gate-options: {groups-kept: 2}", "groups: 2 of 1 groups can't be kept"},
    {"plain, gate: ktop1, top-k: 3",
     "top-k: 16 experts can't be divided evenly over 3; take a divisor"},
    {"plain, experts: 4, gate: softmax, top-k: 3, routing: load, load: [4, 2, 2, 2]",
     "load: row 0 gives one expert 4 of 10 routes; it can take at most one in 3 when a token goes "
     "to 3 different experts"},
    {"plain, routing: skewed, skew-experts: 1, skew-share: 0.7",
     "skew-share: 0.7 is outside 0 .. 0.5, all that 1 of 16 experts can get when a token goes to "
     "2 different ones"},
    {"plain, experts: 4, routing: skewed, skew-experts: 3, skew-share: 0.4",
     "skew-share: 0.4 is outside 0.5 .. 1, all that 3 of 4 experts can get when a token goes to 2 "
     "different ones"},
    {"plain, experts: 4, routing: skewed, skew-experts: 5",
     "skew-experts: 5 are more than the 4 experts"},
    {"plain, routing: load", "load: not given, but routing is load"},
    {"plain, trace: zipf",
     "trace: given, but routing is gate, which does not read it; take routing trace"},
    {"plain, load: [1, 1]",
     "load: given, but routing is gate, which does not read it; take routing load"},
    {"plain, experts: 2, routing: load, load: [[1, one]]",
     "load: row 0, expert 1: \"one\" should begin with a number of routes 0 .. 4294967295, then "
     "',' or ';'"},
    {"plain, experts: 2, routing: load, load: \"-1,3\"",
     "load: row 0, expert 0: \"-1,3\" should begin with a number of routes 0 .. 4294967295, then "
     "',' or ';'"},
    {"plain, experts: 3, routing: load, load: [1, 1]", "load: row 0 has 2 numbers for 3 experts"},
    {"plain, experts: 2, routing: load, load: [[1, 1], [2, 2]]",
     "load: 2 rows for 1 ranks; give one per source rank"},
    {"plain, experts: 2, routing: load, load: [0, 0]", "load: row 0 has no routes at all"},
    {"plain, experts: 4, routing: load, load: [6, 2, 2, 0]",
     "load: row 0 gives one expert 6 of 10 routes; it can take at most one in 2 when a token goes "
     "to 2 different experts"},
    {"plain, validate-every: 5, validation-share: 0",
     "validate-every: 5, but validation-share keeps no text for it"},
    {"plain, checkpoint-every: 5",
     "checkpoint-every: 5, but checkpoint names no folder to write to"},
    {"plain, context: 5",
     "context: 5 tokens in a cache, which mode train has not; take mode prefill or decode"},
    {"plain, mode: decode, device: cuda",
     "mode: decode needs device cpu; attention with a cache has no kernels for GPUs, which "
     "predictions do without"},
    {"plain, mode: prefill, validate-every: 2",
     "validate-every: 2, but mode prefill changes no parameters; take 0, or mode train"},
    {"plain, mode: decode, checkpoint: y",
     "checkpoint: mode decode changes no parameters that could be saved; leave it out (restore "
     "names a checkpoint to serve), or take mode train"},
    {"plain, mode: decode, target-loss: 2",
     "target-loss: 2, but mode decode does not train; take 0, or mode train"},
};

TEST_ROWS(check_says, check_cases, c) {
    AUTO(job) struct mp_job_file file;
    bool is_refusal = strstr(c->message, "every rank needs") ||
                      strstr(c->message, "which system") || !strncmp(c->message, "tied: ", 6);
    assert_works(apply_whole(&file, c->text, &error));
    assert_sentence(mp_job_check(&file, &error), is_refusal ? MP_EREFUSED : MP_EINVAL, c->message);
}

static const char *const good[] = {
    "plain",
    "plain, ranks: 4, batch: 8, experts: 4, ranks-per-node: 3",
    "plain, ranks: 4, batch: 8, experts: 4, nodes: 2, ranks-per-node: 2",
    "uneven, ranks: 3, batch: 9, experts: 10",
    "tied, ranks: 8, experts: 4",
    "tied, ranks: 4, experts: 4",
    "plain, gate: switch, experts: 1",
    "plain, top-k: 2, renormalise: yes",
    "plain, gate: softmax, experts: 8, top-k: 6, renormalise: no",
    "plain, gate: softmax, experts: 16, top-k: all",
    "plain, gate: softmax, top-k: 6, routing: skewed, skew-experts: 2, skew-share: 0.33",
    "plain, routing: skewed, skew-experts: 1, skew-share: 0.5",
    "plain, routing: skewed, skew-experts: 16, skew-share: 0.1",
    "plain, gate: switch, routing: skewed, skew-experts: 1, skew-share: 1",
    "plain, ranks: 2, experts: 2, routing: load, load: [[1, 1], [5, 5]]",
    "plain, gate: switch, experts: 2, routing: load, load: [9, 0]",
    "plain, checkpoint: c, checkpoint-every: 5, validate-every: 2",
};

TEST_ROWS(good_jobs_pass, good, text) {
    AUTO(job) struct mp_job_file file;
    assert_works(apply_whole(&file, *text, &error));
    assert_works(mp_job_check(&file, &error));
}

/* A system is asked before any rank starts, about the job as it is and whatever machine. */
TEST(systems_are_asked_about_the_job) {
    static const char text[] =
        "{system: tied, text: x, ranks: 6, ranks-per-node: 2, batch: 12, sequence: 32, layers: 3, "
        "experts: 3, width: 64, expert-width: 96, gate: switch, seed: 7, bandwidth: 5e8}";
    AUTO(job) struct mp_job_file file;
    assert_works(apply(&file, text, &error));
    assert_works(mp_job_check(&file, &error));
    assert_int_equal(living, 0);
    assert_numbers(asked.layers, 3, asked.experts, 3, asked.top_k, 1, asked.topology.ranks, 6);
    assert_numbers(asked.topology.ranks_per_node, 2, asked.tokens_per_rank, 64);
    assert_numbers(asked.expert_bytes, 2 * 64 * 96 * 4, asked.route_bytes, 64 * 4, asked.seed, 7);
    assert_true(asked.bandwidth == 5e8 && asked.seconds_per_route > 0 &&
                asked.seconds_per_expert > 0 && asked.non_moe_seconds > 0);
    set(&file, "", "ranks-per-node", "all");
    set(&file, "", "bandwidth", "0");
    assert_works(mp_job_check(&file, &error));
    assert_int_equal(asked.topology.ranks_per_node, 6);
    assert_true(asked.bandwidth > 0);
    set(&file, "", "nodes", "3");
    assert_works(mp_job_check(&file, &error));
    assert_int_equal(asked.topology.ranks_per_node, 2);
    assert_false(asked.forward_only);
    assert_int_equal(asked.gradient_bytes, 2 * 64 * 96 * 4);
    set(&file, "", "mode", "prefill");
    assert_works(mp_job_check(&file, &error));
    assert_true(asked.forward_only);
    assert_numbers(asked.gradient_bytes, 0, asked.tokens_per_rank, 64);
    set(&file, "", "mode", "decode");
    assert_works(mp_job_check(&file, &error));
    assert_int_equal(asked.tokens_per_rank, file.job.batch / 6);
}

static const struct {
    const char *assignment, *message;
} wrong[] = {
    {"=2", "--set =2: should be key=value"},
    {"rank=2", "--set: unknown option \"rank\" for a job; did you mean \"ranks\"?"},
    {"system=plan", "--set: unknown system \"plan\"; did you mean \"plain\"?"},
};

TEST_ROWS(wrong_assignments_are_refused, wrong, c) {
    AUTO(job) struct mp_job_file file;
    struct mp_error error = {0};
    assert_int_equal(apply(&file, "system: plain", &error), MP_OK);
    assert_true(mp_job_set(&file, NULL, c->assignment, &systems, &error) < 0);
    assert_string_equal(error.text, c->message);
}

TEST(too_long_values_are_refused) {
    char text[3 * MP_TEXT_SIZE];
    AUTO(job) struct mp_job_file refused, file;
    memset(text, 'x', sizeof text);
    memcpy(text, "text: ", 6);
    text[6 + MP_TEXT_SIZE] = '\0';
    assert_sentence(apply(&refused, text, &error), MP_EINVAL,
                    "job.yaml:1: text: 4096 characters are too many, it takes a text of at most "
                    "4095 characters");
    text[6 + MP_TEXT_SIZE - 1] = '\0'; /* just as long as it may be */
    assert_works(apply(&file, text, &error));
    assert_string_equal(file.job.text, text + 6);
}

/* Each rank has its own row of a load; what is skewed or balanced is so on every rank. */
static const struct {
    int routing, rank;
    uint32_t count[3];
} replays[] = {{MP_ROUTING_LOAD, 0, {60, 30, 10}},
               {MP_ROUTING_LOAD, 1, {20, 40, 40}},
               {MP_ROUTING_SKEWED, 1, {50, 25, 25}},
               {MP_ROUTING_BALANCED, 0, {34, 33, 33}}};

TEST_ROWS(replayed_routes_are_apportioned, replays, c) {
    struct mp_job job = {.experts = 3,
                         .skew_experts = 1,
                         .skew_share = 0.5,
                         .gate = mp_gate_find("switch"),
                         .top_k = MP_AUTO,
                         .routing = c->routing,
                         .load = "6,3,1;1,2,2"};
    uint32_t count[3];
    assert_works(mp_job_replay(&job, c->rank, 100, count, &error));
    assert_memory_equal(count, c->count, sizeof count);
    if (job.routing == MP_ROUTING_LOAD) /* there is no third row */
        assert_int_equal(mp_job_replay(&job, 2, 100, count, NULL), MP_EINVAL);
}

/* How many experts, whether weights are divided, and words that differ where those do. */
static const struct {
    const char *text, *words;
    int top_k;
    bool renormalises;
} gates_said[] = {
    {"gate: gshard", "gshard", 2, true},
    {"gate: switch", "switch", 1, false},
    {"gate: softmax", "softmax top-2", 2, true},
    {"{gate: softmax, top-k: 6}", "softmax top-6", 6, true},
    {"{gate: softmax, top-k: 6, renormalise: no}", "softmax top-6 not renormalised", 6, false},
    {"{gate: softmax, top-k: 1}", "softmax top-1 not renormalised", 1, false},
    {"{gate: softmax, top-k: 1, renormalise: yes}", "softmax top-1", 1, true},
    {"{gate: softmax, top-k: all, experts: 12}", "softmax top-12", 12, true},
    {"{gate-options: {z-loss: 0.001}, gate: switch}", "switch z-loss=0.001", 1, false},
    {"{gate: softmax, renormalise: no, gate-options: {z-loss: 0.5}}",
     "softmax top-2 not renormalised z-loss=0.5", 2, false},
    {"gate: hash", "hash", 1, false},
    {"{gate: ktop1, top-k: 4}", "ktop1 top-4", 4, false},
    {"{gate: sigmoid, gate-options: {groups: 4, groups-kept: 2, scale: 2.5}}",
     "sigmoid top-8 groups=4 groups-kept=2 scale=2.5", 8, true},
};

TEST_ROWS(gates_are_what_is_said, gates_said, c) {
    AUTO(job) struct mp_job_file file;
    char words[MP_GATE_WORDS];
    assert_int_equal(apply(&file, c->text, NULL), MP_OK);
    assert_int_equal(mp_job_top_k(&file.job), c->top_k);
    struct mp_gate_rule rule;
    assert_int_equal(mp_job_gate_rule(&file.job, &rule, NULL), MP_OK);
    assert_int_equal(rule.renormalise, c->renormalises);
    assert_int_equal(mp_gate_words_top_k(c->words), c->top_k);
    assert_string_equal(mp_job_gate(&file.job, words), c->words);
}

TEST(workloads_have_names) {
    char name[64];
    struct mp_job job = {.routing = MP_ROUTING_GATE, .skew_share = 0.7, .skew_experts = 4};
    assert_string_equal(mp_job_workload(&job, name, sizeof name), "text");
    job.routing = MP_ROUTING_BALANCED;
    assert_string_equal(mp_job_workload(&job, name, sizeof name), "balanced");
    job.routing = MP_ROUTING_SKEWED;
    assert_string_equal(mp_job_workload(&job, name, sizeof name), "skewed 0.70 on 4");
    job.skew_share = 0.704;
    assert_string_equal(mp_job_workload(&job, name, sizeof name), "skewed 0.704000 on 4");
    /* The same matrix has the same name however it is spaced, another one another. */
    char spaced[64];
    job.routing = MP_ROUTING_LOAD;
    strcpy(job.load, "3,1;2,2");
    assert_string_equal(mp_job_workload(&job, name, sizeof name), "load b683e00e");
    strcpy(job.load, "3, 1; 2, 2");
    assert_string_equal(mp_job_workload(&job, spaced, sizeof spaced), name);
    strcpy(job.load, "3,1;2,3");
    assert_string_not_equal(mp_job_workload(&job, spaced, sizeof spaced), name);
}
