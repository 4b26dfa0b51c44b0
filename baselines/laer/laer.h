/* LAER-MoE: fully sharded expert parallelism, FSEP (arXiv 2602.11686; Hetu-Galvatron, branch
 * laer-moe).
 *
 * Every rank keeps a slice of every expert.  Before a layer one exchange puts together, on every
 * rank, the experts of its C slots in the current layout, and gradients go back the other way,
 * so that any layout costs the same and no optimizer state moves.  After an iteration each
 * layer's next layout is planned from its last loads, and serves the next iteration.
 *   layout.c  how many slots an expert gets, and which
 *   cost.c    what a layout would have cost for given loads
 *   laer.c    candidates, options and the descriptor
 *
 * Sources, and what was decided where they leave something open:
 *   slots       C = 2 for 8 experts top-2 and 4 for 16 experts top-4 on 32 devices (section 5 of
 *               the paper, its artifact).  Here C is by default the larger of top-k and two slots
 *               per expert, 2 * ceil(E / R), and at most E: the same figures there.
 *   nodes       The released planner has 8 devices to a node in its code; here the run's nodes.
 *   remainder   Routing divides evenly over an expert's slots on the source's node, otherwise
 *               over all, what is left over one by one from the first slot on.  The released C++
 *               divides in floating point and adds the remainder besides, so that it counts up to
 *               one route per slot twice; its Python version does not, and neither does this.
 *   empty heap  The heap may run empty while slots are left, each expert's next step being larger
 *               than what is left (undefined in the C++): the slots stay empty.
 *   costs       4 times the routes' travel, summed over ranks, and 3 times the largest computing
 *               of a rank; where only forward runs, twice and once.  The source has 4 instead of 3
 *               when it recomputes activations, which no run here does; 216.269e9 B/s in a
 * node, 88.9539e9 between and 1e18 on a device (here: free), 2 bytes per element (here: the run's),
 * and 1.484375e-6 s per route. They are options; by default all is measured, between nodes and in
 * them, so that of two layouts the one that keeps routes on their node is cheaper by what it saves
 *               here.  Of equal costs the first candidate wins: even, heap, perturbations.
 *   flex        FLEX, with which the source compares, is the same execution with another planner:
 *               parameters are in slices and put together, and the layout is changed from one
 *               iteration to the next by FlexMoE's primitives (mp_flex_laer_policy, at most 10
 *               rounds), beginning with the layout of the paper's baseline.
 *   perturbations
 *               Off, as released (seed 2333).  How the source draws them is not taken over: each
 *               one moves a slot from an expert with several to another, drawn from the seed, the
 *               iteration and the layer.
 *   first       Before the first loads: the layout of equal loads.
 *   rematerialise
 *               As in FSDP's full sharding, experts are freed after forward and put together again
 *               for backward; `no` keeps them.
 *   prefetch    How many layers ahead experts are put together: 1 is under the attention before
 *               the experts themselves, 2 begins with the attention of the layer above; 0 hides
 *               nothing: experts are put together after the optimizer, and stay.  The source
 *               prefetches two, its ablation no_comm_opt one, and does not say from where it
 *               counts.  The default is 1, with which its iterations of Mixtral-8x7B are predicted
 *               at 0.92 of the measured time; with 2 it is 0.74, and the ablation would cost 23 %
 *               instead of 9 %.
 *
 * With N nodes every expert gets N slots before loads are looked at, if there are as many.  Two
 * slots per expert on two nodes are used up by that: the layout is then the even one. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "reference/base/arena.h"
#include "reference/plan/queue.h"
#include "reference/plan/slots.h"
#include "reference/plan/system.h"

enum mp_laer_layout { MP_LAER_PLANNED, MP_LAER_STATIC, MP_LAER_FLEX };

/* Named in the option table of laer.c. */
struct mp_laer_options {
    int slots;  /* C, experts per rank and layer, or MP_AUTO; MP_ALL: every expert */
    int window; /* iterations whose loads are summed */
    int layout; /* enum mp_laer_layout */
    bool even, priority_queue;
    int perturbations;
    double bandwidth_in_node, bandwidth_between_nodes; /* B/s; 0: the setting's */
    double seconds_per_route;                          /* 0: the setting's */
    bool rematerialise;
    int prefetch; /* layers */
};

