/* Plan: everything a system decided for one layer of one iteration, as data, beside what it has
 * settled for the whole run (policy.h).
 *
 * A system fills plans and moves no byte; the trainer carries them out with real numbers, the
 * predictor in model time.  mp_plan_check (plan_check.h) is the law that every plan obeys. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "reference/base/error.h"
#include "reference/plan/load.h"
#include "reference/plan/named.h"
#include "reference/plan/placement.h"
#include "reference/plan/policy.h"
#include "reference/plan/topology.h"
#include "reference/schedule/exchange/exchange.h"

/* When a transfer happens, that is, what it may overlap with. */
enum mp_stage {
    MP_STAGE_BEFORE_GATE,       /* under the attention of the same layer */
    MP_STAGE_AFTER_GATE,        /* exposed: the loads are known, the experts wait */
    MP_STAGE_BACKWARD_PREFETCH, /* under backward: again for that of the layer below, or ahead, for
                                   the next iteration */
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
    /* The expert comes into its node at the rank with the copy, and its gradient leaves it there;
     * without any in a node, both go by its number (reference/schedule/hops.h). */
    bool enters;
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
/* Makes room for so many transfers in all.  MP_ENOMEM. */
int mp_transfers_reserve(struct mp_transfers *list, int64_t count, struct mp_error *error);
void mp_transfers_destroy(struct mp_transfers *list);

/* Part of the routes of one (source, expert): `count` of them go to each of `run` holders of the
 * expert, those at plan.holder[first] .. plan.holder[first + run - 1].  Runs keep a dispatch small
 * when an expert has many holders. */
struct mp_dispatch_part {
    int32_t first;
    int32_t run;
    uint32_t count;
};

/* Working memory of the shared dispatch rules: the holders that an expert's routes are split over.
 */
struct mp_dispatch_window {
    int32_t first;       /* in plan.holder */
    int32_t candidates;  /* how many from there on */
    int32_t start;       /* candidate that gets one more route first */
    int32_t local;       /* the next holder that has not been a source, in plan.holder */
    int32_t local_rank;  /* which rank that is, or one too many */
    uint64_t reciprocal; /* of candidates */
};

struct mp_plan {
    const struct mp_policy *policy; /* of the run; borrowed */
    int64_t iteration;
    int micro_batch; /* of the iteration */
    int layer;
    int experts;
    int64_t expert_bytes;   /* parameters of one expert, bytes */
    int64_t gradient_bytes; /* their gradient; as many unless whoever creates the plan says more */
    struct mp_topology topology;

    struct mp_arena memory;     /* of all tables but lists that grow */
    struct mp_placement before; /* owners, and holders that persist between iterations */
    struct mp_placement during; /* before plus what fetch adds; always a superset */
    /* spAG: owner -> extra holder, parameters; those of MP_STAGE_BACKWARD_PREFETCH are here since
     * the iteration, or the micro-batch, before. */
    struct mp_transfers fetch;
    struct mp_transfers reduce; /* spRS: extra holder -> owner, gradients */
    struct mp_transfers share;  /* owner -> tied replica, summed gradients, after reduce */
    /* Owner -> rank: updated parameters for the next iteration, with policy.updates_early. */
    struct mp_transfers ahead;
    /* The owners, and the ranks to which the iteration before has sent parameters ahead.  NULL: to
     * nobody; borrowed from whoever begins the plan. */
    const struct mp_placement *kept;
    /* With policy.copies_stay, copies of the micro-batch before: the plan begins with them.  NULL:
     * none; borrowed from whoever begins the plan. */
    const struct mp_transfers *stayed;
    /* Homes that tied replicas are on their way to (rehome.h: asynchronous), whose ranks share the
     * sums, too.  NULL: none; borrowed. */
    const struct mp_placement *coming;

    /* Holders of every expert in `during`, ascending: those of expert e are
     * holder[holder_begin[e]] .. holder[holder_begin[e + 1] - 1].  Listed when dispatch begins. */
    int32_t *holder_begin; /* [experts + 1] */
    int32_t *holder;       /* owned; grows by doubling, never shrinks */
    int64_t holder_capacity;

    /* Dispatch in compressed rows: the parts of (source s, expert e) are
     * part[part_begin[s * experts + e]] .. part[part_begin[s * experts + e + 1] - 1], in the order
     * in which routes are handed out.  Routes that no part covers are dropped. */
    int64_t *part_begin;           /* [ranks * experts + 1] */
    struct mp_dispatch_part *part; /* [part_capacity], owned; grows by doubling, never shrinks */
    int64_t part_capacity;
    int64_t pair; /* source * experts + expert that dispatch is being written for */
    struct mp_dispatch_window *window; /* [experts] */
    int32_t *owner_place;              /* [experts], the owners in holder; working memory */

