/* Times: one sample per run, all jobs decided together. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "reference/base/arena.h"
#include "results/compare/internal.h"
#include "results/compare/statistics.h"
#include "results/report/groups.h"

/* Of a job's runs at most this share may be unsteady, or on a busy machine; noise alone makes some
 * look so. */
enum { UNSTEADY_OF = 4 };

/* Why the times of a job say nothing; counts over both sides. */
struct doubts {
    int runs, unsteady, busy, shared, outliers, lost;
    const struct side_run *shortest; /* has the fewest iterations that count */
    const struct side_run *busiest;  /* lost most to other programs, and more than is usual */
};

static void look_at(const struct side_run *run, struct doubts *doubts) {
    doubts->runs++;
    doubts->unsteady += !run->steady;
    doubts->busy += run->taken > REPORT_TAKEN_MOST;
    if (run->taken > (doubts->busiest ? doubts->busiest->taken : REPORT_TAKEN))
        doubts->busiest = run;
    if (!doubts->shortest || run->iterations < doubts->shortest->iterations)
        doubts->shortest = run;
    doubts->shared += run->shares_cores;
    doubts->outliers += run->outliers > 0;
}

/* Of head, the complete run of the same round; NULL: none. */
static const struct side_run *partner(const struct side *head, const struct side_run *base) {
    return MP_FIND(head->run, i, head->count,
                   head->run[i].round == base->round && head->run[i].complete &&
                       strcmp(head->run[i].job, base->job) == 0);
}

static bool is_sample(const struct side_run *run, const char *job) {
    return strcmp(run->job, job) == 0 && run->complete && isfinite(run->ms);
}

/* Both return how many samples there are. */
static int collect_pairs(const struct comparison *comparison, const char *job, double base[],
                         double head[], struct doubts *doubts) {
    int count = 0;
    for (int i = 0; i < comparison->base.count; i++) {
        const struct side_run *run = &comparison->base.run[i];
        if (strcmp(run->job, job) != 0)
            continue;
        const struct side_run *other = partner(&comparison->head, run);
        if (!is_sample(run, job) || !other || !is_sample(other, job)) {
            doubts->lost++;
            continue;
        }
        base[count] = run->ms;
        head[count++] = other->ms;
        look_at(run, doubts);
        look_at(other, doubts);
    }
    return count;
}

static int collect_group(const struct side *side, const char *job, double samples[],
                         struct doubts *doubts) {
    int count = 0;
    for (int i = 0; i < side->count; i++) {
        const struct side_run *run = &side->run[i];
        if (strcmp(run->job, job) != 0)
            continue;
        if (!is_sample(run, job)) {
            doubts->lost++;
            continue;
        }
        samples[count++] = run->ms;
        look_at(run, doubts);
    }
    return count;
}

/* So many, that with the same share of them there are enough; and some more, as shares vary. */
static int iterations_wanted(const struct side_run *run) {
    double share = (double)run->iterations / run->recorded;
    return 10 * (int)ceil(1.25 * MP_STEADY_WINDOW / share / 10);
}

/* Other programs' noise is averaged out. */
static bool is_narrow(const struct mp_evidence *evidence, double minimum_effect) {
    return evidence->low > -minimum_effect && evidence->high < minimum_effect;
}

/* A reason to conclude nothing from times, written into the metric, which keeps its evidence; or a
 * doubt, with which only what is beyond all noise counts. */
