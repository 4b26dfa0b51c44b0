/* MoonEP: every rank computes exactly as many routes as every other, on the actual loads
 * (MoonshotAI/MoonEP; Kimi K3 report, section 5.2.1 and appendix E).
 *
 * Experts have fixed owners, E / R neighbours on every rank: its home group.  Once the gate has
 * spoken, in every layer and micro-batch, ranks whose group has more than an even share of the
 * routes give some up to ranks whose group has less.  Those get the experts' parameters for this
 * layer (after the gate: experts wait for them) and send the gradients home.  Exact: nothing is
 * dropped and no token changes its expert.
 *
 *   share     total / R; with S tokens of K routes on every rank that is S * K
 *   groups    as long as one is above its share: the one with most above gives to the one with most
 *             below as many as that lacks, and may fall below its own share by that.  So a rank
 *             is filled once, from a single group: it takes copies of at most E / R experts
 *   experts   of a group: the taker that lacks most gets from the expert with most left as many as
 *             both have, until no taker lacks any
 *   routes    an expert's routes, source after source, are cut where its ranks end, in ascending
 *             order; not by locality
 *
 * Ties go to the lower id.  The source has E a multiple of R, as many tokens on every rank, and the
 * ranks within one NVLink domain.  Ours are: other numbers of experts and ranks (the largest group
 * takes the place of E / R), a remainder of the shares, one by one to the groups with most routes,
 * nodes, and `tolerance`. */
#ifndef MOEPERF_BASELINES_MOONEP_MOONEP_H
#define MOEPERF_BASELINES_MOONEP_MOONEP_H

#include "reference/plan/owned.h"
#include "reference/plan/pieces.h"
#include "reference/plan/queue.h"
#include "reference/plan/system.h"

extern const struct mp_system mp_system_moonep;

/* Named in the option table of moonep.c. */
struct mp_moonep_options {
    double tolerance; /* how far above its share a rank may stay, over the mean share */
};

/* A decision for one layer, and what it is made with.  Nothing allocates after create. */
struct mp_moonep {
    int ranks, experts;
    struct mp_pieces pieces; /* who computes how many routes of which expert, ranks ascending */
    int64_t *total;          /* [experts], their routes, less those given up */
    int64_t *lack;           /* [ranks], share less load, less what was given or taken */
    int64_t *quota;          /* [ranks], routes that the rank takes */
    int32_t *order;          /* [ranks], working memory as below */
    struct mp_owned group;   /* the home groups, with their routes */
    /* Lists through ids, -1 at their ends: a group's takers, and a rank's takings. */
    int32_t *first_taker, *first_taking; /* [ranks] */
    int32_t *next_taker;                 /* [ranks] */
    struct mp_moonep_taking *taking;     /* [experts + ranks] */
    int takings;
    struct mp_queue above, below, left, takers; /* groups, groups, experts and ranks by routes */
};
struct mp_moonep_taking {
    int64_t routes;
    int32_t expert, next;
};
/* Tables are the arena's, whose user looks whether there was memory. */
void mp_moonep_create(struct mp_arena *memory, int ranks, int experts, struct mp_moonep *state);

/* Decides on state->total, the routes of every expert over all sources, which the caller has filled
 * in; owner is [experts].  Takes O((experts + ranks) log (experts + ranks)). */
int mp_moonep_decide(struct mp_moonep *state, const struct mp_moonep_options *options,
                     const int32_t owner[], struct mp_error *error);

#endif
