/* moeperf cite: BibTeX of what was run, and of everything that says where it comes from. */
#include "tests/harness/cli/shell.h"

TEST(runs_are_cited) {
    assert_runs("moeperf predict --cluster hecate-b --loads 'power' --iterations 1 --system fssdp "
                "--set gate=switch --db p.db");
    assert_runs("moeperf cite --db p.db >bib");
    assert_says("grep '^%' bib", 0,
                "% system ep: he2021fastmoe\n"
                "% gate switch: fedus2022switch\n"
                "% exchange flat: he2021fastmoe\n"
                "% cluster hecate-b: qing2025hecate, nvidia-a100, aws-p4\n"
                "% generator power: nvidia-aiconfigurator\n"
                "% system fssdp: qing2025hecate\n");
    assert_says("grep -c '^@.*{qing2025hecate,$' bib", 0, "1\n"); /* once, for two things */
    assert_says("sed -n '/^@software{moeperf/,/^}/p' bib", 0, "  version = {0.1.0 (");
    assert_says("moeperf cite --db p.db skeleton | head -1", 0, "% skeleton: none; where a new");
    assert_runs(
        "moeperf generate w1 -o t.mptrace --iterations 2 --layers 12 --experts 64 --ranks 32 "
        "--tokens 256 && moeperf predict --cluster hecate-b --trace t.mptrace --system ep "
        "--db t.db");
    assert_says("moeperf cite --db t.db", 0, "t.mptrace: ");
}

TEST(names_are_cited) {
    /* Of what has one name all of it: the system of the paper, and the paper's machines. */
    assert_says("moeperf cite swiftmoe | head -1", 0, "% swiftmoe: skiadopoulos2025symi, nvidia-");
    assert_says("moeperf cite hecate gshard | grep ^%", 0,
                "% hecate: qing2025hecate\n% gshard: he2021fastmoe, lepikhin2021gshard\n");
    assert_says("moeperf cite fsdp", 2, "nothing is called \"fsdp\"; did you mean \"fssdp\"?");
    assert_says("moeperf cite", 2, "out/results.db");
    assert_says("moeperf cite ep >/dev/full", 2, "No space left");
}

/* Whatever names a source: an entry, with every arXiv number that it says. */
TEST(every_source_has_an_entry) {
    assert_runs(
        "for topic in systems gates exchanges generators clusters; do "
        "moeperf list $topic | sed -n 's/^\\([a-z][^ ]*\\) .*/\\1/p'; done | sort -u >names");
    AUTO(text)
    char *without = shell("moeperf cite $(cat names) | grep '^%' | "
                          "grep -v ': [a-z0-9]*20[0-9][0-9]\\|: aws-\\|: nvidia-' | "
                          "sed 's/^[^:]*: //' | sort -u",
                          0);
    assert_string_equal(without, "moeperf's own\nno source\n"
                                 "none; what balance alone would be worth\n"
                                 "none; where a new system starts (baselines/README.md)\n");
    AUTO(text)
    char *lacking = shell("for name in $(cat names); do moeperf cite $name >one; moeperf show "
                          "$name --json | grep '\"source\":' | grep -o 'arXiv [0-9]*\\.[0-9]*' | "
                          "sort -u | while read -r word number; do grep -q \"eprint = {$number}\" "
                          "one || echo $name lacks $number; done; done",
                          0);
    assert_string_equal(lacking, "");
}

TEST_GROUP(enter_shell, leave_folder);
