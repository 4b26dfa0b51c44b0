/* What a copy costs, and which experts every node gets. */
#include <math.h>

#include "baselines/nodewise/nodewise.h"

void mp_nodewise_costs(const struct mp_setting *setting, struct mp_nodewise_costs *costs) {
    const bool trains = !setting->forward_only;
    const double passes = trains ? 3 : 1; /* backward computes twice what forward does */
    const int nodes = mp_topology_nodes(&setting->topology);
    const double between = setting->bandwidth;
    const double inside = nodes > 1 && setting->topology.ranks_per_node > 1
                              ? setting->bandwidth_in_node
                              : setting->bandwidth;
    const double routes = (double)setting->tokens_per_rank * setting->top_k;
    *costs = (struct mp_nodewise_costs){
        .route = passes * setting->seconds_per_route,
        .product = passes * setting->seconds_per_expert,
        .hidden_forward = setting->non_moe_seconds,
        .hidden_backward =
            2 * (setting->non_moe_seconds + routes * setting->seconds_per_route),
    };
    if (between > 0) {
        costs->row_between = (trains ? 4 : 2) * (double)setting->route_bytes / between;
        costs->fetch_between = (double)setting->expert_bytes / between;
        costs->reduce_between = trains ? (double)setting->gradient_bytes / between : 0;
    }
    if (inside > 0)
        costs->fetch_inside = (double)setting->expert_bytes / inside;
}

static double exposed(double busy, double hidden) {
    return busy > hidden ? busy - hidden : 0;
}

/* Seconds with `covered` experts in every node, and of the others so many routes at the node that
 * has most of them. */
static double seconds_with(const struct mp_nodewise_costs *costs, const struct mp_topology *topology,
                           int covered, int64_t routes, int64_t elsewhere, int64_t most_at_home) {
    const double nodes = mp_topology_nodes(topology), away = (nodes - 1) / nodes;
    /* Rows into the fullest node, or out of any. */
    double in = away * (double)most_at_home, out = (double)elsewhere / nodes;
    double work = (double)(routes - elsewhere) / nodes + (double)most_at_home;
    return (in > out ? in : out) * costs->row_between +
           work / topology->ranks_per_node * costs->route +
           exposed(covered * away * costs->fetch_between, costs->hidden_forward) +
           exposed(covered * away * costs->reduce_between, costs->hidden_backward) +
           covered * away / topology->ranks_per_node * costs->product;
}

int mp_nodewise_cover(const struct mp_nodewise_costs *costs, const struct mp_topology *topology,
                      const int32_t owner[], const int64_t total[], int experts, int limit,
                      int64_t at_home[], int32_t order[]) {
    const int nodes = mp_topology_nodes(topology);
    int64_t routes = 0, elsewhere;
    int best = 0;
    for (int node = 0; node < nodes; node++)
        at_home[node] = 0;
    for (int expert = 0; expert < experts; expert++) {
        at_home[mp_topology_node(topology, owner[expert])] += total[expert];
        routes += total[expert];
    }
    elsewhere = routes;
    double least = INFINITY;
    for (int covered = 0;; covered++) {
        int fullest = 0, next = covered;
        for (int node = 1; node < nodes; node++)
            fullest = at_home[node] > at_home[fullest] ? node : fullest;
        double seconds =
            seconds_with(costs, topology, covered, routes, elsewhere, at_home[fullest]);
        if (seconds < least) {
            least = seconds;
            best = covered;
        }
        if (covered == limit || elsewhere == 0)
            return best;
        /* The hottest of the fullest node comes next; the others stay in their order. */
        while (mp_topology_node(topology, owner[order[next]]) != fullest)
            next++;
        int32_t expert = order[next];
        for (; next > covered; next--)
            order[next] = order[next - 1];
        order[covered] = expert;
        at_home[fullest] -= total[expert];
        elsewhere -= total[expert];
    }
}
