/* Spools whose clock or ranges cannot be right, mapped: nothing of them is lost or made up. */
#include "harness/record/mapping.h"

#include "profiler/record/format.h"
#include "tests/errors.h"
#include "tests/files.h"
#include "tests/records.h"
#include "tests/spools.h"

static const char rules_text[] = "rules:\n"
                                 "  - {name: step, phase: iteration}\n"
                                 "  - {name: work, phase: expert}\n"
                                 "  - {name: counted, phase: dispatch, layer: count}\n"
                                 "  - {name: meet, phase: combine, layer: count, waits: all}\n"
                                 "  - {name: block, phase: expert, layer: count,\n"
                                 "     direction: forward, tokens: payload}\n"
                                 "  - {name: attends, phase: attention}\n"
                                 "  - {name: returns, phase: dispatch, layer: count,\n"
                                 "     direction: backward, tokens: payload}\n";

enum { STEP = 1, WORK, COUNTED, MEET, BLOCK, ATTENDS, RETURNS };
static const char *const names[] = {NULL,   "step",  "work",    "counted",
                                    "meet", "block", "attends", "returns"};

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
    fixture = (struct fixture){.folder = "/tmp/moeperf-test-XXXXXX"};
    assert_non_null(mkdtemp(fixture.folder));
    snprintf(fixture.spool, sizeof fixture.spool, "%s/0.spool", fixture.folder);
    snprintf(fixture.mapped, sizeof fixture.mapped, "%s/mapped.spool", fixture.folder);
    assert_works(
        mp_rules_parse("rules", rules_text, sizeof rules_text - 1, &fixture.rules, &error));
    const struct mp_recorder_config config = {.path = fixture.spool, .rank = 0, .ranks = 1};
    assert_works(mp_recorder_create(&config, &fixture.recorder, &error));
    assert_works(mp_recorder_thread(fixture.recorder, "nvtx", &fixture.thread, &error));
    for (uint32_t id = STEP; id <= RETURNS; id++)
        put_name(fixture.thread, id, MP_NAME_STRING, names[id]);
    *state = &fixture;
    return 0;
}

static int tear_down(void **state) {
    struct fixture *fixture = *state;
    mp_mapping_destroy(fixture->mapping);
    mp_rules_destroy(&fixture->rules);
    return remove_tree(fixture->folder);
}

