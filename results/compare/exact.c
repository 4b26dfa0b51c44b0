/* Exact measures: equal, or a finding. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "results/compare/counts.h"
#include "results/compare/internal.h"

#define LOSS_TOLERANCE 1e-4 /* of base's, between builds or machines */
/* As many runs a side that agree among themselves though their planners were told different speeds
 * show that the measure does not rest on those. */
enum { RUNS_THAT_AGREE = 5 };

struct counted_run {
    const struct side_run *run;
    struct counts counts;
};

/* The complete runs of one job on one side. */
struct series {
    const struct side *side;
    struct counted_run *of; /* [count] */
    int count;
};

/* What holds for all exact measures of a job. */
struct job {
    struct comparison *comparison;
    struct series base, head;
    bool inputs_differ; /* planners were not told the same in all runs */
    bool bit_for_bit;   /* one clean build on one machine */
};

static void free_series(struct series *series) {
    for (int i = 0; i < series->count; i++)
        counts_free(&series->of[i].counts);
    free(series->of);
}
MP_END(job, struct job, (free_series(&it->base), free_series(&it->head)))

static int load_series(const struct side *side, const char *name, struct series *series,
                       struct mp_error *error) {
    *series = (struct series){.side = side};
    MP_TRY(MP_NEW(series->of, side->count, error));
    for (int i = 0; i < side->count; i++) {
        const struct side_run *run = &side->run[i];
        if (strcmp(run->job, name) != 0 || !run->complete)
            continue;
        series->of[series->count].run = run;
        MP_TRY(counts_load(side->store, run->run_id, run->predicted,
                           &series->of[series->count++].counts, error));
    }
    return series->count > 0 ? MP_OK
                             : mp_fail(error, MP_ENOTFOUND, "%s: no complete run of job \"%.60s\"",
                                       side->name, name);
}

static bool same_count(const struct count *a, const struct count *b) {
    return (!a && !b) || (a && b && a->hash == b->hash && a->rows == b->rows);
}

/* Whether all runs of a side have one value of a measure. */
static bool is_constant(const struct series *series, const char *name) {
    const struct count *first = counts_find(&series->of[0].counts, name);
    return !MP_ANY(i, series->count, !same_count(first, counts_find(&series->of[i].counts, name)));
}

static bool inputs_differ(const struct job *job) {
    const struct series *const sides[] = {&job->base, &job->head};
    for (int s = 0; s < 2; s++)
        for (int i = 0; i < sides[s]->count; i++)
            if (sides[s]->of[i].counts.inputs != job->base.of[0].counts.inputs)
                return true;
    return false;
}

static bool is_one_build(const struct comparison *comparison, const struct side_run *base,
                         const struct side_run *head) {
    const char *own = side_about(base, "environment.revision");
    const char *other = side_about(head, "environment.revision");
    return comparison->same_machine && *own && strcmp(own, other) == 0 &&
           strcmp(own, "unknown") != 0 && !strstr(own, "-dirty");
}

/* ---- rows: the place of a difference ---- */

static int read_rows(const struct series *series, int i, const char *name, struct counts *rows,
                     struct mp_error *error) {
    *rows = (struct counts){.wanted = name};
    return counts_load(series->side->store, series->of[i].run->run_id, series->of[i].run->predicted,
                       rows, error);
}

static bool same_place(const struct count_row *a, const struct count_row *b) {
    return a->iteration == b->iteration && a->layer == b->layer && a->rank == b->rank &&
           a->part == b->part;
}

static bool same_value(const struct count_row *a, const struct count_row *b, double tolerance) {
    if (isnan(a->value) || isnan(b->value))
        return isnan(a->value) && isnan(b->value);
    return fabs(a->value - b->value) <= tolerance * fabs(a->value) && a->hash == b->hash;
}

static void describe_place(const struct count_row *row, const struct count_row *other, char *text,
                           size_t size) {
    size_t length = 0;
    const struct {
        const char *name;
        int64_t value;
    } parts[] = {{"iteration", row->iteration}, {"layer", row->layer}, {"rank", row->rank}};
    text[0] = '\0';
    for (int i = 0; i < 3; i++)
        if (parts[i].value >= 0)
            length +=
                (size_t)snprintf(text + length, size - length, "%s%s %lld", length ? ", " : "",
                                 parts[i].name, (long long)parts[i].value);
    snprintf(text + length, size - length, "%s%.10g -> %.10g", length ? ": " : "", row->value,
             other->value);
}

/* Finds the first rows of two runs that differ by more than the tolerance; false: none do. */
static bool find_difference(const struct counts *base, const struct counts *head, double tolerance,
                            char *text, size_t size) {
    int rows = base->rows < head->rows ? base->rows : head->rows;
    for (int i = 0; i < rows; i++) {
        if (same_place(&base->row[i], &head->row[i]) &&
            same_value(&base->row[i], &head->row[i], tolerance))
            continue;
        describe_place(&base->row[i], &head->row[i], text, size);
        return true;
    }
    if (base->rows != head->rows)
        snprintf(text, size, "%d values -> %d values", base->rows, head->rows);
    return base->rows != head->rows;
}

