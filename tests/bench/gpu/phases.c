/* moeperf-gpu-phases: what each phase of a recorded rank's iterations took, for machines that have
 * nothing else to read records with. */
#include <stdio.h>

#include "profiler/record/spool.h"
#include "reference/base/median.h"

enum { MOST = 256, DIRECTIONS = 4 }; /* iterations; values of a span's direction */

static double spent[MP_PHASES][DIRECTIONS][MOST]; /* ms of an iteration, over its layers */

/* Compute's spans, which do not overlap but for the iteration's own; how many iterations. */
static int read_spans(struct mp_spool_reader *reader, struct mp_error *error) {
    struct mp_spool_record record;
    int iterations = 0;
    while (mp_spool_next(reader, &record, error) == 1) {
        const struct mp_span *span = &record.as.span;
        if (record.type != MP_SPOOL_SPAN || span->stream != 0 || span->iteration < 0 ||
            span->iteration >= MOST || span->phase >= MP_PHASES)
            continue;
        spent[span->phase][span->direction][span->iteration] +=
            1e-6 * (double)(span->end_ns - span->start_ns);
        if (span->iteration >= iterations)
            iterations = span->iteration + 1;
    }
    return iterations;
}

/* Medians of the second half: the first warms up. */
static void print_phases(int iterations) {
    static const char *const way[DIRECTIONS] = {
        [MP_NO_DIRECTION] = "", [MP_FORWARD] = " forward", [MP_BACKWARD] = " backward"};
    for (int phase = 0; phase < MP_PHASES; phase++)
        for (int direction = 0; direction < DIRECTIONS; direction++) {
            double ms =
                mp_median_of(spent[phase][direction] + iterations / 2, iterations - iterations / 2);
            if (ms > 0)
                printf("%s%s\t%.3f\n", mp_phase_name((enum mp_phase)phase),
                       way[direction] ? way[direction] : "", ms);
        }
}

int main(int argc, char **argv) {
    struct mp_error error = {0};
    struct mp_spool_reader *reader = NULL;
    if (argc != 2) {
        fprintf(stderr, "usage: moeperf-gpu-phases SPOOL: milliseconds per phase, one a line\n");
        return 2;
    }
    if (mp_spool_open(argv[1], &reader, &error)) {
        fprintf(stderr, "moeperf-gpu-phases: %s\n", error.text);
        return 2;
    }
    int iterations = read_spans(reader, &error);
    mp_spool_close(reader);
    if (iterations == 0) {
        fprintf(stderr, "moeperf-gpu-phases: %s has no iterations\n", argv[1]);
        return 2;
    }
    print_phases(iterations);
    return 0;
}
