/* Clusters on ranks: what a placement takes, what none is below, and local search. */
#include "baselines/moetuner/links.h"

#include "reference/plan/load.h"

void mp_links_create(struct mp_arena *memory, int layers, const struct mp_topology *topology,
                     struct mp_links *links) {
    size_t ranks = (size_t)topology->ranks, pairs = layers > 1 ? (size_t)layers - 1 : 1;
    *links = (struct mp_links){.layers = layers, .topology = *topology};
    MP_TAKE_EACH(memory, pairs * ranks * ranks, links->flow, links->order);
    MP_TAKE_EACH(memory, pairs, links->low, links->seconds);
    MP_TAKE_EACH(memory, 2 * ranks, links->parent, links->rows, links->columns);
    MP_TAKE_EACH(memory, ranks, links->room, links->node, links->map);
}

/* ---- what a placement takes ---- */

/* Of a route from one rank to another, s. */
static double of_route(const struct mp_links *links, int from, int to) {
    if (from == to)
        return 0;
    return mp_topology_node(&links->topology, from) == mp_topology_node(&links->topology, to)
               ? links->in_node
               : links->between;
}

/* The largest of a layer's links, and the sum of all of them. */
struct travel {
    double most, sum;
};

static struct travel travel_of(const struct mp_links *links, int layer, const int32_t rank[]) {
    int ranks = links->topology.ranks;
    const int32_t *from = rank + (size_t)layer * (size_t)ranks, *to = from + ranks;
    const int64_t *flow = mp_links_flow(links, layer);
    struct travel travel = {0};
    for (int c1 = 0; c1 < ranks; c1++)
        for (int c2 = 0; c2 < ranks; c2++) {
            double seconds = (double)flow[c1 * ranks + c2] * of_route(links, from[c1], to[c2]);
            travel.most = seconds > travel.most ? seconds : travel.most;
            travel.sum += seconds;
        }
    return travel;
}

double mp_links_seconds(struct mp_links *links, const int32_t rank[]) {
    double seconds = 0;
    for (int l = 0; l + 1 < links->layers; l++) {
        links->seconds[l] = travel_of(links, l, rank).most;
        seconds += links->seconds[l];
    }
    return seconds;
}

/* ---- what none is below ---- */

static int32_t root_of(int32_t parent[], int32_t place) {
    while (parent[place] != place)
        place = parent[place] = parent[parent[place]];
    return place;
}

/* The first flow whose clusters can't share a part of at most `size` clusters of either layer, if
 * all larger ones do; 0: all can. */
static int64_t first_apart(struct mp_links *links, int layer, int size) {
    int ranks = links->topology.ranks;
    const int64_t *flow = mp_links_flow(links, layer);
    const int32_t *order = links->order + (size_t)layer * (size_t)ranks * (size_t)ranks;
    for (int i = 0; i < 2 * ranks; i++) {
        links->parent[i] = i;
        links->rows[i] = i < ranks;
        links->columns[i] = i >= ranks;
    }
    for (int i = 0; i < ranks * ranks && flow[order[i]] > 0; i++) {
        int32_t one = root_of(links->parent, order[i] / ranks);
        int32_t other = root_of(links->parent, ranks + order[i] % ranks);
        if (one == other)
            continue;
        links->rows[one] += links->rows[other];
        links->columns[one] += links->columns[other];
        links->parent[other] = one;
        if (links->rows[one] > size || links->columns[one] > size)
            return flow[order[i]];
    }
    return 0;
}

double mp_links_bound(struct mp_links *links) {
    int ranks = links->topology.ranks, size = links->topology.ranks_per_node;
    double bound = 0;
    for (int l = 0; l + 1 < links->layers; l++) {
        mp_load_hottest(mp_links_flow(links, l), ranks * ranks, ranks * ranks,
                        links->order + (size_t)l * (size_t)ranks * (size_t)ranks);
        double nodes = (double)first_apart(links, l, size) * links->between;
        double alone = (double)first_apart(links, l, 1) * links->in_node;
        links->low[l] = nodes > alone ? nodes : alone;
        bound += links->low[l];
    }
    return bound;
}

/* ---- local search ---- */

