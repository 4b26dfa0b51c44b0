/* What was found, as JSON in the two formats of trackers. */
#include <jansson.h>
#include <math.h>

#include "results/compare/gate.h"
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
