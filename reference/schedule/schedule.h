/* Schedule: one iteration, of training or of serving, written once.
 *
 * What is done in which order, in which lane, waiting for what, is said here and nowhere else.  An
 * executor carries it out: the trainer in real time (reference/trainer), the predictor in model
 * time (harness/predict).  A system's plan says what travels; the schedule says when.
 *
 * A rank has three lanes.  In `compute` it does its own work, one piece after another, and waits.
 * In `exchange` travel counts and rows of tokens, in the order in which they are started, never
 * behind anything else.  In `background` travel parameters and gradients of experts, sums of other
 * gradients and experts that move, in the order in which they are started.
 *
 * Forward, layer l, with what sets out in the background at its right:
 *
 *     plan what the gate need not be known for    FETCH (spAG, Hecate, section 4)
 *     attention
 *     gate; counts of all ranks
 *     plan the rest                               LATE_FETCH, if flat
 *     rows set out: S_0 .. S_(n-1)                LATE_FETCH, if pipelined
 *     shared expert, if there is one
 *     for each step s: wait for S_s and the
 *       fetches that it needs; C_s; R_s
 *     own rows, if pipelined: wait for all
 *       fetches; C_own
 *     all R are back; combine
 *
 * LATE_FETCH of copies of copies is behind rows always, and behind a wait for FETCH, unless the
 * lane keeps its order by itself (mp_comm_keeps_order).
 *
 * Where experts are put together from slices some layers ahead, FETCH of the layer so far on sets
 * out in l's place (and those before it with layer 0), and in backward REFETCH likewise.  Where
 * copies are fetched early, the first line is that of l + 1, and stands behind the rows (and
 * LATE_FETCH, which experts wait for sooner).
 *
 * Backward, layer l:
 *
 *     rows set out: S_0 .. S_(n-1)
 *     shared expert, if there is one
 *     wait for REFETCH of l, sums of l + 2
 *     own rows, if pipelined: C_own               SUM_COPIES, if those are all rows of all copies
 *     for each step s: wait for S_s; C_s; R_s
 *     all R are back                              otherwise SUM_COPIES, SHARE_SUMS, SEND_SLICES
 *     gate                                        REFETCH of l - 1
 *     attention                                   SUM_DENSE of l
 *
 * With policy.updates_early the experts of l + 2, whose sums have been waited for, are updated
 * before the rows of l return: if something of them goes AHEAD, before R_0, and it sets out; else
 * behind the last C, whose way hides it.  Those of layers 1 and 0 come last.  AHEAD is waited for
 * behind the update.
 *
 * With policy.weights_behind R_s of every step s starts behind its C_s, which leaves products of
 * weights to a W_s behind it; and those of attention of l, and SUM_DENSE behind them, come when the
 * rows of l - 1 have set out, or all layers are done.
 *
 * A flat exchange has one step, or one for each chunk that its rows are cut into (plan.degree), all
 * of which wait for late copies, or, in chunks of whole experts, those that have one; the same goes
 * for one in several rounds, all of which follow from a start by themselves.  What tokens
 * share hides their way to the experts, as in Megatron-LM (moe-shared-expert-overlap), and starts
 * when rows do, as nothing else can.  Sums of
 * copies start behind the second exchange, so that they travel under attention (Hecate, section 4);
 * each of their stages starts when the one before it is waited for: under the experts of the layer
 * below, or at the end.  The order of a pipelined exchange is FasterMoE's (PPoPP 2022, section 4,
 * and its code): broadcasts of shadowed experts after all S, their computing after all C, and in
 * backward their sums before C_0.
 *
 * After backward the update, and what the system makes of the loads.  Experts that get new homes
 * move then, and all ranks wait for it; or, if the system says that its moves are asynchronous,
 * they set out in the background as the next iteration's first operation and are waited for before
 * its update, behind which the new homes are in force (best effort, as FlexMoE's: the old
 * placement serves one iteration more, whatever the network is like, so that all ranks agree).
 *
 * An iteration of serving is forward only: all layers, the head, what the system makes of the
 * loads, moves.  Nothing is updated, so what is put together from slices after a step is only when
 * homes have changed.  */