void mp_links_match(struct mp_links *links, int layer, const int32_t left[], int32_t right[]) {
    int ranks = links->topology.ranks;
    const int32_t *order = links->order + (size_t)layer * (size_t)ranks * (size_t)ranks;
    for (int r = 0; r < ranks; r++) {
        right[r] = -1;
        links->room[r] = 1;
    }
    for (int i = 0; i < ranks * ranks; i++) {
        int32_t rank = left[order[i] / ranks], c2 = order[i] % ranks;
        if (right[c2] >= 0 || !links->room[rank] ||
            mp_topology_node(&links->topology, rank) != links->node[c2])
            continue;
        right[c2] = rank;
        links->room[rank] = 0;
    }
}

/* Gives the clusters of the next layer nodes: the largest flows first, where there is room. */
static void choose_nodes(struct mp_links *links, int layer, const int32_t left[]) {
    const struct mp_topology *topology = &links->topology;
    int ranks = topology->ranks;
    const int32_t *order = links->order + (size_t)layer * (size_t)ranks * (size_t)ranks;
    for (int n = 0; n < mp_topology_nodes(topology); n++)
        links->room[n] = mp_topology_node_end(topology, n) - mp_topology_node_begin(topology, n);
    for (int c = 0; c < ranks; c++)
        links->node[c] = -1;
    for (int i = 0; i < ranks * ranks; i++) {
        int32_t c2 = order[i] % ranks;
        int n = mp_topology_node(topology, left[order[i] / ranks]);
        if (links->node[c2] >= 0 || links->room[n] == 0)
            continue;
        links->node[c2] = n;
        links->room[n]--;
    }
}

/* Two clusters of layer `from` change places; with `rest` whoever is on their ranks does in all
 * layers behind it, too, so that only one pair of layers sees it. */
static void exchange_places(const struct mp_links *links, int from, int one, int other, bool rest,
                            int32_t rank[]) {
    int ranks = links->topology.ranks;
    int32_t *place = rank + (size_t)from * (size_t)ranks;
    int32_t first = place[one], second = place[other];
    int count = rest ? (links->layers - from) * ranks : ranks;
    for (int i = 0; i < count; i++)
        place[i] = place[i] == first ? second : place[i] == second ? first : place[i];
}

static struct travel travel_around(const struct mp_links *links, int layer, bool rest,
                                   const int32_t rank[]) {
    struct travel travel = {0};
    for (int l = layer - 1; l < layer + !rest; l++)
        if (l >= 0 && l + 1 < links->layers) {
            struct travel of_layer = travel_of(links, l, rank);
            travel.most += of_layer.most;
            travel.sum += of_layer.sum;
        }
    return travel;
}

static bool improve_layer(const struct mp_links *links, int layer, bool rest, int32_t rank[]) {
    int ranks = links->topology.ranks;
    bool better = false;
    struct travel best = travel_around(links, layer, rest, rank);
    for (int one = 0; one < ranks; one++)
        for (int other = one + 1; other < ranks; other++) {
            exchange_places(links, layer, one, other, rest, rank);
            struct travel now = travel_around(links, layer, rest, rank);
            if (now.most < best.most || (now.most == best.most && now.sum < best.sum)) {
                best = now;
                better = true;
            } else {
                exchange_places(links, layer, one, other, rest, rank);
            }
        }
    return better;
}

/* Sums of seconds are rounded, so that a circle can't be ruled out but by a number of rounds. */
enum { MOST_ROUNDS = 50 };

void mp_links_search(struct mp_links *links, int32_t rank[]) {
    int ranks = links->topology.ranks;
    for (int r = 0; r < ranks; r++)
        rank[r] = r;
    for (int l = 0; l + 1 < links->layers; l++) {
        int32_t *left = rank + (size_t)l * (size_t)ranks;
        choose_nodes(links, l, left);
        mp_links_match(links, l, left, left + ranks);
    }
    int nodes = mp_topology_nodes(&links->topology);
    bool better = nodes > 1 && nodes < ranks; /* otherwise it is exact */
    for (int round = 0; better && round < MOST_ROUNDS; round++) {
        better = false;
        for (int layer = 0; layer < links->layers; layer++) {
            better |= improve_layer(links, layer, false, rank);
            if (layer > 0)
                better |= improve_layer(links, layer, true, rank);
        }
    }
}
