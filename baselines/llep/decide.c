/* Who computes how many routes: least-loaded spilling (arXiv 2601.17111). */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "baselines/llep/llep.h"

int mp_llep_create(int ranks, int experts, struct mp_llep *state, struct mp_error *error) {
    *state = (struct mp_llep){.ranks = ranks, .experts = experts};
    if (ranks < 1 || experts < 1)
        return mp_fail(error, MP_EINVAL, "no spilling of %d experts over %d ranks", experts, ranks);
    /* Every piece is an owner's, ends an expert or fills a helper, for good. */
    int code = mp_pieces_create(experts, 2 * experts + ranks, &state->pieces, error);
    if (!code)
        code = mp_queue_create(ranks, &state->helpers, error);
    state->load = malloc((size_t)ranks * sizeof *state->load);
    state->native = malloc((size_t)ranks * sizeof *state->native);
    state->foreign = malloc((size_t)ranks * sizeof *state->foreign);
    state->total = malloc((size_t)experts * sizeof *state->total);
    state->order = malloc((size_t)experts * sizeof *state->order);
    if (!code &&
        (!state->load || !state->native || !state->foreign || !state->total || !state->order))
        code = mp_fail(error, MP_ENOMEM, "no memory to spill %d experts over %d ranks", experts,
                       ranks);
    if (code)
        mp_llep_destroy(state);
    return code;
}

void mp_llep_destroy(struct mp_llep *state) {
    mp_pieces_destroy(&state->pieces);
    mp_queue_destroy(&state->helpers);
    free(state->load);
    free(state->native);
    free(state->foreign);
    free(state->total);
    free(state->order);
    *state = (struct mp_llep){0};
}

static int64_t largest(const int64_t load[], int count) {
    int64_t most = 0;

    for (int index = 0; index < count; index++)
        if (load[index] > most)
            most = load[index];
    return most;
}

/* Fills in what every owner would compute, and says whether that is skewed enough. */
static bool is_skewed(struct mp_llep *state, const struct mp_llep_options *options,
                      const int32_t owner[], int64_t total) {
    memset(state->native, 0, (size_t)state->ranks * sizeof *state->native);
    for (int expert = 0; expert < state->experts; expert++)
        state->native[owner[expert]] += state->total[expert];
    bool of_ranks = options->trigger == MP_LLEP_PER_RANK;
    int items = of_ranks ? state->ranks : state->experts;
    int64_t most = largest(of_ranks ? state->native : state->total, items);

    return total > 0 && (double)most * items >= options->threshold * (double)total;
}

/* The ranks with room for a piece, the one with most room first.  Their own experts fit, so what is
 * to come to them stays as it is; a rank whose own experts don't fit never has room, as it keeps of
 * them what fills it. */
static void queue_helpers(struct mp_llep *state, int copies) {
    state->helpers.count = 0;
    for (int rank = 0; rank < state->ranks && copies > 0; rank++)
        if (state->native[rank] < state->cap)
            mp_queue_push(&state->helpers, (double)(state->cap - state->native[rank]), rank);
}

/* Spills as many of an expert's routes as helpers take.  None gets a second piece of the expert: it
 * is full, or nothing is left. */
static int spill(struct mp_llep *state, const struct mp_llep_options *options, int expert,
                 int copies, int64_t *routes, struct mp_error *error) {
    int code = MP_OK;

    while (*routes > 0 && state->helpers.count > 0 && !code) {
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
        code = mp_pieces_add(&state->pieces, expert, helper.id, piece, error);
    }
    return code;
}

/* The owner's piece is to come first but is known last: what nobody else takes is added to it. */
static int place(struct mp_llep *state, const struct mp_llep_options *options, int expert,
                 int owner, int copies, struct mp_error *error) {
    int64_t routes = state->total[expert], room = state->cap - state->load[owner];
    int64_t kept = routes < room ? routes : room > 0 ? room : 0;
    int64_t left = routes - kept;
    int32_t first = state->pieces.count;

    int code = mp_pieces_add(&state->pieces, expert, owner, routes, error);
    if (!code)
        code = spill(state, options, expert, copies, &left, error);
    if (!code && routes > 0)
        state->pieces.item[first].routes = kept + left;
    state->load[owner] += kept + left;
    return code;
}

int mp_llep_decide(struct mp_llep *state, const struct mp_llep_options *options,
                   const int32_t owner[], int copies, struct mp_error *error) {
    int64_t total = 0;
    int code = MP_OK;

    for (int expert = 0; expert < state->experts; expert++)
        total += state->total[expert];
    mp_pieces_clear(&state->pieces);
    state->active = is_skewed(state, options, owner, total);
    if (!state->active)
        return MP_OK;
    state->cap = (int64_t)ceil(options->alpha * (double)total / state->ranks);
    memset(state->load, 0, (size_t)state->ranks * sizeof *state->load);
    memset(state->foreign, 0, (size_t)state->ranks * sizeof *state->foreign);
    queue_helpers(state, copies);
    mp_load_hottest(state->total, state->experts, state->experts, state->order);
    for (int index = 0; index < state->experts && !code; index++) {
        int expert = state->order[index];
        code = place(state, options, expert, owner[expert], copies, error);
    }
    return code;
}
