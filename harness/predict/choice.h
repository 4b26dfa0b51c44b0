/* Choice: weights of things of which the longest counts, by how long each turns out to be.
 *
 * Regret matching (Zinkevich et al., NIPS 2007; "+" as in Tammelin, arXiv 1407.5042): a player who
 * wants it to take long plays against one who answers every weight with what then takes least, and
 * the mean of the weights, later ones counted more, comes near to the best there are. */
#pragma once

struct mp_choice {
    double *of;     /* [count] weights, not negative, summing to one; or seconds of the same */
    double *regret; /* [count], of weights */
    double *mean;   /* [count], likewise: added up over rounds */
    int count;
};

/* Of so many things, with the next arrays of memory, which it is set behind: 3, or 1 for seconds.
 */
void mp_choice_create(struct mp_choice *choice, int count, int arrays, double **memory);
/* The first ones count alike, others nothing. */
void mp_choice_begin(struct mp_choice *choice, int first);
double mp_choice_weighted(const struct mp_choice *weights, const struct mp_choice *seconds);

/* Weights in proportion to regrets; the mean, before that, gets the present ones, `share` times.
 * Beyond `enough` seconds no way is the least: how much longer it is would only be regretted for
 * many rounds. */
void mp_choice_improve(struct mp_choice *choice, const struct mp_choice *seconds, double share,
                       double enough);
/* Puts the mean in the place of the weights. */
void mp_choice_take_mean(struct mp_choice *choice);

/* Things of two kinds, the first ones and the others, of which all count alike: from a choice of
 * two; and such a choice by what those of a kind take in the mean. */
void mp_choice_spread(const struct mp_choice *kinds, int first, struct mp_choice *choice);
void mp_choice_improve_kinds(struct mp_choice *kinds, const struct mp_choice *seconds, int first,
                             double share);
