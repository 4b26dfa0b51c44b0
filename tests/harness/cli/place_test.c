/* moeperf place as people call it. */
#include "tests/harness/cli/shell.h"

static const char PREFILL[] = MOEPERF_TRACES "/sglang_deepseek_prefill_in4096.json";
static const char DECODE[] = MOEPERF_TRACES "/sglang_deepseek_decode_in2000out100.json";

#define PLACE "moeperf place --cluster h100 --nodes 1 --iterations 24 "
#define HOT PLACE "--loads \"w1 heat=0.5\" --system eplb:interval=2,replicas=96 "

static double number_of(const json_t *object, const char *part, const char *key) {
    const json_t *value = json_object_get(json_object_get(object, part), key);
    assert_true(json_is_number(value));
    return json_number_value(value);
}

TEST(a_placement_is_written_and_judged) {
    json_t *object = json_of(HOT "--json --as sglang -o /dev/null", 0);
    assert_true(number_of(object, "after", "seconds_mean") <
                number_of(object, "before", "seconds_mean"));
    assert_within(number_of(object, "cost", "redundant_experts"), 32, 0);
    assert_int_equal(json_integer_value(json_object_get(object, "history")), 12);
    assert_false(json_is_true(json_object_get(object, "judged_on_history")));
    json_decref(object);
    assert_says(HOT "--as sglang -o p.json", 0, "--ep-num-redundant-experts 32");
    json_error_t error;
    json_t *file = json_load_file("p.json", 0, &error);
    const json_t *layers = json_object_get(file, "physical_to_logical_map");
    assert_int_equal(json_array_size(layers), 12);
    assert_int_equal(json_array_size(json_array_get(layers, 11)), 96);
    json_decref(file);
}

/* Every answer ends with 0. */
TEST(a_decision_is_an_answer) {
    assert_says(HOT "--decide", 0, "Turn eplb on: it saves");
    assert_says(PLACE "--loads balanced --decide", 0, "Leave eplb off: no rank is late");
    assert_says(PLACE
                "--loads \"w6 period=1 heat=0.5\" --system eplb:interval=1,replicas=72 --decide",
                0, "Leave eplb off");
    json_t *object = json_of(PLACE "--loads balanced --decide --json", 0);
    const json_t *decision = json_object_get(object, "decision");
    assert_true(json_is_false(json_object_get(decision, "turn_on")));
    assert_string_equal(json_string_value(json_object_get(decision, "reason")), "even");
    json_decref(object);
}

TEST(lines_fit_a_terminal) {
    static const char *const commands[] = {HOT, HOT "--decide", "moeperf place --help"};
    for (int i = 0; i < 3; i++) {
        char *output = shell(commands[i], 0), *rest = output, *line;
        while ((line = strsep(&rest, "\n")))
            if (strlen(line) > 80)
                fail_msg("%s: \"%s\"", commands[i], line);
        free(output);
    }
}

TEST(wrong_words_are_named) {
    static const struct {
        const char *command, *says;
    } cases[] = {
        {PLACE, "--trace and --loads: give one of them"},
        {PLACE "--loads balanced --system llep", "llep never changes which ranks keep which"},
        {PLACE "--loads balanced --system eplc", "did you mean \"eplb\"?"},
        {PLACE "--loads balanced --history 0%", "--history 0%: should be a share"},
        {PLACE "--loads balanced --history 120", "--history 120: should be a share"},
        {PLACE "--loads balanced --as sglang", "-o OUT says where to"},
        {PLACE "--loads balanced --as trt -o p", "--as trt: should be json, sglang or vllm"},
        {PLACE "--trace gone.json", "--trace gone.json: No such file"},
        {PLACE "--loads balanced -o nowhere/p.json", "nowhere/p.json"},
        {"moeperf place --loads balanced", "cluster: not given"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        assert_says(cases[i].command, 2, cases[i].says);
}

/* The recorder's files, dense layers in front, without a flag that has to be guessed. */
TEST(files_of_sglang_need_no_flag) {
    char line[1024];
    need_file(PREFILL);
    need_file(DECODE);
    snprintf(line, sizeof line, "moeperf import %s -o prefill.mptrace", PREFILL);
    assert_says(line, 0, "3 layers without routes left out (the first ones: dense)");
    static const char *const names[] = {"prefill.mptrace", PREFILL, DECODE};
    for (int i = 0; i < 3; i++) {
        snprintf(line, sizeof line,
                 "moeperf predict --cluster b200 --quiet --system eplb --trace %s", names[i]);
        assert_says(line, 0, "model: layers 58, width 7168, heads 128, experts 256 x 2048");
        snprintf(line, sizeof line,
                 "moeperf place --cluster b200 --trace %s --system eplb:replicas=288 --as sglang "
                 "-o p%d.json",
                 names[i], i);
        assert_says(line, 0, i < 2 ? "so prefill is predicted" : "so decode is predicted");
        snprintf(line, sizeof line, "p%d.json", i);
        json_t *file = json_load_file(line, 0, NULL);
        const json_t *map = json_object_get(file, "physical_to_logical_map");
        assert_int_equal(json_array_size(map), 61);
        assert_int_equal(json_array_size(json_array_get(map, 60)), 288);
        assert_int_equal(json_integer_value(json_array_get(json_array_get(map, 2), 287)), 31);
        json_decref(file);
    }
}

TEST_GROUP(enter_shell, leave_folder);
