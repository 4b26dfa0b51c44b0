/* Run: what the processes of a recorded program left behind, made a run of a database. */
#pragma once

#include <stdbool.h>
#include <stdio.h>

#include "harness/record/recorded_loads.h"
#include "harness/record/rules.h"
#include "results/store/store.h"

struct mp_record_run {
    char *const *command;   /* ends with NULL */
    const char *collector;  /* the injection library */
    const char *spools;     /* folder with nothing but the processes' spools */
    bool keep_spools;       /* also once they are in the database */
    const char *ranks_from; /* NULL: the usual variables */
    const char *system;     /* NULL: the command's name */
    const char *workload;   /* NULL: "recorded" */
    struct mp_record_loads_source loads;
    const char *job_text; /* a job file with the model's sizes; NULL: not known */
    const struct mp_rules *rules;
    const char *suggested; /* rules file for proposals, which must not exist; NULL: none wanted */
    bool suggest;          /* proposals are written whatever the rules in use say */
    const char *resume;    /* the command that adds these spools once more, but for --rules */
    const char *importer;  /* what made the spools of another tool's files; NULL: a collector did */
    bool is_merged;        /* the folder has the links of several parts (parts.h) */
    bool some_ranks;       /* ranks may be missing in those */
    bool is_earlier;       /* the spools were found: nobody saw how the command ended */
    int status;            /* else: that it ended with */
};

/* Maps every process's ranges by the rules and adds one run with those processes that have spans.
 * A process's rank is the one that its launcher gave it; a second process of that rank, and those
 * without one, get ranks behind the largest in the order in which they began.  Processes without
 * any span go into a second run "NAME (others)" of the same invocation if there are others with,
 * so that no range is lost and no rank is empty.  Where no process has made a range, those in which
 * collectors of GPU work were are the run's, without spans.  Hosts' clocks are put beside one
 * another by what they did together (processes.h), else by their wall clocks.  Where no range
 * became a phase of the model, or none an iteration, rules are proposed (suggest.h) and the spools
 * stay.  Else they are removed, and the findings are said on `stream`: what was recorded, what
 * rules did with it, which clock, what it cost, and of each rank why something of it is missing.
 * Errors: those of mp_store_ingest, MP_ENOTFOUND (no process has annotated anything or had a
 * collector of GPU work: the sentence says why that may be), MP_EINVAL (one of an earlier
 * recording's processes still runs, here, and records: its run would be half of one; parts that are
 * not of one run, or not all of it); the spools stay then.  An earlier recording is complete if all
 * of its processes ended theirs, else interrupted. */
int mp_record_keep(struct mp_store *store, const struct mp_record_run *run, FILE *stream,
                   struct mp_error *error);
