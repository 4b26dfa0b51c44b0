/* moeperf generate as people start it. */
#include "tests/harness/cli/shell.h"

TEST(test_the_same_seed_gives_the_same_file) {
    assert_runs("moeperf generate zipf -o a.mptrace --iterations 3 --seed 5 --exponent 0.9");
    assert_runs("moeperf generate zipf -o b.mptrace --iterations 3 --seed=5 --exponent=0.9");
    assert_runs("moeperf generate zipf -o c.mptrace --iterations 3 --seed 6 --exponent 0.9");
    assert_runs("cmp a.mptrace b.mptrace");
    free(shell("cmp a.mptrace c.mptrace", 1));
    assert_says("moeperf generate w4 -o w4.mptrace --layers 2 --ranks 4 --micro-batches 3", 0,
                "w4.mptrace: 600 blocks of 4 ranks and 64 experts\n");
}

TEST(test_help_names_kinds_and_the_options_of_one) {
    assert_says("moeperf generate --help", 0, "\n  lognormal  lognormal shares with",
                "--micro-batches N");
    assert_says("moeperf generate w7 --help", 0, "--length N", "default 3");
    assert_says("moeperf generate power --help", 0, "After aiconfigurator");
}

TEST(test_bad_wishes_leave_no_file) {
    static const struct refused_line cases[] = {
        {"moeperf generate ziph -o x.mptrace", "did you mean \"zipf\"?"},
        {"moeperf generate zipf", "-o FILE names the trace to write"},
        {"moeperf generate", "an argument is missing"},
        {"moeperf generate -o x.mptrace zipf", "the kind comes first"},
        {"moeperf generate zipf -o x.mptrace --exponent 3", "none can have more than 0.5"},
        {"moeperf generate zipf -o x.mptrace --heat 0.5", "unknown option --heat"},
        {"moeperf generate zipf -o x.mptrace --tokens many", "tokens: "},
        {"moeperf generate w1 -o x.mptrace --heat 2", "heat: 2 is outside 0 .. 1"},
        {"moeperf generate w0 -o gone/x.mptrace", "gone/x.mptrace"},
    };
    assert_refused(cases);
    free(shell("ls x.mptrace*", 2));
}

TEST_GROUP(enter_shell, leave_folder);
