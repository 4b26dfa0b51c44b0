#include "tests/same/trace.h"

#include <string.h>

#include "tests/support.h"

int trace_start(struct trace *trace, struct trace_operation operation) {
    int number = trace->operations++;
    assert_true(number < TRACE_OPERATIONS);
    trace->operation[number] = operation;
    trace->event[trace->events++] = number + 1;
    return number;
}

void trace_wait(struct trace *trace, int operation) {
    assert_true(trace->events < 2 * TRACE_OPERATIONS);
    trace->event[trace->events++] = -(operation + 1);
}

void trace_work(struct trace *trace, enum mp_phase phase, enum mp_direction direction) {
    trace_wait(trace, trace_start(trace, (struct trace_operation){.phase = (int32_t)phase,
                                                                  .direction = (int32_t)direction,
                                                                  .works = 1}));
}

void trace_describe(const struct trace *trace, int operation, char *text, size_t size) {
    const struct trace_operation *o = &trace->operation[operation];
    const char *direction = o->direction == MP_FORWARD    ? "forward"
                            : o->direction == MP_BACKWARD ? "backward"
                                                          : "after backward";
    const char *phase = mp_phase_name((enum mp_phase)o->phase);
    if (o->works)
        snprintf(text, size, "work of %s, %s", phase, direction);
    else
        snprintf(text, size, "%s, %s, layer %d, step %d", phase, direction, o->layer, o->step);
}

/* ---- comparison ---- */

/* What nobody sees: transfers of experts without bytes, and what is free. */
static bool is_unseen(const struct trace_operation *operation, trace_matrix bytes, int ranks) {
    uint32_t any = 0;
    for (int from = 0; from < ranks; from++)
        for (int to = 0; to < ranks; to++)
            any |= bytes[from][to];
    return operation->free ||
           (any == 0 && (operation->phase == MP_PHASE_FETCH ||
                         operation->phase == MP_PHASE_REDUCE || operation->phase == MP_PHASE_MOVE));
}

static void leave_out(struct trace *trace, trace_matrix bytes[], int ranks) {
    static int32_t number[TRACE_OPERATIONS];
    int kept = 0, events = 0;
    for (int i = 0; i < trace->operations; i++) {
        number[i] = -1;
        if (is_unseen(&trace->operation[i], bytes[i], ranks))
            continue;
        trace->operation[kept] = trace->operation[i];
        if (kept != i)
            memcpy(bytes[kept], bytes[i], sizeof bytes[i]);
        number[i] = kept++;
    }
    for (int i = 0; i < trace->events; i++) {
        int32_t event = trace->event[i], now = number[abs(event) - 1] + 1;
        if (now > 0)
            trace->event[events++] = event > 0 ? now : -now;
    }
    trace->operations = kept;
    trace->events = events;
}

static void print_event(const char *who, const struct trace *trace, int event) {
    char text[128] = "nothing more";
    if (event < trace->events)
        trace_describe(trace, abs(trace->event[event]) - 1, text, sizeof text);
    print_error("  %s %s %s\n", who,
                event < trace->events && trace->event[event] < 0 ? "waits for" : "starts", text);
}

/* Starts, waits and own work in one order: so every operation has the same others beside it. */
static bool same_events(const struct trace *left, const struct trace *right) {
    int most = left->events > right->events ? left->events : right->events;
    for (int i = 0; i < most; i++) {
        bool both = i < left->events && i < right->events;
        int number = abs(left->event[i]) - 1;
        const struct trace_operation *a = &left->operation[number], *b = &right->operation[number];
        if (both && left->event[i] == right->event[i] && a->phase == b->phase &&
            a->direction == b->direction && a->works == b->works && a->layer == b->layer &&
            a->step == b->step)
            continue;
        print_error("event %d of %d and %d:\n", i, left->events, right->events);
        if (i > 0)
            print_event("before it, trainer", left, i - 1);
        print_event("trainer", left, i);
        print_event("predictor", right, i);
        return false;
    }
    return true;
}

static bool same_bytes(const struct trace *trace, int operation, trace_matrix left,
                       trace_matrix right, int ranks) {
    char text[128];
    for (int from = 0; from < ranks; from++)
        for (int to = 0; to < ranks; to++) {
            if (left[from][to] == right[from][to])
                continue;
            trace_describe(trace, operation, text, sizeof text);
            print_error("%s: %u bytes from rank %d to rank %d, in the predictor %u\n", text,
                        left[from][to], from, to, right[from][to]);
            return false;
        }
    return true;
}

bool trace_equal(struct trace *left, trace_matrix left_bytes[], struct trace *right,
                 trace_matrix right_bytes[], int ranks) {
    leave_out(left, left_bytes, ranks);
    leave_out(right, right_bytes, ranks);
    if (!same_events(left, right))
        return false;
    for (int i = 0; i < left->operations; i++) {
        char text[128];
        if (!same_bytes(left, i, left_bytes[i], right_bytes[i], ranks))
            return false;
        if (left->operation[i].each == right->operation[i].each)
            continue;
        trace_describe(left, i, text, sizeof text);
        print_error("%s: %u bytes of every rank, in the predictor %u\n", text,
                    left->operation[i].each, right->operation[i].each);
        return false;
    }
    return true;
}
