/* Policy: what a system has settled for the whole run, the same in the plans of all layers and
 * iterations.
 *
 * Memory is laid out, and the schedule made, by it.  A planner asks its system once (system.h) and
 * every plan points to what it said; a plan has only what may differ from layer to layer. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "reference/plan/placement.h"

/* Where parameters and optimizer state live between iterations, and how gradients get there. */
enum mp_optimizer_split {
    /* The owner keeps all of it.  Whatever else holds the expert is a copy of this iteration. */
    MP_OPTIMIZER_OWNER,
    /* Every holder of `before` keeps all of it (tied replicas): gradients of all holders are summed
     * in the owner (reduce), the sum goes back to the replicas (share), and each of them makes the
     * same update. */
    MP_OPTIMIZER_REPLICATED,
    /* Every rank keeps a uniform slice of every expert; no rank keeps one whole.  Holders'
     * parameters are put together from all ranks' slices (before_gate says when); every holder
     * sends every rank its slice of the gradient, where they are summed (FSEP, LAER-MoE). */
    MP_OPTIMIZER_SLICES,
    /* The same, but holders first sum their gradients as replicas do (reduce, share), and one of
     * them sends each rank its slice: mp_plan_slice_source (SYMI, section 4). */
    MP_OPTIMIZER_SLICES_OF_SUM,
    /* Holders of `before` keep a uniform slice of the expert each, nobody else any: ZeRO-1 over the
     * expert's replicas (ZeRO, arXiv 1910.02054).  Holders' parameters are put together from each
     * other's slices; every holder sends each other one its slice of its own gradient (a
     * reduce-scatter).  Every expert has as many holders, and homes never change. */
    MP_OPTIMIZER_REPLICA_SLICES,
    /* The same, but holders first sum their gradients as replicas do (reduce, share), and each of
     * them uses its slice of the sum (an all-reduce). */
    MP_OPTIMIZER_REPLICA_SLICES_OF_SUM,
    MP_OPTIMIZER_SPLITS
};
const char *mp_optimizer_name(enum mp_optimizer_split split); /* "owner", ... */
static inline bool mp_optimizer_sliced(enum mp_optimizer_split split) {
    return split >= MP_OPTIMIZER_SLICES;
}
/* Slices are kept by the expert's holders, not by all ranks. */
static inline bool mp_optimizer_of_replicas(enum mp_optimizer_split split) {
    return split >= MP_OPTIMIZER_REPLICA_SLICES;
}
/* Every holder gets the sum of all holders' gradients. */
static inline bool mp_optimizer_sums(enum mp_optimizer_split split) {
    return split == MP_OPTIMIZER_REPLICATED || split == MP_OPTIMIZER_SLICES_OF_SUM ||
           split == MP_OPTIMIZER_REPLICA_SLICES_OF_SUM;
}
/* Keepers of an expert's slices where `home` says who holds it between iterations, ascending:
 * number i keeps slice i.  The first one from `rank` on, or -1; and how many there are. */
static inline int mp_keeper_next(enum mp_optimizer_split split, const struct mp_placement *home,
                                 int expert, int rank) {
    if (mp_optimizer_of_replicas(split))
        return mp_placement_next(home, expert, rank);
    return rank < home->ranks ? rank : -1;
}
static inline int mp_keepers(enum mp_optimizer_split split, const struct mp_placement *home,
                             int expert) {
    return mp_optimizer_of_replicas(split) ? mp_placement_copies(home, expert) : home->ranks;
}

/* What a job says of policy.weights_behind. */
enum mp_weights_behind {
    MP_WEIGHTS_AS_PLANNED, /* as the system's policy has it */
    MP_WEIGHTS_AT_ONCE,
    MP_WEIGHTS_BEHIND
};
/* What of the products of a piece of backward is computed, where policy.weights_behind cuts it. */
enum mp_products {
    MP_ALL_PRODUCTS,
    MP_INPUT_PRODUCTS, /* all that comes before, and whatever is not said to be behind */
    MP_WEIGHT_PRODUCTS
};

enum { MP_MOST_AHEAD = 3 }; /* layers, of policy.gather_ahead */

/* In which order a source's routes to one expert are handed to the parts of its dispatch; those
 * that no part is left for are dropped, so that this says who loses. */
enum mp_route_order {
    MP_ROUTES_BY_TOKEN,       /* token by token, the choices of a token together */
    MP_ROUTES_BY_CHOICE,      /* all first choices before all second ones */
    MP_ROUTES_BY_PROBABILITY, /* highest probability first, ties to the earlier token */
    MP_ROUTES_AT_RANDOM,      /* drawn from (job's seed, iteration, layer, source) */
    MP_ROUTE_ORDERS
};
const char *mp_route_order_name(enum mp_route_order order); /* "by-token", ... */

