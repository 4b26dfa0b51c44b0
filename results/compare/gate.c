/* Gate: see gate.h.  The order of a comparison: load both sides, match jobs, refuse what cannot be
 * compared, then counts, times, and the times' decisions together. */
#include <math.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include "reference/base/arena.h"
#include "results/compare/internal.h"
#include "results/report/query.h"

struct mp_gate_metric *gate_add(struct mp_gate *gate, const struct side_run *run, const char *name,
                                bool exact, struct mp_error *error) {
    if (!MP_ROOM(gate->metric, gate->metrics)) {
        mp_no_memory(error);
        return NULL;
    }
    struct mp_gate_metric *metric = &gate->metric[gate->metrics++];
    *metric = (struct mp_gate_metric){
        .exact = exact,
        .ranks = run->ranks,
        .base = NAN,
        .head = NAN,
        .evidence = {.effect = NAN, .low = NAN, .high = NAN, .p = NAN, .u = NAN, .u_p = NAN},
        .adjusted_p = NAN,
        .beyond_p = NAN,
        .floor = NAN};
    snprintf(metric->job, sizeof metric->job, "%s", run->job);
    snprintf(metric->system, sizeof metric->system, "%s", run->system);
    snprintf(metric->name, sizeof metric->name, "%s", name);
    return metric;
}

void gate_note(struct mp_gate *gate, const char *format, ...) {
    va_list arguments;
    if (gate->notes == sizeof gate->note / sizeof *gate->note)
        return;
    va_start(arguments, format);
    vsnprintf(gate->note[gate->notes++], MP_GATE_TEXT, format, arguments);
    va_end(arguments);
}

void gate_reason(struct mp_gate_metric *metric, const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(metric->reason, sizeof metric->reason, format, arguments);
    va_end(arguments);
}

void mp_gate_destroy(struct mp_gate *gate) {
    for (int i = 0; gate && i < gate->metrics; i++)
        free(gate->metric[i].sample);
    if (gate)
        free(gate->metric);
    free(gate);
}

/* ---- what may be compared ---- */

static bool has_run(const struct side *side, const struct side_run *run) {
    return MP_ANY(i, side->count, side->run[i].run_id == run->run_id);
}

/* The same runs on both sides say nothing. */
static int check_apart(const struct comparison *comparison, struct mp_error *error) {
    const struct side *base = &comparison->base, *head = &comparison->head;
    if (strcmp(mp_store_path(base->store), mp_store_path(head->store)) != 0)
        return MP_OK;
    for (int i = 0; i < base->count; i++)
        if (has_run(head, &base->run[i]))
            return mp_fail(error, MP_EINVAL,
                           "%s: run %lld is on both sides: name two invocations as FILE:SUITE-RUN "
                           "(moeperf report --runs lists them)",
                           mp_store_path(base->store), (long long)base->run[i].run_id);
    return MP_OK;
}

static int check_job(struct comparison *comparison, const struct side_run *base,
                     const struct side_run *head, struct mp_error *error) {
    char text[400];
    side_differences(base->key, head->key, text, sizeof text);
    if (*text)
        return mp_fail(error, MP_EINVAL,
                       "job \"%.60s\" is not the same on both sides, and only equals are compared: "
                       "%s",
                       base->job, text);
    side_differences(base->machine, head->machine, text, sizeof text);
    if (*text && comparison->same_machine && comparison->options->any_machine)
        gate_note(comparison->gate,
                  "The machines differ, and times are judged all the same, as you asked: %s.",
                  text);
    else if (*text && comparison->same_machine)
        gate_note(comparison->gate,
                  "The machines differ, so times are inconclusive (--any-machine judges them): %s.",
                  text);
    comparison->same_machine = comparison->same_machine && !*text;
    return MP_OK;
}

static bool is_first_of_job(const struct side *side, int i) {
    return side_find(side, side->run[i].job, false) == &side->run[i];
}

