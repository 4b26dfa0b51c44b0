#include "reference/trainer/spans.h"

#include "profiler/nvtx/emit.h"
#include "reference/base/median.h"
#include "reference/base/option.h"

int64_t mp_spans_now(const struct mp_spans *spans) {
    return mp_clock_ns() - spans->paused_ns;
}

/* What the thread has taken of the processor, without pauses. */
static int64_t cpu_ns(const struct mp_spans *spans) {
    return mp_clock_thread_cpu_ns() - spans->pause.cpu_ns;
}

struct mp_mark mp_spans_mark(const struct mp_spans *spans, enum mp_phase phase) {
    mp_nvtx_push(phase);
    struct mp_mark mark = {.start_ns = spans->compute ? mp_spans_now(spans) : 0,
                           .waited_ns = spans->comm->waited_ns,
                           .sent_bytes = spans->comm->sent_bytes,
                           .between_bytes = spans->comm->between_bytes,
                           .begin = -1};
    if (spans->compute && phase == MP_PHASE_ITERATION)
        mark.cpu_ns = cpu_ns(spans);
    if (spans->compute && spans->stamps) {
        mark.begin = mp_stamps_mark(spans->stamps, spans->paused_ns);
        mark.first_wait = mp_stamps_waits(spans->stamps);
    }
    return mark;
}

static void observe_wait(void *context, mp_stream stream, bool begins) {
    struct mp_spans *spans = context;
    if (!spans->compute || stream != spans->stream)
        return;
    int place = mp_stamps_mark(spans->stamps, spans->paused_ns);
    if (begins)
        spans->wait_begin = place;
    else
        mp_stamps_waited(spans->stamps, spans->wait_begin, place);
}

int mp_spans_create(struct mp_spans *spans, int most, struct mp_error *error) {
    int code = MP_OK;
    if (spans->device->deferred)
        code = mp_stamps_create(spans->device, spans->stream, most, &spans->stamps, error);
    mp_comm_on_wait(spans->comm, spans->stamps ? observe_wait : NULL, spans);
    return code;
}

void mp_spans_destroy(struct mp_spans *spans) {
    if (spans->stamps)
        mp_comm_on_wait(spans->comm, NULL, NULL);
    mp_stamps_destroy(spans->stamps);
}

/* What has been queued is done before the clocks of this rank stop or a delay begins. */
static void settle(const struct mp_spans *spans) {
    if (spans->device->deferred)
        spans->device->operations->stream_synchronize(spans->device, spans->stream);
}

int mp_spans_pause(struct mp_spans *spans, struct mp_error *error) {
    if (!spans->pauses)
        return MP_OK;
    settle(spans);
    int code = mp_comm_barrier(spans->comm, error);
    spans->pause.waited_ns = spans->comm->waited_ns;
    spans->pause.sent_bytes = spans->comm->sent_bytes;
    spans->pause.between_bytes = spans->comm->between_bytes;
    spans->pause.start_ns = mp_clock_ns();
    spans->pause.start_cpu_ns = mp_clock_thread_cpu_ns();
    return code;
}

int mp_spans_resume(struct mp_spans *spans, struct mp_error *error) {
    if (!spans->pauses)
        return MP_OK;
    settle(spans);
    int code = mp_comm_barrier(spans->comm, error);
    spans->comm->waited_ns = spans->pause.waited_ns;
    spans->comm->sent_bytes = spans->pause.sent_bytes;
    spans->comm->between_bytes = spans->pause.between_bytes;
    spans->pause.cpu_ns += mp_clock_thread_cpu_ns() - spans->pause.start_cpu_ns;
    spans->paused_ns += mp_clock_ns() - spans->pause.start_ns;
    return code;
}

/* The recorder reads the clock itself unless a clock that stood still behind it. */
static int64_t end_of_span(const struct mp_spans *spans) {
    return spans->paused_ns ? mp_spans_now(spans) : 0;
}

/* Now, or with stamps once the device says when. */
static void record(struct mp_spans *spans, struct mp_record_thread *thread,
                   const struct mp_span *span, int begin, int first_wait) {
    if (spans->stamps &&
        mp_stamps_keep(spans->stamps, thread, span, begin,
                       mp_stamps_mark(spans->stamps, spans->paused_ns), first_wait))
        return;
    mp_record_span(thread, span);
}

/* The delay that the job asks for (inject.h). */
static void inject(struct mp_spans *spans, enum mp_phase phase, int layer) {
    const struct mp_inject *inject = &spans->inject;
    if (inject->phase != (int)phase || *spans->iteration % inject->every != 0 ||
        (inject->layer != MP_ALL && inject->layer != layer))
        return;
    settle(spans);
    int64_t start = mp_clock_ns(), length = (int64_t)(inject->seconds * 1e9);
    while (mp_clock_ns() - start < length)
        ;
    if (mp_inject_delays_transfers(phase))
        spans->comm->waited_ns += mp_clock_ns() - start;
}

