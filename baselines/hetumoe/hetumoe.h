/* HetuMoE: expert parallelism with a fixed capacity and an exchange through nodes' leaders (arXiv
 * 2203.14685; PKU-DAIR/Hetu, v1).
 *
 * Placement never changes: groups of `expert-parallel` ranks (reference/plan/groups.h).  Of each
 * (source, expert) at most k ceil(T/E * f) routes are kept, all first choices before all second
 * ones, and every pair takes that many rows in the exchange and in computing, used or not (its
 * layout transform).  Weights are the gate's, dropped routes or not.  Rows go through the first
 * rank of every node (reference/schedule/exchange/leader.c) where there are several nodes of
 * several ranks; elsewhere, and with `exchange: flat`, as the job says.
 *
 * `slots: as-released` (layers/TopGate.py, SAMGate.py, gpu_ops/LayoutTransform.py and
 * ReverseLayoutTransform.py, src/ops/LayoutTransform.cu; with a stream, as its executor has one).
 * The base of second choices counts the expert's second choices, where its first ones were meant.
 * So of a firsts and b seconds these have slots b .. 2 b - 1, and those 0 .. a - 1 (V-GATE-5:
 * firsts 0 0 1 and seconds 1 1 0 of three tokens have slots 0 1 0 and 2 3 1; slot 1 of expert 0 is
 * that of tokens 1 and 2, slot 1 of expert 1 is empty; 1 2 2 was meant for the seconds).  A slot at
 * or beyond the capacity is dropped, though one below may be empty.  Seconds are written last and
 * stay.  Both tokens of a row get what the expert made of it, each with its own weight; a weight's
 * gradient is that row's product with the gradient of its token's output; the row's gradient is the
 * sum of theirs, and both tokens get what the expert makes of it, the overwritten one too, which
 * had no part in it.  Rows without a token are zeros here and begin with gradients of zero; the
 * released kernels leave in both what their memory held.
 *
 * Plans say so by `overlaid` (plan.h).  Times and bytes don't differ, since padded rows travel
 * whatever is in them.  Of loads without first choices, as predictions have them, what is dropped
 * is what exceeds the capacity, as with `intended`.  It is the same as `intended` with one choice,
 * and with ktop1, whose slots restart with each choice's experts; the released layer takes no third
 * one.
 *
 * The gates are gates of their own (reference/gate): switch, gshard, ktop1, sam, hash, base
 * (`weights: one` as released), dts. */
#ifndef MOEPERF_BASELINES_HETUMOE_HETUMOE_H
#define MOEPERF_BASELINES_HETUMOE_HETUMOE_H

#include "reference/plan/system.h"

extern const struct mp_system mp_system_hetumoe;

enum mp_hetumoe_exchange { MP_HETUMOE_LEADER, MP_HETUMOE_FLAT };
enum mp_hetumoe_slots { MP_HETUMOE_INTENDED, MP_HETUMOE_AS_RELEASED };

/* Named in the option table of hetumoe.c. */
struct mp_hetumoe_options {
    int expert_parallel; /* ranks of a group; MP_AUTO: min(R, E); MP_ALL: R */
    double capacity_factor;
    int exchange; /* enum mp_hetumoe_exchange */
    int slots;    /* enum mp_hetumoe_slots */
};

#endif
