/* Nodewise: every node gets the hot experts once, as far as their way is hidden or pays, and
 * spreads them over its ranks, so that rows stay inside nodes and all ranks compute about the same.
 * moeperf's own.
 *
 * Between nodes a byte is dear, inside it is cheap.  What a route costs there is rows: four
 * crossings in training.  What a copy costs is its parameters on their way there and its gradient
 * on its way home, once per node and iteration, however many tokens of the node want it; and what
 * travels under attention, or the experts of the layer before, costs nothing.  So, layer by layer:
 *
 *   cover    k hot experts are copied into every node that has not their owner, those first that
 *            wait behind the busiest gate; k is what takes least: rows through the busiest gate,
 *            work, and what of the copies' way there and back nothing hides
 *   assign   what a node holds, it computes for its own tokens; tokens whose expert it lacks go to
 *            the holding node with least to do
 *   place    a node's copies go, heaviest first, to the rank with least to do behind a gate that
 *            has not had its part yet of what comes in, or of what it passes on to the next node
 *   pool     where gates gain more by it than it costs: experts that are in one node alone get a
 *            copy behind each of its gates, and equal parts of their routes there
 *   spread   inside a node an expert's routes are spread over its holders so that the fullest has
 *            least, and a rank's own come first
 *   even     a node's fullest ranks give routes to its emptiest ones, with a copy of their largest
 *            expert, or of one that goes as a whole, as long as that saves more than one product
 *            more, and all together more than what of their way nothing hides; how full a rank
 *            is, is routes, and for every expert as many as load it like a product
 *
 * All that before the gate, on the loads of the last iteration, or micro-batch, with copies that
 * travel under attention; and again once the gate has spoken, on the actual loads and with what is
 * there by then, with further copies whose way the chunks before theirs hide at most.  Copies stay
 * for all micro-batches of an iteration (policy.copies_stay).
 *
 *   ahead    in backward, covered experts that forward's gates have no time for go where they are
 *            wanted next, once they have been updated (policy.updates_early)
 *   chunk    rows travel by whole experts, in chunks under the products of one another
 *            (reference/plan/chunks.h), unless that takes gates' time from what is not hidden, or
 *            messages take as long as products
 *   behind   backward, rows set out before weights have their gradients (policy.weights_behind)
 *
 * Where nodes have one rank each, all ranks are one node.  Nothing allocates after create; integers
 * decide wherever several ranks have to agree on more than an order of costs. */
#pragma once

#include "reference/base/arena.h"
#include "reference/plan/chunks.h"
#include "reference/plan/pieces.h"
#include "reference/plan/queue.h"
#include "reference/plan/recent.h"
#include "reference/plan/system.h"

extern const struct mp_system mp_system_nodewise;

/* Named in the option table of nodewise.c. */
struct mp_nodewise_options {
    int window;         /* iterations */
    int cover;          /* experts, MP_AUTO, MP_ALL */
    int memory;         /* extra experts of a layer on one rank, MP_AUTO, MP_ALL */
    int ahead;          /* experts behind each gate, MP_AUTO, MP_ALL */
    int rematerialise;  /* 0 auto, 1 yes, 2 no */
    int ranks_per_gate; /* MP_AUTO; MP_ALL and 0 likewise */
    bool pool, early, even, correct;
    int chunks; /* MP_AUTO */
};

/* What a layer's decisions cost, in seconds; of a forward pass and, in training, the backward one
 * behind it. */
struct mp_nodewise_costs {
    double row_between;    /* a route whose token is in another node, over a node's border */
    double row_inside;     /* a route whose token is on another rank of the node */
    double fetch_between;  /* an expert's parameters over a node's border */
    double reduce_between; /* its gradient, back; and its parameters once more if they were freed */
    double fetch_inside;   /* an expert's parameters to one rank of the node */
    double reduce_inside;  /* likewise */
    double route;          /* computing one route */
    double product;        /* computing an expert at all, beside its routes */
    int64_t product_routes; /* as many as load a rank like one product more: their computing, and
                              their rows in its ports */
    double hidden_forward;  /* that the way of parameters may take before anybody waits for it */
    double hidden_backward, hidden_inside; /* of gradients, between nodes and inside: beside the
                                              sums of attention's */
    double gates;                          /* of a node to others, neighbours sharing one: */
    int ranks_per_gate;
    double way;         /* how much a second counts that nothing hides of copies' way */
    double copies_each; /* inside its node, of an expert that is in no other */
};
/* Of copies that stay until backward, or are fetched again for it. */
void mp_nodewise_costs(const struct mp_setting *setting, bool rematerialises,
                       struct mp_nodewise_costs *costs);

