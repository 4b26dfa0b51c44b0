/* The least largest load of ranks, in whole routes (see lp.h). */
#include <string.h>

#include "baselines/lp/lp.h"

enum { NOT_REACHED = -1, BEGUN_WITH = -2 };

void mp_lp_create(struct mp_arena *memory, const struct mp_topology *topology, int experts,
                  struct mp_lp *state) {
    *state = (struct mp_lp){.ranks = topology->ranks, .experts = experts};
    size_t r = (size_t)topology->ranks, e = (size_t)experts, pairs = r * e;
    mp_pieces_create(memory, experts, (int)pairs, &state->pieces);
    MP_TAKE_EACH(memory, r, state->load, state->first_pair, state->by_rank, state->reached);
    MP_TAKE(memory, state->begin, e + 1);
    MP_TAKE_EACH(memory, pairs, state->rank, state->expert, state->routes, state->next_pair);
    MP_TAKE_EACH(memory, e, state->by_expert, state->total);
    MP_TAKE(memory, state->of_node, (size_t)mp_topology_nodes(topology) * e);
}

static void add_up(struct mp_lp *state, const struct mp_topology *topology,
                   const struct mp_load *load) {
    size_t experts = (size_t)state->experts;

    memset(state->total, 0, experts * sizeof *state->total);
    memset(state->of_node, 0,
           (size_t)mp_topology_nodes(topology) * experts * sizeof *state->of_node);
    for (int source = 0; source < state->ranks; source++) {
        const uint32_t *count = load->count + (size_t)source * experts;
        int64_t *sum = state->of_node + (size_t)mp_topology_node(topology, source) * experts;
        for (size_t expert = 0; expert < experts; expert++)
            sum[expert] += count[expert];
    }
    for (int node = 0; node < mp_topology_nodes(topology); node++)
        for (size_t expert = 0; expert < experts; expert++)
            state->total[expert] += state->of_node[(size_t)node * experts + expert];
}

/* All pairs; each rank computes its own routes to what it holds.  The bound is one that no split
 * goes below: an even share of all routes, or of an expert's. */
static int begin_at_home(struct mp_lp *state, const struct mp_placement *holders,
                         const struct mp_load *load, struct mp_error *error) {
    int64_t all = 0, bound = 0;
    int32_t pairs = 0;

    for (int rank = 0; rank < state->ranks; rank++) {
        state->first_pair[rank] = -1;
        state->load[rank] = 0;
    }
    for (int expert = 0; expert < state->experts; expert++) {
        state->begin[expert] = pairs;
        for (int rank = mp_placement_next(holders, expert, 0); rank >= 0;
             rank = mp_placement_next(holders, expert, rank + 1)) {
            state->rank[pairs] = rank;
            state->expert[pairs] = expert;
            state->routes[pairs] = mp_load_at(load, rank, expert);
            state->load[rank] += state->routes[pairs];
            state->next_pair[pairs] = state->first_pair[rank];
            state->first_pair[rank] = pairs++;
        }
        int64_t held_by = pairs - state->begin[expert];
        if (held_by == 0)
            return mp_fail(error, MP_EPLAN, "lp: no rank holds expert %d", expert);
        int64_t share = (state->total[expert] + held_by - 1) / held_by;
        bound = share > bound ? share : bound;
        all += state->total[expert];
    }
    state->begin[state->experts] = pairs;
    int64_t share = (all + state->ranks - 1) / state->ranks;
    state->most = share > bound ? share : bound;
    return MP_OK;
}

/* Routes to some pairs: each time to that of the emptiest rank, up to the bound as long as one is
 * below it. */
static void give(struct mp_lp *state, int32_t first, int32_t end, int64_t routes) {
    while (routes > 0) {
        int32_t emptiest = first;
        for (int32_t pair = first + 1; pair < end; pair++)
            if (state->load[state->rank[pair]] < state->load[state->rank[emptiest]])
                emptiest = pair;
        int64_t *load = &state->load[state->rank[emptiest]], room = state->most - *load;
        int64_t given = room > 0 && room < routes ? room : routes;
        state->routes[emptiest] += given;
        *load += given;
        routes -= given;
    }
}

