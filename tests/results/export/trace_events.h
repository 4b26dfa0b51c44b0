/* What the Trace Event Format asks of a file, and what its readers need so that they draw all of
 * it: a check as strict as the description ("Trace Event Format", by the authors of catapult), and
 * stricter where that leaves it to the reader.
 *
 *   - traceEvents is an array of objects; each has a name, a known ph, an integer pid, and but for
 *     metadata a ts; all but counters and metadata of processes an integer tid
 *   - X has a dur >= 0; B and E of a thread match, only the outermost may stay open; with them, X
 * of a thread nest.  Events of a thread come by ascending ts
 *   - b and e of one category and id match, e not before b
 *   - each s has one f of its id and category, f with bp e and not before it, both inside a slice
 *     of their thread: Perfetto drops others
 *   - i has its scope; C has numbers
 *   - each process and thread with events has a name, once and of its own; they are sorted by their
 *     numbers */
#pragma once

#include <jansson.h>

#include "reference/base/arena.h"
#include "tests/support.h"

static inline const char *trace_text(const json_t *object, const char *key) {
    const char *text = json_string_value(json_object_get(object, key));
    return text ? text : "";
}

static inline long long trace_number(const json_t *object, const char *key) {
    return (long long)json_integer_value(json_object_get(object, key));
}

/* Nanoseconds of a time in microseconds; those of tests are small enough to be exact. */
static inline int64_t trace_ns(const json_t *event, const char *key) {
    const json_t *value = json_object_get(event, key);
    assert_true(json_is_real(value));
    return llround(json_number_value(value) * 1000);
}

struct trace_slice {
    int64_t start_ns, end_ns;
};

struct trace_thread {
    long long pid, tid;
    const char *name; /* NULL: none yet */
    bool has_events;
    int64_t at_ns; /* of its last event */
    struct trace_slice *slice;
    int slices;
    int64_t open[64]; /* ends of the slices that are open at at_ns; INT64_MAX: a B */
    int depth;
};

enum { TRACE_THREADS = 512 };

struct trace_pair {
    char category[32];
    long long id;
    int64_t at_ns;
    bool is_ended;
};

struct trace_check {
    struct trace_thread thread[TRACE_THREADS]; /* tid 0: the process */
    int threads;
    struct trace_pair *pair; /* of b and e, and of s and f */
    int pairs;
    const json_t *events;
};

static inline struct trace_thread *trace_thread(struct trace_check *check, long long pid,
                                                long long tid) {
    for (int i = 0; i < check->threads; i++)
        if (check->thread[i].pid == pid && check->thread[i].tid == tid)
            return &check->thread[i];
    assert_true(check->threads < TRACE_THREADS);
    check->thread[check->threads] =
        (struct trace_thread){.pid = pid, .tid = tid, .at_ns = INT64_MIN};
    return &check->thread[check->threads++];
}

static inline void trace_metadata(struct trace_check *check, const json_t *event) {
    const char *name = trace_text(event, "name");
    const json_t *args = json_object_get(event, "args");
    bool of_thread = !strncmp(name, "thread_", 7);
    assert_true(of_thread || !strncmp(name, "process_", 8));
    assert_int_equal(of_thread, json_is_integer(json_object_get(event, "tid")));
    assert_int_equal(json_object_size(args), 1);
    if (!strcmp(strchr(name, '_'), "_name")) {
        struct trace_thread *thread =
            trace_thread(check, trace_number(event, "pid"), trace_number(event, "tid"));
        assert_null(thread->name);
        thread->name = json_string_value(json_object_get(args, "name"));
        assert_non_null(thread->name);
        for (const struct trace_thread *other = check->thread; other < thread; other++)
            assert_true(other->pid != thread->pid || strcmp(other->name, thread->name) != 0);
    } else {
        assert_string_equal(strchr(name, '_'), "_sort_index");
        assert_int_equal(trace_number(args, "sort_index"),
                         trace_number(event, of_thread ? "tid" : "pid"));
    }
}

static inline void trace_push(struct trace_thread *thread, int64_t start_ns, int64_t end_ns) {
    if (thread->depth > 0 && thread->open[thread->depth - 1] < end_ns)
        fail_msg("pid %lld tid %lld: %lld..%lld ends behind what it is in (%lld)", thread->pid,
                 thread->tid, (long long)start_ns, (long long)end_ns,
                 (long long)thread->open[thread->depth - 1]);
    assert_true(thread->depth < 64);
    thread->open[thread->depth++] = end_ns;
    assert_true(MP_ROOM(thread->slice, thread->slices));
    thread->slice[thread->slices++] = (struct trace_slice){start_ns, end_ns};
}

