/* FasterMoE: dynamic shadowing, the smart schedule and the topology-aware gate (PPoPP 2022;
 * laekov/fastmoe).
 *
 * Experts have fixed owners.  Each iteration, once the gate has spoken, a layer's hottest experts
 * are copied to all ranks as long as a performance model says that this pays; tokens of such a
 * shadow stay on their rank, and its gradients are summed back into the owner.  The tokens of all
 * other experts travel in steps between groups of ranks, so that what has arrived is computed while
 * more is on its way.  On request the gate is changed, so that fewer tokens leave their node.
 * One file per idea:
 *   shadow_paper.c     the paper's selection, from loads per rank           (2.3.2)
 *   shadow_released.c  the released code's, from loads per expert           (2.3.3)
 *   schedule.c         what the smart schedule takes, and the best groups   (2.3.5)
 *   fastermoe.c        costs, options and the descriptor that joins them
 *
 * Both policies try experts hottest first and end with the first one that does not help.  The
 * sources have as many experts on every rank; here any owners will do, since the paper's loads are
 * counted per rank and the released code's per expert.  Nothing here allocates after its create
 * function.
 *
 * The topology-aware gate (2.3.6) limits the tokens of a rank whose first choice leaves the node;
 * the policy says how many (outgoing_limit), the gate chooses again as the released code does;
 * of loads without a gate, in predictions and replays, what is left is a rule's (mp_replay_limit in
 * reference/model/replay.h).  Limits are per rank: the paper's
 * L = W_net / (M W_local) B is read with B the tokens of a rank, as in its own count of traffic,
 * and the released floor(B fraction) is per rank too.  Shadows are chosen after the gate, so that
 * for the gate an expert is where its owner is. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "reference/base/arena.h"
#include "reference/plan/system.h"

enum mp_fastermoe_policy {
    MP_FASTERMOE_PAPER,         /* consistent accounting */
    MP_FASTERMOE_PAPER_PRINTED, /* the paper's update as printed, see mp_shadow_paper */
    MP_FASTERMOE_RELEASED,      /* with the defect, see mp_shadow_released */
    MP_FASTERMOE_RELEASED_FIXED /* without it */
};

enum mp_fastermoe_outgoing { MP_OUTGOING_RELEASED, MP_OUTGOING_PAPER };

/* Named in the option table of fastermoe.c. */
struct mp_fastermoe_options {
    int policy;          /* enum mp_fastermoe_policy */
    double bandwidth;    /* W_net, B/s; 0: the setting's */
    double expert_flops; /* Phi, operations/s of a rank; 0: what the setting's times amount to */
    double alpha;        /* hidden width over width of an expert; 0: the run's */
    int element_bytes;   /* of the run's parameters and rows; the released policies count 4 */
    int shadows;         /* most shadows of a layer, or MP_ALL */
    bool smart_schedule;
    int group_size; /* ranks; 0: the released code's, see mp_smart_released_size; MP_AUTO: see
                       mp_smart_group_size; MP_ALL: all */
    bool topology_gate;
    int outgoing;             /* enum mp_fastermoe_outgoing */
    double outgoing_fraction; /* of a rank's tokens, released */
    double local_bandwidth;   /* W_local, B/s, paper */
};

/* What the performance model multiplies loads with, in seconds. */
struct mp_shadow_costs {
    double compute;    /* one route through one expert, forward; backward costs twice as much */
    double feature;    /* one route's row in one direction; an iteration has four */
    double model;      /* one expert's parameters, or their gradient, to or from all ranks */
    bool forward_only; /* serving: 1 compute and 2 feature of a route, and no gradients */
};
/* A route in an iteration: 3 compute + 4 feature. */
static inline double mp_shadow_per_route(const struct mp_shadow_costs *costs) {
    return mp_passes_of_compute(costs->forward_only) * costs->compute +
           mp_passes_of_travel(costs->forward_only) * costs->feature;
}
/* Costs under these options.  The released policies take every element for 4 bytes. */
struct mp_shadow_costs mp_fastermoe_costs(const struct mp_setting *setting,
                                          const struct mp_fastermoe_options *options);

