/* What the files of this folder share: the parts of a comparison. */
#ifndef MOEPERF_RESULTS_COMPARE_INTERNAL_H
#define MOEPERF_RESULTS_COMPARE_INTERNAL_H

#include "results/compare/gate.h"
#include "results/compare/side.h"

struct comparison {
    struct side base, head;
    const struct mp_gate_options *options;
    struct mp_gate *gate;
    bool paired;        /* measured in turns */
    bool same_machine;  /* equal fingerprints in every job that both have */
    int judged, strays; /* runs with a time, and those of them with outliers */
};

/* Appends a metric of a job with everything unknown; NULL without memory (error is set). */
struct mp_gate_metric *gate_add(struct mp_gate *gate, const struct side_run *run, const char *name,
                                bool exact, struct mp_error *error);
/* Adds a sentence about the whole comparison, if there is room. */
void gate_note(struct mp_gate *gate, const char *format, ...) __attribute__((format(printf, 2, 3)));
void gate_reason(struct mp_gate_metric *metric, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

/* All exact measures of one job. */
int gate_compare_exact(struct comparison *comparison, const char *job, struct mp_error *error);

/* A job's time: its samples and evidence; p is adjusted and decided later. */
int gate_weigh_time(struct comparison *comparison, const char *job, struct mp_error *error);
/* Decides all timed metrics of the comparison together. */
int gate_decide_times(struct comparison *comparison, struct mp_error *error);

/* Where a time has too few runs for an interval, notes which others of the suite there are. */
int gate_hint_at_runs(struct comparison *comparison, struct mp_error *error);

/* Notes what recording cost both sides, if anything was measured there. */
int gate_note_recording(struct comparison *comparison, struct mp_error *error);

/* Names phase, layer and rank where a timed metric's difference sits. */
int gate_locate(const struct comparison *comparison, struct mp_gate_metric *metric,
                struct mp_error *error);

/* The largest of the last five noise floors of a key in either database; NAN: none. */
int gate_find_floor(const struct comparison *comparison, const char *key, double *floor,
                    struct mp_error *error);

#endif
