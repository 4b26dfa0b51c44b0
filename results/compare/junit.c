/* What was found, as JUnit XML: what CI systems show. */
#include <math.h>

#include "results/compare/gate.h"
#include "results/report/page.h"
#include "results/report/query.h"

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
