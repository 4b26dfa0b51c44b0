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
    costs->ranks_per_gate = setting->ranks_per_gate > 0 ? setting->ranks_per_gate : 1;
    costs->gates = (double)of_node / costs->ranks_per_gate;
}

/* Of the experts that nodes have not in common: their routes at the gate and at the node with most
 * of them, at the node with least, and at all. */
struct rest {
    int64_t at_gate, at_node, at_emptiest, all;
};

/* Seconds of a layer in which every node has so many experts. */
static double seconds_with(const struct mp_nodewise_costs *costs,
                           const struct mp_topology *topology, int covered, int64_t routes,
                           struct rest rest) {
    const double nodes = mp_topology_nodes(topology), away = (nodes - 1) / nodes;
    /* Rows through the fullest gate: to its ranks' experts, or of their tokens to others'. */
    double in = away * (double)rest.at_gate * costs->gates,
           out = (double)(rest.all - rest.at_emptiest) / nodes;
    double work = (double)(routes - rest.all) / nodes + (double)rest.at_node;
    return (in > out ? in : out) * costs->row_between +
           work / topology->ranks_per_node * costs->route +
           mp_nodewise_exposed(covered * away * costs->fetch_between, costs->hidden_forward) +
           mp_nodewise_exposed(covered * away * costs->reduce_between, costs->hidden_backward) +
           covered * away / topology->ranks_per_node * costs->product;
}

static int fullest_of(const int64_t routes[], int count) {
    int found = 0;
    for (int i = 1; i < count; i++)
        found = routes[i] > routes[found] ? i : found;
    return found;
}

static struct rest rest_of(const int64_t at_gate[], int fullest, const int64_t at_node[], int nodes,
                           int64_t all) {
    struct rest rest = {
        .at_gate = at_gate[fullest], .at_node = 0, .at_emptiest = INT64_MAX, .all = all};
    for (int node = 0; node < nodes; node++) {
        rest.at_node = at_node[node] > rest.at_node ? at_node[node] : rest.at_node;
        rest.at_emptiest = at_node[node] < rest.at_emptiest ? at_node[node] : rest.at_emptiest;
    }
    return rest;
}

int mp_nodewise_cover(const struct mp_nodewise_costs *costs, const struct mp_topology *topology,
                      const int32_t owner[], const int64_t total[], int experts, int64_t surprise,
                      int limit, int64_t memory[], int32_t order[]) {
    const int gates = (topology->ranks - 1) / costs->ranks_per_gate + 1;
    const int nodes = mp_topology_nodes(topology);
    int64_t *at_gate = memory, *at_node = memory + gates, routes = 0, left;
    double least = INFINITY;
    memset(memory, 0, (size_t)(gates + nodes) * sizeof *memory);
    for (int expert = 0; expert < experts; expert++) {
        at_gate[owner[expert] / costs->ranks_per_gate] += total[expert];
        at_node[mp_topology_node(topology, owner[expert])] += total[expert];
        routes += total[expert];
    }
    left = routes;
    for (int covered = 0, best = 0;; covered++) {
        int fullest = fullest_of(at_gate, gates), next = covered;
        struct rest rest = rest_of(at_gate, fullest, at_node, nodes, left);
        rest.at_gate += surprise * (experts - covered) / experts;
        rest.at_node += surprise * (experts - covered) / experts;
        double seconds = seconds_with(costs, topology, covered, routes, rest);
        if (seconds < least) {
            least = seconds;
            best = covered;
        }
        if (covered == limit || left == 0)
            return best;
        while (owner[order[next]] / costs->ranks_per_gate != fullest)
            next++;
        int32_t expert = order[next];
        for (; next > covered; next--) /* the others stay in their order */
            order[next] = order[next - 1];
        order[covered] = expert;
        at_gate[fullest] -= total[expert];
        at_node[mp_topology_node(topology, owner[expert])] -= total[expert];
        left -= total[expert];
    }
}
