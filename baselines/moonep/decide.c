/* Who computes how many routes: exact balance by pairs of home groups (MoonshotAI/MoonEP). */

#include "baselines/moonep/moonep.h"

void mp_moonep_create(struct mp_arena *memory, int ranks, int experts, struct mp_moonep *state) {
    *state = (struct mp_moonep){.ranks = ranks, .experts = experts};
    mp_owned_create(memory, ranks, experts, &state->group);
    /* Every taking uses up an expert or fills a rank; what is left of an expert is its owner's. */
    mp_pieces_create(memory, experts, 2 * experts + ranks, &state->pieces);
    mp_queue_create(memory, ranks, &state->above);
    mp_queue_create(memory, ranks, &state->below);
    mp_queue_create(memory, experts, &state->left);
    mp_queue_create(memory, ranks, &state->takers);
    size_t r = (size_t)ranks, e = (size_t)experts;
    MP_TAKE(memory, state->total, e);
    MP_TAKE_EACH(memory, r, state->lack, state->quota, state->order, state->first_taker,
                 state->first_taking, state->next_taker);
    MP_TAKE(memory, state->taking, e + r);
}

/* Every rank's group and its routes; nobody takes any yet.  Returns all routes. */
static int64_t list_groups(struct mp_moonep *state, const int32_t owner[]) {
    for (int rank = 0; rank < state->ranks; rank++) {
        state->first_taker[rank] = state->first_taking[rank] = -1;
        state->quota[rank] = 0;
    }
    state->takings = 0;
    return mp_owned_list(&state->group, owner, state->total, NULL);
}

/* Which group gives how many routes to which rank, until none has more than `allowed` above its
 * share.  The shares are all routes, so that somebody lacks some as long as somebody has more. */
static void pair_groups(struct mp_moonep *state, double allowed) {
    state->above.count = state->below.count = 0;
    for (int rank = 0; rank < state->ranks; rank++)
        if (state->lack[rank] > 0)
            mp_queue_push(&state->below, (double)state->lack[rank], rank);
        else if (state->lack[rank] < 0)
            mp_queue_push(&state->above, -(double)state->lack[rank], rank);
    while (state->above.count > 0 && state->above.item[0].key > allowed) {
        int32_t home = state->above.item[0].id, taker = mp_queue_pop(&state->below).id;
        state->quota[taker] = state->lack[taker];
        state->next_taker[taker] = state->first_taker[home];
        state->first_taker[home] = taker;
        state->lack[home] += state->quota[taker];
        mp_queue_lessen_first(&state->above, state->quota[taker]);
        if (state->lack[home] > 0)
            mp_queue_push(&state->below, (double)state->lack[home], home);
    }
}

/* Which experts of a group its takers compute.  A group has at least what it gives: more than its
 * share before it gives to the last of them, who lacks a share at most. */
static void cut_experts(struct mp_moonep *state, int home) {
    state->takers.count = state->left.count = 0;
    for (int32_t taker = state->first_taker[home]; taker >= 0; taker = state->next_taker[taker])
        mp_queue_push(&state->takers, (double)state->quota[taker], taker);
    for (int32_t at = state->group.begin[home];
         at < state->group.begin[home + 1] && state->takers.count > 0; at++)
        mp_queue_push(&state->left, (double)state->total[state->group.expert[at]],
                      state->group.expert[at]);
    while (state->takers.count > 0) {
        struct mp_queued taker = state->takers.item[0], expert = state->left.item[0];
        int64_t routes = (int64_t)(taker.key < expert.key ? taker.key : expert.key);
        state->taking[state->takings] =
            (struct mp_moonep_taking){routes, expert.id, state->first_taking[taker.id]};
        state->first_taking[taker.id] = state->takings++;
        state->total[expert.id] -= routes;
        mp_queue_lessen_first(&state->takers, routes);
        mp_queue_lessen_first(&state->left, routes);
    }
}

/* Pieces of ascending ranks: what a rank takes, and what is left of its own experts. */
static int add_pieces(struct mp_moonep *state, int rank, struct mp_error *error) {

    for (int32_t at = state->first_taking[rank]; at >= 0; at = state->taking[at].next)
        MP_TRY(mp_pieces_add(&state->pieces, state->taking[at].expert, rank,
                             state->taking[at].routes, error));
    for (int32_t at = state->group.begin[rank]; at < state->group.begin[rank + 1]; at++)
        MP_TRY(mp_pieces_add(&state->pieces, state->group.expert[at], rank,
                             state->total[state->group.expert[at]], error));
    return MP_OK;
}

int mp_moonep_decide(struct mp_moonep *state, const struct mp_moonep_options *options,
                     const int32_t owner[], struct mp_error *error) {
    int64_t routes = list_groups(state, owner);

    mp_load_lacks(state->group.load, state->ranks, routes, state->order, state->lack);
    pair_groups(state, options->tolerance * (double)routes / state->ranks);
    for (int rank = 0; rank < state->ranks; rank++)
        cut_experts(state, rank);
    mp_pieces_clear(&state->pieces);
    for (int rank = 0; rank < state->ranks; rank++)
        MP_TRY(add_pieces(state, rank, error));
    return MP_OK;
}
