/* Shares of `dynamics`: how loads move while a model without balance loss is trained.
 *
 * The logarithm of an expert's share is a bent line over its height z, a normal variable of the
 * expert that moves:
 *
 *     z(t) = sqrt(settled) P + sqrt(1 - settled) Q(turns) + noise W(t) / (1 + calm * above)
 *
 * P never changes, Q wanders, W is drawn anew in every iteration; `above` is how far z is above the
 * bend without it, if it is: the more an expert gets, the less of it changes from one iteration to
 * the next.  Early, Q is nearly everything: log shares walk at random.  Later P takes over: what is
 * left is white noise around a pattern that hardly drifts.  Shares above 1 / top_k are cut to it.
 *
 * The shape of the line (its slope above and below the bend), how far Q has wandered, how much is
 * settled and the noise are read from a table over the iteration, straight lines over log t.  Its
 * numbers were fitted to statistics of iterations up to 2001 of a published trace
 * (thu-pacman/SmartMoE-AE: GPT, 24 layers, 32 experts, top-2); dynamics_test.c compares them.  Its
 * last row stands for what comes after, and was chosen with an eye on iterations up to 3001.
 *
 * Q needs no history: it is a sum of noises, each interpolated between independent values on a
 * grid, the grids twice as fine from one to the next and the variances half as large, which gives
 * the increments of a random walk down to the finest grid. */
#include <math.h>

#include "harness/workload/shares.h"
#include "reference/base/elementary.h"
#include "reference/base/random.h"

/* Where training stands. */
struct moment {
    double top, body; /* slope of the log share above and below the bend */
    double layers;    /* sd of the logarithm of a layer's factor to both */
    double turns;     /* grid steps of the noise of scale 1 that Q has gone */
    double settled;   /* share of P in the variance of z */
    double noise;     /* sd of W beside the 1 of the rest */
};

/* Straight lines over log t between these. */
static const struct knot {
    double iteration;
    struct moment moment;
} knots[] = {
    {1, {0.251, 0.201, 0, 0, 0, 0.043}},
    {5, {2.12, 2.17, 0.279, 1.6, 0.00524, 0.043}},
    {11, {5.27, 4.89, 0.629, 3.2, 0.0188, 0.043}},
    {21, {11.5, 9.36, 0.314, 3.48, 0.0496, 0.043}},
    {31, {17.6, 13.5, 0.216, 3.76, 0.0508, 0.043}},
    {41, {17.6, 13.5, 0.216, 3.77, 0.0575, 0.043}},
    {51, {1.9, 17.2, 0.197, 4.38, 0.358, 0.043}},
    {71, {2.03, 17.1, 0.224, 5.57, 0.532, 0.043}},
    {101, {2.07, 14, 0.224, 6.92, 0.659, 0.043}},
    {201, {1.3, 8.21, 0.205, 7.2, 0.685, 0.043}},
    {401, {1.21, 5.52, 0.22, 8, 0.738, 0.043}},
    {751, {1.08, 4.93, 0.233, 8.89, 0.89, 0.043}},
    {1251, {1.15, 4.83, 0.276, 9.14, 0.944, 0.043}},
    {2001, {1.56, 5.05, 0.25, 9.16, 0.944, 0.0302}},
};
enum { KNOTS = MP_LENGTH(knots) };

static const double bend = 0.613;       /* the z of the bend */
static const double tail = 0.159;       /* skew of P: a few experts stand far above the others */
static const double calm = 0.5;         /* how much less the high ones change at random */
static const double ends = 0.563;       /* factor to the slopes of the first and the last layer */
static const double layer_pace = 0.359; /* sd of the logarithm of a layer's own pace */
static const double pace_from = 51; /* layers are together up to here, the collapse and its end */
static const double pace_to = 201;  /* and have their own pace from here on */
enum { SCALES = 8, COARSEST = 2 };  /* grids of 2^2, 2^1, ..., 2^-5 turns */
static const uint64_t odd = MP_SPLITMIX_STEP; /* 2^64 over the golden ratio */

/* Without its step, which experts take. */
static uint64_t mix(uint64_t z) {
    return mp_random_splitmix(z - MP_SPLITMIX_STEP);
}

/* Mean 0, variance 1; the sum of two uniform numbers. */
static double triangular(uint64_t bits) {
    const double step = 0x1.3988e1409212ep+1 * 0x1p-32; /* sqrt 6 */
    const int64_t sum = (int64_t)((bits >> 32) + (bits & 0xFFFFFFFFu)) - 0xFFFFFFFF;
    return (double)sum * step;
}

/* Near enough to N(0, 1), far quicker than an exact one: the sum of four uniform numbers. */
static double bell(uint64_t bits) {
    const double half = 0x1.6a09e667f3bcdp-1; /* sqrt 1/2 */
    return (triangular(bits) + triangular(mix(bits + odd))) * half;
}

/* exp(x) for -60 <= x <= 0 with an error below 1e-9, of basic arithmetic in a fixed order. */
static double falling_exp(double x) {
    const int halvings = (int)(0.5 - x * 0x1.71547652b82fep+0); /* x over ln 2, rounded */
    const double rest = x + halvings * 0x1.62e42fefa39efp-1;
    double sum = 1 + rest * (1.0 / 8);
    sum = 1 + rest * (1.0 / 7) * sum;
    sum = 1 + rest * (1.0 / 6) * sum;
    sum = 1 + rest * (1.0 / 5) * sum;
    sum = 1 + rest * (1.0 / 4) * sum;
    sum = 1 + rest * (1.0 / 3) * sum;
    sum = 1 + rest * (1.0 / 2) * sum;
    sum = 1 + rest * sum;
    double power = 1; /* 2^-halvings by squaring, from the bits of halvings < 128 */
    double base = 0.5;
    for (int left = halvings; left; left >>= 1, base *= base)
        power *= left & 1 ? base : 1;
    return sum * power;
}

