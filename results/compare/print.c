/* What was found, as text for people and as this project's JSON. */
#include <math.h>
#include <string.h>

#include "results/compare/gate.h"
#include "results/report/query.h"
#include "results/report/table.h"

enum { NAMED_MOST = 8, SIDES = 6 };

static void show_interval(const void *row, char text[TABLE_CELL]) {
    const struct mp_gate_metric *metric = row;
    if (isnan(metric->evidence.effect))
        snprintf(text, TABLE_CELL, "-");
    else if (isinf(metric->evidence.high))
        snprintf(text, TABLE_CELL, "unknown");
    else
        snprintf(text, TABLE_CELL, "%+.2f .. %+.2f", 100 * metric->evidence.low,
                 100 * metric->evidence.high);
}

static void show_p(const void *row, char text[TABLE_CELL]) {
    const struct mp_gate_metric *metric = row;
    double p = isnan(metric->adjusted_p) ? metric->evidence.p : metric->adjusted_p;
    snprintf(text, TABLE_CELL, isnan(p) ? "-" : p < .001 ? "%.0e" : "%.3f", p);
}

static void show_outcome(const void *row, char text[TABLE_CELL]) {
    snprintf(text, TABLE_CELL, "%s",
             mp_outcome_name(((const struct mp_gate_metric *)row)->outcome));
}

#define AT(member) offsetof(struct mp_gate_metric, member)
/* What people are told below the table. */
#define ALL_METRICS                                                                                \
    {NULL, TABLE_ARRAY, NULL, "system", .at = AT(system)},                                         \
        {NULL, TABLE_COUNT, NULL, "ranks", .at = AT(ranks)},                                       \
        {NULL, TABLE_FLAG, NULL, "exact", .at = AT(exact)},                                        \
        {NULL, TABLE_ARRAY, NULL, "reason", .at = AT(reason)}, {                                   \
        NULL, TABLE_ARRAY, NULL, "where", .at = AT(where)                                          \
    }

/* No more digits than tell times apart: with the outcome's name, a line has 80 columns. */
static const struct table_column timed_columns[] = {
    {"job", TABLE_ARRAY, NULL, "job", .at = AT(job)},
    {"base", TABLE_NUMBER, "ms", "base", AT(base), .decimals = TABLE_FEWER + 3},
    {"head", TABLE_NUMBER, "ms", "head", AT(head), .decimals = TABLE_FEWER + 3},
    {"change", TABLE_NUMBER, "%", "effect", AT(evidence.effect), .decimals = TABLE_SIGNED + 2},
    {"95 %\ninterval", TABLE_RIGHT, .show = show_interval},
    {"p", TABLE_RIGHT, .show = show_p},
    {"floor", TABLE_NUMBER, "%", "noise_floor", AT(floor), .decimals = 2},
    {"outcome", TABLE_LEFT, NULL, "outcome", .show = show_outcome},
    ALL_METRICS,
    {NULL, TABLE_ARRAY, NULL, "metric", .at = AT(name)},
    {NULL, TABLE_NUMBER, NULL, "low", .at = AT(evidence.low)},
    {NULL, TABLE_NUMBER, NULL, "high", .at = AT(evidence.high)},
    {NULL, TABLE_NUMBER, NULL, "p", .at = AT(evidence.p)},
    {NULL, TABLE_NUMBER, NULL, "adjusted_p", .at = AT(adjusted_p)},
    {NULL, TABLE_NUMBER, NULL, "beyond_p", .at = AT(beyond_p)},
    {NULL, TABLE_NUMBER, NULL, "mann_whitney_u", .at = AT(evidence.u)},
    {NULL, TABLE_NUMBER, NULL, "mann_whitney_p", .at = AT(evidence.u_p)},
    {NULL, TABLE_FLAG, NULL, "paired", .at = AT(evidence.samples.paired)},
};

