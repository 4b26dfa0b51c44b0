/* Spools whose clock or ranges cannot be right, mapped: nothing of them is lost or made up. */
#include "harness/record/mapping.h"

#include <string.h>
#include <unistd.h>

#include "profiler/record/format.h"
#include "tests/support.h"

static const char rules_text[] = "rules:\n"
                                 "  - {name: step, phase: iteration}\n"
                                 "  - {name: work, phase: expert}\n";

enum { STEP = 1, WORK };

static const struct mp_record_loads no_loads;

struct fixture {
    char folder[32], spool[64], mapped[64];
    struct mp_rules rules;
    struct mp_recorder *recorder;
    struct mp_record_thread *thread;
    struct mp_mapping *mapping;
};

static int set_up(void **state) {
    static struct fixture fixture;
    struct mp_error error = {0};
    fixture = (struct fixture){.folder = "/tmp/moeperf-test-XXXXXX"};
    assert_non_null(mkdtemp(fixture.folder));
    snprintf(fixture.spool, sizeof fixture.spool, "%s/0.spool", fixture.folder);
    snprintf(fixture.mapped, sizeof fixture.mapped, "%s/mapped.spool", fixture.folder);
    assert_int_equal(
        mp_rules_parse("rules", rules_text, sizeof rules_text - 1, &fixture.rules, &error), MP_OK);
    const struct mp_recorder_config config = {.path = fixture.spool, .rank = 0, .ranks = 1};
    assert_int_equal(mp_recorder_create(&config, &fixture.recorder, &error), MP_OK);
    assert_int_equal(mp_recorder_thread(fixture.recorder, "nvtx", &fixture.thread, &error), MP_OK);
    mp_record_fixed(fixture.thread, MP_SPOOL_NAME, (const uint32_t[4]){STEP}, 16, "step");
    mp_record_fixed(fixture.thread, MP_SPOOL_NAME, (const uint32_t[4]){WORK}, 16, "work");
    *state = &fixture;
    return 0;
}

static int tear_down(void **state) {
    struct fixture *fixture = *state;
    mp_mapping_destroy(fixture->mapping);
    mp_rules_destroy(&fixture->rules);
    unlink(fixture->spool);
    unlink(fixture->mapped);
    return rmdir(fixture->folder);
}

static void range(struct fixture *fixture, uint32_t name, int64_t start_ns, int64_t end_ns) {
    const struct mp_range is = {.start_ns = start_ns, .end_ns = end_ns, .name = name, .thread = 1};
    mp_record_fixed(fixture->thread, MP_SPOOL_RANGE, &is, sizeof is, NULL);
}

/* Ends the recording for a reason, and maps it. */
static const struct mp_mapping_totals *map(struct fixture *fixture, const char *reason) {
    struct mp_error error = {0};
    assert_int_equal(mp_recorder_finish(&fixture->recorder, MP_EINTERRUPTED, reason, &error),
                     MP_OK);
    assert_int_equal(mp_mapping_create(fixture->spool, &fixture->rules, &fixture->mapping, &error),
                     MP_OK);
    assert_int_equal(mp_mapping_write(fixture->mapping, fixture->mapped, 2, 3, &no_loads, &error),
                     MP_OK);
    return mp_mapping_totals(fixture->mapping);
}

static void a_clock_may_jump_anywhere(void **state) {
    struct fixture *fixture = *state;
    range(fixture, STEP, INT64_MIN, INT64_MIN + 10);
    range(fixture, WORK, 100, 200);
    range(fixture, WORK, 90, 50); /* it jumped back meanwhile */
    range(fixture, STEP, INT64_MAX - 10, INT64_MAX);
    const struct mp_mapping_totals *totals = map(fixture, "");
    assert_int_equal(totals->ranges, 4);
    assert_int_equal(totals->spans, 3);
    assert_int_equal(totals->iterations, 2);
    assert_close(totals->seconds, 18446744073.709551, 1e-9);
}

/* More than 64 bits of nanoseconds lie between its ends: its clock was not right. */
static void a_range_longer_than_time_is_no_span(void **state) {
    struct fixture *fixture = *state;
    range(fixture, WORK, INT64_MIN, 1);
    range(fixture, STEP, -2, INT64_MAX);
    range(fixture, WORK, -1, INT64_MAX - 1);
    const struct mp_mapping_totals *totals = map(fixture, "");
    assert_int_equal(totals->ranges, 3);
    assert_int_equal(totals->spans, 1);
    assert_int_equal(totals->iterations, 0);
}

static void an_open_range_is_no_span_whenever_it_began(void **state) {
    struct fixture *fixture = *state;
    range(fixture, WORK, -500, 0);
    range(fixture, WORK, 500, 0);
    range(fixture, WORK, 600, 700);
    const struct mp_mapping_totals *totals = map(fixture, "");
    assert_int_equal(totals->ranges, 3);
    assert_int_equal(totals->unfinished, 2);
    assert_int_equal(totals->spans, 1);
}

static void the_reason_for_its_end_is_written_whole_and_last(void **state) {
    struct fixture *fixture = *state;
    static char reason[1501];
    struct mp_spool_reader *reader = NULL;
    struct mp_spool_record record;
    struct mp_error error = {0};
    int last = 0;
    memset(reason, 'r', sizeof reason - 1);
    range(fixture, WORK, 600, 700);
    const struct mp_mapping_totals *totals = map(fixture, reason);
    assert_true(totals->ended);
    assert_int_equal(mp_spool_open(fixture->mapped, &reader, &error), MP_OK);
    assert_int_equal(mp_spool_header(reader)->rank, 2);
    assert_int_equal(mp_spool_header(reader)->ranks, 3);
    while (mp_spool_next(reader, &record, &error) == 1) {
        last = record.type;
        if (last == MP_SPOOL_END)
            assert_string_equal(record.as.end.reason, reason);
    }
    assert_int_equal(last, MP_SPOOL_END);
    mp_spool_close(reader);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

int main(void) {
    static const struct CMUnitTest tests[] = {
        TEST(a_clock_may_jump_anywhere),
        TEST(a_range_longer_than_time_is_no_span),
        TEST(an_open_range_is_no_span_whenever_it_began),
        TEST(the_reason_for_its_end_is_written_whole_and_last),
    };
    return cmocka_run_group_tests_name("mapping", tests, NULL, NULL);
}
