/* Who computes how many routes: least-loaded spilling (arXiv 2601.17111). */
#include <math.h>
#include <string.h>

#include "baselines/llep/llep.h"

void mp_llep_create(struct mp_arena *memory, int ranks, int experts, struct mp_llep *state) {
    *state = (struct mp_llep){.ranks = ranks, .experts = experts};
    mp_owned_create(memory, ranks, experts, &state->owned);
    /* Every piece is an owner's, ends an expert or fills a helper, for good. */
    mp_pieces_create(memory, experts, 2 * experts + ranks, &state->pieces);
    mp_queue_create(memory, ranks, &state->helpers);
    MP_TAKE_EACH(memory, ranks, state->load, state->foreign);
    MP_TAKE_EACH(memory, experts, state->total, state->order);
}

static int64_t largest(const int64_t load[], int count) {
    int64_t most = 0;

    for (int index = 0; index < count; index++)
        if (load[index] > most)
            most = load[index];
    return most;
}

/* Whether what every owner would compute is skewed enough. */
static bool is_skewed(const struct mp_llep *state, const struct mp_llep_options *options,
                      int64_t total) {
    bool of_ranks = options->trigger == MP_LLEP_PER_RANK;
    int items = of_ranks ? state->ranks : state->experts;
    int64_t most = largest(of_ranks ? state->owned.load : state->total, items);

    return total > 0 && (double)most * items >= options->threshold * (double)total;
}

/* The ranks with room for a piece, the one with most room first.  Their own experts fit, so what is
 * to come to them stays as it is; a rank whose own experts don't fit never has room, as it keeps of
 * them what fills it. */
static void queue_helpers(struct mp_llep *state, int copies) {
    state->helpers.count = 0;
    for (int rank = 0; rank < state->ranks && copies > 0; rank++)
        if (state->owned.load[rank] < state->cap)
            mp_queue_push(&state->helpers, (double)(state->cap - state->owned.load[rank]), rank);
}

/* Spills as many of an expert's routes as helpers take.  None gets a second piece of the expert: it
 * is full, or nothing is left. */
static int spill(struct mp_llep *state, const struct mp_llep_options *options, int expert,
                 int copies, int64_t *routes, struct mp_error *error) {

    while (*routes > 0 && state->helpers.count > 0) {
        struct mp_queued helper = state->helpers.item[0];
        int64_t room = (int64_t)helper.key, piece = *routes < room ? *routes : room;
        if (piece < options->smallest_gemm)
            return MP_OK;
        *routes -= piece;
        state->load[helper.id] += piece;
        if (++state->foreign[helper.id] == copies || piece == room)
            mp_queue_pop(&state->helpers);
        else
            mp_queue_change_first(&state->helpers, (double)(room - piece));
        MP_TRY(mp_pieces_add(&state->pieces, expert, helper.id, piece, error));
    }
    return MP_OK;
}

/* The owner's piece is to come first but is known last: what nobody else takes is added to it. */
static int place(struct mp_llep *state, const struct mp_llep_options *options, int expert,
                 int owner, int copies, struct mp_error *error) {
    int64_t routes = state->total[expert], room = state->cap - state->load[owner];
    int64_t kept = routes < room ? routes : room > 0 ? room : 0;
    int64_t left = routes - kept;
    int32_t first = state->pieces.count;

    MP_TRY(mp_pieces_add(&state->pieces, expert, owner, routes, error));
    MP_TRY(spill(state, options, expert, copies, &left, error));
    if (routes > 0)
        state->pieces.item[first].routes = kept + left;
    state->load[owner] += kept + left;
    return MP_OK;
}

int mp_llep_decide(struct mp_llep *state, const struct mp_llep_options *options,
                   const int32_t owner[], int copies, struct mp_error *error) {
    int64_t total = mp_owned_list(&state->owned, owner, state->total, NULL);

    mp_pieces_clear(&state->pieces);
    state->active = is_skewed(state, options, total);
    if (!state->active)
        return MP_OK;
    state->cap = (int64_t)ceil(options->alpha * (double)total / state->ranks);
    memset(state->load, 0, (size_t)state->ranks * sizeof *state->load);
    memset(state->foreign, 0, (size_t)state->ranks * sizeof *state->foreign);
    queue_helpers(state, copies);
    mp_load_hottest(state->total, state->experts, state->experts, state->order);
    for (int index = 0; index < state->experts; index++) {
        int expert = state->order[index];
        MP_TRY(place(state, options, expert, owner[expert], copies, error));
    }
    return MP_OK;
}
