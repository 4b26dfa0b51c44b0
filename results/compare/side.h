/* Side: the runs of base or head, with their keys and samples. */
#ifndef MOEPERF_RESULTS_COMPARE_SIDE_H
#define MOEPERF_RESULTS_COMPARE_SIDE_H

#include <jansson.h>

#include "results/compare/gate.h"

struct side_run {
    int64_t run_id;
    int round, ranks;
    char *job, *system, *status, *reason, *suite_run; /* owned */
    bool complete, predicted, shares_cores;
    json_t *key;     /* what must be equal, and .. */
    json_t *machine; /* .. the hardware fingerprint: texts by name; owned */
    json_t *about;   /* pairs, pairs.side, pairs.same, environment.revision; owned */
    double ms;       /* per iteration, median over the steady ones; NAN: none */
    bool steady;     /* a window of its iterations was */
    int recorded;    /* complete iterations, of which .. */
    int iterations;  /* .. could be judged */
    int outliers;    /* among them */
};

struct side {
    struct mp_store *store; /* borrowed */
    const char *name;       /* "base", "head" */
    struct side_run *run;   /* [count], by run_id, owned */
    int count;
};

/* Errors: MP_ENOTFOUND (nothing selected), MP_EINVAL (runs of a job with different keys). */
int side_load(const struct mp_gate_side *from, const char *name, struct side *side,
              struct mp_error *error);
void side_free(struct side *side); /* accepts a zeroed one */

/* A fact about the run; "" if it has none. */
const char *side_about(const struct side_run *run, const char *name);
/* The first run of a job, complete if `complete` is set; NULL: none. */
const struct side_run *side_find(const struct side *side, const char *job, bool complete);

/* Names of the texts that differ, each with both values, as words for a sentence; "" if none do. */
void side_differences(const json_t *base, const json_t *head, char *text, size_t size);

/* 16 hex digits of a run's key and machine. */
int side_digest(const struct side_run *run, char digest[20], struct mp_error *error);

#endif
