/* HetuMoE: expert parallelism with a fixed capacity and an exchange through nodes' leaders (arXiv
 * 2203.14685; PKU-DAIR/Hetu, v1; systems.md 3.2.2, 3.4, 3.5, 3.6.1).
 *
 * Placement never changes: groups of `expert-parallel` ranks (reference/plan/groups.h).  Of each
 * (source, expert) at most k ceil(T/E * f) routes are kept, all first choices before all second
 * ones, and every pair takes that many rows in the exchange and in computing, used or not (its
 * layout transform).  Weights are the gate's, dropped routes or not.  Rows go through the first
 * rank of every node (reference/schedule/exchange/leader.c) where there are several nodes of
 * several ranks; elsewhere, and with `exchange: flat`, as the job says.
 *
 * Not as released: its top-2 gate lets second choices begin after all second choices of the expert,
 * not after its first ones.  With a firsts and b seconds they have slots b .. 2 b - 1, of which
 * those below a are taken (V-GATE-5: firsts 0 0 1 and seconds 1 1 0 of three tokens have slots
 * 0 1 0 and 2 3 1; slot 1 of expert 0 is that of tokens 1 and 2, slot 1 of expert 1 is empty; 1 2 2
 * was meant for the seconds, which tests/reference/device/gate_rules_test.c has).  Rows of seconds
 * are written last and stay; both tokens read what the expert made of them, and the row's gradient
 * is the sum of theirs (layers/TopGate.py, LayoutTransform.cu).  Plans and exchanges would not
 * differ, since padded rows travel whatever is in them.  The trainer's would: here a row is of one
 * token (row_token of route_positions), combining's backward writes rows, where it would have to
 * add them up, and what is dropped, by loads, would depend on a and b.
 *
 * The gates are gates of their own (reference/gate): switch, gshard, ktop1, sam, hash, base
 * (`weights: one` as released), dts. */
#ifndef MOEPERF_BASELINES_HETUMOE_HETUMOE_H
#define MOEPERF_BASELINES_HETUMOE_HETUMOE_H

#include "reference/plan/system.h"

extern const struct mp_system mp_system_hetumoe;

enum mp_hetumoe_exchange { MP_HETUMOE_LEADER, MP_HETUMOE_FLAT };

/* Named in the option table of hetumoe.c. */
struct mp_hetumoe_options {
    int expert_parallel; /* ranks of a group; MP_AUTO: min(R, E); MP_ALL: R */
    double capacity_factor;
    int exchange; /* enum mp_hetumoe_exchange */
};

#endif
