/* Clocks that run apart, as the ends of collectives on them show. */
#include "harness/record/clocks.h"

#include "tests/support.h"

enum { MEETINGS = 400, CLOCKS = 3 };

/* A clock of its own offset and speed, and a process that leaves meetings up to `late_ns` later. */
struct machine {
    int64_t offset_ns, late_ns;
    double speed;
};

static int64_t shown(const struct machine *machine, int64_t true_ns) {
    return (int64_t)((double)true_ns * machine->speed) + machine->offset_ns;
}

static struct meeting room[CLOCKS][MEETINGS];
static struct meeting_clock watch[CLOCKS]; /* of what is in the room */

static void meet(const struct machine machine[], int machines) {
    memset(watch, 0, sizeof watch);
    for (int i = 0; i < machines; i++) {
        for (int m = 0; m < MEETINGS; m++) {
            const int64_t left_ns =
                1000000000 + (int64_t)m * 5000000 + rand() % (machine[i].late_ns + 1);
            room[i][m] = (struct meeting){.communicator = 7,
                                          .sequence = (uint64_t)m + 1,
                                          .function = 3,
                                          .start_ns = shown(&machine[i], left_ns - 100000),
                                          .end_ns = shown(&machine[i], left_ns)};
        }
        meetings_order(room[i], MEETINGS);
        watch[i].meeting = room[i];
        watch[i].meetings = MEETINGS;
    }
}

TEST(offsets_and_speeds_are_found) {
    const struct machine machine[CLOCKS] = {
        {0, 20000, 1}, {-7000000000, 20000, 1 + 40e-6}, {INT64_C(3600000000000), 20000, 1 - 30e-6}};
    meet(machine, CLOCKS);
    assert_true(meeting_clocks_align(watch, CLOCKS));
    assert_int_equal(watch[0].samples, 0);
    for (int i = 1; i < CLOCKS; i++) {
        assert_true(watch[i].aligned);
        assert_numbers(watch[i].matched, MEETINGS, watch[i].samples, CLOCK_WINDOWS);
        const struct clock_fit fit = clock_fit_samples(watch[i].sample, watch[i].samples);
        for (int64_t true_ns = 1000000000; true_ns < 3000000000; true_ns += 100000000) {
            int64_t found_ns = clock_fit_apply(&fit, shown(&machine[i], true_ns));
            assert_in_range(found_ns - true_ns + 10000, 0, 20000);
        }
        for (int w = 0; w < watch[i].samples; w++)
            assert_in_range(watch[i].sample[w].error_ns, 1000, 20000);
    }
}

/* Ends that differ by less than they scatter are no other clock. */
TEST(one_clock_is_left_alone) {
    const struct machine machine[2] = {{0, 50000, 1}, {2000, 50000, 1}};
    meet(machine, 2);
    assert_true(meeting_clocks_align(watch, 2));
    for (int w = 0; w < watch[1].samples; w++) {
        assert_int_equal(watch[1].sample[w].offset_ns, 0);
        assert_in_range(watch[1].sample[w].error_ns, 1000, 50000);
    }
}

TEST(one_host_has_one_clock) {
    struct machine machine[2] = {{0, 100, 1}, {CLOCK_SAME_NS - 200, 100, 1}};
    meet(machine, 2);
    watch[1].on_first_host = true;
    assert_true(meeting_clocks_align(watch, 2));
    assert_true(watch[1].aligned);
    assert_int_equal(watch[1].samples, 0);
    machine[1].offset_ns = CLOCK_SAME_NS + 200; /* another host of the same name */
    meet(machine, 2);
    watch[1].on_first_host = true;
    assert_true(meeting_clocks_align(watch, 2));
    assert_int_equal(watch[1].samples, CLOCK_WINDOWS);
    assert_in_range(watch[1].sample[0].offset_ns, CLOCK_SAME_NS, CLOCK_SAME_NS + 400);
}

/* Those that took long end at any time: what was short counts. */
TEST(short_meetings_count) {
    const struct machine machine[2] = {{0, 100, 1}, {9000000, 100, 1}};
    meet(machine, 2);
    for (int m = 0; m < MEETINGS; m++) {
        if (m % 4 == 0)
            continue;
        room[1][m].end_ns += 300000;
        room[0][m].start_ns -= 300000;
    }
    assert_true(meeting_clocks_align(watch, 2));
    for (int w = 0; w < watch[1].samples; w++)
        assert_in_range(watch[1].sample[w].offset_ns + 100 - 9000000, 0, 200);
}

