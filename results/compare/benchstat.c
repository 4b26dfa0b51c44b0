/* What was found, as benchstat's text: one side a file, a line per sample. */
#include <ctype.h>
#include <string.h>

#include "results/compare/gate.h"
#include "results/report/query.h"

/* A job as a part of a benchmark's name: no blanks, slashes or equal signs. */
static void put_name(FILE *out, const char *name) {
    for (; *name; name++) {
        unsigned char letter = (unsigned char)*name;
        fputc(isalnum(letter) || strchr("-_.+", letter) ? letter : '_', out);
    }
}

static void put_start(FILE *out, const struct mp_gate_metric *metric) {
    fprintf(out, "BenchmarkIteration/job=");
    put_name(out, metric->job);
    fprintf(out, "/system=");
    put_name(out, metric->system);
    fprintf(out, "/ranks=%d 1", metric->ranks);
}

int mp_gate_print_benchstat(const struct mp_gate *gate, bool is_head, FILE *out,
                            struct mp_error *error) {
    fprintf(out, "side: %s\nUnit ms/iteration better=lower\n", is_head ? "head" : "base");
    for (int i = 0; i < gate->metrics; i++) {
        const struct mp_gate_metric *metric = &gate->metric[i];
        const struct mp_samples *of = &metric->evidence.samples;
        const double *samples = is_head ? of->head : of->base;
        int count = is_head ? of->heads : of->bases;
        for (int k = 0; k < count && !metric->exact; k++) {
            put_start(out, metric);
            fprintf(out, " %.17g ms/iteration\n", samples[k]);
        }
    }
    return check_printed(out, error);
}