#pragma once

#include "profiler/record/record.h"
#include "reference/base/arena.h"
#include "reference/plan/policy.h"
#include "reference/plan/rehome.h"

enum mp_operation_kind {
    /* Own work.  EXPERTS: the rows of one step, or the own ones. */
    MP_WORK_EMBED,
    MP_WORK_ATTENTION,
    MP_WORK_GATE,
    MP_WORK_PERMUTE, /* rows into the order of their destinations: of tokens, or of gradients */
    MP_WORK_SHARED,  /* the shared expert, with the rank's own tokens */
    MP_WORK_EXPERTS,
    MP_WORK_COMBINE,        /* what has returned: sums of tokens' rows (forward) */
    MP_WORK_HEAD,           /* with the loss; backward: forward and backward */
    MP_WORK_UPDATE_EXPERTS, /* a layer's, in backward */
    MP_WORK_UPDATE,         /* all else */
    /* The exchange lane. */
    MP_TRAVEL_COUNTS,  /* every rank's routes to every rank */
    MP_TRAVEL_ROWS,    /* one step towards the experts */
    MP_TRAVEL_RETURNS, /* and back to the tokens */
    MP_TRAVEL_LOSS,    /* agreed on by all ranks, who begin the next iteration together */
    /* The background lane. */
    MP_TRAVEL_FETCH,       /* MP_STAGE_BEFORE_GATE: copies, or what is put together from slices */
    MP_TRAVEL_LATE_FETCH,  /* MP_STAGE_AFTER_GATE */
    MP_TRAVEL_REFETCH,     /* both again, of copies that forward did not keep */
    MP_TRAVEL_AHEAD,       /* plan.ahead: copies for the next iteration */
    MP_TRAVEL_SUM_COPIES,  /* plan.reduce: spRS */
    MP_TRAVEL_SHARE_SUMS,  /* plan.share */
    MP_TRAVEL_SEND_SLICES, /* of gradients to those who keep them */
    MP_TRAVEL_SUM_DENSE,   /* non-expert gradients of a block; layer `layers`: of the tables */
    MP_TRAVEL_MOVES,       /* experts to new homes */
    MP_TRAVEL_HOMES,       /* slices of a layer put together at their homes after the step */
    MP_OPERATIONS
};

/* One operation of an iteration.  Every rank has the same sequence of them. */
struct mp_operation {
    enum mp_operation_kind kind;
    enum mp_direction direction;
    int layer;                 /* -1: none */
    int step;                  /* of rows, returns and experts; the layer's `steps`: its own rows */
    enum mp_products products; /* of experts and attention, backward */
};

/* What a span says. */
struct mp_scheduled_phase {
    enum mp_phase phase;
    enum mp_direction direction;
    int layer; /* -1: none */
    /* Whose rows are the span's tokens, where the phase has rows: a step's, the layer's own ones
     * (`steps`), or those of MP_ALL_STEPS. */
    int step;
    enum mp_products products; /* the operation's */
};
enum { MP_ALL_STEPS = -1 };

/* What of a layer's plan the schedule still needs when the plan may be gone. */
struct mp_scheduled_layer {
    unsigned travels; /* bits 1 << kind: background operations that this micro-batch has */
    int steps;        /* of the exchange, 1: all at once */
    bool own;         /* pipelined: rows of copies that are fetched late, and never travel */
    bool passes_on;   /* late copies of copies, which have to be there first */
    bool own_first;   /* in backward these are all rows of all copies */
    bool *needs_late; /* [steps] rows that travelled may meet copies that are fetched late */
};

