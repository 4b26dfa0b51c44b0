#include "reference/gate/tamoe.h"

#include <math.h>

#include "reference/gate/gate.h"

static bool same_node(const struct mp_topology *topology, int rank, int other) {
    return mp_topology_node(topology, rank) == mp_topology_node(topology, other);
}

/* The sum over all ranks of what one inside the node counts and what one outside. */
static double sum_over_ranks(const struct mp_topology *topology, int rank, double inside,
                             double outside) {
    int node = mp_topology_node(topology, rank);
    int insiders = mp_topology_node_end(topology, node) - mp_topology_node_begin(topology, node);
    return insiders * inside + (topology->ranks - insiders) * outside;
}

double mp_tamoe_released_scale(const struct mp_topology *topology, double outside, int rank,
                               int other) {
    double inside = exp(1 - outside); /* over that of the dearer */
    double own = same_node(topology, rank, other) ? inside : 1;
    return own / sum_over_ranks(topology, rank, inside, 1) * topology->ranks * topology->ranks;
}

enum form { FORM_RELEASED, FORM_PAPER };

struct options {
    int form; /* enum form */
    double outside;
};

static const struct mp_option options[] = {
    {"loss", MP_OPTION_CHOICE, offsetof(struct options, form), "", "released", 0, 0,
     "released paper",
     "what the loss of an expert is multiplied by: softmax of its rank's costs, or 1 over the "
     "target share, over the mean of that"},
    {"outside-cost", MP_OPTION_DOUBLE, offsetof(struct options, outside), "", "4", 1, 100, NULL,
     "cost of a byte to another node over one inside the node; the released code reads a matrix "
     "of costs"},
    {0},
};

static int complete(const struct mp_gate_sizes *sizes, const void *given, struct mp_gate_rule *rule,
                    struct mp_error *error) {
    (void)sizes, (void)given, (void)error;
    rule->loss_level = MP_BALANCE_RANK;
    return MP_OK;
}

/* The released loss is a mean over E experts times E_loc^2, which is the sum times E / ranks^2;
 * ours is the sum times E.  An expert is where plain expert parallelism has it, since the loss is
 * made once for the run: systems that move experts, or copy them, are not followed. */
static void loss_factors(const struct mp_gate_sizes *sizes, const void *given,
                         const struct mp_topology *topology, int rank, double factor[]) {
    const struct options *tamoe = given;
    double ranks = topology->ranks, cost = tamoe->outside;
    for (int e = 0; e < sizes->experts; e++) {
        int owner = (int)((int64_t)e * topology->ranks / sizes->experts);
        double own = same_node(topology, rank, owner) ? 1 : cost;
        factor[e] = tamoe->form == FORM_PAPER
                        ? own * ranks / sum_over_ranks(topology, rank, 1, cost)
                        : mp_tamoe_released_scale(topology, cost, rank, owner) / (ranks * ranks);
    }
}

const struct mp_gate_kind mp_gate_tamoe = {
    .name = "tamoe",
    .title = "TA-MoE: a balancing loss by topology",
    .source = "Chen et al., TA-MoE, NeurIPS 2022, arXiv 2302.09915, section 4; Chen-Chang/TA-MoE",
    .models =
        "GShard's two experts and weights. The auxiliary loss is each rank's own: the sum over "
        "experts of their share of its first choices times their mean probability times a factor "
        "by where the expert is, and then the mean over ranks. With loss: released that factor is "
        "the softmax of the ranks' costs, so that a far expert is dearer than its cost says, and "
        "the loss is 1 / ranks where all cost the same; with loss: paper it is 1 over the target "
        "share, which is in proportion to 1 / cost, normalised to a mean of 1. One rank has the "
        "loss of GShard. Where an expert is, the loss takes from plain expert parallelism: rank e "
        "times ranks over experts, whatever the system has made of homes and copies, so that it "
        "means most under tamoe, ep and others that move nothing. Nothing is dropped. Not "
        "modelled: costs of more than two levels.",
    .least = 2,
    .most = 2,
    .usual = 2,
    .weights = MP_WEIGHTS_DIVIDED,
    .loss_counts = MP_COUNT_FIRSTS,
    .options = options,
    .options_size = sizeof(struct options),
    .complete = complete,
    .loss_factors = loss_factors,
};
