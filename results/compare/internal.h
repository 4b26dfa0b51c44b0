/* What the files of this folder share: the parts of a comparison. */
#pragma once

#include <jansson.h>

#include "results/compare/gate.h"

/* Side: the runs of base or head, with their keys and samples. */

struct side_run {
    int64_t run_id;
    int round, ranks;
    char *job, *system, *status, *reason, *suite_run; /* owned */
    bool complete, predicted, shares_cores;
    bool foreign;     /* by moeperf record or import: nothing that moeperf could run again */
    json_t *key;      /* what must be equal, .. */
    json_t *defaults; /* .. what options of its job are by default, .. */
    json_t *machine;  /* .. and the hardware fingerprint: texts by name; owned */
    json_t *about;    /* pairs, pairs.side, pairs.same, environment.revision; owned */
    double taken;     /* as processor_taken of v_run; NAN: not known */
    double ms;        /* per iteration, median over the steady ones; NAN: none */
    bool steady;      /* a window of its iterations was */
    int recorded;     /* complete iterations, of which .. */
    int iterations;   /* .. could be judged */
    int outliers;     /* among them */
};

struct side {
    struct mp_store *store; /* borrowed */
    const char *name;       /* "base", "head" */
    struct mp_gate_defaults defaults;
    struct side_run *run; /* [count], by run_id, owned */
    int count;
};

/* Errors: MP_ENOTFOUND (nothing selected), MP_EINVAL (runs of a job with different keys). */
int side_load(const struct mp_gate_side *from, const char *name, struct mp_gate_defaults defaults,
              struct side *side, struct mp_error *error);
void side_free(struct side *side); /* accepts a zeroed one */
MP_END(side, struct side, side_free(it))

/* A fact about the run; "" if it has none. */
const char *side_about(const struct side_run *run, const char *name);
/* The first run of a job, complete if `complete` is set; NULL: none. */
const struct side_run *side_find(const struct side *side, const char *job, bool complete);

/* Names of the texts that differ, each with both values, as words for a sentence; "" if none do. */
void side_differences(const json_t *base, const json_t *head, char *text, size_t size);

/* 16 hex digits of a run's key and machine. */
int side_digest(const struct side_run *run, char digest[20], struct mp_error *error);

struct comparison {
    struct side base, head;
    const struct mp_gate_options *options;
    struct mp_gate *gate;
    bool paired;                    /* measured in turns */
    bool same_machine;              /* equal fingerprints in every job that both have */
    int judged, strays;             /* runs with a time, and those of them with outliers */
    const struct side_run *busiest; /* of runs with a time, that which lost most to others; NULL */
};
MP_END(comparison, struct comparison, (side_free(&it->base), side_free(&it->head)))

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
