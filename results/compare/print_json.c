/* What was found, as JSON in the two formats of trackers. */
#include <jansson.h>
#include <math.h>

#include "results/compare/gate.h"
#include "results/report/query.h"

/* "fssdp/ranks=4": what trackers call a job. */
static void format_name(const struct mp_gate_metric *metric, char *name, size_t size) {
    snprintf(name, size, "%s/ranks=%d", metric->job, metric->ranks);
}

static double smallest(const double samples[], int count) {
    double value = samples[0];
    for (int i = 1; i < count; i++)
        value = fmin(value, samples[i]);
    return value;
}

static double largest(const double samples[], int count) {
    double value = samples[0];
    for (int i = 1; i < count; i++)
        value = fmax(value, samples[i]);
    return value;
}

int mp_gate_print_action(const struct mp_gate *gate, FILE *out, struct mp_error *error) {
    json_t *array = json_array();
    for (int i = 0; i < gate->metrics; i++) {
        const struct mp_gate_metric *metric = &gate->metric[i];
        char name[2 * MP_GATE_NAME], range[64], extra[256];
        if (metric->exact || isnan(metric->head))
            continue;
        double low = smallest(metric->head_samples, metric->heads);
        double high = largest(metric->head_samples, metric->heads);
        format_name(metric, name, sizeof name);
        snprintf(range, sizeof range, "± %.4g", (high - low) / 2);
        snprintf(extra, sizeof extra, "%d %s, %.5g .. %.5g ms, %+.2f %% against base: %s",
                 metric->heads, metric->paired ? "pairs" : "runs", low, high, 100 * metric->effect,
                 mp_outcome_name(metric->outcome));
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
        if (metric->exact || isnan(metric->head))
            continue;
        format_name(metric, name, sizeof name);
        json_t *key = text_value(name); /* bytes that are no UTF-8 could be no key */
        json_object_set_new(object, json_string_value(key),
                            json_pack("{s:{s:f, s:f, s:f}}", "ms", "value", metric->head,
                                      "lower_value", smallest(metric->head_samples, metric->heads),
                                      "upper_value", largest(metric->head_samples, metric->heads)));
        json_decref(key);
    }
    return print_object(object, out, error);
}
