/* Straggler analysis: what waits for whom, how much, why, and what it would save to mend it.
 *
 * Works on plain arrays of a recorded run, measured or predicted, and says of itself what it can't
 * say: see enum mp_abstention.  analysis.h has how waits are charged, causes.h how
 * a charge gets a cause, below are the efficiencies and what-ifs. */
#pragma once

#include <stdint.h>

#include "profiler/straggler/causes.h"
#include "profiler/straggler/graph.h"
#include "profiler/straggler/times.h"
#include "reference/base/imbalance.h"

/* How uneven counts are: routes over experts, or over ranks. */

/* n_e routes of expert e of E, m their mean, p_e their share.  All NAN without a route: undefined,
 * not zero. */
struct mp_balance {
    struct mp_imbalance imbalance;
    double variation;         /* sqrt(mean (n - m)^2) / m */
    double chance_variation;  /* 1 / sqrt(m): what uniform routing gives by chance */
    double overload_fraction; /* sum max(0, n - 1.25 m) / sum n */
    double gini;              /* 2 sum i n_(i) / (E sum n) - (E + 1) / E, n_(i) ascending */
};

/* `sorted` [experts] is working memory, ascending afterwards.  experts >= 1. */
struct mp_balance mp_balance_of(const uint32_t routes[], int experts, int64_t sorted[]);

/* Of many values: nearest-rank percentiles; NAN values are left out, and all are NAN if none is
 * left.  `value` is sorted. */
struct mp_percentiles {
    double p50, p90, p99, largest;
};
struct mp_percentiles mp_percentiles_of(double value[], int count);

/* How much slower a run is than it would be without stragglers, by replay.
 *
 * Source: Lin et al., "Understanding Stragglers in Large Model Training Using What-if Analysis",
 * OSDI 2025, section 4 (S, S_t, S_w, M_W, M_S); POP Centre of Excellence, "POP standard metrics"
 * (the efficiencies).  What is ideal says graph.h. */

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

struct mp_straggler_input {
    struct mp_recorded_times times;
    const int64_t *number; /* [iterations] as the run counts them; NULL: 0, 1, ... */
    int ranks_missing;     /* of the run, that left no recording */
    int ranks_cut;         /* whose recording ends before the run did */
    const double
        *collected; /* [spans] s of each in an interpreter's garbage collection; NULL: none */
    /* [iterations][ranks] what the rank did longest of between that iteration and the one before;
     * NULL: not recorded. */
    const struct mp_recorded_between *between;
    bool common_clock;  /* times of all ranks are on one clock ... */
    double clock_error; /* ... and at most so far off, s */
    /* Routes over all source ranks, [iterations][layers][experts], and how many of them were
     * dropped, [iterations][layers]; NULL: not recorded. */
    const uint32_t *routes, *dropped;
    int layers, experts;
};

/* What the analysis can't say, as bits. */
enum mp_abstention {
    MP_ABSTAINS_ONE_RANK = 1,         /* nobody to wait for */
    MP_ABSTAINS_MISSING = 2,          /* ranks left no recording: who is waited for isn't known */
    MP_ABSTAINS_NO_SPANS = 4,         /* no iteration with spans */
    MP_ABSTAINS_NO_MEETINGS = 8,      /* ranks never waited for each other */
    MP_ABSTAINS_CLOCKS = 16,          /* clocks too far apart: times were put together where ranks
                                         leave meetings; no communication cause, no late beginning */
    MP_ABSTAINS_NO_LOADS = 32,        /* balance over experts is not known */
    MP_ABSTAINS_NO_TOKENS = 64,       /* more tokens can't be told from a slower rank */
    MP_ABSTAINS_FEW_ITERATIONS = 128, /* always can't be told from once */
    MP_ABSTAINS_CUT = 256,      /* says nothing of iterations that some ranks did not record */
    MP_ABSTAINS_UNMATCHED = 512 /* sends and receives have no other end: their ranks aren't the
                                   run's, or nobody recorded the other end */
};
enum { MP_ABSTENTIONS = 10 };
/* A sentence of one of them: "3 iterations are too few to ...". */
const char *mp_abstention_text(enum mp_abstention abstention);

/* Findings weigh at least so much of an iteration, per rank that waits: as S >= 1.03. */
#define MP_STRAGGLER_LEAST 0.03

