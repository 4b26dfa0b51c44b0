/* What a report says first: findings in words, with what to do about them. */
#pragma once

#include <jansson.h>

#include "results/report/speedup.h"
#include "results/report/stragglers.h"

/* Findings are JSON: an array of {"title": a few words, "text": sentences, "advice": what to do or
 * null, "command": that says more or null, "warning": whether it is one about the numbers
 * themselves}.  Whoever knows more of a run adds more of them. */
int finding_add(json_t *findings, const char *title, const char *text, bool warning,
                struct mp_error *error);

/* That other programs had the processors, if so: what a reader must know before all else. */
int findings_busy(const struct report_runs *runs, json_t *findings, struct mp_error *error);

/* What the table's rows say of who is faster, and what forbids saying it. */
int findings_speed(const struct report_runs *runs, const struct speedup_row rows[], int count,
                   int table, json_t *findings, struct mp_error *error);

/* Who waits for whom in one run, how much, why, and what to do: at most `most` findings, and what
 * the recording does not allow to be said.  `faster`: the fastest system of the run's setting if
 * that is faster than the run's own; NULL: none is.  `label`: begins each title; NULL: nothing
 * does. */
int findings_stragglers(const struct straggler *straggler, const char *label, const char *faster,
                        int most, json_t *findings, struct mp_error *error);
