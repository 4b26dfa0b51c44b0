/* Distinct tokens: how many of a rank's tokens have experts in a group of ranks.  Of loads that
 * have every token's experts they are counted; otherwise they come from how many of its routes go
 * to each expert.
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
#pragma once

#include "reference/base/arena.h"
#include "reference/plan/plan.h"

/* Zeroed before first use. */
struct mp_distinct_model {
    int experts, top_k; /* that there is room for */

    /* Of the counts that it was fitted to last. */
    bool fitted;
    uint32_t *count; /* [experts] */
    double *weight;  /* [experts] w; of an expert that every token takes: 0 */
    bool *certain;   /* [experts] */
    int32_t *always; /* [top_k - drawn] those, the last first */
    double *wanted;  /* [experts] probabilities */
    double *prefix;  /* [experts + 1][drawn + 1] e_0 .. e_drawn of the weights before an expert */
    int drawn;       /* K less those that every token takes */
    double all;      /* e_drawn(all w) */

    /* Of the order that experts were put in last, with the weights of then. */
    int whole;               /* so many of them go to one rank each; sums are of these */
    int32_t *order;          /* [experts] */
    int32_t *sure;           /* [experts + 1] experts before a place that every token takes */
    double *before, *behind; /* [experts + 1][drawn + 1] sums of those before a place; from it on */

    /* Of the plan at hand, for mp_distinct_tokens. */
    int32_t *rank;  /* [experts] where all routes go; -1: not to one rank */
    int32_t *begin; /* [ranks + 1] where a rank's experts begin in the order */
    double *share;  /* [groups of levels][experts] of routes, of experts behind `whole` */
    /* Of routes that are handed out: each expert's next part, holder of its run, and how many
     * routes that has taken, [experts] each. */
    int32_t *part, *held, *taken;
    int32_t *met; /* [experts] ranks of a token */

    double *step, *lack, *sum; /* working memory: [experts] twice, [top_k + 1] */
};
/* Tables are the arena's, whose user looks whether there was memory. */
void mp_distinct_model_create(struct mp_arena *memory, int ranks, int experts, int top_k,
                              struct mp_distinct_model *model);

/* For one rank's counts [experts], which are top_k times its tokens; false: they are those that it
 * was fitted to last.  An expert that would be taken by more than all tokens is taken by all, and
 * the others get the rest in proportion.
 *
 * From probabilities p, weights that are nearly right are p / (1 - p) * exp((m - p) / d), with
 * d = sum(p (1 - p)) and m the mean of p weighted by its terms (Hajek, Annals of Mathematical
 * Statistics 35, 1964).  A step multiplies every weight by the ratio of the odds p / (1 - p) wanted
 * to those reached, which is Newton's with that approximation of the covariances, and is improved
 * by what the last step did (Anderson, Journal of the ACM 12, 1965, of depth 1). */
bool mp_distinct_model_fit(struct mp_distinct_model *model, const uint32_t count[]);

/* Puts experts in an order, of which meets() is asked: order [experts], the first `whole` of which
 * go to one group each, those of a group side by side. */
void mp_distinct_model_arrange(struct mp_distinct_model *model, const int32_t order[], int whole);
/* The probability that a token has an expert in the group to which all routes of experts `begin`
 * .. `end` - 1 of the order go, and share[i] of those of expert `whole` + i. */
double mp_distinct_model_meets(const struct mp_distinct_model *model, int begin, int end,
                               const double share[]);

/* The experts of one token of many, [top_k], drawn by the model, the last first; -1: it has fewer.
 * A token's are the same for the same weights, and change little with them. */
void mp_distinct_model_draw(const struct mp_distinct_model *model, uint64_t seed, uint64_t token,
                            int32_t expert[]);

/* distinct [ranks][degree][mp_levels_groups] of the plan's levels, in every chunk of a rank's
 * tokens: as the loads say; or counted of their routes, which the plan hands out token by token,
 * whatever its route_order says: drawn orders and those by probability are not known; or by the
 * model, in which chunks are alike. */
void mp_distinct_tokens(struct mp_distinct_model *model, const struct mp_plan *plan,
                        const struct mp_load *load, double distinct[]);
