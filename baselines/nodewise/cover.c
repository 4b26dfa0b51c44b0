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

/* Of the experts that nodes have not in common: their routes at gates, NONE where all are covered,
 * at nodes and at all; those of all experts; and the lowest gate with most, or NONE. */
struct rest {
    int64_t *at_gate, *at_node, all, routes, fullest;
    int gates, nodes;
};
enum { NONE = -1 };

/* Experts in order, those that are covered first, and the gates of their owners. */
struct row {
    int32_t *order;      /* [experts] */
    const int64_t *gate; /* [experts], of experts */
    int64_t *left;       /* [gates], of the experts behind them */
    int experts;
    int covered, before; /* before: of these, those that nobody copies */
};

static int64_t fullest_gate(const struct rest *rest) {
    int64_t found = NONE, most = NONE;
    for (int gate = 0; gate < rest->gates; gate++)
        if (rest->at_gate[gate] > most) {
            most = rest->at_gate[gate];
            found = gate;
        }
    return found;
}

/* Seconds of a layer in which every node has these experts; without the way of those that are
 * there. */
static double seconds_with(const struct mp_nodewise_costs *costs, double hidden, int ranks_per_node,
                           const struct row *row, const struct rest *rest) {
    const double nodes = rest->nodes, away = (nodes - 1) / nodes, covered = row->covered;
    int64_t most = 0, least = INT64_MAX;
    for (int node = 0; node < rest->nodes; node++) {
        most = rest->at_node[node] > most ? rest->at_node[node] : most;
        least = rest->at_node[node] < least ? rest->at_node[node] : least;
    }
    /* Rows through the fullest gate: to its ranks' experts, or of their tokens to others'. */
    double at_gate = rest->fullest < 0 ? 0 : (double)rest->at_gate[rest->fullest];
    double in = away * at_gate * costs->gates, out = (double)(rest->all - least) / nodes;
    double work = (double)(rest->routes - rest->all) / nodes + (double)most;
    double own = (row->experts - covered) / nodes * costs->copies_each / ranks_per_node;
    double copies = covered * away / ranks_per_node + own;
    /* Some rank has one, however few there are. */
    double products = copies > 0 ? fmax(copies, 1) : 0;
    double fetched = (covered - row->before) * away * costs->fetch_between;
    double reduced = covered * away * costs->reduce_between;
    return (in > out ? in : out) * costs->row_between + work / ranks_per_node * costs->route +
           (mp_nodewise_exposed(fetched + own * costs->fetch_inside, hidden) +
            mp_nodewise_exposed(reduced + own * costs->reduce_inside, costs->hidden_backward)) *
               costs->way +
           products * costs->product;
}

/* All experts' routes at their owners' gates and nodes. */
static void count_routes(const struct mp_nodewise_experts *all, const struct row *row,
                         struct rest *rest) {
    for (int gate = 0; gate < rest->gates; gate++)
        rest->at_gate[gate] = row->left[gate] > 0 ? 0 : NONE;
    for (int expert = 0; expert < all->experts; expert++) {
        rest->at_gate[row->gate[expert]] += all->load[expert];
        rest->at_node[mp_topology_node(all->topology, all->owner[expert])] += all->load[expert];
        rest->all += all->load[expert];
    }
    rest->routes = rest->all;
    rest->fullest = fullest_gate(rest);
}

static void take_routes(const struct row *row, int64_t gate, int node, int64_t routes,
                        struct rest *rest) {
    rest->at_gate[gate] -= routes;
    if (row->left[gate] == 0)
        rest->at_gate[gate] = NONE;
    rest->at_node[node] -= routes;
    rest->all -= routes;
    if (gate == rest->fullest)
        rest->fullest = fullest_gate(rest);
}

/* The next one that is covered: the hottest that is left behind this gate. */
static void cover_next(struct row *row, int64_t gate) {
    int at = row->covered;
    while (row->gate[row->order[at]] != gate)
        at++;
    int32_t expert = row->order[at];
    for (; at > row->covered; at--) /* the others stay in their order */
        row->order[at] = row->order[at - 1];
    row->order[at] = expert;
}

int mp_nodewise_cover(const struct mp_nodewise_costs *costs, double hidden,
                      const struct mp_nodewise_experts *all, int before, int limit, int32_t order[],
                      double *seconds) {
    const struct mp_topology *topology = all->topology;
    const int each = costs->ranks_per_gate, gates = (topology->ranks - 1) / each + 1;
    const int nodes = mp_topology_nodes(topology), experts = all->experts;
    int64_t *gate = all->memory, *left = gate + experts, *at_gate = left + gates;
    struct row row = {order, gate, left, experts, 0, before};
    struct rest rest = {at_gate, at_gate + gates, .gates = gates, .nodes = nodes};
    double least = INFINITY;
    memset(left, 0, (size_t)(2 * gates + nodes) * sizeof *left);
    for (int expert = 0; expert < experts; expert++) {
        gate[expert] = all->owner[expert] / each;
        left[gate[expert]]++;
    }
    count_routes(all, &row, &rest);
    for (int best = before;; row.covered++) {
        if (row.covered >= before) {
            double with = seconds_with(costs, hidden, topology->ranks_per_node, &row, &rest);
            if (with < least) {
                least = row.covered > before ? with : WORTH_COPIES * with;
                best = row.covered;
                *seconds = with;
            }
            if (row.covered == limit)
                return best;
            cover_next(&row, rest.fullest);
        }
        int32_t expert = order[row.covered];
        left[gate[expert]]--;
        take_routes(&row, gate[expert], mp_topology_node(topology, all->owner[expert]),
                    all->load[expert], &rest);
    }
}