/* Keys of all jobs before anything is judged; jobs of one side only. */
static int check_jobs(struct comparison *comparison, struct mp_error *error) {
    const struct side *base = &comparison->base, *head = &comparison->head;
    int common = 0, complete = 0;
    for (int i = 0; i < base->count; i++) {
        const struct side_run *own =
            is_first_of_job(base, i) ? side_find(base, base->run[i].job, true) : NULL;
        const struct side_run *other = side_find(head, base->run[i].job, true);
        common += side_find(head, base->run[i].job, false) != NULL;
        complete += own != NULL;
        if (own && other)
            MP_TRY(check_job(comparison, own, other, error));
    }
    if (common == 0)
        return mp_fail(error, MP_ENOTFOUND,
                       "base and head have no job in common: base has \"%.60s\", head \"%.60s\"",
                       base->run[0].job, head->run[0].job);
    if (complete == 0)
        return mp_fail(error, MP_ENOTFOUND,
                       "base has no complete run to compare with: run %lld: %.300s",
                       (long long)base->run[0].run_id, base->run[0].reason);
    for (int i = 0; i < head->count; i++)
        if (is_first_of_job(head, i) && !side_find(base, head->run[i].job, false))
            gate_note(comparison->gate, "Job \"%s\" is new: base has no run of it.",
                      head->run[i].job);
    return MP_OK;
}

/* ---- sides as a whole ---- */

/* Whether all runs of both sides are of one measurement in turns. */
static bool are_paired(const struct side *base, const struct side *head) {
    const char *pairs = side_about(&base->run[0], MP_FACT_PAIRS);
    const struct side *const sides[] = {base, head};
    if (!*pairs)
        return false;
    for (int s = 0; s < 2; s++)
        for (int i = 0; i < sides[s]->count; i++)
            if (strcmp(side_about(&sides[s]->run[i], MP_FACT_PAIRS), pairs) != 0 ||
                strcmp(side_about(&sides[s]->run[i], MP_FACT_PAIRS_SIDE), sides[s]->name) != 0)
                return false;
    return true;
}

static void describe(const struct side *side, char text[MP_GATE_TEXT]) {
    const struct side_run *run = &side->run[0];
    const char *revision = side_about(run, "environment.revision");
    for (int i = 0; i < side->count && !*revision; i++)
        revision = side_about(&side->run[i], "environment.revision");
    snprintf(text, MP_GATE_TEXT, "%.160s:%.120s%s%.60s%s", mp_store_path(side->store),
             run->suite_run, *revision ? " (revision " : "", revision, *revision ? ")" : "");
}

static int check_accepted(const struct comparison *comparison, struct mp_error *error) {
    const struct mp_gate_options *options = comparison->options;
    for (int i = 0; i < options->accepts; i++) {
        bool found = false;
        for (int k = 0; k < comparison->gate->metrics && !found; k++)
            found = comparison->gate->metric[k].exact &&
                    strcmp(comparison->gate->metric[k].name, options->accept[i]) == 0;
        if (!found)
            return mp_fail(error, MP_EINVAL,
                           "there is no exact measure \"%.80s\" to accept; --json lists them",
                           options->accept[i]);
    }
    return MP_OK;
}

/* ---- one job ---- */

/* Whether head's runs ended as well as base's. */
static int compare_ends(struct comparison *comparison, const char *job, struct mp_error *error) {
    const struct side *const sides[] = {&comparison->base, &comparison->head};
    int complete[2] = {0}, failed[2] = {0};
    const struct side_run *why = NULL;
    for (int s = 0; s < 2; s++)
        for (int i = 0; i < sides[s]->count; i++) {
            const struct side_run *run = &sides[s]->run[i];
            if (strcmp(run->job, job) != 0)
                continue;
            complete[s] += run->complete;
            bool has_failed = !run->complete && strcmp(run->status, "interrupted") != 0;
            failed[s] += has_failed;
            why = has_failed && s == 1 ? run : why;
        }
    struct mp_gate_metric *metric = gate_add(
        comparison->gate, side_find(&comparison->base, job, false), "complete runs", true, error);
    if (!metric)
        return error->code;
    metric->base = complete[0];
    metric->head = complete[1];
    if (failed[1] > 0 && failed[0] == 0) {
        metric->outcome = MP_OUTCOME_FAIL;
        gate_reason(metric, "head's run %lld: %s: %.300s", (long long)why->run_id, why->status,
                    why->reason);
    } else if (complete[0] == 0 && complete[1] == 0) {
        metric->outcome = MP_OUTCOME_INCONCLUSIVE;
        gate_reason(metric, "neither side has a complete run of this job");
    } else if (complete[1] == 0) {
        metric->outcome = failed[1] ? MP_OUTCOME_INCONCLUSIVE : MP_OUTCOME_FAIL;
        gate_reason(metric, "head has no complete run of this job");
    } else if (complete[0] == 0) {
        metric->outcome = MP_OUTCOME_INCONCLUSIVE;
        gate_reason(metric, "base has no complete run of this job");
    } else {
        gate_reason(metric, "%d of base, %d of head", complete[0], complete[1]);
    }
    return MP_OK;
}

