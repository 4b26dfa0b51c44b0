/* Files that commands write: whole or not there, and /dev/stdout for those who pipe. */
#include <signal.h>

#include "tests/harness/cli/shell.h"

#define GENERATE "moeperf generate zipf --ranks 2 --experts 4 --seed 1 --iterations "

/* The same bytes wherever they go, and what is said of them is not among them. */
TEST(traces_can_be_piped) {
    assert_says(GENERATE "3 -o plain.mptrace", 0, "plain.mptrace: ");
    assert_runs(GENERATE "3 -o /dev/stdout 2>said | cat >piped.mptrace; "
                         "cmp piped.mptrace plain.mptrace && grep -q /dev/stdout: said");
    assert_runs("{ printf before; " GENERATE "3 -o /dev/stdout 2>said; printf after; } >log; "
                "{ printf before; cat plain.mptrace; printf after; } | cmp - log");
    assert_runs("mkfifo fifo && { cat fifo >through & " GENERATE "3 -o fifo; wait; } && "
                "cmp through plain.mptrace");
    assert_says("moeperf export --as csv --trace plain.mptrace /dev/stdout 2>/dev/null", 0,
                "iteration,micro_batch,layer,rank,expert,count\n0,0,0,0,0,");
}

TEST(links_that_others_planted_lead_nowhere) {
    write_file("victim", "untouched");
    assert_runs("ln -s victim o.mptrace.partial; ln -s victim o.csv.partial");
    assert_runs(GENERATE "1 -o o.mptrace && moeperf export --as csv --trace o.mptrace o.csv");
    AUTO(text) char *text = read_file("victim");
    assert_string_equal(text, "untouched");
}

/* A trace that would take hours, asked to end as soon as a byte of it can be there. */
static const int signals[] = {SIGHUP, SIGINT, SIGTERM};
TEST_ROWS(nothing_stays_of_what_a_signal_ends, signals, number) {
    fflush(stdout);
    pid_t child = fork();
    if (child == 0) {
        signal(*number, SIG_DFL);
        execlp("moeperf", "moeperf", "generate", "zipf", "--iterations", "100000000", "-o",
               "long.mptrace", NULL);
        _exit(127);
    }
    while (count_entries(".", "long.mptrace") == 0 && !waitpid(child, NULL, WNOHANG))
        usleep(1000);
    assert_int_equal(kill(child, *number), 0);
    assert_int_equal(end_of_process(child), *number);
    assert_int_equal(count_entries(".", "long.mptrace"), 0);
}

/* A page or a module that is redirected into a file, on a disk that is full. */
TEST(what_is_not_printed_is_an_error) {
    static const char *const lines[] = {"moeperf show moeperf_experts.py", "moeperf help tasks",
                                        "moeperf list systems", "moeperf --version"};
    for (size_t i = 0; i < sizeof lines / sizeof *lines; i++)
        assert_says(formatted("%s >/dev/full", lines[i]), 2, "No space left on device");
}

/* What others chose: names of files, kinds and what a trace says of its source. */
TEST(messages_do_not_act_on_the_terminal) {
    static const char *const lines[] = {
        "moeperf run \"$(printf 'a\\033[31m\\007')\".yaml",
        "moeperf report --db \"$(printf 'a\\033[31m\\007\\342\\200\\256')\"",
        "moeperf import \"$(printf 'a\\033[31m\\007').csv\" -o x.mptrace",
    };
    for (size_t i = 0; i < sizeof lines / sizeof *lines; i++)
        assert_says(lines[i], 2, "a?[31m?", LACKS("\x1b"), LACKS("\a"), LACKS("\xe2\x80\xae"));
    assert_says("cp plain.mptrace \"$(printf 'b\\033[1m')\" && "
                "moeperf reshape \"$(printf 'b\\033[1m')\" --ranks 1 -o shaped.mptrace",
                0, LACKS("\x1b"), LACKS("\a"));
}

#define assert_clean(line, words)                                                                  \
    assert_says(line, 0, words, LACKS("\x1b"), LACKS("\a"), LACKS("\xe2\x80\xae"))

TEST(files_of_others_are_shown_clean) {
    write_file("suite.yaml", "# a\x1b[31m\a\tb \xe2\x80\xae"
                             "c\nsuite: x\n");
    assert_clean("moeperf show ./suite.yaml", "# ./suite.yaml\n# a?[31m?\tb ?c\nsuite: x\n");
    assert_runs(
        "sed 's/^description: .*/description: \"one\\\\e[1m\\\\u202e "
        "two\"/' $(dirname $(which moeperf))/../share/moeperf/clusters/hecate-a.yaml >c.yaml");
    assert_clean("moeperf show ./c.yaml", "./c.yaml: one?[1m? two\n");
    assert_runs("mkdir -p bin share/moeperf/suites && cp $(which moeperf) bin && "
                "printf 'suite: x\\ndescription: \"a\\\\e[1m b\"\\n' "
                ">share/moeperf/suites/\"$(printf 's\\033[2m')\".yaml");
    assert_clean("bin/moeperf list suites", "s?[2m  a?[1m b\n");
}

TEST_GROUP(enter_shell, leave_folder);
