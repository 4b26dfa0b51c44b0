/* Routing of one layer on one rank: what a plan's dispatch means for rows in memory.
 *
 * Send order: rows by destination rank, within it by expert, within it by token.  Receive order:
 * by source rank, within it by expert.  Expert order: by held expert, within it by source; the
 * order that the grouped GEMM wants.  Everything is computed from the plan, which all ranks
 * share, so sizes need no further communication. */
#ifndef MOEPERF_REFERENCE_MODEL_ROUTING_H
#define MOEPERF_REFERENCE_MODEL_ROUTING_H

#include "reference/plan/plan.h"

struct mp_routing {
    int ranks, experts;
    int64_t rows_limit; /* receive rows there is room for */

    int *send_rows; /* [ranks] */
    int send_total;
    int *receive_rows; /* [ranks] */
    int receive_total; /* M */

    /* For mp_device_operations.route_positions. */
    int *part_begin; /* [experts + 1] */
    int *part_count; /* [part_limit] */
    int *part_row;   /* [part_limit] */
    int part_limit;

    int groups;             /* experts that this rank holds, with or without rows */
    int *group_expert;      /* [experts] */
    int *group_rows;        /* [experts] */
    bool in_expert_order;   /* the receive order is the expert order: no permutation needed */
    int32_t *receive_index; /* [rows_limit] row in receive order of each row in expert order */

    int *next_row; /* [ranks] working memory */
};

/* `rows_limit` is the most rows a rank can receive: all routes of all ranks. */
int mp_routing_create(int ranks, int experts, int64_t rows_limit, struct mp_routing *routing,
                      struct mp_error *error);
void mp_routing_destroy(struct mp_routing *routing); /* accepts a zeroed one */

/* Derives everything above for `rank` from a plan with its dispatch.  O(ranks * experts + M). */
int mp_routing_build(const struct mp_plan *plan, int rank, struct mp_routing *routing,
                     struct mp_error *error);

#endif
