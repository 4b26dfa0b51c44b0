/* Two jobs in time slices: scripts in the place of the trainers leave a letter per iteration in one
 * file, which shows who ran when. */
#include <signal.h>

#include "harness/suite/launch.h"
#include "tests/errors.h"
#include "tests/harness/folder.h"

enum { ITERATIONS = 100, PATIENCE = 250 };
static int iterations; /* of `counting`, in the latest run */

/* An iteration of a shell: 1 ms or more. */
#define WORK "  j=0; while [ $j -lt 1000 ]; do j=$((j + 1)); done\n"

static const char counting[] =
    "i=0\nwhile [ $i -lt $ITERATIONS ]; do\n" WORK
    "  i=$((i + 1)); printf $1 >>trace; echo progress $i $ITERATIONS 1 2\ndone\n";

struct pair {
    const char *script[2];
    const char *launcher; /* NULL: the script is the only rank */
    int ranks;
    double slice;
    struct mp_launch job; /* what else both have */
    struct mp_launch_result result[2];
};

static bool run(struct pair *pair, int wanted) {
    static const char *const letter[2][2] = {{"A", NULL}, {"B", NULL}};
    static const char *const program[] = {"./trainer-A", "./trainer-B"},
                             *const log[] = {"log-A", "log-B"},
                             *const slices[] = {"slices-A", "slices-B"};
    struct mp_command command[2];
    struct mp_launch job[2] = {pair->job, pair->job};
    char number[16];
    iterations = wanted;
    snprintf(number, sizeof number, "%d", wanted);
    setenv("ITERATIONS", number, 1);
    unlink("trace");
    for (int i = 0; i < 2; i++) {
        unlink(slices[i]);
        unlink(program[i]);
        if (pair->script[i])
            write_script(program[i], pair->script[i]);
        assert_works(mp_command_create(pair->launcher, pair->ranks, program[i], letter[i],
                                       &command[i], &error));
        job[i].command = &command[i];
        job[i].log = log[i];
        job[i].slices = slices[i];
        job[i].threads = 1;
        job[i].ranks = pair->ranks;
    }
    bool is_sliced = mp_launch_in_slices(job, pair->slice, pair->result);
    for (int i = 0; i < 2; i++)
        mp_command_destroy(&command[i]);
    return is_sliced;
}

/* A busy machine may let a job end before anyone can stop it: then again, with longer ones. */
static void run_in_slices(struct pair *pair, int wanted) {
    while (!run(pair, wanted)) {
        wanted *= 2;
        assert_true(wanted < 1000 * ITERATIONS);
    }
}

/* How often the trace changes from one letter to the other. */
static int count_changes(void) {
    AUTO(text) char *trace = read_file("trace");
    int changes = 0;
    for (const char *at = trace; *at && at[1]; at++)
        changes += at[0] != at[1];
    return changes;
}

static int count_letters(char letter) {
    AUTO(text) char *trace = read_file("trace");
    int letters = 0;
    for (const char *at = trace; *at; at++)
        letters += *at == letter;
    return letters;
}

/* Slices of both, which must be apart from each other; returns how many there are. */
static int check_slices(void) {
    struct mp_store_slice *slice[2];
    int count[2], at[2] = {0, 0};
    int64_t last = 0;
    for (int i = 0; i < 2; i++)
        assert_works(mp_slices_read(i ? "slices-B" : "slices-A", &slice[i], &count[i], &error));
    while (at[0] < count[0] || at[1] < count[1]) {
        bool second = at[0] == count[0] ||
                      (at[1] < count[1] && slice[1][at[1]].start_ns < slice[0][at[0]].start_ns);
        const struct mp_store_slice *next = &slice[second][at[second]++];
        assert_true(next->start_ns >= last && next->end_ns > next->start_ns);
        last = next->end_ns;
    }
    free(slice[0]);
    free(slice[1]);
    return count[0] + count[1];
}

static void assert_complete(const struct pair *pair, int wanted) {
    for (int i = 0; i < 2; i++) {
        assert_string_equal(pair->result[i].reason, "");
        assert_int_equal(pair->result[i].end, MP_LAUNCH_COMPLETE);
        assert_int_equal(pair->result[i].progress.iteration, wanted);
    }
}

TEST(one_runs_while_the_other_is_stopped) {
    struct pair pair = {{counting, counting}, NULL, 1, 0.02, {.timeout = PATIENCE}, {{0}}};
    run_in_slices(&pair, ITERATIONS);
    assert_complete(&pair, iterations);
    int slices = check_slices();
    assert_in_range(slices, 3, 2 * iterations); /* each one's first, and one more at least */
    /* Beside each other they would write by turns all the time.  A letter may be on its way when
     * its rank is stopped, and on a busy machine a slice may pass without any. */
    assert_in_range(count_changes(), slices / 3, 2 * slices);
    assert_int_equal(count_letters('A'), iterations);
    assert_int_equal(count_letters('B'), iterations);
}

