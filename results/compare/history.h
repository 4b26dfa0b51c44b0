/* History: what runs of many revisions say, series by series, and where a series changed.
 *
 * A row is a complete run: a JSON object with its key (what has to be equal for runs to be compared
 * and the machine, gate.h), its revision, its time and its exact measures.  Rows come from
 * databases, or from files with one on each line, which a machine that forgets its databases
 * appends to.
 *
 * A series is one measure of one key: points in the order in which revisions were first run, each
 * the median of that revision's runs.  Times change as mp_changes_find says; exact measures
 * wherever two neighbouring points differ. */
#pragma once

#include <jansson.h>
#include <stdbool.h>
#include <stdio.h>

#include "reference/base/error.h"
#include "results/compare/gate.h"
#include "results/report/html.h"
#include "results/store/store.h"

/* Texts are borrowed from the rows. */
struct mp_history_point {
    const char *revision, *started_at; /* revision "": not recorded */
    double value, low, high;           /* median, least and most of its runs */
    uint64_t hash;                     /* exact: of all of the measure's rows */
    int runs;
    bool differs; /* exact: its runs don't agree */
};

struct mp_history_series {
    const char *key, *suite, *job, *system, *machine;
    const char *measure; /* "ms per iteration": timed */
    bool exact;
    int ranks;
    struct mp_history_point *point; /* [points] */
    int points;
    struct mp_change *change; /* [changes]; exact: p 0 */
    int changes;
};

struct mp_history {
    json_t *rows;                     /* array; every run once */
    struct mp_history_series *series; /* [count]: by suite, job and machine, the timed one first */
    int count;
};

/* Zeroed, then rows are added: those of a database, or of a file with a JSON object per line.  Runs
 * that are there already are not added again.  Errors: MP_EIO, MP_EFORMAT (path:line and why),
 * MP_ENOTFOUND, MP_ENOMEM. */
int mp_history_add_store(struct mp_history *history, struct mp_store *store,
                         struct mp_gate_defaults defaults, struct mp_error *error);
int mp_history_add_lines(struct mp_history *history, const char *path, struct mp_error *error);

/* Writes rows from number `first` on, one on each line. */
int mp_history_write_lines(const struct mp_history *history, size_t first, FILE *out,
                           struct mp_error *error);

/* Makes the series of the rows: of jobs of a suite (NULL: any) and a name (NULL: any). MP_ENOTFOUND
 * (no run of these), MP_ENOMEM. */
int mp_history_find(struct mp_history *history, const char *suite, const char *job,
                    struct mp_error *error);
void mp_history_destroy(struct mp_history *history); /* accepts a zeroed one */
MP_END(history, struct mp_history, mp_history_destroy(it))

/* What changed and where, a paragraph with a sparkline for every timed series; or all of it. */
int mp_history_print(const struct mp_history *history, FILE *out, struct mp_error *error);
int mp_history_print_json(const struct mp_history *history, FILE *out, struct mp_error *error);

/* A page with what changed in a table and a chart of each series.  Written as mp_report_html
 * writes, with its errors. */
int mp_history_html(const struct mp_history *history, const struct mp_page_output *output,
                    struct mp_error *error);

/* ---- for those who print ---- */

enum { MP_HISTORY_REVISION = 12, MP_HISTORY_DAY = 10 }; /* characters shown of each */

/* The first series behind number `first` that is of another job. */
int mp_history_job_end(const struct mp_history *history, int first);

/* Changes of level in a series: where, by how much, and how sure that is.
 *
 * E-divisive (Matteson and James, "A Nonparametric Approach for Multiple Change Point Analysis of
 * Multivariate Data", JASA 2014; energy distance with exponent 1), as regression benchmarks use it
 * (Daly et al., ICPE 2020): of all splits of a segment with two values or more on each side the one
 * whose sides are farthest apart counts, if few shuffles of the segment have one that far; then
 * each side is looked at in the same way.  Shuffles are drawn from the values' places alone, so
 * that the same series has the same answer every day.
 *
 * A change in the last value alone can't be told from an outlier: it shows with the next one. */

enum { MP_CHANGES_SHUFFLES = 999, MP_CHANGES_LEAST = 2, MP_CHANGES_VALUES = 2000 };
#define MP_CHANGES_SIGNIFICANCE .03

struct mp_change {
    int index; /* of the first value with the new level */
    double before,
        after; /* medians from the change before to this one, from this one to the next */
    double p;  /* shuffles with a split as far, of all and the series itself */
};

/* *change [*changes] in ascending order; free it.  Errors: MP_EINVAL (a value that is not finite),
 * MP_ELIMIT (more than MP_CHANGES_VALUES), MP_ENOMEM. */
int mp_changes_find(const double value[], int count, struct mp_change **change, int *changes,
                    struct mp_error *error);
