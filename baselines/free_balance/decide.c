/* Who computes how many routes, in perfect balance. */
#include <stdlib.h>
#include <string.h>

#include "baselines/free_balance/free_balance.h"

int mp_free_balance_create(struct mp_arena *memory, int ranks, int experts,
                           struct mp_free_balance *state, struct mp_error *error) {
    *state = (struct mp_free_balance){.ranks = ranks, .experts = experts};
    if (ranks < 1 || experts < 1)
        return mp_fail(error, MP_EINVAL, "no balance of %d experts on %d ranks", experts, ranks);
    /* Every piece is an owner's, or uses up an expert or the surplus or lack of a rank. */
    int code = mp_pieces_create(memory, experts, 2 * experts + ranks, &state->pieces, error);
    MP_TAKE(memory, state->total, experts);
    MP_TAKE(memory, state->load, ranks);
    MP_TAKE(memory, state->lack, ranks);
    MP_TAKE(memory, state->order, ranks);
    MP_TAKE(memory, state->owned_begin, (size_t)ranks + 1);
    MP_TAKE(memory, state->owned, experts);
    return code ? code : mp_arena_check(memory, error);
}

/* The experts of every rank, ascending, and what they add up to.  Returns all routes. */
static int64_t list_owned(struct mp_free_balance *state, const int32_t owner[]) {
    int32_t *begin = state->owned_begin;
    int64_t routes = 0;

    memset(begin, 0, ((size_t)state->ranks + 1) * sizeof *begin);
    memset(state->load, 0, (size_t)state->ranks * sizeof *state->load);
    for (int expert = 0; expert < state->experts; expert++) {
        begin[owner[expert]]++;
        state->load[owner[expert]] += state->total[expert];
        routes += state->total[expert];
    }
    for (int rank = 0; rank < state->ranks; rank++)
        begin[rank + 1] += begin[rank];
    /* Each begin is an end now, and moves back to where it belongs. */
    for (int expert = state->experts - 1; expert >= 0; expert--)
        state->owned[--begin[owner[expert]]] = expert;
    return routes;
}

/* The expert of a rank with the most routes left, ties to the lower id. */
static int32_t hottest_of(const struct mp_free_balance *state, int rank) {
    int32_t at = state->owned_begin[rank], found = state->owned[at];

    while (++at < state->owned_begin[rank + 1])
        if (state->total[state->owned[at]] > state->total[found])
            found = state->owned[at];
    return found;
}

/* Gives up a rank's surplus to the ranks that lack routes, from *helper on. */
static int give_up(struct mp_free_balance *state, int rank, int *helper, struct mp_error *error) {
    int64_t surplus = -state->lack[rank];
    int code = MP_OK;

    while (surplus > 0 && !code) {
        int32_t expert = hottest_of(state, rank);
        while (state->lack[*helper] <= 0)
            ++*helper;
        int64_t piece = state->total[expert] < surplus ? state->total[expert] : surplus;
        if (piece > state->lack[*helper])
            piece = state->lack[*helper];
        surplus -= piece;
        state->total[expert] -= piece;
        state->lack[*helper] -= piece;
        code = mp_pieces_add(&state->pieces, expert, *helper, piece, error);
    }
    return code;
}

int mp_free_balance_decide(struct mp_free_balance *state, const int32_t owner[],
                           struct mp_error *error) {
    int helper = 0, code = MP_OK;

    mp_load_lacks(state->load, state->ranks, list_owned(state, owner), state->order, state->lack);
    mp_pieces_clear(&state->pieces);
    for (int rank = 0; rank < state->ranks && !code; rank++)
        code = give_up(state, rank, &helper, error);
    for (int expert = 0; expert < state->experts && !code; expert++)
        code = mp_pieces_add(&state->pieces, expert, owner[expert], state->total[expert], error);
    return code;
}
