/* Hops: the ways that an expert's bytes travel from its owner to all ranks that need them.
 *
 * This is the only place that knows paths.  Messages over MPI, groups of NCCL and the network model
 * carry out the same hops; copies (spAG, sums shared with replicas) go down them and sums (spRS)
 * up. Transfers between two ranks, moves and slices, are one hop each: no two ranks are sent the
 * same bytes.
 *
 * From the owner the expert goes into its own node, and to the next node that needs it, from there
 * to the next, ascending and cyclic: it crosses a node's border once, whatever number of ranks need
 * it there.  Into a node with n receivers expert e comes at number e mod n of them, or where the
 * plan says, and goes on to the others, again cyclic, so that over the experts every rank's ports
 * and every node's carry about the same.  A rank has at most two to send to: the next one of its
 * node and, if it is where the expert has come in (or the owner, in whose node nothing comes in),
 * that of the next node.
 *
 *     3 nodes of 3 ranks, owner 1, expert 0 needed everywhere:
 *         1 -> 0 -> 2
 *         1 -> 3 -> 4 -> 5
 *              3 -> 6 -> 7 -> 8
 *
 * Why chains: in pieces, each of which is passed on as soon as it is here, no port carries an
 * expert twice in one direction, so that it takes bytes / bandwidth plus what fills the chain, a
 * piece's time per hop.  In a binary tree whoever has two children sends everything twice: p pieces
 * take 8 ranks of a node 2 p + 2 piece times against p + 6.  So a tree wins with an expert of up to
 * three pieces that travels alone; many at once, as in spAG, fill every port anyway, and a chain
 * never loads one more than it must.  The price is paid by single small experts, and between very
 * many nodes. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "reference/plan/topology.h"

/* Ranks that one rank sends an expert to, at most. */
enum { MP_HOP_FAN = 2 };

struct mp_receiver {
    int32_t rank;
    bool enters; /* the expert comes into the node here: the lowest one of a node that says so */
};

struct mp_hop {
    int32_t from, to; /* ranks */
    int32_t depth;    /* hops from the owner to `to`: at least 1 */
};

/* hop[0 .. count - 1] (out): one into each of the `count` receivers, which are ascending, without
 * the owner.  A rank's hops come after the one that brings it the expert, and those inside its node
 * before the one to the next; in this order its children's sums are added.  Cost: O(count).
 * Deterministic: equal on every rank. */
void mp_hops(const struct mp_topology *topology, int expert, int owner,
             const struct mp_receiver receiver[], int count, struct mp_hop hop[]);

/* The hops of a library's own broadcast to all ranks, a ring: from the owner on, ascending and
 * cyclic, whatever the nodes.  hop [ranks - 1] (out). */
void mp_hops_ring(int ranks, int owner, struct mp_hop hop[]);
