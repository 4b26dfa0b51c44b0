/* The list of gates, and what every descriptor in it must be. */
#include "reference/gate/gate.h"
#include "reference/gate/tamoe.h"

#include "reference/base/option_choice.h"
#include "tests/errors.h"

static const struct mp_gate_sizes sizes = {16, 2, 1000, 32};

TEST(descriptors_are_whole) {
    const struct mp_option row = {.type = MP_OPTION_CHOICE, .of = mp_gate_names};
    for (int i = 0; mp_gate_kinds[i]; i++) {
        const struct mp_gate_kind *gate = mp_gate_kinds[i];
        char word[MP_CHOICE_SIZE];
        assert_true(option_word(&row, i, word));
        assert_string_equal(word, gate->name);
        assert_false(option_word(&row, i + 1, word) && !mp_gate_kinds[i + 1]);
        assert_int_equal(mp_gate_find(gate->name), i);
        assert_true(*gate->title && *gate->source && *gate->models);
        assert_in_range(gate->least, 1, gate->usual);
        assert_in_range(gate->usual, gate->least, gate->most);
        assert_in_range(gate->most, gate->usual, 16);
        assert_true(gate->options_size <= MP_GATE_OPTIONS_SIZE);
        assert_works(mp_options_check(gate->options, gate->options_size, gate->name, &error));
    }
    assert_null(option_word_fault(&row));
    assert_int_equal(mp_gate_find("softma"), -1);
}

/* With default options, for as many choices as are usual; only a forced gate chooses by itself. */
TEST(rules_follow_from_defaults) {
    for (int i = 0; mp_gate_kinds[i]; i++) {
        const struct mp_gate_kind *gate = mp_gate_kinds[i];
        const struct mp_gate_sizes usual = {16, gate->usual, 1000, 32};
        struct mp_gate_values values = {0};
        struct mp_gate_rule rule;
        char words[MP_GATE_WORDS];
        assert_int_equal(mp_options_set_defaults(gate->options, values.bytes, NULL), MP_OK);
        assert_int_equal(mp_gate_rule(gate, &usual, true, &values, &rule, NULL), MP_OK);
        assert_int_equal(rule.scores == MP_SCORES_FORCED, gate->choose != NULL);
        assert_int_equal(rule.renormalise, gate->weights != MP_WEIGHTS_AS_THEY_ARE);
        mp_gate_words(gate, gate->usual, true, &values, words);
        assert_int_equal(strncmp(words, gate->name, strlen(gate->name)), 0);
        assert_null(strchr(words, '='));
        assert_int_equal(mp_gate_words_top_k(words), gate->usual);
    }
}

