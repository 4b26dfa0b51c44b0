/* moeperf reshape as people start it. */
#include "tests/harness/cli/shell.h"

TEST(what_was_done_is_said) {
    assert_runs("moeperf generate w1 -o w1.mptrace --ranks 16 --experts 32 --layers 4 --tokens 128 "
                "--micro-batches 2 --top-k 2 --iterations 3");
    assert_says("moeperf reshape w1.mptrace -o w1-small.mptrace --ranks 8 --experts 64 --layers 2 "
                "--merge-micro-batches --tilt 0.75 --tokens 100",
                0,
                "notes        folded 16 ranks into 8; split 32 experts into 64 with a tilt of "
                "0.75; thinned 4 layers into 2; added up 2 micro-batches into 1; scaled every "
                "source to 100 tokens of top 2\n"
                "shape        ranks 8, experts 64, layers 2, micro-batches 1, experts per token "
                "2\niterations   3, numbered 0 .. 2\nroutes       9600 in 6 blocks\n");
}

TEST(splits_are_undone_by_folds) {
    assert_runs("moeperf generate zipf -o zipf.mptrace --ranks 4 --experts 16 --iterations 2");
    assert_runs("moeperf reshape zipf.mptrace -o large.mptrace --ranks 16 --experts 48");
    assert_runs("moeperf reshape large.mptrace -o back.mptrace --ranks 4 --experts 16");
    assert_runs("moeperf reshape back.mptrace -o same.mptrace");
    assert_runs("cmp back.mptrace same.mptrace");
}

TEST(bad_wishes_leave_no_file) {
    static const struct refused_line cases[] = {
        {"moeperf reshape zipf.mptrace", "moeperf reshape: -o OUT.mptrace is missing"},
        {"moeperf reshape zipf.mptrace -o x.mptrace --ranks 6",
         "4 ranks and 6 are wanted: neither number divides the other; the nearest that can be made "
         "are 4 and 8"},
        {"moeperf reshape zipf.mptrace -o x.mptrace --tilt 0.4", "--tilt 0.4: should be a number"},
        {"moeperf reshape zipf.mptrace -o x.mptrace --top-k 9", "experts each, not 9"},
        {"moeperf reshape gone.mptrace -o x.mptrace --ranks 2", "can't open gone.mptrace"},
    };
    assert_runs("moeperf generate zipf -o zipf.mptrace --ranks 4 --experts 16 --iterations 2");
    assert_refused(cases);
    free(shell("ls x.mptrace*", 2));
}

TEST_GROUP(enter_shell, leave_folder);
