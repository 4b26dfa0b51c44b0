/* Plan: everything a system decided for one layer of one iteration, as data.
 *
 * A system fills plans and moves no byte; the trainer carries them out with real numbers, the
 * predictor in model time.  mp_plan_check (plan_check.h) is the law that every plan obeys. */
#ifndef MOEPERF_REFERENCE_PLAN_PLAN_H
#define MOEPERF_REFERENCE_PLAN_PLAN_H

#include <stdbool.h>
#include <stdint.h>

#include "reference/base/error.h"
#include "reference/plan/load.h"
#include "reference/plan/placement.h"
#include "reference/plan/topology.h"

/* When a transfer happens, that is, what it may overlap with. */
enum mp_stage {
    MP_STAGE_BEFORE_GATE,       /* under the attention of the same layer */
    MP_STAGE_AFTER_GATE,        /* exposed: the loads are known, the experts wait */
    MP_STAGE_BACKWARD_PREFETCH, /* under the backward of the layer above */
    MP_STAGE_BACKWARD_REDUCE,   /* under the backward of the attention below */
    MP_STAGE_AFTER_STEP,        /* after the optimizer: exposed unless declared asynchronous */
    MP_STAGES
};
const char *mp_stage_name(enum mp_stage stage); /* "before-gate", ... */

/* One expert's parameters (fetch), gradient (reduce) or parameters and optimizer state (move)
 * travel from one rank to another.  Layer is the plan's, except in a move list over all layers. */
struct mp_transfer {
    int32_t layer;
    int32_t expert;
    int32_t from;
    int32_t to;
    int64_t bytes;
    enum mp_stage stage;
};

/* A list that keeps its memory between iterations: it grows by doubling and never shrinks, so a
 * step in the steady state allocates nothing. */
struct mp_transfers {
    struct mp_transfer *item; /* [count], owned */
    int count;
    int capacity;
};
int mp_transfers_add(struct mp_transfers *list, struct mp_transfer transfer,
                     struct mp_error *error); /* MP_ENOMEM */
void mp_transfers_destroy(struct mp_transfers *list);

/* How the tokens travel. */
enum mp_exchange_kind {
    MP_EXCHANGE_FLAT, /* one exact all-to-all-v */
    MP_EXCHANGE_KINDS
};

/* How optimizer state is split. */
enum mp_optimizer_split {
    MP_OPTIMIZER_OWNER, /* the owner keeps all of it */
    MP_OPTIMIZER_SPLITS
};

/* Part of the routes of one (source, expert): `count` of them go to `holder`. */
struct mp_dispatch_part {
    int32_t holder;
    uint32_t count;
};

struct mp_plan {
    int64_t iteration;
    int layer;
    int experts;
    int64_t expert_bytes; /* parameters of one expert, bytes */
    struct mp_topology topology;

    struct mp_placement before; /* owners, and holders that persist between iterations */
    struct mp_placement during; /* before plus what fetch adds; always a superset */
    struct mp_transfers fetch;  /* spAG: owner -> extra holder, parameters */
    struct mp_transfers reduce; /* spRS: extra holder -> owner, gradients */
    /* Copies are freed after forward and fetched again for backward.  The same in all plans of a
     * run, since memory is laid out for it. */
    bool rematerialise;

    /* Dispatch in compressed rows: the parts of (source s, expert e) are
     * part[part_begin[s * experts + e]] .. part[part_begin[s * experts + e + 1] - 1], holders in
     * the order in which rows are handed out.  Routes that no part covers are dropped. */
    int64_t *part_begin;           /* [ranks * experts + 1], owned */
    struct mp_dispatch_part *part; /* [part_capacity], owned; grows by doubling, never shrinks */
    int64_t part_capacity;
    int64_t pair;         /* source * experts + expert that dispatch is being written for */
    int32_t *holder_list; /* working memory of mp_plan_dispatch_nearest, owned */
    int64_t holder_list_capacity;

