/* What a shell completes, and the pages for man: both come from what the programs say. */
#include "tests/harness/cli/shell.h"

/* What bash offers for the last of these words, in one line. */
static void expect_offers(const char *words, const char *offered) {
    assert_says(
        formatted("bash -c 'source %s/completion/moeperf; COMP_WORDS=(%s); "
                  "COMP_CWORD=$((${#COMP_WORDS[@]} - 1)); _moeperf; echo \"[${COMPREPLY[*]}]\"'",
                  MOEPERF_CLI_SOURCE, words),
        0, offered);
}

TEST(words_are_completed) {
    write_file("recorded.db", "");
    expect_offers("moeperf pre", "[predict]\n");
    expect_offers("moeperf --", "[--help --version]\n");
    expect_offers("moeperf run quick", "[quickstart]\n");
    expect_offers("moeperf run --keep", "[--keep-spools]\n");
    expect_offers("moeperf predict --system moo", "[moonep]\n");
    expect_offers("moeperf predict --cluster hecate", "[hecate-a hecate-b]\n");
    expect_offers("moeperf record --rules deep", "[deepspeed]\n");
    expect_offers("moeperf generate zi", "[zipf]\n");
    expect_offers("moeperf list gat", "[gates]\n");
    expect_offers("moeperf reproduce tut", "[tutel]\n");
    expect_offers("moeperf hel", "[help]\n");
    expect_offers("moeperf help predic", "[predictions]\n");
    expect_offers("moeperf show moeperf_", "[moeperf_experts.py]\n");
    expect_offers("moeperf show dedu", "[deduplicated]\n");
    expect_offers("moeperf report --db reco", "[recorded.db]\n");
    expect_offers("moeperf predict --format l", "[latex]\n");
    expect_offers("moeperf run --set top", "[top-k=]\n");
    expect_offers("moeperf predict --vary predict.att", "[predict.attention=]\n");
    expect_offers("moeperf predict --vary nod", "[nodes=]\n");
    expect_offers("moeperf predict --system nothing", "[]\n");
}

/* zsh has bash's file do it, and chooses itself among what that offers. */
TEST(zsh_completes_words_too) {
    if (system("command -v zsh >/dev/null") != 0)
        skip("there is no zsh (package zsh)");
    assert_says("zsh -fc 'autoload -U +X compinit bashcompinit; compinit -u -D; bashcompinit; "
                "emulate sh; source " MOEPERF_CLI_SOURCE "/completion/moeperf; "
                "COMP_WORDS=(moeperf reproduce hec); COMP_CWORD=2; _moeperf; "
                "echo \"[${COMPREPLY[*]}]\"'",
                0, "[hecate swiftmoe ");
}

/* A page for every command, with its summary and its options. */
TEST(every_command_has_a_page) {
    assert_runs("sh " MOEPERF_CLI_SOURCE "/manual.sh help2man $(command -v moeperf) "
                "$(command -v moeperf-train) pages");
    assert_says("moeperf --help | sed -n '/^commands:/,/^$/s/^  \\([a-z]*\\) .*/\\1/p' | "
                "while read -r name; do grep -q \"^moeperf-$name\" pages/moeperf-$name.1 && "
                "grep -q '^.TH MOEPERF-' pages/moeperf-$name.1 || echo none of $name; done; "
                "ls pages | wc -l; moeperf --help | sed -n '/^commands:/,/^$/p' | grep -c '^  '",
                0, "19\n17\n");
    assert_says("cat pages/moeperf-predict.1", 0, "\\fB\\-\\-cluster\\fR NAME\n");
    assert_says("cat pages/moeperf-train.1", 0, "moeperf-train \\- trains one job, as a rank\n");
}

TEST_GROUP(enter_shell, leave_folder);
