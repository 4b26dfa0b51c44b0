/* Generators: routing traces that are computed, not recorded.
 *
 * A kind says which share of a layer's routes each expert gets; what follows is the same for all.
 * Every load is a function of (kind, options, seed, iteration, micro-batch, layer) alone, whatever
 * was generated before it, and has the same bits on every machine: shares come from basic
 * arithmetic and this folder's own exponential and logarithm (elementary.h), and are rounded to
 * multiples of 2^-32 before tokens are drawn from them with integers.
 *
 * A token chooses top_k distinct experts by systematic sampling (Madow 1949): the experts' shares
 * times top_k lie end to end on a line of length top_k; the token takes the experts under u, u + 1,
 * ..., u + top_k - 1 for its u in [0, 1).  No share may be above 1 / top_k, so no expert is met
 * twice, and an expert is taken with exactly its share (unlike noise on the logits, which flattens
 * shares).  With `sampling: exact` the tokens' u are evenly spaced and shared out to the ranks in
 * turn, so an expert's total is within one route of its share; with `random` they are independent,
 * or with a `dispersion` above 1 some of them go the way of others of their rank.  With `topics`
 * the former are evenly spaced and every topic has as many tokens: no token is gone through.
 */
#pragma once

#include "harness/workload/trace.h"
#include "reference/base/option.h"

enum mp_sampling { MP_SAMPLING_EXACT, MP_SAMPLING_RANDOM, MP_SAMPLING_TOPICS };

/* What all kinds ask (mp_generate_options) and what some do (mp_generator.options). */
struct mp_generate_options {
    int64_t seed;
    int64_t iterations, first_iteration;
    int layers, experts, ranks, micro_batches, tokens, top_k;
    int sampling;       /* enum mp_sampling */
    double exponent;    /* zipf, power */
    double violation;   /* lognormal: max / mean - 1 of the experts' totals */
    double heat;        /* w1, w2, w3, w6, w7: share of the routes on the hot set */
    int hot_experts;    /* same; MP_AUTO: a sixteenth, at least one */
    int period, length; /* zipf, w6: iterations of a place; w7: between bursts, in one */
    double largest;     /* w4: the largest source's tokens over the mean */
    double empty;       /* w5: share of the experts or ranks without load */
    int empty_what;     /* w5: 0 experts, 1 ranks */
    double pace;        /* dynamics: iterations per one of the trace it was fitted to */
    double spread;      /* dynamics: factor to the spread of log shares */
    double dispersion;  /* dynamics, unless exact: sd over that of independent tokens */
};
extern const struct mp_option mp_generate_options[];

/* Shares that are asked for, and working memory. */
struct mp_share_wish {
    const struct mp_generate_options *options;
    int64_t iteration;
    int layer;
    int *order;     /* [experts or ranks, whatever is more] */
    double *height; /* [experts] */
};

struct mp_generator {
    const char *name;
    const char *title;               /* one line */
    const char *source;              /* paper, repository or section; "" if there is none */
    const char *models;              /* some sentences */
    const struct mp_option *options; /* fields of struct mp_generate_options; NULL: none */
    /* Shares, [experts], that sum to 1.  MP_EINVAL for wishes that can't be met, with the numbers.
     */
    int (*share)(const struct mp_share_wish *wish, double share[], struct mp_error *error);
    /* Shares change only where this number does; NULL: never. */
    int64_t (*epoch)(const struct mp_generate_options *options, int64_t iteration);
};
/* Ends with a row whose name is NULL. */
extern const struct mp_generator mp_generators[];

/* The kind of this name; NULL and an error with the nearest one if there is none (MP_ENOTFOUND). */
const struct mp_generator *mp_generator_find(const char *name, struct mp_error *error);

/* Defaults of what all kinds ask and of what `kind` does. */
int mp_generate_set_defaults(const struct mp_generator *kind, struct mp_generate_options *options,
                             struct mp_error *error);
/* Sets one option of either table; `where` as in mp_options_set. */
int mp_generate_set(const struct mp_generator *kind, struct mp_generate_options *options,
                    const char *name, const char *text, const char *where, struct mp_error *error);

/* Starts a kind: checks the options and the shares of every layer.  MP_EINVAL with the numbers for
 * wishes that can't be met, MP_ENOMEM. */
struct mp_generation;
int mp_generation_create(const struct mp_generator *kind, const struct mp_generate_options *options,
                         struct mp_generation **generation, struct mp_error *error);
void mp_generation_destroy(struct mp_generation *generation); /* accepts NULL */

/* The load of one layer: load has the shape [ranks][experts] of the options.  Calls may come in any
 * order. */
int mp_generation_load(struct mp_generation *generation, int64_t iteration, int micro_batch,
                       int layer, struct mp_load *load, struct mp_error *error);

/* The blocks of all iterations as a stream whose `source` names the kind and every option.  That
 * of w4 is ragged. */
int mp_generate(const struct mp_generator *kind, const struct mp_generate_options *options,
                struct mp_trace_stream **stream, struct mp_error *error);