/* The same where all gates of a node are one, as experts that are in it alone are behind each. */
struct mp_nodewise_costs mp_nodewise_pooled(const struct mp_nodewise_costs *costs,
                                            int ranks_per_node);

/* A layer's experts. */
struct mp_nodewise_experts {
    const struct mp_topology *topology;
    const int32_t *owner; /* [experts] */
    const int64_t *load;  /* [experts] routes */
    int experts;
    int64_t *memory; /* [2 * gates + nodes + experts] working memory */
};
/* How many experts every node should have, at most `limit`, so that an iteration of the layer takes
 * least, of which `before` are everywhere already; that many if more do not save a tenth.  Of the
 * others' way there so many seconds are hidden.  They are those first in order[experts], which has
 * all experts on entry: those that are everywhere, then the others, hottest first.  Next comes
 * always the hottest that is left behind the gate whose own experts have most routes left, as that
 * one is the busiest.  before <= limit <= experts.  *seconds: what it takes, but for what is the
 * same whatever is covered. */
int mp_nodewise_cover(const struct mp_nodewise_costs *costs, double hidden,
                      const struct mp_nodewise_experts *all, int before, int limit, int32_t order[],
                      double *seconds);

/* What hides the way of a node's copies, and back that of their gradients, in seconds. */
struct mp_nodewise_hidden {
    double parameters, gradients;
};

/* Routes of one expert that one rank computes. */
struct mp_nodewise_share {
    int64_t routes;
    int32_t expert;
    int32_t next; /* of the same rank, or -1 */
    bool fixed;   /* the rank computes them whatever others do */
    bool given;   /* some of them went to another rank, with a copy */
};

/* The ranks of a node at work. */
struct mp_nodewise_node {
    int ranks;            /* of this node */
    int32_t *first;       /* [ranks] shares of a rank, -1: none */
    int32_t *copies;      /* [ranks] that it would have to get */
    int32_t *given, *got; /* [ranks] experts of which copies were made from here, and to here */
    int64_t *load;        /* [ranks] routes, and `product` for each expert that has any */
    int64_t product;      /* mp_nodewise_costs.product_routes */
    int32_t *order;       /* [ranks] working memory */
    struct mp_nodewise_share *share; /* [capacity] */
    int shares;
    struct mp_queue above, below;
};
/* With room for owners of all experts and so many copies on each rank: `capacity` shares.  Tables
 * are the arena's, whose user looks whether there was memory. */
void mp_nodewise_node_create(struct mp_arena *memory, int most_ranks, int experts, int copies,
                             int64_t product, struct mp_nodewise_node *node);
/* So many ranks with nothing to do and no copies. */
void mp_nodewise_node_begin(struct mp_nodewise_node *node, int ranks);
/* A rank computes so many routes of an expert, at least one; it has none of it yet. */
void mp_nodewise_node_add(struct mp_nodewise_node *node, int rank, int expert, int64_t routes,
                          bool fixed);
/* An expert's routes over the ranks that hold it, ascending: the fullest has least. */
void mp_nodewise_node_spread(struct mp_nodewise_node *node, int expert, const int32_t holder[],
                             int holders, int64_t routes);
/* What of so many seconds is not hidden by others. */
static inline double mp_nodewise_exposed(double seconds, double hidden) {
    return seconds > hidden ? seconds - hidden : 0;
}
/* Ranks above the least level that copies can bring all to give to the emptiest ones, with a copy,
 * of which no rank has more than `limit`, what takes at least `least` (1 or more) off them: a part
 * of their largest share, or a whole one with its product, whichever takes more off them. */
void mp_nodewise_node_even(struct mp_nodewise_node *node, int64_t least, int limit);
/* The same with as much as pays for a copy.  False: what it takes off the fullest rank is not worth
 * what of all copies' way is not hidden; the node has to be filled anew. */
bool mp_nodewise_node_even_out(struct mp_nodewise_node *node, const struct mp_nodewise_costs *costs,
                               struct mp_nodewise_hidden hidden, int limit);
int64_t mp_nodewise_node_fullest(const struct mp_nodewise_node *node);
