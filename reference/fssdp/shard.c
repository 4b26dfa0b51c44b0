/* Sharding: who owns which experts (Hecate, algorithm 2).
 *
 * Hot experts are copied anyway, so their owner does not matter; Algorithm 2 spreads the others so
 * that each layer's cold load is even.  Only the number of experts over all layers is fixed. */
#include <string.h>

#include "reference/fssdp/fssdp.h"

static int64_t owned_before(int64_t rank, int experts, int ranks) {
    return (rank * experts + ranks - 1) / ranks;
}

int mp_shard_slots(int layers, int experts, int ranks, int rank) {
    return (int)(owned_before((int64_t)rank + layers, experts, ranks) -
                 owned_before(rank, experts, ranks));
}

void mp_sharder_create(struct mp_arena *memory, const struct mp_topology *topology, int layers,
                       int experts, int overlap, struct mp_sharder *state) {
    size_t ranks = (size_t)topology->ranks, nodes = (size_t)mp_topology_nodes(topology);
    size_t rows = (size_t)layers;

    *state = (struct mp_sharder){.topology = *topology, .layers = layers, .experts = experts};
    MP_TAKE_EACH(memory, rows, state->hot, state->layer_order, state->layer_peak);
    MP_TAKE(memory, state->order, rows * (size_t)experts);
    MP_TAKE_EACH(memory, ranks, state->slots, state->rank_load);
    MP_TAKE_EACH(memory, nodes, state->node_slots, state->node_load);
    for (int layer = 0; !memory->lacking && layer < layers; layer++)
        state->hot[layer] = overlap < experts ? overlap : experts;
}

static void open_slots(struct mp_sharder *state) {
    const struct mp_topology *topology = &state->topology;

    memset(state->node_slots, 0, (size_t)mp_topology_nodes(topology) * sizeof *state->node_slots);
    for (int rank = 0; rank < topology->ranks; rank++) {
        state->slots[rank] = mp_shard_slots(state->layers, state->experts, topology->ranks, rank);
        state->node_slots[mp_topology_node(topology, rank)] += state->slots[rank];
    }
}

static void take_slot(struct mp_sharder *state, int rank) {
    state->slots[rank]--;
    state->node_slots[mp_topology_node(&state->topology, rank)]--;
}

/* Orders each layer's experts by load and the layers by their hottest cold expert. */
static void order_layers(struct mp_sharder *state, const int64_t load[]) {
    for (int layer = 0; layer < state->layers; layer++) {
        const int64_t *row = load + (size_t)layer * (size_t)state->experts;
        int32_t *order = state->order + (size_t)layer * (size_t)state->experts;
        mp_load_hottest(row, state->experts, state->experts, order);
        int32_t hot = state->hot[layer];
        state->layer_peak[layer] = hot < state->experts ? row[order[hot]] : -1;
    }
    mp_load_hottest(state->layer_peak, state->layers, state->layers, state->layer_order);
}

/* Of begin .. end - 1, those with a free slot: least load, then fewest free slots, then lower id.
 */
static int choose(const int64_t load[], const int32_t slots[], int begin, int end) {
    int best = -1;

    for (int index = begin; index < end; index++) {
        if (slots[index] == 0)
            continue;
        if (best < 0 || load[index] < load[best] ||
            (load[index] == load[best] && slots[index] < slots[best]))
            best = index;
    }
    return best;
}

static void shard_cold(struct mp_sharder *state, const int64_t load[], const int32_t order[],
                       int hot, int32_t owner[]) {
    const struct mp_topology *topology = &state->topology;
    int nodes = mp_topology_nodes(topology);

    memset(state->rank_load, 0, (size_t)topology->ranks * sizeof *state->rank_load);
    memset(state->node_load, 0, (size_t)nodes * sizeof *state->node_load);
    for (int index = hot; index < state->experts; index++) {
        int32_t expert = order[index];
        int node = choose(state->node_load, state->node_slots, 0, nodes);
        int rank = choose(state->rank_load, state->slots, mp_topology_node_begin(topology, node),
                          mp_topology_node_end(topology, node));
        owner[expert] = rank;
        state->rank_load[rank] += load[expert];
        state->node_load[node] += load[expert];
        take_slot(state, rank);
    }
}

static int most_free_rank(const struct mp_sharder *state) {
    int best = 0;

    for (int rank = 1; rank < state->topology.ranks; rank++)
        if (state->slots[rank] > state->slots[best])
            best = rank;
    return best;
}

/* Hot experts fill what is left: first all that can stay, then the others. */
static void shard_hot(struct mp_sharder *state, const int32_t present[], int32_t owner[]) {
    size_t all = (size_t)state->layers * (size_t)state->experts;

    for (size_t index = 0; index < all; index++) {
        if (owner[index] < 0 && state->slots[present[index]] > 0) {
            owner[index] = present[index];
            take_slot(state, owner[index]);
        }
    }
    for (size_t index = 0; index < all; index++) {
        if (owner[index] < 0) {
            owner[index] = most_free_rank(state);
            take_slot(state, owner[index]);
        }
    }
}

void mp_shard(struct mp_sharder *state, const int64_t load[], const int32_t present[],
              int32_t owner[]) {
    size_t experts = (size_t)state->experts;

    open_slots(state);
    order_layers(state, load);
    for (size_t index = 0; index < (size_t)state->layers * experts; index++)
        owner[index] = -1;
    for (int turn = 0; turn < state->layers; turn++) {
        int layer = state->layer_order[turn];
        size_t row = (size_t)layer * experts;
        shard_cold(state, load + row, state->order + row, state->hot[layer], owner + row);
    }
    shard_hot(state, present, owner);
}
