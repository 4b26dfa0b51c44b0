/* Why a rank took longer than others in the same operation.
 *
 * Own work beyond the others' is split: first what more tokens take (a robust slope of time on
 * tokens), then what the rank always takes longer at the same tokens (median over the iterations,
 * if it is beyond three standard errors), then the rest, which was once. */
#pragma once

#include "profiler/straggler/graph.h"

enum mp_cause {
    MP_CAUSE_ROUTING,       /* more tokens for its experts */
    MP_CAUSE_SLOW,          /* always slower at the same tokens */
    MP_CAUSE_ONE_OFF,       /* slower, but not always */
    MP_CAUSE_COMMUNICATION, /* its transfers take longer */
    MP_CAUSE_LINK,          /* one rank's always do */
    MP_CAUSE_STAGE,         /* its stage of a pipeline has more to do than the others */
    MP_CAUSE_DATA,
    MP_CAUSE_CHECKPOINT,
    MP_CAUSE_COLLECT, /* an interpreter's garbage collection */
    MP_CAUSE_STOLEN,  /* others have its processor */
    MP_CAUSE_HOST,    /* planning, validation, what lies between its spans */
    MP_CAUSE_BEFORE,  /* it began its iterations late, and nothing recorded says why */
    MP_CAUSE_UNKNOWN, /* tokens or iterations are missing to tell routing, slow and one-off */
    MP_CAUSES
};

/* What a recording must have, as bits: a phase `1 << phase`, and these. */
enum mp_evidence {
    MP_EVIDENCE_TOKENS = 1 << 24,
    MP_EVIDENCE_ITERATIONS = 1 << 25, /* MP_STRAGGLER_ITERATIONS or more */
    MP_EVIDENCE_CLOCK = 1 << 26,      /* a common one, good enough */
    MP_EVIDENCE_CPU = 1 << 27         /* processor time of every iteration */
};

struct mp_cause_kind {
    const char *name;     /* "routing", "slow rank", "one-off", ... */
    uint32_t work;        /* phases whose own work, where it takes longer, is this; as bits */
    uint32_t needs;       /* enum mp_evidence: without, this cause can't be told from others */
    const char *evidence; /* what that is, where users may add it: "spans of phase data"; or NULL */
    bool occasional;      /* now and then is enough to be named */
};
const struct mp_cause_kind *mp_cause_kind(enum mp_cause cause);
const char *mp_cause_name(enum mp_cause cause); /* "?" when out of range */

enum { MP_STRAGGLER_ITERATIONS = 5 }; /* fewer don't tell always from once */

struct mp_usual {
    double own;      /* s, median over iterations, less what its tokens take */
    double transfer; /* s, median */
    double error;    /* standard error of own */
};

/* Of the ranks of one group, the lower median: that of a healthy rank while most are.  Who takes
 * part in a layer and has no span of its experts computed no tokens there, in no time. */
struct mp_reference {
    double own, gap, transfer, tokens, usual;
    bool alone; /* nobody does the same: a pipeline's stage of one rank, whose work is held against
                   that of the same phase in all stages */
    double layer_tokens; /* of its experts in this layer, forward; -1: not known */
    double mean_tokens;  /* over the ranks; -1: not known */
};

struct mp_causes {
    const struct mp_graph *graph;   /* borrowed */
    struct mp_arena memory;         /* of what follows */
    struct mp_usual *usual;         /* [kinds][ranks] */
    struct mp_reference *reference; /* [groups] */
    double *slope;                  /* [phase][3 directions] s per token */
    double *layer_tokens;           /* [iterations][layers][ranks]; 0: it had none, -1: not known */
    bool knows_tokens;              /* every expert span says how many */
    bool knows_usual;               /* there are enough iterations */
};

/* Errors: MP_ENOMEM. */
int mp_causes_find(const struct mp_graph *graph, struct mp_causes *causes, struct mp_error *error);
void mp_causes_destroy(struct mp_causes *causes); /* accepts a zeroed one */

/* The cause of longer work in a phase; SLOW: that has to be split. */
enum mp_cause mp_cause_of_work(int phase);

/* Splits `seconds` of own work that `node` took beyond `reference` into part[MP_CAUSES], which is
 * overwritten and adds up to them. */
void mp_causes_split(const struct mp_causes *causes, int node, const struct mp_reference *reference,
                     double seconds, double part[MP_CAUSES]);

/* The same for a transfer: what comes in proportion to more tokens is routing. */
void mp_causes_split_transfer(const struct mp_causes *causes, int node,
                              const struct mp_reference *reference, double seconds,
                              double part[MP_CAUSES]);

/* What the nodes of a group are against one rank's; where that has none, against the reference. */
struct mp_reference mp_causes_against(const struct mp_causes *causes, int group, int rank);

/* s that a node takes for its tokens beyond the ranks' mean; negative: it has fewer. */
double mp_causes_surplus(const struct mp_causes *causes, int node);

/* Takes from a node's seconds what its rank would not need with the ranks' mean tokens, or adds
 * what it would. */
void mp_causes_even(const struct mp_causes *causes, int node, struct mp_graph_seconds *now);

/* Lower median of value[count], which is sorted; NAN for none. */
double mp_lower_median(double value[], int count);