struct mp_straggler_finding {
    enum mp_cause cause;
    int rank;              /* at fault; -1: another one again and again, or all of a stage */
    int stage;             /* STAGE: of the pipeline, at fault; -1 otherwise */
    int from;              /* where most of it is transfers from one rank, that rank; else -1 */
    bool chronic;          /* against now and then */
    double caused;         /* s of waiting per iteration, summed over the ranks that wait */
    double waiting;        /* the same per rank that waits: all but those at fault, or every one */
    int victim;            /* who waits most for it; -1 for a changing rank */
    double victim_waiting; /* s per iteration */
    double longer;         /* s per iteration that the rank takes longer than the others' median;
                              ROUTING: than with the ranks' mean tokens; STAGE: than the mean
                              stage.  A mean where several are at fault */
    double saved;          /* s per iteration, replayed without it; ROUTING: with even tokens */
    double least;          /* s of waiting per rank that waits: an iteration with more matters */
    double seen;           /* share of the iterations in which it mattered */
    double last;           /* share in which, besides, this rank caused most waiting of this cause,
                              weighted exponentially: the latest count most */
    int phase, layer;      /* where most of it was charged; layer -1: outside layers */
    double here;           /* share of it that was charged there */
    double tokens;         /* of the rank's experts over the ranks' mean, in that layer or, outside
                              layers, in all; NAN: not known */
    double on_core;        /* STOLEN: share of its time that the rank had a core; NAN otherwise */
    int64_t worst_iteration; /* as the run counts them */
    double worst;            /* s of waiting in it, per rank that waits */
};

struct mp_straggler_rank {
    double suffered;           /* s per iteration of waiting for others */
    double direct, propagated; /* s per iteration of waiting that it caused */
    double own;                /* s per iteration of own work and gaps */
    double gaps;               /* s of that before and between spans */
    double cause[MP_CAUSES];   /* direct + propagated, by cause */
    double longer[MP_CAUSES];  /* s per iteration longer, as in a finding */
    double most_waited_for;    /* share of iterations in which it caused most waiting */
    double tokens;             /* of its experts per iteration; NAN: not known */
    double on_core;            /* share of its time that it had a core, median; NAN: not known */
};

/* One phase of one layer, both directions; means over the iterations, s. */
struct mp_straggler_place {
    int phase, layer;
    bool meets;
    double skew;               /* last arrival - first arrival, summed over its meetings */
    double transfer;           /* mean over ranks of what meeting takes after the last arrival */
    double transfer_least;     /* without clocks: what the rank spends in it that waits least */
    double waiting;            /* over all ranks */
    double caused;             /* waiting anywhere that was charged here */
    int slowest;               /* rank with most own work here, more than any other; -1: none */
    double slowest_share;      /* of iterations in which it was that */
    double own_mean, own_most; /* over ranks, most: of the slowest in each iteration */
    double tokens;             /* tokens of the rank that has most over the mean; NAN: not known */
};

enum { MP_MEASURES = 8 };
struct mp_straggler_balance {
    union {
        struct {
            struct mp_percentiles max_over_mean, effective, variation, gini, dead, overload,
                dropped, chance_variation; /* what chance alone gives */
        };
        struct mp_percentiles of[MP_MEASURES]; /* the same */
    };
    double time_imbalance, token_imbalance; /* of expert work and tokens over ranks, max / mean,
                                               mean over layers and iterations; NAN: not known */
    int hottest_layer, hottest_expert;      /* of the largest mean share; -1: no routes */
    double hottest_share;                   /* of the layer's routes */
};

struct mp_straggler {
    struct mp_arena memory; /* of all tables */
    unsigned abstentions;   /* bits of enum mp_abstention */
    unsigned untold;        /* causes (1 << enum mp_cause) for which evidence is missing */
    int ranks, iterations;
    bool clock_free;
    double clock_error;      /* s, the larger of what was said and what was seen */
    int violations;          /* meetings that a rank left before the last one had come */
    double worst_violation;  /* s */
    double finest;           /* s per iteration: nothing finer is concluded */
    double seconds;          /* median iteration */
    double waiting;          /* s per iteration, over all ranks, without bubble */
    double bubble;           /* s per iteration, over all ranks: a pipeline fills and drains */
    int64_t culprit_changes; /* how often the rank that caused most waiting changed */
    int most_waited_for;     /* rank that most often caused most waiting; -1: nobody waited */
    struct mp_straggler_finding *finding; /* [findings] by waiting, largest first */
    int findings;
    struct mp_straggler_rank *rank;   /* [ranks] */
    struct mp_straggler_place *place; /* [places] by layer and phase */
    int places;
    struct mp_slowdowns slowdowns;       /* rank NULL where the analysis abstains */
    struct mp_straggler_balance balance; /* of all layers and iterations; NAN without routes */
    struct mp_straggler_balance *layer;  /* [layers] the same of each */
    int layers;
};

/* The expert that gets most of the routes where a finding of cause ROUTING is from: of its layer
 * or, outside layers, of all.  Its balance; NULL: of another cause, or no routes are known. */
const struct mp_straggler_balance *mp_straggler_hot_expert(
    const struct mp_straggler *straggler, const struct mp_straggler_finding *finding);

/* `input` is borrowed during the call.  Abstaining is no error.  Errors: MP_ENOMEM; MP_ELIMIT for
 * more than 100 million spans. */
int mp_straggler_analyse(const struct mp_straggler_input *input, struct mp_straggler *straggler,
                         struct mp_error *error);
void mp_straggler_destroy(struct mp_straggler *straggler); /* accepts a zeroed one */