/* One of them began to record an operation later than the other: the counts don't match, and the
 * clocks are not to be put beside one another by them.  Where each waits 0 to 4 ms, a tenth fits.
 */
TEST_TURNS(other_meetings_are_no_meetings, 2, shift) {
    const struct machine machine[2] = {{0, 1000, 1}, {5000, 1000, 1}};
    meet(machine, 2);
    for (int m = 0; m < MEETINGS; m++) {
        const int64_t irregular_ns = (int64_t)((uint32_t)(m + 1) * 2654435761u % 4000000);
        for (int i = 0; i < 2; i++) {
            room[i][m].end_ns += irregular_ns;
            room[i][m].start_ns += irregular_ns - (i == m % 2 ? 800000 : 0);
        }
        room[1][m].sequence += (uint64_t)shift;
    }
    assert_true(meeting_clocks_align(watch, 2));
    assert_numbers(watch[1].mismatched, shift, watch[1].aligned, !shift);
}

/* Three in ten end 50 us earlier or later than the others say.  Who waited long may have left so
 * much later than it seems; who came last can't. */
TEST(the_last_to_come_leaves_with_the_others) {
    const struct machine machine[2] = {{0, 0, 1}, {0, 0, 1}};
    for (int longer = 0; longer < 2; longer++)
        for (int sign = -1; sign <= 1; sign += 2) {
            meet(machine, 2);
            for (int m = 0; m < MEETINGS; m++) {
                const bool is_off = m % 10 < 3;
                room[1][m].end_ns += is_off ? sign * 50000 : 0;
                for (int i = 0; i < 2; i++)
                    room[i][m].start_ns = room[i][m].end_ns - (!is_off       ? 500
                                                               : i == longer ? 100000
                                                                             : 1000);
            }
            assert_true(meeting_clocks_align(watch, 2));
            assert_int_equal(watch[1].mismatched, longer ? sign < 0 : sign > 0);
        }
}

/* The third process meets only the second; its offset from the first is the sum, as its error. */
TEST(clocks_are_compared_through_others) {
    const struct machine machine[CLOCKS] = {{0, 10, 1}, {500000, 10, 1}, {-800000, 10, 1}};
    meet(machine, CLOCKS);
    for (int m = 0; m < MEETINGS / 2; m++) /* the first two are not at ease with each other */
        room[0][m].end_ns += rand() % 4000;
    watch[0].meetings = MEETINGS / 2; /* the second's later half is with the third */
    watch[2].meeting += MEETINGS / 2;
    watch[2].meetings = MEETINGS / 2;
    assert_true(meeting_clocks_align(watch, CLOCKS));
    assert_numbers(watch[1].matched, MEETINGS / 2, watch[2].matched, MEETINGS / 2);
    for (int w = 0; w < watch[2].samples; w++) {
        assert_in_range(watch[2].sample[w].offset_ns + 800000 + 4000, 0, 4100);
        assert_in_range(watch[2].sample[w].error_ns, 500, 4000);
    }
}

/* Who waits for 1 us and leaves up to 20 us late has met the others all the same. */
TEST_TURNS(ends_may_scatter_more_than_waiting_takes, 50, draw) {
    const struct machine machine[2] = {{0, 20000, 1}, {7000000000, 20000, 1}};
    meet(machine, 2);
    for (int m = 0; m < MEETINGS; m++) /* all have come now, the last 1 us ago */
        for (int i = 0; i < 2; i++)
            room[i][m].start_ns = shown(&machine[i], 1000000000 + (int64_t)m * 5000000) -
                                  (i == m % 2 ? 1000 : 200000);
    assert_true(meeting_clocks_align(watch, 2));
    assert_true(watch[1].aligned);
}

/* On a machine that is busy a process is up to 5 ms late to come and to go: windows' offsets
 * scatter, and a line through them tells of clocks that run apart, where they don't. */
