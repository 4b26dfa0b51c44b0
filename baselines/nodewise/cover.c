/* What a copy costs, and which experts every node gets. */
#include <math.h>
#include <string.h>

#include "baselines/nodewise/nodewise.h"

void mp_nodewise_costs(const struct mp_setting *setting, bool rematerialises,
                       struct mp_nodewise_costs *costs) {
    const bool trains = !setting->forward_only;
    const double back = !trains ? 0
                                : (double)setting->gradient_bytes +
                                      (rematerialises ? (double)setting->expert_bytes : 0);
    const double passes = trains ? 3 : 1; /* backward computes twice what forward does */
    const int nodes = mp_topology_nodes(&setting->topology);
    const int of_node = setting->topology.ranks_per_node;
    const double between = setting->bandwidth;
    const double inside = nodes > 1 ? setting->bandwidth_in_node : setting->bandwidth;
    const double dense = 2 * (double)setting->attention_bytes;
    const double backward = 2 * setting->non_moe_seconds;
    *costs = (struct mp_nodewise_costs){
        .route = passes * setting->seconds_per_route,
        .product = passes * setting->seconds_per_expert,
        .hidden_forward = setting->non_moe_seconds,
        .way = 1,
    };
    if (between > 0) {
        costs->row_between = (trains ? 4 : 2) * (double)setting->route_bytes / between;
        costs->fetch_between = (double)setting->expert_bytes / between;
        costs->reduce_between = back / between;
        costs->hidden_backward =
            mp_nodewise_exposed(backward, dense * (nodes - 1) / nodes / between);
    }
    if (inside > 0) {
        costs->row_inside = (trains ? 4 : 2) * (double)setting->route_bytes / inside;
        costs->fetch_inside = (double)setting->expert_bytes / inside;
        costs->reduce_inside = back / inside;
        costs->hidden_inside =
            mp_nodewise_exposed(backward, dense * (of_node - 1) / of_node / inside);
    }
    const double load = costs->route + costs->row_inside + (nodes > 1 ? costs->row_between : 0);
    costs->product_routes = load > 0 ? (int64_t)fmin(costs->product / load, 1e9) : 0;
    costs->ranks_per_gate = setting->ranks_per_gate > 0 ? setting->ranks_per_gate : 1;
    costs->gates = (double)of_node / costs->ranks_per_gate;
}

struct mp_nodewise_costs mp_nodewise_pooled(const struct mp_nodewise_costs *costs,
                                            int ranks_per_node) {
    struct mp_nodewise_costs pooled = *costs;
    pooled.gates = 1;
    pooled.ranks_per_gate = ranks_per_node;
    pooled.copies_each = costs->gates - 1;
    return pooled;
}

/* Of what a layer takes as it is: as the seconds here are rough, copies have to save a tenth. */
static const double WORTH_COPIES = 0.9;

/* Experts in order, of which the first `covered` are in every node; of the others the routes, at
 * their owners' gates, NONE where none is left, at nodes and at all; and the lowest gate with most,
 * or NONE. */
struct cut {
    const struct mp_nodewise_experts *all;
    int32_t *order;                     /* [experts] */
    int64_t *gate, *left;               /* of experts; [gates] experts left behind it */
    int64_t *at_gate, *at_node, at_all; /* [gates], [nodes] */
    int64_t routes, fullest;            /* of all experts */
    int gates, nodes, covered, before;  /* before: of the covered, those that nobody copies */
};
enum { NONE = -1 };

static void find_fullest(struct cut *cut) {
    cut->fullest = NONE;
    for (int gate = 0; gate < cut->gates; gate++)
        if (cut->at_gate[gate] > (cut->fullest < 0 ? NONE : cut->at_gate[cut->fullest]))
            cut->fullest = gate;
}

/* Seconds of a layer in which every node has these experts; without the way of those that are
 * there. */
