/* SmartMoE: online expert placement (USENIX ATC 2023; thu-pacman/SmartMoE-AE).
 *
 * Every rank owns equally many experts of a layer and none has a replica, so a placement is a
 * permutation.  Every `interval` iterations one is sought that lowers the largest load of a rank
 * under the recent loads of the experts; if it gains enough, experts change owners.  Between two
 * searches it is FasterMoE (baselines/fastermoe), on which the released code is built: tokens
 * travel to the present owners by the smart schedule, and what the placement leaves uneven is
 * shadowed. permutation.c  the three solvers smartmoe.c     history, options and the descriptor
 *
 * Decisions where the sources leave room:
 * - The released code averages the first micro-batch of the last 2 iterations; here an iteration
 *   has one load, and its average over the last `history` iterations counts.
 * - The paper switches past a threshold that it does not name; the released code switches when the
 *   largest load becomes strictly smaller, which is `threshold` 1.
 * - The released code looks for a placement before iterations 0, 10, ...; here after the step of
 * the iteration before, which is the same moment with loads known (and nothing before iteration 0).
 * - The hybrid is described in half a sentence (greedy to virtual devices, then dynamic programming
 *   to physical ones) and lies unused in the released code (32 experts to 8 groups, then dynamic
 *   programming).  Here it does both, and its `groups` bound what it costs.
 * - The released code leaves optimizer state where it was, so that an expert goes on with the
 *   moments of another; here it moves, unless `state` is "stays".
 * - Shadows are chosen by the rule of FasterMoE's paper for the present owners.  The artifact's own
 *   rule has factors of no known meaning.  `shadows` 0 has none, and without
 *   `smart-schedule` tokens travel all at once: both together are placement on plain expert
 *   parallelism. */
#pragma once

#include "reference/base/arena.h"
#include "reference/plan/system.h"

enum mp_smartmoe_solver {
    MP_SMARTMOE_GREEDY,              /* the released code's */
    MP_SMARTMOE_DYNAMIC_PROGRAMMING, /* optimal, for few experts */
    MP_SMARTMOE_HYBRID
};
enum mp_smartmoe_state { MP_SMARTMOE_STATE_MOVES, MP_SMARTMOE_STATE_STAYS };

/* Named in the option table of smartmoe.c. */
struct mp_smartmoe_options {
    int solver;            /* enum mp_smartmoe_solver */
    int groups;            /* items of one dynamic programme of the hybrid, at most */
    int interval, history; /* iterations */
    double threshold;
    int state; /* enum mp_smartmoe_state */
    bool smart_schedule;
    int group_size, shadows; /* as in mp_fastermoe_options */
};

/* Items that dynamic programming is let loose on.  As published it costs O(R * 4^E); here subsets
 * of equal size are enumerated and equal ranks not told apart, about a million steps for 16. */
enum { MP_PERMUTATION_ITEMS = 16 };

/* Working memory of the solvers, for one number of experts and ranks. */
struct mp_permutation {
    int experts, ranks;
    enum mp_smartmoe_solver solver;
    int workers;             /* that one dynamic programme shares items among; 0: there is none */
    int each;                /* items per worker */
    int32_t *order;          /* [experts], hottest first */
    int32_t *device, *other; /* [experts] */
    int32_t *member;         /* [experts], experts by bin */
    int32_t *count, *tally;  /* [ranks] */
    int64_t *sum;            /* [ranks + MP_PERMUTATION_ITEMS] */
    /* Of subsets of the items, as bits: */
    int64_t *load;   /* [1 << items], their load */
    int64_t *best;   /* [1 << items], least largest load if they are placed */
    uint16_t *last;  /* [1 << items], who then is on the last worker */
    uint16_t *whole; /* subsets that a worker takes, by lowest item */
    int32_t whole_begin[MP_PERMUTATION_ITEMS + 1];
};

/* `experts` is a multiple of `ranks`.  MP_EINVAL: not so, or too many experts for dynamic
 * programming.  Tables are the arena's, whose user looks whether there was memory. */
int mp_permutation_create(struct mp_arena *memory, int experts, int ranks,
                          enum mp_smartmoe_solver solver, int groups, struct mp_permutation *state,
                          struct mp_error *error);

/* The solvers.  load and current (owners) are [experts]; owner [experts] gets the new owners, and
 * the largest load of a rank is returned.  experts / ranks of them are on every rank.
 *
 * greedy: experts by load, descending, each to the rank with the least load so far that has room;
 * its present rank if that is one of those, otherwise the lowest. */
int64_t mp_permutation_greedy(struct mp_permutation *state, const int64_t load[],
                              const int32_t current[], int32_t owner[]);
/* The one that the state was created for. */
int64_t mp_permutation_solve(struct mp_permutation *state, const int64_t load[],
                             const int32_t current[], int32_t owner[]);