/* Compares the rows of a measure in base's first run with those of head's first that differs. */
static int compare_rows(const struct job *job, const char *name, double tolerance, bool *differs,
                        char *where, size_t size, struct mp_error *error) {
    MP_AUTO(counts) struct counts base = {0};
    const struct count *first = counts_find(&job->base.of[0].counts, name);
    *differs = false;
    MP_TRY(read_rows(&job->base, 0, name, &base, error));
    for (int i = 0; i < job->head.count && !*differs; i++) {
        MP_AUTO(counts) struct counts head = {0};
        if (same_count(first, counts_find(&job->head.of[i].counts, name)))
            continue;
        MP_TRY(read_rows(&job->head, i, name, &head, error));
        *differs = find_difference(&base, &head, tolerance, where, size);
    }
    return MP_OK;
}

/* ---- judging ---- */

static bool is_accepted(const struct job *job, const char *name) {
    const struct mp_gate_options *options = job->comparison->options;
    return MP_ANY(i, options->accepts, strcmp(options->accept[i], name) == 0);
}

/* A recording with more or fewer iterations than base's first; NULL: none. */
static const struct side_run *of_other_length(const struct job *job) {
    const struct series *const sides[] = {&job->base, &job->head};
    for (int s = 0; s < 2; s++)
        for (int i = 0; i < sides[s]->count; i++)
            if (sides[s]->of[i].run->foreign &&
                sides[s]->of[i].run->recorded != job->base.of[0].run->recorded)
                return sides[s]->of[i].run;
    return NULL;
}

/* A measure whose runs are not all equal. */
static void judge_difference(const struct job *job, struct mp_gate_metric *metric) {
    const struct side_run *first = job->base.of[0].run, *other = of_other_length(job);
    bool base_agrees = is_constant(&job->base, metric->name);
    bool head_agrees = is_constant(&job->head, metric->name);
    bool is_told_apart = base_agrees && head_agrees && job->base.count >= RUNS_THAT_AGREE &&
                         job->head.count >= RUNS_THAT_AGREE;
    metric->outcome = MP_OUTCOME_INCONCLUSIVE;
    if (!counts_find(&job->base.of[0].counts, metric->name)) {
        metric->outcome = MP_OUTCOME_PASS;
        gate_reason(metric, "new: base does not record it");
    } else if (other) {
        gate_reason(metric,
                    "counts are of whole runs: of base's run %lld with %d iterations and "
                    "of run %lld with %d",
                    (long long)first->run_id, first->recorded, (long long)other->run_id,
                    other->recorded);
    } else if (job->inputs_differ && !is_told_apart) {
        gate_reason(metric,
                    "planners rest on speeds that each run measured, and those differ: fix them "
                    "with --set bandwidth=B --set expert-rate=R --set non-moe-seconds=S");
    } else if (!base_agrees) {
        gate_reason(metric, "base's own runs differ");
    } else {
        metric->outcome = is_accepted(job, metric->name) ? MP_OUTCOME_ACCEPTED : MP_OUTCOME_FAIL;
        gate_reason(metric, "%s%s", head_agrees ? "differs" : "differs, and head's own runs do",
                    metric->outcome == MP_OUTCOME_ACCEPTED ? " and is accepted"
                                                           : ": a finding unless it is accepted");
    }
}

static int judge(const struct job *job, const struct count *count, struct mp_error *error) {
    struct mp_gate_metric *metric =
        gate_add(job->comparison->gate, job->base.of[0].run, count->name, true, error);
    bool differs = true;
    double tolerance =
        count->is_loss && (!job->bit_for_bit || job->inputs_differ) ? LOSS_TOLERANCE : 0;
    if (!metric)
        return error->code;
    const struct count *own = counts_find(&job->base.of[0].counts, metric->name), *other = own;
    for (int i = 0; i < job->head.count; i++) { /* one that differs, if there is one */
        other = counts_find(&job->head.of[i].counts, metric->name);
        if (!same_count(own, other))
            break;
    }
    metric->base = own ? own->total : NAN;
    metric->head = other ? other->total : NAN;
    bool is_equal = is_constant(&job->base, count->name) && is_constant(&job->head, count->name) &&
                    same_count(counts_find(&job->base.of[0].counts, count->name),
                               counts_find(&job->head.of[0].counts, count->name));
    if (is_equal) {
        gate_reason(metric, "equal in all runs");
        return MP_OK;
    }
    MP_TRY(compare_rows(job, count->name, tolerance, &differs, metric->where, sizeof metric->where,
                        error));
    if (!differs && tolerance > 0)
        gate_reason(metric, "equal within %g", tolerance);
    else
        judge_difference(job, metric);
    return MP_OK;
}

int gate_compare_exact(struct comparison *comparison, const char *name, struct mp_error *error) {
    MP_AUTO(job) struct job job = {.comparison = comparison};
    MP_TRY(load_series(&comparison->base, name, &job.base, error));
    MP_TRY(load_series(&comparison->head, name, &job.head, error));
    job.inputs_differ = inputs_differ(&job);
    job.bit_for_bit = is_one_build(comparison, job.base.of[0].run, job.head.of[0].run);
    const struct counts *base = &job.base.of[0].counts, *head = &job.head.of[0].counts;
    for (int i = 0; i < base->count; i++)
        MP_TRY(judge(&job, &base->item[i], error));
    for (int i = 0; i < head->count; i++)
        if (!counts_find(base, head->item[i].name))
            MP_TRY(judge(&job, &head->item[i], error));
    return MP_OK;
}