    int64_t capacity; /* routes per expert above which routes are dropped; 0: no limit */
    enum mp_exchange_kind exchange;
    enum mp_optimizer_split optimizer;
};

/* An empty plan: before = during = mp_placement_create's, nothing moves, nothing dispatched. */
int mp_plan_create(const struct mp_topology *topology, int experts, int64_t expert_bytes,
                   struct mp_plan *plan, struct mp_error *error);
void mp_plan_destroy(struct mp_plan *plan); /* accepts NULL and a zeroed plan */

/* Starts the plan of a layer and iteration: before = during = owners only, no transfers, no parts,
 * no capacity, no re-materialisation, flat exchange, owner optimizer.  owner is [experts]. */
void mp_plan_begin(struct mp_plan *plan, int64_t iteration, int layer, const int32_t owner[]);

/* Adds a copy: `rank` becomes a holder in `during`, fetch gets owner -> rank in this stage and
 * reduce gets rank -> owner in MP_STAGE_BACKWARD_REDUCE, so that spAG and spRS stay each other's
 * inverse.  MP_EINVAL if the rank holds the expert already; MP_ENOMEM. */
int mp_plan_add_copy(struct mp_plan *plan, int expert, int rank, enum mp_stage stage,
                     struct mp_error *error);

/* Dispatch is written source by source, expert by expert, in ascending order, each (source,
 * expert) exactly once: begin, then for each pair zero or more parts followed by end_pair. */
void mp_plan_dispatch_begin(struct mp_plan *plan);
int mp_plan_dispatch_part(struct mp_plan *plan, int holder, uint32_t count,
                          struct mp_error *error); /* count 0 is ignored; MP_ENOMEM */
void mp_plan_dispatch_end_pair(struct mp_plan *plan);

/* Every route goes to its expert's owner: plain expert parallelism. */
int mp_plan_dispatch_to_owner(struct mp_plan *plan, const struct mp_load *load,
                              struct mp_error *error);

/* Topology-aware dispatch of Hecate (systems.md 1.9): local; else evenly over the holders of the
 * same node; else evenly over all holders.  n routes over q candidates: n / q each, and for
 * i < n mod q the candidate (source + i) mod q one more. */
int mp_plan_dispatch_nearest(struct mp_plan *plan, const struct mp_load *load,
                             struct mp_error *error);

/* The parts of (source, expert). */
static inline const struct mp_dispatch_part *mp_plan_parts(const struct mp_plan *plan, int source,
                                                           int expert, int *count) {
    const int64_t *begin = &plan->part_begin[(int64_t)source * plan->experts + expert];
    *count = (int)(begin[1] - begin[0]);
    return &plan->part[begin[0]];
}

/* What the dispatch means for ranks; any of the outputs may be NULL.  All are [ranks], routes.
 *   computed   routes that rank r computes
 *   sent       routes of r computed elsewhere (crossing its border outwards)
 *   received   routes computed on r that come from elsewhere */
void mp_plan_rank_routes(const struct mp_plan *plan, int64_t computed[], int64_t sent[],
                         int64_t received[]);

/* Totals of a plan, as kept with the run.  Bytes are those of the fetch and reduce lists by stage;
 * with `rematerialise` the fetched bytes count a second time, under MP_STAGE_BACKWARD_PREFETCH.
 * Routes come from the dispatch; `load` says how many there were before drops and may be NULL (then
 * routes_dropped is 0). */
struct mp_plan_facts {
    int copies;              /* extra copies in `during` */
    int largest_rank_copies; /* the most extra copies on one rank */
    int64_t bytes[MP_STAGES];
    int64_t routes, routes_local, routes_in_node, routes_between_nodes, routes_dropped;
};
void mp_plan_facts(const struct mp_plan *plan, const struct mp_load *load,
                   struct mp_plan_facts *facts);

#endif