static void doubt(const struct comparison *comparison, const struct doubts *doubts,
                  struct mp_gate_metric *metric) {
    const struct side_run *shortest = doubts->shortest;
    metric->in_doubt = false;
    if (!comparison->same_machine && !comparison->options->any_machine) {
        gate_reason(metric, "the machines differ: only counts can be compared");
    } else if (doubts->shared > 0) {
        gate_reason(metric, "ranks shared cores: such times are those of processes that took "
                            "turns; give every rank a core");
    } else if (shortest && shortest->iterations < MP_STEADY_WINDOW) {
        metric->in_doubt = true;
        gate_reason(metric,
                    "too short to be judged steady: of %d iterations of run %lld %d count, without "
                    "the first tenth%s, and %d are needed (%s%d)",
                    shortest->recorded, (long long)shortest->run_id, shortest->iterations,
                    *side_about(shortest, MP_FACT_PAIRS_SLICE) ? " and interrupted ones" : "",
                    MP_STEADY_WINDOW, shortest->foreign ? "record " : "--set iterations=",
                    iterations_wanted(shortest));
    } else if (UNSTEADY_OF * doubts->busy > doubts->runs &&
               !is_narrow(&metric->evidence, comparison->gate->minimum_effect)) {
        metric->in_doubt = true;
        gate_reason(metric,
                    "the machine was busy: in %d of %d runs other programs had the processors for "
                    "more than %.0f %% of the time",
                    doubts->busy, doubts->runs, 100 * REPORT_TAKEN_MOST);
    } else if (shortest && UNSTEADY_OF * doubts->unsteady > doubts->runs) {
        metric->in_doubt = true;
        gate_reason(metric,
                    "not steady: in %d of %d runs no %d of the iterations that count (%d at least) "
                    "have a slope below %.1f %% each; take more iterations",
                    doubts->unsteady, doubts->runs, MP_STEADY_WINDOW, shortest->iterations,
                    MP_STEADY_SLOPE_PERCENT);
    }
}

static int weigh(struct mp_gate_metric *metric, double minimum_effect, struct mp_error *error) {
    MP_TRY(mp_evidence_weigh(&metric->evidence.samples, &metric->evidence, error));
    metric->base = metric->evidence.base;
    metric->head = metric->evidence.head;
    metric->beyond_p = mp_evidence_beyond(&metric->evidence, minimum_effect, metric->floor);
    return MP_OK;
}

int gate_weigh_time(struct comparison *comparison, const char *job, struct mp_error *error) {
    const struct side_run *run = side_find(&comparison->base, job, true);
    struct mp_gate_metric *metric =
        gate_add(comparison->gate, run, "ms per iteration", false, error);
    struct doubts doubts = {0};
    if (!metric)
        return error->code;
    metric->outcome = MP_OUTCOME_INCONCLUSIVE;
    size_t most = (size_t)comparison->base.count + (size_t)comparison->head.count;
    MP_TRY(MP_NEW(metric->sample, 2 * most, error));
    struct mp_samples *samples = &metric->evidence.samples;
    double *base = metric->sample, *head = base + most;
    *samples = (struct mp_samples){.base = base, .head = head, .paired = comparison->paired};
    if (samples->paired) {
        samples->bases = samples->heads = collect_pairs(comparison, job, base, head, &doubts);
    } else {
        samples->bases = collect_group(&comparison->base, job, base, &doubts);
        samples->heads = collect_group(&comparison->head, job, head, &doubts);
    }
    if (doubts.lost > 0)
        gate_note(comparison->gate, "%s: %d %s%s without a usable time %s left out.", job,
                  doubts.lost, samples->paired ? "pair" : "run", doubts.lost == 1 ? "" : "s",
                  doubts.lost == 1 ? "was" : "were");
    comparison->judged += doubts.runs;
    comparison->strays += doubts.outliers;
    if (doubts.busiest &&
        (!comparison->busiest || doubts.busiest->taken > comparison->busiest->taken))
        comparison->busiest = doubts.busiest;
    if (samples->bases == 0 || samples->heads == 0) {
        gate_reason(metric, "no time to compare: no %s with a time on both sides",
                    samples->paired ? "pair of complete runs" : "complete run");
        return MP_OK;
    }
    MP_TRY(side_digest(run, metric->floor_key, error));
    MP_TRY(gate_find_floor(comparison, metric->floor_key, &metric->floor, error));
    MP_TRY(weigh(metric, comparison->gate->minimum_effect, error));
    doubt(comparison, &doubts, metric);
    return MP_OK;
}

/* Whether a timed metric has evidence that nothing is held against. */
static bool is_judged(const struct mp_gate_metric *metric) {
    return !metric->exact && !*metric->reason;
}

