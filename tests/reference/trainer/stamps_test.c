/* Times of spans by events: a device of its own whose stream passes events at times that the test
 * says. */
#include "reference/trainer/spans.h"

#include "profiler/record/spool.h"
#include "tests/errors.h"

enum { EVENTS = 256, SPANS = 4 };

/* Time goes on by what the test adds; a stream passes an event when it is recorded. */
static struct clock {
    struct mp_device device;
    struct mp_device_operations operations;
    int64_t now;
    int64_t time[EVENTS];
    int created, alive, synchronised;
} device_clock;

static int create_event(UNUSED struct mp_device *device, mp_event *event, struct mp_error *error) {
    if (device_clock.created == EVENTS)
        return mp_fail(error, MP_EDEVICE, "no event left");
    device_clock.alive++;
    *event = (mp_event)&device_clock.time[device_clock.created++];
    return MP_OK;
}

static void destroy_event(UNUSED struct mp_device *device, UNUSED mp_event event) {
    device_clock.alive--;
}

static void record_event(UNUSED struct mp_device *device, mp_event event, UNUSED mp_stream stream) {
    *(int64_t *)event = device_clock.now;
}

static void synchronise(UNUSED struct mp_device *device, UNUSED mp_event event) {
    device_clock.synchronised++;
}

static int64_t time_of(UNUSED struct mp_device *device, mp_event event) {
    return *(int64_t *)event;
}

static struct mp_device *start_clock(void) {
    device_clock = (struct clock){.now = 1000};
    device_clock.operations = (struct mp_device_operations){.event_create = create_event,
                                                            .event_destroy = destroy_event,
                                                            .event_record = record_event,
                                                            .event_synchronize = synchronise,
                                                            .event_time = time_of};
    device_clock.device.operations = &device_clock.operations;
    return &device_clock.device;
}

struct recording {
    char path[64];
    struct mp_recorder *recorder;
    struct mp_record_thread *thread;
    struct mp_stamps *stamps;
};

static void open_recording(struct recording *r) {
    snprintf(r->path, sizeof r->path, "/tmp/stamps_test.%d.spool", (int)getpid());
    const struct mp_recorder_config config = {.path = r->path, .ranks = 1};
    assert_works(mp_recorder_create(&config, &r->recorder, &error));
    assert_works(mp_recorder_thread(r->recorder, "compute", &r->thread, &error));
    assert_works(mp_stamps_create(start_clock(), NULL, SPANS, &r->stamps, &error));
}

/* The spans recorded so far, in order. */
static int close_recording(struct recording *r, struct mp_span span[], int limit) {
    struct mp_spool_reader *reader;
    struct mp_spool_record record;
    int count = 0;
    mp_stamps_destroy(r->stamps);
    assert_int_equal(device_clock.alive, 0);
    assert_works(mp_recorder_finish(&r->recorder, MP_OK, "", &error));
    assert_works(mp_spool_open(r->path, &reader, &error));
    while (mp_spool_next(reader, &record, NULL) == 1)
        if (record.type == MP_SPOOL_SPAN && count < limit)
            span[count++] = record.as.span;
    mp_spool_close(reader);
    unlink(r->path);
    return count;
}

TEST(spans_have_the_stream_s_times) {
    struct recording r;
    struct mp_span span[4];
    open_recording(&r);
    int begin = mp_stamps_mark(r.stamps, 0), waits = mp_stamps_waits(r.stamps);
    device_clock.now += 50;
    int before = mp_stamps_mark(r.stamps, 0);
    device_clock.now += 7; /* stands still */
    mp_stamps_waited(r.stamps, before, mp_stamps_mark(r.stamps, 0));
    device_clock.now += 100;
    int end = mp_stamps_mark(r.stamps, 0);
    const struct mp_span queued = {.start_ns = 1, .end_ns = 2, .wait_ns = 3, .iteration = 5};
    assert_true(mp_stamps_keep(r.stamps, r.thread, &queued, begin, end, waits));
    /* One that begins behind the wait, on a clock that stood still for 40 in between. */
    int later = mp_stamps_waits(r.stamps);
    device_clock.now += 40;
    begin = mp_stamps_mark(r.stamps, 40);
    device_clock.now += 9;
    assert_true(
        mp_stamps_keep(r.stamps, r.thread, &queued, begin, mp_stamps_mark(r.stamps, 40), later));
    assert_int_equal(device_clock.synchronised, 0);
    mp_stamps_flush(r.stamps);
    assert_int_equal(device_clock.synchronised, 1);
    mp_stamps_flush(r.stamps); /* nothing twice */
    assert_int_equal(close_recording(&r, span, 4), 2);
    assert_numbers(span[0].start_ns, 1000, span[0].end_ns, 1157, span[0].wait_ns, 3 + 7);
    assert_numbers(span[0].iteration, 5, span[1].start_ns, 1157, span[1].end_ns, 1166);
    assert_int_equal(span[1].wait_ns, 3);
}

/* With no event or room left the caller records the span itself; after a flush there is room. */
TEST(what_has_no_room_is_refused) {
    struct recording r;
    struct mp_span span[2 * SPANS];
    const struct mp_span queued = {.start_ns = 1, .end_ns = 2};
    open_recording(&r);
    for (int i = 0; i < SPANS; i++)
        assert_true(mp_stamps_keep(r.stamps, r.thread, &queued, mp_stamps_mark(r.stamps, 0),
                                   mp_stamps_mark(r.stamps, 0), 0));
    int begin = mp_stamps_mark(r.stamps, 0);
    assert_true(begin >= 0);
    assert_false(mp_stamps_keep(r.stamps, r.thread, &queued, begin, begin, 0));
    while (mp_stamps_mark(r.stamps, 0) >= 0)
        ;
    assert_int_equal(device_clock.created, 4 * SPANS);
    mp_stamps_flush(r.stamps);
    assert_false(mp_stamps_keep(r.stamps, r.thread, &queued, -1, mp_stamps_mark(r.stamps, 0), 0));
    assert_false(mp_stamps_keep(r.stamps, r.thread, &queued, mp_stamps_mark(r.stamps, 0), -1, 0));
    assert_true(mp_stamps_keep(r.stamps, r.thread, &queued, mp_stamps_mark(r.stamps, 0),
                               mp_stamps_mark(r.stamps, 0), 0));
    mp_stamps_clear(r.stamps); /* forgotten */
    mp_stamps_flush(r.stamps);
    assert_int_equal(close_recording(&r, span, 2 * SPANS), SPANS);
}

TEST(events_that_can_t_be_had_are_an_error) {
    struct mp_stamps *stamps = NULL;
    assert_sentence(mp_stamps_create(start_clock(), NULL, EVENTS, &stamps, &error), MP_EDEVICE,
                    "no event left");
    assert_int_equal(device_clock.alive, 0);
    mp_stamps_destroy(NULL);
}
