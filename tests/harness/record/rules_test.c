
#include "harness/record/rules.h"
#include "tests/errors.h"

static const struct {
    const char *name, *text; /* name: the pattern */
    bool matches;
    int64_t layer, iteration;
    int phase;
} matches[] = {
    {"experts", "experts", true, -1, -1, MP_PHASES},
    {"experts", "experts ", false, -1, -1, MP_PHASES},
    {"experts", "", false, -1, -1, MP_PHASES},
    {"", "", true, -1, -1, MP_PHASES},
    {"*", "", true, -1, -1, MP_PHASES},
    {"**", "anything", true, -1, -1, MP_PHASES},
    {"layer {layer}", "layer 12", true, 12, -1, MP_PHASES},
    {"layer {layer}", "layer ", false, -1, -1, MP_PHASES},
    {"layer {layer}", "layer x", false, -1, -1, MP_PHASES},
    {"*layer{layer}*", "model.layer07.mlp", true, 7, -1, MP_PHASES},
    {"*.{layer}.*{iteration}", "a.b.3.c 15", true, 3, 15, MP_PHASES},
    {"*{layer}", "x1y22", true, 22, -1, MP_PHASES},
    {"{layer}{iteration}", "12", false, -1, -1, MP_PHASES}, /* a run is taken whole */
    {"{layer}", "99999999999999999999", false, -1, -1, MP_PHASES},
    {"{phase}", "expert", true, -1, -1, MP_PHASE_EXPERT},
    {"{phase}", "experts", false, -1, -1, MP_PHASES},
    {"{phase} {layer}", "combine 0", true, 0, -1, MP_PHASE_COMBINE},
    {"a?c", "abc", true, -1, -1, MP_PHASES},
    {"a?c", "ac", false, -1, -1, MP_PHASES},
    {"a\\*c", "a*c", true, -1, -1, MP_PHASES},
    {"a\\*c", "abc", false, -1, -1, MP_PHASES},
    {"\\{layer}", "{layer}", true, -1, -1, MP_PHASES},
    {"*ab*ab", "abab", true, -1, -1, MP_PHASES},
    {"*ab*ab", "ab", false, -1, -1, MP_PHASES},
    {"\xff*", "\xff\xfe", true, -1, -1, MP_PHASES},
};

TEST_EACH(patterns_cover_the_whole_name, matches, row) {
    struct mp_rule_capture capture;
    bool got = mp_rule_match(row->name, row->text, &capture);
    assert_int_equal(got, row->matches);
    if (!got)
        return;
    assert_numbers(capture.layer, row->layer, capture.iteration, row->iteration);
    assert_int_equal(capture.phase, row->phase);
}

/* The plainest matcher there is, for patterns of letters, ? and *. */
static bool plainly(const char *pattern, const char *text) {
    if (*pattern == '*')
        return plainly(pattern + 1, text) || (*text && plainly(pattern, text + 1));
    if (!*pattern || !*text)
        return !*pattern && !*text;
    return (*pattern == '?' || *pattern == *text) && plainly(pattern + 1, text + 1);
}

TEST_RANDOM(random_patterns_match_as_the_plainest_matcher_says) {
    int matched = 0;
    for (int round = 0; round < 20000; round++) {
        char pattern[12] = "", text[14] = "";
        struct mp_rule_capture capture;
        int length = test_random_int(random, 0, 10);
        for (int i = 0; i < length; i++)
            pattern[i] = "ab*?*"[test_random_int(random, 0, 4)];
        length = test_random_int(random, 0, 12);
        for (int i = 0; i < length; i++)
            text[i] = "ab"[test_random_int(random, 0, 1)];
        bool expected = plainly(pattern, text);
        assert_int_equal(mp_rule_match(pattern, text, &capture), expected);
        matched += expected;
    }
    assert_true(matched > 1000 && matched < 19000);
}

TEST(stars_cost_no_more_than_the_product) {
    static char pattern[1001], text[100001];
    struct mp_rule_capture capture;
    for (int i = 0; i < 1000; i += 2)
        memcpy(pattern + i, "*a", 2);
    memset(text, 'a', 100000);
    text[100000 - 1] = 'b';
    assert_false(mp_rule_match(pattern, text, &capture)); /* within the test's time */
}