/* Words that databases have from before, and such as no gate here has. */
TEST(choices_are_read_from_words) {
    static const struct {
        const char *words;
        int top_k;
    } cases[] = {
        {"gshard", 2},
        {"switch", 1},
        {"softmax top-6", 6},
        {"softmax top-12 not renormalised", 12},
        {"", 0},
        {"switch z-loss=0.001", 1},
        {"mine", 0},
        {"another top-3 softly", 3},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        assert_int_equal(mp_gate_words_top_k(cases[i].words), cases[i].top_k);
    assert_string_equal(mp_gate_kinds[mp_gate_of_choices(1)]->name, "switch");
    assert_string_equal(mp_gate_kinds[mp_gate_of_choices(2)]->name, "gshard");
    for (int top_k = 3; top_k <= MP_CHOICES_LIMIT; top_k++)
        assert_string_equal(mp_gate_kinds[mp_gate_of_choices(top_k)]->name, "softmax");
}

/* A system may divide the weights of what it does not drop, but not where the gate never does: one
 * rank's curve would be another's. */
TEST(several_choices_keep_their_weights) {
    static const char *const keeping = "ktop1 sam dts expertchoice";
    for (int i = 0; mp_gate_kinds[i]; i++) {
        const struct mp_gate_kind *kind = mp_gate_kinds[i];
        struct mp_gate_values values = {0};
        struct mp_gate_rule rule;
        bool keeps = strstr(keeping, kind->name) != NULL;
        assert_works(mp_options_set_defaults(kind->options, values.bytes, &error));
        assert_works(mp_gate_rule(kind, &sizes, false, &values, &rule, &error));
        assert_int_equal(rule.keeps_weights, keeps);
    }
}

/* One sigmoid over itself would be 1 whatever the gate says. */
TEST(one_sigmoid_is_a_weight) {
    const struct mp_gate_kind *sigmoid = mp_gate_kinds[mp_gate_find("sigmoid")];
    for (int top_k = 1; top_k <= 2; top_k++) {
        const struct mp_gate_sizes own = {.experts = 8, .top_k = top_k, .tokens = 16};
        struct mp_gate_values values = {0};
        struct mp_gate_rule rule;
        assert_works(mp_options_set_defaults(sigmoid->options, values.bytes, &error));
        assert_works(mp_gate_rule(sigmoid, &own, true, &values, &rule, &error));
        assert_numbers(rule.renormalise, top_k > 1, rule.keeps_weights, top_k == 1);
    }
}

/* Every byte has one expert of a layer, others in another layer and for another seed, and none is
 * left out of 256 bytes on 16. */
TEST(bytes_have_their_experts) {
    const struct mp_gate_kind *hash = mp_gate_kinds[mp_gate_find("hash")];
    int32_t token[512], choice[3][512];
    struct mp_gate_values values[2] = {0};
    unsigned experts = 0;
    int differ[2] = {0};
    for (int i = 0; i < 512; i++)
        token[i] = i % 256;
    for (int i = 0; i < 2; i++)
        assert_int_equal(mp_options_set(hash->options, values[i].bytes, "gate hash", "seed",
                                        i ? "8" : "7", NULL, NULL),
                         MP_OK);
    hash->choose(&sizes, values[0].bytes, 0, 512, token, choice[0]);
    hash->choose(&sizes, values[0].bytes, 1, 512, token, choice[1]);
    hash->choose(&sizes, values[1].bytes, 0, 512, token, choice[2]);
    assert_memory_equal(choice[0], choice[0] + 256, 256 * sizeof **choice);
    for (int i = 0; i < 256; i++) {
        assert_in_range(choice[0][i], 0, 15);
        experts |= 1u << choice[0][i];
        differ[0] += choice[0][i] != choice[1][i];
        differ[1] += choice[0][i] != choice[2][i];
    }
    assert_int_equal(experts, 0xffff);
    assert_true(differ[0] > 128 && differ[1] > 128);
}

/* V-TA-1: costs 1 1 4 4. */
TEST(far_experts_have_less_and_cost_more) {
    static const double share[] = {.4, .4, .1, .1},
                        scale[] = {.379407, .379407, 7.620593, 7.620593};
    const struct mp_topology topology = {4, 2};
    for (int other = 0; other < 4; other++) {
        double near = mp_topology_near_share(&topology, 0, 4);
        assert_close(other < 2 ? near : near / 4, share[other], 1e-12);
        assert_close(mp_tamoe_released_scale(&topology, 4, 1, other), scale[other], 1e-6);
        assert_close(mp_tamoe_released_scale(&topology, 4, 2, 3 - other), scale[other], 1e-6);
    }
}

/* Of 8 experts on 4 ranks, seen from the last; one rank alone counts all by 1, as GShard does. */
TEST(factors_follow_the_ranks) {
    const struct mp_gate_kind *gate = mp_gate_kinds[mp_gate_find("tamoe")];
    const struct mp_gate_sizes eight = {8, 2, 1000, 32};
    const struct mp_topology topology = {4, 2}, alone = {1, 1};
    static const double far[] = {7.620593 / 16, 8 / 5.}, near[] = {.379407 / 16, 2 / 5.};
    static const char *const form[] = {"released", "paper"};
    for (int f = 0; f < 2; f++) {
        struct mp_gate_values values = {0};
        double factor[8];
        assert_int_equal(mp_options_set_defaults(gate->options, values.bytes, NULL), MP_OK);
        assert_int_equal(
            mp_options_set(gate->options, values.bytes, "gate tamoe", "loss", form[f], NULL, NULL),
            MP_OK);
        gate->loss_factors(&eight, values.bytes, &topology, 3, factor);
        for (int e = 0; e < 8; e++)
            assert_close(factor[e], e < 4 ? far[f] : near[f], 1e-6);
        gate->loss_factors(&eight, values.bytes, &alone, 0, factor);
        for (int e = 0; e < 8; e++)
            assert_close(factor[e], 1, 1e-12);
    }
}