static const char four_times_slower[] =
    "i=0\nwhile [ $i -lt $ITERATIONS ]; do\n" WORK WORK WORK WORK
    "  i=$((i + 1)); printf $1 >>trace; echo progress $i $ITERATIONS 1 2\ndone\n";

/* Of what it ran, the share that was in slices. */
static double share_in_slices(const struct pair *pair, int i) {
    AUTO(allocated) struct mp_store_slice *slice;
    int count;
    double seconds = 0;
    assert_works(mp_slices_read(i ? "slices-B" : "slices-A", &slice, &count, &error));
    for (int k = 0; k < count; k++)
        seconds += 1e-9 * (double)(slice[k].end_ns - slice[k].start_ns);
    return seconds / pair->result[i].seconds;
}

/* Of the slower one, too, nearly all is beside the other, and not after it. */
TEST(a_slower_one_is_not_left_alone) {
    struct pair pair = {{counting, four_times_slower}, NULL, 1, 0.02, {.timeout = PATIENCE}, {{0}}};
    run_in_slices(&pair, 3 * ITERATIONS);
    assert_complete(&pair, iterations);
    check_slices();
    assert_true(share_in_slices(&pair, 0) > .6);
    assert_true(share_in_slices(&pair, 1) > .6);
}

static const char two_ranks[] = "./launcher {program} {arguments}";

/* Neither rank begins before the other one is there to be stopped, on a busy machine, too: a job
 * whose launcher has one rank below it at the first iteration runs in no slices, however long. */
static void write_launcher(void) {
    write_script("launcher",
                 "rm -f gate; mkfifo gate; exec 3<>gate\n"
                 "(read -r begin <&3; exec \"$@\") & (read -r begin <&3; exec \"$@\") &\n"
                 "printf '\\n\\n' >&3; wait %1 && wait %2\n");
}

TEST(all_ranks_of_a_launcher_are_stopped) {
    struct pair pair = {{counting, counting}, two_ranks, 2, 0.05, {.timeout = PATIENCE}, {{0}}};
    write_launcher();
    run_in_slices(&pair, ITERATIONS);
    assert_complete(&pair, iterations);
    int slices = check_slices();
    assert_in_range(slices, 3, 2 * iterations);
    assert_in_range(count_changes(), slices / 3, 2 * slices);
    assert_int_equal(count_letters('A'), 2 * iterations);
}

/* Launchers are not stopped, and take their time: that of A ends in B's slice, which is one all the
 * same. */
TEST(a_launcher_ends_when_it_likes) {
    static const char telling[] = "i=0\nwhile [ $i -lt $ITERATIONS ]; do\n" WORK
                                  "  i=$((i + 1)); [ $i -lt 9 ] || : >told; printf $1 >>trace\n"
                                  "  echo progress $i $ITERATIONS 1 2\ndone\n";
    struct pair pair = {{counting, telling},
                        "./launcher {program} {arguments}",
                        1,
                        0.5,
                        {.timeout = PATIENCE},
                        {{0}}};
    unlink("told");
    write_script("launcher", "\"$@\" & wait $!\n"
                             "until [ $1 != ./trainer-A ] || [ -e told ]; do sleep 0.01; done\n");
    run_in_slices(&pair, ITERATIONS);
    assert_complete(&pair, iterations);
    check_slices();
    assert_true(share_in_slices(&pair, 1) > .6);
}

/* Ranks elsewhere: there are fewer below the launcher than the job has. */
TEST(ranks_out_of_reach_run_one_after_the_other) {
    struct pair pair = {{counting, counting}, two_ranks, 3, 0.02, {.timeout = PATIENCE}, {{0}}};
    write_launcher();
    assert_false(run(&pair, ITERATIONS));
    assert_complete(&pair, iterations);
    assert_int_equal(count_changes(), 1);
}

TEST(no_slices_are_one_after_the_other) {
    struct pair pair = {{counting, counting}, NULL, 1, 0, {.timeout = PATIENCE}, {{0}}};
    assert_false(run(&pair, ITERATIONS));
    assert_complete(&pair, iterations);
    assert_int_equal(count_changes(), 1);
    assert_int_equal(check_slices(), 0);
}

TEST(slices_hold_some_iterations) {
    static const char slow[] = "for i in 1 2 3; do sleep 0.3; printf $1 >>trace\n"
                               "echo progress $i 3 1 1e6; done\n";
    struct pair pair = {{slow, slow}, NULL, 1, 0.02, {.timeout = PATIENCE}, {{0}}};
    /* Slices of 0.02 s grow until an iteration fits; then one ends in the next slice. */
    run_in_slices(&pair, ITERATIONS);
    assert_complete(&pair, 3);
    assert_in_range(check_slices(), 3, 12);
}