static const struct table_column exact_columns[] = {
    {"job", TABLE_ARRAY, NULL, "job", .at = AT(job)},
    {"exact measure", TABLE_ARRAY, NULL, "metric", .at = AT(name)},
    {"base", TABLE_NUMBER, NULL, "base", AT(base), .decimals = TABLE_EXACT},
    {"head", TABLE_NUMBER, NULL, "head", AT(head), .decimals = TABLE_EXACT},
    {"outcome", TABLE_LEFT, NULL, "outcome", .show = show_outcome},
    ALL_METRICS,
};
enum { TIMED = MP_LENGTH(timed_columns), EXACT = MP_LENGTH(exact_columns) };

static bool is_different(const struct mp_gate_metric *metric) {
    return metric->exact && metric->outcome != MP_OUTCOME_PASS &&
           metric->outcome != MP_OUTCOME_INCONCLUSIVE;
}

static bool is_timed(const struct mp_gate_metric *metric) {
    return !metric->exact;
}

/* The metrics that are shown in a table, whose title text has only if it is of times; none without
 * rows. */
static int print_metrics(const struct mp_gate *gate, bool (*shows)(const struct mp_gate_metric *),
                         enum mp_report_format format, FILE *out, struct mp_error *error) {
    const bool timed = shows == is_timed;
    MP_AUTO(table)
    struct table table = table_of(timed ? timed_columns : exact_columns, timed ? TIMED : EXACT);
    for (int i = 0; i < gate->metrics; i++)
        if (shows(&gate->metric[i]))
            MP_TRY(table_fill(&table, &gate->metric[i], 1, sizeof *gate->metric, error));
    if (table.rows > 0) {
        const char *title = format == MP_REPORT_TEXT ? "" : "exact measures";
        table_write(&table, format, timed ? "ms per iteration" : title, out);
        fputc('\n', out);
    }
    return MP_OK;
}

static int print_tables(const struct mp_gate *gate, enum mp_report_format format, FILE *out,
                        struct mp_error *error) {
    MP_TRY(print_metrics(gate, is_timed, format, out, error));
    return print_metrics(gate, is_different, format, out, error);
}

static void count_exact(const struct mp_gate *gate, FILE *out) {
    int equal = 0, unknown = 0, different = 0;
    for (int i = 0; i < gate->metrics; i++) {
        const struct mp_gate_metric *metric = &gate->metric[i];
        equal += metric->exact && metric->outcome == MP_OUTCOME_PASS;
        unknown += metric->exact && metric->outcome == MP_OUTCOME_INCONCLUSIVE;
        different += is_different(metric);
    }
    table_paragraph(out, "%d exact %s equal, %d %s, %d cannot be told.", equal,
                    equal == 1 ? "measure is" : "measures are", different,
                    different == 1 ? "is not" : "are not", unknown);
}

static bool have_one_reason(const struct mp_gate_metric *a, const struct mp_gate_metric *b) {
    return a->outcome == b->outcome && a->exact == b->exact && strcmp(a->reason, b->reason) == 0;
}

/* "ep, fssdp" for times; "ep copies, bytes-after-gate; fssdp copies and 12 more" for the rest. */
static void name_all(const struct mp_gate *gate, int first, char *names, size_t size) {
    const struct mp_gate_metric *like = &gate->metric[first];
    const char *job = "";
    size_t length = 0;
    int named = 0, more = 0;
    for (int i = first; i < gate->metrics; i++) {
        const struct mp_gate_metric *metric = &gate->metric[i];
        if (!have_one_reason(metric, like))
            continue;
        if (named == NAMED_MOST || length + MP_GATE_NAME >= size) {
            more++;
            continue;
        }
        bool is_new = strcmp(job, metric->job) != 0;
        length += (size_t)snprintf(names + length, size - length, "%s%s%s%s",
                                   !named   ? ""
                                   : is_new ? "; "
                                            : ", ",
                                   is_new ? metric->job : "", is_new && metric->exact ? " " : "",
                                   metric->exact ? metric->name : "");
        job = metric->job;
        named++;
    }
    if (more > 0)
        snprintf(names + length, size - length, " and %d more", more);
}

/* Why, for all that did not simply pass, the worst first: a sentence for each reason, with the
 * first place. */
