/* Decide: whether a balancer is worth being turned on for given loads, and why.
 *
 * What is counted: an expert is hot in an iteration of a layer with MP_DECIDE_HOT times the mean of
 * the experts that ever get a route there; a rank is late with MP_DECIDE_LATE times the mean of the
 * ranks that ever get one.  Padding and idle ranks are in no mean. */
#pragma once

#include "harness/place/place.h"

#define MP_DECIDE_HOT 2.0
#define MP_DECIDE_LATE 1.1
#define MP_DECIDE_WORTH 0.02 /* of an iteration: what less is not worth a balancer */

/* Runs of a thing that is on or off in successive iterations. */
struct mp_decide_runs {
    int64_t on, of;  /* iterations in which it is on; of so many */
    int64_t runs;    /* how many stretches these are */
    int64_t longest; /* iterations of the longest */
};

struct mp_decide_place {
    int layer, which; /* an expert or a rank */
    struct mp_decide_runs runs;
    double mean; /* times the mean, over all iterations */
};

enum { MP_DECIDE_PLACES = 5, MP_DECIDE_LAGS = 8 };
extern const int mp_decide_lags[MP_DECIDE_LAGS]; /* 1, 2, 5, ... iterations */

/* What a placement is worth so many iterations after the last loads it was made of. */
struct mp_decide_lag {
    int64_t samples;      /* placements judged; 0: the trace is too short */
    double before, after; /* fullest rank over the mean: mean over layers, and placements */
};
/* Of the imbalance, what the placement takes away: 1 all of it, 0 none, below 0 it adds some. */
static inline double mp_decide_benefit(const struct mp_decide_lag *lag) {
    return lag->before > 1 ? (lag->before - lag->after) / (lag->before - 1) : 0;
}

enum mp_decide_reason {
    MP_DECIDE_SAVES,     /* turn it on */
    MP_DECIDE_EVEN,      /* no rank is late */
    MP_DECIDE_MEMORY,    /* it does not fit */
    MP_DECIDE_DOMINANT,  /* one expert fills a rank wherever it is */
    MP_DECIDE_STALE,     /* what is hot has changed when a placement arrives */
    MP_DECIDE_NO_CHANGE, /* the system sees nothing to change */
    MP_DECIDE_COST       /* it costs what it saves */
};
const char *mp_decide_reason_name(enum mp_decide_reason reason); /* "saves", "even", ... */

/* A placement on the iterations that are judged. */
struct mp_decide_side {
    struct mp_place_balance balance;
    struct mp_place_time time;
    struct mp_place_traffic traffic;
};

struct mp_decision {
    enum mp_decide_reason reason;
    int64_t iterations, history;
    bool in_sample;            /* judged on the loads it was made of: there are no others */
    int idle, padding;         /* ranks without a route in any layer; (layer, expert) without one */
    double expert_balance;     /* fullest expert over the mean: mean over layers and iterations */
    struct mp_decide_runs hot; /* all (layer, expert) together */
    struct mp_decide_place hottest[MP_DECIDE_PLACES];
    int hottest_count;
    double rank_balance;        /* fullest rank over the mean, likewise */
    struct mp_decide_runs late; /* all (layer, rank) together; .of: of (layer, iteration) */
    int64_t late_steps;         /* (layer, iteration) with a late rank */
    struct mp_decide_place latest[MP_DECIDE_PLACES];
    int latest_count;
    int64_t dominated; /* of late_steps: where an expert, alone on a rank, makes it late */
    bool replicates;   /* the placement has slots for several of an expert */
    struct mp_decide_lag lag[MP_DECIDE_LAGS];
    double interval; /* iterations between changes of the system; 0: fewer than two */
    struct mp_placed placed;
    struct mp_decide_side before, after;
    struct mp_place_time time_system; /* the system at work there; zero if in_sample, unless it
                                         never moves an expert */
    double move_seconds;              /* exposed, to get to the placement */
    double saves; /* share of an iteration, after its cost as far as that can be known */
    struct mp_arena memory;
};
void mp_decision_destroy(struct mp_decision *decision); /* accepts a zeroed one */
MP_END(decision, struct mp_decision, mp_decision_destroy(it))

/* `history`: share of the iterations that the placement is made of, 0 .. 1; the rest judges it (all
 * of them judge it where none is left).  Errors: those of place.h. */
int mp_decide(const struct mp_place_loads *loads, double history, struct mp_decision *decision,
              struct mp_error *error);
