/* Who made whom wait, and where that began (wait states as in Scalasca).
 *
 * A rank waits at a meeting until the last one comes.  That wait is charged to where the last one
 * fell behind: both ranks' times are walked back to the last meeting that they left together (or
 * the beginning of the iteration), and what the late one did longer since then is charged, in
 * proportion where it was several things and made up for some.  Where it was late because it had
 * waited itself, what that wait was charged to is charged again: propagated, and that may come back
 * to the one that waits.  So the charges of a wait add up to it.
 *
 * Stages of a pipeline do different things and wait while it fills and drains.  Between them only
 * what is waited beyond that counts, and is charged to what the late one did longer than it ideally
 * would have (graph.h). */
#ifndef MOEPERF_PROFILER_STRAGGLER_WAITS_H
#define MOEPERF_PROFILER_STRAGGLER_WAITS_H

#include "profiler/straggler/graph.h"

/* What a rank spent more than the one that waits for it. */
enum mp_charge_kind {
    MP_CHARGE_WORK,     /* own work in the span `node` */
    MP_CHARGE_GAP,      /* between the spans before it */
    MP_CHARGE_TRANSFER, /* its transfer took longer than the other's */
    MP_CHARGE_START     /* it began its iteration later; `node` is its first */
};

struct mp_charge {
    double seconds;
    int node;   /* of the rank at fault; graph.h */
    int victim; /* node of the rank that waits */
    uint8_t kind;
    bool propagated;
    bool staged; /* between stages: `node` is held against its ideal, not against the victim's */
};

struct mp_waits {
    struct mp_arena memory;   /* of all but the charges */
    double *wait;             /* [spans] s; 0 where a node waits for nobody */
    double bubble;            /* s, all that is waited while a pipeline fills and drains */
    size_t *first;            /* [spans] in charge */
    int *count;               /* [spans] */
    struct mp_charge *charge; /* [charges] */
    size_t charges;
};

/* Errors: MP_ENOMEM. */
int mp_waits_find(const struct mp_graph *graph, struct mp_waits *waits, struct mp_error *error);
void mp_waits_destroy(struct mp_waits *waits); /* accepts a zeroed one */

#endif
