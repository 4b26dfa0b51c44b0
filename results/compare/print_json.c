/* What was found, as JSON: everything, this project's own; and the two formats of trackers. */
#include <jansson.h>
#include <math.h>
#include <string.h>

#include "results/compare/gate.h"
#include "results/report/query.h"

static json_t *json_samples(const double samples[], int count) {
    json_t *array = json_array();
    for (int i = 0; i < count; i++)
        json_array_append_new(array, json_number(samples[i]));
    return array;
}

static json_t *json_metric(const struct mp_gate_metric *metric) {
    json_t *object =
        json_pack("{s:o, s:o, s:i, s:o, s:b, s:s, s:o, s:o, s:o, s:o}", "job",
                  json_text(metric->job), "system", json_text(metric->system), "ranks",
                  metric->ranks, "metric", json_text(metric->name), "exact", metric->exact,
                  "outcome", mp_outcome_name(metric->outcome), "reason", json_text(metric->reason),
                  "where", *metric->where ? json_text(metric->where) : json_null(), "base",
                  json_number(metric->base), "head", json_number(metric->head));
    if (!object || metric->exact)
        return object;
    json_t *times =
        json_pack("{s:s, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:b, s:o, s:o}", "unit", "ms",
                  "effect", json_number(metric->effect), "low", json_number(metric->low), "high",
                  json_number(metric->high), "p", json_number(metric->p), "adjusted_p",
                  json_number(metric->adjusted_p), "beyond_p", json_number(metric->beyond_p),
                  "noise_floor", json_number(metric->floor), "mann_whitney_u",
                  json_number(metric->u), "mann_whitney_p", json_number(metric->u_p), "paired",
                  metric->paired, "base_samples", json_samples(metric->base_samples, metric->bases),
                  "head_samples", json_samples(metric->head_samples, metric->heads));
    json_object_update(object, times);
    json_decref(times);
    return object;
}

int mp_gate_print_json(const struct mp_gate *gate, FILE *out, struct mp_error *error) {
    json_t *metrics = json_array(), *notes = json_array();
    for (int i = 0; i < gate->metrics; i++)
        json_array_append_new(metrics, json_metric(&gate->metric[i]));
    for (int i = 0; i < gate->notes; i++)
        json_array_append_new(notes, json_text(gate->note[i]));
    return json_print(
        json_pack("{s:i, s:s, s:s, s:o, s:o, s:f, s:b, s:{s:i, s:i, s:i, s:i, s:i}, s:o, s:o}",
                  "version", 1, "report", "compare", "outcome",
                  mp_outcome_name(mp_gate_outcome(gate)), "base", json_text(gate->base), "head",
                  json_text(gate->head), "minimum_effect", gate->minimum_effect, "same_program",
                  gate->same_program, "outcomes", "fail", gate->outcomes[MP_OUTCOME_FAIL],
                  "inconclusive", gate->outcomes[MP_OUTCOME_INCONCLUSIVE], "improved",
                  gate->outcomes[MP_OUTCOME_IMPROVED], "accepted",
                  gate->outcomes[MP_OUTCOME_ACCEPTED], "pass", gate->outcomes[MP_OUTCOME_PASS],
                  "notes", notes, "metrics", metrics),
        out, error);
}

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
        json_array_append_new(array, json_pack("{s:o, s:s, s:f, s:s, s:s}", "name", json_text(name),
                                               "unit", "ms/iteration", "value", metric->head,
                                               "range", range, "extra", extra));
    }
    return json_print(array, out, error);
}

int mp_gate_print_bencher(const struct mp_gate *gate, FILE *out, struct mp_error *error) {
    json_t *object = json_object();
    for (int i = 0; i < gate->metrics; i++) {
        const struct mp_gate_metric *metric = &gate->metric[i];
        char name[2 * MP_GATE_NAME];
        if (metric->exact || isnan(metric->head))
            continue;
        format_name(metric, name, sizeof name);
        json_t *key = json_text(name); /* bytes that are no UTF-8 could be no key */
        json_object_set_new(object, json_string_value(key),
                            json_pack("{s:{s:f, s:f, s:f}}", "ms", "value", metric->head,
                                      "lower_value", smallest(metric->head_samples, metric->heads),
                                      "upper_value", largest(metric->head_samples, metric->heads)));
        json_decref(key);
    }
    return json_print(object, out, error);
}