/* Who carries operations out.  Errors end the iteration; nothing is called after one. */
struct mp_executor {
    /* Spans of the compute lane; they neither nest nor overlap. */
    void (*begin)(void *self, struct mp_scheduled_phase activity);
    void (*end)(void *self, struct mp_scheduled_phase activity);
    /* The layer's plan as far as it can be known; false: from the loads of its gate too. */
    int (*plan)(void *self, int layer, bool before_gate, const struct mp_plan **plan,
                struct mp_error *error);
    int (*work)(void *self, const struct mp_operation *operation, struct mp_error *error);
    /* Puts an operation on its way; and what follows in the compute lane finds it done.  Every
     * started operation is waited for once. */
    int (*start)(void *self, const struct mp_operation *operation, struct mp_error *error);
    int (*wait)(void *self, const struct mp_operation *operation, struct mp_error *error);
    /* What the system makes of the loads after the update, if there is one: whether experts move
     * (MP_TRAVEL_MOVES), and when; borrowed until the next call. */
    int (*learn)(void *self, const struct mp_rehome **change, struct mp_error *error);
};

enum { MP_SUMS_ON_THEIR_WAY = 2 }; /* layers */

struct mp_schedule {
    const struct mp_executor *executor;
    void *self;
    const struct mp_policy *policy;
    int layers, micro_batches;
    bool learns;      /* the system looks at the loads after the step */
    bool shares;      /* there is a shared expert */
    bool keeps_order; /* the background lane: an operation finds done what set out before */
    int micro_batch;  /* the present one */
    struct mp_scheduled_layer *layer; /* [layers], owned */
    bool *needs_late;                 /* [layers][most steps], of all layers, owned */
    bool fetching, late_fetching;
    bool moving;   /* asynchronous moves are to set out, or are on their way */
    bool gathered; /* slices have been put together after this step */
    struct {
        int layer; /* -1: none */
        enum mp_operation_kind stage;
    } sums[MP_SUMS_ON_THEIR_WAY];
    struct mp_arena arena; /* of the tables */
};

/* Executor, self and policy are borrowed.  MP_ENOMEM. */
int mp_schedule_create(const struct mp_executor *executor, void *self,
                       const struct mp_policy *policy, int layers, int ranks,
                       struct mp_schedule *schedule, struct mp_error *error);
void mp_schedule_destroy(struct mp_schedule *schedule); /* accepts a zeroed one */

/* All blocks forward, without the head. */
int mp_schedule_forward(struct mp_schedule *schedule, struct mp_error *error);
/* Slices put together at their homes, if that is done after the step: also before the first. */
int mp_schedule_gather_homes(struct mp_schedule *schedule, struct mp_error *error);
/* All micro-batches forward and, unless it is forward only, backward; the update, and what follows
 * it. */
int mp_schedule_iteration(struct mp_schedule *schedule, struct mp_error *error);
/* Between two iterations: asynchronous moves that wait for the next one, at once. */
int mp_schedule_settle_moves(struct mp_schedule *schedule, struct mp_error *error);

/* ---- what plans mean for the schedule ---- */

/* Which of a plan's background operations a micro-batch of several has.  Copies that stay until
 * backward travel in the first one, or where they are made (policy.copies_stay), gradients of what
 * stays in the last; what is freed or decided anew travels in each. */
unsigned mp_plan_travels(const struct mp_plan *plan, int micro_batch, int micro_batches);
/* Sets steps, passes_on, own, own_first and needs_late. */
void mp_plan_schedule_exchange(const struct mp_plan *plan, struct mp_scheduled_layer *layer);
/* Steps of the exchange, and the first in which rows from one rank to another travel: the only one
 * between groups, one of `degree` otherwise. */
int mp_plan_steps(const struct mp_plan *plan);
int mp_plan_step(const struct mp_plan *plan, int from, int to);

/* A copy that is fetched after the gate; or the owner's, where such copies leave no route to
 * travel: the expert stays.  With a pipelined exchange the routes of its own rank to it are own
 * rows: they never travel, and are computed when copies are there. */
struct mp_late_copy {
    int expert; /* -1: before the first one */
    int rank;
    bool stays;
    int fetch; /* place in plan.fetch */
};
/* Goes on to the next one; false: there is none.  Begins with {.expert = -1}, in a plan whose
 * dispatch is written.  An owner may be told of more than once. */
bool mp_plan_next_late(const struct mp_plan *plan, struct mp_late_copy *copy);
