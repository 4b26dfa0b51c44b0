/* What a layout would have cost. */
#include <string.h>

#include "baselines/laer/laer.h"

void mp_laer_evaluator_create(struct mp_arena *memory, const struct mp_topology *topology,
                              int experts, int per_rank, struct mp_laer_evaluator *state) {
    size_t e = (size_t)experts, slots = (size_t)topology->ranks * (size_t)per_rank;

    *state = (struct mp_laer_evaluator){.topology = *topology, .experts = experts};
    MP_TAKE(memory, state->computed, topology->ranks);
    MP_TAKE_EACH(memory, e, state->all, state->near, state->next);
    MP_TAKE(memory, state->more, 2 * slots);
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

/* An expert's stretch for the sources of the node that ends before rank `node_end`: its slots
 * there, counted behind those of all, or all of them. */
static void enter_node(struct mp_laer_evaluator *state, const struct mp_slots *slots,
                       int node_end) {
    int32_t behind = slots->begin[state->experts];

    for (int expert = 0; expert < state->experts; expert++) {
        int32_t first = state->next[expert], end = first;
        while (end < slots->begin[expert + 1] && slots->rank[end] < node_end)
            state->more[behind + end++] = 0;
        state->next[expert] = end;
        if (end > first)
            state->near[expert] =
                (struct mp_laer_stretch){.slots = end - first, .more = behind + first};
        else
            state->near[expert] = (struct mp_laer_stretch){.slots = mp_slots_of(slots, expert),
                                                           .more = slots->begin[expert]};
    }
}

static bool is_near(const struct mp_slots *slots, const struct mp_laer_stretch *stretch) {
    return stretch->more >= slots->begin[slots->experts];
}

/* A source's routes, all of them as if they left it.  Without branches: which experts are near
 * can't be predicted. */
static void add_source(struct mp_laer_evaluator *state, const int64_t count[]) {
    for (int expert = 0; expert < state->experts; expert++) {
        struct mp_laer_stretch *stretch = &state->near[expert];
        struct shares shares = share(count[expert], stretch->slots);
        stretch->each += shares.each;
        stretch->routes += count[expert];
        state->more[stretch->more + shares.rest]++;
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
        const struct mp_laer_stretch *stretch = &state->near[expert];
        const int32_t *rank = slots->rank + stretch->more - slots->begin[state->experts];
        struct shares shares = share(count[expert], stretch->slots);
        for (int32_t slot = 0; slot < stretch->slots; slot++)
            if (rank[slot] == source)
                state->in_node -= shares.each + (slot < shares.rest);
    }
}

/* Gives the slots from `begin` on their routes: `each`, and one for every source with a larger rest
 * than the slot's place. */
static void compute(struct mp_laer_evaluator *state, const struct mp_slots *slots, int32_t begin,
                    const struct mp_laer_stretch *stretch) {
    const int32_t *rank = slots->rank + begin, *more = state->more + stretch->more;
    int64_t larger = 0;

    for (int32_t slot = stretch->slots - 1; slot >= 0; slot--) {
        state->computed[rank[slot]] += stretch->each + larger;
        larger += more[slot];
    }
}

static void leave_node(struct mp_laer_evaluator *state, const struct mp_slots *slots) {
    for (int expert = 0; expert < state->experts; expert++) {
        const struct mp_laer_stretch *stretch = &state->near[expert];
        if (is_near(slots, stretch)) {
            compute(state, slots, stretch->more - slots->begin[state->experts], stretch);
            state->in_node += stretch->routes;
        } else {
            state->all[expert].each += stretch->each;
            state->between_nodes += stretch->routes;
        }
    }
}

static void begin_cost(struct mp_laer_evaluator *state, const struct mp_slots *slots) {
    int experts = state->experts;

    state->in_node = state->between_nodes = 0;
    memset(state->computed, 0, (size_t)state->topology.ranks * sizeof *state->computed);
    memset(state->more, 0, (size_t)slots->begin[experts] * sizeof *state->more);
    memcpy(state->next, slots->begin, (size_t)experts * sizeof *state->next);
    for (int expert = 0; expert < experts; expert++)
        state->all[expert] = (struct mp_laer_stretch){.slots = mp_slots_of(slots, expert),
                                                      .more = slots->begin[expert]};
}

double mp_laer_cost(struct mp_laer_evaluator *state, const struct mp_slots *slots,
                    const int64_t count[], const struct mp_laer_costs *costs) {
    const struct mp_topology *topology = &state->topology;
    int experts = state->experts;
    int64_t most = 0;

    begin_cost(state, slots);
    for (int node = 0; node < mp_topology_nodes(topology); node++) {
        int end = mp_topology_node_end(topology, node);
        enter_node(state, slots, end);
        for (int source = mp_topology_node_begin(topology, node); source < end; source++) {
            add_source(state, count + (long)source * experts);
            subtract_own(state, slots, source, count + (long)source * experts);
        }
        leave_node(state, slots);
    }
    for (int expert = 0; expert < experts; expert++)
        compute(state, slots, slots->begin[expert], &state->all[expert]);
    for (int rank = 0; rank < topology->ranks; rank++)
        most = state->computed[rank] > most ? state->computed[rank] : most;
    return mp_passes_of_travel(costs->forward_only) *
               ((double)state->in_node * costs->in_node +
                (double)state->between_nodes * costs->between_nodes) +
           mp_passes_of_compute(costs->forward_only) * (double)most * costs->compute;
}
