/* What a span costs the thread that records it.
 *
 * Batches of spans and batches of bare clock reads take turns, so that a busy machine disturbs
 * both; the figures are medians over batches.  A batch fits the buffer, and is flushed outside the
 * timed part, as a trainer flushes after an iteration's barrier.  The clock read that times a batch
 * is spread over its spans. */
#include <stdio.h>
#include <unistd.h>

#include "profiler/record/record.h"
#include "reference/base/arena.h"
#include "reference/base/median.h"
#include "tests/bench/bench.h"

struct measurement {
    int batches, batch;                    /* batches of so many spans */
    double *span_ns, *clock_ns, *flush_ns; /* [batches], per span */
    int64_t bytes, spans;                  /* totals of the spool */
};

/* A read that is kept for its time alone must still happen. */
static void keep(int64_t value) {
    __asm__ volatile("" : : "r"(value));
}

static double time_clock_pairs(int pairs) {
    int64_t start = mp_clock_ns();
    for (int i = 0; i < pairs; i++) {
        keep(mp_clock_ns());
        keep(mp_clock_ns());
    }
    return (double)(mp_clock_ns() - start) / pairs;
}

/* Each span as a trainer records one: a read at its start, the other in mp_record_span. */
static double time_spans(struct mp_record_thread *thread, int spans, int iteration) {
    int64_t start = mp_clock_ns();
    for (int i = 0; i < spans; i++) {
        struct mp_span span = {.start_ns = mp_clock_ns(),
                               .cpu_ns = -1,
                               .tokens = i,
                               .bytes = -1,
                               .flops = i * (int64_t)1000,
                               .iteration = iteration,
                               .layer = (int16_t)(i % 32),
                               .phase = MP_PHASE_EXPERT,
                               .direction = MP_FORWARD};
        mp_record_span(thread, &span);
    }
    return (double)(mp_clock_ns() - start) / spans;
}

static int measure_all(struct mp_recorder *recorder, struct measurement *m,
                       struct mp_error *error) {
    struct mp_record_thread *thread = NULL;
    MP_TRY(mp_recorder_thread(recorder, "compute", &thread, error));
    for (int i = 0; i < m->batches; i++) {
        m->clock_ns[i] = time_clock_pairs(m->batch);
        m->span_ns[i] = time_spans(thread, m->batch, i);
        int64_t start = mp_clock_ns();
        MP_TRY(mp_recorder_flush(recorder, error));
        m->flush_ns[i] = (double)(mp_clock_ns() - start) / m->batch;
    }
    mp_recorder_totals(recorder, &m->bytes, &m->spans);
    return MP_OK;
}

static int measure(const char *path, struct measurement *m, struct mp_error *error) {
    struct mp_recorder *recorder = NULL;
    MP_TRY(mp_recorder_create(&(struct mp_recorder_config){.path = path, .ranks = 1}, &recorder,
                              error));
    int code = measure_all(recorder, m, error);
    int finished = mp_recorder_finish(&recorder, code, "", error);
    return code ? code : finished;
}

static int measure_in_folder(struct measurement *m, struct mp_error *error) {
    char folder[MP_BENCH_FOLDER], path[MP_BENCH_FOLDER + 16];
    MP_TRY(mp_bench_make_folder(folder, error));
    snprintf(path, sizeof path, "%s/record.spool", folder);
    int code = measure(path, m, error);
    unlink(path);
    rmdir(folder);
    return code;
}

static int report(struct measurement *m, json_t *result, struct mp_error *error) {
    double span_ns = mp_median_of(m->span_ns, m->batches); /* which sorts them */
    double clock_ns = mp_median_of(m->clock_ns, m->batches);
    double flush_ns = mp_median_of(m->flush_ns, m->batches);
    return mp_bench_add(result,
                        json_pack("{s:I, s:f, s:f, s:f, s:f, s:f, s:f}", "spans",
                                  (json_int_t)m->spans, "ns_per_span", span_ns,
                                  "ns_per_span_fastest_batch", m->span_ns[0],
                                  "ns_per_two_clock_reads", clock_ns, "ns_per_span_beyond_clock",
                                  span_ns - clock_ns, "ns_per_span_in_flush", flush_ns,
                                  "bytes_per_span", (double)m->bytes / (double)m->spans),
                        error);
}

static const struct mp_option record_options[] = {
    MP_BENCH_NUMBER("spans", spans, "100000", 10000, 100000000, "spans to record in all"),
    MP_BENCH_NUMBER("batch", batch, "500", 10, 10000, "spans between two flushes"),
    {0},
};

static int run(const struct mp_bench_options *options, json_t *result, struct mp_error *error) {
    struct measurement m = {.batch = options->batch,
                            .batches = (options->spans + options->batch - 1) / options->batch};
    struct mp_arena arena = {0};
    MP_TAKE_EACH(&arena, m.batches, m.span_ns, m.clock_ns, m.flush_ns);
    int code = mp_arena_check(&arena, error);
    if (!code)
        code = measure_in_folder(&m, error);
    if (!code)
        code = report(&m, result, error);
    mp_arena_release(&arena);
    return code;
}

const struct mp_bench mp_bench_record = {
    .name = "record",
    .help = "what recording a span costs, beside two bare clock reads",
    .options = record_options,
    .run = run,
};
