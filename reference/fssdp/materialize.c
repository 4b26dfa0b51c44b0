/* Sparse materialisation (Hecate, algorithm 1).
 *
 * Where every rank has room for all hot experts, every rank gets them.  Otherwise the free slots
 * are shared out in proportion to load and each copy goes where the topology lacks it most. */
#include <string.h>

#include "reference/fssdp/fssdp.h"

void mp_materializer_create(struct mp_arena *memory, const struct mp_topology *topology,
                            int experts, int overlap, struct mp_materializer *state) {
    size_t ranks = (size_t)topology->ranks, nodes = (size_t)mp_topology_nodes(topology);

    *state = (struct mp_materializer){.topology = *topology, .experts = experts};
    state->overlap = overlap < experts ? overlap : experts;
    size_t hot = (size_t)state->overlap;
    /* One more than needed everywhere, so that an overlap of 0 needs no case of its own. */
    MP_TAKE(memory, state->copy, hot * ranks + 1);
    MP_TAKE_EACH(memory, hot + 1, state->hot, state->wanted);
    MP_TAKE(memory, state->free_slots, ranks);
    MP_TAKE_EACH(memory, nodes, state->node_free, state->node_copies, state->node_candidates,
                 state->node_open);
    MP_TAKE(memory, state->winner, 2 * nodes);
}

/* free_slots[r] = memory minus the extra copies on r; returns the smallest and the sum. */
static int64_t count_free(struct mp_materializer *state, const struct mp_placement *placement,
                          int memory, int64_t *sum) {
    int64_t least = memory;

    *sum = 0;
    for (int rank = 0; rank < placement->ranks; rank++)
        state->free_slots[rank] = memory;
    for (int expert = 0; expert < placement->experts; expert++) {
        const uint64_t *row = placement->holder + (long)expert * placement->words;
        for (int word = 0; word < placement->words; word++)
            for (uint64_t bits = row[word]; bits; bits &= bits - 1)
                state->free_slots[word * 64 + __builtin_ctzll(bits)]--;
        state->free_slots[placement->owner[expert]]++;
    }
    for (int rank = 0; rank < placement->ranks; rank++) {
        *sum += state->free_slots[rank];
        if (state->free_slots[rank] < least)
            least = state->free_slots[rank];
    }
    return least;
}

/* Hot: the hottest experts that have routes and that some rank lacks.  Returns their number. */
static int find_hot(struct mp_materializer *state, const struct mp_placement *placement,
                    const int64_t load[]) {
    int count = 0;

    mp_load_hottest(load, state->experts, state->overlap, state->hot);
    for (int index = 0; index < state->overlap; index++) {
        int32_t expert = state->hot[index];
        if (load[expert] > 0 && mp_placement_copies(placement, expert) < placement->ranks)
            state->hot[count++] = expert;
    }
    return count;
}

static void add_copy(struct mp_materializer *state, struct mp_placement *placement, int expert,
                     int rank) {
    mp_placement_add(placement, expert, rank);
    state->copy[state->copies++] = (struct mp_copy){expert, rank};
}

static void copy_everywhere(struct mp_materializer *state, struct mp_placement *placement,
                            int hot) {
    for (int index = 0; index < hot; index++)
        for (int rank = 0; rank < placement->ranks; rank++)
            if (!mp_placement_holds(placement, state->hot[index], rank))
                add_copy(state, placement, state->hot[index], rank);
}

/* wanted[i] = n_e of the i-th hot expert.  The running remainder shares again what rounding and
 * limits leave over, in integers, and never exceeds the slots. */
static void share_slots(struct mp_materializer *state, const struct mp_placement *placement,
                        const int64_t load[], int hot, int64_t slots) {
    int64_t rest = 0;

    for (int index = 0; index < hot; index++)
        rest += load[state->hot[index]];
    for (int index = 0; index < hot; index++) {
        int32_t expert = state->hot[index];
        int64_t lacking = placement->ranks - mp_placement_copies(placement, expert);
        int64_t share = (2 * slots * load[expert] + rest) / (2 * rest); /* rounded half up */
        if (share < 1)
            share = 1;
        if (share > lacking)
            share = lacking;
        if (share > slots)
            share = slots;
        state->wanted[index] = share;
        slots -= share;
        rest -= load[expert];
    }
}

