/* moeperf import of an export of Nsight Systems, as a newcomer starts it: no rules, three commands.
 */
#include "tests/harness/recordings/nsys.h"

#include "tests/harness/cli/shell.h"

static const int64_t began_ns = 1700000000000000000;

TEST(three_commands_name_the_rank_that_all_wait_for) {
    make_export(".", "report.sqlite", began_ns, RANKS, true);
    AUTO(text) char *output = shell("moeperf import report.sqlite --db run.db", 0);
    AUTO(text) char *command = command_in(output, "\n  moeperf import ");
    assert_says(command, 0, "run 2 of run.db: 2 processes");
    assert_says(
        "moeperf report --db run.db --run 2 --stragglers | tr -s ' \\n' ' '", 0,
        "rank 0 waits 3.00 ms of each 9.00 ms iteration (33 %) for rank 1, 100 % of it from "
        "layer 2 expert: it takes 3.00 ms longer per iteration at the same tokens (slow rank)");
}

TEST(a_file_that_is_no_export_leaves_the_database_alone) {
    write_file("cut.sqlite", "SQLite format 3");
    assert_says("moeperf import cut.sqlite --as nsys --db none.db", 2,
                "cut.sqlite: can't be read as an SQLite file");
    assert_runs("! test -e none.db && ! ls -d none.db.import*");
    make_export(".", "one.sqlite", began_ns, RANKS, true);
    assert_says("moeperf import one.sqlite one.sqlite --db none.db --suggest more.txt", 2,
                "has to end in .yaml");
    assert_runs("! test -e none.db");
    assert_runs("moeperf import one.sqlite --db own.db");
    assert_says("moeperf import own.db --db none.db", 2, "own.db: a database of moeperf, and no");
    assert_runs("! ls own.db?* none.db*");
}

TEST_GROUP(enter_shell, leave_folder);
