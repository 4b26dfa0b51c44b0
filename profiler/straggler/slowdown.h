/* How much slower a run is than it would be without stragglers, by replay.
 *
 * Source: Lin et al., "Understanding Stragglers in Large Model Training Using What-if Analysis",
 * OSDI 2025, section 4 (S, S_t, S_w, M_W, M_S); POP Centre of Excellence, "POP standard metrics"
 * (the efficiencies).  What is ideal says graph.h. */
#ifndef MOEPERF_PROFILER_STRAGGLER_SLOWDOWN_H
#define MOEPERF_PROFILER_STRAGGLER_SLOWDOWN_H

#include "profiler/straggler/graph.h"

/* Most ranks that are replayed one by one: those with the most work. */
enum { MP_SLOWDOWN_RANKS = 64, MP_SLOWDOWN_TYPES = 64 };

struct mp_slowdown_type {
    int phase, direction;
    bool transfer; /* else work */
    double slowdown;
};

/* Seconds are means over the iterations. */
struct mp_slowdowns {
    double base;          /* s, recorded */
    double replayed;      /* s, the recording replayed: as far as it is from base, so far can the
                             rest be trusted */
    double without_delay; /* s, T_nd: with nothing between operations, and begun together */
    double ideal;         /* s, T_ideal */
    double ideal_network; /* s, with transfers that take no time */
    double slowdown;      /* S = T_nd / T_ideal; 1: nobody is slower than others */
    double host;          /* T_base / T_nd: the part of what lies between operations */
    double worst_ranks;   /* M_W: of T_nd - T_ideal, what the worst 3 % of ranks (rounded up) make;
                             NAN where there is nothing */
    double last_stage;    /* M_S: the same of the last stage of a pipeline; NAN: also without one */
    int pipelines;        /* its stages; 1: there is none */
    double *rank;         /* [ranks] S_w: the ideal with this rank as recorded, / T_ideal; NAN:
                             not replayed */
    struct mp_slowdown_type type[MP_SLOWDOWN_TYPES]; /* S_t, largest first */
    int types;
    /* 0 .. 1, above 0.8 is good. */
    double load_balance;  /* mean useful / max useful; useful: all but waiting and transfers */
    double communication; /* max useful / T */
    double parallel;      /* mean useful / T */
    double transfer;      /* ideal_network / T */
    double serialisation; /* communication / transfer */
};

/* Takes slowdowns->rank from the arena.  Errors: MP_ENOMEM. */
int mp_slowdowns_find(struct mp_graph *graph, struct mp_arena *memory,
                      struct mp_slowdowns *slowdowns, struct mp_error *error);

#endif