/* Decides one metric that nothing but a doubt was held against yet. */
static int decide(const struct comparison *comparison, struct mp_gate_metric *metric, int metrics,
                  struct mp_error *error) {
    char doubt[MP_GATE_TEXT];
    snprintf(doubt, sizeof doubt, "%s", metric->reason);
    const struct mp_decision decision = {.minimum_effect = comparison->gate->minimum_effect,
                                         .adjusted_p = metric->adjusted_p,
                                         .beyond_p = metric->beyond_p,
                                         .floor = metric->floor,
                                         .metrics = metrics,
                                         .doubt = metric->in_doubt ? doubt : NULL};
    metric->outcome =
        mp_evidence_decide(&metric->evidence, &decision, metric->reason, sizeof metric->reason);
    if (metric->outcome == MP_OUTCOME_FAIL || metric->outcome == MP_OUTCOME_IMPROVED)
        return gate_locate(comparison, metric, error);
    return MP_OK;
}

/* Holm's corrections over all timed metrics: of the rank tests, over those without a doubt, and of
 * what is beyond noise, over those with one, too. */
static int adjust(struct mp_gate *gate, struct mp_error *error) {
    MP_AUTO(arena) struct mp_arena arena = {0};
    double *p, *adjusted, *beyond, *adjusted_beyond;
    MP_TAKE_EACH(&arena, gate->metrics + 1, p, adjusted, beyond, adjusted_beyond);
    MP_TRY(mp_arena_check(&arena, error));
    for (int i = 0; i < gate->metrics; i++) {
        const struct mp_gate_metric *metric = &gate->metric[i];
        p[i] = is_judged(metric) ? metric->evidence.p : NAN;
        beyond[i] = is_judged(metric) || metric->in_doubt ? metric->beyond_p : NAN;
    }
    MP_TRY(mp_holm(p, gate->metrics, adjusted, error));
    MP_TRY(mp_holm(beyond, gate->metrics, adjusted_beyond, error));
    for (int i = 0; i < gate->metrics; i++) {
        gate->metric[i].adjusted_p = adjusted[i];
        gate->metric[i].beyond_p = adjusted_beyond[i];
    }
    return MP_OK;
}

int gate_decide_times(struct comparison *comparison, struct mp_error *error) {
    struct mp_gate *gate = comparison->gate;
    int made = 0, timed = 0;
    for (int i = 0; i < gate->metrics; i++) {
        made += is_judged(&gate->metric[i]);
        timed += !gate->metric[i].exact;
    }
    MP_TRY(adjust(gate, error));
    for (int i = 0; i < gate->metrics; i++)
        if (is_judged(&gate->metric[i]) || gate->metric[i].in_doubt)
            MP_TRY(decide(comparison, &gate->metric[i], made, error));
    if (comparison->strays > 0)
        gate_note(gate, "%d of %d runs have iterations far from their median; nothing is removed.",
                  comparison->strays, comparison->judged);
    if (comparison->busiest)
        gate_note(gate,
                  "For up to %.0f %% of the time (run %lld) other programs had the processors of "
                  "these runs: measure again when nothing else runs.",
                  100 * comparison->busiest->taken, (long long)comparison->busiest->run_id);
    const struct side_run *first = &comparison->base.run[0];
    const char *slice = side_about(first, MP_FACT_PAIRS_SLICE);
    if (timed > 0 && comparison->paired && *slice)
        gate_note(
            gate,
            "The pairs ran at once, in time slices of %.20s s or more; interrupted iterations "
            "don't count.",
            slice);
    if (timed > 0 && !comparison->paired)
        gate_note(gate,
                  first->foreign
                      ? "Recordings are compared as groups: take base and head in turns, several "
                        "times each, or a drift of the machine looks like a change."
                      : "The sides were not measured in turns: a drift of the machine looks like a "
                        "change.  moeperf run --pairs measures in turns.");
    for (int i = 0; i < gate->metrics && timed > 0 && !first->foreign; i++)
        if (!gate->metric[i].exact && isnan(gate->metric[i].floor) && !gate->same_program) {
            gate_note(gate,
                      "No noise floor of this machine is known for %s: moeperf run --pairs 12 "
                      "without --against measures it.",
                      gate->metric[i].job);
            break;
        }
    return MP_OK;
}
