/* Distinct rows: rows of tokens instead of routes, of an exchange that deduplicates.
 *
 * How many tokens of each rank and chunk go to every group of all levels is exchanged first.  Then
 * travel, beside each row, the places of its token's routes in their source's send order and their
 * weights: what a rank needs to know of it to pass it on, and to copy it to its experts' rows
 * (reference/model/distinct.h).  A place tells the rank, as all know the plan; routes that a row is
 * not sent for are left out.  Weights' gradients return the same way.  One layer's rows are under
 * way at a time, all of their chunks perhaps, each of which has places of its own. */
#pragma once

#include "reference/comm/comm.h"
#include "reference/model/block.h"
#include "reference/plan/planner.h"
#include "reference/schedule/schedule.h"

/* Paths: the ways that tokens' rows take.
 *
 * Rows that other ranks pass on have the paths of an exchange in several rounds, and memory for
 * what is on its way through this rank.  One layer's rows are under way at a time, all of their
 * steps perhaps, each of which has places of its own. */

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

/* Rows of tokens on their way. */
struct mp_distinct_turn {
    struct mp_distinct_rows *exchange;
    struct mp_operation operation;
    int round; /* whose rows have been made last */
    struct mp_exchange_maker maker;
};

struct mp_distinct_rows {
    struct mp_comm *comm; /* borrowed, as is all down to the request */
    struct mp_model *model;
    struct mp_paths *paths;
    struct mp_load *load; /* [L] */
    struct mp_request *gather;
    uint32_t *counts;       /* [chunks][groups of all levels] of this rank; loads have all */
    uint32_t *chunk_routes; /* [L][R][C][E] of plans, whoever gathers them sets; NULL: one chunk */
    int32_t *host_routes;   /* [2][N * K] */
    int *sources;           /* [2][R] working memory */
    struct mp_rows beside[2], host_beside[2]; /* what travels beside rows, owned */
    struct mp_rows host_fans;                 /* working memory: a layer's fans, as they are made */
    struct mp_fan host_fan[MP_FANS];
    struct mp_distinct_turn turn[2 * MP_MOST_DEGREE]; /* of a chunk there, and back */
};

/* If the paths' exchange deduplicates, and room for what loads know of it.  Borrowed members
 * but the request are set.  MP_ENOMEM. */
int mp_distinct_rows_create(struct mp_distinct_rows *exchange, struct mp_arena *arena,
                            struct mp_error *error);
void mp_distinct_rows_destroy(struct mp_distinct_rows *exchange); /* accepts a zeroed one */

/* counts [chunks][E]: a gate's choices by chunk of this rank's tokens. */
void mp_distinct_rows_count_chunks(struct mp_distinct_rows *exchange, int layer, uint32_t counts[]);
/* Chunks' routes of a layer, [R][C][E]; NULL: there is one chunk. */
uint32_t *mp_distinct_rows_chunks(const struct mp_distinct_rows *exchange, int layer);
/* Who gets which tokens of a layer, of all ranks, once forward has found the routes' places; and
 * then their rows' places and what leaves beside them.  MP_ENOMEM. */
int mp_distinct_rows_gather(struct mp_distinct_rows *exchange, int layer, struct mp_error *error);
int mp_distinct_rows_make(struct mp_distinct_rows *exchange, int layer, struct mp_error *error);
int mp_distinct_rows_start(struct mp_distinct_rows *exchange, const struct mp_operation *operation,
                           struct mp_request *request, struct mp_error *error);
/* What becomes of them where they have arrived. */
void mp_distinct_rows_arrive(struct mp_distinct_rows *exchange,
                             const struct mp_operation *operation);
