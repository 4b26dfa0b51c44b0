/* Paths: the ways that tokens' rows take.
 *
 * Rows that other ranks pass on have the paths of an exchange in several rounds, and memory for
 * what is on its way through this rank.  One layer's rows are under way at a time, all of their
 * steps perhaps, each of which has places of its own. */
#ifndef MOEPERF_REFERENCE_TRAINER_PATH_H
#define MOEPERF_REFERENCE_TRAINER_PATH_H

#include "reference/comm/comm.h"
#include "reference/model/block.h"
#include "reference/plan/planner.h"
#include "reference/schedule/schedule.h"

struct mp_paths {
    struct mp_comm *comm; /* borrowed, as are model and planner */
    struct mp_model *model;
    const struct mp_planner *planner;
    const struct mp_exchange *exchange; /* in several rounds; NULL: rows are not passed on */
    struct mp_exchange_path *path;      /* [L][steps], owned */
    int steps;                          /* the most of a plan */
    /* [steps][R][R] where blocks begin in send order; or in [R][R] rows from each rank to each
     * other. */
    int *begin;
    struct mp_rows transit[2]; /* rows on their way through this rank, owned */
};

/* As the first plan says.  Borrowed members are set.  MP_ENOMEM. */
int mp_paths_create(struct mp_paths *paths, struct mp_arena *arena, struct mp_error *error);
void mp_paths_destroy(struct mp_paths *paths); /* accepts a zeroed one */

/* For a layer's plan, with room for what this rank passes on.  MP_EPLAN (rows are passed on, and
 * not as in the first plan), MP_ELIMIT, MP_ENOMEM. */
int mp_paths_build(struct mp_paths *paths, int layer, struct mp_error *error);
/* The path of a step: one that has been built, or `direct` (out). */
const struct mp_exchange_path *mp_paths_of(const struct mp_paths *paths,
                                           const struct mp_operation *operation,
                                           struct mp_exchange_path *direct);
/* Where rows of a step are in transit, 0 or 1; NULL where they go directly. */
void *mp_paths_transit(const struct mp_paths *paths, const struct mp_operation *operation,
                       int place);

#endif