static void print_reasons(const struct mp_gate *gate, FILE *out) {
    for (int outcome = MP_OUTCOME_FAIL; outcome > MP_OUTCOME_PASS; outcome--) {
        for (int i = 0; i < gate->metrics; i++) {
            const struct mp_gate_metric *metric = &gate->metric[i];
            char names[1024];
            if ((int)metric->outcome != outcome ||
                MP_ANY(k, i, have_one_reason(&gate->metric[k], &gate->metric[i])))
                continue;
            name_all(gate, i, names, sizeof names);
            table_paragraph(out, "%s (%s): %s%s%s.", mp_outcome_name(metric->outcome), names,
                            metric->reason, *metric->where ? "; " : "", metric->where);
        }
    }
}

static int print_text(const struct mp_gate *gate, FILE *out, struct mp_error *error) {
    for (int side = 0; side < 2; side++) {
        fputs(side ? "head  " : "base  ", out);
        table_filled(out, SIDES, SIDES, side ? gate->head : gate->base);
    }
    fputc('\n', out);
    MP_TRY(print_tables(gate, MP_REPORT_TEXT, out, error));
    count_exact(gate, out);
    print_reasons(gate, out);
    for (int i = 0; i < gate->notes; i++)
        table_paragraph(out, "%s", gate->note[i]);
    fputc('\n', out);
    table_paragraph(out, "%s: %d failed, %d inconclusive, %d improved, %d accepted, %d passed",
                    mp_outcome_name(mp_gate_outcome(gate)), gate->outcomes[MP_OUTCOME_FAIL],
                    gate->outcomes[MP_OUTCOME_INCONCLUSIVE], gate->outcomes[MP_OUTCOME_IMPROVED],
                    gate->outcomes[MP_OUTCOME_ACCEPTED], gate->outcomes[MP_OUTCOME_PASS]);
    return check_printed(out, error);
}

/* ---- JSON ---- */

static json_t *samples_value(const double samples[], int count) {
    json_t *array = json_array();
    for (int i = 0; i < count; i++)
        json_array_append_new(array, number_value(samples[i]));
    return array;
}

static json_t *metric_value(const struct mp_gate_metric *metric) {
    const struct mp_samples *samples = &metric->evidence.samples;
    if (metric->exact)
        return table_object(exact_columns, EXACT, metric);
    json_t *object = table_object(timed_columns, TIMED, metric);
    json_object_set_new(object, "unit", json_string("ms"));
    json_object_set_new(object, "base_samples", samples_value(samples->base, samples->bases));
    json_object_set_new(object, "head_samples", samples_value(samples->head, samples->heads));
    return object;
}

static int print_json(const struct mp_gate *gate, FILE *out, struct mp_error *error) {
    json_t *metrics = json_array(), *notes = json_array();
    for (int i = 0; i < gate->metrics; i++)
        json_array_append_new(metrics, metric_value(&gate->metric[i]));
    for (int i = 0; i < gate->notes; i++)
        json_array_append_new(notes, text_value(gate->note[i]));
    return print_object(
        json_pack("{s:i, s:s, s:s, s:o, s:o, s:f, s:b, s:{s:i, s:i, s:i, s:i, s:i}, s:o, s:o}",
                  "version", 1, "report", "compare", "outcome",
                  mp_outcome_name(mp_gate_outcome(gate)), "base", text_value(gate->base), "head",
                  text_value(gate->head), "minimum_effect", gate->minimum_effect, "same_program",
                  gate->same_program, "outcomes", "fail", gate->outcomes[MP_OUTCOME_FAIL],
                  "inconclusive", gate->outcomes[MP_OUTCOME_INCONCLUSIVE], "improved",
                  gate->outcomes[MP_OUTCOME_IMPROVED], "accepted",
                  gate->outcomes[MP_OUTCOME_ACCEPTED], "pass", gate->outcomes[MP_OUTCOME_PASS],
                  "notes", notes, "metrics", metrics),
        out, error);
}

int mp_gate_print(const struct mp_gate *gate, enum mp_report_format format, FILE *out,
                  struct mp_error *error) {
    if (format == MP_REPORT_JSON)
        return print_json(gate, out, error);
    if (format == MP_REPORT_TEXT)
        return print_text(gate, out, error);
    MP_TRY(print_tables(gate, format, out, error));
    return check_printed(out, error);
}
