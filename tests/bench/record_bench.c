/* What a span costs the thread that records it.
 *
 * Batches of spans and batches of bare clock reads take turns, so that a busy machine disturbs
 * both; the figures are medians over batches.  A batch fits the buffer, and is flushed outside the
 * timed part, as a trainer flushes after an iteration's barrier.  The clock read that times a batch
 * is spread over its spans. */
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "profiler/record/record.h"
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

static int measure(const char *path, struct measurement *m, struct mp_error *error) {
    struct mp_recorder *recorder = NULL;
    struct mp_record_thread *thread = NULL;
    struct mp_recorder_config config = {.path = path, .ranks = 1};
    int code = mp_recorder_create(&config, &recorder, error);
    if (code)
        return code;
    code = mp_recorder_thread(recorder, "compute", &thread, error);
    for (int i = 0; i < m->batches && !code; i++) {
        m->clock_ns[i] = time_clock_pairs(m->batch);
        m->span_ns[i] = time_spans(thread, m->batch, i);
        int64_t start = mp_clock_ns();
        code = mp_recorder_flush(recorder, error);
        m->flush_ns[i] = (double)(mp_clock_ns() - start) / m->batch;
    }
    mp_recorder_totals(recorder, &m->bytes, &m->spans);
    int finished = mp_recorder_finish(&recorder, code, "", error);
    return code ? code : finished;
}

static int measure_in_temporary_folder(struct measurement *m, struct mp_error *error) {
    const char *base = getenv("TMPDIR");
    char folder[4096], path[4200];
    snprintf(folder, sizeof folder, "%s/moeperf-bench.XXXXXX", base && *base ? base : "/tmp");
    if (!mkdtemp(folder))
        return mp_fail(error, MP_EIO, "%s: cannot create a temporary folder: %m", folder);
    snprintf(path, sizeof path, "%s/record.spool", folder);
    int code = measure(path, m, error);
    unlink(path);
    rmdir(folder);
    return code;
}

static int report(struct measurement *m, json_t *result, struct mp_error *error) {
    double span_ns = mp_bench_median(m->span_ns, m->batches);
    double clock_ns = mp_bench_median(m->clock_ns, m->batches);
    double flush_ns = mp_bench_median(m->flush_ns, m->batches);
    int failed = 0;
    failed |= json_object_set_new(result, "spans", json_integer(m->spans));
    failed |= json_object_set_new(result, "ns_per_span", json_real(span_ns));
    failed |= json_object_set_new(result, "ns_per_span_fastest_batch", json_real(m->span_ns[0]));
    failed |= json_object_set_new(result, "ns_per_two_clock_reads", json_real(clock_ns));
    failed |=
        json_object_set_new(result, "ns_per_span_beyond_clock", json_real(span_ns - clock_ns));
    failed |= json_object_set_new(result, "ns_per_span_in_flush", json_real(flush_ns));
    failed |= json_object_set_new(result, "bytes_per_span",
                                  json_real((double)m->bytes / (double)m->spans));
    return failed ? mp_fail(error, MP_ENOMEM, "record: no memory for the result") : MP_OK;
}

static int run(int argc, char **argv, json_t *result, struct mp_error *error) {
    long spans = 100000, batch = 500;
    const struct mp_bench_option options[] = {
        {"spans", &spans, 10000, 100000000},
        {"batch", &batch, 10, 10000},
        {0},
    };
    int code = mp_bench_options(argc, argv, options, error);
    if (code)
        return code;

    struct measurement m = {.batch = (int)batch, .batches = (int)((spans + batch - 1) / batch)};
    double *values = malloc(3 * (size_t)m.batches * sizeof *values);
    if (!values)
        return mp_fail(error, MP_ENOMEM, "record: no memory for %d batches", m.batches);
    m.span_ns = values;
    m.clock_ns = values + m.batches;
    m.flush_ns = values + 2 * m.batches;
    code = measure_in_temporary_folder(&m, error);
    if (!code)
        code = report(&m, result, error);
    free(values);
    return code;
}

const struct mp_bench mp_bench_record = {
    .name = "record",
    .help = "what recording a span costs, beside two bare clock reads\n"
            "  --spans N  spans to record in all, 100000 unless given, 10000 at least\n"
            "  --batch N  spans between two flushes, 500 unless given\n",
    .run = run,
};
