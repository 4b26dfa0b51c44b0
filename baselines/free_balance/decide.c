/* Who computes how many routes, in perfect balance. */
#include "baselines/free_balance/free_balance.h"

void mp_free_balance_create(struct mp_arena *memory, int ranks, int experts,
                            struct mp_free_balance *state) {
    *state = (struct mp_free_balance){.ranks = ranks, .experts = experts};
    mp_owned_create(memory, ranks, experts, &state->owned);
    /* Every piece is an owner's, or uses up an expert or the surplus or lack of a rank. */
    mp_pieces_create(memory, experts, 2 * experts + ranks, &state->pieces);
    MP_TAKE(memory, state->total, experts);
    MP_TAKE_EACH(memory, ranks, state->lack, state->order);
}

/* Gives up a rank's surplus to the ranks that lack routes, from *helper on. */
static int give_up(struct mp_free_balance *state, int rank, int *helper, struct mp_error *error) {
    int64_t surplus = -state->lack[rank];

    while (surplus > 0) {
        int32_t expert = mp_owned_hottest(&state->owned, rank, state->total);
        while (state->lack[*helper] <= 0)
            ++*helper;
        int64_t piece = state->total[expert] < surplus ? state->total[expert] : surplus;
        if (piece > state->lack[*helper])
            piece = state->lack[*helper];
        surplus -= piece;
        state->total[expert] -= piece;
        state->lack[*helper] -= piece;
        MP_TRY(mp_pieces_add(&state->pieces, expert, *helper, piece, error));
    }
    return MP_OK;
}

int mp_free_balance_decide(struct mp_free_balance *state, const int32_t owner[],
                           struct mp_error *error) {
    int helper = 0;

    int64_t routes = mp_owned_list(&state->owned, owner, state->total, NULL);
    mp_load_lacks(state->owned.load, state->ranks, routes, state->order, state->lack);
    mp_pieces_clear(&state->pieces);
    for (int rank = 0; rank < state->ranks; rank++)
        MP_TRY(give_up(state, rank, &helper, error));
    for (int expert = 0; expert < state->experts; expert++)
        MP_TRY(mp_pieces_add(&state->pieces, expert, owner[expert], state->total[expert], error));
    return MP_OK;
}
