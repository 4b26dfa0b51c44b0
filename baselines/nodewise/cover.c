/* What a copy costs, and which experts every node gets. */
#include <math.h>
#include <string.h>

#include "baselines/nodewise/nodewise.h"

void mp_nodewise_costs(const struct mp_setting *setting, struct mp_nodewise_costs *costs) {
    const bool trains = !setting->forward_only;
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
    };
    if (between > 0) {
        costs->row_between = (trains ? 4 : 2) * (double)setting->route_bytes / between;
        costs->fetch_between = (double)setting->expert_bytes / between;
        costs->reduce_between = trains ? (double)setting->gradient_bytes / between : 0;
        costs->hidden_backward =
            mp_nodewise_exposed(backward, dense * (nodes - 1) / nodes / between);
    }
    if (inside > 0) {
        costs->row_inside = (trains ? 4 : 2) * (double)setting->route_bytes / inside;
        costs->fetch_inside = (double)setting->expert_bytes / inside;
        costs->reduce_inside = trains ? (double)setting->gradient_bytes / inside : 0;
        costs->hidden_inside =
            mp_nodewise_exposed(backward, dense * (of_node - 1) / of_node / inside);
    }
    const double load = costs->route + costs->row_inside + (nodes > 1 ? costs->row_between : 0);
    costs->product_routes = load > 0 ? (int64_t)fmin(costs->product / load, 1e9) : 0;
    costs->ranks_per_gate = setting->ranks_per_gate > 0 ? setting->ranks_per_gate : 1;
    costs->gates = (double)of_node / costs->ranks_per_gate;
}

/* Of what a layer takes without copies: as the seconds here are rough, copies have to save a tenth.
 */
static const double WORTH_COPIES = 0.9;

/* Of the experts that nodes have not in common: their routes at gates, at nodes and at all; those
 * of all experts; and the gate with most, once asked. */
struct rest {
    int64_t *at_gate, *at_node, all, routes, fullest;
    int nodes;
};

/* Experts in order, those that are covered first, and the gates of their owners. */
struct row {
    int32_t *order;      /* [experts] */
    const int64_t *gate; /* [experts], of experts */
    int covered, experts;
};

/* The gate with most routes, the lowest of several; -1 if all experts are covered. */
static int64_t fullest_gate(const struct row *row, const int64_t at_gate[]) {
    int64_t found = -1;
    for (int i = row->covered; i < row->experts; i++) {
        int64_t gate = row->gate[row->order[i]];
        if (found < 0 || at_gate[gate] > at_gate[found] ||
            (at_gate[gate] == at_gate[found] && gate < found))
            found = gate;
    }
    return found;
}

/* Seconds of a layer in which every node has so many experts. */
static double seconds_with(const struct mp_nodewise_costs *costs, int ranks_per_node,
                           const struct row *row, struct rest *rest) {
    const double nodes = rest->nodes, away = (nodes - 1) / nodes;
    int64_t most = 0, least = INT64_MAX;
    rest->fullest = fullest_gate(row, rest->at_gate);
    for (int node = 0; node < rest->nodes; node++) {
        most = rest->at_node[node] > most ? rest->at_node[node] : most;
        least = rest->at_node[node] < least ? rest->at_node[node] : least;
    }
    /* Rows through the fullest gate: to its ranks' experts, or of their tokens to others'. */
    double at_gate = rest->fullest < 0 ? 0 : (double)rest->at_gate[rest->fullest];
    double in = away * at_gate * costs->gates, out = (double)(rest->all - least) / nodes;
    double work = (double)(rest->routes - rest->all) / nodes + (double)most;
    /* Some rank has one, however few there are. */
    double products = row->covered > 0 ? fmax(row->covered * away / ranks_per_node, 1) : 0;
    return (in > out ? in : out) * costs->row_between + work / ranks_per_node * costs->route +
           mp_nodewise_exposed(row->covered * away * costs->fetch_between, costs->hidden_forward) +
           mp_nodewise_exposed(row->covered * away * costs->reduce_between,
                               costs->hidden_backward) +
           products * costs->product;
}

/* Routes of an expert come to its owner's, or leave them (below 0) as it is covered. */
static void add_routes(struct rest *rest, int64_t gate, int node, int64_t routes) {
    rest->at_gate[gate] += routes;
    rest->at_node[node] += routes;
    rest->all += routes;
}

/* The next one that is covered: the hottest that is left behind this gate. */
static int32_t cover_next(struct row *row, int64_t gate) {
    int at = row->covered;
    while (row->gate[row->order[at]] != gate)
        at++;
    int32_t expert = row->order[at];
    for (; at > row->covered; at--) /* the others stay in their order */
        row->order[at] = row->order[at - 1];
    row->order[row->covered++] = expert;
    return expert;
}

int mp_nodewise_cover(const struct mp_nodewise_costs *costs, const struct mp_topology *topology,
                      const int32_t owner[], const int64_t expected[], const int64_t came[],
                      int experts, int limit, int64_t memory[], int32_t order[]) {
    const int each = costs->ranks_per_gate, gates = (topology->ranks - 1) / each + 1;
    const int nodes = mp_topology_nodes(topology), sides = came == expected ? 1 : 2;
    const int64_t *load[2] = {expected, came};
    int64_t *gate = memory;
    struct row row = {order, gate, 0, experts};
    struct rest rest[2];
    double least = INFINITY;
    for (int expert = 0; expert < experts; expert++)
        gate[expert] = owner[expert] / each;
    memory += experts;
    memset(memory, 0, 2 * (size_t)(gates + nodes) * sizeof *memory);
    for (int i = 0; i < sides; i++, memory += gates + nodes) {
        rest[i] = (struct rest){memory, memory + gates, 0, 0, -1, nodes};
        for (int expert = 0; expert < experts; expert++)
            add_routes(&rest[i], gate[expert], mp_topology_node(topology, owner[expert]),
                       load[i][expert]);
        rest[i].routes = rest[i].all;
    }
    for (int best = 0;;) {
        double seconds = 0;
        for (int i = 0; i < sides; i++)
            seconds = fmax(seconds, seconds_with(costs, topology->ranks_per_node, &row, &rest[i]));
        if (seconds < least) {
            least = row.covered > 0 ? seconds : WORTH_COPIES * seconds;
            best = row.covered;
        }
        if (row.covered == limit)
            return best;
        int32_t expert = cover_next(&row, rest[0].fullest);
        for (int i = 0; i < sides; i++)
            add_routes(&rest[i], gate[expert], mp_topology_node(topology, owner[expert]),
                       -load[i][expert]);
    }
}