TEST(the_other_goes_on_when_one_fails) {
    static const char *const failing[] = {
        "exit 3\n", "echo progress 1 9 1 1\nexit 3\n", NULL,
        "i=0\nwhile [ $i -lt 20 ]; do\n" WORK
        "  i=$((i + 1)); echo progress $i 100 1 2\ndone\nexit 3\n"};
    for (size_t f = 0; f < sizeof failing / sizeof *failing; f++)
        for (int side = 0; side < 2; side++) {
            struct pair pair = {{counting, counting}, NULL, 1, 0.02, {.timeout = PATIENCE}, {{0}}};
            pair.script[side] = failing[f];
            run(&pair, ITERATIONS);
            assert_int_equal(pair.result[side].end, MP_LAUNCH_FAILED);
            assert_contains(pair.result[side].reason,
                            failing[f] ? "exit status 3" : "there is no such program");
            assert_int_equal(pair.result[!side].end, MP_LAUNCH_COMPLETE);
            assert_int_equal(pair.result[!side].progress.iteration, iterations);
        }
}

TEST(a_job_that_hangs_times_out_alone) {
    static const char hanging[] = "trap 'exit 1' TERM\necho progress 1 9 1 1\n"
                                  "while :; do sleep 0.05; done\n";
    struct pair pair = {{hanging, counting}, NULL, 1, 0.02, {.timeout = 0}, {{0}}};
    /* On a busy machine even the other one may take too long: then again, with more time. */
    for (pair.job.timeout = 2; pair.result[1].progress.iteration < ITERATIONS;
         pair.job.timeout *= 2) {
        run(&pair, ITERATIONS);
        assert_int_equal(pair.result[0].end, MP_LAUNCH_TIMEOUT);
    }
    assert_int_equal(pair.result[1].end, MP_LAUNCH_COMPLETE);
}

TEST(a_job_without_its_file_fails) {
    struct pair pair = {{counting, counting}, NULL, 1, 0.02, {.timeout = PATIENCE}, {{0}}};
    unlink("slices-B");
    assert_int_equal(mkdir("slices-B", 0777), 0);
    assert_false(run(&pair, ITERATIONS));
    assert_int_equal(rmdir("slices-B"), 0);
    assert_numbers(pair.result[0].end, MP_LAUNCH_COMPLETE, pair.result[1].end, MP_LAUNCH_FAILED);
    assert_contains(pair.result[1].reason, "can't write slices-B: ");
    assert_int_equal(count_letters('B'), 0);
}

static volatile sig_atomic_t signals;

static void signal_at_20(UNUSED void *context, const struct mp_launch_progress *progress) {
    if (progress->iteration >= 20)
        signals = 1;
}

TEST(interruption_ends_both) {
    static const char obeying[] =
        "trap 'echo progress $i 100 1 2; exit 1' INT\ni=0\n"
        "while :; do\n" WORK "  i=$((i + 1)); echo progress $i 100 1 2\ndone\n";
    struct pair pair = {{obeying, obeying}, NULL, 1, 0.02, {.timeout = PATIENCE}, {{0}}};
    pair.job.signals = &signals;
    pair.job.watch = signal_at_20;
    signals = 0;
    run(&pair, ITERATIONS);
    assert_int_equal(pair.result[0].end, MP_LAUNCH_INTERRUPTED);
    assert_int_equal(pair.result[1].end, MP_LAUNCH_INTERRUPTED);
}

static void signal_at_once(UNUSED void *context, UNUSED const struct mp_launch_progress *progress) {
    signals = 1;
}

TEST(interruption_of_the_first_leaves_the_second_out) {
    static const char starting[] = "trap 'exit 1' INT\nwhile :; do sleep 0.05; done\n";
    struct pair pair = {{starting, counting}, NULL, 1, 0.02, {.timeout = PATIENCE}, {{0}}};
    pair.job.signals = &signals;
    pair.job.watch = signal_at_once;
    signals = 0;
    assert_false(run(&pair, ITERATIONS));
    assert_int_equal(pair.result[0].end, MP_LAUNCH_INTERRUPTED);
    assert_int_equal(pair.result[1].end, MP_LAUNCH_INTERRUPTED);
    assert_string_equal(pair.result[1].reason, "stopped by the user before it began");
    assert_int_equal(count_letters('B'), 0);
}

static const struct {
    const char *text;
} damaged[] = {{"1 2\n3\n"}, {"1 2\n9 5\n"}, {"1 2\n3 4 5\n"}, {"1 2\nx y\n"}};

TEST_ROWS(damaged_files_are_refused, damaged, row) {
    AUTO(allocated) struct mp_store_slice *slice = NULL;
    int count;
    write_file("damaged", row->text);
    assert_fails(mp_slices_read("damaged", &slice, &count, &error), MP_EFORMAT, "damaged, line 2");
}

TEST(cut_and_absent_files_are_read) {
    struct mp_store_slice *slice;
    int count;
    write_file("cut", "10 20\n30 40\n50 6");
    assert_works(mp_slices_read("cut", &slice, &count, &error));
    assert_int_equal(count, 2);
    assert_numbers(slice[1].start_ns, 30, slice[1].end_ns, 40);
    free(slice);
    assert_works(mp_slices_read("absent", &slice, &count, &error));
    assert_int_equal(count, 0);
    assert_null(slice);
}

TEST_GROUP(enter_folder, leave_folder);