static int compare_job(struct comparison *comparison, const char *job, struct mp_error *error) {
    const struct side_run *base = side_find(&comparison->base, job, true);
    const struct side_run *head = side_find(&comparison->head, job, true);
    if (base && head && !base->predicted)
        MP_TRY(gate_weigh_time(comparison, job, error));
    MP_TRY(compare_ends(comparison, job, error));
    if (base && head)
        MP_TRY(gate_compare_exact(comparison, job, error));
    return MP_OK;
}

static int compare_all(struct comparison *comparison, struct mp_error *error) {
    struct mp_gate *gate = comparison->gate;
    const struct side *base = &comparison->base;
    MP_TRY(check_apart(comparison, error));
    MP_TRY(check_jobs(comparison, error));
    describe(base, gate->base);
    describe(&comparison->head, gate->head);
    comparison->paired = are_paired(base, &comparison->head);
    gate->same_program =
        comparison->paired && strcmp(side_about(&base->run[0], MP_FACT_PAIRS_SAME), "yes") == 0;
    for (int i = 0; i < base->count; i++)
        if (is_first_of_job(base, i))
            MP_TRY(compare_job(comparison, base->run[i].job, error));
    MP_TRY(gate_decide_times(comparison, error));
    MP_TRY(gate_hint_at_runs(comparison, error));
    MP_TRY(gate_note_recording(comparison, error));
    MP_TRY(check_accepted(comparison, error));
    for (int i = 0; i < gate->metrics; i++)
        gate->outcomes[gate->metric[i].outcome]++;
    return MP_OK;
}

int mp_gate_compare(const struct mp_gate_side *base, const struct mp_gate_side *head,
                    const struct mp_gate_options *options, struct mp_gate **gate,
                    struct mp_error *error) {
    MP_AUTO(gate) struct mp_gate *made = mp_new(1, sizeof *made);
    MP_AUTO(comparison)
    struct comparison comparison = {.options = options, .gate = made, .same_machine = true};
    if (!(options->minimum_effect >= 0 && options->minimum_effect < 10))
        return mp_fail(error, MP_EINVAL,
                       "minimum effect: %g should be a fraction above 0 and below 10",
                       options->minimum_effect);
    if (!made)
        return mp_no_memory(error);
    made->minimum_effect =
        options->minimum_effect > 0 ? options->minimum_effect : MP_MINIMUM_EFFECT;
    MP_TRY(side_load(base, "base", options->defaults, &comparison.base, error));
    MP_TRY(side_load(head, "head", options->defaults, &comparison.head, error));
    MP_TRY(compare_all(&comparison, error));
    *gate = made;
    made = NULL;
    return MP_OK;
}

enum mp_outcome mp_gate_outcome(const struct mp_gate *gate) {
    return gate->outcomes[MP_OUTCOME_FAIL]           ? MP_OUTCOME_FAIL
           : gate->outcomes[MP_OUTCOME_INCONCLUSIVE] ? MP_OUTCOME_INCONCLUSIVE
                                                     : MP_OUTCOME_PASS;
}

int mp_gate_find_pairs(struct mp_store *store, char **base, char **head, struct mp_error *error) {
    char **const sides[] = {base, head};
    static const char *const names[] = {"base", "head"};
    *base = *head = NULL;
    struct query query =
        query_begin(store,
                    "SELECT side.value, suite_run FROM run JOIN fact AS side USING (run_id) "
                    "JOIN fact AS pairs USING (run_id) WHERE side.name = '" MP_FACT_PAIRS_SIDE
                    "' AND pairs.name = '" MP_FACT_PAIRS "' AND pairs.value = "
                    "(SELECT value FROM fact WHERE name = '" MP_FACT_PAIRS
                    "' ORDER BY run_id DESC LIMIT 1) GROUP BY 1, 2",
                    0, error);
    while (query_next(&query))
        for (int s = 0; s < 2; s++)
            if (strcmp(query_text(query.row, 0), names[s]) == 0 && !*sides[s])
                *sides[s] = strdup(query_text(query.row, 1));
    MP_TRY(query_end(&query));
    if (!*base || !*head)
        return mp_fail(error, MP_ENOTFOUND,
                       "%s: no two sides that were measured in turns: name another file or runs "
                       "for BASE and HEAD, as %s:1-6 %s:7-12, or measure with moeperf run SUITE "
                       "--pairs 12 --against TRAINER",
                       mp_store_path(store), mp_store_path(store), mp_store_path(store));
    return MP_OK;
}