TEST(files_say_what_they_mean) {
    static const char text[] = "description: a test\n"
                               "rules:\n"
                               "  - name: \"step {iteration}\"\n"
                               "    phase: iteration\n"
                               "  - name: experts\n"
                               "    domain: model\n"
                               "    phase: expert\n"
                               "    layer: payload.block\n"
                               "    tokens: payload\n"
                               "    direction: backward\n"
                               "  - name: exp*\n"
                               "    phase: gate\n"
                               "    layer: count\n"
                               "    iteration: 3\n"
                               "    stream: comm\n"
                               "    direction: forward\n"
                               "    waits: all\n"
                               "iteration-ends:\n"
                               "  - name: \"*.step\"\n"
                               "    domain: \"\"\n";
    struct mp_rules rules = {0};
    struct mp_rule_capture capture;
    assert_works(mp_rules_parse("text", text, sizeof text - 1, &rules, &error));
    assert_int_equal(rules.count, 3);
    const struct mp_rule *rule = mp_rules_find(&rules, "step 7", "any", &capture);
    assert_ptr_equal(rule, &rules.rule[0]);
    assert_int_equal(capture.iteration, 7);
    rule = mp_rules_find(&rules, "experts", "model", &capture);
    assert_ptr_equal(rule, &rules.rule[1]);
    assert_int_equal(rule->phase, MP_PHASE_EXPERT);
    assert_string_equal(rule->layer.field, "block");
    assert_string_equal(rule->tokens.field, "");
    assert_int_equal(rule->direction.constant, MP_BACKWARD);
    rule = mp_rules_find(&rules, "experts", "other", &capture);
    assert_ptr_equal(rule, &rules.rule[2]);
    assert_numbers(rule->layer.source, MP_RULE_COUNT, rule->iteration.constant, 3);
    assert_true(rule->in_flight);
    assert_int_equal(rule->direction.constant, MP_FORWARD);
    assert_true(rule->waits.constant == INT64_MAX);
    assert_null(mp_rules_find(&rules, "nothing", "", &capture));
    assert_int_equal(mp_rules_end_iteration(&rules, "Adam.step", ""), 0);
    assert_int_equal(mp_rules_end_iteration(&rules, "Adam.step", "torch"), -1);
    mp_rules_destroy(&rules);
}

static const struct {
    const char *text, *message;
    bool is_yaml;
} wrong[] = {
    {"rules: 3\n", "text:1: rules: should be a list of 0 to 100000, each a rule", true},
    {"description: x\n", "text:1: rules: not given; a rules file needs a list of", true},
    {"rules:\n  - phase: gate\n",
     "text:2: name: not given; a rule needs a text of at most 1000 bytes: a pattern", true},
    {"rules:\n  - name: x\n", "text:2: a rule needs a phase", true},
    {"rules:\n  - name: x\n    phase: exprt\n",
     "text:3: phase: \"exprt\" is no phase; did you mean \"expert\"?", true},
    {"rules:\n  - name: x\n    phase: gate\n    laier: 3\n",
     "text:4: unknown option \"laier\" for a rule; did you mean \"layer\"?", true},
    {"rules:\n  - name: x\n    phase: gate\n    layer: -3\n", "text:4: layer: \"-3\" should be",
     true},
    {"rules:\n  - name: x\n    phase: gate\n    tokens: count\n", "text:4: tokens: \"count\"",
     true},
    {"rules:\n  - name: x\n    phase: gate\n    direction: up\n", "text:4: direction: \"up\"",
     true},
    {"rules:\n  - name: x\n    phase: gate\n    stream: main\n", "text:4: stream: \"main\"", true},
    {"rules:\n  - name: x\n    phase: gate\n    waits: some\n", "text:4: waits: \"some\" should",
     true},
    {"rules:\n  - name: [x]\n    phase: gate\n",
     "text:2: name: should be one value: a text of at most 1000 bytes", true},
    {"rules:\n  - name: \"{phase}\"\n    phase: gate\n", "text:2: the name has {phase}", true},
    {"rules:\n  - x\n", "text:2: a rule should be a mapping of options, key: value", true},
    {"rule:\n  - x\n", "text:1: unknown option \"rule\" for a rules file; did you mean \"rules\"?",
     true},
    {"rules:\niteration-ends:\n  - name: x\n    phase: gate\n", "text:1: rules: should be a list",
     true},
    {"rules: []\niteration-ends:\n  - name: x\n    phase: gate\n",
     "text:4: unknown option \"phase\" for iteration-ends; there is name, domain", true},
    {"rules: [\n", "text:", false},
};

TEST_ROWS(mistakes_are_named_with_their_line, wrong, row) {
    struct mp_rules rules = {0};
    assert_fails(mp_rules_parse("text", row->text, strlen(row->text), &rules, &error),
                 row->is_yaml ? MP_EINVAL : MP_EFORMAT, row->message);
    mp_rules_destroy(&rules);
}

/* What moeperf show rules prints: the example in it is a rules file, and nothing is left out. */
TEST(the_grammar_is_one_that_is_read) {
    static const char *const words[] = {"layer", "direction", "waits", "stream", "iteration-ends"};
    struct mp_rules rules = {0};
    struct mp_rule_capture capture;
    const char *begin = strstr(mp_rules_grammar, "    description:"),
               *end = begin ? strstr(begin, "\n\n") : NULL;
    assert_non_null(end);
    assert_works(mp_rules_parse("grammar", begin, (size_t)(end - begin), &rules, &error));
    assert_numbers(rules.count, 2, rules.ends, 2);
    assert_ptr_equal(mp_rules_find(&rules, "layer 3 dispatch", "mylib", &capture), &rules.rule[0]);
    assert_int_equal(capture.layer, 3);
    assert_int_equal(rules.rule[0].waits.constant, INT64_MAX);
    assert_true(rules.rule[0].in_flight);
    assert_int_equal(rules.rule[1].layer.source, MP_RULE_COUNT);
    mp_rules_destroy(&rules);
    for (int phase = 0; phase < MP_PHASES; phase++)
        assert_contains(mp_rules_grammar, mp_phase_name((enum mp_phase)phase));
    for (size_t i = 0; i < sizeof words / sizeof *words; i++)
        assert_contains(mp_rules_grammar, words[i]);
}