/* A selection and how it came about. */
struct mp_shadows {
    int ranks, experts;
    int32_t *expert; /* [experts], the shadows in the order in which they were taken */
    int count;
    double *latency; /* [experts + 1], s: without shadows, then with each candidate in turn; the
                        last is that of a rejected one unless the candidates ran out */
    int latencies;
    int32_t *order;  /* [max(ranks, experts)], candidates, hottest first; working memory as below */
    int64_t *total;  /* [max(ranks, experts)], what `order` is sorted by */
    int64_t *own;    /* [ranks], routes that a rank computes as the owner of their experts */
    int64_t *gained; /* [ranks], routes that it computes with shadows of others' experts */
};
/* Tables are the arena's, whose user looks whether there was memory. */
void mp_shadows_create(struct mp_arena *memory, int ranks, int experts, struct mp_shadows *state);

/* The paper's selection (2.3.2), at most `limit` shadows.  B_w are the routes computed on rank w;
 *   without shadows   max over w of  B_w (3 compute + 4 feature)
 *   with r of them    max over w of  B'_w 3 compute  +  2 r model
 * A shadow leaves every rank the routes of its own tokens: the owner loses what others sent.  With
 * `printed` the owner keeps only what it computes as an owner, so that routes it gained from
 * earlier shadows are forgotten: with one expert per rank that is the printed B_i = T_ii.
 * Candidates are experts by their routes; with one expert per rank that is the paper's order of
 * workers.  owner is [experts]. */
void mp_shadow_paper(struct mp_shadows *state, const struct mp_shadow_costs *costs,
                     const struct mp_load *load, const int32_t owner[], bool printed, int limit);

/* The released code's selection (2.3.3), at most `limit` shadows.  B are sums sorted descending;
 *   without shadows    B[0] (3 compute + 4 feature)
 *   with the first i   B[i] (3 compute + 4 feature)  +  i model
 * so the parameters count once and the local work of shadows not at all, and the last candidate,
 * which has no successor, is never tried.  The sums were meant to be routes per expert: that is
 * `fixed`.  The released code sums the gathered counts over the experts instead: the routes that
 * each source sends.  Without drops these are all equal and nothing is ever shadowed; with drops
 * sources are ranked and the experts that happen to have their numbers shadowed.  This needs as
 * many experts as ranks. */
void mp_shadow_released(struct mp_shadows *state, const struct mp_shadow_costs *costs,
                        const struct mp_load *load, bool fixed, int limit);

/* The smart schedule as a model.  There are two streams, one that sends and one that computes; both
 * work in order.  Sending: all S, the broadcasts of all shadows, all R; computing: all C, the
 * shadows.  C of a step waits for its S, R for its C, shadows for their broadcasts.  Seconds. */
struct mp_smart_costs {
    int steps;         /* ranks / group size */
    double *send;      /* [steps], S: rows to their experts; borrowed, as below */
    double *compute;   /* [steps], C */
    double *back;      /* [steps], R: results to their tokens */
    double broadcasts; /* of all shadows */
    double shadows;    /* computing them */
};
/* When each of these ends, from the start of the first S on. */
struct mp_smart_ends {
    double *send, *compute, *back; /* [steps], borrowed */
    double shadows;
};
/* Fills in the ends and returns the last of them, s. */
double mp_smart_schedule(const struct mp_smart_costs *costs, struct mp_smart_ends *ends);

/* The group size that the model favours for balanced loads without shadows, before anything is
 * known of loads: each step computes every local expert once more, which costs it
 * seconds_per_expert, and hides the exchange of another.  Ties go to larger groups.  MP_ENOMEM. */
int mp_smart_group_size(const struct mp_setting *setting, const struct mp_shadow_costs *costs,
                        int *group_size, struct mp_error *error);
/* The released code's 4 ranks; where they don't divide the ranks, the largest divisor below. */
static inline int mp_smart_released_size(int ranks) {
    int size = ranks < 4 ? ranks : 4;
    while (size > 1 && ranks % size != 0)
        size--;
    return size;
}

/* Whether `candidate` seconds are fewer than `best`: by more than rounding, since a candidate that
 * costs as much in exact arithmetic must be rejected whatever the order of operations. */
static inline bool mp_shadow_pays(double candidate, double best) {
    return candidate < best * (1 - 1e-12);
}
