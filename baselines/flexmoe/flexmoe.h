/* FlexMoE: replicated experts that follow the load (SIGMOD 2023, arXiv 2304.03946).
 *
 * Every rank has some slots per layer ("vExperts").  An expert has one slot or several, its tokens
 * are spread evenly over them, and the ranks that have one keep parameters and optimizer state:
 * tied replicas.  Every `interval` iterations layers out of balance are re-planned with three
 * primitives: Expand (one more slot for an expert), Shrink (one less), Migrate (two slots change
 * places).  Optimizer state travels with replicas.
 *   layout.c       slots of a layer while it is planned, primitives, what they cost
 *   cost_policy.c  the paper's policy, as far as it is known
 *   laer_policy.c  the variant that LAER-MoE was measured against
 *   flexmoe.c      layouts between iterations, options and the descriptor
 *
 * The authors published no code, and the paper is known here from others' descriptions.  Decisions:
 * - Slots per rank: 2 * experts / ranks, rounded up.  Experts are owned contiguously; at first a
 * rank has the experts that it owns and, in its other slots, those that follow in turn (without any
 * of its own it begins with the last one owned before it), so that slots per expert differ little.
 * - Tokens: route j of an expert, over all sources, goes to slot j mod n (MP_SPREAD_TURN).  Slots
 *   then differ by one route at most, whatever the sources send.
 * - Loads: those of the iteration that has just ended.
 * - Trigger: largest over mean load of a rank above `threshold`; 1.2 is one re-implementer's
 * choice.
 * - Interval: 50 iterations.  SYMI reports that the threshold amounts to 50 to 100.
 * - Cost, seconds of one iteration of a layer, from figures of mp_setting:
 *       T_C    = 3 seconds_per_route * largest load of a rank   (forward, and backward as two)
 *       T_A2A  = 4 route_bytes / bandwidth * most routes that a rank sends or receives
 *       T_Sync = sum over experts of 2 (g - 1) gradient_bytes / bandwidth / ranks
 *   for g ranks with the expert: an all-reduce among g sends 2 (g - 1) times its bytes.  It is a
 * mean over ranks, since experts without a common rank synchronise at the same time.  Where a model
 * serves it is 1 and 2 instead of 3 and 4, and nothing is synchronised.
 * - A round takes steps, at most one per slot of each kind:
 *   1. relief of the busiest rank, the one with the most T_C + T_A2A of its own, by an Expand with
 *      the Shrink of the expert whose slot it takes, or by a Migrate that gives a smaller share for
 *      a larger one.  Tried are all slots for the experts of the busiest rank, all experts for its
 *      slots, and all slots elsewhere in exchange for its own.  Taken is the step after which the
 *      busiest of the ranks concerned, with what T_Sync gains, has least to do, and less than the
 *      busiest had;
 *   2. the pair that others describe: Expand of the expert with the largest share, Shrink of the
 * one with the least, on the rank that then has least to do, while that evens shares out;
 *   3. relief by Migrates alone, which leaves slots per expert as they are.
 *   A step need not let T fall: another rank may be as busy, a slot more may pay only after the
 * next Migrate.  The round goes back to where T was least.  Then come all Migrates, in order of
 * experts and slots, that let T_Sync and T fall.  A round that leaves T where it was is the last.
 * A rank may have several slots of an expert.
 * - A layer of 64 experts on 32 ranks whose loads are all others is planned in about 10 million
 *   instructions (2 ms), at most once per interval.
 * - What the move itself costs is not in T.
 * - Moves are asynchronous (rehome.h) and do what they can in one iteration: it runs on the old
 *   layout, and waits before its update for what has not arrived by then.  So that this is little,
 *   and since what arrives needs room beside what is in use, layers take turns: one after each of
 *   an interval's last iterations, or several where an interval has fewer iterations.  With
 *   `moves: exposed` all layers change after an interval's last step, and ranks wait.
 * - They share the background lane with gradients.  A lane of their own could win what they hold up
 *   at most: predicted with moves that take no time at all, iterations' mean was 0.00 to 0.31 %
 *   shorter on five of six settings (clusters hecate-a, hecate-b, h100, swiftmoe, every 10 and 50
 *   iterations) and 0.81 % with twice as wide experts on hecate-a.
 * - With `offload-optimizer` parameters and state of every replica lie in host memory, as where
 * SYMI compared with it (arXiv 2504.19925: FlexMoE on SYMI, state tied to the expert), and moves
 * take them from host to host.
 * - Nothing is dropped; with a capacity factor a slot takes so much of its even share of all
 * routes, as in the version that SYMI was measured against.
 * - LAER-MoE's variant acts only where experts have more slots than there are nodes.
 * - Planning counts in 1 / 65536 routes, in integers: shares are rounded down. */
#pragma once

#include "reference/base/arena.h"
#include "reference/plan/system.h"

enum mp_flexmoe_policy { MP_FLEXMOE_COST_MODEL, MP_FLEXMOE_LAER };
enum mp_flexmoe_moves { MP_FLEXMOE_ASYNCHRONOUS, MP_FLEXMOE_EXPOSED };

/* Named in the option table of flexmoe.c. */
struct mp_flexmoe_options {
    int policy; /* enum mp_flexmoe_policy */
    int slots;  /* per rank and layer, or MP_AUTO */
    int interval, rounds;
    double threshold;
    double capacity_factor; /* 0: nothing is dropped */
    int moves;              /* enum mp_flexmoe_moves */
    bool offload;
};

