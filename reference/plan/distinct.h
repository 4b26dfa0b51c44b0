/* Distinct tokens: how many of a rank's tokens have experts in a group of ranks, from how many of
 * its routes go to each expert.
 *
 * A token takes K different experts.  Counts do not say which ones it takes together; so K of them
 * are taken for drawn at random with each expert's share of the tokens as its probability to be
 * among them: conditional Poisson sampling, of all such designs the one of greatest entropy (Chen,
 * Dempster and Liu, Biometrika 81, 1994).  With weights w that give these probabilities and e_K
 * for the elementary symmetric polynomial of degree K, a token has no expert of a group with
 * probability
 *
 *     e_K(w of experts outside) / e_K(all w)
 *
 * which for even counts is C(E - E/R, K) / C(E, K).  Where a part f of an expert's routes goes to
 * the group, its weight outside is (1 - f) w. */
#ifndef MOEPERF_REFERENCE_PLAN_DISTINCT_H
#define MOEPERF_REFERENCE_PLAN_DISTINCT_H

#include "reference/plan/plan.h"

/* Zeroed before first use. */
struct mp_distinct_model {
    int experts, top_k; /* that there is room for */
    double *weight;     /* [experts] w; of an expert that every token takes: 0 */
    bool *certain;      /* [experts] */
    double *wanted;     /* [experts] probabilities */
    double *prefix;     /* [experts + 1][top_k + 1] e_0 .. e_K of the weights before an expert */
    double *share;      /* [groups and ranks][experts] of its routes that go there */
    double *sum;        /* [top_k + 1] working memory */
    int drawn;          /* K less those that every token takes */
    double all;         /* e_drawn(all w) */
};
/* MP_ENOMEM. */
int mp_distinct_model_create(int ranks, int experts, int top_k, struct mp_distinct_model *model,
                             struct mp_error *error);
void mp_distinct_model_destroy(struct mp_distinct_model *model); /* accepts a zeroed one */

/* For one rank's counts [experts], which are top_k times its tokens. */
void mp_distinct_model_fit(struct mp_distinct_model *model, const uint32_t count[]);
/* The probability that a token has an expert in the group to which share[] of each expert's routes
 * go. */
double mp_distinct_model_meets(const struct mp_distinct_model *model, const double share[]);

/* The experts of one token of many, [top_k], drawn by the model; -1: it has fewer.  A token's are
 * the same for the same weights, and change little with them. */
void mp_distinct_model_draw(const struct mp_distinct_model *model, uint64_t seed, uint64_t token,
                            int32_t expert[]);

/* distinct [ranks][mp_exchange_counts] of the plan's groups and ranks: as the loads say, or by the
 * model. */
void mp_distinct_tokens(struct mp_distinct_model *model, const struct mp_plan *plan,
                        const struct mp_load *load, double distinct[]);

#endif