struct mp_policy {
    enum mp_optimizer_split optimizer;
    /* Sliced optimizers only: parameters are put together MP_STAGE_BEFORE_GATE; otherwise
     * MP_STAGE_AFTER_STEP (of the step before), and they stay where they are until then. */
    bool gather_before_gate;
    /* Of those: how many layers ahead they set out, 0 .. MP_MOST_AHEAD; 0: under the attention of
     * their own layer. */
    int gather_ahead;
    /* Copies of MP_STAGE_BEFORE_GATE set out when rows of the layer before have, and travel under
     * its experts, too (those of layer 0 under its attention). */
    bool fetch_early;
    /* Copies stay for all of an iteration's micro-batches, whenever they were made: those that
     * follow begin with them, and only what they add travels; gradients are summed behind the last
     * one.  Without it, copies made before the gate stay, as all micro-batches have the same, and
     * those made after it are made anew.  Not with rematerialise. */
    bool copies_stay;
    /* Backward, what other ranks wait for comes first, and gradients of weights hide its way, as
     * far as that takes no memory: of each step of the exchange those of experts' first matrices
     * are computed when its rows have set out on their way back, and those of the projections that
     * attention begins with under the exchange of the layer below (Lancet, MLSys 2024, arXiv
     * 2404.19429: its scheduling of weight gradients).  The same sums in another order of work.  A
     * job may want it of any system, or of none. */
    bool weights_behind;
    /* Experts are updated in backward, a layer at a time, where the rows of two layers below are
     * waited for; and what plans list in `ahead` sets out then, under the rest of backward, to be
     * there in the next iteration.  Takes MP_OPTIMIZER_OWNER, copies that stay until backward, and
     * nothing offloaded. */
    bool updates_early;
    /* Parameters and state of what a rank keeps lie in host memory, and the update is made there.
     * Gradients go down to it and new parameters come up, once per step; ranks compute on elements
     * of the device (ZeRO-Offload, arXiv 2101.06840). */
    bool offload;
    /* Copies are freed after forward and fetched again for backward; with gather_before_gate
     * likewise what was put together from slices. */
    bool rematerialise;
    /* What `fetch`, `reduce`, `share` and planning cost is not counted: clocks stand still.  For
     * yardsticks only (MP_SYSTEM_UNATTAINABLE). */
    bool free_transfers;
    /* Iterations end with forward: gradients, and what backward needs again, never travel, which
     * facts say.  Lists are those of training all the same.  The setting's, not the system's. */
    bool forward_only;

    /* The gate, if the system changes it: at most this many tokens of a source have their first
     * choice outside their node; -1: the gate's choices stand (FasterMoE's topology-aware gate).
     * Loads that are replayed, or predicted with, keep it by a rule (reference/model/replay.h). */
    int64_t outgoing_limit;
    /* For loads that are replayed, or predicted with: how far a balancing loss that knows the
     * topology brings a source's share of routes inside its node towards the one that goes with 1
     * over the cost of a byte, which is `outside_cost` to another node and 1 inside; 0: nothing, 1:
     * all the way (TA-MoE; reference/model/replay.h). */
    double pull, outside_cost;

    enum mp_route_order route_order;
    /* Weights of a token's routes are divided by the sum over those that were not dropped (at most
     * the smallest normal float), whatever the gate does before drops. */
    bool renormalise_survivors;
    /* Rows get into the order of their destinations, and back to their tokens, by products with the
     * matrix [rows sent][tokens] that has a one, or the weight, where a row is a token's (GShard's
     * and DeepSpeed's einsum dispatch), not by copying.  Takes plan.padding. */
    bool one_hot;
    /* Rows may be of two routes: of a (source, expert) with a first and b second choices, these
     * have rows b .. 2 b - 1 of its plan.padding, those rows 0 .. a - 1 (HetuMoE's released top-2
     * gate).  A row has the second choice's token, if it is one's; both routes get what comes of
     * it, each with its own weight, and its gradient is the sum of theirs.  Parts count rows with a
     * token, so that a first choice without its token in a row counts as dropped.  Takes padding,
     * no one_hot, MP_ROUTES_BY_CHOICE, at most two choices and loads that know first ones (of
     * others, parts count what they would without this). */
    bool overlaid;
};

/* An expert's owner keeps and updates it, the gate's choices stand, routes go by token. */
extern const struct mp_policy mp_policy_plain;

static inline bool mp_policy_changes_gate(const struct mp_policy *policy) {
    return policy->outgoing_limit >= 0 || policy->pull > 0;
}
/* Of how many layers, one after the other, fetches may be on their way together. */
static inline int mp_policy_fetches(const struct mp_policy *policy) {
    return 1 + policy->gather_ahead + policy->fetch_early;
}
/* The same in backward: none sets out under the experts of the layer before. */
static inline int mp_policy_refetches(const struct mp_policy *policy) {
    return 1 + policy->gather_ahead;
}
/* Whether holders' parameters are put together from slices before the gate, or after the step. */
static inline bool mp_policy_gathers(const struct mp_policy *policy) {
    return mp_optimizer_sliced(policy->optimizer) && policy->gather_before_gate;
}
static inline bool mp_policy_gathers_homes(const struct mp_policy *policy) {
    return mp_optimizer_sliced(policy->optimizer) && !policy->gather_before_gate;
}
