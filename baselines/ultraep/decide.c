/* Which copies get how many routes: the quota planner of UltraEP (see ultraep.h). */
#include <math.h>

#include "baselines/ultraep/ultraep.h"

enum { FIRST_TRIES = 3, PROBES = 4 };

void mp_ultraep_create(struct mp_arena *memory, int ranks, int experts, struct mp_ultraep *state) {
    *state = (struct mp_ultraep){.ranks = ranks, .experts = experts};
    /* Every quota fills a rank, ends an expert or relieves a rank, for good. */
    size_t r = (size_t)ranks, e = (size_t)experts, quotas = e + 2 * r;
    mp_owned_create(memory, ranks, experts, &state->owned);
    mp_pieces_create(memory, experts, (int)(e + quotas), &state->pieces);
    mp_queue_create(memory, ranks, &state->fullest);
    mp_queue_create(memory, ranks, &state->room);
    MP_TAKE_EACH(memory, e, state->total, state->order);
    MP_TAKE(memory, state->copies, r);
    MP_TAKE(memory, state->quota, quotas);
}

/* An expert's routes to those with most room.  Returns what of `need` is left. */
static int64_t give(struct mp_ultraep *state, const struct mp_ultraep_options *options, int expert,
                    int64_t least, int64_t need) {
    int64_t routes = state->total[expert];

    if (routes > 0 && !options->empty_owners)
        routes--;
    while (need > 0 && routes > 0 && state->room.count > 0) {
        int64_t room = (int64_t)state->room.item[0].key, quota = need < room ? need : room;
        int32_t rank = state->room.item[0].id;
        quota = routes < quota ? routes : quota;
        /* Without a least quota: that which all who could take some would share. */
        if (quota < (least > 0 ? least : (need + state->room.count - 1) / state->room.count))
            break;
        state->quota[state->quotas++] = (struct mp_ultraep_quota){quota, expert, rank};
        if (++state->copies[rank] == options->redundant || quota == room)
            mp_queue_pop(&state->room);
        else
            mp_queue_change_first(&state->room, (double)(room - quota));
        need -= quota;
        routes -= quota;
    }
    return need;
}

/* Quotas with which no rank from `first` on is above the bound; false: none were found. */
static bool try_bound(struct mp_ultraep *state, const struct mp_ultraep_options *options, int first,
                      int end, int64_t bound, int64_t least) {
    const struct mp_owned *owned = &state->owned;
    state->quotas = state->fullest.count = state->room.count = 0;
    for (int rank = first; rank < end; rank++) {
        state->copies[rank] = 0;
        if (owned->load[rank] > bound)
            mp_queue_push(&state->fullest, (double)owned->load[rank], rank);
        else if (owned->load[rank] < bound && options->redundant > 0)
            mp_queue_push(&state->room, (double)(bound - owned->load[rank]), rank);
    }
    while (state->fullest.count > 0) {
        int32_t rank = mp_queue_pop(&state->fullest).id;
        int64_t need = owned->load[rank] - bound;
        for (int32_t at = owned->begin[rank]; at < owned->begin[rank + 1] && need > 0; at++)
            need = give(state, options, owned->expert[at], least, need);
        if (need > 0)
            return false;
    }
    return true;
}

/* The bound of the released kernel's search: what four tries at once narrow down. */
static int64_t search(struct mp_ultraep *state, const struct mp_ultraep_options *options, int first,
                      int end, int64_t low, int64_t high) {
    if (try_bound(state, options, first, end, low, options->least_quota))
        return low;
    if (low < high)
        low++;
    while (low < high) {
        int64_t range = high - low, before = low;
        int probe = 0;
        for (; probe < PROBES; probe++) {
            int64_t bound =
                range <= PROBES ? low + probe : low + range * (probe + 1) / (PROBES + 1);
            if (bound >= high)
                return high;
            if (try_bound(state, options, first, end, bound, options->least_quota)) {
                high = bound;
                break;
            }
            before = bound + 1;
        }
        if (range <= PROBES)
            return high;
        low = before;
    }
    return high;
}

static void decide_node(struct mp_ultraep *state, const struct mp_ultraep_options *options,
                        int first, int end) {
    const int64_t *load = state->owned.load;
    int64_t all = 0, most = 0;

    for (int rank = first; rank < end; rank++) {
        all += load[rank];
        most = load[rank] > most ? load[rank] : most;
    }
    double mean = (double)all / (end - first);
    int64_t low = (int64_t)ceil(mean * options->threshold), high = most > low ? most : low;
    int64_t bound = (int64_t)ceil((double)low * (1 + options->tolerance));
    int64_t step = (high + 99) / 100 > 1 ? (high + 99) / 100 : 1;
    for (int tries = 0; tries < FIRST_TRIES; tries++) {
        if (try_bound(state, options, first, end, bound, 0))
            return;
        bound = bound + step < high ? bound + step : high;
    }
    bound = search(state, options, first, end, low, high);
    try_bound(state, options, first, end, bound, options->least_quota);
}

int mp_ultraep_decide(struct mp_ultraep *state, const struct mp_ultraep_options *options,
                      const struct mp_topology *topology, const int32_t owner[],
                      struct mp_error *error) {

    mp_load_hottest(state->total, state->experts, state->experts, state->order);
    mp_owned_list(&state->owned, owner, state->total, state->order);
    mp_pieces_clear(&state->pieces);
    for (int node = 0; node < mp_topology_nodes(topology); node++) {
        int first = mp_topology_node_begin(topology, node);
        int end = mp_topology_node_end(topology, node);
        decide_node(state, options, first, end);
        for (int index = 0; index < state->quotas; index++)
            state->total[state->quota[index].expert] -= state->quota[index].routes;
        for (int32_t at = state->owned.begin[first]; at < state->owned.begin[end]; at++) {
            int expert = state->owned.expert[at];
            MP_TRY(
                mp_pieces_add(&state->pieces, expert, owner[expert], state->total[expert], error));
        }
        for (int index = 0; index < state->quotas; index++)
            MP_TRY(mp_pieces_add(&state->pieces, state->quota[index].expert,
                                 state->quota[index].rank, state->quota[index].routes, error));
    }
    return MP_OK;
}
