/* Routing of one layer on one rank: what a plan's dispatch means for rows in memory.
 *
 * Rows travel in steps: one per chunk that the plan's degree cuts them into (mp_plan_chunk), or
 * with a pipelined exchange one per group of ranks.  Each step brings a segment of the rows that
 * this rank's experts work on.  If the exchange is pipelined and the plan fetches copies after the
 * gate, there is a last segment, perhaps empty, whose rows never travel: a rank's routes to its own
 * such copies, and to experts of its own all of whose routes stay with their sources
 * (mp_plan_next_late).
 *
 * Send order: rows by chunk, within it by destination rank, within it by expert, within it as the
 * plan hands routes out; behind them those of the last segment.  Receive order: by step, within it
 * by source rank, within it by expert.  Expert order: by segment, within it by held expert, within
 * it by source; the order that the grouped GEMM wants.  A segment has the same rows in both, from
 * `first` on. With plan.padding every (source, expert) takes that many rows in all three, and those
 * behind its routes have no token.  Everything is computed from the plan, which all ranks share, so
 * sizes need no further communication. */
#pragma once

#include "reference/plan/plan.h"

enum { MP_ROUTING_SHARES = 2 }; /* most products that a group's rows are divided into */

/* Rows of a step in both directions.  Rows to (from) ranks outside the step count 0, so that one
 * mp_exchange_start carries the step out. */
struct mp_routing_step {
    const int *send_rows;    /* [ranks] */
    const int *receive_rows; /* [ranks] */
    int send_first;          /* in send order: all rows of a step lie together */
    int send_total;
    int first_source, sources; /* ranks that it receives from */
};

struct mp_routing_segment {
    const int *group_rows; /* [groups][shares] */
    /* Into how many products a group is divided.  With two ranks the routes of each source have one
     * of their own, so that rows and sums over them have the same bits whichever rank computes
     * them; among more ranks sums depend on who adds first, and a group is one product. */
    int shares;
    int first; /* row in expert order; also in receive order */
    int rows;
    bool in_expert_order; /* the receive order is the expert order: no permutation needed */
};

struct mp_routing {
    int ranks, experts;
    int64_t send_limit, receive_limit; /* most rows that a plan may bring */

    /* What the plan says of this layer beside its dispatch. */
    enum mp_route_order order;
    bool renormalise_survivors;
    int64_t padding;
    bool one_hot;
    bool overlaid;
    bool deduplicated; /* the exchange's rows are of tokens: they arrive in expert order */
    uint32_t *dropped; /* [experts] routes of this rank that the plan's parts don't count */

    int send_total;    /* rows in send order, the last segment's included */
    int local_rows;    /* those of the last segment: the last ones */
    int receive_total; /* M: rows that this rank's experts work on, the last segment included */

    /* For mp_device_operations.route_positions.  If rows are overlaid, first choices' parts, and
     * behind them those of second ones, from part_begin[experts] on. */
    int *part_begin; /* [2 * experts + 1] */
    int *part_count; /* [(ranks + 1) * experts * MP_MOST_DEGREE], a chunk each */
    int *part_row;   /* likewise */

    int steps, degree;
    struct mp_routing_step *step; /* [steps] */
    int segments;                 /* steps, or with the last segment one more */
    /* One rank's exchange with itself in one step: what is sent is what arrives, and no row has to
     * be copied. */
    bool stays;
    bool in_order; /* all segments are in expert order: nobody reads mp_routing_index */
    struct mp_routing_segment *segment;
    int groups;        /* experts that this rank holds, with or without rows */
    int *group_expert; /* [groups] */

    /* Working memory, and what the above points to. */
    int *send_rows;      /* [degree][ranks] */
    int *receive_rows;   /* [degree][ranks] */
    int *next_row;       /* [degree][ranks] */
    int *step_send_rows; /* [most steps][ranks] */
    int *step_receive_rows;
    int *segment_rows; /* [most steps + 1][experts][shares] */
    int *pair_rows;    /* [experts][degree][ranks]: rows of a group's chunks from each source */
    bool *late;        /* [experts] this rank's own routes to it are in the last segment */
    bool has_late;
    struct mp_arena arena; /* of all arrays */
};

/* For plans that bring at most `send_limit` rows to send and `receive_limit` to work on; memory
 * does not depend on either.  MP_ENOMEM. */
int mp_routing_create(int ranks, int experts, int64_t send_limit, int64_t receive_limit,
                      struct mp_routing *routing, struct mp_error *error);
void mp_routing_destroy(struct mp_routing *routing); /* accepts a zeroed one */

/* Derives everything above for `rank` from a plan with its dispatch.  `load` has the routes that
 * the gate chose, for `dropped` and for overlaid rows; NULL: as many as were dispatched.
 * O(ranks * (ranks + experts)).  MP_ELIMIT if there are more rows than the limits, MP_EPLAN if the
 * exchange is impossible, or overlaid rows are of a load without first choices. */
int mp_routing_build(const struct mp_plan *plan, const struct mp_load *load, int rank,
                     struct mp_routing *routing, struct mp_error *error);

/* index [receive_total]: for each row in expert order its row in receive order; those of a last
 * segment are left out.  O(M). */
void mp_routing_index(struct mp_routing *routing, int32_t index[]);

/* `rows` rows of expert 0 in one segment, with nothing to send: for measuring an expert. */
void mp_routing_single(struct mp_routing *routing, int rows);