static double between(double from, double to, double part) {
    return from + part * (to - from);
}

/* The table at t >= 1; flat after it, but turns go on. */
static struct moment look_up(double t) {
    const struct knot *knot = knots;
    while (knot < knots + KNOTS - 2 && t > knot[1].iteration)
        knot++;
    const struct moment *from = &knot[0].moment, *to = &knot[1].moment;
    const double part = mp_elementary_log(t / knot[0].iteration) /
                        mp_elementary_log(knot[1].iteration / knot[0].iteration);
    const double inside = part < 1 ? part : 1;
    return (struct moment){
        between(from->top, to->top, inside),         between(from->body, to->body, inside),
        between(from->layers, to->layers, inside),   between(from->turns, to->turns, part),
        between(from->settled, to->settled, inside), between(from->noise, to->noise, inside)};
}

/* Where a layer stands: its own pace and slopes. */
static struct moment find_moment(const struct mp_generate_options *options, int64_t iteration,
                                 int layer) {
    const uint64_t seed = (uint64_t)options->seed;
    const uint64_t stream = mp_share_stream_of(MP_STREAM_LAYERS, layer);
    double t = 1 + (iteration > 1 ? (double)(iteration - 1) / options->pace : 0);
    if (t > pace_from) {
        double own = mp_elementary_log(t / pace_from) / mp_elementary_log(pace_to / pace_from);
        double pace = layer_pace * bell(mp_random_bits(seed, stream, 0));
        t *= mp_elementary_exp((own < 1 ? own : 1) * pace);
    }
    struct moment moment = look_up(t);
    double factor =
        options->spread * mp_elementary_exp(moment.layers * bell(mp_random_bits(seed, stream, 1)));
    if (layer == 0 || layer == options->layers - 1)
        factor *= ends;
    moment.top *= factor;
    moment.body *= factor;
    return moment;
}

/* Adds noise of one scale, variance 1 on average over the grid, times weight. */
static void add_scale(const struct mp_generate_options *options, int layer, int scale, double place,
                      double weight, double z[]) {
    const uint64_t stream = mp_share_stream_of(MP_STREAM_WANDER, layer) + ((uint64_t)scale << 16);
    const double first = floor(place);
    weight *= 0x1.3988e1409212ep+0; /* sqrt 3/2: half the way between two has half the variance */
    uint64_t key[3];
    for (int i = 0; i < 3; i++)
        key[i] = mp_random_bits((uint64_t)options->seed, stream, (uint64_t)first + (uint64_t)i);
    for (int e = 0; e < options->experts; e++) {
        /* Every expert has its grid shifted by a part of its own, so that they don't turn at once.
         */
        double shift =
            (double)(int64_t)(((uint64_t)e * odd + (uint64_t)scale * (odd << 7)) >> 32) * 0x1p-32;
        double part = place - first + shift;
        int next = part >= 1;
        part -= next;
        uint64_t own = (uint64_t)e * odd;
        z[e] += weight * ((1 - part) * triangular(mix(key[next] + own)) +
                          part * triangular(mix(key[next + 1] + own)));
    }
}

/* Heights above the bend. */
static void find_heights(const struct mp_generate_options *options, int64_t iteration, int layer,
                         const struct moment *moment, double z[]) {
    const uint64_t seed = (uint64_t)options->seed;
    const uint64_t kept = mp_random_bits(seed, mp_share_stream_of(MP_STREAM_HEIGHTS, layer), 0);
    const double settled = sqrt(moment->settled / (1 + 2 * tail * tail));
    double size = 1.0 / (1 << COARSEST), variance = 0.5; /* variances 1/2, 1/4, ... */
    for (int e = 0; e < options->experts; e++) {
        uint64_t own = (uint64_t)e * odd;
        double p = bell(mix(kept + own));
        z[e] = settled * (p + tail * (p * p - 1));
    }
    for (int scale = 0; scale < SCALES; scale++, size *= 2, variance /= 2)
        add_scale(options, layer, scale, moment->turns * size,
                  sqrt((1 - moment->settled) * variance), z);
    /* z: from heights to those above the bend, with the iteration's own noise. */
    const uint64_t fresh = mp_random_bits(
        (uint64_t)options->seed, mp_share_stream_of(MP_STREAM_NOISE, layer), (uint64_t)iteration);
    for (int e = 0; e < options->experts; e++) {
        double above = z[e] - bend, w = moment->noise * triangular(mix(fresh + (uint64_t)e * odd));
        z[e] = above + (above > 0 ? w / (1 + calm * above) : w);
    }
}

int mp_share_dynamics(const struct mp_share_wish *wish, double share[], struct mp_error *error) {
    const struct mp_generate_options *options = wish->options;
    const struct moment moment = find_moment(options, wish->iteration, wish->layer);
    double highest = -1e9, sum = 0;
    (void)error;
    find_heights(options, wish->iteration, wish->layer, &moment, share);
    for (int e = 0; e < options->experts; e++) {
        share[e] *= share[e] > 0 ? moment.top : moment.body;
        highest = share[e] > highest ? share[e] : highest;
    }
    for (int e = 0; e < options->experts; e++) {
        double fall = share[e] - highest;
        share[e] = falling_exp(fall > -60 ? fall : -60);
        sum += share[e];
    }
    for (int e = 0; e < options->experts; e++)
        share[e] /= sum;
    mp_share_cut(share, options->experts, options->top_k);
    return MP_OK;
}

int64_t mp_epoch_dynamics(const struct mp_generate_options *options, int64_t iteration) {
    (void)options;
    return iteration;
}
