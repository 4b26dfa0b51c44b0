/* moeperf place as people call it. */
#include "tests/harness/cli/shell.h"

static const char PREFILL[] = MOEPERF_TRACES "/sglang_deepseek_prefill_in4096.json";
static const char DECODE[] = MOEPERF_TRACES "/sglang_deepseek_decode_in2000out100.json";

#define PLACE "moeperf place --cluster h100 --nodes 1 --iterations 24 "
#define HOT PLACE "--loads \"w1 heat=0.5\" --system eplb:interval=2,replicas=96 "

TEST(a_placement_is_written_and_judged) {
    AUTO(json) json_t *object = json_of(HOT "--json --as sglang -o /dev/null", 0);
    assert_true(number(object, "after/seconds_mean") < number(object, "before/seconds_mean"));
    assert_has(object, "cost/redundant_experts", "32", "history", "12", "judged_on_history",
               "false");
    assert_says(HOT "--as sglang -o p.json", 0, "--ep-num-redundant-experts 32; its model has to",
                FITS);
    assert_json("cat p.json", 0, "physical_to_logical_map/#", "12", "physical_to_logical_map/11/#",
                "96");
    assert_says("moeperf place --help", 0, FITS);
}

/* Every answer ends with 0. */
TEST(a_decision_is_an_answer) {
    assert_says(HOT "--decide", 0, "on 1 node; training, 8192 tokens per rank", "model: layers 12",
                "Serving is predicted with --set mode=", "Turn eplb on: it saves", FITS);
    assert_says(HOT "--set mode=prefill --decide", 0, "on 1 node; prefill, 8192 tokens per rank",
                LACKS("Serving is predicted"));
    assert_says(PLACE "--loads \"zipf exponent=1 period=8\" --decide "
                      "--system eplb:interval=1,replicas=96",
                0, "Leave eplb off: what it saves is not worth what it costs (it costs",
                "Placed once and left, it would save", FITS);
    assert_says(PLACE "--loads balanced --decide", 0, "Leave eplb off: no rank is late");
    assert_says(PLACE
                "--loads \"w6 period=1 heat=0.5\" --system eplb:interval=1,replicas=72 --decide",
                0, "Leave eplb off");
    assert_json(PLACE "--loads balanced --decide --json", 0, "decision/turn_on", "false",
                "decision/reason", "even");
    /* This one's ranks hold too much without a placement already. */
    assert_json(HOT "--set batch=4096 --decide --json", 0, "mode", "train", "decision/turn_on",
                "false", "decision/reason", "memory");
    assert_says(HOT "--set batch=4096 --decide", 0, "not fit into memory, with it or without",
                LACKS("Placed once"));
}

TEST(wrong_words_are_named) {
    static const struct refused_line cases[] = {
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
    assert_refused(cases);
}

/* The recorder's files, dense layers in front, without a flag that has to be guessed. */
TEST(files_of_sglang_need_no_flag) {
    need_file(PREFILL);
    need_file(DECODE);
    assert_says(formatted("moeperf import %s -o prefill.mptrace", PREFILL), 0,
                "3 layers without routes left\n             out (the first ones: dense)");
    static const char *const names[] = {"prefill.mptrace", PREFILL, DECODE};
    for (int i = 0; i < 3; i++) {
        assert_says(
            formatted("moeperf predict --cluster b200 --quiet --system eplb --trace %s", names[i]),
            0, "model: layers 58, width 7168, heads 128, experts 256 x 2048", "mode=prefill");
        assert_says(formatted("moeperf place --cluster b200 --trace %s --system eplb:replicas=288 "
                              "--as sglang -o p%d.json",
                              names[i], i),
                    0, i < 2 ? "so prefill is predicted" : "so decode is predicted",
                    "file's 61 layers, of which 3 in front are dense");
        AUTO(json) json_t *file = json_load_file(formatted("p%d.json", i), 0, NULL);
        assert_has(file, "physical_to_logical_map/#", "61", "physical_to_logical_map/60/#", "288",
                   "physical_to_logical_map/2/287", "31");
    }
}

/* Fitted loads do not say how many tokens a step has. */
TEST(a_fitted_step_of_decode_has_usual_sequences) {
    assert_runs(
        "echo '{\"num_moe_layers\": 1, \"num_logical_experts\": 8, \"snapshots\": [{\"step\": 0, "
        "\"latest_expert_load\": [[9, 4, 4, 4, 4, 4, 4, 7]], "
        "\"physical_to_logical_map\": [[0, 1, 2, 3, 4, 5, 6, 7]]}]}' > decode.json");
    assert_says("moeperf place --trace decode.json --cluster h100 --nodes 1 --fit", 2,
                "as vLLM dumps them: moeperf import --as vllm-eplb reads those");
    assert_runs("moeperf import decode.json --as vllm-eplb -o decode.mptrace >/dev/null");
    assert_says(PLACE "--trace decode.mptrace --fit --system eplb:replicas=16 --set gate=switch", 0,
                "128 sequences per rank");
}

TEST_GROUP(enter_shell, leave_folder);
