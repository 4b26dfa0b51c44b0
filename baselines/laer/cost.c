/* What a layout would have cost (systems.md 2.7). */
#include <stdlib.h>
#include <string.h>

#include "baselines/laer/laer.h"

/* Rows cross four times in an iteration, and backward computes twice what forward does. */
enum { PASSES_OF_TRAVEL = 4, PASSES_OF_COMPUTE = 3 };

int mp_laer_evaluator_create(const struct mp_topology *topology, int experts, int per_rank,
                             struct mp_laer_evaluator *state, struct mp_error *error) {
    size_t e = (size_t)experts, slots = (size_t)topology->ranks * (size_t)per_rank;

    *state = (struct mp_laer_evaluator){.topology = *topology, .experts = experts};
    state->computed = malloc((size_t)topology->ranks * sizeof *state->computed);
    state->each = malloc(e * sizeof *state->each);
    state->node_each = malloc(e * sizeof *state->node_each);
    state->more = malloc(slots * sizeof *state->more);
    state->node_more = malloc(slots * sizeof *state->node_more);
    state->node_first = malloc(e * sizeof *state->node_first);
    state->node_slots = malloc(e * sizeof *state->node_slots);
    if (state->computed && state->each && state->node_each && state->more && state->node_more &&
        state->node_first && state->node_slots)
        return MP_OK;
    mp_laer_evaluator_destroy(state);
    return mp_fail(error, MP_ENOMEM, "no memory to compare layouts of %zu slots", slots);
}

void mp_laer_evaluator_destroy(struct mp_laer_evaluator *state) {
    free(state->computed);
    free(state->each);
    free(state->node_each);
    free(state->more);
    free(state->node_more);
    free(state->node_first);
    free(state->node_slots);
    *state = (struct mp_laer_evaluator){0};
}

/* routes = each * n + rest.  Most processors divide 32 bits faster than 64. */
struct shares {
    int64_t each;
    int32_t rest;
};
static inline struct shares share(int64_t routes, int32_t n) {
    struct shares shares;

    if (routes >> 32) {
        shares.each = routes / n;
        shares.rest = (int32_t)(routes % n);
    } else {
        shares.each = (uint32_t)routes / (uint32_t)n;
        shares.rest = (int32_t)((uint32_t)routes % (uint32_t)n);
    }
    return shares;
}

/* Moves on to the slots of the next node, which ends before rank `node_end`. */
static void enter_node(struct mp_laer_evaluator *state, const struct mp_slots *slots,
                       int node_end) {
    for (int expert = 0; expert < state->experts; expert++) {
        int32_t first = state->node_first[expert] + state->node_slots[expert], end = first;
        while (end < slots->begin[expert + 1] && slots->rank[end] < node_end)
            state->node_more[end++] = 0;
        state->node_first[expert] = first;
        state->node_slots[expert] = end - first;
        state->node_each[expert] = 0;
    }
}

/* A source's routes, all of them as if they left it. */
static void add_source(struct mp_laer_evaluator *state, const struct mp_slots *slots,
                       const int64_t count[]) {
    for (int expert = 0; expert < state->experts; expert++) {
        int32_t n = state->node_slots[expert];
        if (n > 0) {
            struct shares shares = share(count[expert], n);
            state->node_each[expert] += shares.each;
            state->node_more[state->node_first[expert] + shares.rest]++;
            state->in_node += count[expert];
        } else {
            struct shares shares = share(count[expert], mp_slots_of(slots, expert));
            state->each[expert] += shares.each;
            state->more[slots->begin[expert] + shares.rest]++;
            state->between_nodes += count[expert];
        }
    }
}

/* Takes out again those that stay: what the source's own slots get of them. */
static void subtract_own(struct mp_laer_evaluator *state, const struct mp_slots *slots, int source,
                         const int64_t count[]) {
    const int32_t *own = slots->expert + (long)source * slots->per_rank;

    for (int index = 0; index < slots->per_rank; index++) {
        int32_t expert = own[index];
        bool first = expert >= 0;
        for (int before = 0; before < index && first; before++)
            first = own[before] != expert;
        if (!first)
            continue;
        int32_t begin = state->node_first[expert], n = state->node_slots[expert];
        struct shares shares = share(count[expert], n);
        for (int32_t slot = begin; slot < begin + n; slot++)
            if (slots->rank[slot] == source)
                state->in_node -= shares.each + (slot - begin < shares.rest);
    }
}

/* Gives the slots begin .. begin + n - 1 their routes: `each`, and one for every source with a
 * larger rest than the slot's place. */
static void compute(struct mp_laer_evaluator *state, const struct mp_slots *slots, int32_t begin,
                    int32_t n, int64_t each, const int32_t more[]) {
    int64_t larger = 0;

    for (int32_t slot = begin + n - 1; slot >= begin; slot--) {
        state->computed[slots->rank[slot]] += each + larger;
        larger += more[slot];
    }
}

double mp_laer_cost(struct mp_laer_evaluator *state, const struct mp_slots *slots,
                    const int64_t count[], const struct mp_laer_costs *costs) {
    const struct mp_topology *topology = &state->topology;
    int experts = state->experts;
    int64_t most = 0;

    state->in_node = state->between_nodes = 0;
    memset(state->computed, 0, (size_t)topology->ranks * sizeof *state->computed);
    memset(state->each, 0, (size_t)experts * sizeof *state->each);
    memset(state->more, 0, (size_t)slots->begin[experts] * sizeof *state->more);
    memset(state->node_slots, 0, (size_t)experts * sizeof *state->node_slots);
    memcpy(state->node_first, slots->begin, (size_t)experts * sizeof *state->node_first);
    for (int node = 0; node < mp_topology_nodes(topology); node++) {
        int end = mp_topology_node_end(topology, node);
        enter_node(state, slots, end);
        for (int source = mp_topology_node_begin(topology, node); source < end; source++) {
            add_source(state, slots, count + (long)source * experts);
            subtract_own(state, slots, source, count + (long)source * experts);
        }
        for (int expert = 0; expert < experts; expert++)
            compute(state, slots, state->node_first[expert], state->node_slots[expert],
                    state->node_each[expert], state->node_more);
    }
    for (int expert = 0; expert < experts; expert++)
        compute(state, slots, slots->begin[expert], mp_slots_of(slots, expert), state->each[expert],
                state->more);
    for (int rank = 0; rank < topology->ranks; rank++)
        most = state->computed[rank] > most ? state->computed[rank] : most;
    return PASSES_OF_TRAVEL * ((double)state->in_node * costs->in_node +
                               (double)state->between_nodes * costs->between_nodes) +
           PASSES_OF_COMPUTE * (double)most * costs->compute;
}
