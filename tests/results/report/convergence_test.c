/* What is said about runs with a target: iterations to it and dropped routes, beside the paper. */
#include "tests/results/json.h"
#include "tests/results/report/texts.h"

/* After an older invocation three rounds: deepspeed needs 4 iterations and once never gets there,
 * swiftmoe 3, 2 and 3. */
static void add_rounds(struct runs_folder *folder) {
    const struct runs_standard four = {
        .count = 4, .ms = {40, 20, 28, 24}, .loss = {5, 4, 3, 2}, .has_target = true, .reached = 4};
    const struct runs_standard three = {
        .count = 3, .ms = {40, 20, 28}, .loss = {5, 3, 2}, .has_target = true, .reached = 3};
    const struct runs_standard two = {
        .count = 2, .ms = {30, 20}, .loss = {3, 1.75}, .has_target = true, .reached = 2};
    struct runs_standard never = four;
    struct mp_store_run old = runs_description("deepspeed", "text");
    never.reached = 0;
    old.suite_run = "tiny-0";
    runs_add(folder, &old, &four);
    runs_execute(folder->store, "UPDATE number SET value = 9");
    for (int round = 0; round < 3; round++) {
        struct mp_store_run deepspeed = runs_description("deepspeed", "text");
        struct mp_store_run swiftmoe = runs_description("swiftmoe", "text");
        deepspeed.round = swiftmoe.round = round;
        runs_add(folder, &deepspeed, round == 1 ? &never : &four);
        runs_add(folder, &swiftmoe, round == 1 ? &two : &three);
    }
}

RUNS_TEST(nothing_is_said_without_a_target) {
    runs_add_usual(folder, "ep", &runs_ep);
    assert_text(mp_report_convergence, folder->store, NULL, "");
}

RUNS_TEST(iterations_and_drops_stand_beside_the_papers) {
    add_rounds(folder);
    assert_text(mp_report_convergence, folder->store, NULL,
                "tiny: text, gate gshard, 2 ranks, measured\n"
                "           target     median   min..max  seconds   final  dropped   rounds\n"
                "system       loss  it. to it  it. to it    to it    loss        %  reached\n"
                "deepspeed   2.500          4       4..4      0.1  2.0000     5.00   2 of 3\n"
                "swiftmoe    2.500          3       2..3      0.1  2.0000     5.00   3 of 3\n"
                "The target is reached when the mean loss of 2 iterations is at or below it.\n"
                "\n"
                "swiftmoe against others, here and in SYMI, arXiv 2504.19925 v2 (SwiftMoE in v1)\n"
                "(GPT-Small, 16 experts, top-1, 4 slots on each of 16 A100, all with capacity\n"
                "factor 1.0, auxiliary weight 1e-5, to loss 4.0; stated in the text of the paper)\n"
                "           iterations   iterations  dropped      dropped\n"
                "against        here %  published %   here %  published %\n"
                "deepspeed       -25.0        -28.5     +0.0        -69.0\n"
                "Here swiftmoe drops 5.00 % of the routes and deepspeed 5.00 %; it needs fewer\n"
                "iterations.\n"
                "\n");
}

RUNS_TEST(a_system_alone_gets_no_published_figures) {
    struct runs_standard never = runs_ep;
    never.has_target = true;
    runs_add_usual(folder, "swiftmoe", &never);
    assert_text(mp_report_convergence, folder->store, NULL,
                "tiny: text, gate gshard, 2 ranks, measured\n"
                "          target     median   min..max  seconds   final  dropped   rounds\n"
                "system      loss  it. to it  it. to it    to it    loss        %  reached\n"
                "swiftmoe   2.500          -          -        -  2.0000     5.00   0 of 1\n"
                "The target is reached when the mean loss of 2 iterations is at or below it.\n"
                "\n");
}

RUNS_TEST(json_has_the_published_figures_too) {
    add_rounds(folder);
    AUTO(json) json_t *object = json_of(mp_report_convergence, folder->store, NULL);
    assert_json(
        object, 1e-6,
        "{'rows': [{'system': 'deepspeed', 'rounds': 3, 'rounds_reached': 2},"
        " {'iterations_to_target': 3, 'iterations_to_target_min': 2, 'dropped_fraction': 0.05,"
        " 'seconds_to_target': 0.088}]}");
    const json_t *published = json_object_get(json_object_get(object, "published"), "convergence");
    assert_json(json_array_get(published, 0), 0, "{'iterations': -0.285, 'dropped': -0.69}");
}
