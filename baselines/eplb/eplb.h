/* EPLB: the expert parallelism load balancer (deepseek-ai/EPLB).
 *
 * Every so many iterations each layer's experts are given to a fixed number of physical experts,
 * hot ones to several, and these are packed onto the ranks so that ranks have equal shares of
 * the past load.  Copies of an expert are taken to share its load evenly.
 *   place.c  replicate, pack and the two policies: pure functions of one layer's load
 *   eplb.c   the window of past loads, options and the descriptor
 *
 * The released code serves inference, where copies only read parameters.  In training copies are
 * tied replicas: each keeps parameters and optimizer state, gradients of all copies are summed
 * and every copy makes the same update; a copy that appears on a rank arrives with its state.
 *
 * Decided here, since the source is silent:
 *   interval   The source says "periodically" and leaves it to the caller (DeepSeek-V3's report,
 *              3.4: every 10 minutes of serving).  Runs here are short: every 10 iterations, from
 *              the mean of the last 10 (options interval, window).
 *   replicas   Whatever the deployment has room for.  Here twice the experts, rounded up so that
 *              ranks divide it (option replicas).  What SGLang and vLLM call redundant experts are
 *              the replicas beyond one of each.
 *   groups     Those of a group-limited gate.  The gates here have none: 1 (option groups), so
 *              that `policy auto` is global on several nodes; on one both policies are the same.
 *   dispatch   Which copy a token goes to is left to the caller.  Each source spreads its routes
 *              of an expert evenly over the physical copies, a rank with two of them getting two
 *              shares, what is left over from copy (source mod copies) on; or it takes the
 *              nearest copies (option dispatch).
 *   first      Before the first loads: the layout of equal loads.
 *
 * As in serving: SGLang places every 1000 steps from the loads of these, at once, and not if ranks
 * are used evenly enough (--eplb-min-rebalancing-utilization-threshold, 1: always); vLLM every 3000
 * from the last 1000, in the background (eplb_config.use_async); both with no redundant experts by
 * default.  Options utilisation and moves are theirs.  SGLang averages the utilisation of steps;
 * here it is that of the mean load, which is all that a placement can even out. */
#pragma once

#include <stdint.h>

#include "reference/base/arena.h"
#include "reference/plan/queue.h"
#include "reference/plan/system.h"

enum mp_eplb_policy { MP_EPLB_AUTO, MP_EPLB_GLOBAL, MP_EPLB_HIERARCHICAL };
enum mp_eplb_dispatch { MP_EPLB_EVEN, MP_EPLB_NEAREST };
enum mp_eplb_moves { MP_EPLB_EXPOSED, MP_EPLB_ASYNCHRONOUS };

/* Named in the option table of eplb.c. */
struct mp_eplb_options {
    int policy;         /* enum mp_eplb_policy */
    int replicas;       /* physical experts of a layer, all ranks together, or MP_AUTO */
    int groups;         /* of experts, for the hierarchical policy */
    int interval;       /* iterations between placements; 0: never */
    int window;         /* iterations averaged */
    int dispatch;       /* enum mp_eplb_dispatch */
    int moves;          /* enum mp_eplb_moves */
    double utilisation; /* mean over largest load of ranks above which nothing is placed */
};

/* Gives `items` weights to `packs` (a divisor) packs of equally many items: heaviest item first,
 * ties to the lower one, into the lightest pack with room, ties to the lower one.  With one item
 * per pack item i is pack i.  Outputs are [items]: the pack, and the place in it.  `work` is
 * working memory for 2 * items, `queue` has room for `items`. */
void mp_eplb_pack(const double weight[], int items, int packs, int32_t pack[], int32_t place[],
                  int32_t work[], struct mp_queue *queue);

/* One layer's placement. */
struct mp_eplb {
    int experts, replicas, groups, nodes, ranks; /* groups = nodes = 1: the global policy */
    int32_t *expert; /* [replicas], rank by rank: the expert of every physical one (phy2log); where
                        an expert's copies are (log2phy) follows from it */
    int32_t *copies; /* [experts] (logcnt) */
    struct mp_queue queue; /* working memory as all below */
    double *weight;        /* [experts], of groups, then of a node's experts */
    double *share;         /* [replicas], weight / copies of a node's physical experts */
    int32_t *member;       /* [experts], experts in the order of their nodes */
    int32_t *pack, *place; /* [replicas] */
    int32_t *work;         /* [2 * replicas] */
    int32_t *local;        /* [replicas], a node's physical experts as indices into its members */
    int32_t *local_copies; /* [experts] */
};
/* Hierarchical when nodes > 1.  Replicas are as many as experts or more, ranks divide them, nodes
 * divide groups and ranks, and groups divide experts.  Tables are the arena's, whose user looks
 * whether there was memory. */
void mp_eplb_create(struct mp_arena *memory, int experts, int replicas, int groups, int nodes,
                    int ranks, struct mp_eplb *state);
/* Places one layer: groups of experts are packed to nodes; each node replicates its experts to its
 * physical ones; these are packed to the node's ranks by weight / copies.  weight is [experts], >=
 * 0; sums and quotients are doubles, taken in the same order everywhere. */
void mp_eplb_place(struct mp_eplb *state, const int64_t weight[]);
