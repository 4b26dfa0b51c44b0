/* Planner: a system at work, from its first homes on.
 *
 * Whoever carries plans out (the trainer, the predictor, what-ifs) asks one planner: begin a layer
 * before its gate, end it with its load, and after the step take over the homes that the system
 * wants.  It calls the system's functions in the order of system.h, holds what they make against
 * the law if asked to, and keeps what lives between calls. */
#pragma once

#include "reference/plan/plan_check.h"
#include "reference/plan/system.h"

/* What travels of an expert that gets a new home, B. */
struct mp_move_bytes {
    int64_t parameters; /* always */
    int64_t state;      /* of the optimizer, unless it stays (rehome.h: leave_state) */
};

struct mp_planner_config {
    const struct mp_system *system;
    const void *options; /* of the system, parsed; borrowed during create only */
    const struct mp_setting *setting;
    int64_t gradient_bytes; /* of an expert in plans; 0: as many as setting->expert_bytes */
    struct mp_move_bytes move;
    /* Every layer has a plan of its own, which lasts until the layer is planned again, and there is
     * room for all transfers and moves that may come, so that no step allocates.  Otherwise all
     * layers share one plan, and lists grow. */
    bool keeps_plans;
    bool check_plans; /* hold plans and homes against the law; debug builds always do */
};

/* Users read all of it, and write into `home` alone, while experts move one after the other. */
struct mp_planner {
    struct mp_arena memory; /* of homes and the table of plans */
    const struct mp_system *system;
    void *self; /* the system's state: for its save and load */
    struct mp_setting setting;
    struct mp_plan_law law;
    bool check_plans;
    struct mp_policy policy; /* all plans point to it, so that a planner stays where it is */
    /* Most experts over all layers that a rank keeps between iterations, replicas included: what
     * the system says, otherwise the larger of an even share and what the first homes need.  With a
     * sliced optimizer: most holders of one layer on a rank. */
    int homes_limit;
    struct mp_placement *home; /* [layers] who keeps what between iterations */
    struct mp_rehome change;   /* of the last step; next is [layers] */
    struct mp_transfers moves; /* of the last step: from home to change.next */
    struct mp_move_bytes move;
    /* [layers] owners, and ranks to which parameters were sent ahead in the iteration before, and
     * are in this one; NULL without policy.updates_early. */
    struct mp_placement *kept, *sent;
    bool keeps; /* there was an iteration before, and no pass since, which may want others there */
    bool keeps_plans;
    struct mp_plan *plan; /* [layers], or [1] of the layer planned last */
    int planned;          /* layer whose plan is complete in plan[0]; -1: none; not if kept */
    /* With policy.copies_stay and several micro-batches, [layers] copies of the micro-batch before,
     * and of the one at hand; else NULL. */
    struct mp_transfers *stayed, *staying;
    int micro_batch; /* at hand */
};

/* Creates the system, its first homes and plans, and begins a first plan, which says how rows
 * travel.
 * Errors: mp_system_create's; MP_EREFUSED if experts are cut into shards and plans
 * want them whole; MP_ENOMEM.  On an error there is nothing to destroy. */
int mp_planner_create(const struct mp_planner_config *config, struct mp_planner *planner,
                      struct mp_error *error);
void mp_planner_destroy(struct mp_planner *planner); /* accepts a zeroed one */
MP_END(planner, struct mp_planner, mp_planner_destroy(it))

static inline struct mp_plan *mp_planner_plan(const struct mp_planner *planner, int layer) {
    return &planner->plan[planner->keeps_plans ? layer : 0];
}

/* Before the layers of each of an iteration's micro-batches, counted from 0; where there is only
 * one, nobody has to. */
void mp_planner_begin_micro_batch(struct mp_planner *planner, int micro_batch);
/* Begins the plan of a layer: what is known before its gate. */
int mp_planner_begin_layer(struct mp_planner *planner, int64_t iteration, int layer,
                           struct mp_error *error);
/* Completes it with the loads.  MP_EPLAN if it breaks the law, where that is looked at. */
int mp_planner_end_layer(struct mp_planner *planner, int layer, const struct mp_load *load,
                         struct mp_error *error);
/* The complete plan of a layer that has been planned in this iteration, again if it is gone: with
 * the same load it is the same plan. */
int mp_planner_again(struct mp_planner *planner, int64_t iteration, int layer,
                     const struct mp_load *load, struct mp_error *error);

/* Has the system learn from the loads of all layers, and notes in `change` and `moves` which homes
 * it wants and what has to move for them (with a sliced optimizer moves have no bytes).  Homes are
 * the old ones until mp_planner_adopt_homes, which comes before the next after_step; plans that are
 * begun in between share sums of gradients with the ranks to come, if moves are asynchronous.
 * MP_EPLAN if the new homes break the law, where that is looked at. */
int mp_planner_after_step(struct mp_planner *planner, int64_t iteration,
                          const struct mp_load load[], struct mp_error *error);
/* What the system found out in it: the struct that its `facts` name; NULL: nothing. */
static inline const void *mp_planner_found(const struct mp_planner *planner) {
    return planner->system->found ? planner->system->found(planner->self) : NULL;
}
/* Home is what the last change says. */
void mp_planner_adopt_homes(struct mp_planner *planner);
