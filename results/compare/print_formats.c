/* What was found, in formats of other programs: JSON for two trackers first. */
#include <ctype.h>
#include <jansson.h>
#include <math.h>
#include <string.h>

#include "results/compare/gate.h"
#include "results/report/page.h"
#include "results/report/query.h"

/* "fssdp/ranks=4": what trackers call a job. */
static void format_name(const struct mp_gate_metric *metric, char *name, size_t size) {
    snprintf(name, size, "%s/ranks=%d", metric->job, metric->ranks);
}

/* Of head's times; false: the metric has none. */
static bool find_range(const struct mp_gate_metric *metric, double *low, double *high) {
    const struct mp_samples *samples = &metric->evidence.samples;
    if (metric->exact || isnan(metric->head))
        return false;
    *low = *high = samples->head[0];
    for (int i = 1; i < samples->heads; i++) {
        *low = fmin(*low, samples->head[i]);
        *high = fmax(*high, samples->head[i]);
    }
    return true;
}

int mp_gate_print_action(const struct mp_gate *gate, FILE *out, struct mp_error *error) {
    json_t *array = json_array();
    for (int i = 0; i < gate->metrics; i++) {
        const struct mp_gate_metric *metric = &gate->metric[i];
        char name[2 * MP_GATE_NAME], range[64], extra[256];
        double low, high;
        if (!find_range(metric, &low, &high))
            continue;
        format_name(metric, name, sizeof name);
        snprintf(range, sizeof range, "± %.4g", (high - low) / 2);
        snprintf(extra, sizeof extra, "%d %s, %.5g .. %.5g ms, %+.2f %% against base: %s",
                 metric->evidence.samples.heads, metric->evidence.samples.paired ? "pairs" : "runs",
                 low, high, 100 * metric->evidence.effect, mp_outcome_name(metric->outcome));
        json_array_append_new(array, json_pack("{s:o, s:s, s:f, s:s, s:s}", "name",
                                               text_value(name), "unit", "ms/iteration", "value",
                                               metric->head, "range", range, "extra", extra));
    }
    return print_object(array, out, error);
}

int mp_gate_print_bencher(const struct mp_gate *gate, FILE *out, struct mp_error *error) {
    json_t *object = json_object();
    for (int i = 0; i < gate->metrics; i++) {
        const struct mp_gate_metric *metric = &gate->metric[i];
        char name[2 * MP_GATE_NAME];
        double low, high;
        if (!find_range(metric, &low, &high))
            continue;
        format_name(metric, name, sizeof name);
        json_t *key = text_value(name); /* bytes that are no UTF-8 could be no key */
        json_object_set_new(object, json_string_value(key),
                            json_pack("{s:{s:f, s:f, s:f}}", "ms", "value", metric->head,
                                      "lower_value", low, "upper_value", high));
        json_decref(key);
    }
    return print_object(object, out, error);
}

/* ---- JUnit XML: what CI systems show ---- */

/* What is known of a change: "+5.00 % (+4.00 .. +6.00), p 0.001, floor 1.00 %: ". */
static void print_change(const struct mp_gate_metric *metric, char *text, size_t size) {
    double p = isnan(metric->adjusted_p) ? metric->evidence.p : metric->adjusted_p;
    int at = snprintf(text, size, "%+.2f %%", 100 * metric->evidence.effect);
    if (isfinite(metric->evidence.low) && isfinite(metric->evidence.high))
        at += snprintf(text + at, size - (size_t)at, " (%+.2f .. %+.2f)",
                       100 * metric->evidence.low, 100 * metric->evidence.high);
    if (!isnan(p))
        at += snprintf(text + at, size - (size_t)at, ", p %.3g", p);
    if (!isnan(metric->floor))
        at += snprintf(text + at, size - (size_t)at, ", floor %.2f %%", 100 * metric->floor);
    snprintf(text + at, size - (size_t)at, ": ");
}

static void put_case(FILE *out, const struct mp_gate_metric *metric) {
    char change[256] = "", message[2 * MP_GATE_TEXT + 512];
    if (!isnan(metric->evidence.effect))
        print_change(metric, change, sizeof change);
    snprintf(message, sizeof message, "%s%s%s%s", change, metric->reason,
             *metric->where ? "; " : "", metric->where);
    page_print(out, "    <testcase classname=\"gate.%s\" name=\"%s: %s ranks=%d\"", metric->system,
               metric->job, metric->name, metric->ranks);
    if (metric->outcome == MP_OUTCOME_FAIL)
        page_print(out, ">\n      <failure type=\"%s\" message=\"%s\"/>\n    </testcase>\n",
                   metric->exact ? "different" : "slower", message);
    else if (metric->outcome == MP_OUTCOME_INCONCLUSIVE)
        page_print(out, ">\n      <skipped message=\"inconclusive: %s\"/>\n    </testcase>\n",
                   message);
    else
        fputs("/>\n", out);
}

int mp_gate_print_junit(const struct mp_gate *gate, FILE *out, struct mp_error *error) {
    fprintf(out,
            "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<testsuites>\n"
            "  <testsuite name=\"gate\" tests=\"%d\" failures=\"%d\" errors=\"0\" "
            "skipped=\"%d\">\n",
            gate->metrics, gate->outcomes[MP_OUTCOME_FAIL],
            gate->outcomes[MP_OUTCOME_INCONCLUSIVE]);
    for (int i = 0; i < gate->metrics; i++)
        put_case(out, &gate->metric[i]);
    fprintf(out, "  </testsuite>\n</testsuites>\n");
    return check_printed(out, error);
}

/* ---- benchstat's text: one side a file, a line per sample ---- */

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