/* What comes from ranks without the expert goes to a replica of their node, if there is one. */
static void go_near(struct mp_lp *state, const struct mp_topology *topology,
                    const struct mp_load *load) {
    for (int expert = 0; expert < state->experts; expert++) {
        int64_t far = state->total[expert];
        int32_t last = state->begin[expert + 1];
        for (int32_t pair = state->begin[expert], first = pair; pair < last; first = pair) {
            int node = mp_topology_node(topology, state->rank[pair]);
            int64_t in_node = state->of_node[(long)node * state->experts + expert];
            far -= in_node;
            for (; pair < last && mp_topology_node(topology, state->rank[pair]) == node; pair++)
                in_node -= mp_load_at(load, state->rank[pair], expert);
            give(state, first, pair, in_node);
        }
        give(state, state->begin[expert], last, far);
    }
}

/* Ranks above the bound, and all to which they can pass something on, from one to the next.
 * Returns how many; those at the front are above the bound. */
static int search(struct mp_lp *state) {
    int reached = 0;

    for (int expert = 0; expert < state->experts; expert++)
        state->by_expert[expert] = NOT_REACHED;
    for (int rank = 0; rank < state->ranks; rank++) {
        state->by_rank[rank] = state->load[rank] > state->most ? BEGUN_WITH : NOT_REACHED;
        if (state->by_rank[rank] == BEGUN_WITH)
            state->reached[reached++] = rank;
    }
    for (int index = 0; index < reached; index++)
        for (int32_t pair = state->first_pair[state->reached[index]]; pair >= 0;
             pair = state->next_pair[pair]) {
            int expert = state->expert[pair];
            if (state->routes[pair] == 0 || state->by_expert[expert] != NOT_REACHED)
                continue;
            state->by_expert[expert] = pair;
            for (int32_t to = state->begin[expert]; to < state->begin[expert + 1]; to++)
                if (state->by_rank[state->rank[to]] == NOT_REACHED) {
                    state->by_rank[state->rank[to]] = to;
                    state->reached[reached++] = state->rank[to];
                }
        }
    return reached;
}

/* Passes on to a rank below the bound what those along its way can give. */
static void pass_on(struct mp_lp *state, int to) {
    int64_t routes = state->most - state->load[to];
    int rank = to;

    for (int32_t into; (into = state->by_rank[rank]) >= 0;) {
        int32_t from = state->by_expert[state->expert[into]];
        routes = state->routes[from] < routes ? state->routes[from] : routes;
        rank = state->rank[from];
    }
    if (state->load[rank] - state->most < routes)
        routes = state->load[rank] - state->most;
    if (routes <= 0)
        return;
    state->load[rank] -= routes;
    state->load[to] += routes;
    rank = to;
    for (int32_t into; (into = state->by_rank[rank]) >= 0;) {
        int32_t from = state->by_expert[state->expert[into]];
        state->routes[into] += routes;
        state->routes[from] -= routes;
        rank = state->rank[from];
    }
}

/* Until no rank is above the bound.  If none below it can be reached, the routes of the ranks
 * reached can't leave them, and the bound is their even share at least. */
static void level(struct mp_lp *state) {
    for (int reached; (reached = search(state)) > 0;) {
        int64_t routes = 0;
        bool below = false;
        for (int index = 0; index < reached; index++)
            below |= state->load[state->reached[index]] < state->most;
        for (int index = 0; index < reached; index++)
            if (!below)
                routes += state->load[state->reached[index]];
            else if (state->load[state->reached[index]] < state->most)
                pass_on(state, state->reached[index]);
        if (!below)
            state->most = (routes + reached - 1) / reached;
    }
}

int mp_lp_balance(struct mp_lp *state, const struct mp_topology *topology,
                  const struct mp_placement *holders, const struct mp_load *load,
                  struct mp_error *error) {
    add_up(state, topology, load);
    MP_TRY(begin_at_home(state, holders, load, error));
    go_near(state, topology, load);
    level(state);
    mp_pieces_clear(&state->pieces);
    for (int32_t pair = 0; pair < state->begin[state->experts]; pair++)
        MP_TRY(mp_pieces_add(&state->pieces, state->expert[pair], state->rank[pair],
                             state->routes[pair], error));
    return MP_OK;
}