static double seconds_with(const struct mp_nodewise_costs *costs, double hidden,
                           const struct cut *cut) {
    const int ranks_per_node = cut->all->topology->ranks_per_node;
    const double nodes = cut->nodes, away = (nodes - 1) / nodes, covered = cut->covered;
    int64_t most = 0, least = INT64_MAX;
    for (int node = 0; node < cut->nodes; node++) {
        most = cut->at_node[node] > most ? cut->at_node[node] : most;
        least = cut->at_node[node] < least ? cut->at_node[node] : least;
    }
    /* Rows through the fullest gate: to its ranks' experts, or of their tokens to others'. */
    double at_gate = cut->fullest < 0 ? 0 : (double)cut->at_gate[cut->fullest];
    double in = away * at_gate * costs->gates, out = (double)(cut->at_all - least) / nodes;
    double work = (double)(cut->routes - cut->at_all) / nodes + (double)most;
    double own = (cut->all->experts - covered) / nodes * costs->copies_each / ranks_per_node;
    double copies = covered * away / ranks_per_node + own;
    /* Some rank has one, however few there are. */
    double products = copies > 0 ? fmax(copies, 1) : 0;
    double fetched = (covered - cut->before) * away * costs->fetch_between;
    double reduced = covered * away * costs->reduce_between;
    return (in > out ? in : out) * costs->row_between + work / ranks_per_node * costs->route +
           (mp_nodewise_exposed(fetched + own * costs->fetch_inside, hidden) +
            mp_nodewise_exposed(reduced + own * costs->reduce_inside, costs->hidden_backward)) *
               costs->way +
           products * costs->product;
}

/* Nothing is covered: all experts' routes are at their owners' gates and nodes. */
static void begin(struct cut *cut, int ranks_per_gate) {
    const struct mp_nodewise_experts *all = cut->all;
    memset(cut->left, 0, (size_t)(2 * cut->gates + cut->nodes) * sizeof *cut->left);
    for (int expert = 0; expert < all->experts; expert++) {
        int64_t gate = cut->gate[expert] = all->owner[expert] / ranks_per_gate;
        cut->left[gate]++;
        cut->at_gate[gate] += all->load[expert];
        cut->at_node[mp_topology_node(all->topology, all->owner[expert])] += all->load[expert];
        cut->at_all += all->load[expert];
    }
    for (int gate = 0; gate < cut->gates; gate++)
        cut->at_gate[gate] = cut->left[gate] > 0 ? cut->at_gate[gate] : NONE;
    cut->routes = cut->at_all;
    find_fullest(cut);
}

/* The next one in order. */
static void cover_next(struct cut *cut) {
    const int32_t expert = cut->order[cut->covered++];
    const int64_t gate = cut->gate[expert], routes = cut->all->load[expert];
    cut->at_gate[gate] = --cut->left[gate] > 0 ? cut->at_gate[gate] - routes : NONE;
    cut->at_node[mp_topology_node(cut->all->topology, cut->all->owner[expert])] -= routes;
    cut->at_all -= routes;
    if (gate == cut->fullest)
        find_fullest(cut);
}

/* Which is the hottest that is left behind the fullest gate. */
static void order_next(struct cut *cut) {
    int at = cut->covered;
    while (cut->gate[cut->order[at]] != cut->fullest)
        at++;
    int32_t expert = cut->order[at];
    for (; at > cut->covered; at--) /* the others stay in their order */
        cut->order[at] = cut->order[at - 1];
    cut->order[at] = expert;
}

int mp_nodewise_cover(const struct mp_nodewise_costs *costs, double hidden,
                      const struct mp_nodewise_experts *all, int before, int limit, int32_t order[],
                      double *seconds) {
    struct cut cut = {.all = all, .order = order, .before = before};
    double least = INFINITY;
    int best = before;
    cut.gates = (all->topology->ranks - 1) / costs->ranks_per_gate + 1;
    cut.nodes = mp_topology_nodes(all->topology);
    cut.gate = all->memory;
    cut.left = cut.gate + all->experts;
    cut.at_gate = cut.left + cut.gates;
    cut.at_node = cut.at_gate + cut.gates;
    begin(&cut, costs->ranks_per_gate);
    while (cut.covered < before)
        cover_next(&cut);
    for (;; order_next(&cut), cover_next(&cut)) {
        double with = seconds_with(costs, hidden, &cut);
        if (with < least) {
            least = cut.covered > before ? with : WORTH_COPIES * with;
            best = cut.covered;
            *seconds = with;
        }
        if (cut.covered == limit)
            return best;
    }
}
