/* Recorded runs: what every rank did in steady iterations, read from a database, measured and
 * predicted runs alike.
 *
 * Times are seconds from the earliest start of the iteration over all ranks, on the run's common
 * clock.  Texts and arrays are the run's own, until mp_recorded_destroy. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "profiler/straggler/times.h"
#include "reference/base/arena.h"
#include "results/store/store.h"

struct mp_recorded {
    int64_t run_id;
    /* Of a run that was read whole: */
    char *suite, *job, *system, *executor, *workload, *gate, *model;
    char *job_text; /* as the ranks read it; "" if not kept */
    int ranks_per_node;
    /* Of every one: */
    int ranks, missing; /* that are here, and others that left no spans */
    int cut;            /* whose recording ends before the run did */
    bool ranks_share_cores, common_clock;
    double clock_error;            /* s; two ranks' clocks are at most so far apart */
    int steady, iterations;        /* of the run, and of these here ... */
    int64_t every;                 /* ... each, or each second, third, ... */
    int64_t *number;               /* [iterations] as the run counts them */
    double *seconds;               /* [iterations] v_iteration.ms */
    struct mp_recorded_rank *rank; /* [iterations][ranks] */
    struct mp_recorded_span *span; /* [spans], together as of rank[].first on, by start */
    size_t spans;
    double *collected;                   /* [spans] s of garbage collections within each, and */
    struct mp_recorded_between *between; /* [iterations][ranks] as the analysis takes them */
    struct mp_arena memory;              /* of rank and between */
};

/* Reads all steady iterations of all ranks, for a replay, of a run that is chosen as by
 * mp_store_choose_run; garbage collections are left out.  MP_ENOTFOUND says what the run lacks:
 * steady iterations, spans, or a common clock of its ranks; MP_EIO, MP_ENOMEM. */
int mp_recorded_read(struct mp_store *store, int64_t run_id, struct mp_recorded *recorded,
                     struct mp_error *error);

/* Reads what there is for the analysis of stragglers; of a long run evenly chosen iterations, so
 * that at most about 200,000 spans are looked at.  Errors: MP_EIO, MP_ENOMEM. */
int recorded_sample(struct mp_store *store, int64_t run_id, struct mp_recorded *recorded,
                    struct mp_error *error);

/* Iterations that are here, `at` in their order; ?1 is the run, ?2 its `every`. */
#define RECORDED_CHOSEN                                                                            \
    "WITH chosen AS MATERIALIZED (SELECT iteration, ms, place / ?2 AS at FROM (SELECT iteration, " \
    "ms, row_number() OVER (ORDER BY iteration) - 1 AS place FROM iteration_summary WHERE run_id " \
    "= ?1 AND steady = 1) WHERE place % ?2 = 0) "

void mp_recorded_destroy(struct mp_recorded *recorded); /* accepts a zeroed one */
MP_END(recorded, struct mp_recorded, mp_recorded_destroy(it))