/* Per node: free slots and ranks that have one. */
static void survey_slots(struct mp_materializer *state) {
    const struct mp_topology *topology = &state->topology;

    for (int node = 0; node < mp_topology_nodes(topology); node++) {
        int end = mp_topology_node_end(topology, node);
        state->node_free[node] = 0;
        state->node_open[node] = 0;
        for (int rank = mp_topology_node_begin(topology, node); rank < end; rank++) {
            state->node_free[node] += state->free_slots[rank];
            state->node_open[node] += state->free_slots[rank] > 0;
        }
    }
}

/* Per node: copies of the expert, ranks that could take one. */
static void survey_nodes(struct mp_materializer *state, const struct mp_placement *placement,
                         int expert) {
    size_t nodes = (size_t)mp_topology_nodes(&state->topology);

    memset(state->node_copies, 0, nodes * sizeof *state->node_copies);
    memcpy(state->node_candidates, state->node_open, nodes * sizeof *state->node_candidates);
    for (int rank = mp_placement_next(placement, expert, 0); rank >= 0;
         rank = mp_placement_next(placement, expert, rank + 1)) {
        int node = mp_topology_node(&state->topology, rank);
        state->node_copies[node]++;
        state->node_candidates[node] -= state->free_slots[rank] > 0;
    }
}

/* Of two nodes, -1 for none: fewest copies, then most free slots, then lower id. */
static int32_t better_node(const struct mp_materializer *state, int32_t a, int32_t b) {
    if (a < 0 || b < 0)
        return a < 0 ? b : a;
    if (state->node_copies[a] != state->node_copies[b])
        return state->node_copies[a] < state->node_copies[b] ? a : b;
    if (state->node_free[a] != state->node_free[b])
        return state->node_free[a] > state->node_free[b] ? a : b;
    return a < b ? a : b;
}

/* A tournament of all nodes with a candidate: winner[1] is the best of them, winner[i] that of
 * winner[2 * i] and winner[2 * i + 1], and the nodes themselves are the upper half. */
static void begin_tournament(struct mp_materializer *state) {
    int nodes = mp_topology_nodes(&state->topology);

    for (int node = 0; node < nodes; node++)
        state->winner[nodes + node] = state->node_candidates[node] > 0 ? node : -1;
    for (int place = nodes - 1; place > 0; place--)
        state->winner[place] =
            better_node(state, state->winner[2 * place], state->winner[2 * place + 1]);
}

/* Plays again what the node has a part in, after it has taken a copy. */
static void play_again(struct mp_materializer *state, int node) {
    int place = mp_topology_nodes(&state->topology) + node;

    state->winner[place] = state->node_candidates[node] > 0 ? node : -1;
    for (place /= 2; place > 0; place /= 2)
        state->winner[place] =
            better_node(state, state->winner[2 * place], state->winner[2 * place + 1]);
}

/* Of the node's candidates, of which there is one: most free slots, then lower id. */
static int choose_rank(const struct mp_materializer *state, const struct mp_placement *placement,
                       int expert, int node) {
    int begin = mp_topology_node_begin(&state->topology, node), best = begin;
    int64_t most = 0;

    for (int rank = begin; rank < mp_topology_node_end(&state->topology, node); rank++) {
        if (state->free_slots[rank] > most && !mp_placement_holds(placement, expert, rank)) {
            most = state->free_slots[rank];
            best = rank;
        }
    }
    return best;
}

/* Places up to n_e copies; those without a candidate are lost. */
static void place_copies(struct mp_materializer *state, struct mp_placement *placement, int expert,
                         int64_t wanted) {
    if (wanted == 0)
        return;
    survey_nodes(state, placement, expert);
    begin_tournament(state);
    for (; wanted > 0; wanted--) {
        int node = state->winner[1];
        if (node < 0)
            return;
        int rank = choose_rank(state, placement, expert, node);
        add_copy(state, placement, expert, rank);
        state->node_open[node] -= --state->free_slots[rank] == 0;
        state->node_free[node]--;
        state->node_candidates[node]--;
        state->node_copies[node]++;
        play_again(state, node);
    }
}

void mp_materialize(struct mp_materializer *state, struct mp_placement *placement,
                    const int64_t load[], int memory) {
    int64_t slots;

    state->copies = 0;
    int hot = find_hot(state, placement, load);
    if (hot == 0 || memory == 0)
        return;
    int64_t least = count_free(state, placement, memory, &slots);
    if (least >= hot) {
        copy_everywhere(state, placement, hot);
    } else if (slots > 0) {
        share_slots(state, placement, load, hot, slots);
        survey_slots(state);
        for (int index = 0; index < hot; index++)
            place_copies(state, placement, state->hot[index], state->wanted[index]);
    }
}
