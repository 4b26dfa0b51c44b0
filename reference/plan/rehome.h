/* Rehoming: how homes change after a step.
 *
 * A home is a placement that persists between iterations: who owns each expert of a layer, and who
 * else keeps it (tied replicas, or with slices the holders that the next iteration computes on).  A
 * system says which homes it wants; what has to move follows from that. */
#pragma once

#include "reference/plan/plan.h"

struct mp_rehome {
    struct mp_placement *next; /* [layers], borrowed; arrive equal to the present homes */
    bool changed;              /* set by whoever writes into next; false on arrival */
    /* Parameters move and optimizer state stays: an expert that arrives continues with the moments
     * of one that left, the i-th (in ascending order) of a layer with the i-th.  What SmartMoE's
     * released code does.  Every rank must receive as many experts of a layer as
     * it loses.  false on arrival. */
    bool leave_state;
    /* Moves travel while the next iteration runs on the present homes, as its first operation in
     * the background; homes change before its update, for which the ranks to come get the sums of
     * gradients too.  For tied replicas alone, whose state does not stay.  false on arrival. */
    bool asynchronous;
};

/* Adds what has to move: every holder in next that is none in home receives the expert from a
 * holder of home, one of its own node if there is one (the lowest), otherwise number `to` mod n of
 * the n holders.  Layer by layer, expert by expert, receivers ascending; stage MP_STAGE_AFTER_STEP,
 * `bytes` each.  Not for sliced optimizers, where parameters come from everywhere. */
int mp_rehome_transfers(const struct mp_placement home[], const struct mp_placement next[],
                        int layers, const struct mp_topology *topology, int64_t bytes,
                        struct mp_transfers *list, struct mp_error *error);

/* The law for homes.  MP_EPLAN with a sentence that names layer, expert, ranks and counts if next
 * is not home although `changed` is false, an owner is no rank or does not hold its expert, a
 * holder is no rank, owners have company although the optimizer is theirs alone, homes change
 * although slices lie with the expert's holders, a rank keeps more than `limit` experts over all
 * layers (of one layer with a sliced optimizer; those that asynchronous moves take away count until
 * they have arrived elsewhere), leave_state is set and a rank's experts of a layer change in
 * number, or moves are asynchronous that can't be. */
int mp_rehome_check(const struct mp_placement home[], const struct mp_rehome *change, int layers,
                    enum mp_optimizer_split optimizer, int limit, struct mp_error *error);