    int64_t *capacity;       /* [experts] most routes of an expert over all sources; -1: no limit */
    int64_t source_capacity; /* most routes of one (source, expert); -1: no limit */
    /* The same where no holder is in the source's node; -1: source_capacity. */
    int64_t outside_capacity;
    /* Rows that every (source, expert) takes in the exchange and in computing, whatever its load;
     * the rows without a token are zeros.  0: exact.  Then every pair has one part with one holder,
     * which may have count 0. */
    int64_t padding;
    enum mp_exchange_kind exchange; /* how rows travel; padded if padding > 0 */
    int group_size;                 /* of an exchange in steps: divides the ranks */
    /* Of one that deduplicates: sizes of groups of neighbouring ranks inside one another, outermost
     * first, to each of which a token's row goes once, and from the last of them to ranks; 0: no
     * more.  Each one of at least 2 ranks divides the one around it.  None: nodes. */
    int level_size[MP_MOST_LEVELS - 1];
    int degree; /* chunks that rows are cut into, each a step: 1 .. MP_MOST_DEGREE (exchange.h) */
    /* [ranks][degree][experts] how many of a source's routes to an expert are of the tokens of each
     * chunk, for whoever carries the plan out where chunks are of tokens; set once that is known,
     * after the gate.  NULL: not known, or blocks are cut; borrowed. */
    const uint32_t *chunk_routes;
    /* [places of holder] in which chunk all rows to a place travel (chunks.h); NULL: the rows of
     * every pair are cut; borrowed. */
    const uint8_t *place_chunk;
};

/* Of `rows` of a (source, expert) to a place of plan.holder, handed out behind `before` others,
 * those in a chunk. */
static inline int64_t mp_plan_chunk(const struct mp_plan *plan, int source, int expert,
                                    int32_t place, int64_t before, int64_t rows, int chunk) {
    if (plan->place_chunk)
        return plan->place_chunk[place] == chunk ? rows : 0;
    if (!plan->chunk_routes)
        return mp_exchange_chunk(rows, plan->degree, chunk);
    const uint32_t *routes =
        plan->chunk_routes + ((int64_t)source * plan->degree * plan->experts + expert);
    int64_t begin = 0, end = before + rows;
    for (; chunk > 0; chunk--, routes += plan->experts)
        begin += *routes;
    end = begin + *routes < end ? begin + *routes : end;
    begin = begin > before ? begin : before;
    return end > begin ? end - begin : 0;
}

/* Groups of an exchange that deduplicates, and ranks. */
static inline struct mp_levels mp_plan_token_levels(const struct mp_plan *plan) {
    struct mp_levels levels = mp_levels_of_ranks(plan->topology.ranks);
    mp_levels_add(&levels,
                  plan->level_size[0] ? plan->level_size[0] : plan->topology.ranks_per_node);
    for (int i = 1; i < MP_MOST_LEVELS - 1 && plan->level_size[i]; i++)
        mp_levels_add(&levels, plan->level_size[i]);
    return levels;
}

/* When parameters are put together from slices. */
static inline enum mp_stage mp_plan_gather_stage(const struct mp_plan *plan) {
    return plan->policy->gather_before_gate ? MP_STAGE_BEFORE_GATE : MP_STAGE_AFTER_STEP;
}

/* An empty plan: before = during = mp_placement_create's, nothing moves, nothing dispatched.  Its
 * policy is mp_policy_plain unless whoever creates it says another one. */
int mp_plan_create(const struct mp_topology *topology, int experts, int64_t expert_bytes,
                   struct mp_plan *plan, struct mp_error *error);
void mp_plan_destroy(struct mp_plan *plan); /* accepts NULL and a zeroed plan */
/* Makes room for as many transfers of each list, for every rank as a holder of every expert and for
 * some runs per pair, so that lists need not grow during a step.  MP_ENOMEM. */
int mp_plan_reserve(struct mp_plan *plan, int transfers, struct mp_error *error);

/* Starts the plan of a layer and iteration: before = `home`, no fetches but what has `stayed`,
 * nothing sent ahead, no parts, no capacity, flat exact exchange of degree 1, no chunk_routes, no
 * place_chunk; `micro_batch`, `kept` and `stayed` are as they were set.  With tied replicas, or
 * slices of a sum, reduce and share get every holder beside the owner.  MP_ENOMEM. */
int mp_plan_begin(struct mp_plan *plan, int64_t iteration, int layer,
                  const struct mp_placement *home, struct mp_error *error);

/* Adds a copy: `rank` becomes a holder in `during`, fetch gets owner -> rank in this stage and
 * reduce gets rank -> owner in MP_STAGE_BACKWARD_REDUCE, so that spAG and spRS stay each other's
 * inverse.  What is to be there before the gate and was sent ahead is fetched no more: its stage is
 * MP_STAGE_BACKWARD_PREFETCH.  MP_EINVAL if the rank holds the expert already or the optimizer is
 * sliced; MP_ENOMEM. */
int mp_plan_add_copy(struct mp_plan *plan, int expert, int rank, enum mp_stage stage,
                     struct mp_error *error);
/* The same, and the expert comes into the rank's node there, and its gradient leaves it. */
int mp_plan_add_entry(struct mp_plan *plan, int expert, int rank, enum mp_stage stage,
                      struct mp_error *error);
/* The same from another rank that has it by then: after the gate, from one that holds it before. */
int mp_plan_add_copy_from(struct mp_plan *plan, int expert, int from, int rank, enum mp_stage stage,
                          struct mp_error *error);
/* Whether a rank that is not the expert's owner has had it sent ahead. */
bool mp_plan_keeps(const struct mp_plan *plan, int expert, int rank);
/* Sends a rank, not the owner, the expert once it has been updated, through the node's entry there.
 * MP_ENOMEM. */
int mp_plan_send_ahead(struct mp_plan *plan, int expert, int rank, struct mp_error *error);

/* Which holder of `during` sends `rank` its slice of an expert's gradient sum: the rank itself if
 * it holds the expert, otherwise holder number rank mod n of the n holders, ascending (SYMI,
 * section 4).  The holders must have been listed. */
int mp_plan_slice_source(const struct mp_plan *plan, int expert, int rank);

/* Dispatch is written source by source, expert by expert, in ascending order, each (source,
 * expert) exactly once: begin, then for each pair zero or more parts followed by end_pair.  No
 * holder is added after begin, which lists them.  Errors: MP_ENOMEM, MP_EPLAN for an expert without
 * a holder, MP_EINVAL for a rank that does not hold the expert. */
int mp_plan_dispatch_begin(struct mp_plan *plan, struct mp_error *error);
/* `count` routes to one rank.  Count 0 is ignored unless plan.padding > 0. */
int mp_plan_dispatch_part(struct mp_plan *plan, int rank, uint32_t count, struct mp_error *error);
/* `count` routes to each of `run` holders from plan.holder[first] on; see mp_dispatch_part. */
int mp_plan_dispatch_run(struct mp_plan *plan, int32_t first, int32_t run, uint32_t count,
                         struct mp_error *error);
void mp_plan_dispatch_end_pair(struct mp_plan *plan);
/* To tell from plans of other ranks: who holds which expert, what is sent when, and who computes
 * which routes.  Once they are dispatched. */
uint64_t mp_plan_digest(const struct mp_plan *plan);

/* Every route that a source's capacity leaves goes to its expert's owner: plain expert parallelism.
 */
int mp_plan_dispatch_to_owner(struct mp_plan *plan, const struct mp_load *load,
                              struct mp_error *error);

/* Topology-aware dispatch (Hecate, section 4): local; else evenly over the holders of the
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

/* Most routes of (source, expert); -1: no limit. */
int64_t mp_plan_source_capacity(const struct mp_plan *plan, int source, int expert);
/* With `overlaid` rows, of a pair with so many first and second choices: those with a token. */
int64_t mp_plan_overlaid_rows(int64_t first, int64_t second, int64_t rows);
/* Routes of (source, expert) that its capacity leaves, or with overlaid rows those with a token. */
static inline int64_t mp_plan_kept(const struct mp_plan *plan, const struct mp_load *load,
                                   int source, int expert) {
    int64_t routes = mp_load_at(load, source, expert), most = plan->source_capacity;
    if (plan->policy->overlaid && load->first) {
        int64_t first = load->first[(int64_t)source * load->experts + expert];
        return mp_plan_overlaid_rows(first, routes - first, plan->padding);
    }
    if (plan->outside_capacity >= 0)
        most = mp_plan_source_capacity(plan, source, expert);
    return most >= 0 && most < routes ? most : routes;
}

/* Place of a rank in plan.holder among the holders of an expert, or -1. */
int mp_plan_holder_index(const struct mp_plan *plan, int expert, int rank);

/* Routes of (source, expert) that go to `rank`. */
int64_t mp_plan_routes_to(const struct mp_plan *plan, int source, int expert, int rank);

/* Totals of a plan, as kept with the run.  Bytes are those of the fetch, reduce and share lists by
 * stage, and with slices what travels to put parameters together and gradients apart; with
 * `rematerialise` the fetched bytes count a second time, under MP_STAGE_BACKWARD_PREFETCH.
 * Routes come from the dispatch; `load` says how many there were before drops and may be NULL (then
 * routes_dropped is 0). */
struct mp_plan_facts {
    int copies;              /* holders in `during` beside the owner */
    int largest_rank_copies; /* the most of them on one rank */
    int64_t bytes[MP_STAGES];
    int64_t bytes_host; /* over ranks' links to their hosts, with `offload` */
    int64_t routes, routes_local, routes_in_node, routes_between_nodes, routes_dropped;
    int64_t rows_padded; /* rows without a token that are sent and computed */
};
void mp_plan_facts(const struct mp_plan *plan, const struct mp_load *load,
                   struct mp_plan_facts *facts);
/* Those that are recorded of every layer and iteration. */
extern const struct mp_named_number mp_plan_fact_names[];
