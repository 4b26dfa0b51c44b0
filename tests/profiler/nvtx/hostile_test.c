/* libmoeperf-nvtx.so in programs that close its descriptor, interrupt it, cancel it, give it
 * rubbish or end while it works (hostile.c): they run as without it, and what is missing is said.
 */
#include <fcntl.h>
#include <signal.h>

#include "tests/profiler/nvtx/spools.h"

static char precious[400];

/* Without the writing thread when it writes is no question of time: when a buffer is full, and at
 * the end.  Returns the wait status. */
static int play(const char *scene, int number, bool with_thread) {
    char program[] = HOSTILE, name[32], digits[16];
    char *arguments[] = {program, name, digits, NULL};
    snprintf(name, sizeof name, "%s", scene);
    snprintf(digits, sizeof digits, "%d", number);
    snprintf(precious, sizeof precious, "%s/precious", folder);
    setenv("HOSTILE_FILE", precious, 1);
    return run_program(arguments, "MOEPERF_NVTX_FLUSH_MS", with_thread ? "1" : "0");
}

static void assert_precious(void) {
    char content[64];
    int file = open(precious, O_RDONLY);
    assert_true(file >= 0);
    assert_int_equal(read(file, content, sizeof content), 8);
    assert_memory_equal(content, "precious", 8);
    close(file);
    unlink(precious);
}

/* More ranges than a buffer holds, so that some are written while the program runs. */
enum { MORE_THAN_A_BUFFER = 9000 };

TEST(files_of_the_program_stay_its_own) {
    for (int with_thread = 0; with_thread < 2; with_thread++) {
        assert_int_equal(play("closes", MORE_THAN_A_BUFFER, with_thread), 0);
        assert_precious();
        assert_int_equal(spools, 1);
        assert_int_equal(how_many(&spool[0], "before"), 1);
        assert_int_equal(how_many(&spool[0], "after"), MORE_THAN_A_BUFFER);
        assert_int_equal(count_of(&spool[0], "nvtx-unwritten"), 0);
        assert_contains(spool[0].reason, "the program closed the descriptor", "nothing is missing");
    }
}

TEST(a_daemon_keeps_its_files) {
    assert_int_equal(play("daemonises", MORE_THAN_A_BUFFER, false), 0);
    assert_precious();
    assert_int_equal(spools, 2);
    int child = how_many(&spool[1], "after") > 0;
    assert_int_equal(how_many(&spool[child], "after"), MORE_THAN_A_BUFFER);
    assert_int_equal(how_many(&spool[!child], "of the parent"), 1);
    assert_string_equal(spool[!child].reason, "");
}

/* Each handler's push and pop are recorded, or both are sent away. */
TEST(handlers_neither_hang_nor_are_lost_unsaid) {
    enum { NUMBER = 200 };
    int handled = 0, recorded = 0, number;
    assert_int_equal(play("handlers", NUMBER, false), 0);
    assert_int_equal(spools, 1);
    for (int i = 0; i < spool[0].ranges; i++) {
        const char *name = name_of(&spool[0], &spool[0].range[i]);
        recorded += sscanf(name, "in handler %d", &number) == 1;
        if (spool[0].range[i].kind == MP_RANGE_MARK)
            assert_int_equal(sscanf(name, "%d handled", &handled), 1);
        else
            assert_true(spool[0].range[i].end_ns >= spool[0].range[i].start_ns);
    }
    const int sent_away = count_of(&spool[0], "nvtx-interrupting");
    assert_true(recorded >= NUMBER && sent_away >= NUMBER);
    assert_int_equal(2 * recorded + sent_away, 2 * handled);
    assert_int_equal(spool[0].ranges, NUMBER + 1 + recorded + 1);
    assert_int_equal(count_of(&spool[0], "nvtx-unmatched-ends"), 0);
    assert_contains(spool[0].reason, "calls came from signal handlers");
}

TEST(a_cancelled_thread_takes_no_lock_with_it) {
    assert_int_equal(play("cancelled", 3, false), 0);
    assert_int_equal(how_many(&spool[0], "of a thread that is cancelled"), 3);
    assert_int_equal(how_many(&spool[0], "afterwards"), 1);
}

TEST(what_ended_threads_had_open_is_there) {
    enum { THREADS = 40 };
    assert_int_equal(play("abandons", THREADS, false), 0);
    assert_int_equal(how_many(&spool[0], "left by a thread"), THREADS);
    assert_int_equal(count_of(&spool[0], "nvtx-left-open"), THREADS);
}

/* What threads have open while the process exits is whole. */
TEST(ranges_that_are_open_at_exit_are_whole) {
    for (int round = 0; round < 3; round++) {
        assert_int_equal(play("leaves", 200, true), 0);
        assert_int_equal(spools, 1);
        assert_true(spool[0].ended);
        for (int i = 0; i < spool[0].ranges; i++) {
            const struct mp_range *range = &spool[0].range[i];
            assert_numbers(range->color, ~range->category, range->value, range->category);
            assert_string_equal(name_of(&spool[0], range), "for ever");
        }
    }
}

TEST(handles_that_nobody_gave_out_are_counted) {
    enum { WRONG = 7 };
    assert_int_equal(play("handles", WRONG, false), 0);
    assert_int_equal(how_many(&spool[0], "registered"), WRONG);
    for (int i = 0; i < spool[0].ranges; i++)
        if (spool[0].range[i].kind == MP_RANGE_PUSHED)
            assert_int_equal(spool[0].range[i].domain, 0);
    assert_int_equal(count_of(&spool[0], "nvtx-unmatched-ends"), 1);
    assert_int_equal(count_of(&spool[0], "nvtx-unknown-handles"), 2 * WRONG + 1);
    assert_contains(spool[0].reason, "15 calls had a handle");
}

TEST(names_take_a_limited_memory) {
    enum { NUMBER = 6000 }; /* of 4000 bytes each, and 16 MiB have room for about 4150 */
    assert_int_equal(play("names", NUMBER, false), 0);
    const int nameless = count_of(&spool[0], "nvtx-nameless");
    assert_numbers(spool[0].ranges, NUMBER, spool[0].names, NUMBER - nameless);
    assert_in_range(spool[0].names, (15 << 20) / 4000, (16 << 20) / 4000);
    assert_contains(spool[0].reason, "names were too many");
}

TEST(what_vanished_unwritten_is_not_taken_for_an_end) {
    assert_int_equal(play("vanishes", 1000, false), 0);
    assert_int_equal(spools, 1);
    assert_int_equal(spool[0].ranges, 0);
    assert_false(spool[0].ended);
}

TEST_GROUP(make_folder, remove_folder);
