/* Reports: what the views of a results database say, as text for people or JSON for programs.
 *
 * Text fits the terminal, or 80 columns where `out` is none, numbers are right-aligned, units stand
 * in the headers, and each table is followed by the finding in a sentence.  Where other programs
 * had the processors, that comes first, and from a quarter of the time on no system is called
 * faster.  Commands that are advised stand on lines of their own and work where they are printed.
 * Names are printed clean (reference/base/characters.h).
 *
 * JSON is one object per call, {"report": name, "rows": [...], ...}, numbers unrounded, NULL as
 * null.  What recording cost (recording_cost.h) is said of each measured run by the reports about
 * phases, stragglers in full and one run.  Everything is read from the views of
 * results/store/schema.sql.
 *
 * All functions: `out` is borrowed.  Errors: MP_EIO (reading the database, writing to out),
 * MP_ENOMEM, MP_ENOTFOUND (no run matches the selection). */
#pragma once

#include <stdint.h>
#include <stdio.h>

#include "results/store/store.h"

/* CSV, Markdown and LaTeX: the tables alone. */
enum mp_report_format {
    MP_REPORT_TEXT,
    MP_REPORT_JSON,
    MP_REPORT_CSV,
    MP_REPORT_MARKDOWN,
    MP_REPORT_LATEX
};

/* Which runs.  NULL or 0: any.  With nothing set, the latest suite invocation in the database. */
struct mp_report_selection {
    const char *suite;     /* latest invocation of this suite */
    const char *suite_run; /* exactly this invocation */
    int64_t run_id;        /* exactly this run */
};

/* One row per (system, workload, gate, model, ranks, executor), rounds put together: iteration time
 * (median over rounds of the runs' medians, smallest and largest), tokens/s, speed-up over EP and
 * ratio to EP with balanced routes (medians of the ratios inside each round, in words with their
 * range), final loss, largest relative difference of its loss curve from EP's, status.  Where ranks
 * shared cores the times are no speed-up: the ratios are left out and the sentence says so.  Runs
 * that did not complete are listed below with their reason.
 *
 * Where a run drops routes there is a column for their share: what is dropped is not computed, so
 * time counts beside it.  A yardstick that no system attains has "(unattainable)" behind its name,
 * here and in every other report, and true under "unattainable" in JSON.  The finding is the
 * fastest system that is no yardstick and drops nothing. */
int mp_report_speedup(struct mp_store *store, const struct mp_report_selection *selection,
                      enum mp_report_format format, FILE *out, struct mp_error *error);

/* Who made the others wait, per system and workload (profiler/straggler): how long each rank waits,
 * for which one most, why (more tokens, slow at the same tokens, once, transfers, host, begun
 * late), where, and what an iteration would take without it; in words, with what to do and with
 * what the recording can't tell. */
int mp_report_stragglers(struct mp_store *store, const struct mp_report_selection *selection,
                         enum mp_report_format format, FILE *out, struct mp_error *error);

/* The same with all findings, efficiencies, what-if slowdowns, every rank, every phase of every
 * layer (arrival skew beside transfer, tokens beside waiting), balance of routes and clocks. */
int mp_report_stragglers_in_full(struct mp_store *store,
                                 const struct mp_report_selection *selection,
                                 enum mp_report_format format, FILE *out, struct mp_error *error);

/* Where the time goes: phases by share, per system and workload, in ms per iteration and rank. */
int mp_report_phases(struct mp_store *store, const struct mp_report_selection *selection,
                     enum mp_report_format format, FILE *out, struct mp_error *error);

/* Who reached the target loss, after how many iterations and with how many routes dropped: per
 * system and workload, rounds put together, beside what a paper says of the same systems
 * (results/paper).  As text nothing at all if no selected run has a target, and otherwise an empty
 * line at the end. */
int mp_report_convergence(struct mp_store *store, const struct mp_report_selection *selection,
                          enum mp_report_format format, FILE *out, struct mp_error *error);

/* One run in full: what it was, what it met, iteration times, imbalance, phases, facts. */
int mp_report_run(struct mp_store *store, int64_t run_id, enum mp_report_format format, FILE *out,
                  struct mp_error *error);

/* The runs in the database, one line each, latest last; with nothing selected all of them. */
int mp_report_runs(struct mp_store *store, const struct mp_report_selection *selection,
                   enum mp_report_format format, FILE *out, struct mp_error *error);