TEST(busy_processes_have_clocks_that_run_alike) {
    enum { FEW = 120, DRAWS = 300, OFFSET = 7000000 };
    const struct machine machine[2] = {{0, 0, 1}, {OFFSET, 0, 1}};
    int alike = 0, windows = 0;
    for (int draw = 0; draw < DRAWS; draw++) {
        meet(machine, 2);
        for (int m = 0; m < FEW; m++) {
            const int last = rand() % 2;
            for (int i = 0; i < 2; i++) {
                struct meeting *meeting = &room[i][m];
                meeting->start_ns = meeting->end_ns - (i == last ? 0 : rand() % 5000000);
                meeting->end_ns += 60000 + rand() % (rand() % 3 ? 5000000 : 100000);
            }
        }
        watch[0].meetings = watch[1].meetings = FEW;
        assert_true(meeting_clocks_align(watch, 2));
        assert_true(watch[1].aligned);
        for (int w = 0; w < watch[1].samples; w++, windows++)
            alike += llabs(watch[1].sample[w].offset_ns - OFFSET) <= 500000;
    }
    assert_true(alike > windows * 9 / 10);
}

/* A tenth of a second apart at the end of a window of its beginning: far more than a meeting takes.
 */
TEST(a_clock_may_run_away) {
    const struct machine machine[2] = {{0, 20000, 1}, {0, 20000, 1 + 400e-3}};
    meet(machine, 2);
    assert_true(meeting_clocks_align(watch, 2));
    assert_true(watch[1].aligned);
    const struct clock_fit fit = clock_fit_samples(watch[1].sample, watch[1].samples);
    for (int w = 0; w < watch[1].samples; w++)
        assert_in_range(watch[1].sample[w].error_ns, 1000, 30000);
    for (int64_t true_ns = 1000000000; true_ns < 3000000000; true_ns += 100000000)
        assert_in_range(clock_fit_apply(&fit, shown(&machine[1], true_ns)) - true_ns + 15000, 0,
                        30000);
}

/* Processes that share a core leave in turns, 70 us later than the other: not half of the ends are
 * right, and what was short says where the clock can be. */
TEST(whoever_leaves_late_does_so_in_turns) {
    const struct machine machine[2] = {{0, 0, 1}, {5000000, 0, 1}};
    meet(machine, 2);
    for (int m = 0; m < MEETINGS; m++) {
        const int late = m % 10 == 0 ? -1 : m % 3 == 0;
        for (int i = 0; i < 2; i++) {
            room[i][m].start_ns = room[i][m].end_ns - (late < 0 ? 8000 : 12000);
            room[i][m].end_ns += i == late ? 70000 : 0;
        }
    }
    assert_true(meeting_clocks_align(watch, 2));
    assert_true(watch[1].aligned);
    for (int w = 0; w < watch[1].samples; w++) {
        const int64_t off_ns = llabs(watch[1].sample[w].offset_ns - 5000000);
        assert_true(off_ns <= watch[1].sample[w].error_ns);
        assert_true(watch[1].sample[w].error_ns <= 24000);
    }
}

/* One meeting deviates from nothing, and is known no better than by what it took. */
TEST(few_meetings_are_known_by_what_they_took) {
    const struct machine machine[2] = {{0, 0, 1}, {9000000000, 0, 1}};
    meet(machine, 2);
    watch[0].meetings = watch[1].meetings = 1;
    room[0][0].start_ns -= 300000;
    assert_true(meeting_clocks_align(watch, 2));
    assert_numbers(watch[1].samples, 1, watch[1].sample[0].offset_ns, 9000000000);
    assert_int_equal(watch[1].sample[0].error_ns, 100000);
}

TEST(who_meets_nobody_is_not_aligned) {
    const struct machine machine[2] = {{0, 10, 1}, {0, 10, 1}};
    meet(machine, 2);
    for (int m = 0; m < MEETINGS; m++)
        room[1][m].function = 4;
    assert_true(meeting_clocks_align(watch, 2));
    assert_false(watch[1].aligned);
    assert_int_equal(watch[1].samples, 0);
}

static const struct {
    const char *name;
    bool synchronises;
} functions[] = {{"AllReduce", true},       {"all_to_allv", true}, {"_reduce_scatter_base", true},
                 {"gloo:all_gather", true}, {"barrier", true},     {"ALLREDUCE", true},
                 {"Broadcast", false},      {"reduce", false},     {"gather", false},
                 {"scatter", false},        {"send", false},       {"", false}};

TEST_EACH(names_say_what_synchronises, functions, function) {
    assert_int_equal(meeting_synchronises(function->name), function->synchronises);
}
