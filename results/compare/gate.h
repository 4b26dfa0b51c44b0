/* Gate: did this change make it slower?
 *
 * Two sides, base and head, are groups of runs: an invocation of a suite each, or chosen runs.
 * Jobs are matched by name, and compared only if their keys agree (suite, system and options,
 * workload, executor, ranks and nodes, build): differing keys are refused with the fields at fault.
 * If nothing but the hardware fingerprint differs, counts are compared and times are inconclusive.
 *
 * Exact measures: routes, drops, bytes by stage and phase, copies, operations, flops, what the
 * planners were told, and of predicted runs all times.  Any difference is a finding, also a better
 * one, unless it is accepted by name.  Plans may rest on speeds that a run measures at its start;
 * a difference that those may have made is inconclusive, and says how to fix them.  Losses: bit for
 * bit of one clean build on one machine told the same, else within 1e-4.
 *
 * Timed measure: ms per iteration, one sample per run (below), Holm over all jobs.  Sides that
 * `moeperf run --pairs` measured in turns are compared pair by pair; of pairs that ran at once in
 * time slices all iterations count that were not interrupted.  Others are compared as
 * groups, which cannot tell a change from a machine that has drifted: `note` says so.  A job that
 * is too short, or not steady in more than a quarter of its runs, is in doubt: it fails or has
 * improved only if the whole interval is beyond the minimum effect by more than noise explains, and
 * never passes.  Ranks that share cores make times inconclusive. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "reference/base/error.h"
#include "results/report/report.h"

/* Evidence: what the samples of one timed metric say, and what may be concluded from it.
 *
 * One sample is the median over the steady iterations of one job.  Pairs, measured in turns, are
 * judged by the signed rank of ln(head / base); groups that were not measured in turns by
 * Mann-Whitney's U.  Effects are fractions, 0.02 for 2 % slower; they are compared as logarithms,
 * so that exchanging base and head mirrors every sign. */

enum mp_outcome {
    MP_OUTCOME_PASS,
    MP_OUTCOME_IMPROVED, /* faster by at least the minimum effect */
    MP_OUTCOME_ACCEPTED, /* an exact measure that differs, as the user said it may */
    MP_OUTCOME_INCONCLUSIVE,
    MP_OUTCOME_FAIL
};
/* "pass", "improved", "accepted", "inconclusive", "fail". */
const char *mp_outcome_name(enum mp_outcome outcome);

#define MP_MINIMUM_EFFECT .02
#define MP_SIGNIFICANCE .05

struct mp_samples {
    const double *base, *head; /* > 0, borrowed */
    int bases, heads;          /* equal for pairs */
    bool paired;               /* base[i] and head[i] were measured in turns */
};

struct mp_evidence {
    struct mp_samples samples;
    double base, head;        /* medians */
    double effect, low, high; /* head / base - 1, with its 95 % interval, may be infinite */
    double p;                 /* of the test that decides */
    double u, u_p;            /* Mann-Whitney, whatever decides */
    double w;                 /* signed rank's W+, NAN for groups */
    double spread;            /* coefficient of variation of the ratios (groups: of base), or NAN */
    double mean, mean_error;  /* of the effect's logarithm, with its standard error; NAN: unknown */
    int freedom;              /* degrees of freedom of that error */
};

/* Errors: MP_EINVAL (no sample, unequal pairs, a value that is no positive number: which one). */
int mp_evidence_weigh(const struct mp_samples *samples, struct mp_evidence *evidence,
                      struct mp_error *error);

/* The p with which the noise of either side explains an effect beyond `minimum_effect`, or beyond
 * the noise floor where that is larger: Student's t of the mean logarithm.  1 for an effect that is
 * not beyond it; NAN for fewer than MP_LEAST_OF_NOISE pairs or runs a side, of which nobody knows
 * the noise. */
enum { MP_LEAST_OF_NOISE = 3 };
double mp_evidence_beyond(const struct mp_evidence *evidence, double minimum_effect, double floor);

struct mp_decision {
    double minimum_effect; /* fraction, > 0 */
    double adjusted_p;     /* Holm's, over all timed metrics of the comparison; NAN: in doubt */
    double beyond_p;       /* Holm's, of mp_evidence_beyond; NAN: unknown */
    double floor;          /* noise floor, fraction; NAN: not measured */
    int metrics;           /* timed metrics that share the significance */
    const char *doubt; /* a sentence: why these samples can't be trusted to the percent; or NULL */
};

/* Fails when head is slower by at least the minimum effect and the adjusted p is at most 0.05, or
 * when the whole interval is beyond minimum effect and floor and beyond_p is at most 0.05: an
 * effect that large fails also of few samples, of those that are in doubt, and above the floor of a
 * noisy machine.  Improved is its mirror image; passes when the interval's upper end is below the
 * minimum effect; everything else is inconclusive, and so is everything else where there is a doubt
 * or where the floor is at or above the minimum effect.  `reason` says in a sentence why, for
 * inconclusive ones with what would decide. */
enum mp_outcome mp_evidence_decide(const struct mp_evidence *evidence,
                                   const struct mp_decision *decision, char *reason, size_t size);

