/* Slots: room for one expert's parameters on a rank (FlexMoE's vExperts, the expert slots of SYMI,
 * EPLB's physical experts, FSEP's capacity C).
 *
 * Every rank has the same number of slots per layer.  A rank may have one expert in several of its
 * slots: parameters are there once, but the expert's tokens are spread over slots, so that this
 * rank gets a share for each. */
#pragma once

#include "reference/base/arena.h"
#include "reference/plan/system.h"

/* Neighbouring holders of one expert with equally many slots for it. */
struct mp_slot_group {
    int32_t slot;   /* first, as an index into rank[] */
    int32_t holder; /* first, counted from the expert's first holder */
    int32_t holders;
    int32_t each; /* slots on every one of them */
};

/* The slots that an expert's routes are spread over at the moment, and how they lie: working memory
 * of mp_plan_dispatch_slots. */
enum mp_stretch_shape {
    MP_STRETCH_MANY,  /* anything */
    MP_STRETCH_RANK,  /* all on one rank */
    MP_STRETCH_PLAIN, /* one on each of its ranks */
    MP_STRETCH_FEW,   /* on at most MP_FEW_HOLDERS ranks */
    MP_STRETCH_BAND   /* equally many on each of its ranks but the first and the last */
};
enum { MP_FEW_HOLDERS = 4 };
struct mp_slot_stretch {
    enum mp_stretch_shape shape;
    int32_t slot;        /* first, as an index into rank[] */
    int32_t slots;       /* how many from there on */
    int32_t start;       /* the one that gets a route more first, counted from the first */
    int32_t group;       /* first */
    int32_t holder;      /* first, counted from the expert's first holder */
    bool of_node;        /* groups are those of the node */
    uint64_t reciprocal; /* of slots */
    /* Of a band: slots on its first and last rank if these have another number, otherwise 0; the
     * ranks between, and slots on each of them. */
    int32_t head, tail, body, per_rank;
    uint64_t reciprocal_per_rank;
    /* Of few holders: how many, and one past the last slot of each, counted from the first. */
    int32_t holders, end[MP_FEW_HOLDERS];
};

struct mp_slots {
    int ranks, experts, per_rank;
    int32_t *expert; /* [ranks][per_rank], -1: empty; owned, for the planner to fill */
    /* What mp_slots_index makes of it: the slots of expert e are rank[begin[e]] ..
     * rank[begin[e + 1] - 1], ascending, a rank once per slot. */
    int32_t *begin;                   /* [experts + 1], owned */
    int32_t *rank;                    /* [ranks * per_rank], owned */
    int32_t *group_begin;             /* [experts + 1], owned */
    struct mp_slot_group *group;      /* [ranks * per_rank], owned */
    int32_t *group_of;                /* [ranks * per_rank], of every slot in rank[]; owned */
    int32_t *node_group_begin;        /* [experts + 1], owned */
    struct mp_slot_group *node_group; /* [ranks * per_rank], likewise, ending with nodes; owned */
    struct mp_slot_stretch *stretch;  /* [experts] working memory, owned */
    int32_t *next;                    /* [experts + 1] working memory, owned */
    int64_t *turn;                    /* [experts] working memory, owned */
};

/* All empty; no more than INT32_MAX.  Tables are the arena's, whose user looks whether there was
 * memory. */
void mp_slots_create(struct mp_arena *memory, int ranks, int experts, int per_rank,
                     struct mp_slots *slots);
/* Call it whenever expert[] has changed.  `ranks_per_node` > 0 also makes the groups that end where
 * nodes end, as MP_SPREAD_NODE needs; 0 otherwise. */
void mp_slots_index(struct mp_slots *slots, int ranks_per_node);
static inline int mp_slots_of(const struct mp_slots *slots, int expert) {
    return slots->begin[expert + 1] - slots->begin[expert];
}

/* Makes the ranks with a slot of an expert its holders.  Its owner stays if it is one of them, and
 * otherwise is the lowest.  MP_EPLAN if an expert has no slot. */
int mp_slots_homes(const struct mp_slots *slots, struct mp_placement *home, struct mp_error *error);

/* Routes that one slot may take when `factor` times its even share is the limit (SYMI):
 * floor(factor * tokens * k / slots), tokens and slots over all ranks, in this order of operations;
 * -1 with factor 0: no limit. */
int64_t mp_slot_capacity(const struct mp_setting *setting, int per_rank, double factor);
/* Every expert's capacity for MP_SPREAD_TURN: that of a slot times its slots; none if that is -1.
 */
void mp_plan_slot_capacities(struct mp_plan *plan, const struct mp_slots *slots,
                             int64_t slot_capacity);

/* How an expert's routes are spread over its slots. */
enum mp_spread {
    /* Route j of an expert, counted over all sources in ascending order, goes to slot j mod n:
     * slots get equally many, give or take one.  With plan.capacity the first routes are kept
     * (SYMI). */
    MP_SPREAD_TURN,
    /* Every source for itself: m / n routes each, and for i < m mod n the slot (source + i) mod n
     * one more. */
    MP_SPREAD_SOURCE,
    /* Over the slots of the source's node, if it has any, otherwise over all; every source for
     * itself, what is left over one by one from the first slot on (FSEP's lite routing). */
    MP_SPREAD_NODE
};

/* Fills the plan's dispatch.  Every rank with a slot of an expert must hold it in `during`, and no
 * other rank.  Respects plan.capacity under MP_SPREAD_TURN only.  Errors: MP_ENOMEM, MP_EPLAN
 * (holders and slots differ). */
int mp_plan_dispatch_slots(struct mp_plan *plan, const struct mp_load *load, struct mp_slots *slots,
                           enum mp_spread spread, struct mp_error *error);
