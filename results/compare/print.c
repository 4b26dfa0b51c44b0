/* What was found, as text for people. */
#include <math.h>
#include <string.h>

#include "reference/base/characters.h"
#include "results/compare/gate.h"
#include "results/report/query.h"
#include "results/report/table.h"

enum { NAMED_MOST = 8 };

static void set_interval(struct table *table, int column, const struct mp_gate_metric *metric) {
    if (isnan(metric->effect))
        table_set(table, column, "-");
    else if (isinf(metric->high))
        table_set(table, column, "unknown");
    else
        table_set(table, column, "%+.2f .. %+.2f", 100 * metric->low, 100 * metric->high);
}

static void set_p(struct table *table, int column, double p) {
    if (isnan(p))
        table_set(table, column, "-");
    else
        table_set(table, column, p < .001 ? "%.0e" : "%.3f", p);
}

/* No more than tell times apart: with the outcome's name, a line has 80 columns to hold it. */
static int decimals(double ms) {
    return ms >= 1000 ? 1 : ms >= 100 ? 2 : 3;
}

static int print_times(const struct mp_gate *gate, FILE *out, struct mp_error *error) {
    static const struct table_column columns[] = {
        {"job", .kind = TABLE_LEFT},
        {"base\nms", .kind = TABLE_RIGHT},
        {"head\nms", .kind = TABLE_RIGHT},
        {"change\n%", .kind = TABLE_RIGHT},
        {"95 %\ninterval", .kind = TABLE_RIGHT},
        {"p", .kind = TABLE_RIGHT},
        {"floor\n%", .kind = TABLE_RIGHT},
        {"outcome", .kind = TABLE_LEFT},
    };
    struct table table;
    int code = MP_OK;
    table_init(&table, columns, sizeof columns / sizeof *columns);
    for (int i = 0; i < gate->metrics && !code; i++) {
        const struct mp_gate_metric *metric = &gate->metric[i];
        if (metric->exact)
            continue;
        code = table_add(&table, NULL, error);
        if (code)
            break;
        table_set(&table, 0, "%s", metric->job);
        table_set_number(&table, 1, metric->base, decimals(metric->base));
        table_set_number(&table, 2, metric->head, decimals(metric->head));
        if (isnan(metric->effect))
            table_set(&table, 3, "-");
        else
            table_set(&table, 3, "%+.2f", 100 * metric->effect);
        set_interval(&table, 4, metric);
        set_p(&table, 5, isnan(metric->adjusted_p) ? metric->p : metric->adjusted_p);
        table_set_number(&table, 6, 100 * metric->floor, 2);
        table_set(&table, 7, "%s", mp_outcome_name(metric->outcome));
    }
    if (!code && table.rows > 0) {
        fprintf(out, "ms per iteration\n");
        table_print(&table, out);
        fprintf(out, "\n");
    }
    table_free(&table);
    return code;
}

static int print_exact(const struct mp_gate *gate, FILE *out, struct mp_error *error) {
    static const struct table_column columns[] = {{"job", .kind = TABLE_LEFT},
                                                  {"exact measure", .kind = TABLE_LEFT},
                                                  {"base", .kind = TABLE_RIGHT},
                                                  {"head", .kind = TABLE_RIGHT},
                                                  {"outcome", .kind = TABLE_LEFT}};
    struct table table;
    int code = MP_OK, equal = 0, unknown = 0;
    table_init(&table, columns, sizeof columns / sizeof *columns);
    for (int i = 0; i < gate->metrics && !code; i++) {
        const struct mp_gate_metric *metric = &gate->metric[i];
        equal += metric->exact && metric->outcome == MP_OUTCOME_PASS;
        unknown += metric->exact && metric->outcome == MP_OUTCOME_INCONCLUSIVE;
        if (!metric->exact || metric->outcome == MP_OUTCOME_PASS ||
            metric->outcome == MP_OUTCOME_INCONCLUSIVE)
            continue;
        code = table_add(&table, NULL, error);
        if (code)
            break;
        table_set(&table, 0, "%s", metric->job);
        table_set(&table, 1, "%s", metric->name);
        table_set(&table, 2, isnan(metric->base) ? "-" : "%.10g", metric->base);
        table_set(&table, 3, isnan(metric->head) ? "-" : "%.10g", metric->head);
        table_set(&table, 4, "%s", mp_outcome_name(metric->outcome));
    }
    if (!code && table.rows > 0) {
        table_print(&table, out);
        fprintf(out, "\n");
    }
    if (!code)
        table_paragraph(out, "%d exact %s equal, %d %s, %d cannot be told.", equal,
                        equal == 1 ? "measure is" : "measures are", table.rows,
                        table.rows == 1 ? "is not" : "are not", unknown);
    table_free(&table);
    return code;
}

static bool have_one_reason(const struct mp_gate_metric *a, const struct mp_gate_metric *b) {
    return a->outcome == b->outcome && a->exact == b->exact && strcmp(a->reason, b->reason) == 0;
}

static bool is_said(const struct mp_gate *gate, int i) {
    for (int k = 0; k < i; k++)
        if (have_one_reason(&gate->metric[k], &gate->metric[i]))
            return true;
    return false;
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

static void print_reasons_of(const struct mp_gate *gate, int outcome, FILE *out) {
    for (int i = 0; i < gate->metrics; i++) {
        const struct mp_gate_metric *metric = &gate->metric[i];
        char names[1024];
        if ((int)metric->outcome != outcome || is_said(gate, i))
            continue;
        name_all(gate, i, names, sizeof names);
        table_paragraph(out, "%s (%s): %s%s%s.", mp_outcome_name(metric->outcome), names,
                        metric->reason, *metric->where ? "; " : "", metric->where);
    }
}

/* Why, for all that did not simply pass, the worst first: a sentence for each reason, with the
 * first place. */
static void print_reasons(const struct mp_gate *gate, FILE *out) {
    for (int outcome = MP_OUTCOME_FAIL; outcome > MP_OUTCOME_PASS; outcome--)
        print_reasons_of(gate, outcome, out);
}

int mp_gate_print(const struct mp_gate *gate, FILE *out, struct mp_error *error) {
    char base[MP_GATE_TEXT], head[MP_GATE_TEXT];
    fprintf(out, "base  %s\nhead  %s\n\n", mp_clean_text(base, sizeof base, gate->base),
            mp_clean_text(head, sizeof head, gate->head));
    int code = print_times(gate, out, error);
    if (!code)
        code = print_exact(gate, out, error);
    if (code)
        return code;
    print_reasons(gate, out);
    for (int i = 0; i < gate->notes; i++)
        table_paragraph(out, "%s", gate->note[i]);
    fprintf(out, "\n%s: %d failed, %d inconclusive, %d improved, %d accepted, %d passed\n",
            mp_outcome_name(mp_gate_outcome(gate)), gate->outcomes[MP_OUTCOME_FAIL],
            gate->outcomes[MP_OUTCOME_INCONCLUSIVE], gate->outcomes[MP_OUTCOME_IMPROVED],
            gate->outcomes[MP_OUTCOME_ACCEPTED], gate->outcomes[MP_OUTCOME_PASS]);
    return check_printed(out, error);
}