/* --- Layout --------------------------------------------------------------------------------------
 */

/* Slots of each expert by the priority queue: one per node to begin with if there are that many,
 * otherwise one; then the expert with the largest load / slots (ties: lower id) gets one more, or
 * from one per node on, one more per node, as long as that fits; an expert for which it does not is
 * finished.  slots >= experts; `queue` has room for `experts`.  Outputs replicas [experts], whose
 * sum is at most `slots`. */
void mp_laer_replicas(const int64_t load[], int experts, int slots, int nodes, int32_t replicas[],
                      struct mp_queue *queue);

struct mp_laer_placer {
    struct mp_topology topology;
    struct mp_queue queue;
    double *rank_load;     /* [ranks], of the experts placed so far */
    int32_t *free_slots;   /* [ranks] */
    int32_t *least_loaded; /* [nodes], its rank with a free slot, or -1 */
    int32_t *node_copies;  /* [nodes], of the expert being placed */
};
/* Tables are the arena's, whose user looks whether there was memory; so below. */
void mp_laer_placer_create(struct mp_arena *memory, const struct mp_topology *topology, int experts,
                           struct mp_laer_placer *placer);
/* Gives every expert its slots: experts by load / replicas descending, each of their copies to a
 * rank with a free slot on a node with the fewest copies of it, then the least loaded one, ties to
 * the lower one.  A rank may get an expert twice.  Indexes the slots for the nodes. */
void mp_laer_place(struct mp_laer_placer *placer, const int64_t load[], const int32_t replicas[],
                   struct mp_slots *slots);
/* The layout of the paper's baseline, FSDP with expert parallelism: with C slots and p = experts /
 * C slot i of rank j holds expert i * p + j mod p.  C divides experts, and ranks >= p. */
void mp_laer_place_static(struct mp_slots *slots, int ranks_per_node);

/* --- Cost ----------------------------------------------------------------------------------------
 */
struct mp_laer_costs {
    double in_node, between_nodes; /* seconds that one route's row travels, one direction */
    double compute;                /* seconds that one route is computed, forward */
    bool forward_only;             /* serving: 1 of 3 passes of compute, 2 of 4 of travel */
};

/* Slots that the routes of an expert from some sources are spread over. */
struct mp_laer_stretch {
    int64_t each;   /* routes that every one of them gets */
    int64_t routes; /* all routes */
    int32_t slots;
    int32_t more; /* first index into more[] */
};
/* Working memory of a cost, and its terms as integers. */
struct mp_laer_evaluator {
    struct mp_topology topology;
    int experts;
    int64_t in_node, between_nodes; /* routes that leave their rank, by how far they go */
    int64_t *computed;              /* [ranks], routes */
    struct mp_laer_stretch *all;    /* [experts], from sources without a slot on their node */
    struct mp_laer_stretch *near;   /* [experts], from sources of the present node */
    int32_t *more; /* [2 * slots], sources by how many first slots get one more: over all slots of
                      an expert, and behind that over those of the present node */
    int32_t *next; /* [experts], an expert's first slot on a later node */
};
void mp_laer_evaluator_create(struct mp_arena *memory, const struct mp_topology *topology,
                              int experts, int per_rank, struct mp_laer_evaluator *state);
struct mp_laer_costs mp_laer_costs(const struct mp_setting *setting,
                                   const struct mp_laer_options *options);
/* Seconds of an iteration: 4 (in_node + between_nodes) + 3 max computed, for count[ranks][experts]
 * routes routed over `slots` (indexed) as mp_plan_dispatch_slots does with MP_SPREAD_NODE.  Exact
 * to the route: sources are added up by node, and with them what remainders add to first slots. */
double mp_laer_cost(struct mp_laer_evaluator *state, const struct mp_slots *slots,
                    const int64_t count[], const struct mp_laer_costs *costs);