static struct mp_span span_since(const struct mp_spans *spans, struct mp_mark mark,
                                 enum mp_phase phase, enum mp_direction direction, int layer,
                                 int64_t tokens) {
    return (struct mp_span){
        .start_ns = mark.start_ns,
        .end_ns = end_of_span(spans),
        .wait_ns = spans->comm->waited_ns - mark.waited_ns,
        .cpu_ns = -1,
        .tokens = tokens,
        .bytes = spans->comm->sent_bytes - mark.sent_bytes,
        .flops = -1,
        .iteration = (int32_t)*spans->iteration,
        .layer = (int16_t)layer,
        .phase = (uint8_t)phase,
        .direction = (uint8_t)direction & 3,
    };
}

/* Tells NVTX tools of the end. */
static void pop(const struct mp_spans *spans, struct mp_mark mark, enum mp_direction direction,
                int layer, int64_t tokens) {
    mp_nvtx_pop(&(struct mp_nvtx_payload){*spans->iteration, layer, direction, tokens,
                                          spans->comm->sent_bytes - mark.sent_bytes});
}

void mp_spans_spent(struct mp_spans *spans, struct mp_mark mark, enum mp_phase phase,
                    enum mp_direction direction, int layer, int64_t tokens, int64_t flops) {
    if (spans->inject.seconds > 0)
        inject(spans, phase, layer);
    pop(spans, mark, direction, layer, tokens);
    if (!spans->compute)
        return;
    struct mp_span span = span_since(spans, mark, phase, direction, layer, tokens);
    span.flops = flops;
    record(spans, spans->compute, &span, mark.begin, mark.first_wait);
}

void mp_spans_iterated(struct mp_spans *spans, struct mp_mark mark, int64_t tokens) {
    pop(spans, mark, MP_NO_DIRECTION, -1, tokens);
    if (!spans->compute)
        return;
    struct mp_span span = span_since(spans, mark, MP_PHASE_ITERATION, MP_NO_DIRECTION, -1, tokens);
    if (!spans->device->deferred) /* what the host's thread gets says nothing of a GPU's work */
        span.cpu_ns = cpu_ns(spans) - mark.cpu_ns;
    if (spans->stamps)
        mp_stamps_flush(spans->stamps);
    mp_record_span(spans->compute, &span);
}

struct mp_flight mp_spans_departed(const struct mp_spans *spans, enum mp_phase phase) {
    /* Validation is one span, which takes in what lies inside it, but not what lies beside. */
    struct mp_flight flight = {mp_spans_now(spans), spans->validating ? 0 : mp_nvtx_depart(phase),
                               -1};
    if (spans->communication && spans->stamps)
        flight.begin = mp_stamps_mark(spans->stamps, spans->paused_ns);
    return flight;
}

void mp_spans_arrived(struct mp_spans *spans, struct mp_flight flight, enum mp_phase phase,
                      enum mp_direction direction, int layer, int64_t bytes) {
    mp_nvtx_arrive(flight.range,
                   &(struct mp_nvtx_payload){*spans->iteration, layer, direction, -1, bytes});
    if (!spans->communication)
        return;
    const struct mp_mark mark = {.start_ns = flight.start_ns, .waited_ns = spans->comm->waited_ns};
    struct mp_span span = span_since(spans, mark, phase, direction, layer, -1);
    span.bytes = bytes;
    record(spans, spans->communication, &span, flight.begin,
           spans->stamps ? mp_stamps_waits(spans->stamps) : 0);
}

/* ---- what a span costs ---- */

/* Spans per loop: ranges that a tool keeps are to be few. */
enum { MEASURED_LOOPS = 15, MEASURED_SPANS = 512, MEASURED_RANGES = 16, MEASURED_KEPT = 32 };

int mp_spans_cost(struct mp_spans *spans, double *cost_ns, struct mp_error *error) {
    struct mp_record_thread *kept = spans->compute, *scratch = NULL;
    int count = mp_nvtx_emitter ? MEASURED_RANGES : MEASURED_SPANS;
    if (spans->stamps && count > MEASURED_KEPT)
        count = MEASURED_KEPT;
    double loop_ns[MEASURED_LOOPS];
    MP_TRY(mp_record_scratch_create(&scratch, error));
    spans->compute = scratch;
    for (int loop = 0; loop < MEASURED_LOOPS; loop++) {
        int64_t start_ns = mp_clock_ns();
        for (int i = 0; i < count; i++) {
            struct mp_mark mark = mp_spans_mark(spans, MP_PHASES);
            mp_spans_spent(spans, mark, MP_PHASES, MP_NO_DIRECTION, -1, -1, -1);
        }
        loop_ns[loop] = (double)(mp_clock_ns() - start_ns);
        if (spans->stamps)
            mp_stamps_clear(spans->stamps);
        mp_record_scratch_clear(scratch);
    }
    spans->compute = kept;
    mp_record_scratch_destroy(scratch);
    *cost_ns = mp_median_of(loop_ns, MEASURED_LOOPS) / count;
    return MP_OK;
}
