/* Trees of the sparse collectives, one per expert and rank that it comes from: its hops
 * (reference/schedule/hops.h) as this rank sees them.  Private to reference/comm.
 *
 * Every rank derives the same trees from the same list, whatever the order of the list. */
#pragma once

#include "reference/comm/transport.h"

/* Fills flow->node[0 .. flow->nodes - 1] with this rank's places, experts ascending: expert, owner,
 * members, depth, height, tag, parent and child; all else is zeroed.  `trees` counts the trees of
 * all ranks, and is the number of tags the operation needs.  `reduce`: transfers run from the
 * copies to the owner, else from the owner to the copies.  Errors: MP_EINVAL (a rank or expert out
 * of range, sums of an expert for two owners, a copy listed twice or on the owner), MP_ELIMIT (more
 * transfers than the request was made for, or a list of more than 2^24).  Cost: O(transfers *
 * log(transfers)); allocates nothing. */
int mp_trees_build(const struct mp_comm *comm, struct mp_flow *flow,
                   const struct mp_transfers *list, enum mp_stage stage, int experts, bool reduce,
                   int *trees, struct mp_error *error);

/* Pieces of a chunk: all are `piece` bytes but the last. */
static inline void mp_node_cut(struct mp_node *node, size_t bytes, size_t piece) {
    node->piece = piece;
    node->pieces = (int)((bytes + piece - 1) / piece);
}

static inline size_t mp_node_piece_size(const struct mp_flow *flow, const struct mp_node *node,
                                        int piece) {
    size_t begin = (size_t)piece * node->piece;
    return flow->bytes - begin < node->piece ? flow->bytes - begin : node->piece;
}

static inline char *mp_node_piece(const struct mp_node *node, int piece) {
    return node->memory + (size_t)piece * node->piece;
}
