/* Who computes which source's routes: HarMoEny's redistribution (see harmoeny.h). */
#include <string.h>

#include "baselines/harmoeny/harmoeny.h"

void mp_harmoeny_create(struct mp_arena *memory, int ranks, int experts,
                        struct mp_harmoeny *state) {
    *state = (struct mp_harmoeny){.ranks = ranks, .experts = experts};
    /* A move takes all that is left of a source and an expert, or fills a rank for good. */
    size_t r = (size_t)ranks, e = (size_t)experts, moves = r * e + r;
    mp_owned_create(memory, ranks, experts, &state->owned);
    mp_queue_create(memory, ranks, &state->sources);
    MP_TAKE_EACH(memory, r * e, state->kept, state->first);
    MP_TAKE(memory, state->move, moves);
    MP_TAKE(memory, state->total, e);
}

/* Every owner computes its experts.  Returns the mean of ranks, rounded down. */
static int64_t begin_with_owners(struct mp_harmoeny *state, const int32_t owner[],
                                 const struct mp_load *load) {
    size_t cells = (size_t)state->ranks * (size_t)state->experts;

    memcpy(state->kept, load->count, cells * sizeof *state->kept);
    memset(state->first, -1, cells * sizeof *state->first);
    state->moves = 0;
    mp_load_expert_totals(load, state->total);
    return mp_owned_list(&state->owned, owner, state->total, NULL) / state->ranks;
}

/* Moves an expert's routes, source after source. */
static void move_expert(struct mp_harmoeny *state, int expert, int from, int to, int64_t mean) {
    int64_t *computed = state->owned.load, above = computed[from] - mean;

    state->sources.count = 0;
    for (int source = 0; source < state->ranks; source++) {
        uint32_t kept = state->kept[(long)source * state->experts + expert];
        if (kept > 0)
            mp_queue_push(&state->sources, kept, source);
    }
    while (above > 0 && computed[to] < mean && state->sources.count > 0) {
        long cell = (long)mp_queue_pop(&state->sources).id * state->experts + expert;
        int64_t room = mean - computed[to], routes = state->kept[cell];
        routes = routes < room ? routes : room;
        state->kept[cell] -= (uint32_t)routes;
        state->move[state->moves] = (struct mp_harmoeny_move){routes, to, state->first[cell]};
        state->first[cell] = state->moves++;
        state->total[expert] -= routes;
        computed[from] -= routes;
        computed[to] += routes;
        above -= routes;
    }
}

void mp_harmoeny_decide(struct mp_harmoeny *state, const struct mp_harmoeny_options *options,
                        const int32_t owner[], const struct mp_load *load) {
    int64_t mean = begin_with_owners(state, owner, load), *computed = state->owned.load;

    for (;;) {
        int from = 0, to = 0;
        for (int rank = 1; rank < state->ranks; rank++) {
            from = computed[rank] > computed[from] ? rank : from;
            to = computed[rank] < computed[to] ? rank : to;
        }
        if (computed[from] <= mean || computed[to] + options->least > mean)
            return;
        int hottest = mp_owned_hottest(&state->owned, from, state->total);
        if (hottest < 0 || state->total[hottest] < options->least)
            return;
        move_expert(state, hottest, from, to, mean);
    }
}
