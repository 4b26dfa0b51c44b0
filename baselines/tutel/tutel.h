/* Tutel: expert parallelism that chooses how it exchanges rows, with a dynamic capacity (arXiv
 * 2206.03382; microsoft/tutel).
 *
 * adaptive:r.  With r = 1 experts are those of groups of min(R, E) ranks, tied replicas where there
 * are several (expert and data parallelism).  With r > 1, a divisor of R / E, every expert is cut
 * into r shards (mp_setting.shards), and groups are of E r ranks, of which each has one: a token's
 * row goes to all r shards of its expert, whose outputs add up (model parallelism), and there are
 * r times fewer replicas, of 1 / r of an expert each, to sum gradients of.  With r = 0 every rank
 * computes all experts for its own tokens: parameters lie in slices on all ranks, come together
 * under attention, forward and again backward, and gradients return in slices (ZeRO-3); no token
 * travels.  `auto` is the one with least time by a model (mp_tutel_travel_seconds) of the capacity
 * 1, if it is not fixed: by the cluster's figures in predictions; when ranks train, above 1 by what
 * the job gives of them, or else as if links were all alike, since memory is laid out before any
 * link is measured.  r stays for the whole run; the source switches it at any time.
 *
 * Capacity of each (source, expert), by the factor f:
 *   f > 0   k floor(f ceil(T/E))
 *   f = 0   the largest count of the layer: the least that drops nothing
 *   f < 0   the same, at most what -f would give
 * each rounded up to a multiple of R/E where there are more ranks than experts (above 256 of one of
 * 128), of which every pair takes as many rows, used or not.  All first choices come before all
 * second ones; weights are the gate's.
 *
 * Exchange and degree.  A dictionary by floor(capacity / 128) says whether rows travel flat or in
 * two levels, and in how many chunks: 1, 2, 4 or 8.  A key that is new is tried: `trials`
 * iterations each of the eight ways, or of those that are left open.  After that the one with least
 * time is taken.  The source times its trials; planners see no clock, so that all ranks, the
 * trainer and the predictor agree, and a trial's time is a model's.  Of R ranks in nodes of G, with
 * chunks of b bytes from each to each, m seconds of a message, W and V bytes/s between and inside
 * nodes, as the run's setting has them:
 *
 *     flat        max((R - G) (m + b/W), (G - 1) (m + b/V))
 *     two-level   (G - 1) (m + (R/G) b/V) + (R/G - 1) (m + G b/W)
 *
 * With degree n each chunk takes that of b/n; chunks set out one after the other, a rank's experts
 * work on one when it is there and the one before is done, and results return one after the other
 * behind all that set out (schedule.h).  An expert's work is the setting's time of routes and of
 * reading it, once more for every chunk, and twice in backward.  The source rounds the capacity up
 * to a multiple of the degree; here chunks may differ by a row. */
#pragma once

#include "reference/plan/system.h"

enum mp_tutel_exchange { MP_TUTEL_AUTO, MP_TUTEL_FLAT, MP_TUTEL_TWO_LEVEL };
enum {
    MP_TUTEL_KEY = 128,  /* routes of capacity that share an entry */
    MP_TUTEL_DEGREES = 4 /* 1, 2, 4, 8 */
};

/* Named in the option table of tutel.c. */
struct mp_tutel_options {
    int r; /* 0, 1, more, MP_AUTO */
    double capacity_factor;
    int exchange;        /* enum mp_tutel_exchange */
    int degree;          /* 1 .. MP_MOST_DEGREE, MP_AUTO */
    int trials;          /* iterations that each way is tried, per key */
    double message_cost; /* m, seconds, unless the setting knows it */
};

/* The model's seconds of an exchange of chunks of `bytes` from each to each of `ranks`. */
double mp_tutel_seconds(const struct mp_setting *setting, double message_cost, int ranks,
                        enum mp_exchange_kind kind, double bytes);
/* Of a layer's experts, forward and backward, with such exchanges in `degree` chunks and `rows` to
 * work on for `experts` on each rank. */
double mp_tutel_way_seconds(const struct mp_setting *setting, double message_cost, int ranks,
                            enum mp_exchange_kind kind, int degree, double bytes, double rows,
                            int experts);
/* And of what a layer has travel in an iteration: with r >= 1 four such exchanges, each the faster
 * way if that is open, and sums of gradients over the replicas of what each rank has, which go
 * to an owner and back; with r = 0 parameters of all experts twice and their gradients once.  Where
 * only forward runs: two exchanges, no sums, parameters once. */
double mp_tutel_travel_seconds(const struct mp_setting *setting,
                               const struct mp_tutel_options *options, int r);