#define MAPPING_TEST(function)                                                                     \
    TEST_TAKING(function, struct fixture *fixture, set_up, tear_down, 1, #function, NULL)

static void range_of(struct fixture *fixture, uint32_t name, int64_t start_ns, int64_t end_ns,
                     int64_t tokens) {
    const struct mp_range is = {.start_ns = start_ns,
                                .end_ns = end_ns,
                                .name = name,
                                .thread = 1,
                                .value = (uint64_t)tokens,
                                .value_type = tokens < 0 ? MP_VALUE_NONE : MP_VALUE_I64};
    put_range(fixture->thread, is);
}

static void range(struct fixture *fixture, uint32_t name, int64_t start_ns, int64_t end_ns) {
    range_of(fixture, name, start_ns, end_ns, -1);
}

/* On a thread of its own: what became of the work of the range of this name at `of_ns`. */
static void echo(struct fixture *fixture, uint32_t name, int64_t of_ns, int64_t start_ns,
                 int64_t end_ns, uint16_t traits) {
    const struct mp_range is = {.start_ns = start_ns,
                                .end_ns = end_ns,
                                .name = name,
                                .thread = 2,
                                .value = (uint64_t)of_ns,
                                .traits = MP_RANGE_ECHO | traits};
    put_range(fixture->thread, is);
}

/* Ends the recording for a reason, and maps it. */
static const struct mp_mapping_totals *map(struct fixture *fixture, const char *reason) {
    assert_works(mp_recorder_finish(&fixture->recorder, MP_EINTERRUPTED, reason, &error));
    assert_works(mp_mapping_create(fixture->spool, &fixture->rules, &fixture->mapping, &error));
    const struct mp_mapped as = {.rank = 2, .ranks = 3, .loads = &no_loads};
    assert_works(mp_mapping_write(fixture->mapping, fixture->mapped, &as, &error));
    return mp_mapping_totals(fixture->mapping);
}

MAPPING_TEST(a_clock_may_jump_anywhere) {
    range(fixture, STEP, INT64_MIN, INT64_MIN + 10);
    range(fixture, WORK, 100, 200);
    range(fixture, WORK, 90, 50); /* it jumped back meanwhile */
    range(fixture, STEP, INT64_MAX - 10, INT64_MAX);
    const struct mp_mapping_totals *totals = map(fixture, "");
    assert_numbers(totals->ranges, 4, totals->spans, 3, totals->iterations, 2);
    assert_close(totals->seconds, 18446744073.709551, 1e-9);
}

/* More than 64 bits of nanoseconds lie between its ends: its clock was not right. */
MAPPING_TEST(a_range_longer_than_time_is_no_span) {
    range(fixture, WORK, INT64_MIN, 1);
    range(fixture, STEP, -2, INT64_MAX);
    range(fixture, WORK, -1, INT64_MAX - 1);
    const struct mp_mapping_totals *totals = map(fixture, "");
    assert_numbers(totals->ranges, 3, totals->spans, 1, totals->iterations, 0);
}

MAPPING_TEST(an_open_range_is_no_span_whenever_it_began) {
    range(fixture, WORK, -500, 0);
    range(fixture, WORK, 500, 0);
    range(fixture, WORK, 600, 700);
    const struct mp_mapping_totals *totals = map(fixture, "");
    assert_numbers(totals->ranges, 3, totals->unfinished, 2, totals->spans, 1);
}

MAPPING_TEST(the_reason_for_its_end_is_written_whole_and_last) {
    static char reason[1501];
    struct mp_spool_record record;
    memset(reason, 'r', sizeof reason - 1);
    range(fixture, WORK, 600, 700);
    const struct mp_mapping_totals *totals = map(fixture, reason);
    assert_true(totals->ended);
    AUTO(spool) struct mp_spool_reader *reader = open_spool(fixture->mapped);
    assert_int_equal(mp_spool_header(reader)->rank, 2);
    assert_int_equal(mp_spool_header(reader)->ranks, 3);
    assert_true(next_of(reader, MP_SPOOL_END, &record));
    assert_string_equal(record.as.end.reason, reason);
    assert_false(next_record(reader, &record));
}

/* What `say` says of the spans, in the order in which they were written. */
static void assert_said(const struct fixture *fixture,
                        int (*say)(char *text, size_t room, const struct mp_span *span),
                        const char *expected) {
    AUTO(spool) struct mp_spool_reader *reader = open_spool(fixture->mapped);
    struct mp_spool_record record;
    char text[1024] = "";
    size_t length = 0;
    while (next_of(reader, MP_SPOOL_SPAN, &record))
        length += (size_t)say(text + length, sizeof text - length, &record.as.span);
    assert_string_equal(text, expected);
}

/* "phase iteration layer direction start, " */
static int say_place(char *text, size_t room, const struct mp_span *span) {
    return snprintf(text, room, "%s %d %d %c %d, ", mp_phase_name(span->phase), span->iteration,
                    span->layer, "fb-"[span->direction], (int)span -> start_ns);
}

static void assert_spans(const struct fixture *fixture, const char *expected) {
    assert_said(fixture, say_place, expected);
}

/* "e0 200-280 7, ", phase and layer, then its tokens or minus what it waited; of no iteration. */
static int say_piece(char *text, size_t room, const struct mp_span *span) {
    if (span->phase == MP_PHASE_ITERATION)
        return 0;
    return snprintf(text, room, "%c%d %d-%d %d, ", mp_phase_name(span->phase)[0], span->layer,
                    (int)span->start_ns, (int)span->end_ns,
                    span->wait_ns ? -(int)span->wait_ns : (int)span->tokens);
}

/* The way back of the second counted range comes first, as autograd has it. */
MAPPING_TEST(echoes_are_of_their_range_s_layer) {
    range(fixture, STEP, 100, 900);
    range(fixture, COUNTED, 200, 210);
    range(fixture, COUNTED, 300, 310);
    range(fixture, WORK, 400, 410);
    echo(fixture, COUNTED, 300, 500, 510, MP_RANGE_BACKWARD);
    echo(fixture, COUNTED, 200, 950, 960, MP_RANGE_BACKWARD);
    map(fixture, "");
    assert_spans(fixture, "iteration 0 -1 - 100, dispatch 0 0 f 200, dispatch 0 1 f 300, "
                          "expert 0 -1 - 400, dispatch 0 1 b 500, dispatch 0 0 b 950, ");
}

/* Iteration 1's work is done on the GPU while the host is in iteration 2. */
MAPPING_TEST(a_gpu_s_time_stands_for_the_host_s) {
    for (int step = 0; step < 2; step++) {
        const int host = 100 + 100 * step, device = 1000 + 1000 * step;
        range(fixture, STEP, host, host + 90);
        range(fixture, COUNTED, host + 10, host + 20);
        range(fixture, WORK, host + 30, host + 40); /* has nothing on the GPU */
        echo(fixture, STEP, host, device, device + 900, MP_RANGE_DEVICE);
        echo(fixture, STEP, host, device + 10, device + 1100, MP_RANGE_DEVICE); /* another stream */
        echo(fixture, COUNTED, host + 10, device + 100, device + 200, MP_RANGE_DEVICE);
        echo(fixture, COUNTED, host + 10, host + 60, host + 70, MP_RANGE_BACKWARD);
        echo(fixture, COUNTED, host + 10, device + 300, device + 400,
             MP_RANGE_DEVICE | MP_RANGE_BACKWARD);
    }
    const struct mp_mapping_totals *totals = map(fixture, "");
    assert_numbers(totals->iterations, 2, totals->spans, 8);
    assert_spans(fixture,
                 "expert 0 -1 - 130, expert 1 -1 - 230, iteration 0 -1 - 1000, dispatch 0 0 "
                 "f 1100, dispatch 0 0 b 1300, iteration 1 -1 - 2000, dispatch 1 0 f 2100, "
                 "dispatch 1 0 b 2300, ");
}

/* What lies in another range is no span, and neither are its echoes. */
MAPPING_TEST(echoes_fall_away_with_their_range) {
    range(fixture, STEP, 100, 900);
    range(fixture, STEP, 150, 800);
    range(fixture, WORK, 200, 300);
    range(fixture, COUNTED, 210, 220);
    echo(fixture, COUNTED, 210, 500, 510, MP_RANGE_BACKWARD);
    echo(fixture, STEP, 150, 2000, 2100, MP_RANGE_DEVICE);
    map(fixture, "");
    assert_spans(fixture, "iteration 0 -1 - 100, expert 0 -1 - 200, ");
}

MAPPING_TEST(of_equal_ranges_the_outer_one_counts) {
    for (uint16_t level = 2; level-- > 0;) { /* the inner one ends first */
        const struct mp_range is = {.start_ns = 200,
                                    .end_ns = 300,
                                    .name = level ? WORK : COUNTED,
                                    .thread = 1,
                                    .level = level};
        put_range(fixture->thread, is);
    }
    map(fixture, "");
    assert_spans(fixture, "dispatch -1 0 - 200, ");
}

/* Ranges one after the other, 'e' experts, 'x' exchanges, by the clock's tens; 'E' and 'X' are
 * echoes of the latest such ranges without one, backward.  'l' are experts that say their layer,
 * '|' is attention, 'b' an exchange that is known to be backward. */
static void ranges(struct fixture *fixture, const char *order) {
    int64_t begun_ns[2][16];
    int begun[2] = {0};
    for (int64_t i = 0; order[i]; i++) {
        const int64_t start_ns = 200 + 10 * i;
        const bool is_experts = order[i] == 'e' || order[i] == 'E';
        const uint32_t name = is_experts        ? WORK
                              : order[i] == 'l' ? BLOCK
                              : order[i] == '|' ? ATTENDS
                              : order[i] == 'b' ? RETURNS
                                                : COUNTED;
        if (order[i] == 'E' || order[i] == 'X') {
            echo(fixture, name, begun_ns[is_experts][--begun[is_experts]], start_ns, start_ns + 5,
                 MP_RANGE_BACKWARD);
        } else {
            range(fixture, name, start_ns, start_ns + 5);
            if (order[i] == 'e' || order[i] == 'x')
                begun_ns[is_experts][begun[is_experts]++] = start_ns;
        }
    }
}

/* "d0f ", phase, layer and direction. */
static int say_exchange(char *text, size_t room, const struct mp_span *span) {
    if (span->phase != MP_PHASE_DISPATCH && span->phase != MP_PHASE_COMBINE)
        return 0;
    return snprintf(text, room, "%c%d%c ", mp_phase_name(span->phase)[0], span->layer,
                    "fb-"[span->direction]);
}

static const struct {
    const char *name, *order, *expected;
} exchanges[] = {
    {"what comes behind experts is their way back", "xexxex", "d0- c0- d1- c1- "},
    {"backward the ways are the other way round", "xexxexxExxEx",
     "d0f c0f d1f c1f c1b d1b c0b d0b "},
    /* As autograd has them, where the experts' own way back is not recorded. */
    {"an echo goes the way of its exchange", "xexxexXXXX", "d0f c0f d1f c1f c1b d1b c0b d0b "},
    {"exchanges may be cut into chunks", "xxeexx", "d0- d0- c0- c0- "},
    {"chunks may overlap", "xxexex", "d0- d0- c0- c1- "},
    /* A backward pass of which the experts are not recorded. */
    {"what lies behind the last way back mirrors it", "xexxexxxxx",
     "d0- c0- d1- c1- c1b d1b c0b d0b "},
    {"other numbers behind the last way back stay", "xexxexxx", "d0- c0- d1- c1- d4- d5- "},
    {"layers have the same number behind the last way back", "xexxexbbb",
     "d0- c0- d1- c1- d0b d1b d2b "},
    {"layers of experts are no counts of exchanges", "xlxxlxxxx",
     "d0f c0f d1f c1f d-1- d-1- d-1- "},
    /* Counts go ahead, tokens there and back, and of the backward pass the latter only. */
    {"attention divides layers", "|xxlx|xxlxbbbb", "d0f d0f c0f d1f d1f c1f c1b d1b c0b d0b "},
    {"the backward pass does, too", "|xxex|xxexbEb|bEb",
     "d0f d0f c0f d1f d1f c1f c1b d1b c0b d0b "},
    {"if its exchanges don't say so, their order does", "|xex|xexxEx|xEx",
     "d0f c0f d1f c1f c1b d1b c0b d0b "},
    {"only the last layer has the backward pass behind it", "|xlx|xlxxxxx",
     "d0f c0f d1f c1f c1b d1b c0b d0b "},
    /* Its exchanges are beside its experts, and more are something else. */
    {"a backward pass with experts is told by them", "xexxExbb", "d0f c0f c0b d0b d0b d1b "},
    {"what has no experts beside it is of no layer", "b|xlx|xlx|bbb",
     "d-1b d0f c0f d1f c1f d-1b d-1b d-1b "},
    {"the backward pass is no way back", "|xlxbb", "d0f c0f c0b d0b "},
    {"attention may stand between some layers", "|xlx|xlxxlx", "d0f c0f d1f c1f d2f c2f "},
    {"an echo has no layer that its exchange has not", "xxlX", "d-1- d-1f d-1b "},
    {"one exchange a layer is counted", "x|l|x|l", "d0- d1- "},
    /* The way back is not recorded; nor is it where each way there has two ranges. */
    {"dispatches alone stay", "xexexe", "d0- d1- d2- "},
    {"a way back that is cut stays", "xxex", "d0- d1- d2- "},
    {"two dispatches of a layer stay", "xxexxexxe", "d0- d1- d2- d3- d4- d5- "},
};

TEST_EACH(exchanges_have_their_directions, exchanges, row) {
    void *given;
    assert_int_equal(set_up(&given), 0);
    struct fixture *fixture = given;
    int64_t combines = 0;
    range(fixture, STEP, 100, 1000);
    ranges(fixture, row->order);
    const struct mp_mapping_totals *totals = map(fixture, "");
    assert_said(fixture, say_exchange, row->expected);
    for (const char *at = row->expected; *at; at++)
        combines += *at == 'c';
    assert_int_equal(totals->combines, combines);
    assert_int_equal(tear_down(&given), 0);
}

/* A block of experts, whose products take longest after its first meeting: in total, though not in
 * the first block. */
MAPPING_TEST(waiting_cuts_the_span_that_it_is_in) {
    range(fixture, STEP, 100, 900);
    for (int block = 0; block < 2; block++) {
        const int64_t start_ns = 200 + 300 * block, first_ns = start_ns + (block ? 10 : 80);
        range_of(fixture, BLOCK, start_ns, start_ns + 250, 70 + block);
        range(fixture, MEET, first_ns, first_ns + 20);
        range(fixture, MEET, first_ns + 5, first_ns + 15); /* in what waits already */
        range(fixture, COUNTED, first_ns + 30, first_ns + 40);
        range(fixture, MEET, start_ns + 170, start_ns + 240);
    }
    range(fixture, MEET, 850, 860); /* the first of its rule that is in no span */
    assert_int_equal(map(fixture, "")->enclosed, 4);
    assert_said(fixture, say_piece,
                "e0 200-280 0, c0 280-300 -20, c0 370-440 -70, e1 500-510 0, "
                "c1 510-530 -20, c1 670-740 -70, c0 850-860 -10, e0 300-370 70, "
                "e0 440-450 0, e1 530-670 71, e1 740-750 0, ");
}

/* Backward the order of pieces is another one. */
MAPPING_TEST(tokens_are_of_the_piece_that_is_longest_in_its_direction) {
    const struct mp_range meets = {.start_ns = 570, .end_ns = 580, .name = MEET, .thread = 2};
    range(fixture, STEP, 100, 900);
    range_of(fixture, BLOCK, 200, 400, 70);
    range(fixture, MEET, 210, 220);
    echo(fixture, BLOCK, 200, 500, 600, MP_RANGE_BACKWARD);
    put_range(fixture->thread, meets);
    map(fixture, "");
    assert_said(fixture, say_piece,
                "e0 200-210 0, c0 210-220 -10, e0 500-570 70, c0 570-580 -10, e0 220-400 70, e0 "
                "580-600 0, ");
}

/* Their sum, of ranges of the same phase, wherever in it they lie. */
MAPPING_TEST(who_lacks_tokens_has_those_inside) {
    range(fixture, STEP, 100, 900);
    for (int own = 0; own < 2; own++) {
        const int64_t start_ns = 200 + 300 * own;
        range_of(fixture, BLOCK, start_ns, start_ns + 100, own ? 9 : -1);
        range_of(fixture, BLOCK, start_ns + 10, start_ns + 20, 30);
        range_of(fixture, RETURNS, start_ns + 25, start_ns + 30, 1000);
        range_of(fixture, BLOCK, start_ns + 40, start_ns + 50, -1);
        range_of(fixture, BLOCK, start_ns + 100, start_ns + 100, 12);
    }
    range_of(fixture, BLOCK, 850, 860, -1);
    map(fixture, "");
    assert_said(fixture, say_piece, "e0 200-300 42, e1 500-600 9, e2 850-860 -1, ");
}