/* Events that lie on a thread: X, B, i. */
static inline void trace_on_thread(struct trace_check *check, const json_t *event, char ph) {
    struct trace_thread *thread =
        trace_thread(check, trace_number(event, "pid"), trace_number(event, "tid"));
    int64_t at_ns = trace_ns(event, "ts");
    assert_true(at_ns >= thread->at_ns);
    thread->at_ns = at_ns;
    thread->has_events = true;
    while (thread->depth > 0 && thread->open[thread->depth - 1] <= at_ns)
        thread->depth--;
    if (ph == 'X') {
        int64_t length_ns = trace_ns(event, "dur");
        assert_true(length_ns >= 0);
        trace_push(thread, at_ns, at_ns + length_ns);
    } else if (ph == 'B') {
        assert_true(json_is_true(json_object_get(json_object_get(event, "args"), "open")));
        trace_push(thread, at_ns, INT64_MAX);
    } else {
        assert_string_equal(trace_text(event, "s"), "t");
    }
}

static inline struct trace_pair *trace_pair(struct trace_check *check, const json_t *event) {
    for (int i = check->pairs; i-- > 0;)
        if (check->pair[i].id == trace_number(event, "id") &&
            !strcmp(check->pair[i].category, trace_text(event, "cat")))
            return &check->pair[i];
    return NULL;
}

static inline void trace_begin_pair(struct trace_check *check, const json_t *event) {
    assert_true(json_is_integer(json_object_get(event, "id")));
    assert_null(trace_pair(check, event));
    assert_true(MP_ROOM(check->pair, check->pairs));
    struct trace_pair *pair = &check->pair[check->pairs++];
    *pair = (struct trace_pair){.id = trace_number(event, "id"), .at_ns = trace_ns(event, "ts")};
    snprintf(pair->category, sizeof pair->category, "%s", trace_text(event, "cat"));
}

static inline void trace_end_pair(struct trace_check *check, const json_t *event) {
    struct trace_pair *pair = trace_pair(check, event);
    assert_non_null(pair);
    assert_false(pair->is_ended);
    pair->is_ended = true;
    assert_true(trace_ns(event, "ts") >= pair->at_ns);
    if (*trace_text(event, "ph") == 'f')
        assert_string_equal(trace_text(event, "bp"), "e");
}

static inline void trace_event(struct trace_check *check, const json_t *event) {
    const char *ph = trace_text(event, "ph");
    assert_true(json_is_string(json_object_get(event, "name")));
    assert_int_equal(strlen(ph), 1);
    assert_true(json_is_integer(json_object_get(event, "pid")));
    if (*ph == 'M') {
        trace_metadata(check, event);
        return;
    }
    trace_ns(event, "ts");
    trace_thread(check, trace_number(event, "pid"), 0)->has_events = true;
    if (*ph == 'C') {
        const char *key;
        json_t *value;
        json_object_foreach(json_object_get(event, "args"), key, value)
            assert_true(json_is_number(value));
        return;
    }
    assert_true(trace_number(event, "tid") > 0);
    switch (*ph) {
    case 'X':
    case 'B':
    case 'i':
        trace_on_thread(check, event, *ph);
        break;
    case 'b':
    case 's':
        trace_begin_pair(check, event);
        break;
    case 'e':
    case 'f':
        trace_end_pair(check, event);
        break;
    default:
        fail_msg("an event of unknown kind %s", ph);
    }
}

/* Readers bind an arrow to the slice around its end. */
static inline void trace_arrow(struct trace_check *check, const json_t *event) {
    const struct trace_thread *thread =
        trace_thread(check, trace_number(event, "pid"), trace_number(event, "tid"));
    int64_t at_ns = trace_ns(event, "ts");
    for (int i = 0; i < thread->slices; i++)
        if (thread->slice[i].start_ns <= at_ns && at_ns <= thread->slice[i].end_ns)
            return;
    fail_msg("an arrow at %lld ns of pid %lld tid %lld is on no slice", (long long)at_ns,
             thread->pid, thread->tid);
}

/* Fails unless `all` is what readers of the format can draw. */
static inline void trace_check(const json_t *all) {
    AUTO(allocated) struct trace_check *check = calloc(1, sizeof *check);
    size_t i;
    json_t *event;
    assert_non_null(check);
    check->events = json_object_get(all, "traceEvents");
    assert_true(json_is_array(check->events));
    json_array_foreach(check->events, i, event) trace_event(check, event);
    json_array_foreach(check->events, i, event) {
        if (strchr("sf", *trace_text(event, "ph")))
            trace_arrow(check, event);
    }
    for (int p = 0; p < check->pairs; p++)
        assert_true(check->pair[p].is_ended);
    for (int t = 0; t < check->threads; t++) {
        assert_true(check->thread[t].name || !check->thread[t].has_events);
        free(check->thread[t].slice);
    }
    free(check->pair);
}