/* Factors of T. */
struct mp_flex_costs {
    double route;   /* one route more on the rank with the most, s */
    double row;     /* one route more across the border of the rank with the most, s */
    double replica; /* one more rank for an expert, s */
};
struct mp_flex_costs mp_flex_costs(const struct mp_setting *setting);

/* Loads are counted in parts of a route. */
enum { MP_FLEX_UNIT_BITS = 16 };

/* The slots of one layer while it is planned. */
struct mp_flex {
    int ranks, experts, per_rank;
    const struct mp_load *source; /* borrowed, as given to mp_flex_begin */
    int32_t *expert;              /* [ranks][per_rank], -1: empty */
    int32_t *slots;               /* [experts], slots of an expert */
    int32_t *here;                /* [ranks][experts], of them on a rank */
    int32_t *holders;             /* [experts], ranks with one */
    int64_t *routes;              /* [experts], over all sources */
    int64_t *sent;                /* [ranks], all routes of a source, in units */
    int64_t *share;               /* [experts], units that each slot of an expert gets */
    double *inverse;              /* [ranks * per_rank + 2], of a number of slots; of 0: 0 */
    int64_t replicas;             /* sum over experts of holders - 1 */
    /* What mp_flex_measure makes of it, in units. */
    int64_t *load;  /* [ranks], computed */
    int64_t *local; /* [ranks], of it the rank's own */
    /* What mp_flex_index makes of it: slots by expert, ascending; the last list has the empty ones.
     */
    int32_t *begin;  /* [experts + 2] */
    int32_t *listed; /* [ranks * per_rank] */
    int32_t *next;   /* [experts + 1] working memory */
    int32_t *kept;   /* [ranks * per_rank], slots to go back to */
};
/* Tables are the arena's, whose user looks whether there was memory. */
void mp_flex_create(struct mp_arena *memory, int ranks, int experts, int per_rank,
                    struct mp_flex *flex);

/* Starts with these slots, [ranks][per_rank], and these loads, and measures. */
void mp_flex_begin(struct mp_flex *flex, const int32_t expert[], const struct mp_load *load);

/* The primitives; slots are indices into flex->expert.  They keep slots, holders, replicas and
 * shares; loads and lists are those of the last measure and index. */
void mp_flex_expand(struct mp_flex *flex, int expert, int slot); /* of an empty slot */
void mp_flex_shrink(struct mp_flex *flex, int slot);             /* empties it */
void mp_flex_migrate(struct mp_flex *flex, int one, int other);  /* exchanges what they have */

static inline int mp_flex_here(const struct mp_flex *flex, int rank, int expert) {
    return flex->here[(int64_t)rank * flex->experts + expert];
}
void mp_flex_measure(struct mp_flex *flex);
void mp_flex_index(struct mp_flex *flex);
/* Units of a rank's own routes in one slot of an expert on it. */
static inline int64_t mp_flex_own(const struct mp_flex *flex, int rank, int expert) {
    return ((int64_t)mp_load_at(flex->source, rank, expert) << MP_FLEX_UNIT_BITS) /
           flex->slots[expert];
}
/* Units that a rank of this load sends or receives, whatever is more. */
static inline int64_t mp_flex_traffic(const struct mp_flex *flex, int rank, int64_t load,
                                      int64_t local) {
    return (load > flex->sent[rank] ? load : flex->sent[rank]) - local;
}
/* T for the largest load and traffic of a rank, in units, and so many replicas. */
static inline double mp_flex_time(const struct mp_flex_costs *costs, double load, double traffic,
                                  int64_t replicas) {
    const double unit = 1.0 / (1 << MP_FLEX_UNIT_BITS);
    return costs->route * unit * load + costs->row * unit * traffic +
           costs->replica * (double)replicas;
}
/* T of the loads last measured. */
double mp_flex_cost(const struct mp_flex *flex, const struct mp_flex_costs *costs);
/* By more than rounding. */
static inline bool mp_flex_falls(double now, double before) {
    return now < before * (1 - 1e-12);
}

/* The slots as they are now to `kept`; and back, measured. */
void mp_flex_keep(struct mp_flex *flex);
void mp_flex_go_back(struct mp_flex *flex);

/* One round; whether T fell.  Measured before and after. */
bool mp_flex_cost_round(struct mp_flex *flex, const struct mp_flex_costs *costs);
/* Rounds while the largest load of a rank is above threshold times the mean.  Returns the rounds
 * that changed something. */
int mp_flex_cost_policy(struct mp_flex *flex, const struct mp_flex_costs *costs, double threshold,
                        int rounds);

/* FLEX of LAER-MoE: while largest and least load of a rank differ, at most
 * `rounds`:  `high` is the expert with the largest share, `low` the one with the least of those
 * with more slots than there are nodes.  On each node, `low` gives up a slot on the least loaded
 * rank that has one.  If a rank of the node has `high` (and another expert as well), then its
 * heaviest other expert moves into that slot and `high` takes its place; otherwise `high` takes the
 * slot.  The round stays if the largest load falls, or largest over least; otherwise it is undone
 * and the last. Returns the rounds that stayed.  Open in the source: loads and shares are those at
 * the beginning of the round; nodes without `low` sit it out; ties go to lower ids; with `high` on
 * several ranks of a node the lowest gets it. */
int mp_flex_laer_policy(struct mp_flex *flex, int ranks_per_node, int rounds);
