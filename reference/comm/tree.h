/* Trees of the sparse collectives.  Private to reference/comm.
 *
 * The members of an expert's tree are its owner and then the other ranks of its transfers in
 * ascending order; member i's parent is member (i - 1) / 2.  Every rank derives the same trees from
 * the same list, whatever the order of the list. */
#ifndef MOEPERF_REFERENCE_COMM_TREE_H
#define MOEPERF_REFERENCE_COMM_TREE_H

#include "reference/comm/transport.h"

struct mp_tree {
    int number, expert, owner, members;
    const uint64_t *key; /* private */
};
/* The next tree of the list that mp_trees_build has been given, experts ascending, from a tree of
 * zeros on; false at the end. */
bool mp_tree_next(const struct mp_flow *flow, bool reduce, struct mp_tree *tree);
/* The rank of member i, 0 .. members - 1; -1 beyond. */
int mp_tree_member(const struct mp_tree *tree, int i);

/* Fills flow->node[0 .. flow->nodes - 1] with this rank's places, experts ascending: expert, tag,
 * parent, child, members and place; all else is zeroed.  `trees` counts the trees of all ranks, and
 * is the number of tags the operation needs.  `reduce`: transfers run from the copies to the owner,
 * else from the owner to the copies. Errors: MP_EINVAL (a rank or expert out of range, two owners
 * of an expert, a copy listed twice or on the owner), MP_ELIMIT (more transfers than the request
 * was made for, or a list of more than 2^24). Cost: O(transfers * log(transfers)); allocates
 * nothing. */
int mp_trees_build(const struct mp_comm *comm, struct mp_flow *flow,
                   const struct mp_transfers *list, enum mp_stage stage, int experts, bool reduce,
                   int *trees, struct mp_error *error);

#endif