/* Facts about a run in its database.  A pair's two invocations have the same MP_FACT_PAIRS. */
#define MP_FACT_PAIRS "pairs"             /* name of the measurement in turns that it is part of */
#define MP_FACT_PAIRS_SIDE "pairs.side"   /* base, head */
#define MP_FACT_PAIRS_SAME "pairs.same"   /* yes: both sides are the same program */
#define MP_FACT_PAIRS_SLICE "pairs.slice" /* s: both ran at once, in time slices that long */
#define MP_FACT_FLOOR "noise-floor"       /* half width of an A/A interval, a fraction */
#define MP_FACT_FLOOR_KEY "noise-floor.key" /* of what: only an equal key may use it */

struct mp_gate_side {
    struct mp_store *store; /* borrowed */
    const char *suite_run;  /* this invocation; NULL: the latest, or the runs below */
    const int64_t *run;     /* [runs], exactly these */
    int runs;
};

struct mp_systems;
/* What jobs are by default.  `text` makes the file of a job of this system and gate that names
 * every option, to be freed; NULL: unknown. */
struct mp_gate_defaults {
    char *(*text)(const struct mp_systems *systems, const char *system, const char *gate,
                  bool is_predicted);
    const struct mp_systems *systems; /* borrowed */
};

struct mp_gate_options {
    double minimum_effect;     /* fraction; 0: MP_MINIMUM_EFFECT */
    bool any_machine;          /* times of different fingerprints are judged as if of one */
    const char *const *accept; /* [accepts] exact measures whose differences are accepted */
    int accepts;
    struct mp_gate_defaults defaults; /* for what a job file does not name; zeros: none */
};

enum { MP_GATE_NAME = 80, MP_GATE_TEXT = 400 };

struct mp_gate_metric {
    char job[MP_GATE_NAME], name[MP_GATE_NAME]; /* name "ms per iteration": timed */
    char system[MP_GATE_NAME];
    int ranks;
    bool exact;
    enum mp_outcome outcome;
    char reason[MP_GATE_TEXT]; /* one sentence */
    char where[MP_GATE_TEXT]; /* phase, layer, rank of the difference; "" where it does not apply */
    double base, head;        /* medians in ms, or totals; NAN: none */
    /* Of timed ones; NAN where there is none. */
    struct mp_evidence evidence; /* of `sample` */
    double adjusted_p, beyond_p, floor;
    double *sample;     /* ms, owned */
    bool in_doubt;      /* too short, or not steady */
    char floor_key[20]; /* digest of key and machine */
};

struct mp_gate {
    char base[MP_GATE_TEXT], head[MP_GATE_TEXT]; /* what the sides are called, with revisions */
    struct mp_gate_metric *metric;               /* [metrics], by job; timed ones first */
    int metrics;
    int outcomes[MP_OUTCOME_FAIL + 1]; /* how many have each */
    char note[8][MP_GATE_TEXT];        /* sentences about the whole comparison */
    int notes;
    double minimum_effect;
    bool same_program; /* base against base */
};

/* Errors: MP_EINVAL (keys differ; the same runs on both sides; an unknown name to accept),
 * MP_ENOTFOUND (no such invocation or run, no job in common, no complete run), MP_EIO, MP_ENOMEM.
 */
int mp_gate_compare(const struct mp_gate_side *base, const struct mp_gate_side *head,
                    const struct mp_gate_options *options, struct mp_gate **gate,
                    struct mp_error *error);
void mp_gate_destroy(struct mp_gate *gate); /* accepts NULL */
MP_END(gate, struct mp_gate *, mp_gate_destroy(*it))

/* The worst outcome of all: fail, then inconclusive; pass where nothing is worse. */
enum mp_outcome mp_gate_outcome(const struct mp_gate *gate);

/* The two sides of the latest measurement in turns in a database; free both.  MP_ENOTFOUND. */
int mp_gate_find_pairs(struct mp_store *store, char **base, char **head, struct mp_error *error);

/* Keeps the noise floors that an A/A comparison found with the head's runs; later comparisons of
 * the same key on the same machine take the largest of the last five.  Times that were not judged
 * (not steady, shared cores) leave none; `kept`: how many did.  MP_EINVAL: not A/A. */
int mp_gate_keep_floors(const struct mp_gate *gate, struct mp_store *store, const char *suite_run,
                        int *kept, struct mp_error *error);

/* ---- what was found, for people and programs; `out` is borrowed.  MP_EIO, MP_ENOMEM ---- */

/* As text in at most 80 columns, as one JSON object with all samples, or its tables alone: times,
 * and the exact measures that differ. */
int mp_gate_print(const struct mp_gate *gate, enum mp_report_format format, FILE *out,
                  struct mp_error *error);
/* JUnit XML, a case per metric: fail is a failure, inconclusive is skipped with its reason. */
int mp_gate_print_junit(const struct mp_gate *gate, FILE *out, struct mp_error *error);
/* github-action-benchmark, tool customSmallerIsBetter: head's times. */
int mp_gate_print_action(const struct mp_gate *gate, FILE *out, struct mp_error *error);
/* Bencher's metric format: head's times. */
int mp_gate_print_bencher(const struct mp_gate *gate, FILE *out, struct mp_error *error);
/* benchstat's text, a line per sample; `is_head` chooses the side. */
int mp_gate_print_benchstat(const struct mp_gate *gate, bool is_head, FILE *out,
                            struct mp_error *error);
